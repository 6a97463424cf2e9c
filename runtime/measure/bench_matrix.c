/* bench_matrix.c: see bench_matrix.h. */
#include "runtime/measure/bench_matrix.h"

#include "base/mem.h"
#include "runtime/cli/cli_values.h"

#include <string.h>

enum { PIECE_BYTES = 64 };

// ---- Lists --------------------------------------------------------------------------------------

static enum status bad_piece(struct err *e, const char *option, const char *piece) {
    err_set(e, ERR_USAGE, "option %s", option);
    err_expected(e, "numbers and ranges such as 1,2,4 or 1-8 or 1-8+2 or 1-64*2");
    return err_actual(e, "'%s'", piece);
}

static enum status add_value(struct bench_values *out, const char *option, int64_t value,
                             struct err *e) {
    if (out->n == BENCH_VALUES)
        return err_set(e, ERR_USAGE, "option %s lists more than %d values", option, BENCH_VALUES);
    out->values[out->n++] = value;
    return OK;
}

// Reads digits at *text and moves it behind them. False if there are none, or too many.
static bool read_digits(const char **text, int64_t *out) {
    const char *start = *text;
    *out = 0;
    for (; **text >= '0' && **text <= '9'; ++*text) {
        if (*out > INT32_MAX) return false;
        *out = *out * 10 + (**text - '0');
    }
    return *text > start;
}

struct range {
    int64_t first, last, step;
    bool multiplies;
};

// Reads first[-last[+step|*step]], or a negative number.
static bool read_range(const char *text, struct range *r) {
    const bool negative = *text == '-';
    if (negative) text++;
    if (!read_digits(&text, &r->first)) return false;
    if (negative) r->first = -r->first;
    r->last = r->first;
    r->step = 1;
    r->multiplies = false;
    if (!*text) return true;
    if (negative || *text++ != '-' || !read_digits(&text, &r->last)) return false;
    if (!*text) return true;
    r->multiplies = *text == '*';
    if (*text != '+' && *text != '*') return false;
    text++;
    return read_digits(&text, &r->step) && !*text;
}

static enum status check_range(const struct range *r, const char *option, const char *piece,
                               int64_t low, int64_t high, struct err *e) {
    if (r->first < low || r->last > high) {
        err_set(e, ERR_USAGE, "option %s", option);
        err_expected(e, "numbers from %lld to %lld", (long long)low, (long long)high);
        return err_actual(e, "'%s'", piece);
    }
    if (r->last < r->first)
        return err_set(e, ERR_USAGE, "option %s: the range %s is empty", option, piece);
    if (r->step < 1 || (r->multiplies && (r->step < 2 || r->first == 0)))
        return err_set(e, ERR_USAGE, "option %s: the range %s never ends", option, piece);
    return OK;
}

static enum status add_piece(struct bench_values *out, const char *option, const char *piece,
                             int64_t low, int64_t high, struct err *e) {
    struct range r;
    if (!read_range(piece, &r)) return bad_piece(e, option, piece);
    if (check_range(&r, option, piece, low, high, e)) return e->status;
    for (int64_t i = r.first; i <= r.last; i = r.multiplies ? i * r.step : i + r.step)
        if (add_value(out, option, i, e)) return e->status;
    return OK;
}

// Copies the text up to the next comma into piece; *text moves behind the comma, or is NULL after
// the last piece. False if it is too long.
static bool next_piece(const char **text, char piece[PIECE_BYTES]) {
    const size_t length = strcspn(*text, ",");
    if (length >= PIECE_BYTES) return false;
    memcpy(piece, *text, length);
    piece[length] = 0;
    *text = (*text)[length] ? *text + length + 1 : NULL;
    return true;
}

enum status bench_values_add(struct bench_values *out, const char *option, const char *text,
                             int64_t low, int64_t high, struct err *e) {
    while (text) {
        char piece[PIECE_BYTES];
        if (!next_piece(&text, piece)) return bad_piece(e, option, text);
        if (add_piece(out, option, piece, low, high, e)) return e->status;
    }
    return OK;
}

static enum status read_numbers(struct bench_values *out, const char *option,
                                const struct text_list *list, int64_t low, int64_t high,
                                struct err *e) {
    for (int32_t i = 0; i < list->n; i++)
        if (bench_values_add(out, option, list->texts[i], low, high, e)) return e->status;
    return OK;
}

