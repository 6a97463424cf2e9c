/* test_hub.c: names of models and files on the hub, the choice among files, and headers that are
 * cut. Transfers are tested by tests/cli/cli_pull.sh. */
#include "runtime/gguf/gguf.h"
#include "runtime/hub/hub_files.h"
#include "tests/lib/tiny_model.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const char COMMIT[] = "0123456789abcdef0123456789abcdef01234567";

static void test_names(void **state) {
    (void)state;
    static const char *const good[][3] = {
        {"org/repo", "org/repo", ""},
        {"a-b.c/d_e-F16:Q4_K_M", "a-b.c/d_e-F16", "Q4_K_M"},
        {"a/b:UD-Q4_K_XL", "a/b", "UD-Q4_K_XL"},
    };
    static const char *const bad[] = {
        "",     "a",      "a/",   "/a",    "a//b",    "a/b/c",   "../a",       "a/..", "a/-b",
        "a/b-", "a--b/c", "a/b:", "a b/c", "a/b:x/y", "a/b:x y", "\xc3\xa9/b", "a/b\n"};
    struct hub_name name;
    struct err e;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(hub_name_parse(&name, good[i][0], &e), OK);
        assert_string_equal(name.repo, good[i][1]);
        assert_string_equal(name.tag, good[i][2]);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (hub_name_is(bad[i])) fail_msg("'%s' is taken for a name", bad[i]);
    char longest[2 * HUB_REPO_CHARS];
    memset(longest, 'a', sizeof longest);
    longest[3] = '/';
    longest[HUB_REPO_CHARS] = 0;
    assert_false(hub_name_is(longest));
    longest[HUB_REPO_CHARS - 1] = 0;
    assert_true(hub_name_is(longest));
}

static void test_addresses(void **state) {
    (void)state;
    static const char *const good[][3] = {
        {"https://huggingface.co/a/b/resolve/main/c.gguf", "a/b", "c.gguf"},
        {"https://huggingface.co/a/b/blob/main/d/c%2Dx.gguf?download=true", "a/b", "d/c-x.gguf"},
        {"https://hf.co/a/b", "a/b", ""},
        {"http://www.huggingface.co/a/b/tree/main", "a/b", ""},
    };
    static const char *const bad[] = {"https://",
                                      "https://huggingface.co",
                                      "https://huggingface.co/",
                                      "https://hf.co//",
                                      "https://huggingface.co/a",
                                      "https://huggingface.co/a/b/c",
                                      "https://huggingface.co/../b",
                                      "https://huggingface.co/a/b/resolve/v2/c.gguf",
                                      "https://huggingface.co/a/b/resolve/main/",
                                      "https://huggingface.co/a/b/resolve/main/../c.gguf",
                                      "https://huggingface.co/a/b/resolve/main/%2e%2e/c.gguf",
                                      "https://huggingface.co/a/b/resolve/main/c%00.gguf",
                                      "https://huggingface.co.example.org/a/b",
                                      "ftp://huggingface.co/a/b"};
    struct hub_name name;
    struct err e;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        if (hub_name_parse(&name, good[i][0], &e)) fail_msg("%s: %s", good[i][0], e.what);
        assert_string_equal(name.repo, good[i][1]);
        assert_string_equal(name.file, good[i][2]);
        assert_false(hub_name_is(good[i][0]));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (hub_name_parse(&name, bad[i], &e) == OK)
            fail_msg("'%s' is taken for an address", bad[i]);
}

static void test_paths(void **state) {
    (void)state;
    static const char *const good[] = {"a.gguf", "a/b.gguf", "a/b c/d..e", "x%2e%2e/y"};
    static const char *const bad[] = {"",   "/a",   "a/",   "a//b", "..",   "../a", "a/../b",
                                      ".a", "a/.b", "a\\b", "a\nb", "\x7f", "\xff", "a/."};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!hub_path_is_safe(good[i])) fail_msg("'%s' is refused", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (hub_path_is_safe(bad[i])) fail_msg("'%s' is taken", bad[i]);
}

