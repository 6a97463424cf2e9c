/* schema_text.c: see schema_text.h. */
#include "runtime/grammar/schema_text.h"

#include "base/mem.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

void schema_text_close(struct schema_text *t) {
    mem_free(t->bytes);
    *t = (struct schema_text){0};
}

void schema_text_add(struct schema_text *t, const char *format, ...) {
    va_list list, again;
    va_start(list, format);
    va_copy(again, list);
    const int n = vsnprintf(NULL, 0, format, list);
    const size_t needed = t->length + (size_t)n + 1;
    if (needed > t->capacity && !t->refused) {
        char *bigger = mem_resize(t->bytes, 2 * needed, 1);
        t->refused = !bigger;
        if (bigger) {
            t->bytes = bigger;
            t->capacity = 2 * needed;
        }
    }
    if (!t->refused) {
        vsnprintf(t->bytes + t->length, (size_t)n + 1, format, again);
        t->length += (size_t)n;
    }
    va_end(again);
    va_end(list);
}

static void add_byte(struct schema_text *t, char c) {
    if (c == '\n')
        schema_text_add(t, "\\n");
    else if (c == '\r')
        schema_text_add(t, "\\r");
    else
        schema_text_add(t, c == '"' || c == '\\' ? "\\%c" : "%c", c);
}

void schema_text_literal(struct schema_text *t, const char *text, size_t length) {
    schema_text_add(t, "\"");
    for (size_t i = 0; i < length; i++) add_byte(t, text[i]);
    schema_text_add(t, "\"");
}

// ---- Whole numbers ------------------------------------------------------------------------------

enum { WHOLE_DIGITS = 16 }; // that a whole number has at most: as many as 2^53 has

static void add_digits(struct schema_text *t, int n) {
    if (n > 0) schema_text_add(t, " [0-9]{%d}", n);
}

// Numbers of the digits at text that are no lower (or no higher) than it: its first digits, then
// one that is apart from it, then any; or all of its digits.
static void add_beyond(struct schema_text *t, const char *digits, bool higher) {
    const int n = (int)strlen(digits);
    for (int same = n; same >= 0; same--) {
        const char low = higher ? (char)(digits[same] + 1) : '0';
        const char high = higher ? '9' : (char)(digits[same] - 1);
        if (same < n && low > high) continue;
        schema_text_add(t, same < n ? " | " : "");
        schema_text_add(t, "\"%.*s\"", same, digits);
        if (same == n) continue;
        schema_text_add(t, " [%c-%c]", low, high);
        add_digits(t, n - same - 1);
    }
}

// Numbers with as many digits as low and high.
static void add_same_length(struct schema_text *t, int64_t low, int64_t high) {
    char from[24], to[24];
    int same = 0;
    snprintf(from, sizeof from, "%lld", (long long)low);
    snprintf(to, sizeof to, "%lld", (long long)high);
    while (from[same] && from[same] == to[same]) same++;
    schema_text_add(t, "\"%.*s\"", same, from);
    if (!from[same]) return;
    const int rest = (int)strlen(from + same) - 1;
    schema_text_add(t, " (\"%c\" (", from[same]);
    add_beyond(t, from + same + 1, true);
    schema_text_add(t, ") | \"%c\" (", to[same]);
    add_beyond(t, to + same + 1, false);
    schema_text_add(t, ")");
    if (to[same] - from[same] > 1) {
        schema_text_add(t, " | [%c-%c]", from[same] + 1, to[same] - 1);
        add_digits(t, rest);
    }
    schema_text_add(t, ")");
}

// Numbers of 0 and more, from low to high, or without end.
static void add_positive(struct schema_text *t, int64_t low, bool has_high, int64_t high) {
    int64_t first = 0, last = 9;
    int n_digits = 1;
    const char *between = "";
    while (last < low) first = last + 1, last = 10 * last + 9, n_digits++;
    for (bool once = true; has_high ? first <= high : once; once = false) {
        schema_text_add(t, "%s", between);
        add_same_length(t, low > first ? low : first, has_high && high < last ? high : last);
        between = " | ";
        first = last + 1;
        last = 10 * last + 9;
        n_digits++;
    }
    if (!has_high && n_digits <= WHOLE_DIGITS)
        schema_text_add(t, " | [1-9] [0-9]{%d,%d}", n_digits - 1, WHOLE_DIGITS - 1);
}

void schema_text_range(struct schema_text *t, bool has_low, int64_t low, bool has_high,
                       int64_t high) {
    const bool negative = !has_low || low < 0, positive = !has_high || high >= 0;
    if (negative) {
        schema_text_add(t, "\"-\" (");
        add_positive(t, has_high && high < 0 ? -high : 1, has_low, -low);
        schema_text_add(t, ")%s", positive ? " | " : "");
    }
    if (positive) add_positive(t, has_low && low > 0 ? low : 0, has_high, high);
}

// ---- Patterns -----------------------------------------------------------------------------------

