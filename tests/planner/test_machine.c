/* test_machine.c: machines as data: probed, loaded, saved, checked, and rates from the nearest.
 *
 * Runs in the repository's root, where configs/machines lies. */
// link: wrap-alloc
#include "base/mem.h"
#include "planner/machine/machine.h"
#include "planner/machine/machine_scale.h"
#include "tests/lib/alloc_fail.h"

#include <glob.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { TEXT = 1 << 16 };

// A small machine with every short form.
static const char SMALL[] =
    "{\"name\": \"small\", \"source\": \"invented\",\n"
    " \"cpu\": {\"packages\": 1, \"cores\": 4, \"threads\": 8, \"cache_bytes\": 8388608},\n"
    " \"memory\": {\"ram_bytes\": 8589934592, \"dram_gbps\": 30,\n"
    "  \"channels\": 2, \"team_gbps\": [[1, 10], [2, 19.5], [4, 20]]},\n"
    " \"devices\": [\n"
    "  {\"name\": \"a cpu\", \"kind\": \"cpu\", \"capacity_bytes\": 8589934592,\n"
    "   \"reserve_bytes\": 1073741824,\n"
    "   \"rates\": {\"weight_gbps\": 20, \"compute_gflops\": {\"default\": 400, \"F32\": 100},\n"
    "    \"attention_gflops\": 50, \"vector_gbps\": 15, \"memory_gbps\": 25, \"op_us\": 1.5,\n"
    "    \"pass_us\": 8, \"cache_bytes\": 1048576, \"cache_factor\": 2.5}},\n"
    "  {\"name\": \"a gpu\", \"kind\": \"cuda\", \"capacity_bytes\": 4294967296,\n"
    "   \"capability\": \"7.5\", \"pci_id\": \"0000:01:00.0\",\n"
    "   \"rates\": {\"weight_gbps\": {\"default\": 100, \"Q4_K\": [90, 80, 70, 60, 50, 40]},\n"
    "    \"compute_gflops\": 4000, \"attention_gflops\": {\"default\": 300, \"F32\": 150},\n"
    "    \"vector_gbps\": 90, \"memory_gbps\": 110, \"op_us\": 2.5, \"pass_us\": 20},\n"
    "   \"link\": {\"source\": \"a note\", \"to_gbps\": 12, \"from_gbps\": 12.5,\n"
    "    \"staged_to_gbps\": 6, \"latency_us\": 15}}]}";

static struct machine parse(const char *text) {
    struct machine m;
    struct err e = {0};
    if (machine_parse(&m, text, strlen(text), &e) != OK) fail_msg("%s", e.what);
    return m;
}

// SMALL with one part replaced, the first.
static char *changed(const char *old, const char *new) {
    static char text[2 * sizeof SMALL];
    const char *at = strstr(SMALL, old);
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - SMALL), SMALL, new, at + strlen(old));
    return text;
}

// Returns the output of machine_save in a buffer that the caller frees.
static char *save(const struct machine *m) {
    char *text = NULL;
    size_t size;
    struct err e = {0};
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    if (machine_save(m, out, &e) != OK) fail_msg("%s", e.what);
    fclose(out);
    return text;
}

static void assert_round_trip(const struct machine *m) {
    char *first = save(m);
    struct machine again = parse(first);
    char *second = save(&again);
    assert_string_equal(first, second);
    assert_memory_equal(m, &again, sizeof again);
    free(first);
    free(second);
}

static void builtin_path(char *out, size_t size, int32_t i, const char *suffix) {
    snprintf(out, size, "configs/machines/%s%s", machine_builtin_name(i), suffix);
}

// ---- This computer ------------------------------------------------------------------------------

static void test_probe_of_this_machine(void **state) {
    (void)state;
    struct machine m = {.n_unused_accelerators = 7};
    struct err e = {0};
    double link = -1;
    assert_int_equal(machine_probe(&m, NULL, NULL, &link, &e), OK);
    assert_true(m.n_cores >= 1 && m.n_cores <= m.n_threads);
    assert_true(m.n_threads <= sysconf(_SC_NPROCESSORS_CONF));
    assert_int_equal(m.n_performance_cores + m.n_efficiency_cores, m.n_cores);
    assert_true(m.ram_bytes > UINT64_C(64) << 20 && m.ram_limited_by[0]);
    assert_true(link == 0);
    assert_int_equal(m.n_unused_accelerators, 7); // what is not the CPU's is left alone
    // A card that is not there.
    assert_int_equal(machine_probe(&m, NULL, "00ff:1f:1f.7", &link, &e), OK);
    assert_true(link == 0);
    assert_int_equal(machine_probe(&m, NULL, "no card", &link, &e), OK);
    assert_true(link == 0);
}

static void test_probe_refuses_what_is_no_topology(void **state) {
    (void)state;
    struct machine m = {0};
    struct err e = {0};
    double link;
    if (machine_probe(&m, "configs/machines/cpu-only.xml", NULL, &link, &e) == ERR_UNSUPPORTED)
        skip();
    assert_int_equal(machine_probe(&m, "/nowhere/at.xml", NULL, &link, &e), ERR_FILE);
    assert_non_null(strstr(e.what, "/nowhere/at.xml"));
    assert_int_equal(machine_probe(&m, "Makefile", NULL, &link, &e), ERR_FORMAT);
    assert_non_null(strstr(e.what, "Makefile"));
    assert_non_null(strstr(e.expected, "hwloc"));
}

