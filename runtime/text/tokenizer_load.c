/* tokenizer_load.c: loads the tables of a tokenizer from the tokenizer.ggml.* keys of a GGUF file.
 *
 * Fills a zeroed struct tokenizer, which owns its tables. Nothing in the file is trusted: arrays
 * are checked for type and length, ids for range. Called once, by tokenizer_open. Tested by
 * tests/runtime/test_tokenizer.c, test_tokenizer_families.c and tests/fuzz/fuzz_tokenizer.c.
 */
#include "runtime/text/tokenizer_internal.h"

#include "base/mem.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

// ---- Special tokens in text ---------------------------------------------------------------------

static bool is_user_defined(const struct tokenizer *t, int32_t id) {
    return kind_of(t, id) == TOKEN_USER_DEFINED;
}

static bool is_control(const struct tokenizer *t, int32_t id) {
    return kind_of(t, id) == TOKEN_CONTROL || kind_of(t, id) == TOKEN_UNKNOWN;
}

static bool is_special(const struct tokenizer *t, int32_t id) {
    return is_control(t, id) || is_user_defined(t, id);
}

// SentencePiece finds its user-defined tokens after it has replaced spaces by U+2581.
static enum status build_sets(struct tokenizer *t, struct err *e) {
    if (t->spm) {
        if (special_set_build(t, &t->parsed, is_control, e) != OK) return e->status;
        return special_set_build(t, &t->frozen, is_user_defined, e);
    }
    if (special_set_build(t, &t->parsed, is_special, e) != OK) return e->status;
    return special_set_build(t, &t->always, is_user_defined, e);
}

// ---- Single keys --------------------------------------------------------------------------------

// Reads an optional token id; one that is out of range is ignored with a warning.
static void load_id(const struct tokenizer *t, const struct gguf *g, const char *key, int32_t *id) {
    const struct gguf_value *value = gguf_find(g, key);
    if (!value) return;
    if (value->type == GGUF_ARRAY || value->type == GGUF_STRING || value->type == GGUF_F32 ||
        value->type == GGUF_F64) {
        log_line(t->log, LOG_WARN, "%s is not a number and is ignored", key);
        return;
    }
    int64_t number = gguf_array_int(value, 0);
    if (number >= 0 && number < t->count)
        *id = (int32_t)number;
    else
        log_line(t->log, LOG_WARN, "%s is %" PRId64 ", but there are %" PRIu32 " tokens; ignored",
                 key, number, t->count);
}

// ---- Tokens that end a generation ---------------------------------------------------------------

// Names that end a turn or a text in some family. sure: no family uses the name for anything else,
// so a token marked as normal text is an error of the converter.
static const struct {
    const char *text;
    bool sure;
} END_NAMES[] = {
    {"<|eot_id|>", true},
    {"<|im_end|>", true},
    {"<|end|>", true},
    {"<|return|>", true},
    {"<|call|>", true},
    {"<|flush|>", true},
    {"<|calls|>", true},
    {"<end_of_turn>", true},
    {"<|endoftext|>", true},
    {"<|eom_id|>", true},
    {"<|end_of_text|>", true},
    {"<end_of_utterance>", true},
    {"<turn|>", true},
    {"<|tool_response>", true},
    {"<\xef\xbd\x9c"
     "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
     true},
    {"</s>", false},
    {"<EOT>", false},
    {"_<EOT>", false},
    {"[EOT]", false},
    {"[EOS]", false},
    {"<eos>", false},
    {"[e~[", false},
    {"<|fim_pad|>", false},
    {"<fim-pad>", false},
    {"<fim_pad>", false},
    {"<PAD>", false},
    {"[PAD]", false},
    {"<|repo_name|>", false},
    {"<|fim_repo|>", false},
    {"<fim-repo>", false},
    {"<REPO>", false},
    {"<reponame>", false},
    {"<|file_sep|>", false},
};

static int32_t find_name(const struct tokenizer *t, const char *text) {
    return vocabulary_find(t, text, strlen(text));
}

static void set_kind(struct tokenizer *t, int32_t id, enum token_kind kind) {
    t->flags[id] = (uint8_t)((t->flags[id] & ~(unsigned)TOKEN_KIND_MASK) | kind);
}

static void drop_end(struct tokenizer *t, const char *text) {
    int32_t id = find_name(t, text);
    if (id >= 0 && id != t->eos) t->flags[id] &= (uint8_t)~TOKEN_ENDS;
}

