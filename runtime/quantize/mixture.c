/* mixture.c: see mixture.h. */
#include "runtime/quantize/mixture.h"

#include "base/mem.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum file_type { // numbers of general.file_type
    FILE_F32 = 0,
    FILE_F16 = 1,
    FILE_Q4_0 = 2,
    FILE_Q4_1 = 3,
    FILE_Q8_0 = 7,
    FILE_Q5_0 = 8,
    FILE_Q5_1 = 9,
    FILE_Q2_K = 10,
    FILE_Q3_K_S = 11,
    FILE_Q3_K_M = 12,
    FILE_Q3_K_L = 13,
    FILE_Q4_K_S = 14,
    FILE_Q4_K_M = 15,
    FILE_Q5_K_S = 16,
    FILE_Q5_K_M = 17,
    FILE_Q6_K = 18,
    FILE_IQ2_XXS = 19,
    FILE_IQ2_XS = 20,
    FILE_Q2_K_S = 21,
    FILE_IQ3_XS = 22,
    FILE_IQ3_XXS = 23,
    FILE_IQ4_NL = 25,
    FILE_IQ3_S = 26,
    FILE_IQ3_M = 27,
    FILE_IQ2_S = 28,
    FILE_IQ2_M = 29,
    FILE_IQ4_XS = 30,
    FILE_BF16 = 32,
    FILE_TQ1_0 = 36,
    FILE_TQ2_0 = 37,
    FILE_MXFP4 = 38,
};

static const struct mixture mixtures[] = {
    {"F32", FILE_F32, DTYPE_F32},           {"BF16", FILE_BF16, DTYPE_BF16},
    {"F16", FILE_F16, DTYPE_F16},           {"COPY", FILE_F32, DTYPE_COUNT},
    {"Q8_0", FILE_Q8_0, DTYPE_Q8_0},        {"Q6_K", FILE_Q6_K, DTYPE_Q6_K},
    {"Q5_K_M", FILE_Q5_K_M, DTYPE_Q5_K},    {"Q5_K_S", FILE_Q5_K_S, DTYPE_Q5_K},
    {"Q5_1", FILE_Q5_1, DTYPE_Q5_1},        {"Q5_0", FILE_Q5_0, DTYPE_Q5_0},
    {"Q4_K_M", FILE_Q4_K_M, DTYPE_Q4_K},    {"Q4_K_S", FILE_Q4_K_S, DTYPE_Q4_K},
    {"Q4_1", FILE_Q4_1, DTYPE_Q4_1},        {"Q4_0", FILE_Q4_0, DTYPE_Q4_0},
    {"IQ4_NL", FILE_IQ4_NL, DTYPE_IQ4_NL},  {"IQ4_XS", FILE_IQ4_XS, DTYPE_IQ4_XS},
    {"MXFP4_MOE", FILE_MXFP4, DTYPE_MXFP4}, {"Q3_K_L", FILE_Q3_K_L, DTYPE_Q3_K},
    {"Q3_K_M", FILE_Q3_K_M, DTYPE_Q3_K},    {"Q3_K_S", FILE_Q3_K_S, DTYPE_Q3_K},
    {"Q2_K", FILE_Q2_K, DTYPE_Q2_K},        {"Q2_K_S", FILE_Q2_K_S, DTYPE_Q2_K},
    {"IQ3_M", FILE_IQ3_M, DTYPE_IQ3_S},     {"IQ3_S", FILE_IQ3_S, DTYPE_IQ3_S},
    {"IQ3_XS", FILE_IQ3_XS, DTYPE_IQ3_S},   {"IQ3_XXS", FILE_IQ3_XXS, DTYPE_IQ3_XXS},
    {"IQ2_M", FILE_IQ2_M, DTYPE_IQ2_S},     {"IQ2_S", FILE_IQ2_S, DTYPE_IQ2_XS},
    {"IQ2_XS", FILE_IQ2_XS, DTYPE_IQ2_XS},  {"IQ2_XXS", FILE_IQ2_XXS, DTYPE_IQ2_XXS},
    {"TQ2_0", FILE_TQ2_0, DTYPE_TQ2_0},     {"TQ1_0", FILE_TQ1_0, DTYPE_TQ1_0},
};
enum { N_MIXTURES = sizeof mixtures / sizeof *mixtures };