// ---- Built-in machines --------------------------------------------------------------------------

static void test_every_builtin_is_in_order(void **state) {
    (void)state;
    glob_t files;
    assert_int_equal(glob("configs/machines/*.json", 0, NULL, &files), 0);
    assert_int_equal(machine_builtin_count(), files.gl_pathc);
    globfree(&files);
    assert_true(machine_builtin_count() >= 12);
    for (int32_t i = 0; i < machine_builtin_count(); i++) {
        struct machine m;
        struct err e = {0};
        if (machine_builtin(&m, i, &e) != OK) fail_msg("%s: %s", e.what, e.expected);
        assert_string_equal(m.name, machine_builtin_name(i));
        assert_int_equal(m.rates, RATES_FILE);
        assert_string_equal(m.rates_name, m.name);
        assert_true(m.source[0] && m.devices[0].budget_bytes > 0);
        assert_int_equal(m.devices[0].capacity_bytes, m.ram_bytes);
        assert_true(machine_decode_team(&m) >= 1 && machine_decode_team(&m) <= m.n_cores);
        assert_round_trip(&m);
    }
}

// No rate is faster than the memory or link that it depends on.
static void test_builtin_rates_are_possible(void **state) {
    (void)state;
    for (int32_t i = 0; i < machine_builtin_count(); i++) {
        struct machine m;
        struct err e = {0};
        assert_int_equal(machine_builtin(&m, i, &e), OK);
        for (int32_t d = 0; d < m.n_devices; d++) {
            const struct device_rates *r = &m.devices[d].rates;
            for (int t = 0; t < WEIGHT_COUNT; t++)
                for (int c = 0; c < RATE_CLASSES; c++) {
                    assert_true(r->weight_gbps[t][c] <= r->memory_gbps);
                    assert_true(c == 0 || r->weight_gbps[t][c] <= r->weight_gbps[t][c - 1]);
                    // More tokens never take less time.
                    assert_true(c == 0 || RATE_TOKENS[c] * r->weight_gbps[t][c] >=
                                              RATE_TOKENS[c - 1] * r->weight_gbps[t][c - 1]);
                }
            if (d == 0) assert_true(r->memory_gbps <= m.dram_gbps);
        }
        if (m.n_devices > 1) {
            const struct link_rates *link = &m.devices[1].link;
            assert_true(link->staged_to_gbps <= link->to_gbps);
            assert_true(link->to_gbps <= m.dram_gbps);
            if (link->theoretical_gbps > 0) assert_true(link->to_gbps < link->theoretical_gbps);
        }
    }
}

static void test_topologies_agree_with_their_machines(void **state) {
    (void)state;
    for (int32_t i = 0; i < machine_builtin_count(); i++) {
        struct machine built_in, m = {0};
        struct err e = {0};
        char path[128];
        assert_int_equal(machine_builtin(&built_in, i, &e), OK);
        builtin_path(path, sizeof path, i, ".json");
        // Cores, threads, kinds, NUMA nodes and caches are compared by loading.
        if (machine_load(&m, path, &e) != OK) fail_msg("%s: %s, %s", e.what, e.expected, e.actual);
        assert_memory_equal(&m, &built_in, sizeof m);
        const struct machine_device *card = m.n_devices > 1 ? &m.devices[1] : NULL;
        double link;
        struct machine topology = {0};
        builtin_path(path, sizeof path, i, ".xml");
        enum status status = machine_probe(&topology, path, card ? card->pci_id : NULL, &link, &e);
        if (status == ERR_UNSUPPORTED) skip();
        assert_int_equal(status, OK);
        assert_int_equal(topology.ram_bytes, m.ram_bytes);
        assert_true(fabs(link - (card ? card->link.theoretical_gbps : 0)) < 0.01);
    }
}

// ---- Files --------------------------------------------------------------------------------------

