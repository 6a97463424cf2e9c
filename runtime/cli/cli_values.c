/* cli_values.c: see cli_values.h. */
#include "runtime/cli/cli_values.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

// Values come from the environment too.
static const char *source_of(const char *name) {
    return strncmp(name, "LLAMA_", 6) == 0 ? "variable" : "option";
}

enum status cli_value_bad(struct err *e, const char *name, const char *expected, const char *text) {
    err_set(e, ERR_USAGE, "%s %s", source_of(name), name);
    err_expected(e, "%s", expected);
    return err_actual(e, "'%s'", text);
}

static bool parse_integer(const char *text, long long *out) {
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 10);
    return !errno && end != text && !*end && text[0] != ' ';
}

// Reads a number of positions, such as 8192 or 8k.
static bool parse_positions(const char *text, long long *out) {
    char *end;
    if (parse_integer(text, out)) return true;
    errno = 0;
    *out = strtoll(text, &end, 10);
    if (errno || end == text || (strcmp(end, "k") != 0 && strcmp(end, "K") != 0)) return false;
    *out = *out > INT32_MAX || *out < 0 ? -1 : *out * 1024;
    return true;
}

// A path may not be empty: an unset variable of a script would give an error without a name.
static enum status set_text(const struct option_spec *spec, const char *name, const char *text,
                            const char **target, struct err *e) {
    if (!*text && strcmp(spec->value, "FILE") == 0) return cli_value_bad(e, name, "a file", text);
    *target = text;
    return OK;
}

// A switch has a value in the environment only; off leaves it as it is.
static enum status set_switch(const char *name, const char *text, bool *target, struct err *e) {
    bool on = true;
    if (text && !llama_switch_parse(text, &on))
        return cli_value_bad(e, name, "on, enabled, true, 1, off, disabled, false or 0", text);
    *target |= on;
    return OK;
}

static enum status set_bool(const char *name, const char *text, bool *target, struct err *e) {
    if (llama_switch_parse(text, target)) return OK;
    cli_value_bad(e, name, "0 or 1", text);
    return llama_option_is_switch(text) ? err_fix(e, "measure one after the other") : e->status;
}

static enum status set_integer(const struct option_spec *spec, const char *name, const char *text,
                               void *target, struct err *e) {
    long long value;
    const bool is_context = spec->offset == offsetof(struct cli_options, n_ctx);
    const bool read = is_context ? parse_positions(text, &value) : parse_integer(text, &value);
    if (!read || (double)value < spec->low || (double)value > spec->high) {
        char range[96];
        snprintf(range, sizeof range, "a whole number%s from %.0f to %.0f",
                 is_context ? ", such as 8192 or 8k," : "", spec->low, spec->high);
        return cli_value_bad(e, name, range, text);
    }
    if (spec->kind == OPTION_SEED)
        *(int64_t *)target = value;
    else
        *(int32_t *)target = (int32_t)value;
    return OK;
}

static enum status set_real(const struct option_spec *spec, const char *name, const char *text,
                            float *target, struct err *e) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= spec->low && value <= spec->high)) {
        char range[64];
        snprintf(range, sizeof range, "a number from %g to %g", spec->low, spec->high);
        return cli_value_bad(e, name, range, text);
    }
    *target = (float)value;
    return OK;
}

// Bytes that a suffix stands for: K and KiB are 1024, KB is 1000; 0 for an unknown suffix.
static double suffix_bytes(const char *suffix) {
    static const char letters[] = "KMGT";
    if (!*suffix || strcmp(suffix, "B") == 0) return 1;
    const char *letter = strchr(letters, *suffix >= 'a' ? *suffix - 'a' + 'A' : *suffix);
    if (!letter || !*letter) return 0;
    double power = (double)(letter - letters + 1);
    if (!suffix[1] || strcmp(suffix + 1, "iB") == 0) return pow(1024, power);
    return strcmp(suffix + 1, "B") == 0 ? pow(1000, power) : 0;
}

// A number below this without a unit is a mistake, since no machine has so little memory.
static const double PLAIN_BYTES = 16 << 20;