static enum status refuse(const char *pattern, struct err *e) {
    err_set(e, ERR_UNSUPPORTED, "schema: pattern '%.60s' is not supported", pattern);
    return err_fix(e, "begin it with ^, end it with $, and take sets, groups and repetitions");
}

// The set that \d, \w or \s stand for, without brackets; NULL: another letter. Strings of JSON have
// no other white space than the blank.
static const char *shorthand(char c) {
    return c == 'd' ? "0-9" : c == 'w' ? "0-9A-Za-z_" : c == 's' ? " " : NULL;
}

static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

// Writes the characters from low to high that strings of JSON have without an escape.
static void add_plain(struct schema_text *t, uint32_t low, uint32_t high) {
    static const uint32_t others[] = {'"', '\\', 0x7f};
    for (size_t i = 0; i < sizeof others / sizeof *others && low <= high; i++) {
        if (others[i] < low || others[i] > high) continue;
        if (low < others[i]) schema_text_add(t, "\\U%08x-\\U%08x", low, others[i] - 1);
        low = others[i] + 1;
    }
    if (low <= high) schema_text_add(t, "\\U%08x-\\U%08x", low, high);
}

// Reads a character of a set, which a backslash may stand before.
static bool read_member(const char **p, uint32_t *code) {
    const bool escaped = **p == '\\';
    if (escaped) ++*p;
    if (!**p) return false;
    const size_t length = utf8_step(*p, strlen(*p));
    if ((uint8_t) * *p < 0x20 || (escaped ? is_letter(**p) : **p == '[')) return false;
    *code = utf8_code(*p, length);
    *p += length;
    return true;
}

// Writes a set; *p is behind its bracket, and then behind the closing one. Quotation marks and
// backslashes stand behind a backslash in strings of JSON.
static bool add_set(struct schema_text *t, const char **p) {
    struct schema_text set = {0};
    const bool others = **p == '^';
    bool quote = false, backslash = false, right = true;
    if (others) ++*p;
    for (bool first = true; right && (**p != ']' || first); first = false) {
        uint32_t low, high;
        if (**p == '\\' && shorthand((*p)[1])) {
            schema_text_add(&set, "%s", shorthand((*p)[1]));
            *p += 2;
            if (**p == '-') schema_text_add(&set, "\\-"), ++*p; // begins no range
            continue;
        }
        right = read_member(p, &low);
        high = low;
        if (right && **p == '-' && (*p)[1] != ']') {
            ++*p;
            right = !(**p == '\\' && shorthand((*p)[1])) && read_member(p, &high) && low <= high;
        }
        if (!right) break;
        add_plain(&set, low, high);
        quote |= low <= '"' && '"' <= high;
        backslash |= low <= '\\' && '\\' <= high;
    }
    if (right) ++*p;
    const char *between = set.length > 0 ? " | " : "";
    if (others)
        schema_text_add(t, "[^\\\"\\\\\\x00-\\x1F\\x7F%s] ", set.bytes ? set.bytes : "");
    else if (set.length > 0)
        schema_text_add(t, "([%s]", set.bytes);
    else
        schema_text_add(t, "(");
    if (!others && quote) schema_text_add(t, "%s\"\\\\\\\"\"", between), between = " | ";
    if (!others && backslash) schema_text_add(t, "%s\"\\\\\\\\\"", between);
    if (!others) schema_text_add(t, ") ");
    t->refused |= set.refused;
    schema_text_close(&set);
    return right;
}

// Writes one character of a string of JSON.
static bool add_character(struct schema_text *t, const char **p) {
    const size_t length = utf8_step(*p, strlen(*p));
    if ((uint8_t) * *p < 0x20) return false;
    if (**p == '"' || **p == '\\')
        schema_text_add(t, "\"\\\\\\%c\" ", **p);
    else
        schema_text_add(t, "\"%.*s\" ", (int)length, *p);
    *p += length;
    return true;
}

static bool add_escape(struct schema_text *t, const char **p) {
    if (shorthand(**p)) {
        schema_text_add(t, "[%s] ", shorthand(*(*p)++));
        return true;
    }
    return **p && !is_letter(**p) && add_character(t, p);
}

static bool add_symbol(struct schema_text *t, const char **p) {
    const char c = **p;
    if (c == '[' || c == '\\') {
        ++*p;
        return c == '[' ? add_set(t, p) : add_escape(t, p);
    }
    if (c == '(' && (*p)[1] == '?') {
        if ((*p)[2] != ':') return false;
        *p += 2; // the grammar has no groups of another kind
    }
    if (c == '{') {
        const size_t length = strspn(*p + 1, "0123456789,") + 2;
        if ((*p)[length - 1] != '}') return false;
        schema_text_add(t, "%.*s ", (int)length, *p);
        *p += length;
        return true;
    }
    if (c == '^' || c == '$' || c == '}' || c == ']') return false;
    if (c == '.')
        schema_text_add(t, "[^\\\"\\\\\\x00-\\x1F\\x7F] ");
    else if (strchr("()|*+?", c))
        schema_text_add(t, "%c ", c);
    else
        return add_character(t, p);
    ++*p;
    return true;
}

