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
    {"LLAMA_ARG_MODEL_URL", "-mu"},
    {"LLAMA_ARG_HF_REPO", "-hf"},
    {"LLAMA_ARG_OFFLINE", "--offline"},
    {"LLAMA_ARG_MODEL", "-m"},
    {"LLAMA_ARG_CTX_SIZE", "-c"},
    {"LLAMA_ARG_N_PREDICT", "-n"},
    {"LLAMA_ARG_BATCH", "-b"},
    {"LLAMA_ARG_UBATCH", "-ub"},
    {"LLAMA_ARG_THREADS", "-t"},
    {"LLAMA_ARG_THREADS_BATCH", "-tb"},
    {"LLAMA_ARG_N_GPU_LAYERS", "-ngl"},
    {"LLAMA_ARG_DEVICE", "--device"},
    {"LLAMA_ARG_OVERRIDE_TENSOR", "-ot"},
    {"LLAMA_ARG_NO_KV_OFFLOAD", "--no-kv-offload"},
    {"LLAMA_ARG_CPU_MOE", "-cmoe"},
    {"LLAMA_ARG_N_CPU_MOE", "-ncmoe"},
    {"LLAMA_ARG_CACHE_TYPE_K", "-ctk"},
    {"LLAMA_ARG_CACHE_TYPE_V", "-ctv"},
    {"LLAMA_ARG_SWA_FULL", "--swa-full"},
    {"LLAMA_ARG_MLOCK", "--mlock"},
    {"LLAMA_ARG_LOG_FILE", "--log-file"},
    {"LLAMA_ARG_TEMPERATURE", "--temp"},
    {"LLAMA_ARG_TOP_K", "--top-k"},
    {"LLAMA_ARG_TOP_P", "--top-p"},
    {"LLAMA_ARG_MIN_P", "--min-p"},
    {"LLAMA_ARG_REPEAT_PENALTY", "--repeat-penalty"},
    {"LLAMA_ARG_PRESENCE_PENALTY", "--presence-penalty"},
    {"LLAMA_ARG_FREQUENCY_PENALTY", "--frequency-penalty"},
    {"LLAMA_ARG_CHAT_TEMPLATE", "--chat-template"},
    {"LLAMA_ARG_CHAT_TEMPLATE_FILE", "--chat-template"},
    {"LLAMA_CHAT_TEMPLATE_KWARGS", "--chat-template-kwargs"},
    {"LLAMA_ARG_CHAT_TEMPLATE_KWARGS", "--chat-template-kwargs"},
    {"LLAMA_ARG_THINK", "--reasoning-format"},
    {"LLAMA_ARG_THINK_BUDGET", "--reasoning-budget"},
    {"LLAMA_ARG_THINK_BUDGET_MESSAGE", "--reasoning-budget-message"},
    {"LLAMA_ARG_REASONING", "--reasoning"},
};

const struct llama_option *llama_option_find(const char *name, size_t length) {
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        for (int k = 0; k < 3 && options[i].names[k]; k++)
            if (strlen(options[i].names[k]) == length &&
                memcmp(options[i].names[k], name, length) == 0)
                return &options[i];
    return NULL;
}

bool llama_option_is_switch(const char *text) {
    static const char *const words[] = {"on",     "off",   "auto",    "0",    "1",
                                        "yes",    "no",    "enabled", "true", "false",
                                        "always", "never", "disabled"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i], text) == 0) return true;
    return false;
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
