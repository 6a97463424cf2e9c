/* check_logits.c: compares logits written by `tandem run --logits-out` with a golden file.
 *
 * check_logits GOLDEN.bin LOGITS.f32 MAX_NMSE prints one line of "key value" pairs and exits 0 if
 * the error is within the limit, 1 if it is not or a file is wrong, 2 for wrong usage. Both files
 * are described in tests/golden/README.md. Must not share code with the engine beyond base. One
 * thread. Run by tests/cli/cli_golden.sh and tests/cli/cli_tiny.sh.
 */
#include "base/err.h"
#include "base/file.h"
#include "base/mem.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SIGNS = 64, MAX_TOP = 64, HEADER_BYTES = 40 };
static const double LEAST_REST = 1e-5;

// Views into the mapped golden file.
struct golden {
    uint32_t n_positions, n_vocab, n_columns, n_top;
    uint64_t sign_seed;
    const double *log_sums;     // [n_positions], log of the sum of exp of all logits
    const double *square_sums;  // [n_positions], over all finite logits
    const int32_t *tokens;      // [n_positions]
    const uint32_t *column_ids; // [n_columns], ascending
    const uint32_t *top_ids;    // [n_positions, n_top], largest logit first
    const float *top_logits;    // [n_positions, n_top]
    const float *projections;   // [n_positions, N_SIGNS]
    const float *columns;       // [n_positions, n_columns]
};

// Sums over positions; the rows of the report come from these.
struct totals {
    double square_error, square_golden; // over the stored columns
    double projection_error, projection_golden;
    double max_nmse; // of one position
    double kl_nats;
    uint32_t n_same_argmax;
    uint32_t n_bad; // values that are NaN or +inf, or -inf where the golden value is finite
};

// The next view of count elements, moving *at; NULL past the end of the file.
static const void *take(const struct file *f, uint64_t *at, uint64_t count, uint64_t size_bytes) {
    uint64_t bytes, end;
    if (!mul_size(count, size_bytes, &bytes) || !add_size(*at, bytes, &end)) return NULL;
    if (end > f->size_bytes) return NULL;
    const void *view = f->map + *at;
    *at = end;
    return view;
}

static bool header_is_sane(const struct golden *g) {
    for (uint32_t c = 0; c < g->n_columns; c++) {
        if (g->column_ids[c] >= g->n_vocab) return false;
    }
    for (uint64_t i = 0; i < (uint64_t)g->n_positions * g->n_top; i++) {
        if (g->top_ids[i] >= g->n_vocab) return false;
    }
    return g->n_positions > 0 && g->n_top > 0 && g->n_top <= MAX_TOP;
}

static enum status golden_bind(struct golden *g, const struct file *f, struct err *e) {
    uint32_t header[6];
    if (f->size_bytes < HEADER_BYTES || memcmp(f->map, "TDMGOLD1", 8) != 0) {
        return err_set(e, ERR_FORMAT, "%s: not a golden file", f->path);
    }
    memcpy(header, f->map + 8, sizeof header);
    memcpy(&g->sign_seed, f->map + 32, sizeof g->sign_seed);
    g->n_positions = header[0], g->n_vocab = header[1];
    g->n_columns = header[2], g->n_top = header[3];
    uint64_t at = HEADER_BYTES, n = g->n_positions;
    g->log_sums = take(f, &at, n, sizeof(double));
    g->square_sums = take(f, &at, n, sizeof(double));
    g->tokens = take(f, &at, n, sizeof(int32_t));
    g->column_ids = take(f, &at, g->n_columns, sizeof(uint32_t));
    g->top_ids = take(f, &at, n * g->n_top, sizeof(uint32_t));
    g->top_logits = take(f, &at, n * g->n_top, sizeof(float));
    g->projections = take(f, &at, n * N_SIGNS, sizeof(float));
    g->columns = take(f, &at, n * g->n_columns, sizeof(float));
    if (at != f->size_bytes || header[4] != N_SIGNS || !header_is_sane(g)) {
        return err_set(e, ERR_FORMAT, "%s: the sizes in the header do not fit the file", f->path);
    }
    return OK;
}

