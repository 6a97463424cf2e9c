/* test_plan_file.c: tests of planner/plan/plan_file.c: plans that are written, read, replayed to
 * the byte, and refused. */
// link: wrap-alloc
#include "tests/lib/small_shape.h"

#include "base/mem.h"
#include "tests/lib/alloc_fail.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
    struct shape shape, other;
    struct machine machine;
    struct plan plan, again;
    struct plan_file file;
    char *text; // of the saved plan
    size_t length;
};

static const uint64_t MIB = 1 << 20;

static char *save(const struct plan *plan, const struct shape *shape, size_t *length) {
    char *text = NULL;
    struct err e;
    FILE *out = open_memstream(&text, length);
    assert_non_null(out);
    assert_int_equal(plan_save(plan, shape, out, &e), OK);
    fclose(out);
    return text;
}

// A plan with units on both devices, saved.
static int setup(void **state) {
    struct fixture *f = *state = mem_alloc(1, sizeof *f);
    struct err e;
    small_shape(&f->shape);
    f->machine = small_machine(64 * MIB);
    const struct workload w = {.n_ctx = 256,
                               .n_ubatch = 32,
                               .kv_type_k = DTYPE_Q8_0,
                               .kv_type_v = DTYPE_F16,
                               .full_windows = true,
                               .n_prompt = 100,
                               .n_gen = 20};
    struct constraints c = {.gpu_layers = GPU_LAYERS_AUTO, .has_units = true};
    for (int32_t u = 0; u < f->shape.n_units; u++) c.place.units[u].device = u % 3 == 1;
    if (shape_check(&f->shape, &e) || planner_solve(&f->plan, &f->shape, &f->machine, &w, &c, &e)) {
        char text[512];
        fprintf(stderr, "%s\n", err_text(&e, text, sizeof text));
        return -1;
    }
    f->text = save(&f->plan, &f->shape, &f->length);
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    free(f->text);
    mem_free(f);
    return 0;
}

static enum status parse(struct fixture *f, const char *text, struct err *e) {
    *e = (struct err){0};
    return plan_parse(&f->file, &f->shape, text, strlen(text), e);
}

// The saved plan with the first from replaced by to.
static char *changed(const struct fixture *f, const char *from, const char *to) {
    const char *at = strstr(f->text, from);
    assert_non_null(at);
    char *out = NULL;
    assert_true(asprintf(&out, "%.*s%s%s", (int)(at - f->text), f->text, to, at + strlen(from)) >
                0);
    return out;
}

static void units_have_names(void **state) {
    struct fixture *f = *state;
    static const char *const names[] = {"embed",           "blk.0.attention", "blk.0.ffn",
                                        "blk.1.attention", "blk.1.experts",   "blk.2.attention",
                                        "blk.2.ffn",       "blk.2.experts",   "head"};
    assert_int_equal(f->shape.n_units, 9);
    for (int u = 0; u < 9; u++) {
        char name[64];
        plan_unit_name(&f->shape.units[u], name, sizeof name);
        assert_string_equal(name, names[u]);
    }
}

static void what_is_saved_is_read(void **state) {
    struct fixture *f = *state;
    struct err e;
    assert_int_equal(parse(f, f->text, &e), OK);
    assert_memory_equal(&f->file.workload, &f->plan.workload, sizeof f->file.workload);
    assert_true(f->file.constraints.has_units);
    for (int u = 0; u < f->shape.n_units; u++)
        assert_int_equal(f->file.constraints.place.units[u].device, f->plan.place.units[u].device);
    assert_string_equal(f->file.kinds[0], "cpu");
    assert_string_equal(f->file.kinds[1], "sim");
    for (int d = 0; d < MAX_DEVICES; d++)
        assert_memory_equal(f->file.bytes[d], f->plan.devices[d].bytes, sizeof f->file.bytes[d]);
}