static void test_short_forms(void **state) {
    (void)state;
    struct machine m = parse(SMALL);
    const struct machine_device *cpu = &m.devices[0], *gpu = &m.devices[1];
    assert_true(cpu->is_host && !gpu->is_host);
    assert_int_equal(cpu->align_bytes, 64);
    assert_int_equal(gpu->align_bytes, 256);
    assert_int_equal(cpu->n_lanes, 4);
    assert_int_equal(gpu->n_lanes, 1);
    assert_int_equal(cpu->budget_bytes, UINT64_C(7) << 30);
    assert_int_equal(gpu->budget_bytes, UINT64_C(4) << 30);
    assert_string_equal(m.rates_name, "small");
    // 32 weights are 18 bytes of Q4_0: 3.56 flops per byte and token.
    const double *q4_0 = cpu->rates.weight_gbps[WEIGHT_Q4_0];
    assert_true(q4_0[0] == 20 && q4_0[3] < 20 && fabs(q4_0[3] - 400 / (8 * 64 / 18.0)) < 1e-9);
    assert_true(fabs(q4_0[5] - 400 / (512 * 64 / 18.0)) < 1e-9);
    assert_true(fabs(cpu->rates.weight_gbps[WEIGHT_F32][5] - 100 / (512 * 0.5)) < 1e-9);
    assert_true(gpu->rates.weight_gbps[WEIGHT_Q4_K][0] == 90);
    assert_true(gpu->rates.weight_gbps[WEIGHT_Q4_K][5] == 40);
    assert_true(gpu->rates.attention_gflops[KV_F32][5] == 150);
    assert_true(gpu->rates.attention_gflops[KV_Q8_0][0] == 300);
    assert_int_equal(cpu->rates.cache_bytes, 1048576);
    assert_true(cpu->rates.cache_factor == 2.5);
    assert_int_equal(gpu->rates.cache_bytes, 0);
    assert_round_trip(&m);
}

// Files that were written before there was a cache of Q4_0 have no rate of it.
static void test_a_cache_type_without_a_rate(void **state) {
    (void)state;
    struct machine m = parse(
        changed("{\"default\": 300, \"F32\": 150}", "{\"F32\": 150, \"F16\": 300, \"Q8_0\": 250}"));
    assert_true(m.devices[1].rates.attention_gflops[KV_Q4_0][0] == 250);
    assert_true(m.devices[1].rates.attention_gflops[KV_Q4_0][5] == 250);
}

static void test_every_number_survives_a_file(void **state) {
    (void)state;
    struct machine m = parse(SMALL);
    m.dram_gbps = 0.1 + 0.2;
    m.team_gbps[0] = 1.0 / 3;
    m.devices[1].rates.op_us = 5e-324;
    m.devices[1].rates.vector_gbps = 1e6;
    m.devices[1].rates.weight_gbps[WEIGHT_F16][2] = 123456.78901234567;
    m.devices[1].rates.attention_gflops[KV_Q8_0][3] = 1.0 / 7;
    m.devices[0].rates.cache_bytes = 234567890123;
    m.devices[0].rates.cache_quarter_bytes = 345678901234;
    m.devices[0].rates.cache_factor = 1.0 / 3;
    m.devices[0].capacity_bytes = UINT64_C(1) << 60;
    snprintf(m.source, sizeof m.source, "%s", "\"quoted\" \\ \xc3\xa4");
    m.rates = RATES_MEASURED;
    assert_round_trip(&m);
    memset(m.rates_name, 0, sizeof m.rates_name);
    m.rates = RATES_FILE;
    assert_round_trip(&m);
    memset(&m.devices[1].rates, 0, sizeof m.devices[1].rates);
    memset(&m.devices[0].rates, 0, sizeof m.devices[0].rates);
    m.n_team_sizes = 0;
    memset(m.team_size, 0, sizeof m.team_size);
    memset(m.team_gbps, 0, sizeof m.team_gbps);
    m.rates = RATES_NONE;
    assert_round_trip(&m);
}

