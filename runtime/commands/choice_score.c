/* choice_score.c: see choice_score.h. */
#include "runtime/commands/choice_score.h"

#include "base/mem.h"
#include "runtime/cli/cli_generate.h"
#include "runtime/commands/choice_scorer.h"
#include "runtime/commands/hellaswag.h"
#include "runtime/commands/measure_model.h"
#include "runtime/commands/multiple_choice.h"
#include "runtime/commands/winogrande.h"
#include "runtime/report/report_json.h"

#include <inttypes.h>
#include <math.h>

// A kind of task.
struct suite {
    const char *name;
    enum status (*read)(struct choice_tasks *out, const char *text, size_t length, struct err *e);
    enum choice_rule rule;
    enum draw draw;
    int32_t n_tasks; // where no option says, as in llama-perplexity; 0: all
};
static const struct suite HELLASWAG = {"hellaswag", hellaswag_read, CHOICE_ENDINGS, DRAW_SHUFFLED,
                                       400};
static const struct suite WINOGRANDE = {"winogrande", winogrande_read, CHOICE_SENTENCE,
                                        DRAW_IN_ORDER, 0};
static const struct suite MULTIPLE_CHOICE = {"multiple_choice", multiple_choice_read,
                                             CHOICE_ENDINGS, DRAW_IN_ORDER, 0};

struct score {
    const struct suite *suite;
    char *file;                // owned; the tasks borrow it
    struct choice_tasks tasks; // after Ctrl-C those that are scored
    int32_t n_asked;           // tasks before it
    struct choice_tokens tokens;
    struct engine *engine; // borrowed
    struct choice_scorer scorer;
};

static const struct suite *suite_of(const struct cli_options *o) {
    if (o->hellaswag) return &HELLASWAG;
    if (o->winogrande) return &WINOGRANDE;
    return o->multiple_choice ? &MULTIPLE_CHOICE : NULL;
}

bool choice_score_wanted(const struct cli_options *o) { return suite_of(o); }

static enum status read_tasks(struct score *s, const struct cli *cli, struct err *e) {
    const struct cli_options *o = &cli->options;
    size_t length;
    s->suite = suite_of(o);
    if (cli_read_text(cli, &s->file, &length, e)) return e->status;
    if (s->suite->read(&s->tasks, s->file, length, e)) return err_context(e, "%s", o->file);
    if (s->tasks.n_tasks == 0) return err_set(e, ERR_FORMAT, "%s: there are no tasks", o->file);
    const int32_t n_tasks = o->n_tasks < 0 ? s->suite->n_tasks : o->n_tasks;
    return choice_tasks_draw(&s->tasks, n_tasks, s->suite->draw, e);
}

// ERR_LIMIT if a text has more tokens than -c allows.
static enum status check_context(const struct score *s, int32_t n_ctx, struct err *e) {
    if (!n_ctx || s->tokens.longest <= n_ctx) return OK;
    for (int32_t t = 0; t < s->tasks.n_tasks; t++) {
        const struct choice_task *task = &s->tasks.tasks[t];
        for (int32_t i = 0; i < task->n; i++) {
            const int32_t count = s->tokens.texts[task->first + i].count;
            if (count <= n_ctx) continue;
            err_set(e, ERR_LIMIT, "task %d: the text is too long for -c", task->number);
            err_expected(e, "at most %d tokens", n_ctx);
            err_actual(e, "%d", count);
            return err_fix(e, "give -c %d, or leave it out", s->tokens.longest);
        }
    }
    return OK;
}

// Makes the tokens before the engine is opened, which is to have room for them.
static enum status make_tokens(struct score *s, const struct cli_options *o, struct err *e) {
    struct gguf gguf = {0};
    struct tokenizer *tokenizer = NULL;
    enum status status = OK;
    if (gguf_open(&gguf, o->model, e) || tokenizer_open(&tokenizer, &gguf, NULL, e) ||
        choice_tokens_open(&s->tokens, &s->tasks, tokenizer, s->suite->rule, e) ||
        check_context(s, o->n_ctx, e))
        status = e->status;
    tokenizer_close(tokenizer);
    gguf_close(&gguf);
    return status;
}

static enum status read_texts(void *context, const struct cli *cli, struct err *e) {
    struct score *s = context;
    return read_tasks(s, cli, e) || make_tokens(s, &cli->options, e) ? e->status : OK;
}

static void size(const void *context, struct workload *w) {
    const struct score *s = context;
    choice_scorer_workload(w, &s->tokens);
}

static enum status measure(void *context, struct cli *cli, struct engine *engine, struct err *e) {
    const struct progress progress = cli_progress(cli);
    struct score *s = context;
    s->engine = engine;
    s->n_asked = s->tasks.n_tasks;
    if (choice_scorer_open(&s->scorer, engine, e)) return e->status;
    if (choice_scorer_run(&s->scorer, &s->tasks, &s->tokens, &progress, e) == OK) return OK;
    if (e->status != ERR_CANCELLED) return e->status;
    cli->interrupted = true;
    if (s->scorer.n_scored == 0) return err_set(e, ERR_CANCELLED, "interrupted; no task is scored");
    s->tasks.n_tasks = s->scorer.n_scored;
    return OK;
}