// Reads a word or number as the same option of other commands does.
typedef enum status (*read_word_fn)(const char *option, const char *piece, int64_t *out,
                                    struct err *e);

static enum status read_words(struct bench_values *out, const char *option,
                              const struct text_list *list, read_word_fn read, struct err *e) {
    for (int32_t i = 0; i < list->n; i++)
        for (const char *text = list->texts[i]; text;) {
            char piece[PIECE_BYTES];
            int64_t value = 0;
            if (!next_piece(&text, piece)) return bad_piece(e, option, text);
            if (read(option, piece, &value, e) || add_value(out, option, value, e))
                return e->status;
        }
    return OK;
}

static enum status read_kv_type(const char *option, const char *piece, int64_t *out,
                                struct err *e) {
    enum dtype type = DTYPE_F16;
    if (cli_value_kv_type(option, piece, &type, e)) return e->status;
    *out = type;
    return OK;
}

static enum status read_size(const char *option, const char *piece, int64_t *out, struct err *e) {
    uint64_t size_bytes = 0;
    if (cli_value_size(option, piece, &size_bytes, e)) return e->status;
    *out = (int64_t)size_bytes; // below 9e18
    return OK;
}

// Reads words and ranges of numbers.
static enum status read_layers(struct bench_values *out, const struct text_list *list,
                               struct err *e) {
    for (int32_t i = 0; i < list->n; i++)
        for (const char *text = list->texts[i]; text;) {
            char piece[PIECE_BYTES];
            int32_t layers;
            if (!next_piece(&text, piece)) return bad_piece(e, "-ngl", text);
            if (strpbrk(piece, "+*") || (*piece && strchr(piece + 1, '-'))) {
                if (add_piece(out, "-ngl", piece, 0, GPU_LAYERS_ALL - 1, e)) return e->status;
            } else if (cli_value_layers("-ngl", piece, &layers, e) ||
                       add_value(out, "-ngl", layers, e))
                return e->status;
        }
    return OK;
}

static const char NO_OVERRIDES[] = "none";

// Takes the next value of -ot off a text: patterns with a ";" between them, up to a comma. Its
// texts go to *room, which moves behind them. Returns the rest, or NULL after the last value.
static const char *next_overrides(struct bench_overrides *out, const char *text, char **room) {
    char *patterns = memcpy(*room, text, strlen(text) + 1);
    size_t length = 0;
    while (text[length] && text[length] != ',') {
        length += patterns_length(text + length, ",;");
        if (text[length] == ';') patterns[length++] = ',';
    }
    const char *rest = text[length] ? text + length + 1 : NULL;
    if (length && text[length - 1] == ';') length--; // behind the last pattern
    patterns[length] = 0;
    char *shown = patterns + length + 1;
    memcpy(shown, text, length);
    shown[length] = 0;
    *room = shown + length + 1;
    *out = (struct bench_overrides){length ? shown : NO_OVERRIDES, length ? patterns : NULL};
    return rest;
}

static enum status read_overrides(struct bench_matrix *m, struct bench_values *out,
                                  const struct text_list *list, struct err *e) {
    size_t size_bytes = 1;
    for (int32_t i = 0; i < list->n; i++) size_bytes += 2 * (strlen(list->texts[i]) + 1);
    m->overrides = mem_alloc(BENCH_VALUES, sizeof *m->overrides);
    m->texts = mem_alloc(size_bytes, 1);
    if (!m->overrides || !m->texts)
        return err_memory(e, BENCH_VALUES * sizeof *m->overrides + size_bytes, "the -ot patterns");
    m->overrides[0].text = NO_OVERRIDES; // where nothing is given
    char *room = m->texts;
    for (int32_t i = 0; i < list->n; i++)
        for (const char *text = list->texts[i]; text;) {
            const int32_t n = out->n;
            if (add_value(out, "-ot", n, e)) return e->status;
            text = next_overrides(&m->overrides[n], text, &room);
            const char *patterns = m->overrides[n].patterns;
            if (patterns && patterns_check(patterns, e)) return e->status;
        }
    return OK;
}

// ---- Configurations -----------------------------------------------------------------------------

enum axis {
    AXIS_MODEL,
    AXIS_VRAM,
    AXIS_LAYERS,
    AXIS_OVERRIDES,
    AXIS_BATCH,
    AXIS_UBATCH,
    AXIS_KV_K,
    AXIS_KV_V,
    AXIS_THREADS,
    AXES
};