static const struct {
    const char *old, *new, *what, *expected; // parts of the message
} BROKEN[] = {
    {"{", "[", "line ", ""},
    {"\"small\",", "\"small\" ,,", "line 1", ""},
    {"\"name\": \"small\"", "\"name\": \"small\", \"name\": \"twice\"", "line 1", ""},
    {"\"name\": \"small\"", "\"name\": 3", "name", "text"},
    {"\"name\": \"small\",", "", "name", "a value"},
    {"\"name\"", "\"nmae\"", "nmae", "no field"},
    {"\"name\"", "\"\"", "\"\"", "no field"},
    {"\"invented\"", "7", "source", ""},
    {"\"cpu\": {", "\"cpu\": 3, \"cup\": {", "cup", "no field"},
    {"\"packages\": 1", "\"packages\": -1", "cpu.packages", "whole number"},
    {"\"packages\": 1", "\"packages\": 1.5", "cpu.packages", "whole number"},
    {"\"packages\": 1", "\"packages\": 99999999999", "cpu.packages", "whole number"},
    {"\"packages\": 1", "\"packages\": 2000000", "cpu.packages", "1000000"},
    {"\"cores\": 4, ", "", "cpu.cores", "a value"},
    {"\"cache_bytes\": 8388608", "\"cache_bytes\": \"8M\"", "cpu.cache_bytes", "whole number"},
    {"\"cache_bytes\": 8388608", "\"cache_bytes\": 9223372036854775807", "cpu.cache_bytes", "0 to"},
    {"\"ram_bytes\": 8589934592, ", "", "memory.ram_bytes", "a value"},
    {"\"dram_gbps\": 30", "\"dram_gbps\": -30", "memory.dram_gbps", "0 to"},
    {"\"dram_gbps\": 30", "\"dram_gbps\": \"30\"", "memory.dram_gbps", "a number"},
    {"\"dram_gbps\": 30", "\"dram_gbps\": 1e999", "line ", ""},
    {"\"dram_gbps\": 30", "\"dram_gbps\": -0.0", "memory.dram_gbps", "0 to"},
    {"[1, 10]", "[1, 10, 2]", "memory.team_gbps", "pairs"},
    {"[1, 10]", "1", "memory.team_gbps", "pairs"},
    {"[1, 10]", "[0, 10]", "memory.team_gbps", "pairs"},
    {"[1, 10]", "[2, 10]", "memory.team_gbps[1]", "larger"},
    {"[1, 10]", "[1, 0]", "memory.team_gbps[0]", "1e-06"},
    {"[1, 10],",
     "[1, 10], [1, 10], [1, 10], [1, 10], [1, 10], [1, 10], [1, 10], [1, 10], [1, 10], "
     "[1, 10], [1, 10], [1, 10], [1, 10], [1, 10], [1, 10],",
     "memory.team_gbps", "16"},
    {NULL,
     "{\"name\": \"x\", \"cpu\": {\"cores\": 1, \"threads\": 1}, \"memory\": {\"ram_bytes\": 9}, "
     "\"devices\": []}",
     "devices", "the CPU and at most one"},
    {NULL, "{}", "name", "a value"},
    {NULL, "3", "line 1", ""},
    {NULL, "[]", "the machine", "an object"},
    {"\"devices\": [", "\"devices\": [3, 4, ", "devices", "the CPU and at most one"},
    {"\"devices\": [\n  {", "\"devices\": [\n  {\"colour\": 1, ", "devices[0].colour", "no field"},
    {"\"kind\": \"cpu\"", "\"kind\": \"a kind that is too long\"", "devices[0].kind", "at most 15"},
    {"\"kind\": \"cpu\"", "\"kind\": \"cpu\\n\"", "devices[0].kind", "control"},
    {"\"kind\": \"cpu\"", "\"kind\": \"cpu\", \"is_host\": 1", "devices[0].is_host", "true or"},
    {"\"kind\": \"cpu\"", "\"kind\": \"cpu\", \"is_host\": false", "devices[0].is_host", "first"},
    {"\"kind\": \"cuda\"", "\"kind\": \"cuda\", \"is_host\": true", "devices[1].is_host", "only"},
    {"\"kind\": \"cuda\"", "\"kind\": \"cuda\", \"align_bytes\": 48", "devices[1].align_bytes",
     "power of two"},
    {"\"kind\": \"cuda\"", "\"kind\": \"cuda\", \"align_bytes\": 0", "devices[1].align_bytes",
     "power of two"},
    {"\"kind\": \"cuda\"", "\"kind\": \"cuda\", \"align_bytes\": 4294967296",
     "devices[1].align_bytes", "whole number"},
    {"\"kind\": \"cuda\"", "\"kind\": \"cuda\", \"lanes\": 0", "devices[1].lanes", "at least 1"},
    {"\"kind\": \"cuda\"", "\"kind\": \"cuda\", \"budget_bytes\": 5000000000",
     "devices[1].budget_bytes", "at most"},
    {"\"weight_gbps\": 20", "\"weight_gbps\": 0", "devices[0].rates.weight_gbps.Q4_K[0]", "1e-06"},
    {"\"weight_gbps\": 20, ", "", "devices[0].rates.weight_gbps", "a value"},
    {"\"weight_gbps\": 20", "\"weight_gbps\": [1, 2]", "devices[0].rates.weight_gbps.Q4_K", "6"},
    {"\"weight_gbps\": 20", "\"weight_gbps\": {\"Q4_K\": 20}", "devices[0].rates.weight_gbps.Q6_K",
     "6"},
    {"\"weight_gbps\": 20", "\"weight_gbps\": {\"Q4\": 20}", "devices[0].rates.weight_gbps.Q4",
     "weight type"},
    {"\"compute_gflops\": {\"default\": 400, \"F32\": 100},", "", "devices[0].rates.compute_gflops",
     "positive number for each type"},
    {"\"default\": 400, ", "", "devices[0].rates.compute_gflops", "positive number for each type"},
    {"\"default\": 400", "\"default\": 0", "devices[0].rates.compute_gflops",
     "positive number for each type"},
    {"\"F32\": 100", "\"F33\": 100", "devices[0].rates.compute_gflops.F33", "weight type"},
    {"90, 80, 70", "90, \"80\", 70", "devices[1].rates.weight_gbps.Q4_K", "each place"},
    {"90, 80, 70", "90, -80, 70", "devices[1].rates.weight_gbps.Q4_K[1]", "1e-06"},
    {"\"attention_gflops\": 50, ", "", "devices[0].rates.attention_gflops", "a value"},
    {"\"F32\": 150", "\"Q4_K\": 150", "devices[1].rates.attention_gflops.Q4_K", "Q8_0"},
    {"\"default\": 300, ", "", "devices[1].rates.attention_gflops.F16", "a number"},
    {"\"op_us\": 1.5,", "", "devices[0].rates.op_us", "a value"},
    {"\"op_us\": 1.5", "\"op_us\": -1.5", "devices[0].rates.op_us", "0 to"},
    {"\"vector_gbps\": 90", "\"vector_gbps\": 0", "devices[1].rates.vector_gbps", "1e-06"},
    {"\"to_gbps\": 12,", "", "devices[1].link.to_gbps", "a value"},
    {"\"to_gbps\": 12", "\"to_gbps\": 0", "devices[1].link.to_gbps", "1e-06"},
    {"\"latency_us\": 15", "\"latency_us\": 1e7", "devices[1].link.latency_us", "1e+06"},
    {"\"link\": {", "\"link\": 1, \"lnik\": {", "devices[1].lnik", "no field"},
    {"\"source\": \"invented\"", "\"rates_from\": \"guessed\"", "rates_from", "nearest"},
    {"\"source\": \"invented\"", "\"topology\": 1", "topology", "name of a file"},
};