// ---- What comes out -----------------------------------------------------------------------------

// Shares of the tasks.
struct result {
    int32_t n, n_right;
    double right, error; // the error of its mean; NaN for a single task
    double low, high;    // where it lies with a probability of 95 %
    double chance;       // the share that guessing gets right on average
};

static bool is_right(const struct score *s, const struct choice_task *task) {
    return s->tasks.choices[task->first + choice_tokens_best(&s->tokens, task)].is_right;
}

// Source of the limits: Wilson 1927.
static struct result result_of(const struct score *s) {
    struct result r = {.n = s->tasks.n_tasks};
    for (int32_t t = 0; t < r.n; t++) {
        const struct choice_task *task = &s->tasks.tasks[t];
        int32_t n_right = 0;
        for (int32_t i = 0; i < task->n; i++) n_right += s->tasks.choices[task->first + i].is_right;
        r.chance += (double)n_right / task->n / r.n;
        r.n_right += is_right(s, task);
    }
    const double z = 1.95996398454, shrink = z * z / r.n;
    r.right = (double)r.n_right / r.n;
    r.error = sqrt(r.right * (1 - r.right) / (r.n - 1));
    const double centre = (r.right + shrink / 2) / (1 + shrink);
    const double half = sqrt(r.right * (1 - r.right) * shrink + shrink * shrink / 4) / (1 + shrink);
    r.low = centre - half;
    r.high = centre + half;
    return r;
}

static json_t *tasks_report(const struct score *s) {
    json_t *list = json_array();
    for (int32_t t = 0; t < s->tasks.n_tasks; t++) {
        const struct choice_task *task = &s->tasks.tasks[t];
        json_t *scores = json_array();
        for (int32_t i = 0; i < task->n; i++)
            json_array_append_new(scores,
                                  json_real(choice_text_score(&s->tokens.texts[task->first + i])));
        json_array_append_new(list, json_pack("{s:i, s:o, s:i, s:b}", "task", task->number,
                                              "mean_log_probabilities", scores, "best",
                                              choice_tokens_best(&s->tokens, task), "right",
                                              is_right(s, task)));
    }
    return list;
}

static enum status write_json(const struct score *s, const struct result *r, struct err *e) {
    json_t *error = r->n > 1 ? json_real(r->error) : json_null();
    return report_json_write(
        json_pack("{s:s, s:i, s:i, s:b, s:i, s:f, s:o, s:[f, f], s:f, s:o, s:o}", "suite",
                  s->suite->name, "tasks", r->n, "tasks_asked", s->n_asked, "stopped",
                  r->n < s->n_asked, "right", r->n_right, "share", r->right, "error", error,
                  "interval_95", r->low, r->high, "chance", r->chance, "results", tasks_report(s),
                  "usage",
                  report_json_usage(engine_trace(s->engine), &engine_plan(s->engine)->machine)),
        stdout, e);
}

static void print_tasks(const struct score *s) {
    for (int32_t t = 0; t < s->tasks.n_tasks; t++) {
        const struct choice_task *task = &s->tasks.tasks[t];
        fprintf(stderr, "task %d:", task->number);
        for (int32_t i = 0; i < task->n; i++)
            fprintf(stderr, " %.6f", choice_text_score(&s->tokens.texts[task->first + i]));
        fprintf(stderr, ", %s\n", is_right(s, task) ? "right" : "wrong");
    }
}

static enum status write_result(void *context, struct cli *cli, struct err *e) {
    const struct score *s = context;
    const struct result r = result_of(s);
    if (cli->options.verbose) print_tasks(s);
    if (cli->options.json) return write_json(s, &r, e);
    printf("%d task%s, %d right: %.4f %%", r.n, r.n == 1 ? "" : "s", r.n_right, 100 * r.right);
    if (r.n > 1) printf(" +- %.4f", 100 * r.error);
    printf(", between %.4f and %.4f %% with a probability of 95 %%; by chance %.4f %%", 100 * r.low,
           100 * r.high, 100 * r.chance);
    if (r.n < s->n_asked) printf("; stopped after %d of %d tasks", r.n, s->n_asked);
    putchar('\n');
    cli_flush_output(cli);
    cli_print_usage(cli, s->engine);
    return OK;
}

static void close_all(void *context) {
    struct score *s = context;
    choice_scorer_close(&s->scorer);
    choice_tokens_close(&s->tokens);
    choice_tasks_close(&s->tasks);
    mem_free(s->file);
}

enum status choice_score(struct cli *cli, struct err *e) {
    static const struct measure_steps steps = {read_texts, size, measure, write_result, close_all};
    struct score s = {0};
    return measure_model(&steps, &s, cli, e);
}
