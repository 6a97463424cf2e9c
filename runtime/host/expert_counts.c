/* expert_counts.c: see expert_counts.h. A file has a line for each number of tokens: the tokens,
 * the layers and micro-batches that had so many, and their different experts together. */
#include "runtime/host/expert_counts.h"

#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/new_file.h"
#include "kernels/op_cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PATH_CHARS = 1024, FILE_LIMIT_BYTES = 1 << 16, LINE_CHARS = 64, LEAST = 64 };

#define COUNT_MAX (UINT64_C(1) << 40) // of one line of a file; sums stay far below 2^63

void expert_counts_init(struct expert_counts *c, const struct shape *shape) {
    *c = (struct expert_counts){.n_experts = shape->n_experts, .n_used = shape->n_experts_used};
}

void expert_counts_add(struct expert_counts *c, int32_t n_tokens, const int32_t *starts) {
    uint64_t chosen = 0;
    if (n_tokens < 2 || n_tokens > EXPERT_COUNT_TOKENS) return; // one chooses n_used
    for (int32_t k = 0; k < c->n_experts; k++) chosen += starts[k + 1] > starts[k];
    c->n_added++;
    c->n[n_tokens]++;
    c->chosen[n_tokens] += chosen;
}

// By how many experts the exponent expects more than were counted.
static double excess(const struct expert_counts *c, double exponent) {
    double sum = 0;
    for (int32_t n = 2; n <= EXPERT_COUNT_TOKENS; n++)
        if (c->n[n])
            sum += (double)c->n[n] *
                       op_cost_distinct_experts(pow(n, exponent), c->n_experts, c->n_used) -
                   (double)c->chosen[n];
    return sum;
}

double expert_counts_exponent(const struct expert_counts *c) {
    double low = 0.1, high = 1;
    uint64_t n = 0;
    for (int32_t i = 0; i <= EXPERT_COUNT_TOKENS; i++) n += c->n[i];
    if (n < LEAST || c->n_experts <= c->n_used) return 0;
    while (high - low > 1e-3) {
        const double middle = (low + high) / 2;
        *(excess(c, middle) > 0 ? &high : &low) = middle;
    }
    return high;
}

// ---- Files --------------------------------------------------------------------------------------

// The path of the model's file: models with one name and as many bytes of weights share it.
static bool path_of(char out[PATH_CHARS], const char *folder, const struct shape *shape) {
    char key[160];
    (void)snprintf(key, sizeof key, "%s, %d of %d experts, %llu bytes", shape->name,
                   shape->n_experts_used, shape->n_experts,
                   (unsigned long long)shape_weight_bytes(shape));
    const int length = snprintf(out, PATH_CHARS, "%s/experts-%016llx.txt", folder,
                                (unsigned long long)hash_more(HASH_OF_NOTHING, key, strlen(key)));
    return length > 0 && length < PATH_CHARS;
}

// Adds the lines of the text. False at the first that is wrong.
static bool parse(struct expert_counts *c, const char *text) {
    while (*text) {
        unsigned long long n_tokens, n, chosen;
        int length = 0;
        if (sscanf(text, "%6llu %20llu %20llu\n%n", &n_tokens, &n, &chosen, &length) != 3 ||
            !length || n_tokens < 2 || n_tokens > EXPERT_COUNT_TOKENS || n > COUNT_MAX ||
            chosen > n * (unsigned long long)c->n_experts)
            return false;
        c->n[n_tokens] += n;
        c->chosen[n_tokens] += chosen;
        text += length;
    }
    return true;
}

void expert_counts_load(struct expert_counts *c, const char *folder, const struct shape *shape) {
    char path[PATH_CHARS], *text = NULL;
    size_t length = 0;
    struct err ignored;
    struct expert_counts *read = mem_alloc(1, sizeof *read);
    if (read && c->n_experts && path_of(path, folder, shape) &&
        file_read_text(&text, &length, path, FILE_LIMIT_BYTES, &ignored) == OK) {
        *read = *c;
        if (strlen(text) == length && parse(read, text)) *c = *read;
    }
    mem_free(text);
    mem_free(read);
}

static enum status write_lines(struct new_file *f, const struct expert_counts *c, struct err *e) {
    char line[LINE_CHARS];
    for (int32_t i = 2; i <= EXPERT_COUNT_TOKENS; i++) {
        if (!c->n[i]) continue;
        const int length = snprintf(line, sizeof line, "%d %llu %llu\n", i,
                                    (unsigned long long)c->n[i], (unsigned long long)c->chosen[i]);
        if (new_file_write(f, line, (size_t)length, e)) return e->status;
    }
    return OK;
}

enum status expert_counts_store(const struct expert_counts *c, const char *folder,
                                const struct shape *shape, struct err *e) {
    char path[PATH_CHARS];
    struct new_file f = {0};
    if (!path_of(path, folder, shape))
        return err_set(e, ERR_FILE, "the name of the folder for counts of experts is too long");
    if (file_make_folders(folder, e) || new_file_open_over(&f, path, e)) return e->status;
    enum status status = write_lines(&f, c, e);
    if (!status) status = new_file_commit(&f, e);
    new_file_close(&f);
    return status;
}
