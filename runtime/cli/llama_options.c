/* llama_options.c: see llama_options.h. */
#include "runtime/cli/llama_options.h"

#include <string.h>

#define NAMES(...) \
    { __VA_ARGS__ }

static const struct llama_option options[] = {
#define IGNORED(value, names, reason) {names, true, LLAMA_##value, reason},
#define MISSING(value, names, what)   {names, false, LLAMA_##value, what},
#include "runtime/cli/llama_options.def"
#undef IGNORED
#undef MISSING
};

// Where two variables set one option, the later one wins.
static const struct llama_variable variables[] = {
    {.name = "LLAMA_ARG_MODEL_URL", .option = "-mu"},
    {.name = "LLAMA_ARG_HF_REPO", .option = "-hf"},
    {.name = "LLAMA_ARG_HF_FILE", .option = "-hff"},
    {.name = "LLAMA_ARG_OFFLINE", .option = "--offline"},
    {.name = "LLAMA_ARG_MODEL", .option = "-m"},
    {.name = "LLAMA_ARG_CTX_SIZE", .option = "-c"},
    {.name = "LLAMA_ARG_N_PREDICT", .option = "-n"},
    {.name = "LLAMA_ARG_BATCH", .option = "-b"},
    {.name = "LLAMA_ARG_UBATCH", .option = "-ub"},
    {.name = "LLAMA_ARG_THREADS", .option = "-t"},
    {.name = "LLAMA_ARG_THREADS_BATCH", .option = "-tb"},
    {.name = "LLAMA_ARG_N_GPU_LAYERS", .option = "-ngl"},
    {.name = "LLAMA_ARG_DEVICE", .option = "--device"},
    {.name = "LLAMA_ARG_OVERRIDE_TENSOR", .option = "-ot"},
    {.name = "LLAMA_ARG_KV_OFFLOAD",
     .option = "--no-kv-offload",
     .other = "-kvo",
     .inverted = true},
    {.name = "LLAMA_ARG_NO_KV_OFFLOAD", .option = "--no-kv-offload", .other = "-kvo"},
    {.name = "LLAMA_ARG_CPU_MOE", .option = "-cmoe", .other = "-ncmoe"},
    {.name = "LLAMA_ARG_N_CPU_MOE", .option = "-ncmoe"},
    {.name = "LLAMA_ARG_CACHE_TYPE_K", .option = "-ctk"},
    {.name = "LLAMA_ARG_CACHE_TYPE_V", .option = "-ctv"},
    {.name = "LLAMA_ARG_SWA_FULL", .option = "--swa-full"},
    {.name = "LLAMA_ARG_MLOCK", .option = "--mlock"},
    {.name = "LLAMA_ARG_LOG_FILE", .option = "--log-file"},
    {.name = "LLAMA_ARG_TEMPERATURE", .option = "--temp"},
    {.name = "LLAMA_ARG_TOP_K", .option = "--top-k"},
    {.name = "LLAMA_ARG_TOP_P", .option = "--top-p"},
    {.name = "LLAMA_ARG_MIN_P", .option = "--min-p"},
    {.name = "LLAMA_ARG_REPEAT_PENALTY", .option = "--repeat-penalty"},
    {.name = "LLAMA_ARG_PRESENCE_PENALTY", .option = "--presence-penalty"},
    {.name = "LLAMA_ARG_FREQUENCY_PENALTY", .option = "--frequency-penalty"},
    {.name = "LLAMA_ARG_CHAT_TEMPLATE", .option = "--chat-template"},
    {.name = "LLAMA_ARG_CHAT_TEMPLATE_FILE", .option = "--chat-template"},
    {.name = "LLAMA_CHAT_TEMPLATE_KWARGS", .option = "--chat-template-kwargs"},
    {.name = "LLAMA_ARG_CHAT_TEMPLATE_KWARGS", .option = "--chat-template-kwargs"},
    {.name = "LLAMA_ARG_THINK", .option = "--reasoning-format"},
    {.name = "LLAMA_ARG_THINK_BUDGET",
     .option = "--reasoning-budget",
     .other = "--reasoning",
     .clash = "0"},
    {.name = "LLAMA_ARG_THINK_BUDGET_MESSAGE", .option = "--reasoning-budget-message"},
    {.name = "LLAMA_ARG_REASONING", .option = "--reasoning"},
    // A plan file says how many rows of logits there are.
    {.name = "LLAMA_ARG_SPEC_TYPE", .option = "--spec-type", .other = "--plan"},
    {.name = "LLAMA_ARG_SPEC_DRAFT_MODEL", .option = "-md", .other = "--plan"},
    {.name = "LLAMA_ARG_SPEC_DRAFT_HF_REPO", .option = "-hfd", .other = "--plan"},
    {.name = "LLAMA_ARG_SPEC_DRAFT_N_MAX", .option = "--spec-draft-n-max", .other = "--plan"},
    {.name = "LLAMA_ARG_SPEC_DRAFT_N_MIN", .option = "--spec-draft-n-min"},
    {.name = "LLAMA_ARG_SPEC_DRAFT_P_MIN", .option = "--spec-draft-p-min"},
    {.name = "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_K", .option = "-ctkd"},
    {.name = "LLAMA_ARG_SPEC_DRAFT_CACHE_TYPE_V", .option = "-ctvd"},
    {.name = "LLAMA_ARG_N_GPU_LAYERS_DRAFT", .option = "-ngld"},
};

const struct llama_option *llama_option_find(const char *name, size_t length) {
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        for (int k = 0; k < 3 && options[i].names[k]; k++)
            if (strlen(options[i].names[k]) == length &&
                memcmp(options[i].names[k], name, length) == 0)
                return &options[i];
    return NULL;
}

static bool is_word(const char *text, size_t length) {
    static const char *const words[] = {"on",     "off",   "auto",    "0",    "1",
                                        "yes",    "no",    "enabled", "true", "false",
                                        "always", "never", "disabled"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strlen(words[i]) == length && memcmp(words[i], text, length) == 0) return true;
    return false;
}

bool llama_option_is_switch(const char *text) {
    for (;; text++) {
        const size_t length = strcspn(text, ",");
        if (!is_word(text, length)) return false;
        text += length;
        if (!*text) return true;
    }
}

bool llama_switch_parse(const char *text, bool *on) {
    static const char *const words[][2] = {
        {"off", "on"}, {"disabled", "enabled"}, {"false", "true"}, {"0", "1"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        for (int k = 0; k < 2; k++)
            if (strcmp(words[i][k], text) == 0) return *on = k == 1, true;
    return false;
}

const struct llama_variable *llama_variables(int32_t *count) {
    *count = (int32_t)(sizeof variables / sizeof *variables);
    return variables;
}
