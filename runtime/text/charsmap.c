/* charsmap.c: see charsmap.h. A unit of the double array is 32 bits: a byte of the key, whether an
 * entry ends there, and how far its children are; that of the end of an entry is its value.
 */
#include "runtime/text/charsmap.h"

#include <inttypes.h>
#include <string.h>

enum status charsmap_open(struct charsmap *m, const struct gguf_value *value, struct err *e) {
    *m = (struct charsmap){0};
    const bool bytes = value->element == GGUF_U8 || value->element == GGUF_I8;
    if (value->type != GGUF_ARRAY || !bytes) {
        char text[64];
        err_set(e, ERR_FORMAT, "%.*s: wrong type", (int)value->key.length, value->key.bytes);
        err_expected(e, "array of u8");
        return err_actual(e, "%s", gguf_type_text(value, text, sizeof text));
    }
    uint32_t size = 0;
    if (value->count == 0) return OK;
    if (value->count >= sizeof size) memcpy(&size, value->data, sizeof size);
    if (value->count < sizeof size || size % 4 != 0 || size > value->count - sizeof size) {
        err_set(e, ERR_FORMAT, "%.*s: cut off", (int)value->key.length, value->key.bytes);
        err_expected(e, "at least %" PRIu64 " bytes", (uint64_t)size + sizeof size);
        return err_actual(e, "%" PRIu64, value->count);
    }
    m->units = value->data + sizeof size;
    m->n_units = size / 4;
    m->texts.bytes = (const char *)m->units + size;
    m->texts.length = value->count - sizeof size - size;
    return OK;
}

// The unit at that place; a place outside of the array has one that goes nowhere.
static uint32_t unit_at(const struct charsmap *m, uint32_t place) {
    uint32_t unit = 0;
    if (place < m->n_units) memcpy(&unit, m->units + (size_t)place * 4, sizeof unit);
    return unit;
}

static uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & 1u << 9) >> 6); }

size_t charsmap_match(const struct charsmap *m, struct gguf_text text, struct gguf_text *out) {
    if (m->n_units == 0) return 0;
    size_t best = 0;
    uint32_t place = offset_of(unit_at(m, 0));
    for (size_t i = 0; i < text.length; i++) {
        const uint8_t byte = (uint8_t)text.bytes[i];
        place ^= byte;
        const uint32_t unit = unit_at(m, place);
        if (byte == 0 || (unit & (1u << 31 | 255)) != byte) break;
        place ^= offset_of(unit);
        if (!(unit >> 8 & 1)) continue;
        const uint32_t start = unit_at(m, place) & ~(1u << 31);
        if (start >= m->texts.length) break;
        const char *bytes = m->texts.bytes + start;
        *out = (struct gguf_text){bytes, strnlen(bytes, (size_t)m->texts.length - start)};
        best = i + 1;
    }
    return best;
}