static void mark_ends(struct tokenizer *t, const struct gguf *g) {
    static const char *const keys[] = {
        "tokenizer.ggml.eot_token_id",     "tokenizer.ggml.eom_token_id",
        "tokenizer.ggml.fim_pad_token_id", "tokenizer.ggml.fim_rep_token_id",
        "tokenizer.ggml.fim_sep_token_id",
    };
    if (t->eos >= 0) t->flags[t->eos] |= TOKEN_ENDS;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        int32_t id = -1;
        load_id(t, g, keys[i], &id);
        if (id >= 0) t->flags[id] |= TOKEN_ENDS;
    }
    for (size_t i = 0; i < sizeof END_NAMES / sizeof *END_NAMES; i++) {
        int32_t id = find_name(t, END_NAMES[i].text);
        if (id < 0 || !(END_NAMES[i].sure || is_special(t, id))) continue;
        t->flags[id] |= TOKEN_ENDS;
        if (END_NAMES[i].sure && kind_of(t, id) != TOKEN_CONTROL) {
            log_line(t->log, LOG_WARN, "token %s is typed as text; taken as a control token",
                     END_NAMES[i].text);
            set_kind(t, id, TOKEN_CONTROL);
        }
    }
}

// DeepSeek writes its marks with these letters.
#define BAR "\xef\xbd\x9c"
#define LOW "\xe2\x96\x81"

// Marks around what a model thinks, and around calls of tools, are printed, so that these can be
// told from the answer.
static const char *const SHOWN_MARKS[] = {
    "<think>",
    "</think>",
    "<seed:think>",
    "</seed:think>",
    "<|channel>",
    "<channel|>",
    "[THINK]",
    "[/THINK]",
    "<|START_THINKING|>",
    "<|END_THINKING|>",
    "<|START_RESPONSE|>",
    "<|END_RESPONSE|>",
    "<|START_TEXT|>",
    "<|END_TEXT|>",
    "<|START_ACTION|>",
    "<|END_ACTION|>",
    "<|inner_prefix|>",
    "<|inner_suffix|>",
    "<|tools_prefix|>",
    "<|tools_suffix|>",
    "[BEGIN FINAL RESPONSE]",
    "[END FINAL RESPONSE]",
    "<response>",
    "</response>",
    "<answer>",
    "</answer>",
    "<tool_call>",
    "</tool_call>",
    "<tool_calls>",
    "</tool_calls>",
    "<function",
    "</function>",
    "<param",
    "</param>",
    "<minimax:tool_call>",
    "</minimax:tool_call>",
    BAR "DSML" BAR,
    "<|function_call|>",
    "<TOOLCALL>",
    "</TOOLCALL>",
    "<seed:tool_call>",
    "</seed:tool_call>",
    "<|tool_call>",
    "<tool_call|>",
    "<|\"|>",
    "[TOOL_CALLS]",
    "[CALL_ID]",
    "[ARGS]",
    "<|tool_call|>",
    "<|/tool_call|>",
    "<|python_tag|>",
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<|tool_calls_section_begin|>",
    "<|tool_calls_section_end|>",
    "<|tool_call_begin|>",
    "<|tool_call_start|>",
    "<|tool_call_argument_begin|>",
    "<|tool_call_end|>",
    "<" BAR "tool" LOW "calls" LOW "begin" BAR ">",
    "<" BAR "tool" LOW "calls" LOW "end" BAR ">",
    "<" BAR "tool" LOW "call" LOW "begin" BAR ">",
    "<" BAR "tool" LOW "call" LOW "end" BAR ">",
    "<" BAR "tool" LOW "sep" BAR ">",
};

static void show_marks(struct tokenizer *t, const char *const *marks, size_t n) {
    for (size_t i = 0; i < n; i++) {
        int32_t id = find_name(t, marks[i]);
        if (id >= 0) t->flags[id] |= TOKEN_SHOWN;
    }
}

// True if the file calls the model "Phi-3-mini", "Phi3" or, as converters write it, "Phi 3 Mini".
static bool is_phi3(const struct gguf *g) {
    struct gguf_text text = {0};
    struct err ignored;
    if (gguf_read_text(g, "general.name", &text, &ignored) != OK) return false;
    for (uint64_t i = 0; i + 4 <= text.length; i++) {
        const char *name = text.bytes + i;
        if (strncasecmp(name, "phi", 3) != 0) continue;
        const bool apart = name[3] == '-' || name[3] == ' ';
        if (i + 3 + apart < text.length && name[3 + apart] == '3') return true;
    }
    return false;
}

