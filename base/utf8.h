/* utf8.h: one UTF-8 character at a time, for text that may hold any bytes.
 *
 * Owns nothing; pure functions; any thread. Must not allocate. Tested by
 * tests/runtime/test_tokenizer.c.
 */
#ifndef TANDEM_BASE_UTF8_H
#define TANDEM_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum utf8_class {
    UTF8_WHOLE,   // a character of *length bytes
    UTF8_PARTIAL, // all *length bytes that are left could begin a character
    UTF8_BAD,     // the first *length bytes can never be part of a character
};

// Looks at the front of text[size], size at least 1. Surrogates, overlong forms and numbers above
// U+10FFFF are bad.
enum utf8_class utf8_look(const char *text, size_t size, size_t *length);

// Bytes of the whole character at the front of text[size], or 1 for a byte that belongs to none.
size_t utf8_step(const char *text, size_t size);

// The code point of a whole character of length bytes.
uint32_t utf8_code(const char *text, size_t length);

// Writes the character of a code point to out[4]; returns its length.
size_t utf8_write(uint32_t code, char *out);

// True for the white space that Python's str.strip() takes away.
bool utf8_is_space(uint32_t code);

// True if all of text is whole characters.
bool utf8_valid(const char *text, size_t size);

#endif
