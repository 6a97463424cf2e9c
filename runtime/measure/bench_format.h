/* bench_format.h: results as tables: Markdown, CSV, JSON, JSON lines, SQL.
 *
 * A record is a list of named fields, the same names in the same order for every record of a
 * table; Markdown shows cells instead, which the caller makes of them. A struct bench_writer
 * borrows all its pointers and owns nothing. Must not know what is measured. One thread. Tested by
 * tests/runtime/test_bench.c.
 */
#ifndef TANDEM_RUNTIME_MEASURE_BENCH_FORMAT_H
#define TANDEM_RUNTIME_MEASURE_BENCH_FORMAT_H

#include "base/err.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum bench_output { BENCH_MD, BENCH_CSV, BENCH_JSON, BENCH_JSONL, BENCH_SQL, BENCH_OUTPUTS };
// Parses "md", "csv", "json", "jsonl" or "sql". False for another name.
bool bench_output_parse(const char *name, enum bench_output *out);

enum bench_kind {
    BENCH_TEXT,
    BENCH_COUNT,
    BENCH_REAL, // a value that is not finite is unknown: null in JSON and SQL, empty in CSV
    BENCH_FLAG,
    BENCH_COUNTS, // lists are for JSON only
    BENCH_REALS,
};

struct bench_field {
    const char *name;
    enum bench_kind kind;
    const char *text; // borrowed, as the lists below
    int64_t count;    // of BENCH_FLAG: 0 or 1
    double real;
    const uint64_t *counts; // [n]
    const double *reals;    // [n]
    int32_t n;
};

static inline struct bench_field bench_text(const char *name, const char *text) {
    return (struct bench_field){.name = name, .kind = BENCH_TEXT, .text = text};
}
static inline struct bench_field bench_count(const char *name, int64_t count) {
    return (struct bench_field){.name = name, .kind = BENCH_COUNT, .count = count};
}
static inline struct bench_field bench_real(const char *name, double real) {
    return (struct bench_field){.name = name, .kind = BENCH_REAL, .real = real};
}
// A field that is unknown in this row.
static inline struct bench_field bench_unknown(const char *name) { return bench_real(name, NAN); }
static inline struct bench_field bench_flag(const char *name, bool flag) {
    return (struct bench_field){.name = name, .kind = BENCH_FLAG, .count = flag};
}
static inline struct bench_field bench_counts(const char *name, const uint64_t *counts, int32_t n) {
    return (struct bench_field){.name = name, .kind = BENCH_COUNTS, .counts = counts, .n = n};
}
static inline struct bench_field bench_reals(const char *name, const double *reals, int32_t n) {
    return (struct bench_field){.name = name, .kind = BENCH_REALS, .reals = reals, .n = n};
}

struct bench_column { // of the Markdown table
    const char *heading;
    int32_t width; // columns of a terminal; longer cells are not cut
    bool left;     // aligned
};

enum { BENCH_CELL_BYTES = 640 };

struct bench_record {
    const struct bench_field *fields;
    int32_t n_fields;
    const char (*cells)[BENCH_CELL_BYTES]; // [n_columns of the writer]
};

struct bench_writer {
    FILE *out;
    enum bench_output format;
    const char *table;                  // its name in SQL
    const struct bench_column *columns; // must be set before the first row
    int32_t n_columns;
    int32_t n_rows; // written so far; 0 at first
};

// Writes a row, after the head of the table if it is the first, and flushes. ERR_MEMORY, ERR_FILE.
enum status bench_writer_row(struct bench_writer *w, const struct bench_record *record,
                             struct err *e);
// Ends the table, also an empty one, so that JSON is complete even after a failure. ERR_FILE.
enum status bench_writer_end(struct bench_writer *w, struct err *e);

#endif