// In families whose replies have several parts <|end|> ends one of them, and is a mark like others.
static void mark_parts(struct tokenizer *t) {
    static const char *const harmony[] = {"<|channel|>", "<|message|>", "<|start|>",
                                          "<|constrain|>", "<|end|>"};
    static const char *const solar[] = {
        "<|begin|>",        "<|think|>",           "<|content|>",        "<|end|>",
        "<|tool_calls|>",   "<|tool_call:begin|>", "<|tool_call:name|>", "<|tool_call:args|>",
        "<|tool_call:end|>"};
    if (find_name(t, "<|return|>") >= 0 && find_name(t, "<|call|>") >= 0) {
        drop_end(t, "<|end|>");
        show_marks(t, harmony, sizeof harmony / sizeof *harmony);
    }
    if (find_name(t, "<|calls|>") >= 0 && find_name(t, "<|flush|>") >= 0) {
        drop_end(t, "<|end|>"); // of Solar Open: it ends a thought too, before the answer
        show_marks(t, solar, sizeof solar / sizeof *solar);
    }
}

// Handles families that use a common name for something else.
static void mark_families(struct tokenizer *t, const struct gguf *g) {
    mark_parts(t);
    // The end of struck-out text in HTML, a token of Gemma that its earlier files call
    // user-defined.
    const int32_t tag = find_name(t, "</s>");
    if (find_name(t, "<|tool_response>") >= 0 || (tag >= 0 && is_user_defined(t, tag)))
        drop_end(t, "</s>");
    show_marks(t, SHOWN_MARKS, sizeof SHOWN_MARKS / sizeof *SHOWN_MARKS);

    if (!is_phi3(g)) return;
    for (uint32_t id = 0; id < t->count; id++)
        if (is_special(t, (int32_t)id)) t->flags[id] |= TOKEN_EATS_SPACE;
    static const char *const plain[] = {"<unk>", "<s>", "<|endoftext|>"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        int32_t id = find_name(t, plain[i]);
        if (id >= 0) t->flags[id] &= (uint8_t)~TOKEN_EATS_SPACE;
    }
}

// ---- The vocabulary -----------------------------------------------------------------------------

static enum status load_model(struct tokenizer *t, const struct gguf *g, struct err *e) {
    struct gguf_text model = {0};
    if (gguf_read_text(g, "tokenizer.ggml.model", &model, e) != OK) return e->status;
    if (!model.bytes) {
        err_set(e, ERR_FORMAT, "tokenizer.ggml.model: missing, the file holds no vocabulary");
        return err_fix(e, "give the file of the language model itself");
    }
    if (model.length == 4 && memcmp(model.bytes, "gpt2", 4) == 0) return OK;
    t->characters = model.length == 6 && memcmp(model.bytes, "gemma4", 6) == 0;
    if (t->characters) return OK;
    t->unigram = model.length == 2 && memcmp(model.bytes, "t5", 2) == 0;
    t->spm = t->unigram || (model.length == 5 && memcmp(model.bytes, "llama", 5) == 0);
    if (t->spm) return OK;
    err_set(e, ERR_UNSUPPORTED, "tokenizer.ggml.model: unknown kind of tokenizer");
    err_expected(e, "gpt2 (byte-level BPE), gemma4 (BPE of characters), llama (SentencePiece BPE) "
                    "or t5 (SentencePiece unigram)");
    return err_actual(e, "%.*s", model.length < 64 ? (int)model.length : 64, model.bytes);
}

static enum status load_pieces(struct tokenizer *t, const struct gguf *g, struct err *e) {
    const char *key = "tokenizer.ggml.tokens";
    const struct gguf_value *tokens = gguf_find(g, key);
    if (!tokens) return err_set(e, ERR_FORMAT, "%s: missing", key);
    if (tokens->type != GGUF_ARRAY || tokens->element != GGUF_STRING) {
        char text[64];
        err_set(e, ERR_FORMAT, "%s: wrong type", key);
        err_expected(e, "array of string");
        return err_actual(e, "%s", gguf_type_text(tokens, text, sizeof text));
    }
    if (tokens->count == 0 || tokens->count > MAX_TOKENS) {
        err_set(e, ERR_FORMAT, "%s: wrong number of tokens", key);
        err_expected(e, "1 to %d", MAX_TOKENS);
        return err_actual(e, "%" PRIu64, tokens->count);
    }
    t->count = (uint32_t)tokens->count;
    t->pieces = mem_alloc(t->count, sizeof *t->pieces);
    t->flags = mem_alloc(t->count, sizeof *t->flags);
    if (!t->pieces || !t->flags)
        return err_memory(e, t->count * (sizeof *t->pieces + 1), "the vocabulary");
    const uint8_t *cursor = NULL;
    for (uint32_t id = 0; id < t->count; id++) {
        if (!gguf_next_text(tokens, &cursor, &t->pieces[id])) break;
        if (t->pieces[id].length > t->longest_piece) t->longest_piece = t->pieces[id].length;
    }
    if (t->longest_piece > MAX_PIECE_BYTES) {
        err_set(e, ERR_FORMAT, "%s: a token is too long", key);
        err_expected(e, "at most %d bytes", MAX_PIECE_BYTES);
        return err_actual(e, "%" PRIu64, t->longest_piece);
    }
    return OK;
}