enum status cli_value_size(const char *name, const char *text, uint64_t *out, struct err *e) {
    char *end;
    double value = strtod(text, &end);
    double bytes = end == text ? 0 : value * suffix_bytes(end);
    if (!(bytes >= 1 && bytes < 9e18) || text[0] == '-')
        return cli_value_bad(e, name, "a size above 0 such as 6G, 512M or 1.5GiB", text);
    if (!*end && bytes < PLAIN_BYTES) {
        err_set(e, ERR_USAGE, "option %s: %s means so many bytes", name, text);
        return err_fix(e, "did you mean %s%c? %sB are bytes", text, bytes < 1024 ? 'G' : 'M', text);
    }
    *out = (uint64_t)bytes;
    return OK;
}

enum status cli_value_layers(const char *name, const char *text, int32_t *out, struct err *e) {
    long long value;
    if (strcmp(text, "auto") == 0 || strcmp(text, "-1") == 0)
        *out = GPU_LAYERS_AUTO;
    else if (strcmp(text, "all") == 0)
        *out = GPU_LAYERS_ALL;
    else if (parse_integer(text, &value) && value >= 0 && value < GPU_LAYERS_ALL)
        *out = (int32_t)value;
    else
        return cli_value_bad(e, name, "a number of layers, auto or all", text);
    return OK;
}

enum status cli_value_kv_type(const char *name, const char *text, enum dtype *out, struct err *e) {
    static const char *const known[KV_TYPES] = {
#define KV_TYPE(NAME, name) #name,
#include "kernels/kv_types.def"
#undef KV_TYPE
    };
    static const char *const later[] = {"bf16", "q4_1", "q5_0", "q5_1", "iq4_nl"};
    if (strcmp(text, "auto") == 0) return *out = KV_TYPE_AUTO, OK;
    for (int i = 0; i < KV_TYPES; i++)
        if (strcmp(text, known[i]) == 0) return *out = kv_dtype((enum kv_type)i), OK;
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        if (strcmp(text, later[i]) == 0) {
            err_set(e, ERR_USAGE, "%s %s: %s is not supported yet", source_of(name), name, text);
            return err_fix(e, "take f16, f32, q8_0, q4_0 or auto");
        }
    return cli_value_bad(e, name, "f16, f32, q8_0, q4_0 or auto", text);
}

static enum status set_strategy(const char *name, const char *text, enum strategy *out,
                                struct err *e) {
    if (strategy_parse(text, out)) return OK;
    char known[128] = "";
    for (int s = 0, used = 0; s < STRATEGIES; s++)
        used += snprintf(known + used, sizeof known - (size_t)used, "%s%s",
                         s + 1 == STRATEGIES ? " or "
                         : s                 ? ", "
                                             : "",
                         strategy_name((enum strategy)s));
    return cli_value_bad(e, name, known, text);
}

static enum status set_feed(const char *name, const char *text, enum feed *out, struct err *e) {
    if (strcmp(text, "auto") == 0) return *out = FEED_NONE, OK;
    if (feed_parse(text, out) && *out != FEED_NONE) return OK;
    return cli_value_bad(e, name, "arena, staged or auto", text);
}

static const char *const reasoning_names[] = {"auto", "none", "hide"};
static const char *const thinking_names[] = {"auto", "off", "on"};

// Takes llama.cpp's name of auto too.
static enum status set_reasoning(const char *name, const char *text, enum reasoning *out,
                                 struct err *e) {
    for (int i = 0; i < 3; i++)
        if (strcmp(text, reasoning_names[i]) == 0) return *out = (enum reasoning)i, OK;
    if (strcmp(text, "deepseek") == 0) return *out = REASONING_AUTO, OK;
    return cli_value_bad(e, name, "auto, none or hide", text);
}

static enum status set_thinking(const char *name, const char *text, enum thinking *out,
                                struct err *e) {
    for (int i = 0; i < 3; i++)
        if (strcmp(text, thinking_names[i]) == 0) return *out = (enum thinking)i, OK;
    return cli_value_bad(e, name, "on, off or auto", text);
}

static enum status set_drafts(const char *name, const char *text, enum drafts *out, struct err *e) {
    static const char *const later[] = {"draft-eagle3", "draft-mtp",   "draft-dflash",
                                        "draft-dspark", "ngram-map-k", "ngram-map-k4v",
                                        "ngram-mod",    "ngram-cache"};
    if (strcmp(text, "none") == 0) return *out = DRAFTS_NONE, OK;
    if (strcmp(text, "ngram-simple") == 0) return *out = DRAFTS_NGRAM, OK;
    if (strcmp(text, "draft-simple") == 0) return *out = DRAFTS_MODEL, OK;
    for (size_t i = 0; i < sizeof later / sizeof *later; i++)
        if (strcmp(text, later[i]) == 0) {
            err_set(e, ERR_USAGE, "%s %s: %s is not in tandem yet", source_of(name), name, text);
            return err_fix(e, "take ngram-simple, draft-simple or none");
        }
    return cli_value_bad(e, name, "none, ngram-simple or draft-simple", text);
}