static void a_replay_is_the_same_plan(void **state) {
    struct fixture *f = *state;
    struct err e;
    size_t length;
    assert_int_equal(parse(f, f->text, &e), OK);
    assert_int_equal(
        plan_replay(&f->again, &f->shape, &f->machine, &f->file, &(struct constraints){0}, &e), OK);
    char *text = save(&f->again, &f->shape, &length);
    assert_string_equal(text, f->text);
    free(text);
}

static enum status replay(struct fixture *f, const struct machine *machine,
                          const struct constraints *limits, struct err *e) {
    assert_int_equal(parse(f, f->text, e), OK);
    *e = (struct err){0};
    return plan_replay(&f->again, &f->shape, machine, &f->file, limits, e);
}

// Units 1 and 2, attention and FFN, are split and streamed, units 5 and 6 streamed from the CPU.
static void solve_ways(struct fixture *f, struct constraints *c) {
    struct err e;
    *c = (struct constraints){.has_units = true,
                              .has_placement = true,
                              .gpu_layers = GPU_LAYERS_AUTO,
                              .place = {.feed = FEED_STAGED}};
    for (int32_t u = 0; u < f->shape.n_units; u++) {
        c->place.units[u].device = u % 3 == 1 || u == 2 || u == 3;
        c->place.units[u].streamed = u == 1 || u == 2 || u == 5 || u == 6;
    }
    c->place.units[1].cpu_parts = 4;
    c->place.units[2].cpu_parts = 8;
    assert_int_equal(planner_solve(&f->again, &f->shape, &f->machine, &f->plan.workload, c, &e),
                     OK);
}

static void ways_are_saved_and_replayed(void **state) {
    struct fixture *f = *state;
    struct err e;
    struct constraints c;
    size_t length;
    solve_ways(f, &c);
    assert_int_equal(f->again.place.units[1].cpu_parts, 4);
    assert_int_equal(f->again.place.units[2].cpu_parts, 8);
    char *text = save(&f->again, &f->shape, &length);
    assert_non_null(
        strstr(text, "\"cpu_parts\": {\n  \"blk.0.attention\": 4,\n  \"blk.0.ffn\": 8\n }"));
    assert_non_null(strstr(text, "\"streamed\": [\n  \"blk.0.attention\",\n  \"blk.0.ffn\",\n  "
                                 "\"blk.2.attention\",\n  \"blk.2.ffn\"\n ]"));
    assert_non_null(strstr(text, "\"feed\": \"staged\""));
    assert_null(strstr(f->text, "cpu_parts"));
    assert_null(strstr(f->text, "streamed"));
    assert_int_equal(parse(f, text, &e), OK);
    assert_memory_equal(&f->file.constraints.place, &c.place, sizeof c.place);
    assert_int_equal(
        plan_replay(&f->again, &f->shape, &f->machine, &f->file, &(struct constraints){0}, &e), OK);
    char *again = save(&f->again, &f->shape, &length);
    assert_string_equal(again, text);
    assert_int_equal(f->again.place.feed, FEED_STAGED);
    // Files of earlier versions say how many slots the ring has.
    char *plain = f->text;
    f->text = text;
    char *old = changed(f, "\"feed\": \"staged\"", "\"feed\": \"staged\", \"slots\": 2");
    f->text = plain;
    assert_int_equal(parse(f, old, &e), OK);
    free(old);
    free(again);
    free(text);
}