static void test_broken_files_say_which_field(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof BROKEN / sizeof *BROKEN; i++) {
        struct machine m;
        struct err e = {0};
        const char *text = BROKEN[i].old ? changed(BROKEN[i].old, BROKEN[i].new) : BROKEN[i].new;
        if (machine_parse(&m, text, strlen(text), &e) != ERR_FORMAT)
            fail_msg("accepted: %s", BROKEN[i].new);
        if (!strstr(e.what, BROKEN[i].what) || !strstr(e.expected, BROKEN[i].expected))
            fail_msg("%s: what is \"%s\", expected \"%s\", got \"%s\"", BROKEN[i].new, e.what,
                     e.expected, e.actual);
    }
}

// Every cut of the file is refused, never read beyond its end.
static void test_cut_files(void **state) {
    (void)state;
    for (size_t length = 0; length + 1 < sizeof SMALL; length++) {
        char *text = malloc(length + 1); // one byte, so that there is one for length 0
        memcpy(text, SMALL, length);
        struct machine m;
        struct err e = {0};
        assert_int_equal(machine_parse(&m, text, length, &e), ERR_FORMAT);
        assert_true(e.what[0]);
        free(text);
    }
}

// A file with that text in a fresh folder, and beside it a topology.
struct place {
    char folder[64], json[96], xml[96];
};

static void put(const char *path, const char *text) {
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    fputs(text, out);
    fclose(out);
}

static void place_open(struct place *p) {
    snprintf(p->folder, sizeof p->folder, "/tmp/tandem_machine_XXXXXX");
    assert_non_null(mkdtemp(p->folder));
    snprintf(p->json, sizeof p->json, "%s/m.json", p->folder);
    snprintf(p->xml, sizeof p->xml, "%s/m.xml", p->folder);
    char command[256];
    snprintf(command, sizeof command, "cp configs/machines/pe-core-desktop.xml %s", p->xml);
    assert_int_equal(system(command), 0);
}

static void place_close(struct place *p) {
    unlink(p->json);
    unlink(p->xml);
    rmdir(p->folder);
}

static void test_files_name_themselves_in_errors(void **state) {
    (void)state;
    struct place p;
    struct machine m;
    struct err e = {0};
    place_open(&p);
    assert_int_equal(machine_load(&m, p.json, &e), ERR_FILE);
    assert_non_null(strstr(e.what, p.json));
    put(p.json, changed("\"op_us\": 1.5", "\"op_us\": true"));
    assert_int_equal(machine_load(&m, p.json, &e), ERR_FORMAT);
    assert_non_null(strstr(e.what, p.json));
    assert_non_null(strstr(e.what, "devices[0].rates.op_us"));
    assert_string_equal(e.actual, "true");
    put(p.json, SMALL);
    assert_int_equal(machine_load(&m, p.json, &e), OK);
    struct machine same = parse(SMALL);
    assert_memory_equal(&m, &same, sizeof m);
    place_close(&p);
}

static void test_topology_beside_a_file(void **state) {
    (void)state;
    static const char cpu[] =
        "\"cpu\": {\"packages\": 1, \"cores\": 4, \"threads\": 8, \"cache_bytes\": 8388608},";
    struct place p;
    struct machine m;
    struct err e = {0};
    double link;
    place_open(&p);
    memset(&m, 0, sizeof m);
    if (machine_probe(&m, p.xml, NULL, &link, &e) == ERR_UNSUPPORTED) {
        place_close(&p);
        skip();
    }
    put(p.json, changed(cpu, "\"topology\": \"m.xml\","));
    if (machine_load(&m, p.json, &e) != OK) fail_msg("%s: %s", e.what, e.expected);
    assert_int_equal(m.n_cores, 14);
    assert_int_equal(m.n_threads, 20);
    assert_int_equal(m.n_performance_cores, 6);
    assert_int_equal(m.n_efficiency_cores, 8);
    assert_int_equal(m.cache_bytes, 24 << 20);
    assert_int_equal(m.ram_bytes, UINT64_C(8) << 30); // the file's, as everything about memory
    assert_round_trip(&m);
    put(p.json, changed("\"cpu\": {", "\"topology\": \"m.xml\", \"cpu\": {"));
    assert_int_equal(machine_load(&m, p.json, &e), ERR_FORMAT);
    assert_non_null(strstr(e.what, "cpu.cores"));
    assert_string_equal(e.actual, "4");
    put(p.json, changed(cpu, "\"topology\": \"../m.xml\","));
    assert_int_equal(machine_load(&m, p.json, &e), ERR_FORMAT);
    assert_non_null(strstr(e.what, "topology"));
    put(p.json, changed(cpu, "\"topology\": \"gone.xml\","));
    assert_int_equal(machine_load(&m, p.json, &e), ERR_FILE);
    assert_non_null(strstr(e.what, "gone.xml"));
    place_close(&p);
}

