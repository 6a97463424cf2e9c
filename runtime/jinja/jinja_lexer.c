/* jinja_lexer.c: see jinja_lexer.h. */
#include "runtime/jinja/jinja_lexer.h"

#include "base/utf8.h"

#include <string.h>

enum { MAX_BRACKETS = JINJA_NESTING };

struct lexer {
    struct jinja_heap *heap;
    const char *source; // of length bytes, and a 0
    size_t length, at;
    size_t line_at;   // up to where heap->line has been counted
    bool line_starts; // the last tag ended with its line
    struct jinja_token *tokens;
    uint32_t count, capacity;
};

// ---- Helpers ------------------------------------------------------------------------------------

// A newline at the very end is dropped, as Jinja does.
static bool normalise(struct lexer *x, const char *source, size_t length) {
    char *copy = jinja_heap_take(x->heap, length + 1);
    if (!copy) return false;
    size_t n = 0;
    for (size_t i = 0; i < length; i++) {
        if (source[i] == '\r' && i + 1 < length && source[i + 1] == '\n') continue;
        copy[n++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (n > 0 && copy[n - 1] == '\n') n--;
    copy[n] = 0;
    x->source = copy;
    x->length = n;
    return true;
}

static void count_lines(struct lexer *x) {
    for (; x->line_at < x->at; x->line_at++) x->heap->line += x->source[x->line_at] == '\n';
}

static void add(struct lexer *x, enum jinja_token_kind kind, struct jinja_text text) {
    count_lines(x);
    if (x->count == x->capacity) {
        struct jinja_token *tokens =
            jinja_heap_grow(x->heap, x->tokens, &x->capacity, sizeof *tokens);
        if (!tokens) return;
        x->tokens = tokens;
    }
    x->tokens[x->count++] = (struct jinja_token){kind, x->heap->line, text};
}

static struct jinja_text part(const struct lexer *x, size_t first, size_t end) {
    return jinja_text(x->source + first, end - first, false);
}

static bool starts(const struct lexer *x, const char *what) {
    return strncmp(x->source + x->at, what, strlen(what)) == 0;
}

static size_t skip_space(const struct lexer *x, size_t at) {
    for (size_t n; at < x->length; at += n) {
        n = utf8_step(x->source + at, x->length - at);
        if (!utf8_is_space(utf8_code(x->source + at, n))) break;
    }
    return at;
}

// ---- Text between tags --------------------------------------------------------------------------

// The end of the text source[first, end) without white space.
static size_t strip_right(const struct lexer *x, size_t first, size_t end) {
    size_t kept = first;
    for (size_t at = first; at < end;) {
        const size_t n = utf8_step(x->source + at, end - at);
        if (!utf8_is_space(utf8_code(x->source + at, n))) kept = at + n;
        at += n;
    }
    return kept;
}

// The end of the text without the white space between the start of its line and a block tag.
static size_t strip_line(const struct lexer *x, size_t first, size_t end) {
    size_t line = end;
    while (line > first && x->source[line - 1] != '\n') line--;
    if (line == first && !x->line_starts) return end;
    return strip_right(x, line, end) == line ? line : end;
}

// Adds the text up to the next tag, which may eat white space before it. False at the end.
static bool take_outside(struct lexer *x) {
    const size_t first = x->at;
    size_t end = x->at;
    while (end < x->length &&
           !(x->source[end] == '{' && strchr("{%#", x->source[end + 1]) && x->source[end + 1]))
        end++;
    const bool tag = end < x->length;
    const char sign = tag ? x->source[end + 2] : 0;
    size_t kept = end;
    if (sign == '-')
        kept = strip_right(x, first, end);
    else if (tag && sign != '+' && x->source[end + 1] != '{')
        kept = strip_line(x, first, end);
    if (kept > first) add(x, LEX_OUTSIDE, part(x, first, kept));
    x->at = end;
    return tag;
}

// Moves behind the mark that ends a tag, of which closing is the second character before '}', and
// behind the white space that it eats. False if no such mark is here.
static bool take_end(struct lexer *x, char closing) {
    const char *s = x->source + x->at;
    const bool sign = s[0] == '-' || (s[0] == '+' && closing != '}');
    if (s[sign] != closing || s[sign + 1] != '}') return false;
    x->at += sign + 2u;
    if (s[0] == '-')
        x->at = skip_space(x, x->at);
    else if (!sign && closing != '}' && x->source[x->at] == '\n')
        x->at++;
    x->line_starts = x->source[x->at - 1] == '\n';
    return true;
}

static void take_comment(struct lexer *x) {
    for (x->at += 2; x->at < x->length; x->at++)
        if (take_end(x, '#')) return;
    jinja_fail(x->heap, "a comment has no end");
}

// ---- Inside tags --------------------------------------------------------------------------------

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_letter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (uint8_t)c >= 0x80;
}

static void take_name(struct lexer *x) {
    const size_t first = x->at;
    while (is_letter(x->source[x->at]) || is_digit(x->source[x->at])) x->at++;
    add(x, LEX_NAME, part(x, first, x->at));
}

static void take_digits(struct lexer *x) {
    while (is_digit(x->source[x->at])) x->at++;
}

static void take_number(struct lexer *x) {
    const size_t first = x->at;
    enum jinja_token_kind kind = LEX_INT;
    take_digits(x);
    if (x->source[x->at] == '.' && is_digit(x->source[x->at + 1])) {
        kind = LEX_FLOAT;
        x->at++;
        take_digits(x);
    }
    const char *s = x->source + x->at;
    const bool sign = (s[0] | 0x20) == 'e' && (s[1] == '+' || s[1] == '-');
    if ((s[0] | 0x20) == 'e' && is_digit(s[1 + sign])) {
        kind = LEX_FLOAT;
        x->at += 1u + sign;
        take_digits(x);
    }
    add(x, kind, part(x, first, x->at));
}

// The number of n hexadecimal digits, or -1.
static int64_t hex(const char *s, int n) {
    int64_t code = 0;
    for (int i = 0; i < n; i++) {
        const char c = s[i], low = (char)(c | 0x20);
        if (!is_digit(c) && !(low >= 'a' && low <= 'f')) return -1;
        code = code * 16 + (is_digit(c) ? c - '0' : low - 'a' + 10);
    }
    return code;
}

// Writes what the escape at s, behind its backslash, stands for; returns its length, 0 for none.
static size_t unescape(const char *s, struct jinja_heap *h, struct jinja_builder *b) {
    static const char names[] = "ntr\\'\"abfv", bytes[] = "\n\t\r\\'\"\a\b\f\v";
    const char *name = s[0] ? strchr(names, s[0]) : NULL;
    const int n = s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : s[0] == 'U' ? 8 : 0;
    const int64_t code = n ? hex(s + 1, n) : -1;
    char out[8] = {0};
    if (s[0] == '\n') return 1;
    if (name)
        jinja_builder_add(h, b, jinja_text(bytes + (name - names), 1, false));
    else if (code >= 0 && code <= 0x10ffff && !(code >= 0xd800 && code < 0xe000))
        jinja_builder_add(h, b, jinja_text(out, utf8_write((uint32_t)code, out), false));
    return name ? 1 : code >= 0 ? 1 + (size_t)n : 0;
}

static void take_string(struct lexer *x) {
    struct jinja_builder b = {0};
    const char quote = x->source[x->at++];
    size_t plain = x->at; // start of what is not added yet
    for (; x->at < x->length && x->source[x->at] != quote && !jinja_failed(x->heap); x->at++) {
        if (x->source[x->at] != '\\' || x->at + 1 >= x->length) continue;
        jinja_builder_add(x->heap, &b, part(x, plain, x->at));
        const size_t n = unescape(x->source + x->at + 1, x->heap, &b);
        plain = n ? x->at + 1 + n : x->at;
        x->at = n ? x->at + n : x->at + 1;
    }
    if (jinja_failed(x->heap)) return;
    if (x->at >= x->length) {
        jinja_fail(x->heap, "a string has no end");
        return;
    }
    jinja_builder_add(x->heap, &b, part(x, plain, x->at));
    x->at++;
    struct jinja_text text = jinja_builder_text(&b).text;
    add(x, LEX_STRING, jinja_text(text.bytes, text.length, false));
}

// Adds an operator and keeps the open brackets, in which a tag cannot end.
static void take_operator(struct lexer *x, char *brackets, int *n_open) {
    static const char *const pairs[] = {"==", "!=", ">=", "<=", "//", "**"};
    const char c = x->source[x->at];
    size_t n = 1;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (starts(x, pairs[i])) n = 2;
    if (!c || !strchr("+-/*%~[](){}<>=.:|,!", c) || (c == '!' && n == 1)) {
        jinja_fail(x->heap, "there is an unexpected character: %c", c);
        return;
    }
    const char *open = strchr("([{", c), *close = strchr(")]}", c);
    if (open && *n_open == MAX_BRACKETS)
        jinja_fail(x->heap, "brackets nest deeper than %d", MAX_BRACKETS);
    else if (open)
        brackets[(*n_open)++] = c == '(' ? ')' : (char)(c + 2);
    else if (close && (*n_open == 0 || brackets[--*n_open] != c))
        jinja_fail(x->heap, "a bracket has no partner: %c", c);
    add(x, LEX_OPERATOR, part(x, x->at, x->at + n));
    x->at += n;
}

static void take_tag(struct lexer *x) {
    const bool print = x->source[x->at + 1] == '{';
    char brackets[MAX_BRACKETS];
    int n_open = 0;
    add(x, print ? LEX_PRINT_BEGIN : LEX_BLOCK_BEGIN, part(x, x->at, x->at));
    x->at += 2;
    if (x->source[x->at] == '-' || (x->source[x->at] == '+' && !print)) x->at++;
    while (!jinja_failed(x->heap)) {
        const size_t from = x->at = skip_space(x, x->at);
        const char c = x->source[x->at];
        if (n_open == 0 && take_end(x, print ? '}' : '%')) {
            add(x, print ? LEX_PRINT_END : LEX_BLOCK_END, part(x, from, from));
            return;
        }
        if (x->at >= x->length)
            jinja_fail(x->heap, "a tag has no end");
        else if (is_letter(c))
            take_name(x);
        else if (is_digit(c))
            take_number(x);
        else if (c == '"' || c == '\'')
            take_string(x);
        else
            take_operator(x, brackets, &n_open);
    }
}

const struct jinja_token *jinja_lex(struct jinja_heap *h, const char *source, size_t length) {
    struct lexer x = {.heap = h, .line_starts = true};
    h->line = 1;
    if (!normalise(&x, source, length)) return NULL;
    while (!jinja_failed(h) && take_outside(&x)) {
        if (x.source[x.at + 1] == '#')
            take_comment(&x);
        else
            take_tag(&x);
    }
    add(&x, LEX_END, part(&x, x.length, x.length));
    return jinja_failed(h) ? NULL : x.tokens;
}