static void wrong_ways_are_refused(void **state) {
    struct fixture *f = *state;
    static const struct {
        const char *from, *to, *says;
        enum status status; // of parsing, or OK: replaying is refused with ERR_USAGE
    } broken[] = {
        {"\"blk.0.ffn\": 8", "\"blk.0.ffn\": 32", "cpu_parts", ERR_FORMAT},
        {"\"blk.0.ffn\": 8", "\"blk.0.ffn\": \"8\"", "cpu_parts", ERR_FORMAT},
        {"\"blk.0.ffn\": 8", "\"blk.9.ffn\": 8", "cpu_parts", ERR_FORMAT},
        {"\"cpu_parts\": {", "\"cpu_parts\": 1, \"x\": {", "cpu_parts", ERR_FORMAT},
        {"\"blk.0.ffn\": 8", "\"blk.0.ffn\": 8, \"blk.2.ffn\": 8",
         "2.ffn cannot be split on the CPU", OK},
        {"\"blk.0.ffn\": 8", "\"blk.0.ffn\": 8, \"blk.2.attention\": 8",
         "2.attention cannot be split on the CPU", OK},
        {"\"blk.0.ffn\": 8", "\"blk.0.ffn\": 8, \"blk.1.experts\": 8",
         "1.experts cannot be split: expected a dense FFN or attention", OK},
        {"\"blk.0.ffn\": 8", "\"blk.0.ffn\": 8, \"blk.1.attention\": 8",
         "1.attention cannot be split: expected a dense FFN or attention", OK},
        {"\"blk.0.ffn\",", "\"blk.0.fff\",", "streamed", ERR_FORMAT},
        {"\"blk.0.ffn\",", "\"blk.2.ffn\",", "streamed", ERR_FORMAT},
        {"\"blk.0.ffn\",", "7,", "streamed", ERR_FORMAT},
        {"\"streamed\": [", "\"streamed\": true, \"x\": [", "streamed", ERR_FORMAT},
        {"\"blk.0.ffn\",", "\"blk.1.attention\",",
         "1.attention cannot be streamed: expected an FFN, experts, or attention with a cache", OK},
        {"\"blk.0.ffn\",", "\"blk.2.experts\",",
         "2.experts cannot be streamed: expected an FFN, experts, or attention", OK},
        {"\"blk.0.attention\": 4,", "", "0.attention cannot be streamed", OK},
        {"\"blk.0.ffn\": 8", "\"blk.0.ffn\": 0", "cannot be streamed", OK},
        {"\"feed\": \"staged\"", "\"feed\": \"none\"", "feed", ERR_FORMAT},
        {"\"feed\": \"staged\"", "\"feed\": 1", "feed", ERR_FORMAT},
        {"\"feed\": \"staged\"", "\"feed\": \"arena\"", "staging_bytes on cpu", OK},
        {"\"feed\": \"staged\"", "\"feed\": \"staged\", \"slots\": 3", "slots", ERR_FORMAT},
        {"\"feed\": \"staged\"", "\"feed\": \"staged\", \"slots\": true", "slots", ERR_FORMAT},
    };
    struct constraints c;
    solve_ways(f, &c);
    char *plain = f->text;
    f->text = save(&f->again, &f->shape, &(size_t){0});
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        struct err e;
        char line[1024], *text = changed(f, broken[i].from, broken[i].to);
        assert_int_equal(parse(f, text, &e), broken[i].status);
        if (broken[i].status == OK)
            assert_int_equal(plan_replay(&f->again, &f->shape, &f->machine, &f->file,
                                         &(struct constraints){0}, &e),
                             ERR_USAGE);
        err_text(&e, line, sizeof line);
        if (!strstr(line, broken[i].says)) fail_msg("'%s' lacks '%s'", line, broken[i].says);
        free(text);
    }
    free(f->text);
    f->text = plain;
}