static enum status read_axes(struct bench_matrix *m, struct bench_values axes[AXES],
                             const struct bench_options *o, struct err *e) {
    static const int64_t defaults[AXES] = {[AXIS_LAYERS] = GPU_LAYERS_AUTO,
                                           [AXIS_BATCH] = 2048,
                                           [AXIS_KV_K] = DTYPE_F16,
                                           [AXIS_KV_V] = DTYPE_F16};
    for (int32_t i = 0; i < o->models.n; i++) axes[AXIS_MODEL].values[axes[AXIS_MODEL].n++] = i;
    if (read_words(&axes[AXIS_VRAM], "--vram", &o->vram, read_size, e) ||
        read_layers(&axes[AXIS_LAYERS], &o->gpu_layers, e) ||
        read_overrides(m, &axes[AXIS_OVERRIDES], &o->tensor_overrides, e) ||
        read_numbers(&axes[AXIS_BATCH], "-b", &o->n_batch, 1, INT32_MAX, e) ||
        read_numbers(&axes[AXIS_UBATCH], "-ub", &o->n_ubatch, 0, INT32_MAX, e) ||
        read_words(&axes[AXIS_KV_K], "-ctk", &o->kv_type_k, read_kv_type, e) ||
        read_words(&axes[AXIS_KV_V], "-ctv", &o->kv_type_v, read_kv_type, e) ||
        read_numbers(&axes[AXIS_THREADS], "-t", &o->n_threads, -1, 1024, e))
        return e->status;
    for (int a = 0; a < AXES; a++)
        if (!axes[a].n) axes[a].values[axes[a].n++] = defaults[a];
    return OK;
}

// Fills combination number i: its indices are the digits of i in the base of the axes' lengths.
static enum status fill_config(struct bench_matrix *m, const struct bench_values axes[AXES],
                               int32_t i, const struct bench_options *o, struct err *e) {
    struct bench_config *c = &m->configs[i];
    int64_t value[AXES];
    for (int a = AXES - 1; a >= 0; a--) {
        value[a] = axes[a].values[i % axes[a].n];
        i /= axes[a].n;
    }
    *c = (struct bench_config){
        .model = o->models.texts[value[AXIS_MODEL]],
        .vram_bytes = (uint64_t)value[AXIS_VRAM],
        .gpu_layers = (int32_t)value[AXIS_LAYERS],
        .n_batch = (int32_t)value[AXIS_BATCH],
        .n_ubatch = (int32_t)value[AXIS_UBATCH],
        .n_threads = value[AXIS_THREADS] < 0 ? 0 : (int32_t)value[AXIS_THREADS],
        .kv_type_k = (enum dtype)value[AXIS_KV_K],
        .kv_type_v = (enum dtype)value[AXIS_KV_V],
        .overrides = m->overrides[value[AXIS_OVERRIDES]],
    };
    if ((c->kv_type_k == KV_TYPE_AUTO) != (c->kv_type_v == KV_TYPE_AUTO))
        return err_set(e, ERR_USAGE, "auto is for the whole cache: -ctk auto -ctv auto");
    return OK;
}

static enum status too_many(struct err *e, const char *what, int64_t count) {
    err_set(e, ERR_USAGE, "the lists make too many %s", what);
    err_expected(e, "at most %d", BENCH_CONFIGS);
    return err_actual(e, "%lld", (long long)count);
}

static enum status make_configs(struct bench_matrix *m, struct bench_values axes[AXES],
                                const struct bench_options *o, struct err *e) {
    if (read_axes(m, axes, o, e)) return e->status;
    int64_t count = 1;
    for (int a = 0; a < AXES; a++)
        if ((count *= axes[a].n) > BENCH_CONFIGS) return too_many(e, "combinations", count);
    m->configs = mem_alloc((size_t)count, sizeof *m->configs);
    if (!m->configs) return err_memory(e, (size_t)count * sizeof *m->configs, "the combinations");
    m->n_configs = (int32_t)count;
    for (int32_t i = 0; i < m->n_configs; i++)
        if (fill_config(m, axes, i, o, e)) return e->status;
    return OK;
}

// ---- Tests --------------------------------------------------------------------------------------

static void add_test(struct bench_matrix *m, int64_t n_prompt, int64_t n_gen, int64_t n_depth) {
    if (n_prompt == 0 && n_gen == 0) return;
    m->tests[m->n_tests++] =
        (struct bench_test){(int32_t)n_prompt, (int32_t)n_gen, (int32_t)n_depth};
}