// True if the name is the mixture's, or that without the M of the medium K type of three.
static bool is_name_of(const struct mixture *m, const char *name) {
    const size_t length = strlen(m->name);
    if (strcasecmp(name, m->name) == 0) return true;
    return length > 4 && strcmp(m->name + length - 4, "_K_M") == 0 && strlen(name) == length - 2 &&
           strncasecmp(name, m->name, length - 2) == 0;
}

enum status mixture_find(const struct mixture **out, const char *name, struct err *e) {
    char known[sizeof e->expected] = "";
    for (int i = 0; i < N_MIXTURES; i++) {
        *out = &mixtures[i];
        if (is_name_of(&mixtures[i], name)) return OK;
        err_list_add(known, sizeof known, mixtures[i].name);
    }
    err_set(e, ERR_USAGE, "no mixture of types has this name");
    err_expected(e, "%s", known);
    return err_actual(e, "'%.40s'", name);
}

bool mixture_copies(const struct mixture *m) { return m->base == DTYPE_COUNT; }

// ---- Names of tensors ---------------------------------------------------------------------------

enum role {
    ROLE_OUTPUT,
    ROLE_EMBEDDING,
    ROLE_VALUES, // and what holds the values too
    ROLE_KEYS,
    ROLE_QUERIES,
    ROLE_ATTENTION_OUTPUT,
    ROLE_FFN_UP,
    ROLE_FFN_GATE,
    ROLE_FFN_DOWN,
    ROLE_OTHER
};

static bool holds(const struct gguf_tensor *t, const char *text) {
    return memmem(t->name.bytes, t->name.length, text, strlen(text)) != NULL;
}

static bool text_is(struct gguf_text a, const char *text) {
    return a.length == strlen(text) && memcmp(a.bytes, text, a.length) == 0;
}

static bool is_named(const struct gguf_tensor *t, const char *text) {
    return text_is(t->name, text);
}

static bool ends_with(const struct gguf_tensor *t, const char *text) {
    const size_t length = strlen(text);
    return t->name.length >= length &&
           memcmp(t->name.bytes + t->name.length - length, text, length) == 0;
}

static enum role role_of(const struct gguf_tensor *t) {
    if (is_named(t, "output.weight")) return ROLE_OUTPUT;
    if (is_named(t, "token_embd.weight") || is_named(t, "per_layer_token_embd.weight"))
        return ROLE_EMBEDDING;
    if (holds(t, "attn_v.weight") || holds(t, "attn_qkv.weight") || holds(t, "attn_kv_b.weight"))
        return ROLE_VALUES;
    if (holds(t, "attn_k.weight")) return ROLE_KEYS;
    if (holds(t, "attn_q.weight")) return ROLE_QUERIES;
    if (holds(t, "attn_output.weight")) return ROLE_ATTENTION_OUTPUT;
    if (holds(t, "ffn_up")) return ROLE_FFN_UP;
    if (holds(t, "ffn_gate")) return ROLE_FFN_GATE;
    return holds(t, "ffn_down") ? ROLE_FFN_DOWN : ROLE_OTHER;
}

// The number in "blk.N.", or -1.
static int64_t layer_of(const struct gguf_tensor *t) {
    static const char prefix[] = "blk.";
    const size_t first = sizeof prefix - 1;
    int64_t layer = 0;
    if (t->name.length <= first || memcmp(t->name.bytes, prefix, first) != 0) return -1;
    for (size_t i = first; i < t->name.length && i < first + 9; i++) {
        const char c = t->name.bytes[i];
        if (c == '.') return i > first ? layer : -1;
        if (c < '0' || c > '9') return -1;
        layer = 10 * layer + (c - '0');
    }
    return -1;
}