// Writes the topology of 6 cores with two threads each and 8 with one, in kinds of processors.
static void put_kinds(const char *path, const char *kinds) {
    static char text[1 << 16];
    FILE *in = fopen("configs/machines/pe-core-desktop.xml", "r");
    assert_non_null(in);
    const size_t n = fread(text, 1, sizeof text - 1, in);
    fclose(in);
    text[n] = 0;
    char *end = strstr(text, "  <cpukind");
    assert_non_null(end);
    snprintf(end, sizeof text - (size_t)(end - text), "%s</topology>\n", kinds);
    put(path, text);
}

// Performance cores are those that threads run on by default: a quarter of all at least.
static void test_kinds_of_cores(void **state) {
    (void)state;
    static const struct {
        const char *kinds;
        int32_t n_fast;
    } cases[] = {
        // A prime core, 5 big ones and 8 little ones.
        {"<cpukind cpuset=\"0xff000\" forced_efficiency=\"0\"/>"
         "<cpukind cpuset=\"0x00ffc\" forced_efficiency=\"1\"/>"
         "<cpukind cpuset=\"0x00003\" forced_efficiency=\"2\"/>",
         6},
        // 4 big ones, 2 like them but slower, and 8 little ones.
        {"<cpukind cpuset=\"0xff000\" forced_efficiency=\"0\"/>"
         "<cpukind cpuset=\"0x00f00\" forced_efficiency=\"1\"/>"
         "<cpukind cpuset=\"0x000ff\" forced_efficiency=\"2\"/>",
         4},
        // A big one beside 13 little ones, as on Lakefield.
        {"<cpukind cpuset=\"0xffffc\" forced_efficiency=\"0\"/>"
         "<cpukind cpuset=\"0x00003\" forced_efficiency=\"1\"/>",
         14},
        // Nobody knows which ones are faster.
        {"<cpukind cpuset=\"0xff000\"/><cpukind cpuset=\"0x00fff\"/>", 14},
        {"", 14},
    };
    struct place p;
    struct machine m;
    struct err e = {0};
    double link;
    place_open(&p);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        put_kinds(p.xml, cases[i].kinds);
        memset(&m, 0, sizeof m);
        if (machine_probe(&m, p.xml, NULL, &link, &e) == ERR_UNSUPPORTED) break;
        assert_int_equal(m.n_cores, 14);
        assert_int_equal(m.n_performance_cores, cases[i].n_fast);
        assert_int_equal(m.n_efficiency_cores, 14 - cases[i].n_fast);
    }
    place_close(&p);
}

static void test_load_without_memory(void **state) {
    (void)state;
    const char *path = "configs/machines/cpu-only.json";
    struct machine m;
    struct err e = {0};
    alloc_fail_at(0);
    assert_int_equal(machine_load(&m, path, &e), OK);
    int64_t n = alloc_fail_count();
    assert_true(n >= 2);
    for (int64_t i = 1; i <= n; i++) {
        alloc_fail_at(i);
        assert_int_equal(machine_load(&m, path, &e), ERR_MEMORY);
        assert_true(alloc_fail_happened());
    }
    alloc_fail_at(0);
}

// ---- Checks of structs --------------------------------------------------------------------------

static void assert_refused(const struct machine *m, const char *what) {
    struct err e = {0};
    assert_int_equal(machine_check(m, &e), ERR_FORMAT);
    if (!strstr(e.what, what)) fail_msg("what is \"%s\", not %s", e.what, what);
    FILE *out = fopen("/dev/null", "w");
    assert_int_equal(machine_save(m, out, &e), ERR_FORMAT);
    fclose(out);
}

static void test_structs_that_no_file_could_give(void **state) {
    (void)state;
    const struct machine good = parse(SMALL);
    struct machine m = good;
    m.dram_gbps = NAN;
    assert_refused(&m, "memory.dram_gbps");
    m = good;
    m.devices[1].rates.weight_gbps[WEIGHT_Q6_K][5] = INFINITY;
    assert_refused(&m, "devices[1].rates.weight_gbps.Q6_K[5]");
    m = good;
    m.devices[1].rates.attention_gflops[KV_Q8_0][0] = -1;
    assert_refused(&m, "devices[1].rates.attention_gflops.Q8_0[0]");
    m = good;
    m.devices[0].rates.cache_factor = NAN;
    assert_refused(&m, "devices[0].rates.cache_factor");
    m = good;
    memset(m.devices[1].driver, 'x', sizeof m.devices[1].driver);
    assert_refused(&m, "devices[1].driver");
    m = good;
    m.n_devices = 0;
    assert_refused(&m, "devices");
    m = good;
    m.n_devices = MAX_DEVICES + 1;
    assert_refused(&m, "devices");
    m = good;
    m.n_team_sizes = MAX_TEAM_SIZES + 1;
    assert_refused(&m, "team_gbps");
    m = good;
    m.rates = (enum rates_source)9;
    assert_refused(&m, "rates");
    m = good;
    m.devices[0].capacity_bytes = UINT64_MAX;
    assert_refused(&m, "devices[0].capacity_bytes");
    m = good;
    m.n_threads = -1;
    assert_refused(&m, "cpu.threads");
    // A CPU needs no link, an accelerator without rates none either.
    m = good;
    m.rates = RATES_NONE;
    memset(&m.devices[1].link, 0, sizeof m.devices[1].link);
    struct err e = {0};
    assert_int_equal(machine_check(&m, &e), OK);
}

