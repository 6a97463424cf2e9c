/* patterns.c: turns "-ot" texts, "regex=DEVICE,...", into devices of units. See patterns.h.
 *
 * Owns nothing that outlives a call. Patterns match tensor names, but units are placed: this file
 * knows the tensors that decide for a unit. Any thread. Tested by tests/planner/test_shape.c and
 * tests/fuzz/fuzz_patterns.c.
 */
#include "planner/search/patterns.h"

#include "base/mem.h"
#include "planner/machine/machine.h"
#include "base/regex/regex.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { PATTERN_LIMIT = 512, PATTERNS = 64, STEPS_MOST = 1000000, CPU = 0, ACCELERATOR = 1 };

struct pattern {
    struct regex *regex; // owned
    char *text;          // owned; as it was given
    int8_t device;
    bool matched;
};

struct patterns {
    struct regex_search search;
    int count;
    struct pattern list[PATTERNS];
};

static void patterns_close(struct patterns *p) {
    for (int i = 0; p && i < p->count; i++) {
        regex_close(p->list[i].regex);
        mem_free(p->list[i].text);
    }
    if (p) regex_search_close(&p->search);
    mem_free(p);
}

// ---- Reading ------------------------------------------------------------------------------------

// Reads "CPU", or a name of the accelerator with or without its number.
static enum status read_device(const char *name, size_t length, int8_t *out, struct err *e) {
    static const char *const names[] = {
#define DEVICE_NAME(name) name,
#include "planner/machine/device_names.def"
#undef DEVICE_NAME
    };
    if (length == 3 && strncasecmp(name, "CPU", 3) == 0) return *out = CPU, OK;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const size_t n = strlen(names[i]);
        if (length < n || strncasecmp(name, names[i], n) != 0) continue;
        if (length == n || (length == n + 1 && name[n] == '0')) return *out = ACCELERATOR, OK;
    }
    err_set(e, ERR_USAGE, "-ot names a device that is none");
    err_expected(e, "CPU or GPU");
    return err_actual(e, "%.*s", (int)(length < 60 ? length : 60), name);
}

static enum status compile(const char *text, size_t length, struct pattern *out, struct err *e) {
    if (length == 0 || length > PATTERN_LIMIT) {
        err_set(e, ERR_USAGE, "-ot has a pattern of %zu characters", length);
        return err_expected(e, "1 to %d", PATTERN_LIMIT);
    }
    out->text = mem_text(text, length);
    if (!out->text) return err_memory(e, length + 1, "an -ot pattern");
    const enum status status = regex_open(&out->regex, out->text, 0, e);
    return status == ERR_USAGE ? err_context(e, "-ot pattern '%.80s'", out->text) : status;
}

// Adds one "regex=DEVICE" of length characters.
static enum status add_pattern(struct patterns *p, const char *text, size_t length, struct err *e) {
    size_t equals = length;
    while (equals > 0 && text[equals - 1] != '=') equals--;
    if (equals == 0) {
        err_set(e, ERR_USAGE, "-ot %.*s", (int)(length < 100 ? length : 100), text);
        return err_expected(e, "PATTERN=DEVICE, as in ffn_.*_exps=CPU");
    }
    if (p->count == PATTERNS)
        return err_set(e, ERR_USAGE, "-ot has more than %d patterns", PATTERNS);
    struct pattern *out = &p->list[p->count];
    if (read_device(text + equals, length - equals, &out->device, e)) return e->status;
    p->count++;
    return compile(text, equals - 1, out, e);
}

// True if the comma is in a count of repetitions, such as {1,2}.
static bool is_in_count(const char *text, size_t comma) {
    static const char digits[] = "0123456789";
    size_t first = comma;
    while (first > 0 && memchr(digits, text[first - 1], sizeof digits - 1)) first--;
    const char *end = text + comma + 1;
    return first > 0 && text[first - 1] == '{' && end[strspn(end, digits)] == '}';
}

size_t patterns_length(const char *text, const char *separators) {
    size_t length = strcspn(text, separators);
    while (text[length] && (!memchr(text, '=', length) || is_in_count(text, length)))
        length += 1 + strcspn(text + length + 1, separators);
    return length;
}

static enum status read_patterns(struct patterns *p, const char *text, struct err *e) {
    for (;;) {
        const size_t length = patterns_length(text, ",");
        if (add_pattern(p, text, length, e)) return e->status;
        if (!text[length]) return OK;
        text += length + 1;
    }
}

