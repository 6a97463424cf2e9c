/* pretokenize.c: see pretokenize.h. The patterns are those of the published tokenizer files of each
 * family, with white space and CJK written as ranges, since \s of PCRE2 holds U+180E, which is no
 * white space since Unicode 6.3.
 */
#include "runtime/text/pretokenize.h"

#include "base/mem.h"
#include "base/utf8.h"
#include "base/regex/regex.h"

#include <string.h>

enum { MAX_PATTERNS = 6 };

struct pretokenizer {
    struct regex *patterns[MAX_PATTERNS]; // owned
    int n_patterns;
    struct pretokenizer_traits traits;
};

// ---- The patterns -------------------------------------------------------------------------------

// Contents of character classes: white space, upper-like and lower-like letters, CJK.
#define SPACE  \
    "\\t-\\r " \
    "\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define UPPER "\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}"
#define LOWER "\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}"
#define CJK   "\\x{4e00}-\\x{9fa5}\\x{800}-\\x{4e00}\\x{ac00}-\\x{d7ff}"
// The cased letters of Unicode 11 outside mathematics, as the first DeepSeek tokenizers list them.
#define CASED_2018                                                                          \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"          \
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}"  \
    "\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}"           \
    "\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}"                \
    "\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}"          \
    "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}"          \
    "\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}" \
    "\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}"  \
    "\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}"          \
    "\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}"           \
    "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}"            \
    "\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}" \
    "\\x{214e}\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}"  \
    "\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}"           \
    "\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}"          \
    "\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}"        \
    "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}"  \
    "\\x{118a0}-\\x{118df}\\x{1e900}-\\x{1e943}"
// The Asian scripts that Trinity keeps apart.
#define ASIAN                                                                      \
    "\\x{4e00}-\\x{9fff}\\x{3400}-\\x{4dbf}\\x{f900}-\\x{faff}\\x{3040}-\\x{30ff}" \
    "\\x{ff65}-\\x{ff9f}\\x{2f00}-\\x{2fdf}\\x{e40}-\\x{eff}\\x{1780}-\\x{17ff}"   \
    "\\x{1000}-\\x{109f}\\x{aa60}-\\x{aa7f}\\x{a9e0}-\\x{a9ff}\\x{ac00}-\\x{d7af}" \
    "\\x{1100}-\\x{11ff}"
// The script Han. PCRE2 before 10.40 means that by \p{Han}, later ones its extensions too.
#define HAN                                                                                \
    "\\x{2e80}-\\x{2e99}\\x{2e9b}-\\x{2ef3}\\x{2f00}-\\x{2fd5}\\x{3005}\\x{3007}"          \
    "\\x{3021}-\\x{3029}\\x{3038}-\\x{303b}\\x{3400}-\\x{4dbf}\\x{4e00}-\\x{9fff}"         \
    "\\x{f900}-\\x{fa6d}\\x{fa70}-\\x{fad9}\\x{16fe2}\\x{16fe3}\\x{16ff0}\\x{16ff1}"       \
    "\\x{20000}-\\x{2a6df}\\x{2a700}-\\x{2b739}\\x{2b740}-\\x{2b81d}\\x{2b820}-\\x{2cea1}" \
    "\\x{2ceb0}-\\x{2ebe0}\\x{2ebf0}-\\x{2ee5d}\\x{2f800}-\\x{2fa1d}\\x{30000}-\\x{3134a}" \
    "\\x{31350}-\\x{323af}"
#define KANA_AND_HAN "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+"
// Whole alternatives.
#define ANY_CASE   "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LOWER_CASE "'s|'t|'re|'ve|'m|'ll|'d"
#define LEAD       "[^\\r\\n\\p{L}\\p{N}]?"
#define OTHER      " ?[^" SPACE "\\p{L}\\p{N}]+"
#define BLANK      "[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"
#define LINES      "[" SPACE "]*[\\r\\n]+|" BLANK

// Whole patterns.
#define GPT2   LOWER_CASE "| ?\\p{L}+| ?\\p{N}+|" OTHER "|" BLANK
#define LLAMA3 ANY_CASE "|" LEAD "\\p{L}+|\\p{N}{1,3}|" OTHER "[\\r\\n]*|" LINES
#define QWEN2  ANY_CASE "|" LEAD "\\p{L}+|\\p{N}|" OTHER "[\\r\\n]*|" LINES
#define QWEN35 \
    ANY_CASE "|" LEAD "[\\p{L}\\p{M}]+|\\p{N}| ?[^" SPACE "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" LINES
