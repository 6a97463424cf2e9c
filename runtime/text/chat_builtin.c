/* chat_builtin.c: see chat_builtin.h. The build writes the list of files
 * (configs/templates/templates.mk).
 */
#include "runtime/text/chat_builtin.h"

#include "base/embed.h"

#include <stdbool.h>
#include <string.h>

// TEMPLATE_FILES has a line for each file, in the order of names: TEMPLATE_FILE(number, name,
// path). A byte 0 follows each text.
#define TEMPLATE_FILE(number, name, path) EMBED_FILE(template_file_##number, path, 1)
#include TEMPLATE_FILES
#undef TEMPLATE_FILE

static const struct {
    const char *name, *source;
} FILES[] = {
#define TEMPLATE_FILE(number, name, path) {name, template_file_##number},
#include TEMPLATE_FILES
#undef TEMPLATE_FILE
};

const char *chat_builtin_name(int i) {
    return i < (int)(sizeof FILES / sizeof *FILES) ? FILES[i].name : NULL;
}

const char *chat_builtin_source(const char *name) {
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++)
        if (strcmp(FILES[i].name, name) == 0) return FILES[i].source;
    return NULL;
}

// In this order the first row wins whose marks are all there.
static const struct {
    const char *marks[2], *name;
} FAMILIES[] = {
    {{"<|im_start|>", "<|im_sep|>"}, "phi4"},
    {{"<|im_start|>", "enable_thinking"}, "qwen3"},
    {{"<|im_start|>"}, "chatml"},
    {{"[INST]", "[SYSTEM_PROMPT]"}, "mistral-v7-tekken"},
    {{"[AVAILABLE_TOOLS]", " [INST]"}, "mistral-v1"},
    {{"[AVAILABLE_TOOLS]", "[INST] "}, "mistral-v3"},
    {{"[AVAILABLE_TOOLS]", "[INST]"}, "mistral-v3-tekken"},
    {{"[INST]"}, "llama2"},
    {{"[gMASK]<sop>", "/nothink"}, "glm4.5"},
    {{"[gMASK]<sop>"}, "glm4.7"},
    {{"<|assistant|>", "<|end|>"}, "phi3"},
    {{"<|user|>", "<|endoftext|>"}, "zephyr"},
    {{"<|turn>"}, "gemma4"},
    {{"<start_of_turn>"}, "gemma"},
    {{"<|start_header_id|>", "Cutting Knowledge Date"}, "llama3.1"},
    {{"<|start_header_id|>"}, "llama3"},
    {{"<｜Assistant｜>", "<think>"}, "deepseek-r1"},
    {{"<｜Assistant｜>"}, "deepseek3"},
    {{"<|start_of_role|>"}, "granite"},
    {{"<|start|>", "<|channel|>"}, "gpt-oss"},
    {{"<|START_OF_TURN_TOKEN|>"}, "command-r"},
    {{"<seed:bos>"}, "seed-oss"},
    {{"<|user_start|>"}, "apertus"},
};

// Those of the families above whose marks are tokens of no other family's vocabulary.
static const struct {
    const char *marks[2], *name;
} OF_TOKENS[] = {
    {{"<|im_start|>", "<|im_sep|>"}, "phi4"},
    {{"<|im_start|>"}, "chatml"},
    {{"[INST]", "[SYSTEM_PROMPT]"}, "mistral-v7-tekken"},
    {{"<|turn>"}, "gemma4"},
    {{"<start_of_turn>"}, "gemma"},
    {{"<|start_header_id|>"}, "llama3"},
    {{"<|start_of_role|>"}, "granite"},
    {{"<|start|>", "<|channel|>"}, "gpt-oss"},
    {{"<|START_OF_TURN_TOKEN|>"}, "command-r"},
    {{"<seed:bos>"}, "seed-oss"},
    {{"<|user_start|>"}, "apertus"},
};

const char *chat_builtin_of_tokens(int i, const char *marks[2]) {
    if (i >= (int)(sizeof OF_TOKENS / sizeof *OF_TOKENS)) return NULL;
    for (int m = 0; m < 2; m++) marks[m] = OF_TOKENS[i].marks[m];
    return OF_TOKENS[i].name;
}

const char *chat_builtin_like(const char *source, size_t length) {
    for (size_t i = 0; i < sizeof FAMILIES / sizeof *FAMILIES; i++) {
        bool all = true;
        for (int m = 0; m < 2 && FAMILIES[i].marks[m]; m++)
            all &=
                memmem(source, length, FAMILIES[i].marks[m], strlen(FAMILIES[i].marks[m])) != NULL;
        if (all) return FAMILIES[i].name;
    }
    return NULL;
}
