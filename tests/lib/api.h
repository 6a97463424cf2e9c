/* api.h: a tiny model behind the public interface, for the tests of the library: an engine whose
 * callbacks are noted, and answers that are always the same.
 *
 * A struct api_fixture owns an engine and the file of its model until api_teardown. Every call
 * fails the test that runs if the library fails. Used by tests/runtime/test_library.c and
 * test_library_sessions.c.
 */
#ifndef TANDEM_TESTS_LIB_API_H
#define TANDEM_TESTS_LIB_API_H

#include "runtime/tandem.h"
#include "tests/lib/tiny_model.h"

enum {
    API_LAYERS = 3,
    API_PROMPT = 90,
    API_CTX = 128,
    API_UBATCH = 16,
    API_TEXT_BYTES = 2048,
    API_END = 256
};

// Text of an answer, and what its callback does.
struct api_taken {
    char text[API_TEXT_BYTES];
    size_t length;
    int n_calls, stop_at;         // stop_at 0: never
    struct tandem_engine *cancel; // in the call stop_at instead of stopping; NULL: not
};

// Callbacks of an engine.
struct api_listener {
    struct tandem_engine *cancel; // at the first "prefill"; NULL: not
    bool from_thread;             // by another thread
    const char *refuse;           // what to answer false to; NULL: nothing
    int n_load, n_prefill, n_lines;
    uint64_t done;  // as the last "prefill" told
    char line[256]; // the last one at TANDEM_LOG_WARN
};

struct api_fixture {
    char path[64];
    int32_t prompt[API_PROMPT];
    struct api_listener listener;
    struct tandem_engine_options options;
    struct tandem_sampling greedy;
    struct tandem_engine *engine;
};

int api_setup(void **state); // for cmocka: *state is a struct api_fixture
int api_teardown(void **state);

// A model with a template of ChatML. There are no 9999 tokens: as bos that is worth a warning.
void api_write_model(const char *path, uint32_t bos, int32_t end_of_turn);

void api_ok(enum tandem_status status, const struct tandem_error *e);
struct tandem_session *api_session(const struct api_fixture *f); // a new one
size_t api_length(const struct tandem_session *session);
bool api_take(void *context, const char *text, size_t length); // on_text; context: api_taken
// Options for max_tokens, always the likeliest, taken by *t.
struct tandem_generate_options api_options(struct api_fixture *f, struct api_taken *t,
                                           int32_t max_tokens);
// The text and, if not NULL, the tokens[max_tokens] of an answer to the prompt in a new session.
void api_answer(struct api_fixture *f, int32_t max_tokens, struct api_taken *t, int32_t *tokens);
void api_logits(const struct api_fixture *f, size_t i, float out[TINY_VOCAB]);

#endif