#define SEED_CODER ANY_CASE "|" LEAD "\\p{L}+|\\p{N}| ?[^" SPACE "\\p{L}\\p{N}\\r\\n]+|" LINES
#define BAILING    ANY_CASE "|" LEAD "\\p{L}+|\\p{N}|" OTHER "[\\r\\n]*|[" SPACE "]*[\\r\\n]|" BLANK
#define MINICPM5   ANY_CASE "|" LEAD "\\p{L}+|\\p{N}+|" OTHER "[\\r\\n]*|" LINES
#define UFAKZEKA   LEAD "\\p{L}+|\\p{N}|" OTHER "[\\r\\n]*|" LINES
// Words take single spaces in.
#define EXAONE_MOE                                                                               \
    ANY_CASE "|" LEAD "(?:\\p{L}\\p{M}*(?: \\p{L}\\p{M}*)*)+|\\p{N}|" OTHER "[\\r\\n/]?|[" SPACE \
             "]*[\\r\\n]|" BLANK
#define BLANKS(n) "[" SPACE "]{" n "}(?![^" SPACE "])|"
#define JAIS2                                                                                   \
    ANY_CASE "|" LEAD "\\p{L}+|\\p{N}{1,3}|" OTHER "[\\r\\n]*|[" SPACE                          \
             "]*[\\r\\n]+|" BLANKS("512") BLANKS("256") BLANKS("128") BLANKS("64") BLANKS("32") \
                 BLANKS("16") BLANKS("8") BLANKS("4") BLANKS("1,2") "[" SPACE "]"
#define TEKKEN                                                                     \
    LEAD "[" UPPER "]*[" LOWER "]+|" LEAD "[" UPPER "]+[" LOWER "]*|\\p{N}|" OTHER \
         "[\\r\\n/]*|" LINES
// Words that begin anew at a capital letter.
#define CAMEL \
    LEAD "[" UPPER "]*[" LOWER "]+" ANY_CASE "?|" LEAD "[" UPPER "]+[" LOWER "]*" ANY_CASE "?|"
#define O200K CAMEL "\\p{N}{1,3}|" OTHER "[\\r\\n/]*|" LINES
#define YOUTU CAMEL "\\p{N}|" OTHER "[\\r\\n/]*|" LINES
#define YOUTU_ASIAN                                                                     \
    "[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]+|"                                        \
    "[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}\\x{2014}\\x{ff1a}"         \
    "\\x{ff1b}\\x{ff0c}\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]+|[\\x{3105}-\\x{312f}]+" \
    "|" KANA_AND_HAN
#define KIMI_UPPER "(?:(?![" HAN "])[" UPPER "])"
#define KIMI_LOWER "(?:(?![" HAN "])[" LOWER "])"
#define KIMI                                                                                      \
    "[" HAN "]+|" LEAD KIMI_UPPER "*" KIMI_LOWER "+" ANY_CASE "?|" LEAD KIMI_UPPER "+" KIMI_LOWER \
    "*" ANY_CASE "?|\\p{N}{1,3}|" OTHER "[\\r\\n]*|" LINES
#define BLOOM " ?[^(" SPACE "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]+"
// Threes of digits that end where the digits end: whatever the first of them finds there holds for
// the others too, which keeps the search linear.
#define THREES(digit, end) \
    "(?<!" digit ")" digit "{1,3}(?=(?:" digit "{3})*+" end ")|(?<=" digit ")\\G" digit "{3}"
// Behind them comes no character of words, as Oniguruma lists those.
#define WORD_END                                                                \
    "(?![\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}" \
    "\\x{24b6}-\\x{24e9}\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}])"
#define SPARK                                                                \
    "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|" \
    " ?[\\p{P}\\p{S}]+|[\\r\\n]|" BLANK
#define DEEPSEEK3                                                            \
    "[!-/:-@\\[-`{-~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|" \
    " ?[\\p{P}\\p{S}]+[\\r\\n]*|" LINES
#define PUNCTUATION \
    "!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3000}-\\x{3002}"

enum trait { IGNORE_MERGES = 1, ADD_BOS = 2, NFC = 4, CHARACTERS = 8 };

// A group of pre-tokenizers: their names (each between bars), their traits, the patterns in order.
struct group {
    const char *names;
    unsigned traits;
    const char *patterns[MAX_PATTERNS];
};