static void test_parts(void **state) {
    (void)state;
    static const struct {
        const char *path, *tag;
        uint32_t number, count;
    } rows[] = {
        {"gemma-3-4b-it-Q4_K_M.gguf", "Q4_K_M", 1, 1},
        {"sub/model.q8_0.gguf", "Q8_0", 1, 1},
        {"m-Q6_K-00002-of-00003.gguf", "Q6_K", 2, 3},
        {"m-Q6_K-00004-of-00003.gguf", "00003", 1, 1},
        {"m-00000-of-00003.gguf", "00003", 1, 1},
        {"model.gguf", "", 1, 1},
        {"-00001-of-00001.gguf", "00001", 1, 1},
    };
    struct hub_part part;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_true(hub_part_of(&part, rows[i].path));
        assert_string_equal(part.tag, rows[i].tag);
        assert_int_equal(part.number, rows[i].number);
        assert_int_equal(part.count, rows[i].count);
    }
    assert_false(hub_part_of(&part, "model.safetensors"));
    assert_false(hub_part_of(&part, ".gguf"));
}

// Chooses by tag and file, and gives the first path, or the status as a text.
static const char *choose(const struct hub_files *all, const char *tag, const char *file,
                          int32_t n) {
    static char path[HUB_PATH_CHARS];
    struct hub_files chosen = {0};
    struct err e;
    const enum status status = hub_files_choose(&chosen, all, "a/b", tag, file, &e);
    snprintf(path, sizeof path, "%s", status ? status_name(status) : chosen.list[0].path);
    if (status == OK) assert_int_equal(chosen.n, n);
    hub_files_close(&chosen);
    return path;
}

static void add(struct hub_files *files, const char *path) {
    struct hub_file file = {.size_bytes = 1};
    struct err e;
    snprintf(file.path, sizeof file.path, "%s", path);
    snprintf(file.commit, sizeof file.commit, "%s", COMMIT);
    assert_int_equal(hub_files_add(files, &file, &e), OK);
}

static void test_choice(void **state) {
    (void)state;
    struct hub_files all = {0};
    add(&all, "mmproj-Q4_K_M.gguf");
    add(&all, "m-BF16.gguf");
    assert_string_equal(choose(&all, "", NULL, 1), "m-BF16.gguf");
    assert_string_equal(choose(&all, "F16", NULL, 1), "m-BF16.gguf"); // as llama.cpp finds it
    add(&all, "m-Q8_0-00002-of-00002.gguf");
    add(&all, "m-Q8_0-00001-of-00002.gguf");
    assert_string_equal(choose(&all, "", NULL, 2), "m-Q8_0-00001-of-00002.gguf");
    add(&all, "UD/m-UD-q4_k_m.gguf");
    add(&all, "m-F16.gguf");
    assert_string_equal(choose(&all, "", NULL, 1), "UD/m-UD-q4_k_m.gguf");
    assert_string_equal(choose(&all, "f16", NULL, 1), "m-F16.gguf");
    assert_string_equal(choose(&all, "Q4_K", NULL, 1), "file");
    assert_string_equal(choose(&all, "", "m-BF16.gguf", 1), "m-BF16.gguf");
    assert_string_equal(choose(&all, "", "m-Q8_0-00002-of-00002.gguf", 1), "usage");
    assert_string_equal(choose(&all, "", "none.gguf", 1), "file");
    hub_files_close(&all);
}

static enum status parse(const char *text, struct hub_files *files, struct err *e) {
    *e = (struct err){0};
    return hub_files_parse(files, COMMIT, text, strlen(text), e);
}

static void test_answers(void **state) {
    (void)state;
    static const char *const bad[] = {"<html>", "{}", "[1]"};
    struct hub_files files = {0};
    struct err e;
    char commit[HUB_COMMIT_CHARS + 1];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (parse(bad[i], &files, &e) != ERR_FORMAT || files.n) fail_msg("%s is taken", bad[i]);
    assert_int_equal(parse("[{\"type\":\"file\",\"path\":\"../a.txt\"},{\"type\":\"directory\","
                           "\"path\":\"x.gguf\"}]",
                           &files, &e),
                     OK);
    assert_int_equal(files.n, 0);
    hub_files_close(&files);
    assert_int_equal(hub_parse_commit(commit, "{\"sha\":\"main\"}", 14, &e), ERR_FORMAT);
}

