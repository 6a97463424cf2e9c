/* inspect_summary.c: see inspect_summary.h. */
#include "runtime/commands/inspect_summary.h"

#include "base/mem.h"
#include "runtime/host/devices.h"
#include "runtime/model/gguf_shape.h"
#include "runtime/report/report.h"
#include "runtime/text/chat.h"
#include "runtime/text/tokenizer.h"

#include <inttypes.h>
#include <string.h>

// ---- Asking -------------------------------------------------------------------------------------

static void add_up(struct inspect_summary *s, const struct gguf *g) {
    uint64_t bytes[DTYPE_COUNT] = {0};
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        uint64_t n = 1;
        for (int d = 0; d < t->n_dims; d++) n *= t->ne[d]; // the reader has checked the product
        s->n_parameters += n;
        s->tensor_bytes += t->size_bytes;
        bytes[t->type] += t->size_bytes;
        if (bytes[t->type] > bytes[s->type]) s->type = t->type;
    }
}

// Counts the matrices whose importance the file tells, if it is such a file.
static void count_importances(struct inspect_summary *s, const struct gguf *g) {
    static const char type[] = "imatrix", sums[] = ".in_sum2";
    const size_t length = sizeof sums - 1;
    struct gguf_text text = {0};
    struct err ignored;
    if (gguf_read_text(g, "general.type", &text, &ignored) != OK ||
        text.length != sizeof type - 1 || memcmp(text.bytes, type, sizeof type - 1) != 0)
        return;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_text name = g->tensors[i].name;
        s->n_importances +=
            name.length > length && memcmp(name.bytes + name.length - length, sums, length) == 0;
    }
}

static void describe_template(struct inspect_summary *s, const struct gguf *g) {
    const struct chat_options options = {0};
    struct chat_format f;
    struct err e;
    const bool own = gguf_find(g, "tokenizer.chat_template");
    if (chat_open(&f, g, &options, NULL, &e) != OK)
        snprintf(s->template, sizeof s->template, "%s",
                 own ? "the file's own, which fails; give --chat-template" : "none");
    else if (!own)
        snprintf(s->template, sizeof s->template, "none; chat uses the built-in %s", f.name);
    else if (strcmp(f.name, CHAT_FILE_NAME) == 0)
        snprintf(s->template, sizeof s->template, "the file's own");
    else
        snprintf(s->template, sizeof s->template, "the file's own fails; chat uses the built-in %s",
                 f.name);
    chat_close(&f);
}

// Plans the model on this machine with the default options.
static enum status try_plan(struct inspect_summary *s, struct cli *cli, struct err *e) {
    struct prediction predicted;
    struct device *devices[MAX_DEVICES] = {0};
    struct engine_options options;
    int32_t n_devices = 0;
    struct plan *plan = mem_alloc(1, sizeof *plan);
    if (!plan) return err_memory(e, sizeof *plan, "a plan");
    cli_engine_options(cli, &options);
    if (devices_open(devices, &n_devices, &options, e) == OK &&
        devices_plan(plan, s->shape, devices, n_devices, &options, e) == OK) {
        plan_predict(plan, s->shape, &predicted);
        s->tokens_per_s = predicted.decode_us > 0 ? 1e6 / predicted.decode_us : 0;
        s->first_token_us = predicted.prompt_us;
    }
    devices_close(devices);
    mem_free(plan);
    return e->status;
}

static enum status try_tokenizer(const struct gguf *g, struct err *e) {
    struct tokenizer *tokenizer;
    const enum status status = tokenizer_open(&tokenizer, g, NULL, e);
    tokenizer_close(tokenizer);
    return status;
}

static enum status try_to_run(struct inspect_summary *s, const struct gguf *g, struct cli *cli) {
    struct err *e = &s->refused;
    if (s->n_importances > 0) {
        err_set(e, ERR_UNSUPPORTED, "it is no model: it holds the importance of a model's columns");
        return err_fix(e, "give it to 'tandem quantize --imatrix' with that model");
    }
    if (gguf_shape(s->shape, g, e)) return e->status;
    if (!s->shape->can_run) return err_set(e, ERR_UNSUPPORTED, "%s", s->shape->why_not);
    return try_tokenizer(g, e) ? e->status : try_plan(s, cli, e);
}

enum status inspect_summary_make(struct inspect_summary *s, const struct gguf *g, struct cli *cli,
                                 struct err *e) {
    *s = (struct inspect_summary){.shape = mem_alloc(1, sizeof *s->shape)};
    if (!s->shape) return err_memory(e, sizeof *s->shape, "the shape of the model");
    add_up(s, g);
    count_importances(s, g);
    describe_template(s, g);
    try_to_run(s, g, cli);
    return OK;
}

void inspect_summary_close(struct inspect_summary *s) {
    mem_free(s->shape);
    *s = (struct inspect_summary){0};
}

// ---- Printing -----------------------------------------------------------------------------------

static void print_key(const char *label, const struct gguf *g, const char *key, FILE *out) {
    struct gguf_text text = {0};
    struct err ignored;
    fputs(label, out);
    if (gguf_read_text(g, key, &text, &ignored) == OK && text.bytes)
        report_print_escaped(text.bytes, text.length, 40, out);
    else
        fputs("unknown", out);
}

static void print_count(const struct gguf *g, const char *key, const char *unit, FILE *out) {
    uint64_t n = 0;
    struct err ignored;
    if (gguf_read_u64(g, key, 1, UINT32_MAX, &n, &ignored) == OK && n > 0)
        fprintf(out, "%" PRIu64 " %s%s", n, unit, n == 1 ? "" : "s");
    else
        fprintf(out, "an unknown number of %ss", unit);
}