static const struct group GROUPS[] = {
    {"|llama-bpe|llama3|llama-v3|falcon3|falcon-h1|pixtral|midm-2.0|lfm2|jina-v5-nano|",
     IGNORE_MERGES | ADD_BOS,
     {LLAMA3}},
    {"|glm4|glm5|", IGNORE_MERGES, {LLAMA3}},
    {"|dbrx|smaug-bpe|chatglm-bpe|", 0, {LLAMA3}},
    {"|minicpm5|", IGNORE_MERGES, {"\\p{N}{1,3}", MINICPM5}},
    {"|jais-2|", 0, {JAIS2}},
    {"|qwen2|deepseek-r1-qwen|", NFC, {QWEN2}},
    {"|megrez|stablelm2|hunyuan|solar-open|kormo|f2llmv2|grok-2|", 0, {QWEN2}},
    {"|qwen35|", NFC, {QWEN35}},
    {"|laguna|", 0, {"[^\\n]+|\\n+", QWEN2}},
    {"|seed-coder|", 0, {SEED_CODER}},
    {"|bailingmoe|bailingmoe2|llada-moe|", 0, {BAILING}},
    {"|exaone-moe|", 0, {EXAONE_MOE}},
    {"|ufakzeka|", 0, {UFAKZEKA}},
    {"|gpt-2|phi-2|mpt|olmo|jais|exaone4|trillion|granite-docling|gigachat|a.x-4.0|mellum|"
     "modern-bert|roberta-bpe|",
     0,
     {GPT2}},
    {"|smollm|starcoder|refact|command-r|codeshell|exaone|minerva-7b|mellum2|",
     0,
     {"\\p{N}", GPT2}},
    {"|tekken|", IGNORE_MERGES | ADD_BOS, {TEKKEN}},
    {"|gemma4|granite-embed-multi-311m|", CHARACTERS | ADD_BOS, {"\\n+|[^\\n]+"}},
    {"|sarvam-moe|", CHARACTERS, {"\\n+|[^\\n]+"}},
    {"|gpt-4o|llama4|kanana2|talkie|minimax-m2|", 0, {O200K}},
    {"|granite-embed-multi-97m|", IGNORE_MERGES, {O200K}},
    {"|tiny_aya|cohere2moe|", 0, {THREES("\\p{Nd}", WORD_END), O200K}},
    {"|youtu|", IGNORE_MERGES, {YOUTU_ASIAN, YOUTU}},
    {"|kimi-k2|", 0, {KIMI}},
    {"|deepseek-v3|hunyuan-dense|joyai-llm|hy_v4|", 0, {"\\p{N}{1,3}", KANA_AND_HAN, DEEPSEEK3}},
    {"|spark2_5|", 0, {"\\p{N}{1,3}", KANA_AND_HAN, SPARK, "\\p{N}"}},
    {"|afmoe|", 0, {THREES("\\p{N}", "(?!\\p{N})"), "[" ASIAN "]+", DEEPSEEK3}},
    {"|bloom|poro-chat|gpt3-finnish|", 0, {BLOOM}},
    {"|viking|", 0, {BLOOM, "\\p{N}"}},
    // The look-behind changes no match; it keeps the search for the last run linear.
    {"|deepseek-llm|",
     0,
     {"[\\r\\n]", "[" SPACE "]?[" CASED_2018 "]+", "[" SPACE "]?[" PUNCTUATION "]+",
      "(?<![" SPACE "])[" SPACE "]+\\z", "[" CJK "]+", "\\p{N}"}},
    {"|deepseek-coder|",
     0,
     {"[\\r\\n]", "[" SPACE "]?\\p{L}+", "[" SPACE "]?\\p{P}+", "[" CJK "]+", "\\p{N}"}},
    {"|falcon|", 0, {"[\\p{P}$+<=>^~|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {"|default|", 0, {"[\\p{P}$+<=>^~|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
};
enum { N_GROUPS = sizeof GROUPS / sizeof *GROUPS };

static const struct group *find_group(const char *name, size_t length) {
    if (length == 0 || memchr(name, '|', length)) return NULL;
    for (int g = 0; g < N_GROUPS; g++) {
        for (const char *at = GROUPS[g].names; at[1]; at = strchr(at + 1, '|'))
            if (strncmp(at + 1, name, length) == 0 && at[1 + length] == '|') return &GROUPS[g];
    }
    return NULL;
}

// ---- Opening ------------------------------------------------------------------------------------

enum status pretokenizer_open(struct pretokenizer **out, const char *name, size_t length,
                              struct err *e) {
    *out = NULL;
    const struct group *group = find_group(name, length);
    if (!group) {
        int shown = length < 64 ? (int)length : 64;
        err_set(e, ERR_UNSUPPORTED, "tokenizer.ggml.pre: unknown pre-tokenizer");
        err_expected(e, "llama-bpe, qwen2, qwen35, gpt-2, smollm, tekken, gpt-4o, deepseek-v3, "
                        "deepseek-llm, deepseek-coder, falcon, default or a name of their groups");
        err_actual(e, "%.*s", shown, name);
        return err_fix(e, "if the model uses one of these expressions, set tokenizer.ggml.pre to "
                          "that name in the file");
    }
    struct pretokenizer *p = mem_alloc(1, sizeof *p);
    if (!p) return err_memory(e, sizeof *p, "a pre-tokenizer");
    p->traits = (struct pretokenizer_traits){
        .ignore_merges = group->traits & IGNORE_MERGES,
        .add_bos = group->traits & ADD_BOS,
        .nfc = group->traits & NFC,
        .characters = group->traits & CHARACTERS,
    };
    for (int i = 0; i < MAX_PATTERNS && group->patterns[i]; i++) {
        if (regex_open(&p->patterns[i], group->patterns[i], REGEX_UTF8 | REGEX_FAST, e)) goto fail;
        p->n_patterns++;
    }
    *out = p;
    return OK;
fail:
    ASSERT(e->status == ERR_MEMORY); // the patterns are constants
    pretokenizer_close(p);
    return e->status;
}

void pretokenizer_close(struct pretokenizer *p) {
    if (!p) return;
    for (int i = 0; i < p->n_patterns; i++) regex_close(p->patterns[i]);
    mem_free(p);
}

const struct pretokenizer_traits *pretokenizer_traits(const struct pretokenizer *p) {
    return &p->traits;
}

// ---- Splitting ----------------------------------------------------------------------------------

static enum status make_room(struct split_list *list, size_t wanted, struct err *e) {
    if (wanted <= list->capacity) return OK;
    size_t capacity = list->capacity ? list->capacity : 64;
    while (capacity < wanted) capacity *= 2;
    size_t *ends = mem_resize(list->ends, capacity, sizeof *ends);
    if (!ends) return err_memory(e, capacity * sizeof *ends, "words of a text");
    list->ends = ends;
    size_t *spare = mem_resize(list->spare, capacity, sizeof *spare);
    if (!spare) return err_memory(e, capacity * sizeof *spare, "words of a text");
    list->spare = spare;
    list->capacity = capacity;
    return OK;
}

static enum status add_end(struct split_list *list, size_t end, struct err *e) {
    if (list->count == list->capacity && make_room(list, list->count + 1, e) != OK)
        return e->status;
    list->ends[list->count++] = end;
    return OK;
}

// The state of one call of pretokenizer_split.
struct run {
    struct regex_search search;
    const char *text; // valid UTF-8
    struct split_list *list;
};

// Cuts the word [first, last) into matches of pattern and the gaps between them.
static enum status split_word(struct run *run, const struct regex *pattern, size_t first,
                              size_t last, struct err *e) {
    const struct regex_search *found = &run->search;
    size_t length = last - first, done = 0;
    while (done < length) {
        // Words end between characters.
        if (regex_find(&run->search, pattern, run->text + first, length, done, e))
            return e->status == ERR_LIMIT ? err_context(e, "text cannot be cut into words")
                                          : e->status;
        if (!found->found) break;
        ASSERT(found->last > found->first); // no pattern matches nothing
        if (found->first > done && add_end(run->list, first + found->first, e) != OK)
            return e->status;
        if (add_end(run->list, first + found->last, e) != OK) return e->status;
        done = found->last;
    }
    return done < length ? add_end(run->list, last, e) : OK;
}

// Splits every word of the list with one more pattern.
static enum status apply(struct run *run, const struct regex *pattern, struct err *e) {
    struct split_list *list = run->list;
    size_t n_words = list->count;
    size_t *words = list->ends;
    list->ends = list->spare;
    list->spare = words;
    list->count = 0;
    for (size_t i = 0, first = 0; i < n_words; i++) {
        size_t last = list->spare[i];
        enum status status = split_word(run, pattern, first, last, e);
        if (status != OK) return status;
        first = last;
    }
    return OK;
}

// Copies the text with U+0001 for each byte that is not part of a character. NULL if memory is
// refused.
static char *make_valid(const char *text, size_t length) {
    char *copy = mem_alloc(length, 1);
    if (!copy) return NULL;
    memcpy(copy, text, length);
    for (size_t at = 0; at < length;) {
        size_t step;
        bool whole = utf8_look(text + at, length - at, &step) == UTF8_WHOLE;
        if (!whole) copy[at] = 1;
        at += whole ? step : 1;
    }
    return copy;
}

enum status pretokenizer_split(const struct pretokenizer *p, const char *text, size_t length,
                               struct split_list *out, struct err *e) {
    ASSERT(p);
    out->count = 0;
    if (length == 0) return OK;
    struct run run = {.text = text, .list = out};
    char *copy = NULL;
    if (!utf8_valid(text, length)) {
        run.text = copy = make_valid(text, length);
        if (!copy) return err_memory(e, length, "text to be cut into words");
    }
    // A run of one letter may be as long as the text.
    enum status status = regex_search_open(&run.search, UINT32_MAX, e);
    if (status == OK) status = add_end(out, length, e);
    for (int i = 0; i < p->n_patterns && status == OK; i++) status = apply(&run, p->patterns[i], e);
    regex_search_close(&run.search);
    mem_free(copy);
    return status;
}

void split_list_close(struct split_list *list) {
    mem_free(list->ends);
    mem_free(list->spare);
    *list = (struct split_list){0};
}