// A file that cannot be trusted is left out, and the others stay.
static void test_left_out(void **state) {
    (void)state;
    static const char *const bad[][2] = {
        {"\"path\":\"../a.gguf\",\"size\":1", "a name that is not safe: ../a.gguf"},
        {"\"path\":\"\\u00e9-Q8_0.gguf\",\"size\":1", "a name that is not safe"},
        {"\"path\":\"a.gguf\",\"size\":-1", "no size of a.gguf"},
        {"\"path\":\"a.gguf\"", "no size of a.gguf"},
        {"\"path\":\"a.gguf\",\"size\":1e30", "no size of a.gguf"},
        {"\"path\":\"a.gguf\",\"lfs\":{\"oid\":\"x\",\"size\":1}", "no sha256 of a.gguf"},
        {"\"path\":\"a.gguf\",\"size\":1,\"lfs\":{\"oid\":\"0\"}", "no size of a.gguf"},
        {"\"path\":\"m-F16-00002-of-00002.gguf\",\"size\":0", "no size of m-F16-00002-of"}};
    struct err e = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct hub_files all = {0}, chosen = {0};
        char text[512];
        snprintf(text, sizeof text, "[{\"type\":\"file\",%s}]", bad[i][0]);
        assert_int_equal(parse(text, &all, &e), OK);
        assert_int_equal(all.n, 0);
        assert_int_equal(hub_files_choose(&chosen, &all, "a/b", "", NULL, &e), ERR_FORMAT);
        if (!strstr(e.what, bad[i][1])) fail_msg("%s: %s", bad[i][0], e.what);
        add(&all, "m-Q4_K_M.gguf");
        add(&all, "m-F16-00001-of-00002.gguf");
        assert_string_equal(choose(&all, "", NULL, 1), "m-Q4_K_M.gguf");
        for (int tag = 0; tag < 2; tag++) {
            assert_int_equal(hub_files_choose(&chosen, &all, "a/b", tag ? "F16" : "Q8_0", NULL, &e),
                             ERR_FILE);
            if (!strstr(e.what, bad[i][1])) fail_msg("%s: %s", bad[i][0], e.what);
        }
        hub_files_close(&chosen);
        hub_files_close(&all);
    }
}

// A header whose rest is zeros is never taken for a whole one: hub_heads_fetch relies on it.
static void test_cut_headers(void **state) {
    (void)state;
    static uint8_t bytes[1 << 20];
    const struct tiny_model m = {.n_layers = 1, .seed = 1};
    struct gguf g;
    struct err e;
    struct stat whole;
    char path[] = "/tmp/test_hub_XXXXXX";
    const int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    tiny_model_write(&m, path);
    assert_int_equal(gguf_open(&g, path, &e), OK);
    const size_t header = (size_t)(g.tensors[0].data - g.parts[0].map);
    gguf_close(&g);
    const int file = open(path, O_RDWR | O_CLOEXEC);
    assert_int_equal(fstat(file, &whole), 0);
    assert_true(pread(file, bytes, sizeof bytes, 0) > (ssize_t)header);
    // The counts of keys and tensors come first. The last bytes may be zeros themselves: the offset
    // of the last tensor, and filling.
    enum { COUNTS_BYTES = 24 };
    assert_int_equal(pwrite(file, bytes, COUNTS_BYTES, 0), COUNTS_BYTES);
    for (size_t cut = COUNTS_BYTES; cut + 64 < header; cut++) {
        assert_int_equal(ftruncate(file, (off_t)cut), 0);
        assert_int_equal(ftruncate(file, whole.st_size), 0);
        if (gguf_open(&g, path, &e) == OK) fail_msg("a header cut after %zu bytes", cut);
        assert_int_equal(pwrite(file, bytes, cut + 1, 0), (ssize_t)cut + 1);
    }
    close(file);
    close(descriptor);
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),    cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_paths),    cmocka_unit_test(test_parts),
        cmocka_unit_test(test_choice),   cmocka_unit_test(test_answers),
        cmocka_unit_test(test_left_out), cmocka_unit_test(test_cut_headers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
