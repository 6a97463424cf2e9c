/* jinja_text.c: see jinja_text.h. */
#include "runtime/jinja/jinja_text.h"

#include "base/utf8.h"

#include <string.h>
#include <utf8proc.h>

// ---- Searching ----------------------------------------------------------------------------------

int64_t jinja_text_count(struct jinja_heap *h, struct jinja_text text) {
    int64_t count = 0;
    if (!jinja_heap_spend(h, text.length)) return 0;
    for (size_t at = 0; at < text.length; count++)
        at += utf8_step(text.bytes + at, text.length - at);
    return count;
}

int64_t jinja_text_find(struct jinja_heap *h, struct jinja_text text, struct jinja_text part,
                        size_t first) {
    if (part.length == 0 || part.length > text.length - first) return -1;
    const char *found = memmem(text.bytes + first, text.length - first, part.bytes, part.length);
    const size_t searched = found ? (size_t)(found - text.bytes) - first : text.length - first;
    // memmem is linear, but slower than a copy.
    if (!jinja_heap_spend(h, 4 * searched + part.length)) return -1;
    return found ? found - text.bytes : -1;
}

bool jinja_text_starts(struct jinja_text text, struct jinja_text part) {
    return part.length <= text.length && memcmp(text.bytes, part.bytes, part.length) == 0;
}

bool jinja_text_ends(struct jinja_text text, struct jinja_text part) {
    return part.length <= text.length &&
           memcmp(text.bytes + text.length - part.length, part.bytes, part.length) == 0;
}

// ---- Trimming -----------------------------------------------------------------------------------

// True if the character of n bytes is in the set, or white space without one.
static bool trims(const struct jinja_text *set, const char *character, size_t n) {
    if (!set) return utf8_is_space(utf8_code(character, n));
    for (size_t at = 0, m; at < set->length; at += m) {
        m = utf8_step(set->bytes + at, set->length - at);
        if (m == n && memcmp(set->bytes + at, character, n) == 0) return true;
    }
    return false;
}

struct jinja_text jinja_text_trim(struct jinja_heap *h, struct jinja_text text,
                                  const struct jinja_text *set, enum jinja_ends ends) {
    size_t first = 0, end = text.length, n;
    const uint64_t each = set ? set->length + 1 : 1;
    while (ends & JINJA_LEFT && first < end && jinja_heap_spend(h, each)) {
        n = utf8_step(text.bytes + first, end - first);
        if (!trims(set, text.bytes + first, n)) break;
        first += n;
    }
    while (ends & JINJA_RIGHT && first < end && jinja_heap_spend(h, each)) {
        n = 1;
        while (n < 4 && n < end - first && ((uint8_t)text.bytes[end - n] & 0xc0) == 0x80) n++;
        if (utf8_step(text.bytes + end - n, n) != n) n = 1; // bytes that are no character
        if (!trims(set, text.bytes + end - n, n)) break;
        end -= n;
    }
    return jinja_text_part(text, first, end - first);
}

// ---- Cutting ------------------------------------------------------------------------------------

// Python puts the new text around every character if the old one is empty.
static struct jinja_value spread(struct jinja_heap *h, struct jinja_text text,
                                 struct jinja_text new, int64_t limit) {
    struct jinja_builder b = {0};
    size_t at = 0;
    for (; limit != 0 && !jinja_failed(h); limit--) {
        const size_t n = at < text.length ? utf8_step(text.bytes + at, text.length - at) : 0;
        jinja_builder_add(h, &b, new);
        jinja_builder_add(h, &b, jinja_text_part(text, at, n));
        at += n;
        if (n == 0) break;
    }
    jinja_builder_add(h, &b, jinja_text_part(text, at, text.length - at));
    return jinja_builder_text(&b);
}

