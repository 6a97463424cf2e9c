/* hub_name.c: see hub_name.h. */
#include "runtime/hub/hub_name.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PART_DIGITS = 5, PART_CHARS = 15 }; // "-00001-of-00003"
static const char GGUF[] = ".gguf";

static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_'; }

// The length of org/repo at the beginning of text; 0 if there is none.
static size_t repo_length(const char *text) {
    size_t n = 0, slashes = 0;
    bool word = false; // the last character was a letter or the like
    for (; text[n] && text[n] != ':'; n++) {
        if (!is_word(text[n]) && !(word && strchr("-./", text[n]))) return 0;
        slashes += text[n] == '/';
        word = is_word(text[n]);
    }
    return word && slashes == 1 && n < HUB_REPO_CHARS ? n : 0;
}

static bool is_tag(const char *text) {
    size_t n = 0;
    for (; text[n]; n++)
        if (!is_word(text[n]) && text[n] != '-' && text[n] != '.') return false;
    return n > 0 && n < HUB_TAG_CHARS;
}

// Copies a path up to a question mark, with %XX as the byte that it means. False if it is too long
// or would lead out of a folder.
static bool read_path(char out[HUB_PATH_CHARS], const char *text) {
    size_t n = 0;
    for (; *text && *text != '?' && *text != '#'; text++) {
        const char digits[3] = {text[1], text[1] ? text[2] : 0, 0};
        const bool coded = *text == '%' && strspn(digits, "0123456789abcdefABCDEF") == 2;
        if (n + 1 >= HUB_PATH_CHARS) return false;
        out[n++] = coded ? (char)strtol(digits, NULL, 16) : *text;
        if (coded) text += 2;
    }
    out[n] = 0;
    return strlen(out) == n && hub_path_is_safe(out);
}

// The text behind prefix; NULL if text does not begin with it.
static const char *behind(const char *text, const char *prefix) {
    const size_t length = strlen(prefix);
    return text && strncmp(text, prefix, length) == 0 ? text + length : NULL;
}

// Reads what follows the host of an address: org/repo, org/repo/tree/main,
// org/repo/resolve/main/path or the same with blob.
static bool read_address(struct hub_name *out, const char *text) {
    size_t length = 0;
    for (int slashes = 0; text[length] && !strchr("?#", text[length]); length++)
        if (text[length] == '/' && ++slashes == 2) break;
    if (length == 0 || length >= HUB_REPO_CHARS) return false;
    memcpy(out->repo, text, length);
    if (repo_length(out->repo) != length) return false;
    text += length;
    const char *path = behind(text, "/resolve/main/");
    if (!path) path = behind(text, "/blob/main/");
    if (path) return read_path(out->file, path);
    return !*text || strcmp(text, "/") == 0 || strcmp(text, "/tree/main") == 0;
}

static enum status parse_address(struct hub_name *out, const char *text, struct err *e) {
    static const char *const hosts[] = {"huggingface.co/", "www.huggingface.co/", "hf.co/"};
    const char *host = strstr(text, "://") + 3, *rest = NULL;
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts && !rest; i++)
        rest = behind(host, hosts[i]);
    *out = (struct hub_name){0};
    if (rest && read_address(out, rest)) return OK;
    err_set(e, ERR_USAGE, "'%.160s' is no address of a model at huggingface.co", text);
    return err_fix(e,
                   "write https://huggingface.co/ORG/REPO/resolve/main/FILE.gguf; fetch files of "
                   "other servers by other means, and give them with -m");
}

// Reads org/repo or org/repo:tag.
static bool read_name(struct hub_name *out, const char *text) {
    const size_t length = repo_length(text);
    const char *tag = text[length] == ':' ? text + length + 1 : NULL;
    *out = (struct hub_name){0};
    if (length == 0 || (tag && !is_tag(tag))) return false;
    memcpy(out->repo, text, length);
    if (tag) snprintf(out->tag, sizeof out->tag, "%s", tag);
    return true;
}

enum status hub_name_parse(struct hub_name *out, const char *text, struct err *e) {
    if (behind(text, "https://") || behind(text, "http://")) return parse_address(out, text, e);
    if (read_name(out, text)) return OK;
    err_set(e, ERR_USAGE, "'%.80s' is no name of a model", text);
    return err_fix(e, "write org/repo or org/repo:quantization, such as "
                      "ggml-org/gemma-3-4b-it-GGUF:Q4_K_M");
}

bool hub_name_is(const char *text) {
    struct hub_name name;
    return read_name(&name, text);
}

bool hub_path_is_safe(const char *path) {
    size_t n = 0, part = 0; // part: where the current one begins
    for (;; n++) {
        const char c = path[n];
        if (c && (c < ' ' || c > '~' || c == '\\' || n + 1 >= HUB_PATH_CHARS)) return false;
        if (c && c != '/') continue;
        // No part is empty, and none begins with a dot: so neither . nor .. nor a hidden file.
        if (n == part || path[part] == '.') return false;
        if (!c) return true;
        part = n + 1;
    }
}

bool hub_is_hex(const char *text, size_t length) {
    return strspn(text, "0123456789abcdef") == length && !text[length];
}

// Reads PART_DIGITS digits.
static bool read_digits(const char *text, uint32_t *out) {
    *out = 0;
    for (int i = 0; i < PART_DIGITS; i++) {
        if (!isdigit((unsigned char)text[i])) return false;
        *out = *out * 10 + (uint32_t)(text[i] - '0');
    }
    return true;
}

// Takes "-00001-of-00003" off the end of the prefix, if it is there and makes sense.
static void take_numbers(struct hub_part *out, const char *path) {
    uint32_t number, count;
    if (out->prefix_chars <= PART_CHARS) return;
    const char *text = path + out->prefix_chars - PART_CHARS;
    if (text[0] != '-' || strncmp(text + 1 + PART_DIGITS, "-of-", 4) != 0 ||
        !read_digits(text + 1, &number) || !read_digits(text + PART_CHARS - PART_DIGITS, &count))
        return;
    if (number == 0 || number > count) return;
    out->number = number;
    out->count = count;
    out->prefix_chars -= PART_CHARS;
}

bool hub_part_of(struct hub_part *out, const char *path) {
    const size_t length = strlen(path), suffix = sizeof GGUF - 1;
    *out = (struct hub_part){.number = 1, .count = 1};
    if (length <= suffix || length >= HUB_PATH_CHARS || strcmp(path + length - suffix, GGUF) != 0)
        return false;
    out->prefix_chars = (uint32_t)(length - suffix);
    take_numbers(out, path);
    uint32_t first = out->prefix_chars;
    while (first > 0 && is_word(path[first - 1])) first--;
    const uint32_t n = out->prefix_chars - first;
    if (first == 0 || n == 0 || n >= HUB_TAG_CHARS || !strchr("-.", path[first - 1])) return true;
    for (uint32_t i = 0; i < n; i++) out->tag[i] = (char)toupper((unsigned char)path[first + i]);
    return true;
}

bool hub_path_is_model(const char *path) {
    static const char *const others[] = {"mmproj",  "imatrix", "mtp-",
                                         "eagle3-", "dflash-", "dspark-"};
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    struct hub_part part;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strstr(name, others[i])) return false;
    return hub_part_of(&part, path);
}
