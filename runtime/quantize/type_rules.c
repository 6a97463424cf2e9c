/* type_rules.c: see type_rules.h. */
#include "runtime/quantize/type_rules.h"

#include "base/mem.h"
#include "kernels/cpu/quantize.h"
#include "base/regex/regex.h"

#include <string.h>
#include <strings.h>

enum { FILE_BYTES_MOST = 1 << 20, MATCH_LIMIT = 1000000 };

struct type_pattern {
    char *text;          // owned: without its type
    struct regex *regex; // owned
    enum dtype type;
    bool is_used;
};

struct type_patterns {
    struct regex_search search;
    struct type_pattern *list; // owned
    uint32_t n, capacity;
};

// ---- Types --------------------------------------------------------------------------------------

static enum status refuse_type(const char *option, const char *name, struct err *e) {
    char known[sizeof e->expected] = "";
    for (uint32_t i = 0; i < DTYPE_COUNT; i++)
        if (dtype_find(i) && quantize_knows((enum dtype)i))
            err_list_add(known, sizeof known, dtype_name((enum dtype)i));
    err_set(e, ERR_USAGE, "%s names a type that cannot be made", option);
    err_expected(e, "%s", known);
    return err_actual(e, "'%.40s'", name);
}

// Finds the type of a name; without a name *out stays as it is.
static enum status read_type(enum dtype *out, const char *option, const char *name, struct err *e) {
    if (!name) return OK;
    for (uint32_t i = 0; i < DTYPE_COUNT; i++) {
        if (!dtype_find(i) || !quantize_knows((enum dtype)i)) continue;
        *out = (enum dtype)i;
        if (strcasecmp(dtype_name(*out), name) == 0) return OK;
    }
    return refuse_type(option, name, e);
}

// ---- Patterns -----------------------------------------------------------------------------------

static const char OPTION[] = "--tensor-type", PURPOSE[] = "patterns of tensors";

static enum status open_patterns(struct type_patterns **out, struct err *e) {
    struct type_patterns *p = *out = mem_alloc(1, sizeof *p);
    if (!p) return err_memory(e, sizeof *p, PURPOSE);
    return regex_search_open(&p->search, MATCH_LIMIT, e);
}

static void close_patterns(struct type_patterns *p) {
    if (!p) return;
    for (uint32_t i = 0; i < p->n; i++) {
        regex_close(p->list[i].regex);
        mem_free(p->list[i].text);
    }
    mem_free(p->list);
    regex_search_close(&p->search);
    mem_free(p);
}

static enum status compile(struct type_pattern *out, struct err *e) {
    const enum status status = regex_open(&out->regex, out->text, REGEX_ANY_CASE, e);
    if (status != ERR_USAGE) return status;
    err_context(e, "%s pattern '%.80s'", OPTION, out->text);
    return err_fix(e, "write a regular expression, such as blk\\.[0-9]\\.ffn_down=q8_0");
}

static enum status make_room(struct type_patterns *p, struct err *e) {
    if (p->n < p->capacity) return OK;
    const uint32_t capacity = p->capacity ? 2 * p->capacity : 16;
    struct type_pattern *bigger = mem_resize(p->list, capacity, sizeof *bigger);
    if (!bigger) return err_memory(e, capacity * sizeof *bigger, PURPOSE);
    p->list = bigger;
    p->capacity = capacity;
    return OK;
}

// Adds one "PATTERN=TYPE"; a pattern may hold "=", a type does not.
static enum status add_pattern(struct type_patterns *p, const char *text, struct err *e) {
    const char *equals = strrchr(text, '=');
    if (!equals || equals == text || !equals[1]) {
        err_set(e, ERR_USAGE, "%s cannot be read", OPTION);
        err_expected(e, "PATTERN=TYPE, such as attn_v=q8_0");
        return err_actual(e, "'%.80s'", text);
    }
    enum dtype type = DTYPE_COUNT;
    if (read_type(&type, OPTION, equals + 1, e) || make_room(p, e)) return e->status;
    struct type_pattern *new = &p->list[p->n++];
    *new = (struct type_pattern){.text = mem_text(text, (size_t)(equals - text)), .type = type};
    return new->text ? compile(new, e) : err_memory(e, strlen(text), PURPOSE);
}

static enum status add_file(struct type_patterns *p, const char *path, struct err *e) {
    char *text = NULL, *rest = NULL;
    size_t size;
    enum status status = file_read_text(&text, &size, path, FILE_BYTES_MOST, e);
    if (status) return status;
    for (char *word = strtok_r(text, " \t\r\n\v\f", &rest); word && !status;
         word = strtok_r(NULL, " \t\r\n\v\f", &rest))
        status = add_pattern(p, word, e);
    mem_free(text);
    return status ? err_context(e, "%s", path) : OK;
}

static enum status read_patterns(struct type_rules *r, const struct type_wishes *w, struct err *e) {
    if (w->n_named == 0 && !w->named_file) return OK;
    if (open_patterns(&r->patterns, e)) return e->status;
    for (int32_t i = 0; i < w->n_named; i++)
        if (add_pattern(r->patterns, w->named[i], e)) return e->status;
    return w->named_file ? add_file(r->patterns, w->named_file, e) : OK;
}

// ---- All rules ----------------------------------------------------------------------------------

enum status type_rules_open(struct type_rules *r, const struct type_wishes *wishes, struct err *e) {
    *r = (struct type_rules){.output = DTYPE_COUNT,
                             .embedding = DTYPE_COUNT,
                             .pure = wishes->pure,
                             .leave_output = wishes->leave_output};
    if (!read_type(&r->output, "--output-tensor-type", wishes->output, e) &&
        !read_type(&r->embedding, "--token-embedding-type", wishes->embedding, e) &&
        !read_patterns(r, wishes, e))
        return OK;
    type_rules_close(r);
    return e->status;
}

void type_rules_close(struct type_rules *r) {
    close_patterns(r->patterns);
    *r = (struct type_rules){0};
}

bool type_rules_change(const struct type_rules *r) {
    return r->output != DTYPE_COUNT || r->embedding != DTYPE_COUNT || r->pure || r->leave_output ||
           r->patterns;
}

enum status type_rules_find(struct type_rules *r, struct gguf_text name, bool *found,
                            enum dtype *out, struct err *e) {
    struct type_patterns *p = r->patterns;
    *found = false;
    for (uint32_t i = 0; p && i < p->n && !*found; i++) {
        struct type_pattern *pattern = &p->list[i];
        const enum status status =
            regex_find(&p->search, pattern->regex, name.bytes, name.length, 0, e);
        if (status == ERR_LIMIT) {
            err_set(e, ERR_USAGE, "%s pattern '%.80s' takes too long with %.*s", OPTION,
                    pattern->text, (int)(name.length < 64 ? name.length : 64), name.bytes);
            return err_fix(e, "repeat nothing that is repeated already");
        }
        if (status) return status;
        if (!p->search.found) continue;
        pattern->is_used = *found = true;
        *out = pattern->type;
    }
    return OK;
}

void type_rules_warn(const struct type_rules *r, const struct log *log) {
    const struct type_patterns *p = r->patterns;
    for (uint32_t i = 0; p && i < p->n; i++)
        if (!p->list[i].is_used)
            log_line(log, LOG_WARN,
                     "%s %s=%s: no matrix has such a name, or an earlier one decides", OPTION,
                     p->list[i].text, dtype_name(p->list[i].type));
}