static void other_machines_are_refused(void **state) {
    struct fixture *f = *state;
    const struct constraints none = {0};
    struct machine m = small_machine(0);
    struct err e;
    assert_int_equal(replay(f, &m, &none, &e), ERR_USAGE);
    assert_string_equal(e.expected, "a device of kind sim");
    assert_string_equal(e.actual, "none");
    m = small_machine(64 * MIB);
    strcpy(m.devices[1].kind, "cuda");
    assert_int_equal(replay(f, &m, &none, &e), ERR_USAGE);
    assert_string_equal(e.actual, "cuda");
    m = small_machine(64 * MIB);
    m.devices[1].align_bytes = 65536; // other bytes for the same units
    assert_int_equal(replay(f, &m, &none, &e), ERR_USAGE);
    assert_non_null(strstr(e.what, "no longer holds"));
    m = small_machine(100000);
    assert_int_equal(replay(f, &m, &none, &e), ERR_MEMORY);
    m = small_machine(64 * MIB);
    assert_int_equal(replay(f, &m, &(struct constraints){.vram_bytes = 100000}, &e), ERR_MEMORY);
    assert_int_equal(replay(f, &m, &(struct constraints){.ram_bytes = 100000}, &e), ERR_MEMORY);
    assert_int_equal(replay(f, &m, &none, &e), OK);
}

static void other_models_are_refused(void **state) {
    struct fixture *f = *state;
    struct err e;
    f->other = f->shape;
    strcpy(f->other.name, "the same under another name");
    assert_int_equal(plan_parse(&f->file, &f->other, f->text, f->length, &e), OK);
    strcpy(f->other.architecture, "another");
    assert_int_equal(plan_parse(&f->file, &f->other, f->text, f->length, &e), ERR_USAGE);
    assert_non_null(strstr(e.what, "another model"));
    f->other = f->shape;
    f->other.units[1].tensors[0].size_bytes += 4;
    assert_int_equal(plan_parse(&f->file, &f->other, f->text, f->length, &e), ERR_USAGE);
    f->other = f->shape;
    f->other.units[4].kind = UNIT_FFN; // a unit by another name
    assert_int_equal(plan_parse(&f->file, &f->other, f->text, f->length, &e), ERR_FORMAT);
}

static void broken_files_are_refused(void **state) {
    struct fixture *f = *state;
    static const struct {
        const char *from, *to, *says;
        enum status status;
    } broken[] = {
        {"{", "", "line", ERR_FORMAT},
        {"{", "[", "line", ERR_FORMAT},
        {"\"tandem_plan\": 1", "\"tandem_plan\": 2", "version", ERR_UNSUPPORTED},
        {"\"tandem_plan\": 1", "\"tandem_plan\": -1", "tandem_plan", ERR_FORMAT},
        {"\"tandem_plan\": 1", "\"plan\": 1", "tandem_plan", ERR_FORMAT},
        {"\"model\"", "\"mode\"", "model", ERR_FORMAT},
        {"\"layers\": 3", "\"layers\": 4", "another model", ERR_USAGE},
        {"\"layers\": 3", "\"layers\": 4294967299", "layers", ERR_FORMAT},
        {"\"n_ctx\": 256", "\"n_ctx\": 0", "n_ctx is 0", ERR_FORMAT},
        {"\"n_ctx\": 256", "\"n_ctx\": 25.6", "n_ctx", ERR_FORMAT},
        {"\"n_ubatch\": 32", "\"n_ubatch\": \"32\"", "n_ubatch", ERR_FORMAT},
        {"\"Q8_0\"", "\"Q4_1\"", "cache_type_k", ERR_FORMAT},
        {"\"Q8_0\"", "8", "cache_type_k", ERR_FORMAT},
        {"\"full_windows\": true", "\"full_windows\": 1", "full_windows", ERR_FORMAT},
        {"\"devices\": [", "\"devices\": [1, ", "devices", ERR_FORMAT},
        {"\"kind\": \"cpu\"", "\"kind\": \"gpu\"", "kind", ERR_FORMAT},
        {"\"kind\": \"sim\"", "\"kind\": \"cpu\"", "kind", ERR_FORMAT},
        {"\"kind\": \"sim\"", "\"kind\": \"a kind with a long name\"", "kind", ERR_FORMAT},
        {"\"kind\": \"sim\"", "\"kind\": \"cuda\"", "on no device", ERR_FORMAT},
        {"\"kv_bytes\": ", "\"kv_bytes\": -", "kv_bytes", ERR_FORMAT},
        {"\"embed\": \"cpu\"", "\"embed\": \"tpu\"", "embed is on no device", ERR_FORMAT},
        {"\"embed\": \"cpu\"", "\"embedding\": \"cpu\"", "embed", ERR_FORMAT},
        {"\"embed\": \"cpu\"", "\"embed\": 0", "embed", ERR_FORMAT},
        {"\"embed\": \"cpu\"", "\"more\": \"cpu\", \"embed\": \"cpu\"", "does not have",
         ERR_FORMAT},
        {"\"embed\": \"cpu\"", "\"embed\": \"cpu\", \"embed\": \"cpu\"", "duplicate", ERR_FORMAT},
    };
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        struct err e;
        char line[1024], *text = changed(f, broken[i].from, broken[i].to);
        assert_int_equal(parse(f, text, &e), broken[i].status);
        err_text(&e, line, sizeof line);
        if (!strstr(line, broken[i].says)) fail_msg("'%s' lacks '%s'", line, broken[i].says);
        free(text);
    }
}

