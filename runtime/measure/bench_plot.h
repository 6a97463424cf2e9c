/* bench_plot.h: strategies as bars, drawn by gnuplot.
 *
 * Owns nothing. gnuplot runs as a process of its own, which reads a script; without it only
 * bench_plot_write works. One thread. Tested by tests/runtime/test_bench.c and
 * tests/cli/cli_bench.sh.
 */
#ifndef TANDEM_RUNTIME_MEASURE_BENCH_PLOT_H
#define TANDEM_RUNTIME_MEASURE_BENCH_PLOT_H

#include "runtime/measure/bench_strategies.h"

#include <stdio.h>

struct bench_plot {
    const struct bench_case *cases; // [n_limits * STRATEGIES], all strategies of a limit together
    int32_t n_limits;
    const char *title, *subtitle, *path; // path: of the SVG file
};

// Checks before anything is measured. ERR_UNSUPPORTED, naming the package, if gnuplot is not
// installed, ERR_FILE if path cannot be written.
enum status bench_plot_check(const char *path, struct err *e);
// Writes the script. For tokens per second of prompts and of generation it draws a group of bars
// for each limit, with the spread of the runs, a mark for the planned speed, and a note where a
// plan does not fit.
void bench_plot_write(const struct bench_plot *plot, FILE *out);
// Draws the plot. ERR_FILE if gnuplot fails.
enum status bench_plot_draw(const struct bench_plot *plot, struct err *e);

#endif