static enum status load_kinds(struct tokenizer *t, const struct gguf *g, struct err *e) {
    const char *key = "tokenizer.ggml.token_type";
    const struct gguf_value *kinds = gguf_find(g, key);
    if (!kinds) {
        log_line(t->log, LOG_WARN, "%s is missing; no token is taken as special by its type", key);
        memset(t->flags, TOKEN_NORMAL, t->count);
        return OK;
    }
    if (kinds->type != GGUF_ARRAY || kinds->element == GGUF_STRING || kinds->element == GGUF_F32 ||
        kinds->element == GGUF_F64 || kinds->count < t->count) {
        char text[64];
        err_set(e, ERR_FORMAT, "%s: does not fit the tokens", key);
        err_expected(e, "array of i32, %" PRIu32 " elements", t->count);
        return err_actual(e, "%s, %" PRIu64, gguf_type_text(kinds, text, sizeof text),
                          kinds->count);
    }
    uint32_t n_odd = 0;
    for (uint32_t id = 0; id < t->count; id++) {
        int64_t kind = gguf_array_int(kinds, id);
        bool known = kind >= TOKEN_NORMAL && kind <= TOKEN_BYTE;
        n_odd += !known;
        t->flags[id] = (uint8_t)(known ? kind : TOKEN_NORMAL);
    }
    if (n_odd > 0)
        log_line(t->log, LOG_WARN, "%s: %" PRIu32 " token%s of unknown type %s taken as text", key,
                 n_odd, n_odd == 1 ? "" : "s", n_odd == 1 ? "is" : "are");
    return OK;
}

// Characters without a token become the unknown token, so it must not be a control token.
static void settle_unknown(struct tokenizer *t) {
    if (t->unknown < 0) return;
    if (t->unknown == t->bos || (t->flags[t->unknown] & TOKEN_ENDS)) {
        log_line(t->log, LOG_WARN,
                 "the unknown token begins or ends a text; texts with characters "
                 "without a token are refused instead");
        t->unknown = -1;
    } else {
        set_kind(t, t->unknown, TOKEN_UNKNOWN);
    }
}

enum status tokenizer_load(struct tokenizer *t, const struct gguf *g, struct err *e) {
    t->bos = t->eos = t->unknown = -1;
    if (load_model(t, g, e) != OK || load_pieces(t, g, e) != OK || load_kinds(t, g, e) != OK)
        return e->status;
    const bool gemma4 = t->characters;
    if (t->spm && spm_prepare(t, e) != OK) return e->status;
    if (piece_map_build(t, e) != OK) return e->status;
    load_id(t, g, "tokenizer.ggml.bos_token_id", &t->bos);
    load_id(t, g, "tokenizer.ggml.eos_token_id", &t->eos);
    load_id(t, g, "tokenizer.ggml.unknown_token_id", &t->unknown);
    if (t->eos < 0)
        log_line(t->log, LOG_WARN,
                 "tokenizer.ggml.eos_token_id is missing; only tokens known by "
                 "name end a text");
    mark_ends(t, g);
    mark_families(t, g);
    if (t->spm) settle_unknown(t);
    // The family knows whether BOS comes first; the keys override it.
    if ((t->spm ? spm_load : bpe_load)(t, g, e) != OK) return e->status;
    if (t->unigram && unigram_load(t, g, e) != OK) return e->status;
    if (gguf_read_bool(g, "tokenizer.ggml.add_bos_token", &t->add_bos, e) != OK ||
        gguf_read_bool(g, "tokenizer.ggml.add_eos_token", &t->add_eos, e) != OK)
        return e->status;
    // The converters of Gemma 4 write that there is no BOS, but the model needs it.
    if (gemma4 || (t->characters && pretokenizer_traits(t->pretokenizer)->add_bos))
        t->add_bos = t->bos >= 0;
    return build_sets(t, e);
}