// Whatever byte is cut off or changed, it is refused or read, and nothing else happens.
static void every_cut_and_change_is_survived(void **state) {
    struct fixture *f = *state;
    struct err e;
    for (size_t i = 0; i < f->length - 2; i++) {
        assert_int_not_equal(plan_parse(&f->file, &f->shape, f->text, i, &e), OK);
        assert_true(e.what[0]);
    }
    for (size_t i = 0; i < f->length; i++)
        for (int bit = 0; bit < 8; bit++) {
            char was = f->text[i];
            f->text[i] = (char)(was ^ (1 << bit));
            if (plan_parse(&f->file, &f->shape, f->text, f->length, &e) == OK)
                plan_replay(&f->again, &f->shape, &f->machine, &f->file, &(struct constraints){0},
                            &e);
            f->text[i] = was;
        }
}

static void files_are_named_in_errors(void **state) {
    struct fixture *f = *state;
    struct err e;
    char path[] = "/tmp/tandem-plan-XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, f->text, f->length), f->length);
    assert_int_equal(plan_load(&f->file, &f->shape, path, &e), OK);
    assert_int_equal(ftruncate(descriptor, 100), 0);
    assert_int_equal(plan_load(&f->file, &f->shape, path, &e), ERR_FORMAT);
    assert_non_null(strstr(e.what, path));
    close(descriptor);
    unlink(path);
    assert_int_equal(plan_load(&f->file, &f->shape, path, &e), ERR_FILE);
}

static void refused_memory_is_reported(void **state) {
    struct fixture *f = *state;
    struct err e;
    char path[] = "/tmp/tandem-plan-XXXXXX";
    int descriptor = mkstemp(path);
    assert_int_equal(write(descriptor, f->text, f->length), f->length);
    alloc_fail_at(1);
    assert_int_equal(plan_load(&f->file, &f->shape, path, &e), ERR_MEMORY);
    alloc_fail_at(0);
    close(descriptor);
    unlink(path);
}

static void a_full_disk_is_reported(void **state) {
    struct fixture *f = *state;
    struct err e;
    FILE *full = fopen("/dev/full", "w");
    if (!full) skip();
    assert_int_equal(plan_save(&f->plan, &f->shape, full, &e), ERR_FILE);
    fclose(full);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(units_have_names),
        cmocka_unit_test(what_is_saved_is_read),
        cmocka_unit_test(a_replay_is_the_same_plan),
        cmocka_unit_test(ways_are_saved_and_replayed),
        cmocka_unit_test(wrong_ways_are_refused),
        cmocka_unit_test(other_machines_are_refused),
        cmocka_unit_test(other_models_are_refused),
        cmocka_unit_test(broken_files_are_refused),
        cmocka_unit_test(every_cut_and_change_is_survived),
        cmocka_unit_test(files_are_named_in_errors),
        cmocka_unit_test(refused_memory_is_reported),
        cmocka_unit_test(a_full_disk_is_reported),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