struct jinja_value jinja_text_replace(struct jinja_heap *h, struct jinja_text text,
                                      struct jinja_text old, struct jinja_text new, int64_t limit) {
    struct jinja_builder b = {0};
    size_t at = 0;
    if (old.length == 0) return spread(h, text, new, limit);
    for (int64_t found; limit != 0 && (found = jinja_text_find(h, text, old, at)) >= 0; limit--) {
        jinja_builder_add(h, &b, jinja_text_part(text, at, (size_t)found - at));
        jinja_builder_add(h, &b, new);
        at = (size_t)found + old.length;
    }
    if (at == 0) return jinja_of_text(text);
    jinja_builder_add(h, &b, jinja_text_part(text, at, text.length - at));
    return jinja_builder_text(&b);
}

static void add_part(struct jinja_heap *h, struct jinja_value list, struct jinja_text text,
                     size_t first, size_t end) {
    jinja_list_add(h, list, jinja_of_text(jinja_text_part(text, first, end - first)));
}

static struct jinja_value split_space(struct jinja_heap *h, struct jinja_text text, int64_t limit) {
    const struct jinja_value out = jinja_list_new(h, JINJA_LIST);
    text = jinja_text_trim(h, text, NULL, JINJA_LEFT);
    while (text.length > 0 && !jinja_failed(h)) {
        size_t end = 0, n;
        for (; end < text.length; end += n) {
            n = utf8_step(text.bytes + end, text.length - end);
            if (limit != 0 && utf8_is_space(utf8_code(text.bytes + end, n))) break;
        }
        if (!jinja_heap_spend(h, end)) break;
        add_part(h, out, text, 0, end);
        limit--;
        text = jinja_text_trim(h, jinja_text_part(text, end, text.length - end), NULL, JINJA_LEFT);
    }
    return out;
}

static int64_t count_parts(struct jinja_heap *h, struct jinja_text text, struct jinja_text part) {
    int64_t n = 0;
    for (int64_t at = 0; (at = jinja_text_find(h, text, part, (size_t)at)) >= 0; n++)
        at += part.length;
    return n;
}

struct jinja_value jinja_text_split(struct jinja_heap *h, struct jinja_text text,
                                    const struct jinja_text *separator, int64_t limit, bool right) {
    if (!separator) return split_space(h, text, limit);
    const struct jinja_value out = jinja_list_new(h, JINJA_LIST);
    size_t first = 0, at = 0;
    if (separator->length == 0) jinja_fail(h, "split() has an empty separator");
    // From the right, the first separators are passed over.
    int64_t skip = right && limit >= 0 ? count_parts(h, text, *separator) - limit : 0;
    for (int64_t found; limit != 0 && (found = jinja_text_find(h, text, *separator, at)) >= 0;) {
        at = (size_t)found + separator->length;
        if (skip-- > 0) continue;
        add_part(h, out, text, first, (size_t)found);
        first = at;
        limit--;
    }
    add_part(h, out, text, first, text.length);
    return out;
}

// The bytes of the end of a line at in, of which length are left; 0: there is none.
static size_t line_end(const char *in, size_t length) {
    static const uint32_t ends[] = {'\n', '\r', '\v', '\f', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029};
    const size_t n = utf8_step(in, length);
    if (n == 1 && (uint8_t)in[0] >= 0x80) return 0;
    if (in[0] == '\r' && length > 1 && in[1] == '\n') return 2;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (utf8_code(in, n) == ends[i]) return n;
    return 0;
}

struct jinja_value jinja_text_lines(struct jinja_heap *h, struct jinja_text text, bool keeps) {
    const struct jinja_value out = jinja_list_new(h, JINJA_LIST);
    size_t first = 0;
    for (size_t at = 0; at < text.length && jinja_heap_spend(h, 4);) {
        const size_t end = line_end(text.bytes + at, text.length - at);
        if (end) add_part(h, out, text, first, keeps ? at + end : at);
        at += end ? end : utf8_step(text.bytes + at, text.length - at);
        if (end) first = at;
    }
    if (first < text.length) add_part(h, out, text, first, text.length);
    return out;
}