static void test_text_that_is_no_utf8_is_not_saved(void **state) {
    (void)state;
    struct machine m = parse(SMALL);
    m.devices[0].name[0] = (char)0xff;
    struct err e = {0};
    FILE *out = fopen("/dev/null", "w");
    assert_int_equal(machine_save(&m, out, &e), ERR_FORMAT);
    assert_non_null(strstr(e.what, "UTF-8"));
    fclose(out);
    out = fopen("/dev/full", "w");
    m = parse(SMALL);
    assert_int_equal(machine_save(&m, out, &e), ERR_FILE);
    fclose(out);
}

// ---- Questions ----------------------------------------------------------------------------------

static void test_decode_team(void **state) {
    (void)state;
    struct machine m = parse(SMALL);
    assert_int_equal(machine_decode_team(&m), 2); // 19.5 of 20
    m.team_gbps[1] = 19.3;
    assert_int_equal(machine_decode_team(&m), 4);
    m.n_team_sizes = 0;
    assert_int_equal(machine_decode_team(&m), 0);
}

static void strip_rates(struct machine *m) {
    for (int d = 0; d < m->n_devices; d++) {
        memset(&m->devices[d].rates, 0, sizeof m->devices[d].rates);
        memset(&m->devices[d].link, 0, sizeof m->devices[d].link);
    }
    m->rates = RATES_NONE;
    m->n_team_sizes = 0;
    m->dram_gbps = 0;
    memset(m->rates_name, 0, sizeof m->rates_name);
}

static void test_a_known_machine_takes_its_own_rates(void **state) {
    (void)state;
    for (int32_t i = 0; i < machine_builtin_count(); i++) {
        struct machine m, known;
        struct err e = {0};
        assert_int_equal(machine_builtin(&known, i, &e), OK);
        m = known;
        strip_rates(&m);
        assert_int_equal(machine_take_nearest_rates(&m, &e), OK);
        assert_int_equal(m.rates, RATES_NEAREST);
        assert_string_equal(m.rates_name, known.name);
        assert_int_equal(machine_check(&m, &e), OK);
        m.rates = known.rates;
        assert_memory_equal(&m, &known, sizeof m);
    }
}

static struct machine nearest(const struct machine *like, const char *kind, const char *capability,
                              uint64_t capacity_bytes) {
    struct machine m = *like;
    strip_rates(&m);
    struct machine_device *d = &m.devices[1];
    memset(d->name, 0, sizeof d->name);
    memset(d->kind, 0, sizeof d->kind);
    memset(d->capability, 0, sizeof d->capability);
    snprintf(d->name, sizeof d->name, "another");
    snprintf(d->kind, sizeof d->kind, "%s", kind);
    snprintf(d->capability, sizeof d->capability, "%s", capability);
    d->capacity_bytes = d->budget_bytes = capacity_bytes;
    struct err e = {0};
    assert_int_equal(machine_take_nearest_rates(&m, &e), OK);
    if (machine_check(&m, &e) != OK) fail_msg("%s", e.what);
    return m;
}

static void test_nearest_accelerators(void **state) {
    (void)state;
    const struct machine small = parse(SMALL);
    struct machine m = nearest(&small, "cuda", "6.1", UINT64_C(8) << 30);
    assert_int_equal(strncmp(m.rates_name, "gtx-1060-6g-ddr4", 16), 0);
    m = nearest(&small, "cuda", "8.9", UINT64_C(16) << 30);
    assert_string_equal(m.rates_name, "rtx-4060-8g, the CPU's of gtx-1650-4g");
    m = nearest(&small, "cuda", "12.0", UINT64_C(8) << 30);
    assert_int_equal(strncmp(m.rates_name, "rtx-4060-8g", 11), 0);
    m = nearest(&small, "metal", "", UINT64_C(8) << 30);
    assert_int_equal(strncmp(m.rates_name, "mac-m1-8g", 9), 0);
    // A kind that no file has takes the rates of something.
    m = nearest(&small, "sim", "", UINT64_C(96) << 20);
    assert_true(m.devices[1].rates.weight_gbps[WEIGHT_Q4_1][0] > 0);
    assert_true(m.devices[1].link.to_gbps > 0);
}

