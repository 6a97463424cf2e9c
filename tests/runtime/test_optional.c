/* test_optional.c: tensors that files may lack: in each model of tests/golden/tiny, each bias that
 * its blocks would take. One that the model lacks is added: zeros change no bit of the logits, and
 * other numbers change them, or the file is refused, so nothing that a file holds is left out
 * silently. One that it has is taken away: the logits are those of a file with zeros in its place.
 */
#include "runtime/engine/engine.h"

#include "base/mem.h"
#include "planner/planner.h"
#include "runtime/gguf/gguf.h"
#include "runtime/model/gguf_shape.h"

#include <glob.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { N_TOKENS = 6, N_CTX = 32, MAX_VOCAB = 1024, MAX_ADDED = 64 };

struct added { // a vector that a unit lacks
    char name[64];
    uint64_t n;
};

enum change { KEPT, ZEROED, LEFT_OUT };

struct fixture {
    const char *path;
    char changed[32]; // the file that is written
    struct gguf gguf;
    struct shape shape;
    struct added added[MAX_ADDED];
    int n_added;
    enum tensor_role role; // of the file's tensors to which change applies
    enum change change;
    float expected[N_TOKENS * MAX_VOCAB];
};

// ---- Files --------------------------------------------------------------------------------------

static void put(FILE *out, const void *bytes, uint64_t size_bytes) {
    assert_int_equal(fwrite(bytes, 1, size_bytes, out), size_bytes);
}

static void pad(FILE *out, uint64_t to) {
    while ((uint64_t)ftell(out) % to) put(out, "", 1);
}

static void put_entry(FILE *out, const struct gguf_tensor *t, uint64_t offset) {
    const uint32_t n_dims = (uint32_t)t->n_dims, type = (uint32_t)t->type;
    put(out, &t->name.length, sizeof t->name.length);
    put(out, t->name.bytes, t->name.length);
    put(out, &n_dims, sizeof n_dims);
    put(out, t->ne, n_dims * sizeof *t->ne);
    put(out, &type, sizeof type);
    put(out, &offset, sizeof offset);
}

// Writes the model's keys, which lie before its first tensor's entry, with a new count of tensors.
static void put_keys(FILE *out, const struct gguf *g, uint64_t n_tensors) {
    const uint8_t *start = g->parts[0].map, *end = start + g->parts[0].size_bytes;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const uint8_t *entry = (const uint8_t *)g->tensors[i].name.bytes - sizeof(uint64_t);
        if (entry < end) end = entry;
    }
    put(out, start, 8);
    put(out, &n_tensors, sizeof n_tensors);
    put(out, start + 16, (uint64_t)(end - start) - 16);
}

// True if the model's change applies to a tensor of its file.
static bool is_changed(const struct fixture *f, const struct gguf_tensor *t) {
    const char *bytes = t->name.bytes, *end = bytes + t->name.length, *name;
    if (f->change == KEPT) return false;
    if (t->name.length > 4 && memcmp(bytes, "blk.", 4) == 0) {
        bytes = memchr(bytes + 4, '.', t->name.length - 4);
        bytes = bytes ? bytes + 1 : end;
    }
    for (int i = 0; (name = tensor_role_name(f->role, i)); i++)
        if (strlen(name) == (size_t)(end - bytes) && memcmp(bytes, name, strlen(name)) == 0)
            return true;
    return false;
}

static uint64_t count_changed(const struct fixture *f) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < f->gguf.n_tensors; i++) n += is_changed(f, &f->gguf.tensors[i]);
    return n;
}

// Element i of a vector: no constant, which would choose the same experts.
static float element(uint64_t i, float size) { return size * (float)((int)(i * 5 % 7) - 2); }

static void put_zeros(FILE *out, uint64_t n) {
    while (n--) put(out, "", 1);
}