// Matrices that stay as they are: small ones, whose errors would cost more than their bytes.
static bool is_kept(const struct gguf_tensor *t) {
    static const char *const kept[] = {
        "_norm.weight",
        "ffn_gate_inp.weight",
        "ffn_gate_tid2eid.weight",
        "altup",
        "laurel",
        "per_layer_model_proj",
        "position_embd.weight",
        "token_types.weight",
        "ssm_conv1d",
        "shortconv.conv",
        "indexer.k_proj",
        "indexer.q_proj",
        "time_mix_first",
        "time_mix_w0",
        "time_mix_w1",
        "time_mix_w2",
        "time_mix_v0",
        "time_mix_v1",
        "time_mix_v2",
        "time_mix_a0",
        "time_mix_a1",
        "time_mix_a2",
        "time_mix_g1",
        "time_mix_g2",
        "time_mix_decay_w1",
        "time_mix_decay_w2",
        "time_mix_lerp_fused",
        "attn_rel_b.weight",
        ".position_embd",
        ".rel_pos",
        ".patch_embd",
        ".patch_merger",
        "sam.pos_embd",
        "sam.neck.",
        "sam.net_",
        "a.rvq.codebook",
        "mm.a.code_embd",
    };
    if (t->ne[1] * t->ne[2] * t->ne[3] <= 1 || !ends_with(t, "weight")) return true;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (holds(t, kept[i])) return true;
    return false;
}

// ---- The rules ----------------------------------------------------------------------------------

struct facts { // about the model
    const struct type_rules *rules;
    const bool *asked; // for each tensor: the mixture chooses its type
    enum file_type file;
    uint64_t n_layers, n_experts;
    bool tied;          // no output matrix: the embedding takes its place
    bool shares_values; // by many query heads, so that bits of them cost little
    bool groups_heads;  // by four and more: the same, in files of few bits
    bool has_importance;
};

// The first and last eighth of the layers and every third between them get more bits.
static bool more_bits(uint64_t i, uint64_t n) {
    return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
}

static bool base_is_q2(const struct facts *f) {
    return f->file == FILE_Q2_K || f->file == FILE_Q2_K_S;
}

static bool has_uneven_values(const struct facts *f) {
    return f->file == FILE_IQ4_NL || f->file == FILE_IQ4_XS;
}

static bool has_two_bits(const struct facts *f) {
    return f->file == FILE_IQ2_XXS || f->file == FILE_IQ2_XS || f->file == FILE_IQ2_S ||
           f->file == FILE_IQ2_M;
}

static bool has_three_bits(const struct facts *f) {
    return f->file == FILE_IQ3_XXS || f->file == FILE_IQ3_XS || f->file == FILE_IQ3_S ||
           f->file == FILE_IQ3_M;
}

// The type of files with a codebook of two bits, for what matters more than the rest.
static enum dtype better_type(const struct facts *f) {
    return f->file == FILE_IQ2_S || f->file == FILE_IQ2_M ? DTYPE_IQ3_S : DTYPE_Q2_K;
}

// Their types; i counts tensors of that role in lower layers.
static enum dtype two_bits_type(const struct facts *f, enum role role, enum dtype type,
                                uint64_t i) {
    const bool shares = f->groups_heads || f->n_experts >= 4;
    switch (role) {
    case ROLE_VALUES: return shares ? DTYPE_Q4_K : better_type(f);
    case ROLE_KEYS: return f->n_experts == 8 ? DTYPE_Q4_K : type;
    case ROLE_FFN_DOWN: return i < f->n_layers / 8 ? better_type(f) : type;
    case ROLE_ATTENTION_OUTPUT:
        if (f->n_experts == 8) return DTYPE_Q5_K;
        return better_type(f) == DTYPE_IQ3_S ? DTYPE_IQ3_S : type;
    default: return type;
    }
}

// Queries and keys matter less.
static enum dtype keys_type(const struct facts *f, enum role role, enum dtype type) {
    if (role == ROLE_KEYS && f->n_experts == 8) return DTYPE_Q8_0;
    if (f->file == FILE_IQ3_XS) return DTYPE_IQ3_XXS;
    return f->file == FILE_IQ3_XXS ? DTYPE_IQ2_S : type;
}

static enum dtype embedding_type(const struct facts *f, enum dtype type) {
    if (f->file == FILE_IQ2_XXS || f->file == FILE_IQ2_XS) return DTYPE_Q2_K;
    if (f->file == FILE_IQ2_S || f->file == FILE_IQ2_M || f->file == FILE_IQ3_XXS)
        return DTYPE_IQ3_S;
    return f->file == FILE_TQ1_0 || f->file == FILE_TQ2_0 ? DTYPE_Q4_K : type;
}

// The middle layers have fewer bits in the smaller file.
static enum dtype gate_type(const struct facts *f, enum dtype type, uint64_t i, uint64_t n) {
    return f->file == FILE_IQ3_XS && i >= n / 8 && i < 7 * n / 8 ? DTYPE_IQ3_XXS : type;
}

