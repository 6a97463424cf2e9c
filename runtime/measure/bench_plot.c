/* bench_plot.c: see bench_plot.h. */
#include "runtime/measure/bench_plot.h"

#include "base/new_file.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Colours that most people can tell apart, also in print. Source: Okabe and Ito 2008.
static const char *const COLOURS[STRATEGIES] = {
    [STRATEGY_AUTO] = "#000000",     [STRATEGY_CPU] = "#999999",
    [STRATEGY_LAYERS] = "#0072b2",   [STRATEGY_ATTENTION_FIRST] = "#56b4e9",
    [STRATEGY_STREAMED] = "#e69f00", [STRATEGY_ROW_SPLIT] = "#009e73",
};

// Writes a text in single quotes for gnuplot, in which only the quote is special and doubled.
static void write_text(const char *text, FILE *out) {
    fputc('\'', out);
    for (; *text; text++) {
        if (*text == '\'') fputc('\'', out);
        fputc((unsigned char)*text < 0x20 ? '?' : *text, out);
    }
    fputc('\'', out);
}

enum status bench_plot_check(const char *path, struct err *e) {
    if (system("command -v gnuplot >/dev/null 2>&1") != 0) {
        err_set(e, ERR_UNSUPPORTED, "--plot needs gnuplot, which is not here");
        return err_fix(e, "apt-get install gnuplot-nox");
    }
    return new_file_check(path, e);
}

// ---- The script ---------------------------------------------------------------------------------

// One of the two pictures.
struct picture {
    const char *heading;
    bool is_prompt;
};

static const struct bench_case *case_of(const struct bench_plot *plot, int32_t limit, int32_t bar) {
    return &plot->cases[limit * STRATEGIES + bar];
}

// The middle of a bar: groups are one apart, and a bar's width is left free between them.
static double place_of(int32_t limit, int32_t bar) {
    return limit + (bar - (STRATEGIES - 1) / 2.0) / (STRATEGIES + 1);
}

static double planned_of(const struct bench_case *c, const struct picture *picture) {
    const struct bench_test *test = picture->is_prompt ? &c->prompt.test : &c->gen.test;
    const double us =
        picture->is_prompt ? c->prompt_estimate.planned_us : c->gen_estimate.planned_us;
    return us > 0 ? (test->n_prompt + test->n_gen) * 1e6 / us : NAN;
}

// The end of the scale, chosen so that measured bars stay visible beside plans with the rates of a
// far faster machine. 0 if nothing fits.
static double top_of(const struct bench_plot *plot, const struct picture *picture) {
    double most = 0, top = 0;
    for (int32_t i = 0; i < plot->n_limits * STRATEGIES; i++) {
        const struct bench_case *c = &plot->cases[i];
        if (!c->is_refused) most = fmax(most, (picture->is_prompt ? c->prompt : c->gen).speed.most);
    }
    for (int32_t i = 0; i < plot->n_limits * STRATEGIES; i++) {
        const double planned = planned_of(&plot->cases[i], picture);
        if (!plot->cases[i].is_refused && planned <= 2 * most) top = fmax(top, planned);
    }
    return 1.05 * fmax(most, top);
}

static bool is_off_scale(const struct bench_plot *plot, const struct picture *picture) {
    const double top = top_of(plot, picture);
    for (int32_t i = 0; i < plot->n_limits * STRATEGIES; i++)
        if (!plot->cases[i].is_refused && planned_of(&plot->cases[i], picture) > top) return true;
    return false;
}

// Writes a block of data for each bar of a group: place, median, least, most, planned, and the
// place of the mark for a planned speed beyond the scale.
static void write_data(const struct bench_plot *plot, const struct picture *picture, FILE *out) {
    const double top = top_of(plot, picture);
    for (int32_t bar = 0; bar < STRATEGIES; bar++) {
        fprintf(out, "$bar%d << END\n", bar);
        for (int32_t i = 0; i < plot->n_limits; i++) {
            const struct bench_case *c = case_of(plot, i, bar);
            const struct bench_result *r = picture->is_prompt ? &c->prompt : &c->gen;
            const double n = r->test.n_prompt + r->test.n_gen, planned = planned_of(c, picture);
            if (c->is_refused) continue;
            fprintf(out, "%.4f %.6g %.6g %.6g ", place_of(i, bar), n * 1e6 / r->time_us.median,
                    r->speed.least, r->speed.most);
            if (isnan(planned))
                fputs("NaN NaN\n", out);
            else if (planned <= top)
                fprintf(out, "%.6g NaN\n", planned);
            else
                fprintf(out, "NaN %.6g\n", 0.98 * top);
        }
        // A block with no valid point would be an error.
        fputs("0 NaN NaN NaN NaN NaN\nEND\n", out);
    }
    if (top > 0) fprintf(out, "set yrange [0:%.6g]\n", top);
}

