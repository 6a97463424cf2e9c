/* walk_schema.c: a tool of tests/golden/make_schema_golden.py: random texts of the grammars that
 * JSON schemas become.
 *
 *   walk_schema TEXTS < SCHEMAS
 *
 * Reads a schema per line; prints as many texts for each, one per line without line ends, then an
 * empty line. The same schemas give the same texts.
 */
#include "base/mem.h"
#include "base/utf8.h"
#include "runtime/grammar/grammar.h"
#include "runtime/grammar/grammar_schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_BYTES = 4096, LONG_BYTES = 48, TRIES = 100 };

static uint32_t draw(uint64_t *state, uint32_t n) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((*state >> 33) % n);
}

// One character that may follow; long texts go for their end.
static size_t choose(struct grammar_state *s, size_t length, uint64_t *random, char out[4]) {
    static const char closing[] = "\"}]0";
    for (int i = 0; closing[i] && length > LONG_BYTES; i++)
        if (grammar_allows(s, &closing[i], 1)) return out[0] = closing[i], 1;
    const uint32_t top = s->now.tops[draw(random, s->now.n_tops)];
    const struct grammar_element *set = &s->grammar->elements[s->nodes[top].element];
    const struct grammar_range *r = &s->grammar->ranges[set->value + draw(random, set->count)];
    const uint32_t width = r->last - r->first < 90 ? r->last - r->first + 1 : 90;
    return utf8_write(r->first + draw(random, width), out);
}

// False if the text does not come to an end.
static bool walk(struct grammar_state *s, uint64_t *random, char out[TEXT_BYTES]) {
    struct err e;
    size_t length = 0;
    grammar_state_reset(s);
    while (length + 5 < TEXT_BYTES) {
        if (grammar_can_end(s) && (s->now.n_tops == 0 || draw(random, 3) == 0))
            return out[length] = 0, true;
        const size_t n = choose(s, length, random, out + length);
        if (out[length] == '\n' || out[length] == '\t') continue;
        if (grammar_accept(s, out + length, n, &e)) return false;
        length += n;
    }
    return false;
}

static void print_texts(const char *schema, int n_texts, uint64_t *random) {
    struct grammar g;
    struct grammar_state s;
    struct err e;
    char *text, out[TEXT_BYTES];
    if (grammar_from_schema(&text, schema, strlen(schema), NULL, &e) ||
        grammar_parse(&g, text, strlen(text), "root", &e) || grammar_state_open(&s, &g, &e)) {
        fprintf(stderr, "walk_schema: %s: %s\n", schema, e.what);
        exit(1);
    }
    for (int i = 0, tries = 0; i < n_texts && tries < TRIES; tries++)
        if (walk(&s, random, out)) i += printf("%s\n", out) > 0;
    putchar('\n');
    grammar_state_close(&s);
    grammar_close(&g);
    mem_free(text);
}

int main(int argc, char **argv) {
    char line[TEXT_BYTES * 4];
    uint64_t random = 1;
    if (argc != 2) {
        fprintf(stderr, "usage: walk_schema TEXTS < SCHEMAS\n");
        return 2;
    }
    while (fgets(line, sizeof line, stdin)) print_texts(line, atoi(argv[1]), &random);
    return 0;
}
