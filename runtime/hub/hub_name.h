/* hub_name.h: names of models on the hub, such as org/repo:Q4_K_M, and of their files.
 *
 * Everything here comes from a person or from a server and is checked before it becomes a part of
 * a path or an address. Plain values; owns nothing. Any thread. Tested by tests/runtime/test_hub.c
 * and tests/fuzz/fuzz_hub.c.
 */
#ifndef TANDEM_RUNTIME_HUB_HUB_NAME_H
#define TANDEM_RUNTIME_HUB_HUB_NAME_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum {
    HUB_REPO_CHARS = 200, // also as the name of a folder, which has at most 255 bytes
    HUB_TAG_CHARS = 48,
    HUB_PATH_CHARS = 256,
};

struct hub_name {
    char repo[HUB_REPO_CHARS]; // org/repo: letters, digits, '_', and '-' or '.' between these
    char tag[HUB_TAG_CHARS];   // the quantization as typed, or ""
    char file[HUB_PATH_CHARS]; // in the repository, of an address; or ""
};

// Reads org/repo or org/repo:tag, or the address of a repository or a file at huggingface.co.
// ERR_USAGE.
enum status hub_name_parse(struct hub_name *out, const char *text, struct err *e);
// True if text is org/repo or org/repo:tag.
bool hub_name_is(const char *text);

// True if path names something below the folder that it is put behind, in printable ASCII, and is
// shorter than HUB_PATH_CHARS.
bool hub_path_is_safe(const char *path);

// True if text is length lower-case hexadecimal digits: a commit has 40, a sha256 64.
bool hub_is_hex(const char *text, size_t length);

// A part of a model, by the name of its GGUF file: models are cut into PREFIX-00001-of-00003.gguf.
struct hub_part {
    uint32_t prefix_chars;   // of the path, without the numbers and .gguf
    uint32_t number, count;  // from 1; 1 of 1 if the model is whole
    char tag[HUB_TAG_CHARS]; // what stands behind the last '-' or '.' of the prefix, in upper case
};

// False unless path ends in .gguf.
bool hub_part_of(struct hub_part *out, const char *path);

// True if path names the weights of a model, rather than of what belongs to one: images,
// importance matrices, draft models.
bool hub_path_is_model(const char *path);

#endif
