/* compare_logits.c: compares two files of logits written by `tandem run --logits-out`.
 *
 * compare_logits EXPECTED LOGITS N_VOCAB MAX_NMSE prints one line of "key value" pairs: the NMSE of
 * all positions, the largest of one, the share of positions with the same likeliest token and the
 * first one without. Exits 0 if the NMSE of all positions is within the limit and no value is
 * missing, 1 if not or a file is wrong, 2 for wrong usage. One thread. Run by tests/gpu_check.sh;
 * tested by tests/cli/cli_gpu_check.sh.
 */
#include "base/err.h"
#include "base/file.h"
#include "base/number.h"

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

struct totals {
    double error, square, max_nmse;
    uint64_t n_same, n_bad; // positions; values that only one file has
    int64_t first_other;    // position, -1: none
};

static uint64_t likeliest(const float *row, uint64_t n_vocab) {
    uint64_t best = 0;
    for (uint64_t v = 1; v < n_vocab; v++)
        if (row[v] > row[best]) best = v;
    return best;
}

// Rows of the head that are no tokens have -inf in both files.
static void add_position(struct totals *t, const float *expected, const float *row,
                         uint64_t n_vocab, int64_t position) {
    double error = 0, square = 0;
    for (uint64_t v = 0; v < n_vocab; v++) {
        const bool token = isfinite(expected[v]);
        t->n_bad += token != (bool)isfinite(row[v]);
        if (!token || !isfinite(row[v])) continue;
        const double difference = (double)row[v] - (double)expected[v];
        error += difference * difference;
        square += (double)expected[v] * (double)expected[v];
    }
    t->error += error;
    t->square += square;
    t->max_nmse = fmax(t->max_nmse, error / square);
    if (likeliest(row, n_vocab) == likeliest(expected, n_vocab))
        t->n_same++;
    else if (t->first_other < 0)
        t->first_other = position;
}

static enum status check_size(const struct file *expected, const struct file *logits,
                              uint64_t n_vocab, struct err *e) {
    const uint64_t row_bytes = n_vocab * sizeof(float);
    if (expected->size_bytes && expected->size_bytes % row_bytes == 0 &&
        logits->size_bytes == expected->size_bytes)
        return OK;
    err_set(e, ERR_FORMAT, "%s: wrong size", logits->path);
    err_expected(e, "%" PRIu64 " bytes, rows of %" PRIu64, expected->size_bytes, row_bytes);
    return err_actual(e, "%" PRIu64, logits->size_bytes);
}

static bool report(const struct totals *t, uint64_t n_positions, double max_nmse) {
    const double nmse = t->error / t->square;
    printf("nmse %.3e limit %.0e max %.3e argmax %.2f%% first_other %" PRId64 " positions %" PRIu64
           " bad %" PRIu64 "\n",
           nmse, max_nmse, t->max_nmse, 100.0 * (double)t->n_same / (double)n_positions,
           t->first_other, n_positions, t->n_bad);
    return t->n_bad == 0 && nmse <= max_nmse;
}

int main(int argc, char **argv) {
    char text[1024];
    const uint64_t n_vocab = argc == 5 ? strtoull(argv[3], NULL, 10) : 0;
    const double max_nmse = argc == 5 ? strtod(argv[4], NULL) : 0;
    if (n_vocab == 0) {
        fprintf(stderr, "usage: compare_logits EXPECTED LOGITS N_VOCAB MAX_NMSE\n");
        return 2;
    }
    struct file expected = {.descriptor = -1}, logits = {.descriptor = -1};
    struct totals totals = {.first_other = -1};
    struct err e = {0};
    bool good = false;
    if (file_open(&expected, argv[1], &e) == OK && file_open(&logits, argv[2], &e) == OK &&
        check_size(&expected, &logits, n_vocab, &e) == OK) {
        const uint64_t n = expected.size_bytes / sizeof(float) / n_vocab;
        const float *want = (const float *)(const void *)expected.map;
        const float *got = (const float *)(const void *)logits.map;
        for (uint64_t i = 0; i < n; i++)
            add_position(&totals, want + i * n_vocab, got + i * n_vocab, n_vocab, (int64_t)i);
        good = report(&totals, n, max_nmse);
    } else {
        fprintf(stderr, "compare_logits: %s\n", err_text(&e, text, sizeof text));
    }
    file_close(&logits);
    file_close(&expected);
    return good ? 0 : 1;
}