static enum status add_text(const char *name, const char *text, struct text_list *out,
                            struct err *e) {
    if (out->n == TEXT_LIST)
        return err_set(e, ERR_USAGE, "option %s is given more than %d times", name, TEXT_LIST);
    out->texts[out->n++] = text;
    return OK;
}

static enum status
set_order(enum status (*read)(struct sampler_order *, const char *, struct err *), const char *name,
          const char *text, struct sampler_order *out, struct err *e) {
    return read(out, text, e) ? err_context(e, "option %s", name) : OK;
}

// Adds a bias such as 15043+1, 15043-0.5 or 15043-inf.
static enum status add_bias(struct cli_options *o, const char *name, const char *text,
                            struct err *e) {
    char *sign, *end;
    const long token = strtol(text, &sign, 10);
    const float bias = strtof(sign, &end);
    const bool form = sign > text && (*sign == '+' || *sign == '-') && !*end;
    if (!form || token < 0 || token > INT32_MAX || !(bias < INFINITY))
        return cli_value_bad(e, name, "a token and what to add, such as 15043+1 or 15043-inf",
                             text);
    if (o->n_biases == TEXT_LIST)
        return err_set(e, ERR_USAGE, "option %s is given more than %d times", name, TEXT_LIST);
    o->biases[o->n_biases++] = (struct logit_bias){(int32_t)token, bias};
    return OK;
}

enum status cli_value_set(struct cli_options *o, const struct option_spec *spec, const char *name,
                          const char *text, struct err *e) {
    void *target = (char *)o + spec->offset;
    switch (spec->kind) {
    case OPTION_SWITCH: return set_switch(name, text, target, e);
    case OPTION_BOOL: return set_bool(name, text, target, e);
    case OPTION_TEXT: return set_text(spec, name, text, target, e);
    case OPTION_LIST: return add_text(name, text, target, e);
    case OPTION_INT:
    case OPTION_SEED: return set_integer(spec, name, text, target, e);
    case OPTION_REAL: return set_real(spec, name, text, target, e);
    case OPTION_SIZE: return cli_value_size(name, text, target, e);
    case OPTION_LAYERS: return cli_value_layers(name, text, target, e);
    case OPTION_KV_TYPE: return cli_value_kv_type(name, text, target, e);
    case OPTION_STRATEGY: return set_strategy(name, text, target, e);
    case OPTION_FEED: return set_feed(name, text, target, e);
    case OPTION_REASONING: return set_reasoning(name, text, target, e);
    case OPTION_THINKING: return set_thinking(name, text, target, e);
    case OPTION_DRAFTS: return set_drafts(name, text, target, e);
    case OPTION_ISA:
        if (cpu_isa_parse(text, target)) return OK;
        return cli_value_bad(e, name, CPU_ISA_NAMES, text);
    case OPTION_SAMPLERS: return set_order(sampler_order_names, name, text, target, e);
    case OPTION_LETTERS: return set_order(sampler_order_letters, name, text, target, e);
    case OPTION_BIAS: return add_bias(o, name, text, e);
    case OPTION_VERSION: o->command = COMMAND_VERSION; return OK;
    case OPTION_HELP:
        o->topic = o->command;
        o->command = COMMAND_HELP;
        return OK;
    }
    return OK;
}

void cli_value_print(const struct option_spec *spec, const void *value, FILE *out) {
    switch (spec->kind) {
    case OPTION_INT: fprintf(out, "%d", *(const int32_t *)value); break;
    case OPTION_SEED: fprintf(out, "%lld", (long long)*(const int64_t *)value); break;
    case OPTION_REAL: fprintf(out, "%g", (double)*(const float *)value); break;
    case OPTION_REASONING: fputs(reasoning_names[*(const enum reasoning *)value], out); break;
    case OPTION_THINKING: fputs(thinking_names[*(const enum thinking *)value], out); break;
    default: break;
    }
}