// ---- Matching -----------------------------------------------------------------------------------

// True for the tensors that decide for their unit: its big matrices. The others follow them.
static bool decides(const struct unit_tensor *t) {
    return t->use != USE_VECTOR && t->n_rows > 1 && !tensor_role_is_f32(t->role);
}

// The name that patterns match. A tied head has no tensor of its own and gets its name in other
// models.
static const char *name_of(const struct unit *unit, const struct unit_tensor *t) {
    return unit->shares_embed && t == &unit->tensors[0] ? "output.weight" : t->name;
}

// Finds the first pattern that matches a name, or NULL.
static enum status find_pattern(struct patterns *p, const char *name, struct pattern **out,
                                struct err *e) {
    *out = NULL;
    for (int i = 0; i < p->count && !*out; i++) {
        struct pattern *pattern = &p->list[i];
        const enum status status = regex_find(&p->search, pattern->regex, name, strlen(name), 0, e);
        if (status == ERR_LIMIT) {
            err_set(e, ERR_USAGE, "-ot pattern '%.80s' takes too long with %.64s", pattern->text,
                    name);
            return err_fix(e, "repeat nothing that is repeated already");
        }
        if (status) return status;
        if (p->search.found) *out = pattern;
    }
    return OK;
}

// Appends " name" while there is room.
static void append(char *list, size_t size_bytes, const char *name) {
    const size_t length = strlen(list), n = strlen(name);
    if (length + n + 2 > size_bytes) return;
    if (length) list[length] = ' ';
    memcpy(list + length + (length > 0), name, n + 1);
}

// How many of a unit's deciding tensors the patterns match, by device.
struct matches {
    int n_deciding, n_at[MAX_DEVICES];
};

static enum status count_matches(struct patterns *p, const struct unit *unit, struct matches *out,
                                 struct err *e) {
    *out = (struct matches){0};
    for (int i = 0; i < unit->n_tensors; i++) {
        if (!decides(&unit->tensors[i])) continue;
        struct pattern *found;
        if (find_pattern(p, name_of(unit, &unit->tensors[i]), &found, e)) return e->status;
        out->n_deciding++;
        if (!found) continue;
        found->matched = true;
        out->n_at[found->device]++;
    }
    return OK;
}

// Writes what matches the layers whose units of a kind the patterns match, "\\d+" for all of them;
// of those that are too many to list, only the one.
static enum status write_layers(struct patterns *p, const struct shape *shape,
                                const struct unit *apart, char *out, size_t size_bytes,
                                struct err *e) {
    size_t length = 0;
    int n = 0, n_kind = 0;
    for (int u = 0; u < shape->n_units; u++) {
        const struct unit *unit = &shape->units[u];
        struct matches m;
        if (unit->kind != apart->kind) continue;
        if (count_matches(p, unit, &m, e)) return e->status;
        n_kind++;
        if (m.n_at[CPU] + m.n_at[ACCELERATOR] == 0) continue;
        if (length < size_bytes)
            length += (size_t)snprintf(out + length, size_bytes - length, "%s%d", n ? "|" : "(",
                                       unit->layer);
        n++;
    }
    if (n == n_kind && n > 1)
        snprintf(out, size_bytes, "\\d+");
    else if (n == 1 || length + 2 > size_bytes)
        snprintf(out, size_bytes, "%d", apart->layer);
    else
        snprintf(out + length, size_bytes - length, ")");
    return OK;
}

// Names a pattern for all of a separated unit, and of those like it that the patterns match.
static enum status advise_whole(struct patterns *p, const struct shape *shape,
                                const struct unit *unit, int8_t device, struct err *e) {
    static const char *const whole[UNIT_KINDS] = {
        [UNIT_EMBED] = "^(token_embd|per_layer)",
        [UNIT_ATTENTION] = "(attn|ssm|shortconv).*",
        [UNIT_FFN] = "(ffn_(gate|up|down)(?!.*_exps)|inp_gate|proj).*",
        [UNIT_EXPERTS] = "ffn_.*_exps",
        [UNIT_HEAD] = "^output\\.",
    };
    struct err ignored; // the refusal stays
    char layers[128];
    // The fix begins with a sign, since its first letter is printed as a capital.
    const char *all = whole[unit->kind], *where = device == CPU ? "CPU" : "GPU";
    if (unit->layer < 0) return err_fix(e, "-ot '%s=%s' matches all of it", all, where);
    if (write_layers(p, shape, unit, layers, sizeof layers, &ignored))
        snprintf(layers, sizeof layers, "%d", unit->layer);
    return err_fix(e, "-ot 'blk\\.%s\\.%s=%s' matches all of it", layers, all, where);
}