// Writes the model with what is added and changed.
static void write_changed(const struct fixture *f, float size) {
    const struct gguf *g = &f->gguf;
    const bool leaves = f->change == LEFT_OUT;
    const uint64_t mask = g->alignment - 1, n_left_out = leaves ? count_changed(f) : 0;
    uint64_t offset = 0;
    FILE *out = fopen(f->changed, "wb");
    assert_non_null(out);
    put_keys(out, g, g->n_tensors + (uint64_t)f->n_added - n_left_out);
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        if (leaves && is_changed(f, t)) continue;
        put_entry(out, t, offset);
        offset += (t->size_bytes + mask) & ~mask;
    }
    for (int i = 0; i < f->n_added; i++) {
        const struct added *a = &f->added[i];
        const struct gguf_tensor t = {
            .name = {a->name, strlen(a->name)}, .type = DTYPE_F32, .n_dims = 1, .ne = {a->n}};
        put_entry(out, &t, offset);
        offset += (a->n * sizeof(float) + mask) & ~mask;
    }
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        const bool changed = is_changed(f, t);
        if (leaves && changed) continue;
        pad(out, g->alignment);
        if (changed)
            put_zeros(out, t->size_bytes);
        else
            put(out, t->data, t->size_bytes);
    }
    for (int i = 0; i < f->n_added; i++) {
        pad(out, g->alignment);
        for (uint64_t k = 0; k < f->added[i].n; k++) {
            const float value = element(k, size);
            put(out, &value, sizeof value);
        }
    }
    pad(out, g->alignment);
    assert_int_equal(fclose(out), 0);
}

// ---- Logits -------------------------------------------------------------------------------------

// Fills out with the logits of all tokens; ERR_FORMAT or ERR_UNSUPPORTED if the file is refused.
static enum status compute(const char *path, float *out, int32_t *n_vocab) {
    const struct engine_options o = {.model_path = path,
                                     .device_spec = "none",
                                     .cpu = {.isa = ISA_REF, .n_threads = 1},
                                     .workload = {.n_ctx = N_CTX,
                                                  .n_ubatch = N_TOKENS,
                                                  .max_logits = N_TOKENS,
                                                  .n_sessions = 1,
                                                  .kv_type_k = DTYPE_F32,
                                                  .kv_type_v = DTYPE_F32},
                                     .constraints = {.gpu_layers = GPU_LAYERS_AUTO}};
    struct batch_item items[N_TOKENS];
    struct session *s;
    struct engine *en;
    struct err e;
    if (engine_open(&en, &o, &e)) return e.status;
    *n_vocab = engine_n_vocab(en);
    assert_true(*n_vocab <= MAX_VOCAB);
    assert_int_equal(session_new(&s, en, &e), OK);
    for (int i = 0; i < N_TOKENS; i++) items[i] = (struct batch_item){s, 7 + 31 * i, true};
    assert_int_equal(engine_eval(en, items, N_TOKENS, &e), OK);
    memcpy(out, engine_logits(en, 0), (size_t)N_TOKENS * (size_t)*n_vocab * sizeof *out);
    session_free(s);
    engine_close(en);
    return OK;
}

// True if the model with what is added gives the same logits; refused counts as what is wanted.
static bool is_as_wanted(struct fixture *f, float size, int *n_taken) {
    static float logits[N_TOKENS * MAX_VOCAB];
    int32_t n_vocab = 0;
    write_changed(f, size);
    const enum status status = compute(f->changed, logits, &n_vocab);
    if (status == ERR_FORMAT || status == ERR_UNSUPPORTED) return true;
    assert_int_equal(status, OK);
    ++*n_taken;
    bool same = true;
    for (int32_t i = 0; i < N_TOKENS * n_vocab; i++) same &= logits[i] == f->expected[i];
    return same == (size == 0);
}

// True if the model without the role's tensors gives the logits that it gives with zeros in them,
// or is refused. Counts those whose logits change.
static bool is_optional(struct fixture *f, enum tensor_role role, int *n_left_out) {
    static float zeroed[N_TOKENS * MAX_VOCAB], without[N_TOKENS * MAX_VOCAB];
    int32_t n_vocab = 0;
    bool same = true, as_before = true;
    f->role = role;
    f->change = ZEROED;
    write_changed(f, 0);
    assert_int_equal(compute(f->changed, zeroed, &n_vocab), OK);
    f->change = LEFT_OUT;
    write_changed(f, 0);
    const enum status status = compute(f->changed, without, &n_vocab);
    f->change = KEPT;
    if (status == ERR_FORMAT) return true;
    assert_int_equal(status, OK);
    for (int32_t i = 0; i < N_TOKENS * n_vocab; i++) {
        same &= without[i] == zeroed[i];
        as_before &= without[i] == f->expected[i];
    }
    *n_left_out += !as_before;
    return same;
}