static enum dtype values_type(const struct facts *f, enum dtype type, uint64_t i, uint64_t n) {
    if (f->file == FILE_IQ3_XXS && !f->has_importance) type = DTYPE_IQ3_S;
    if (f->file == FILE_IQ3_M || (has_three_bits(f) && f->groups_heads)) type = DTYPE_Q4_K;
    if (f->file == FILE_Q2_K) type = DTYPE_Q3_K;
    if (base_is_q2(f) && f->groups_heads) type = DTYPE_Q4_K;
    if (has_uneven_values(f) && f->groups_heads) type = DTYPE_Q5_K;
    if (f->file == FILE_Q3_K_L) type = DTYPE_Q5_K;
    if (f->file == FILE_Q3_K_M) type = i < 2 ? DTYPE_Q5_K : DTYPE_Q4_K;
    if ((f->file == FILE_Q4_K_M || f->file == FILE_Q5_K_M) && more_bits(i, n)) type = DTYPE_Q6_K;
    if (f->file == FILE_Q4_K_S && i < 4) type = DTYPE_Q5_K;
    if (f->shares_values && (type == DTYPE_Q3_K || type == DTYPE_Q4_K)) type = DTYPE_Q5_K;
    return f->n_experts == 8 ? DTYPE_Q8_0 : type;
}

static enum dtype down_type(const struct facts *f, enum dtype type, uint64_t i, uint64_t n) {
    if (f->file == FILE_Q2_K) return DTYPE_Q3_K;
    if (f->file == FILE_Q3_K_L) return DTYPE_Q5_K;
    if (f->file == FILE_Q3_K_M) return i < n / 16 ? DTYPE_Q5_K : DTYPE_Q4_K;
    if (f->file == FILE_Q4_K_M || f->file == FILE_Q5_K_M)
        return more_bits(i, n) ? DTYPE_Q6_K : type;
    if (f->file == FILE_IQ3_XXS && !f->has_importance) return i < n / 8 ? DTYPE_Q4_K : DTYPE_Q3_K;
    if (f->file == FILE_IQ3_M && f->n_experts == 8 && more_bits(i, n)) return DTYPE_Q4_K;
    if (i >= n / 8) return type;
    if (f->file == FILE_IQ3_M) return DTYPE_Q4_K;
    if (f->file == FILE_Q2_K_S) return DTYPE_Q4_K;
    if (f->file == FILE_Q4_K_S) return DTYPE_Q5_K;
    if (has_uneven_values(f) && !f->has_importance) return DTYPE_Q5_K;
    // Without an offset a few first layers can go wrong where importance says what matters.
    if (f->file == FILE_Q4_0 && f->has_importance) return DTYPE_Q4_1;
    return f->file == FILE_Q5_0 && f->has_importance ? DTYPE_Q5_1 : type;
}

static enum dtype attention_output_type(const struct facts *f, enum dtype type) {
    const bool few_bits = f->file == FILE_Q2_K || f->file == FILE_Q3_K_S ||
                          f->file == FILE_Q3_K_M || f->file == FILE_Q4_K_S ||
                          f->file == FILE_Q4_K_M || has_uneven_values(f) || has_three_bits(f);
    if (f->n_experts == 8) return few_bits ? DTYPE_Q5_K : type;
    if (f->file == FILE_Q2_K) return DTYPE_Q3_K;
    if (f->file == FILE_IQ3_XXS) return DTYPE_IQ3_S;
    if (f->file == FILE_Q3_K_L) return DTYPE_Q5_K;
    return f->file == FILE_Q3_K_M || f->file == FILE_IQ3_M ? DTYPE_Q4_K : type;
}

static enum dtype output_type(const struct facts *f, enum dtype type, uint64_t columns) {
    if (f->rules->output != DTYPE_COUNT) return f->rules->output;
    const bool whole = columns % dtype_find((uint32_t)type)->block_elements == 0;
    if (f->file == FILE_MXFP4 || f->file == FILE_Q8_0 || !whole) return DTYPE_Q8_0;
    return has_two_bits(f) || f->file == FILE_IQ3_XXS ? DTYPE_Q5_K : DTYPE_Q6_K;
}