// Prints which texts a file of importance was measured with: the first, and how many more.
static void print_datasets(const struct gguf *g, FILE *out) {
    const struct gguf_value *texts = gguf_find(g, "imatrix.datasets");
    const uint8_t *cursor = NULL;
    struct gguf_text first;
    if (!texts || texts->type != GGUF_ARRAY || texts->element != GGUF_STRING ||
        !gguf_next_text(texts, &cursor, &first)) {
        fputs("unknown", out);
        return;
    }
    report_print_escaped(first.bytes, first.length, 100, out);
    if (texts->count > 1) fprintf(out, ", and %" PRIu64 " more", texts->count - 1);
}

static void print_importances(const struct inspect_summary *s, const struct gguf *g, FILE *out) {
    fprintf(out, "importance     of the columns of %" PRIu64 " matri%s, by ", s->n_importances,
            s->n_importances == 1 ? "x" : "ces");
    print_count(g, "imatrix.chunk_count", "window", out);
    fputs(" of ", out);
    print_count(g, "imatrix.chunk_size", "token", out);
    fputs("\ntext           ", out);
    print_datasets(g, out);
    fputc('\n', out);
}

static uint64_t cache_bytes(const struct shape *shape) {
    uint64_t bytes = 0;
    for (int32_t i = 0; i < shape->n_units; i++) {
        const struct unit *u = &shape->units[i];
        bytes += 2 * (uint64_t)u->n_kv_heads * (uint64_t)(u->head_dim_k + u->head_dim_v);
    }
    return bytes;
}

static void print_shape(const struct shape *s, FILE *out) {
    char size[ERR_SIZE_CHARS];
    if (s->n_layers == 0) {
        fputs("context        unknown\nattention      unknown\nfeed-forward   unknown\n", out);
        return;
    }
    fprintf(out, "context        trained with %d tokens; a token takes %s of KV cache (F16)\n",
            s->n_ctx_train, err_size_needed(size, cache_bytes(s)));
    fprintf(out, "attention      %d layer%s, %d head%s, %d of keys and values, %d columns each\n",
            s->n_layers, s->n_layers == 1 ? "" : "s", s->n_heads, s->n_heads == 1 ? "" : "s",
            s->n_kv_heads, s->head_dim);
    if (s->n_experts)
        fprintf(out, "feed-forward   %d experts of %d columns, a token goes to %d\n", s->n_experts,
                s->n_ff_expert, s->n_experts_used);
    else
        fprintf(out, "feed-forward   %d columns\n", s->n_ff);
}

static void print_answer(const struct inspect_summary *s, FILE *out) {
    char text[1024], speed[PLAN_NUMBER_CHARS];
    const char *fix = s->refused.fix;
    if (s->refused.status == OK)
        fprintf(out,
                "runs here      yes, at %s tokens/s as planned; tandem plan shows where it goes\n",
                plan_figure(s->tokens_per_s, speed));
    else
        fprintf(out, "runs here      no, because %s\n%s%s%s",
                err_sentence(&s->refused, text, sizeof text), *fix ? "               " : "", fix,
                *fix ? "\n" : "");
}

void inspect_summary_print_speed(const struct inspect_summary *s, FILE *out) {
    char text[1024], speed[PLAN_NUMBER_CHARS], time[PLAN_NUMBER_CHARS];
    const char *fix = s->refused.fix;
    if (s->refused.status == OK)
        fprintf(out,
                "tandem: this would run here at %s tokens/s, with the first token of an answer "
                "after %s, as planned\n",
                plan_figure(s->tokens_per_s, speed), plan_duration(s->first_token_us, time));
    else
        fprintf(out, "tandem: this would not run here: %s\n%s%s%s",
                err_sentence(&s->refused, text, sizeof text), *fix ? "  " : "", fix,
                *fix ? "\n" : "");
}

static void print_model(const struct inspect_summary *s, const struct gguf *g, FILE *out) {
    char size[ERR_SIZE_CHARS];
    const double bits =
        s->n_parameters ? 8.0 * (double)s->tensor_bytes / (double)s->n_parameters : 0;
    print_key("architecture   ", g, "general.architecture", out);
    print_key(", ", g, "general.name", out);
    fprintf(out, "\nparameters     %.1f million in %u tensor%s\n", (double)s->n_parameters / 1e6,
            g->n_tensors, g->n_tensors == 1 ? "" : "s");
    fprintf(out, "quantization   mostly %s, %.2f bits a parameter, %s\n",
            g->n_tensors ? dtype_name(s->type) : "nothing", bits,
            err_size_needed(size, s->tensor_bytes));
    print_shape(s->shape, out);
    print_key("vocabulary     ", g, "tokenizer.ggml.model", out);
    print_key(", pre-tokenizer ", g, "tokenizer.ggml.pre", out);
    fprintf(out, ", %d tokens\ntemplate       %s\n", s->shape->n_vocab, s->template);
}

void inspect_summary_print(const struct inspect_summary *s, const struct gguf *g, FILE *out) {
    char size[ERR_SIZE_CHARS];
    uint64_t file_bytes = 0;
    for (uint32_t i = 0; i < g->n_parts; i++) file_bytes += g->parts[i].size_bytes;
    if (s->n_importances > 0)
        print_importances(s, g, out);
    else
        print_model(s, g, out);
    fprintf(out, "file           GGUF version %u, %u part%s, %s\n", g->version, g->n_parts,
            g->n_parts == 1 ? "" : "s", err_size_needed(size, file_bytes));
    print_answer(s, out);
}