enum status schema_text_pattern(struct schema_text *t, const char *pattern, struct err *e) {
    const char *p = pattern;
    if (*p++ != '^') return refuse(pattern, e);
    schema_text_add(t, "\"\\\"\" (");
    while (*p && strcmp(p, "$") != 0)
        if (!add_symbol(t, &p)) return refuse(pattern, e);
    schema_text_add(t, ") \"\\\"\"");
    return *p ? OK : refuse(pattern, e);
}

// ---- Keys ---------------------------------------------------------------------------------------

// Keys whose first bytes are those of names[0..n - 1], which have depth bytes in common: what may
// follow. Recursion ends with the names, whose length has a limit.
static void add_other_ends(struct schema_text *t, const char *const *names, int n, size_t depth) {
    static const char any[] = "\\\"\\\\\\x00-\\x1F\\x7F";
    bool seen[128] = {0}, whole = false;
    schema_text_add(t, "(");
    for (int i = 0; i < n; i++) {
        const uint8_t c = (uint8_t)names[i][depth];
        whole |= c == 0;
        if (c == 0 || seen[c]) continue;
        seen[c] = true;
        const char *same[SCHEMA_KEYS_MOST];
        int n_same = 0;
        for (int k = i; k < n; k++)
            if ((uint8_t)names[k][depth] == c) same[n_same++] = names[k];
        schema_text_add(t, "\"%c\" ", c);
        add_other_ends(t, same, n_same, depth + 1);
        schema_text_add(t, " | ");
    }
    schema_text_add(t, "[^%s", any);
    for (int c = 0x20; c < 127; c++)
        if (seen[c]) schema_text_add(t, c == ']' || c == '-' || c == '^' ? "\\x%02x" : "%c", c);
    schema_text_add(t, "] [^%s]*%s)", any, whole ? "" : " | \"\"");
}

enum status schema_text_other_keys(struct schema_text *t, const char *const *names, int n,
                                   struct err *e) {
    enum { KEY_BYTES_MOST = 64 };
    for (int i = 0; i < n; i++)
        for (const char *c = names[i]; *c; c++)
            if ((uint8_t)*c < 0x20 || (uint8_t)*c >= 127 || *c == '"' || *c == '\\' ||
                c - names[i] >= KEY_BYTES_MOST)
                return err_set(
                    e, ERR_LIMIT,
                    "schema: with other properties allowed, names may have %d characters "
                    "of ASCII",
                    KEY_BYTES_MOST);
    add_other_ends(t, names, n, 0);
    return OK;
}

// ---- Primitives ---------------------------------------------------------------------------------

// Dates and times are those of RFC 3339: fourth is a pair of digits that 4 divides, but for 00, day
// one of every year. A leap second is written at UTC alone.
void schema_text_primitives(struct schema_text *t) {
    schema_text_add(
        t, "%s",
        "space ::= | \" \" | \"\\n\"{1,2} [ \\t]{0,20}\n"
        "char ::= [^\"\\\\\\x7F\\x00-\\x1F] | \"\\\\\" ([\"\\\\bfnrt] | \"u\" hex{4})\n"
        "hex ::= [0-9a-fA-F]\n"
        "string ::= \"\\\"\" char* \"\\\"\"\n"
        "whole ::= \"0\" | [1-9] [0-9]{0,15}\n"
        "integer ::= \"-\"? whole\n"
        "number ::= \"-\"? whole (\".\" [0-9]{1,16})? ([eE] [-+]? [0-9]{1,2})?\n"
        "boolean ::= \"true\" | \"false\"\n"
        "null ::= \"null\"\n"
        "member ::= string space \":\" space value space\n"
        "object ::= \"{\" space (member (\",\" space member)*)? \"}\"\n"
        "array ::= \"[\" space (value space (\",\" space value space)*)? \"]\"\n"
        "value ::= object | array | string | number | boolean | null\n"
        "fourth ::= \"0\" [48] | [2468] [048] | [13579] [26]\n"
        "leap ::= [0-9]{2} fourth | (fourth | \"00\") \"00\"\n"
        "day ::= (\"0\" [1-9] | \"1\" [0-2]) \"-\" (\"0\" [1-9] | \"1\" [0-9] | \"2\" [0-8]) | "
        "(\"0\" [13-9] | \"1\" [0-2]) \"-\" (\"29\" | \"30\") | (\"0\" [13578] | \"1\" [02]) "
        "\"-31\"\n"
        "date ::= [0-9]{4} \"-\" day | leap \"-02-29\"\n"
        "fraction ::= (\".\" [0-9]{1,9})?\n"
        "time ::= ([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9] \":\" [0-5] [0-9] fraction "
        "(\"Z\" | [-+] ([01] [0-9] | \"2\" [0-3]) \":\" [0-5] [0-9]) | "
        "\"23:59:60\" fraction \"Z\"\n"
        "date-time ::= date \"T\" time\n"
        "uuid ::= hex{8} \"-\" hex{4} \"-\" hex{4} \"-\" hex{4} \"-\" hex{12}\n");
}
