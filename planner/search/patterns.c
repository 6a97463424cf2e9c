/* patterns.c: turns "-ot" texts, "regex=DEVICE,...", into devices of units. See patterns.h.
 *
 * Owns nothing that outlives a call. Patterns match tensor names, but units are placed: this file
 * knows the tensors that decide for a unit. Any thread. Tested by tests/planner/test_shape.c and
 * tests/fuzz/fuzz_patterns.c.
 */
#include "planner/search/patterns.h"

#include "base/mem.h"
#include "planner/machine/machine.h"

#include <ctype.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { PATTERN_LIMIT = 512, PATTERNS = 64, CPU = 0, ACCELERATOR = 1 };

struct pattern {
    regex_t regex; // compiled if text is set
    char *text;    // owned; as it was given
    int8_t device;
    bool matched;
};

struct patterns {
    int count;
    struct pattern list[PATTERNS];
};

static void patterns_close(struct patterns *p) {
    for (int i = 0; p && i < p->count; i++) {
        regfree(&p->list[i].regex);
        mem_free(p->list[i].text);
    }
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

// The translation of a pattern into POSIX's form.
struct translation {
    const char *text;
    size_t length, at;
    char *out;     // has room for 3 times the length
    int depth;     // of groups
    long copies;   // copies that {n} makes, which the library writes out
    bool repeated; // the last character was a repetition
    struct err *e;
};

static char peek(const struct translation *t, size_t ahead) {
    return t->at + ahead < t->length ? t->text[t->at + ahead] : 0;
}

static enum status refuse_pattern(const struct translation *t, const char *what) {
    return err_set(t->e, ERR_USAGE, "-ot pattern %.*s: %s", (int)t->length, t->text, what);
}

// Translates from "[" to "]", with \d and escaped characters inside.
static enum status translate_bracket(struct translation *t) {
    *t->out++ = t->text[t->at++];
    if (peek(t, 0) == '^') *t->out++ = t->text[t->at++];
    if (peek(t, 0) == ']') *t->out++ = t->text[t->at++]; // "]" in first place does not end the list
    while (t->at < t->length && peek(t, 0) != ']') {
        const char next = peek(t, 1);
        if (peek(t, 0) != '\\') {
            *t->out++ = t->text[t->at++];
            continue;
        }
        if (next == 'd')
            t->out = stpcpy(t->out, "0-9");
        else if (ispunct((unsigned char)next) && next != ']')
            *t->out++ = next;
        else
            return refuse_pattern(t, "an escape in [ ] that is not \\d or a sign");
        t->at += 2;
    }
    if (t->at < t->length) *t->out++ = t->text[t->at++];
    return OK;
}

// Translates a "\" and the next character.
static enum status translate_escape(struct translation *t) {
    if (peek(t, 1) == 'd') {
        t->out = stpcpy(t->out, "[0-9]");
    } else if (ispunct((unsigned char)peek(t, 1))) {
        *t->out++ = '\\';
        *t->out++ = peek(t, 1);
    } else {
        return refuse_pattern(t, "an escape that is not \\d or a sign");
    }
    t->at += 2;
    return OK;
}

// Translates one of * + ? {. A "?" after another repetition means a short match, which changes
// nothing here; other double repetitions are refused, since the library would write out copies of
// copies.
static enum status translate_repeat(struct translation *t) {
    enum { MAX_COPIES = 200 };
    const char c = peek(t, 0);
    if (t->repeated && c != '?') return refuse_pattern(t, "it repeats what is repeated");
    size_t length = 1;
    if (c == '{') {
        long most = 1;
        for (; peek(t, length) && peek(t, length - 1) != '}'; length++) {
            const char *digit = t->text + t->at + length;
            if (isdigit((unsigned char)*digit) && atol(digit) > most) most = atol(digit);
        }
        t->copies *= most <= MAX_COPIES ? most : MAX_COPIES + 1;
        if (t->copies > MAX_COPIES)
            return refuse_pattern(t, "it repeats something more than 200 times");
    }
    for (size_t i = 0; i < length && !t->repeated; i++) *t->out++ = peek(t, i);
    t->at += length;
    t->repeated = true;
    return OK;
}

static enum status translate_group(struct translation *t) {
    enum { MAX_DEPTH = 4 };
    if (peek(t, 0) == ')') t->depth--;
    if (peek(t, 0) == '(' && ++t->depth > MAX_DEPTH)
        return refuse_pattern(t, "more than 4 groups inside each other");
    const bool counted = peek(t, 0) != '(' || peek(t, 1) != '?';
    if (!counted && peek(t, 2) != ':') return refuse_pattern(t, "a group with ? that is not (?:");
    *t->out++ = peek(t, 0);
    t->at += counted ? 1 : 3;
    return OK;
}

// Translates features of other regular expressions into POSIX: \d, groups that are not counted,
// short matches, escapes inside brackets. Refuses patterns that would grow beyond bounds in the
// library.
static enum status translate(const char *text, size_t length, char *out, struct err *e) {
    struct translation t = {.text = text, .length = length, .out = out, .copies = 1, .e = e};
    while (t.at < length) {
        enum status status = OK;
        const char c = text[t.at];
        if (strchr("*+?{", c)) {
            if (translate_repeat(&t)) return e->status;
            continue;
        }
        t.repeated = false;
        if (c == '[')
            status = translate_bracket(&t);
        else if (c == '\\')
            status = translate_escape(&t);
        else if (c == '(' || c == ')')
            status = translate_group(&t);
        else
            *t.out++ = text[t.at++];
        if (status) return status;
    }
    *t.out = 0;
    return OK;
}

static enum status compile(const char *text, size_t length, struct pattern *out, struct err *e) {
    char posix[3 * PATTERN_LIMIT + 1], reason[120];
    if (length == 0 || length > PATTERN_LIMIT) {
        err_set(e, ERR_USAGE, "-ot has a pattern of %zu characters", length);
        return err_expected(e, "1 to %d", PATTERN_LIMIT);
    }
    if (translate(text, length, posix, e)) return e->status;
    const int code = regcomp(&out->regex, posix, REG_EXTENDED | REG_NOSUB);
    if (code) {
        regerror(code, &out->regex, reason, sizeof reason);
        return err_set(e, ERR_USAGE, "-ot pattern %.*s: %s", (int)length, text, reason);
    }
    out->text = mem_text(text, length);
    if (out->text) return OK;
    regfree(&out->regex);
    return err_memory(e, length + 1, "an -ot pattern");
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
    if (read_device(text + equals, length - equals, &out->device, e) ||
        compile(text, equals - 1, out, e))
        return e->status;
    p->count++;
    return OK;
}

// Reads all patterns. A comma ends one only after a "=", since x{1,2} contains a comma.
static enum status read_patterns(struct patterns *p, const char *text, struct err *e) {
    for (;;) {
        size_t length = strcspn(text, ",");
        while (text[length] && !memchr(text, '=', length))
            length += 1 + strcspn(text + length + 1, ",");
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
static struct pattern *find_pattern(struct patterns *p, const char *name) {
    for (int i = 0; i < p->count; i++)
        if (regexec(&p->list[i].regex, name, 0, NULL, 0) == 0) return &p->list[i];
    return NULL;
}

// Appends " name" while there is room.
static void append(char *list, size_t size_bytes, const char *name) {
    const size_t length = strlen(list), n = strlen(name);
    if (length + n + 2 > size_bytes) return;
    if (length) list[length] = ' ';
    memcpy(list + length + (length > 0), name, n + 1);
}

// Refuses a separated unit: names its tensors on each side, and a pattern for all of them.
static enum status taken_apart(struct patterns *p, const struct unit *unit, struct err *e) {
    static const char *const whole[UNIT_KINDS] = {
        [UNIT_EMBED] = "^(token_embd|per_layer)",
        [UNIT_ATTENTION] = "(attn|ssm|shortconv).*",
        [UNIT_FFN] = "(ffn_(gate|up|down)|inp_gate|proj).*",
        [UNIT_EXPERTS] = "ffn_.*_exps",
        [UNIT_HEAD] = "^output\\.",
    };
    char there[160] = "", elsewhere[160] = "";
    const struct pattern *first = NULL;
    for (int i = 0; i < unit->n_tensors; i++) {
        const struct unit_tensor *t = &unit->tensors[i];
        if (!decides(t)) continue;
        const char *name = name_of(unit, t);
        const struct pattern *found = find_pattern(p, name);
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
    // The fix begins with a sign, since its first letter is printed as a capital.
    const char *all = whole[unit->kind], *device = first->device == CPU ? "CPU" : "GPU";
    if (unit->layer < 0) return err_fix(e, "-ot '%s=%s' matches all of it", all, device);
    return err_fix(e, "-ot 'blk\\.%d\\.%s=%s' matches all of it", unit->layer, all, device);
}

// The device that all deciding tensors of a unit go to, or DEVICE_ANY if no pattern matches one.
static enum status match_unit(struct patterns *p, const struct unit *unit, int8_t *device,
                              struct err *e) {
    int n_deciding = 0, n_at[MAX_DEVICES] = {0};
    for (int i = 0; i < unit->n_tensors; i++) {
        if (!decides(&unit->tensors[i])) continue;
        struct pattern *found = find_pattern(p, name_of(unit, &unit->tensors[i]));
        n_deciding++;
        if (!found) continue;
        found->matched = true;
        n_at[found->device]++;
    }
    *device = DEVICE_ANY;
    for (int8_t d = 0; d < MAX_DEVICES; d++)
        if (n_deciding > 0 && n_at[d] == n_deciding) *device = d;
    return *device == DEVICE_ANY && n_at[CPU] + n_at[ACCELERATOR] > 0 ? taken_apart(p, unit, e)
                                                                      : OK;
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
        if (match_unit(p, &shape->units[u], &device, e)) return e->status;
        if (device != DEVICE_ANY) c->place.units[u].device = device;
    }
    return check_matched(p, e);
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
    if (!read_patterns(p, patterns, e)) match_all(c, shape, p, e);
    patterns_close(p);
    return e->status;
}
