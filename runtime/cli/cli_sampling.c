/* cli_sampling.c: see cli_sampling.h. */
#include "runtime/cli/cli_sampling.h"

#include "runtime/cli/cli_values.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_CHARS = 64, VALUE_CHARS = 256 };

static const struct {
    const char *key, *option; // the key behind "general.sampling."
} KEYS[] = {
    {"temp", "--temp"},
    {"top_k", "--top-k"},
    {"top_p", "--top-p"},
    {"min_p", "--min-p"},
    {"xtc_probability", "--xtc-probability"},
    {"xtc_threshold", "--xtc-threshold"},
    {"penalty_last_n", "--repeat-last-n"},
    {"penalty_repeat", "--repeat-penalty"},
    {"mirostat", "--mirostat"},
    {"mirostat_tau", "--mirostat-ent"},
    {"mirostat_eta", "--mirostat-lr"},
    {"sequence", "--samplers"},
};

// The option of sampling of that name, which is its first; NULL if the command has no sampling.
static const struct option_spec *find_option(const struct cli_options *o, const char *name) {
    int32_t count;
    const struct option_spec *table = cli_option_table(&count);
    for (int32_t i = 0; i < count; i++)
        if (table[i].names[0] && strcmp(table[i].names[0], name) == 0 &&
            table[i].commands & 1u << o->command)
            return &table[i];
    return NULL;
}

// Writes the value as it would be given to an option; a float as short as it stays the same.
static void write_value(const struct gguf_value *value, char out[VALUE_CHARS]) {
    const uint8_t *cursor = NULL;
    struct gguf_text text;
    switch (value->type) {
    case GGUF_ARRAY:
    case GGUF_BOOL: (void)gguf_type_text(value, out, VALUE_CHARS); return;
    case GGUF_STRING:
        (void)gguf_next_text(value, &cursor, &text);
        if (text.length > VALUE_CHARS) text.length = VALUE_CHARS;
        (void)snprintf(out, VALUE_CHARS, "%.*s", (int)text.length, text.bytes);
        return;
    case GGUF_F32:
    case GGUF_F64:
        (void)snprintf(out, VALUE_CHARS, "%g", gguf_array_float(value, 0));
        if (strtof(out, NULL) != (float)gguf_array_float(value, 0))
            (void)snprintf(out, VALUE_CHARS, "%.9g", gguf_array_float(value, 0));
        return;
    default: (void)snprintf(out, VALUE_CHARS, "%" PRId64, gguf_array_int(value, 0)); return;
    }
}

static void tell(char told[SAMPLING_CHARS], const char *option, const char *value) {
    const size_t used = strlen(told);
    const char *quote = strchr(value, ';') ? "'" : "";
    (void)snprintf(told + used, SAMPLING_CHARS - used, "%s%s %s%s%s", used ? " " : "", option,
                   quote, value, quote);
}

enum status cli_take_sampling(struct cli_options *o, const struct gguf *g,
                              char told[SAMPLING_CHARS], struct err *e) {
    told[0] = 0;
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++) {
        char key[KEY_CHARS], text[VALUE_CHARS];
        (void)snprintf(key, sizeof key, "general.sampling.%s", KEYS[i].key);
        const struct gguf_value *value = gguf_find(g, key);
        const struct option_spec *spec = value ? find_option(o, KEYS[i].option) : NULL;
        if (!spec || o->sampling_given[spec->offset - offsetof(struct cli_options, sampling)])
            continue;
        write_value(value, text);
        if (cli_value_set(o, spec, KEYS[i].option, text, e)) {
            err_context(e, "%s: key %s", gguf_part_name(g->parts), key);
            err_fix(e, "give %s, which counts instead", KEYS[i].option);
            return e->status = ERR_FORMAT;
        }
        tell(told, KEYS[i].option, text);
    }
    return OK;
}