// Reads pairs such as "512,128".
static enum status read_pairs(struct bench_values *out, const struct text_list *list,
                              struct err *e) {
    for (int32_t i = 0; i < list->n; i++) {
        const int32_t before = out->n;
        if (bench_values_add(out, "-pg", list->texts[i], 0, SHAPE_CONTEXT, e)) return e->status;
        if (out->n == before + 2) continue;
        err_set(e, ERR_USAGE, "option -pg");
        err_expected(e, "a prompt's length and a number of tokens, such as 512,128");
        return err_actual(e, "'%s'", list->texts[i]);
    }
    return OK;
}

struct test_lists {
    struct bench_values prompt, gen, pairs, depth;
};

static enum status make_tests(struct bench_matrix *m, struct test_lists *l,
                              const struct bench_options *o, struct err *e) {
    if (read_numbers(&l->prompt, "-p", &o->n_prompt, 0, SHAPE_CONTEXT, e) ||
        read_numbers(&l->gen, "-n", &o->n_gen, 0, SHAPE_CONTEXT, e) ||
        read_pairs(&l->pairs, &o->prompt_gen, e) ||
        read_numbers(&l->depth, "-d", &o->n_depth, 0, SHAPE_CONTEXT, e))
        return e->status;
    if (!l->prompt.n) l->prompt.values[l->prompt.n++] = 512;
    if (!l->gen.n) l->gen.values[l->gen.n++] = 128;
    if (!l->depth.n) l->depth.n = 1; // depth 0
    const int64_t most = (int64_t)l->depth.n * (l->prompt.n + l->gen.n + l->pairs.n / 2);
    if (most > BENCH_CONFIGS) return too_many(e, "tests", most);
    m->tests = mem_alloc((size_t)most, sizeof *m->tests);
    if (!m->tests) return err_memory(e, (size_t)most * sizeof *m->tests, "the tests");
    for (int32_t d = 0; d < l->depth.n; d++) {
        const int64_t depth = l->depth.values[d];
        for (int32_t i = 0; i < l->prompt.n; i++) add_test(m, l->prompt.values[i], 0, depth);
        for (int32_t i = 0; i < l->gen.n; i++) add_test(m, 0, l->gen.values[i], depth);
        for (int32_t i = 0; i < l->pairs.n; i += 2)
            add_test(m, l->pairs.values[i], l->pairs.values[i + 1], depth);
    }
    if (m->n_tests) return OK;
    return err_set(e, ERR_USAGE, "there is nothing to measure: -p, -n and -pg are 0");
}

char *bench_test_name(const struct bench_test *test, char *out, size_t size_bytes) {
    char depth[24] = "", gen[24] = "", prompt[24] = "";
    if (test->n_prompt) snprintf(prompt, sizeof prompt, "pp%d", test->n_prompt);
    if (test->n_gen) snprintf(gen, sizeof gen, "tg%d", test->n_gen);
    if (test->n_depth) snprintf(depth, sizeof depth, " @ d%d", test->n_depth);
    snprintf(out, size_bytes, "%s%s%s%s", prompt, *prompt && *gen ? "+" : "", gen, depth);
    return out;
}

enum status bench_matrix_open(struct bench_matrix *m, const struct bench_options *o,
                              struct err *e) {
    ASSERT(o->models.n > 0);
    *m = (struct bench_matrix){0};
    struct bench_values *axes = mem_alloc(AXES, sizeof *axes);
    struct test_lists *lists = mem_alloc(1, sizeof *lists);
    enum status status = OK;
    if (!axes || !lists)
        status = err_memory(e, AXES * sizeof *axes + sizeof *lists, "the lists");
    else if (make_configs(m, axes, o, e) || make_tests(m, lists, o, e))
        status = e->status;
    mem_free(axes);
    mem_free(lists);
    if (status) bench_matrix_close(m);
    return status;
}

void bench_matrix_close(struct bench_matrix *m) {
    mem_free(m->configs);
    mem_free(m->tests);
    mem_free(m->overrides);
    mem_free(m->texts);
    *m = (struct bench_matrix){0};
}

int32_t bench_matrix_context(const struct bench_matrix *m) {
    int32_t most = 1;
    for (int32_t i = 0; i < m->n_tests; i++) {
        const struct bench_test *t = &m->tests[i];
        const int32_t n = t->n_prompt + t->n_gen + t->n_depth; // each at most SHAPE_CONTEXT
        if (n > most) most = n;
    }
    return most;
}