// The type for rows that are no multiple of the block.
static enum dtype fitting_type(enum dtype type, uint64_t columns) {
    static const struct {
        enum dtype from, to;
    } smaller[] = {
        {DTYPE_IQ4_XS, DTYPE_IQ4_NL}, {DTYPE_IQ3_S, DTYPE_IQ4_NL},  {DTYPE_IQ3_XXS, DTYPE_IQ4_NL},
        {DTYPE_IQ2_S, DTYPE_IQ4_NL},  {DTYPE_IQ2_XS, DTYPE_IQ4_NL}, {DTYPE_IQ2_XXS, DTYPE_IQ4_NL},
        {DTYPE_TQ2_0, DTYPE_Q4_0},    {DTYPE_TQ1_0, DTYPE_Q4_0},    {DTYPE_Q2_K, DTYPE_Q4_0},
        {DTYPE_Q3_K, DTYPE_Q4_0},     {DTYPE_Q4_K, DTYPE_Q5_0},     {DTYPE_Q5_K, DTYPE_Q5_1},
        {DTYPE_Q6_K, DTYPE_Q8_0}};
    if (columns % dtype_find((uint32_t)type)->block_elements == 0) return type;
    for (size_t i = 0; i < sizeof smaller / sizeof *smaller; i++)
        if (smaller[i].from == type && columns % BLOCK_ELEMENTS_Q8_0 == 0) return smaller[i].to;
    return DTYPE_F16;
}

// True if llama-quantize comes to a first: by layers, and in a layer by names.
static bool is_before(const struct gguf_tensor *a, const struct gguf_tensor *b) {
    const int64_t i = layer_of(a), k = layer_of(b);
    const size_t least = a->name.length < b->name.length ? a->name.length : b->name.length;
    const int order = memcmp(a->name.bytes, b->name.bytes, least);
    if (i != k) return i < k;
    return order < 0 || (order == 0 && a->name.length < b->name.length);
}

// How many tensors of that role, whose types the mixture chooses, come before t, of all *n.
static uint64_t rank_of(const struct facts *f, const struct gguf *g, enum role role,
                        const struct gguf_tensor *t, uint64_t *n) {
    uint64_t rank = 0;
    *n = 0;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        if (role_of(&g->tensors[i]) != role || is_kept(&g->tensors[i])) continue;
        rank += f->asked[i] && is_before(&g->tensors[i], t);
        ++*n;
    }
    return rank;
}

static bool is_plain(enum dtype type) {
    return type == DTYPE_F32 || type == DTYPE_F16 || type == DTYPE_BF16;
}

static enum dtype choose(const struct mixture *m, const struct facts *f, const struct gguf *g,
                         const struct gguf_tensor *t) {
    const enum role role = role_of(t);
    const int64_t layer = layer_of(t);
    uint64_t n;
    if (is_plain(m->base) || f->rules->pure) return m->base;
    if (role == ROLE_OUTPUT || (role == ROLE_EMBEDDING && f->tied))
        return output_type(f, m->base, t->ne[0]);
    if (f->file == FILE_MXFP4) return t->ne[2] > 1 ? DTYPE_MXFP4 : DTYPE_Q8_0;
    if (role == ROLE_EMBEDDING) return embedding_type(f, m->base);
    const uint64_t rank = rank_of(f, g, role, t, &n);
    const uint64_t i = f->n_experts > 1 && layer >= 0 ? (uint64_t)layer : rank;
    if (has_two_bits(f)) return two_bits_type(f, role, m->base, rank);
    switch (role) {
    case ROLE_VALUES: return values_type(f, m->base, rank, n);
    case ROLE_KEYS:
    case ROLE_QUERIES: return keys_type(f, role, m->base);
    case ROLE_FFN_UP:
    case ROLE_FFN_GATE: return gate_type(f, m->base, i, f->n_layers);
    case ROLE_FFN_DOWN: return down_type(f, m->base, i, f->n_layers);
    case ROLE_ATTENTION_OUTPUT: return attention_output_type(f, m->base);
    default: return m->base;
    }
}