// Refuses a separated unit: names its tensors on each side, and a pattern for all of them.
static enum status taken_apart(struct patterns *p, const struct shape *shape,
                               const struct unit *unit, struct err *e) {
    char there[160] = "", elsewhere[160] = "";
    const struct pattern *first = NULL;
    for (int i = 0; i < unit->n_tensors; i++) {
        const struct unit_tensor *t = &unit->tensors[i];
        if (!decides(t)) continue;
        const char *name = name_of(unit, t);
        struct pattern *found;
        if (find_pattern(p, name, &found, e)) return e->status;
        if (!first) first = found;
        const bool same = found && found->device == first->device;
        append(same ? there : elsewhere, sizeof there, name);
    }
    ASSERT(first);
    err_set(e, ERR_USAGE, "-ot %s takes %s%s apart", first->text,
            unit->kind == UNIT_EMBED || unit->kind == UNIT_HEAD ? "the " : "",
            unit_kind_name(unit->kind));
    if (unit->layer >= 0) {
        err_set(e, ERR_USAGE, "-ot %s takes %s of layer %d apart", first->text,
                unit_kind_name(unit->kind), unit->layer);
    }
    err_expected(e, "with %s also %s", there, elsewhere);
    err_actual(e, "only %s", there);
    return advise_whole(p, shape, unit, first->device, e);
}

// The device that all deciding tensors of a unit go to, or DEVICE_ANY if no pattern matches one.
static enum status match_unit(struct patterns *p, const struct shape *shape,
                              const struct unit *unit, int8_t *device, struct err *e) {
    struct matches m;
    *device = DEVICE_ANY;
    if (count_matches(p, unit, &m, e)) return e->status;
    for (int8_t d = 0; d < MAX_DEVICES; d++)
        if (m.n_deciding > 0 && m.n_at[d] == m.n_deciding) *device = d;
    if (*device != DEVICE_ANY || m.n_at[CPU] + m.n_at[ACCELERATOR] == 0) return OK;
    return taken_apart(p, shape, unit, e);
}

static enum status check_matched(const struct patterns *p, struct err *e) {
    for (int i = 0; i < p->count; i++) {
        if (p->list[i].matched) continue;
        err_set(e, ERR_USAGE,
                "-ot: '%s' matches no matrix of this model, or only those of earlier patterns",
                p->list[i].text);
        return err_fix(e, "`tandem inspect -v` lists the names; vectors and routers go with their "
                          "matrices");
    }
    return OK;
}

static enum status match_all(struct constraints *c, const struct shape *shape, struct patterns *p,
                             struct err *e) {
    for (int u = 0; u < shape->n_units; u++) {
        int8_t device;
        if (match_unit(p, shape, &shape->units[u], &device, e)) return e->status;
        if (device != DEVICE_ANY) c->place.units[u].device = device;
    }
    return check_matched(p, e);
}

enum status patterns_check(const char *patterns, struct err *e) {
    struct patterns *p = mem_alloc(1, sizeof *p);
    if (!p) return err_memory(e, sizeof *p, "the -ot patterns");
    const enum status status = read_patterns(p, patterns, e);
    patterns_close(p);
    return status;
}

enum status constraints_add_patterns(struct constraints *c, const struct shape *shape,
                                     const char *patterns, struct err *e) {
    ASSERT(c);
    ASSERT(shape);
    ASSERT(patterns);
    *e = (struct err){.status = OK};
    struct patterns *p = mem_alloc(1, sizeof *p);
    if (!p) return err_memory(e, sizeof *p, "the -ot patterns");
    for (int32_t u = 0; u < shape->n_units && !c->has_units; u++)
        c->place.units[u].device = DEVICE_ANY;
    c->has_units = true;
    if (!regex_search_open(&p->search, STEPS_MOST, e) && !read_patterns(p, patterns, e))
        match_all(c, shape, p, e);
    patterns_close(p);
    return e->status;
}
