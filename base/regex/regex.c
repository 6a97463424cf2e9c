/* regex.c: see regex.h. */
#include "base/regex/regex.h"

#include "base/mem.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

struct regex {
    pcre2_code *code;
    uint32_t search_options;
};

static const char PURPOSE[] = "a regular expression";

static void *give(PCRE2_SIZE size_bytes, void *unused) {
    (void)unused;
    return mem_alloc(size_bytes, 1);
}

static void take(void *memory, void *unused) {
    (void)unused;
    mem_free(memory);
}

// The two functions as PCRE2 takes them. What is made with them keeps them, so that they may be
// freed at once.
static pcre2_general_context *open_memory(void) {
    return pcre2_general_context_create(give, take, NULL);
}

// ---- Patterns -----------------------------------------------------------------------------------

static enum status compile(struct regex *r, const char *pattern, unsigned options,
                           pcre2_compile_context *context, struct err *e) {
    const uint32_t utf = options & REGEX_UTF8 ? PCRE2_UTF : PCRE2_NEVER_UTF | PCRE2_NEVER_UCP;
    int code = 0;
    PCRE2_SIZE where = 0;
    PCRE2_UCHAR reason[120];
    r->code = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                            utf | (options & REGEX_ANY_CASE ? PCRE2_CASELESS : 0), &code, &where,
                            context);
    if (!r->code && code == PCRE2_ERROR_HEAP_FAILED) return err_memory(e, 0, PURPOSE);
    if (!r->code) {
        pcre2_get_error_message(code, reason, sizeof reason);
        return err_set(e, ERR_USAGE, "character %zu: %s", where + 1, (const char *)reason);
    }
    if (options & REGEX_UTF8) r->search_options = PCRE2_NO_UTF_CHECK;
    // Where PCRE2 has no JIT for the machine, its interpreter finds the same, slower.
    if (options & REGEX_FAST &&
        pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE) == PCRE2_ERROR_NOMEMORY)
        return err_memory(e, 0, PURPOSE);
    return OK;
}

enum status regex_open(struct regex **out, const char *pattern, unsigned options, struct err *e) {
    struct regex *r = *out = mem_alloc(1, sizeof *r);
    if (!r) return err_memory(e, sizeof *r, PURPOSE);
    pcre2_general_context *memory = open_memory();
    pcre2_compile_context *context = memory ? pcre2_compile_context_create(memory) : NULL;
    const enum status status =
        context ? compile(r, pattern, options, context, e) : err_memory(e, 0, PURPOSE);
    pcre2_compile_context_free(context);
    pcre2_general_context_free(memory);
    if (status) {
        regex_close(r);
        *out = NULL;
    }
    return status;
}

void regex_close(struct regex *r) {
    if (r) pcre2_code_free(r->code);
    mem_free(r);
}

// ---- Searches -----------------------------------------------------------------------------------

enum status regex_search_open(struct regex_search *s, uint32_t most_steps, struct err *e) {
    *s = (struct regex_search){0};
    pcre2_general_context *memory = open_memory();
    if (memory) s->match = pcre2_match_data_create(1, memory);
    if (s->match) s->limits = pcre2_match_context_create(memory);
    pcre2_general_context_free(memory);
    if (!s->limits) {
        regex_search_close(s);
        return err_memory(e, 0, PURPOSE);
    }
    pcre2_set_match_limit(s->limits, most_steps);
    return OK;
}

void regex_search_close(struct regex_search *s) {
    pcre2_match_data_free(s->match);
    pcre2_match_context_free(s->limits);
    *s = (struct regex_search){0};
}

enum status regex_find(struct regex_search *s, const struct regex *r, const char *text,
                       size_t length, size_t from, struct err *e) {
    const PCRE2_SPTR bytes = (PCRE2_SPTR)text;
    uint32_t options = r->search_options;
    int code = pcre2_match(r->code, bytes, length, from, options, s->match, s->limits);
    if (code == PCRE2_ERROR_JIT_STACKLIMIT) {
        options |= PCRE2_NO_JIT;
        code = pcre2_match(r->code, bytes, length, from, options, s->match, s->limits);
    }
    s->found = code >= 0;
    if (code == PCRE2_ERROR_NOMATCH) return OK;
    if (code == PCRE2_ERROR_NOMEMORY || code == PCRE2_ERROR_HEAPLIMIT)
        return err_memory(e, length, PURPOSE);
    if (code < 0) return err_set(e, ERR_LIMIT, "a regular expression gives up (PCRE2 %d)", code);
    const PCRE2_SIZE *range = pcre2_get_ovector_pointer(s->match);
    s->first = range[0];
    s->last = range[1];
    return OK;
}