// ---- What a model lacks -------------------------------------------------------------------------

static bool is_bias(enum tensor_role role) {
    const char *name = tensor_role_info(role)->name;
    const size_t length = strlen(name);
    return length > 5 && strcmp(name + length - 5, ".bias") == 0;
}

// True if the unit takes all experts whatever the vector holds.
static bool is_idle(const struct unit *unit, enum tensor_role role) {
    return role == ROLE_SELECTION_BIAS && unit->n_experts == unit->n_experts_used;
}

// Lists the vectors of that role that units lack.
static void list_lacking(struct fixture *f, enum tensor_role role) {
    f->n_added = 0;
    for (int32_t u = 0; u < f->shape.n_units; u++) {
        const struct unit *unit = &f->shape.units[u];
        const struct block *block = blocks_of_unit(&f->shape, unit);
        for (int32_t i = 0; i < block->n_tensors; i++) {
            const struct block_tensor *t = &block->tensors[i];
            const int64_t n = dims_of(&f->shape, unit, t->n_cols);
            if (t->role != role || !t->optional || n == 0 || unit_find(unit, role)) continue;
            if (is_idle(unit, role)) continue;
            assert_true(f->n_added < MAX_ADDED);
            struct added *a = &f->added[f->n_added++];
            a->n = (uint64_t)n;
            if (unit->layer < 0)
                snprintf(a->name, sizeof a->name, "%s", tensor_role_info(role)->name);
            else
                snprintf(a->name, sizeof a->name, "blk.%d.%s", unit->layer,
                         tensor_role_info(role)->name);
        }
    }
}

// Checks what the model has; returns how many roles are not as wanted.
static int check_left_out(struct fixture *f, int *n_left_out) {
    int n_wrong = 0;
    f->n_added = 0;
    for (int role = ROLE_OTHER + 1; role < ROLES; role++) {
        f->role = (enum tensor_role)role;
        f->change = LEFT_OUT;
        const bool has = is_bias(f->role) && count_changed(f) > 0;
        f->change = KEPT;
        if (!has || is_optional(f, f->role, n_left_out)) continue;
        print_message("%s: without %s\n", f->path, tensor_role_info(f->role)->name);
        n_wrong++;
    }
    return n_wrong;
}

static int check_model(struct fixture *f, int *n_taken, int *n_left_out) {
    struct err e;
    int32_t n_vocab;
    int n_wrong = 0;
    assert_int_equal(gguf_open(&f->gguf, f->path, &e), OK);
    assert_int_equal(gguf_shape(&f->shape, &f->gguf, &e), OK);
    assert_int_equal(compute(f->path, f->expected, &n_vocab), OK);
    for (int role = ROLE_OTHER + 1; role < ROLES; role++) {
        if (!is_bias((enum tensor_role)role)) continue;
        list_lacking(f, (enum tensor_role)role);
        for (int with = 0; with < 2 && f->n_added > 0; with++) {
            if (is_as_wanted(f, with ? 2 : 0, n_taken)) continue;
            print_message("%s: %s of %s\n", f->path, f->added[0].name, with ? "numbers" : "zeros");
            n_wrong++;
        }
    }
    n_wrong += check_left_out(f, n_left_out);
    gguf_close(&f->gguf);
    return n_wrong;
}

static void test_biases(void **state) {
    (void)state;
    struct fixture *f = mem_alloc(1, sizeof *f);
    int n_wrong = 0, n_taken = 0, n_left_out = 0;
    glob_t files;
    assert_non_null(f);
    strcpy(f->changed, "/tmp/optionalXXXXXX");
    close(mkstemp(f->changed));
    assert_int_equal(glob("tests/golden/tiny/*.gguf", 0, NULL, &files), 0);
    for (size_t i = 0; i < files.gl_pathc; i++) {
        f->path = files.gl_pathv[i];
        if (!strstr(f->path, "-of-")) n_wrong += check_model(f, &n_taken, &n_left_out);
    }
    print_message("%d files with a bias more were taken, %d with one less differ\n", n_taken,
                  n_left_out);
    assert_int_equal(n_wrong, 0);
    assert_true(n_taken > 500 && n_left_out >= 100);
    globfree(&files);
    unlink(f->changed);
    mem_free(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_biases)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