// ---- Changing -----------------------------------------------------------------------------------

// The character in upper or lower case; a bad byte stays.
static size_t change_case(const char *in, size_t n, bool upper, char out[8]) {
    const int32_t code = (int32_t)utf8_code(in, n);
    if (n == 1 && (uint8_t)in[0] >= 0x80) {
        out[0] = in[0];
        return 1;
    }
    if (upper && code == 0xdf) { // the one common letter that becomes two
        memcpy(out, "SS", 2);
        return 2;
    }
    return utf8_write((uint32_t)(upper ? utf8proc_toupper(code) : utf8proc_tolower(code)), out);
}

static bool is_letter(const char *in, size_t n) {
    if (n == 1 && (uint8_t)in[0] >= 0x80) return false;
    const utf8proc_category_t c = utf8proc_category((int32_t)utf8_code(in, n));
    return c == UTF8PROC_CATEGORY_LU || c == UTF8PROC_CATEGORY_LL || c == UTF8PROC_CATEGORY_LT;
}

struct jinja_value jinja_text_letters(struct jinja_heap *h, struct jinja_text text,
                                      enum jinja_letters letters) {
    struct jinja_builder b = {0};
    bool start = true; // of a word, or of the text
    for (size_t at = 0, n; at < text.length && jinja_heap_spend(h, 16); at += n) {
        char out[8];
        n = utf8_step(text.bytes + at, text.length - at);
        const bool upper = letters == JINJA_UPPER || (letters >= JINJA_TITLE && start);
        const size_t length = change_case(text.bytes + at, n, upper, out);
        const bool data = jinja_text_is_data(jinja_text_part(text, at, n));
        jinja_builder_add(h, &b, jinja_text(out, length, data));
        start = letters == JINJA_TITLE && !is_letter(text.bytes + at, n);
    }
    return jinja_builder_text(&b);
}

static const char *entity_of(char c) {
    switch (c) {
    case '<': return "&lt;";
    case '>': return "&gt;";
    case '&': return "&amp;";
    case '"': return "&#34;";
    case '\'': return "&#39;";
    default: return NULL;
    }
}

struct jinja_text jinja_text_escape(struct jinja_heap *h, struct jinja_text text) {
    struct jinja_builder b = {0};
    size_t done = 0;
    for (size_t at = 0; at < text.length && jinja_heap_spend(h, 1); at++) {
        const char *entity = entity_of(text.bytes[at]);
        if (!entity) continue;
        jinja_builder_add(h, &b, jinja_text_part(text, done, at - done));
        jinja_builder_put(h, &b, entity, jinja_text_is_data(jinja_text_part(text, at, 1)));
        done = at + 1;
    }
    if (done == 0) return text;
    jinja_builder_add(h, &b, jinja_text_part(text, done, text.length - done));
    return jinja_builder_text(&b).text;
}

struct jinja_value jinja_text_indent(struct jinja_heap *h, struct jinja_text text, int64_t width,
                                     bool first, bool blank) {
    struct jinja_builder b = {0};
    bool indents = first;
    for (size_t at = 0; at <= text.length && !jinja_failed(h);) {
        const char *newline =
            at < text.length ? memchr(text.bytes + at, '\n', text.length - at) : NULL;
        const size_t end = newline ? (size_t)(newline - text.bytes) : text.length;
        const struct jinja_text line = jinja_text_part(text, at, end - at);
        const bool fills = at == 0 || blank || line.length > 0; // the first line, even an empty one
        for (int64_t i = 0; i < width && indents && fills && !jinja_failed(h); i++)
            jinja_builder_put(h, &b, " ", false);
        jinja_builder_add(h, &b, jinja_text_part(text, at, end - at + (newline != NULL)));
        if (!newline) break;
        at = end + 1;
        indents = true;
    }
    return jinja_builder_text(&b);
}