// splitmix64 of seed + v: bit k is the sign of vocabulary entry v in projection k.
static uint64_t sign_word(uint64_t seed, uint32_t v) {
    uint64_t z = seed + v + 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

// 1 or -1 as float [n_vocab, N_SIGNS], owned by the caller; NULL if memory is refused.
static float *sign_matrix(const struct golden *g) {
    float *signs = mem_alloc((size_t)g->n_vocab * N_SIGNS, sizeof *signs);
    for (uint32_t v = 0; signs && v < g->n_vocab; v++) {
        uint64_t word = sign_word(g->sign_seed, v);
        for (uint32_t k = 0; k < N_SIGNS; k++) {
            signs[(size_t)v * N_SIGNS + k] = (word >> k & 1) ? -1.0f : 1.0f;
        }
    }
    return signs;
}

// Log of the sum of exp of row[n]; -inf entries add nothing.
static double log_sum_exp(const float *row, uint32_t n) {
    double top = -DBL_MAX, sum = 0;
    for (uint32_t v = 0; v < n; v++) top = fmax(top, (double)row[v]);
    for (uint32_t v = 0; v < n; v++) sum += exp((double)row[v] - top);
    return top + log(sum);
}

static void add_columns(const struct golden *g, uint32_t i, const float *row, struct totals *t) {
    const float *expected = g->columns + (uint64_t)i * g->n_columns;
    double error = 0, square = 0;
    for (uint32_t c = 0; c < g->n_columns; c++) {
        float value = row[g->column_ids[c]];
        if (isinf(expected[c])) { // a row of the head that is no token
            t->n_bad += !(isinf(value) && value < 0);
            continue;
        }
        t->n_bad += isfinite(value) ? 0 : 1;
        double difference = (double)value - (double)expected[c];
        error += difference * difference;
        square += (double)expected[c] * (double)expected[c];
    }
    t->square_error += error;
    t->square_golden += square;
    t->max_nmse = fmax(t->max_nmse, error / square);
}

static void add_projection(const struct golden *g, uint32_t i, const float *row, const float *signs,
                           struct totals *t) {
    double sums[N_SIGNS] = {0};
    for (uint32_t v = 0; v < g->n_vocab; v++) {
        t->n_bad += isnan(row[v]) || (isinf(row[v]) && row[v] > 0);
        float value = isfinite(row[v]) ? row[v] : 0;
        const float *sign = signs + (size_t)v * N_SIGNS;
        for (uint32_t k = 0; k < N_SIGNS; k++) sums[k] += (double)(sign[k] * value);
    }
    for (uint32_t k = 0; k < N_SIGNS; k++) {
        double difference = sums[k] - (double)g->projections[(uint64_t)i * N_SIGNS + k];
        t->projection_error += difference * difference / N_SIGNS;
    }
    t->projection_golden += g->square_sums[i];
}

// KL divergence of the golden distribution from the measured one, over the stored top tokens and
// one bucket for all others: never more than the divergence over the whole vocabulary. The bucket
// is a difference of rounded numbers, so it counts as at least LEAST_REST.
static void add_distribution(const struct golden *g, uint32_t i, const float *row,
                             struct totals *t) {
    const uint32_t *ids = g->top_ids + (uint64_t)i * g->n_top;
    const float *logits = g->top_logits + (uint64_t)i * g->n_top;
    double measured_log_sum = log_sum_exp(row, g->n_vocab), rest_golden = 1, rest_measured = 1;
    for (uint32_t k = 0; k < g->n_top; k++) {
        double log_golden = (double)logits[k] - g->log_sums[i];
        double log_measured = (double)row[ids[k]] - measured_log_sum;
        t->kl_nats += exp(log_golden) * (log_golden - log_measured);
        rest_golden -= exp(log_golden);
        rest_measured -= exp(log_measured);
    }
    rest_golden = fmax(rest_golden, LEAST_REST);
    t->kl_nats += rest_golden * log(rest_golden / fmax(rest_measured, LEAST_REST));
    uint32_t best = 0;
    for (uint32_t v = 1; v < g->n_vocab; v++) best = row[v] > row[best] ? v : best;
    t->n_same_argmax += best == ids[0];
}

static enum status compare(const struct golden *g, const struct file *logits, struct totals *t,
                           struct err *e) {
    uint64_t expected_bytes = (uint64_t)g->n_positions * g->n_vocab * sizeof(float);
    if (logits->size_bytes != expected_bytes) {
        err_set(e, ERR_FORMAT, "%s: wrong size", logits->path);
        err_expected(e, "%" PRIu64 " bytes, %" PRIu32 " positions of %" PRIu32 " logits",
                     expected_bytes, g->n_positions, g->n_vocab);
        return err_actual(e, "%" PRIu64, logits->size_bytes);
    }
    float *signs = sign_matrix(g);
    if (!signs) return err_memory(e, (size_t)g->n_vocab * N_SIGNS * sizeof *signs, "signs");
    for (uint32_t i = 0; i < g->n_positions; i++) {
        const float *row = (const float *)(const void *)logits->map + (uint64_t)i * g->n_vocab;
        add_columns(g, i, row, t);
        add_projection(g, i, row, signs, t);
        add_distribution(g, i, row, t);
    }
    mem_free(signs);
    return OK;
}

// Prints the totals; true if they are within the limit. The projection is an estimate from
// N_SIGNS random sums, so it is given twice the room.
static bool report(const struct golden *g, const struct totals *t, double max_nmse) {
    double nmse = t->square_error / t->square_golden;
    double projection = t->projection_error / t->projection_golden;
    printf("nmse %.3e max %.3e projection %.3e kl %.3e argmax %.2f%% positions %" PRIu32
           " bad %" PRIu32 "\n",
           nmse, t->max_nmse, projection, t->kl_nats / g->n_positions,
           100.0 * t->n_same_argmax / g->n_positions, g->n_positions, t->n_bad);
    return t->n_bad == 0 && nmse <= max_nmse && projection <= 2 * max_nmse;
}

int main(int argc, char **argv) {
    char *end = NULL, text[1024];
    double max_nmse = argc == 4 ? strtod(argv[3], &end) : 0;
    if (argc != 4 || *end != '\0' || !(max_nmse >= 0)) {
        fprintf(stderr, "usage: check_logits GOLDEN.bin LOGITS.f32 MAX_NMSE\n");
        return 2;
    }
    struct file golden_file = {.descriptor = -1}, logits_file = {.descriptor = -1};
    struct golden golden = {0};
    struct totals totals = {0};
    struct err e = {0};
    enum status status = file_open(&golden_file, argv[1], &e);
    if (status == OK) status = golden_bind(&golden, &golden_file, &e);
    if (status == OK) status = file_open(&logits_file, argv[2], &e);
    if (status == OK) status = compare(&golden, &logits_file, &totals, &e);
    bool good = status == OK && report(&golden, &totals, max_nmse);
    if (status != OK) fprintf(stderr, "check_logits: %s\n", err_text(&e, text, sizeof text));
    file_close(&logits_file);
    file_close(&golden_file);
    return good ? 0 : 1;
}
