/* bench_turns.c: compares two builds of the engine in turns, so that a machine whose speed drifts
 * slows both.
 *
 *   bench_turns [-m MODEL] [-p PROMPT_TOKENS] [-n TOKENS] [-r ROUNDS] [-t THREADS] OTHER_PROGRAM
 *
 * OTHER_PROGRAM is this program from another commit's build. Both are started as workers (-w), open
 * their engines on the CPU alone and wait. In each round both compute a prompt, then decode; they
 * take turns in beginning, and the times of a round make one ratio. Prints for both tests the
 * median over rounds of OTHER's time by ours (above 1: ours is faster) with the interval that holds
 * the true median at 95 % (order statistics), and the median times.
 *
 * A worker answers each byte on standard input, 'p' or 'd', with the nanoseconds it took.
 */
#include "base/clock.h"
#include "base/mem.h"
#include "base/number.h"
#include "kernels/drivers.h"
#include "runtime/engine/engine.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_ROUNDS = 10000, BUILDS = 2, OURS = 0, OTHER = 1 };
static const uint64_t PAUSE_NS = 10000000; // after which the other's threads sleep

struct settings {
    const char *model;
    int32_t n_prompt, n_decode, n_rounds, n_threads;
};

// ---- A worker -----------------------------------------------------------------------------------

struct worker {
    struct engine *engine;
    struct session *session;
    struct batch_item *items;
};

static struct batch_item item_at(const struct worker *w, int32_t i, bool want_logits) {
    const int32_t token = 1 + (i * 7919) % (engine_n_vocab(w->engine) - 1);
    return (struct batch_item){w->session, token, want_logits};
}

static enum status prefill(struct worker *w, int32_t n, struct err *e) {
    for (int32_t i = 0; i < n; i++) w->items[i] = item_at(w, i, i == n - 1);
    return engine_eval(w->engine, w->items, n, e);
}

static enum status decode(struct worker *w, int32_t n, struct err *e) {
    for (int32_t i = 0; i < n; i++) {
        const struct batch_item item = item_at(w, i, true);
        if (engine_eval(w->engine, &item, 1, e)) return e->status;
    }
    return OK;
}

static enum status answer(struct worker *w, const struct settings *s, struct err *e) {
    for (int test; (test = getchar()) != EOF;) {
        session_truncate(w->session, 0);
        const uint64_t start_ns = clock_ns();
        if (test == 'p' ? prefill(w, s->n_prompt, e) : decode(w, s->n_decode, e)) return e->status;
        printf("%llu\n", (unsigned long long)(clock_ns() - start_ns));
        fflush(stdout);
    }
    return OK;
}

static enum status work(struct worker *w, const struct settings *s, struct err *e) {
    struct engine_options o = {
        .model_path = s->model,
        .device_spec = "none",
        .cpu = {.isa = ISA_AUTO, .n_threads = s->n_threads},
        .constraints = {.gpu_layers = GPU_LAYERS_AUTO},
        .workload = {.kv_type_k = DTYPE_F16, .kv_type_v = DTYPE_F16},
    };
    o.drivers = device_drivers(&o.n_drivers);
    o.workload.n_ctx = s->n_prompt > s->n_decode ? s->n_prompt : s->n_decode;
    if (engine_open(&w->engine, &o, e)) return e->status;
    w->items = mem_alloc((size_t)s->n_prompt, sizeof *w->items);
    if (!w->items) return err_memory(e, (size_t)s->n_prompt * sizeof *w->items, "the batch");
    if (session_new(&w->session, w->engine, e)) return e->status;
    return answer(w, s, e);
}

static int run_worker(const struct settings *s) {
    struct worker w = {0};
    struct err e = {0};
    char text[1024];
    const enum status status = work(&w, s, &e);
    if (status) fprintf(stderr, "%s\n", err_text(&e, text, sizeof text));
    session_free(w.session);
    engine_close(w.engine);
    mem_free(w.items);
    return status != OK;
}

// ---- Both in turns ------------------------------------------------------------------------------

struct process {
    pid_t pid;
    FILE *ask, *told;
};

struct turns {
    struct process workers[BUILDS];
    double us[BUILDS][MAX_ROUNDS], ratios[MAX_ROUNDS]; // of one test
};

// The worker's ends of both pipes are its standard input and output.
static bool spawn(struct process *p, const char *program, char **arguments, const int ends[2]) {
    posix_spawn_file_actions_t actions;
    if (posix_spawn_file_actions_init(&actions)) return false;
    const bool good = !posix_spawn_file_actions_adddup2(&actions, ends[0], STDIN_FILENO) &&
                      !posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO) &&
                      !posix_spawn(&p->pid, program, &actions, NULL, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    return good;
}

static bool start(struct process *p, const char *program, char **arguments) {
    int in[2], out[2];
    if (pipe2(in, O_CLOEXEC)) return false;
    p->ask = fdopen(in[1], "w");
    if (pipe2(out, O_CLOEXEC)) return false;
    p->told = fdopen(out[0], "r");
    const int ends[2] = {in[0], out[1]};
    const bool good = spawn(p, program, arguments, ends);
    if (!good) perror(program);
    close(ends[0]);
    close(ends[1]);
    return good && p->ask && p->told;
}