// Finds the type that the user gives the tensor. What is said of the embedding and the output goes
// before patterns, but for the embedding per layer, which is a table of its own.
static enum status find_rule(struct type_rules *r, const struct gguf_tensor *t, bool *found,
                             enum dtype *out, struct err *e) {
    const enum role role = role_of(t);
    if (type_rules_find(r, t->name, found, out, e)) return e->status;
    if (role == ROLE_EMBEDDING && r->embedding != DTYPE_COUNT &&
        !(*found && is_named(t, "per_layer_token_embd.weight"))) {
        *found = true;
        *out = r->embedding;
    } else if (role == ROLE_OUTPUT && r->output != DTYPE_COUNT) {
        *found = true;
        *out = r->output;
    }
    return OK;
}

// ---- A whole file -------------------------------------------------------------------------------

enum { KEY_CHARS = 128 };

static const char *key_of(char key[KEY_CHARS], struct gguf_text architecture, const char *name) {
    snprintf(key, KEY_CHARS, "%.*s.%s", (int)(architecture.length < 64 ? architecture.length : 64),
             architecture.bytes, name);
    return key;
}

static enum status read_number(const struct gguf *g, struct gguf_text architecture,
                               const char *name, uint64_t *out, struct err *e) {
    char key[KEY_CHARS];
    return gguf_read_u64(g, key_of(key, architecture, name), 0, 1 << 20, out, e);
}

// The heads of the first layer, where a model has another number in each.
static uint64_t count_heads(const struct gguf *g, struct gguf_text architecture, const char *name,
                            uint64_t absent) {
    char key[KEY_CHARS];
    const struct gguf_value *value = gguf_find(g, key_of(key, architecture, name));
    if (!value || value->count == 0 || value->element == GGUF_F32 || value->element == GGUF_F64 ||
        value->element == GGUF_STRING || value->element == GGUF_ARRAY)
        return absent;
    const int64_t number = gguf_array_int(value, 0);
    return number > 0 ? (uint64_t)number : 0;
}

static bool read_groups(const struct gguf *g, struct gguf_text architecture) {
    const uint64_t n_heads = count_heads(g, architecture, "attention.head_count", 0);
    const uint64_t n_kv = count_heads(g, architecture, "attention.head_count_kv", n_heads);
    return n_kv > 0 && n_heads / n_kv >= 4;
}

// llama-quantize tells models whose values are shared by many query heads from their depth, and
// only in these families.
static enum status read_sharing(struct facts *f, const struct gguf *g,
                                struct gguf_text architecture, struct err *e) {
    static const struct {
        const char *architecture;
        uint64_t n_layers;
    } deep[] = {{"deci", 80}, {"jais2", 68}, {"llama", 80}, {"olmo", 80}, {"qwen2", 80}};
    uint64_t n_heads = 0;
    for (size_t i = 0; i < sizeof deep / sizeof *deep; i++)
        f->shares_values |=
            f->n_layers == deep[i].n_layers && text_is(architecture, deep[i].architecture);
    if (!f->shares_values || !text_is(architecture, "llama")) return OK;
    if (read_number(g, architecture, "attention.head_count", &n_heads, e)) return e->status;
    uint64_t n_kv_heads = n_heads;
    if (read_number(g, architecture, "attention.head_count_kv", &n_kv_heads, e)) return e->status;
    f->shares_values = n_heads != n_kv_heads;
    return OK;
}

static enum status read_facts(struct facts *f, const struct gguf *g, struct err *e) {
    struct gguf_text architecture = {"", 0};
    f->tied = !gguf_find_tensor(g, "output.weight");
    if (gguf_read_text(g, "general.architecture", &architecture, e) ||
        read_number(g, architecture, "block_count", &f->n_layers, e) ||
        read_number(g, architecture, "expert_count", &f->n_experts, e))
        return e->status;
    f->groups_heads = read_groups(g, architecture);
    return read_sharing(f, g, architecture, e);
}

// A matrix that has its type already, as experts of a source in MXFP4 do, needs no better source.
static enum status check_source(const struct gguf_tensor *t, enum dtype type, bool requantize,
                                struct err *e) {
    enum weight_type readable;
    if (t->type == type || is_plain(t->type)) return OK;
    if (!dtype_weight(t->type, &readable)) {
        err_set(e, ERR_UNSUPPORTED, "tensor %.*s: its type cannot be read", (int)t->name.length,
                t->name.bytes);
        err_expected(e, "%s", weight_names());
        return err_actual(e, "%s", dtype_name(t->type));
    }
    if (requantize) return OK;
    err_set(e, ERR_UNSUPPORTED, "tensor %.*s is quantised already", (int)t->name.length,
            t->name.bytes);
    err_expected(e, "F32, F16, BF16 or %s", dtype_name(type));
    err_actual(e, "%s", dtype_name(t->type));
    if (t->type == DTYPE_MXFP4 && t->ne[2] > 1)
        return err_fix(e, "use MXFP4_MOE, which keeps experts of this type as they are");
    return err_fix(e, "begin with the model in full precision, or accept that errors add up: "
                      "--allow-requantize");
}