static void test_nearest_without_accelerator(void **state) {
    (void)state;
    struct machine m = parse(SMALL);
    strip_rates(&m);
    m.n_devices = 1;
    m.n_cores = 2;
    struct err e = {0};
    assert_int_equal(machine_take_nearest_rates(&m, &e), OK);
    assert_int_equal(machine_check(&m, &e), OK);
    assert_int_equal(machine_decode_team(&m), 2); // no team is larger than the machine
    assert_null(strstr(m.rates_name, "mac"));
}

// Twice the channels read twice as fast, half the cores compute half as fast, and a wider bus reads
// faster.
static void test_nearest_is_scaled(void **state) {
    (void)state;
    struct machine m, known;
    struct err e = {0};
    for (int32_t i = 0; i < machine_builtin_count(); i++)
        if (strcmp(machine_builtin_name(i), "rtx-3060-12g") == 0)
            assert_int_equal(machine_builtin(&known, i, &e), OK);
    m = known;
    strip_rates(&m);
    m.n_memory_channels *= 2;
    m.devices[1].bus_gbps *= 1.5;
    m.n_cores /= 2;
    m.n_performance_cores /= 2;
    assert_int_equal(machine_take_nearest_rates(&m, &e), OK);
    assert_int_equal(machine_check(&m, &e), OK);
    assert_string_equal(m.rates_name, "rtx-3060-12g");
    const struct rate_factors f = machine_team_factors(&known, known.n_cores, m.n_cores);
    const struct device_rates *cpu = &m.devices[0].rates, *before = &known.devices[0].rates;
    assert_true(fabs(cpu->memory_gbps - 2 * f.memory * before->memory_gbps) < 1e-6);
    assert_true(fabs(cpu->weight_gbps[WEIGHT_Q4_K][5] - before->weight_gbps[WEIGHT_Q4_K][5] / 2) <
                1e-6);
    assert_true(fabs(cpu->weight_gbps[WEIGHT_Q4_K][0] -
                     2 * f.memory * before->weight_gbps[WEIGHT_Q4_K][0]) < 1e-6);
    assert_true(fabs(m.dram_gbps - 2 * known.dram_gbps) < 1e-6);
    assert_true(fabs(m.team_gbps[0] - 2 * known.team_gbps[0]) < 1e-6);
    const struct device_rates *gpu = &m.devices[1].rates, *slower = &known.devices[1].rates;
    assert_true(fabs(gpu->weight_gbps[WEIGHT_Q4_K][0] - 1.5 * slower->weight_gbps[WEIGHT_Q4_K][0]) <
                1e-6);
    assert_true(gpu->weight_gbps[WEIGHT_Q4_K][5] == slower->weight_gbps[WEIGHT_Q4_K][5]);
}

static int32_t devices_of(const char *name) {
    struct machine m;
    struct err e = {0};
    for (int32_t i = 0; i < machine_builtin_count(); i++) {
        if (strcmp(machine_builtin_name(i), name) != 0) continue;
        assert_int_equal(machine_builtin(&m, i, &e), OK);
        return m.n_devices;
    }
    fail_msg("no machine has the name %s", name);
    return 0;
}

// Whichever machine loses its accelerator, its rates come from a machine that has none.
static void test_nearest_without_accelerator_has_none(void **state) {
    (void)state;
    for (int32_t i = 0; i < machine_builtin_count(); i++) {
        struct machine m;
        struct err e = {0};
        assert_int_equal(machine_builtin(&m, i, &e), OK);
        strip_rates(&m);
        m.n_devices = 1;
        assert_int_equal(machine_take_nearest_rates(&m, &e), OK);
        if (devices_of(m.rates_name) != 1)
            fail_msg("%s takes the rates of %s", machine_builtin_name(i), m.rates_name);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_probe_of_this_machine),
        cmocka_unit_test(test_probe_refuses_what_is_no_topology),
        cmocka_unit_test(test_every_builtin_is_in_order),
        cmocka_unit_test(test_builtin_rates_are_possible),
        cmocka_unit_test(test_topologies_agree_with_their_machines),
        cmocka_unit_test(test_short_forms),
        cmocka_unit_test(test_a_cache_type_without_a_rate),
        cmocka_unit_test(test_every_number_survives_a_file),
        cmocka_unit_test(test_broken_files_say_which_field),
        cmocka_unit_test(test_cut_files),
        cmocka_unit_test(test_files_name_themselves_in_errors),
        cmocka_unit_test(test_topology_beside_a_file),
        cmocka_unit_test(test_kinds_of_cores),
        cmocka_unit_test(test_load_without_memory),
        cmocka_unit_test(test_structs_that_no_file_could_give),
        cmocka_unit_test(test_text_that_is_no_utf8_is_not_saved),
        cmocka_unit_test(test_decode_team),
        cmocka_unit_test(test_a_known_machine_takes_its_own_rates),
        cmocka_unit_test(test_nearest_accelerators),
        cmocka_unit_test(test_nearest_is_scaled),
        cmocka_unit_test(test_nearest_without_accelerator),
        cmocka_unit_test(test_nearest_without_accelerator_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