// Returns the microseconds that the test took, or 0 if the worker is gone.
static double take_turn(struct process *p, char test) {
    unsigned long long ns;
    clock_sleep_ns(PAUSE_NS);
    fputc(test, p->ask);
    fflush(p->ask);
    return fscanf(p->told, "%llu", &ns) == 1 ? (double)ns * 1e-3 : 0;
}

// Rounds of one test; the first one does not count. false if a worker failed.
static bool measure(struct turns *t, char test, int32_t n_tokens, int32_t n_rounds) {
    double *const us[BUILDS] = {t->us[OURS], t->us[OTHER]}, *ratios = t->ratios;
    for (int32_t i = -1; i < n_rounds; i++) {
        for (int turn = 0; turn < BUILDS; turn++) {
            const int build = (i + 1 + turn) % BUILDS;
            const double taken_us = take_turn(&t->workers[build], test);
            if (!(taken_us > 0)) return false;
            if (i >= 0) us[build][i] = taken_us;
        }
        if (i >= 0) ratios[i] = us[OTHER][i] / us[OURS][i];
    }
    const size_t n = (size_t)n_rounds;
    const int32_t far = (int32_t)ceil(1.96 * sqrt(n_rounds) / 2);
    for (int build = 0; build < BUILDS; build++) qsort(us[build], n, sizeof *us[build], order_f64);
    qsort(ratios, n, sizeof *ratios, order_f64);
    const int32_t middle = n_rounds / 2, low = middle > far ? middle - far : 0;
    const int32_t high = middle + far < n_rounds ? middle + far : n_rounds - 1;
    printf("%s of %d: other / ours %.4f (95 %%: %.4f to %.4f), %d rounds; ours %.3f ms, other %.3f "
           "ms\n",
           test == 'p' ? "prefill" : "decode", n_tokens, ratios[middle], ratios[low], ratios[high],
           n_rounds, us[OURS][middle] * 1e-3, us[OTHER][middle] * 1e-3);
    fflush(stdout);
    return true;
}

static bool run_both(struct turns *t, const struct settings *s, const char *other) {
    char n_prompt[16], n_decode[16], n_threads[16];
    snprintf(n_prompt, sizeof n_prompt, "%d", s->n_prompt);
    snprintf(n_decode, sizeof n_decode, "%d", s->n_decode);
    snprintf(n_threads, sizeof n_threads, "%d", s->n_threads);
    const char *arguments[] = {"bench_turns", "-w",     "-m", s->model,  "-p", n_prompt,
                               "-n",          n_decode, "-t", n_threads, NULL};
    return start(&t->workers[OURS], "/proc/self/exe", (char **)arguments) &&
           start(&t->workers[OTHER], other, (char **)arguments) &&
           measure(t, 'p', s->n_prompt, s->n_rounds) && measure(t, 'd', s->n_decode, s->n_rounds);
}

static int compare(const struct settings *s, const char *other) {
    struct turns *t = mem_alloc(1, sizeof *t);
    signal(SIGPIPE, SIG_IGN); // a worker that is gone is found by its answer
    bool good = t && run_both(t, s, other);
    for (int build = 0; t && build < BUILDS; build++) {
        struct process *p = &t->workers[build];
        int code = 0;
        if (p->ask) fclose(p->ask);
        if (p->told) fclose(p->told);
        if (p->pid > 0) waitpid(p->pid, &code, 0);
        good = good && code == 0;
    }
    mem_free(t);
    if (!good) fprintf(stderr, "bench_turns: a worker failed\n");
    return !good;
}

int main(int argc, char **argv) {
    struct settings s = {"models/SmolLM2-135M-Instruct.Q4_1.gguf", 64, 8, 200, 1};
    bool is_worker = false;
    bool good = true;
    for (int flag; (flag = getopt(argc, argv, "wm:p:n:r:t:")) != -1;) {
        switch (flag) {
        case 'w': is_worker = true; break;
        case 'm': s.model = optarg; break;
        case 'p': s.n_prompt = atoi(optarg); break;
        case 'n': s.n_decode = atoi(optarg); break;
        case 'r': s.n_rounds = atoi(optarg); break;
        case 't': s.n_threads = atoi(optarg); break;
        default: good = false;
        }
    }
    good = good && s.n_prompt > 0 && s.n_decode > 0 && s.n_rounds > 0 && s.n_rounds <= MAX_ROUNDS;
    if (!good || optind + !is_worker != argc) {
        fprintf(stderr, "usage: %s [-m MODEL] [-p N] [-n N] [-r ROUNDS] [-t N] OTHER_PROGRAM\n",
                argv[0]);
        return 2;
    }
    return is_worker ? run_worker(&s) : compare(&s, argv[optind]);
}
