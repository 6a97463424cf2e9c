/* utf8.c: see utf8.h. */
#include "base/utf8.h"

#include "base/err.h"

enum utf8_class utf8_look(const char *text, size_t size, size_t *length) {
    ASSERT(size > 0);
    const uint8_t *s = (const uint8_t *)text;
    *length = 1;
    if (s[0] < 0x80) return UTF8_WHOLE;
    if (s[0] < 0xc2 || s[0] > 0xf4) return UTF8_BAD;

    size_t wanted = s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : 4;
    // Only the second byte has a range that depends on the first.
    uint8_t low = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
    uint8_t high = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;
    size_t n = 1;
    for (; n < wanted && n < size; n++) {
        if (s[n] < low || s[n] > high) {
            *length = n;
            return UTF8_BAD;
        }
        low = 0x80;
        high = 0xbf;
    }
    *length = n;
    return n == wanted ? UTF8_WHOLE : UTF8_PARTIAL;
}

size_t utf8_step(const char *text, size_t size) {
    size_t length;
    return utf8_look(text, size, &length) == UTF8_WHOLE ? length : 1;
}

uint32_t utf8_code(const char *text, size_t length) {
    const uint8_t *s = (const uint8_t *)text;
    switch (length) {
    case 1: return s[0];
    case 2: return (s[0] & 31u) << 6 | (s[1] & 63u);
    case 3: return (s[0] & 15u) << 12 | (s[1] & 63u) << 6 | (s[2] & 63u);
    default: return (s[0] & 7u) << 18 | (s[1] & 63u) << 12 | (s[2] & 63u) << 6 | (s[3] & 63u);
    }
}

size_t utf8_write(uint32_t code, char *out) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t length = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = length - 1; i > 0; i--, code >>= 6) out[i] = (char)(0x80 | (code & 63));
    out[0] = (char)((0xf00u >> length & 0xf0) | code);
    return length;
}

bool utf8_is_space(uint32_t code) {
    return (code >= 9 && code <= 13) || (code >= 28 && code <= 32) || code == 0x85 ||
           code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
           code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

bool utf8_valid(const char *text, size_t size) {
    for (size_t at = 0, length; at < size; at += length)
        if (utf8_look(text + at, size - at, &length) != UTF8_WHOLE) return false;
    return true;
}