// With so few bits, columns that all count alike leave nothing of use.
static bool needs_importance(const struct facts *f, enum dtype type) {
    switch (type) {
    case DTYPE_IQ3_XXS:
    case DTYPE_IQ2_S:
    case DTYPE_IQ2_XS:
    case DTYPE_IQ2_XXS: return true;
    default: return type == DTYPE_Q2_K && f->file == FILE_Q2_K_S;
    }
}

static enum status check_importance(const struct facts *f, const struct gguf_tensor *t,
                                    enum dtype type, const struct importance *importance,
                                    struct err *e) {
    const enum role role = role_of(t);
    const float *values = NULL;
    bool per_matrix;
    if (!needs_importance(f, type) || role == ROLE_OUTPUT || role == ROLE_EMBEDDING ||
        t->type == type)
        return OK;
    if (importance && importance_find(importance, t, &values, &per_matrix, e)) return e->status;
    if (values) return OK;
    err_set(e, ERR_UNSUPPORTED, "%s needs the importance of the columns of %.*s",
            f->file == FILE_Q2_K_S ? "Q2_K_S" : dtype_name(type), (int)t->name.length,
            t->name.bytes);
    if (importance) err_actual(e, "a file that does not tell it");
    return err_fix(e, "%s, or take %s",
                   importance ? "measure it with this model and a longer text: tandem imatrix"
                              : "measure it by 'tandem imatrix' and give --imatrix FILE",
                   type == DTYPE_IQ3_XXS ? "IQ3_S" : "Q2_K");
}

static enum status check_rules(const struct mixture *m, const struct type_rules *r, struct err *e) {
    if (!mixture_copies(m) || !type_rules_change(r)) return OK;
    err_set(e, ERR_USAGE, "COPY gives no tensor another type, and options do");
    return err_fix(e, "take another type than COPY, or leave these options out");
}

// Fills types where no choice is left, and asked.
static enum status apply_rules(const struct mixture *m, const struct gguf *g, struct type_rules *r,
                               enum dtype *types, bool *asked, struct err *e) {
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        bool found = false;
        types[i] = t->type;
        asked[i] = false;
        if (mixture_copies(m) || is_kept(t)) continue;
        if (role_of(t) == ROLE_OUTPUT && r->leave_output) continue;
        if (find_rule(r, t, &found, &types[i], e)) return e->status;
        types[i] = fitting_type(types[i], t->ne[0]);
        asked[i] = !found;
    }
    return OK;
}

static enum status fill_types(const struct mixture *m, const struct gguf *g, struct facts *f,
                              const struct mixture_terms *terms, enum dtype *types, struct err *e) {
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        const struct gguf_tensor *t = &g->tensors[i];
        if (f->asked[i]) types[i] = fitting_type(choose(m, f, g, t), t->ne[0]);
        if (check_source(t, types[i], terms->requantize, e) ||
            check_importance(f, t, types[i], terms->importance, e))
            return e->status;
    }
    return OK;
}

enum status mixture_choose(const struct mixture *m, const struct gguf *g,
                           const struct mixture_terms *terms, enum dtype *types, struct err *e) {
    bool *asked = mem_alloc(g->n_tensors, sizeof *asked);
    struct facts facts = {.rules = terms->rules,
                          .asked = asked,
                          .file = (enum file_type)m->file_type,
                          .has_importance = terms->importance != NULL};
    enum status status = OK;
    if (!asked) return err_memory(e, g->n_tensors, "the types");
    if (check_rules(m, terms->rules, e) || read_facts(&facts, g, e) ||
        apply_rules(m, g, terms->rules, types, asked, e) ||
        fill_types(m, g, &facts, terms, types, e))
        status = e->status;
    mem_free(asked);
    return status;
}