static void write_notes(const struct bench_plot *plot, FILE *out) {
    fputs("unset label\n", out);
    for (int32_t i = 0; i < plot->n_limits; i++)
        for (int32_t bar = 0; bar < STRATEGIES; bar++)
            if (case_of(plot, i, bar)->is_refused)
                fprintf(out,
                        "set label 'does not fit' at first %.4f, graph 0.02 rotate by 90 left "
                        "font ',10' textcolor rgb '#777777'\n",
                        place_of(i, bar));
}

// Prints "6 GiB", "512 MiB"; without a limit "all of it".
static void print_limit(uint64_t limit_bytes, char *out, size_t size_bytes) {
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = (double)limit_bytes;
    int unit = 0;
    for (; value >= 1024 && unit < 4; unit++) value /= 1024;
    if (limit_bytes)
        snprintf(out, size_bytes, "%.4g %s", value, units[unit]);
    else
        snprintf(out, size_bytes, "all of it");
}

static void write_limits(const struct bench_plot *plot, FILE *out) {
    fputs("set xtics (", out);
    for (int32_t i = 0; i < plot->n_limits; i++) {
        char text[32];
        print_limit(case_of(plot, i, 0)->config.vram_bytes, text, sizeof text);
        fprintf(out, "%s'%s' %d", i ? ", " : "", text, i);
    }
    fprintf(out, ") scale 0\nset xrange [-0.6:%.1f]\n", plot->n_limits - 0.4);
}

static void write_picture(const struct bench_plot *plot, const struct picture *picture, FILE *out) {
    write_data(plot, picture, out);
    write_notes(plot, out);
    fprintf(out, "set title '%s' font ',13'\nplot \\\n", picture->heading);
    for (int32_t bar = 0; bar < STRATEGIES; bar++)
        fprintf(out,
                "  $bar%d using 1:2:(%.4f) with boxes fillstyle solid 0.85 noborder linecolor rgb "
                "'%s' title '%s', \\\n"
                "  $bar%d using 1:3:(0):($4-$3) with vectors nohead linecolor rgb '#666666' "
                "notitle, \\\n",
                bar, 0.9 / (STRATEGIES + 1), COLOURS[bench_strategy(bar)],
                strategy_name(bench_strategy(bar)), bar);
    for (int32_t bar = 0; bar < STRATEGIES; bar++)
        fprintf(out,
                "  $bar%d using 1:5 with points pointtype 2 pointsize 0.8 linewidth 2 linecolor "
                "rgb '#d00000' %s, \\\n"
                "  $bar%d using 1:6 with points pointtype 9 pointsize 0.8 linecolor rgb '#d00000' "
                "%s%s\n",
                bar, bar ? "notitle" : "title 'planned'", bar,
                bar || !is_off_scale(plot, picture) ? "notitle" : "title 'planned, off the scale'",
                bar + 1 < STRATEGIES ? ", \\" : "");
}

void bench_plot_write(const struct bench_plot *plot, FILE *out) {
    static const struct picture pictures[] = {
        {"Generation", false},
        {"Prompt", true},
    };
    const int32_t width = 420 + 240 * plot->n_limits;
    fprintf(out,
            "set terminal svg size %d,760 dynamic background rgb 'white' font 'sans-serif,12'\n"
            "set output ",
            width < 900 ? 900 : width);
    write_text(plot->path, out);
    fputs("\nset encoding utf8\nset multiplot layout 2,1 title ", out);
    write_text(plot->title, out);
    fputs(".\"\\n\".", out);
    write_text(plot->subtitle, out);
    fputs(" font ',15' noenhanced\n"
          "set key outside right top vertical Left reverse samplen 2 noenhanced\n"
          "set grid ytics linecolor rgb '#dddddd'\nset border 3\nset tics nomirror\n"
          "set xlabel 'memory of the GPU that may be used'\nset ylabel 'tokens/s'\n"
          "set lmargin 12\nset rmargin 30\n"
          "set yrange [0:*]\n",
          out);
    write_limits(plot, out);
    write_picture(plot, &pictures[0], out);
    fputs("set key off\n", out); // the first picture has shown the key
    write_picture(plot, &pictures[1], out);
    fputs("unset multiplot\nunset output\n", out);
}

enum status bench_plot_draw(const struct bench_plot *plot, struct err *e) {
    FILE *out = popen("gnuplot -", "w");
    if (!out) return err_errno(e, errno, "gnuplot");
    bench_plot_write(plot, out);
    const int code = pclose(out);
    if (code == 0) return OK;
    err_set(e, ERR_FILE, "%s: gnuplot has drawn nothing", plot->path);
    return err_fix(e, "its own words are above");
}
