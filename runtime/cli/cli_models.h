/* cli_models.h: the models that the command line names as org/repo: where they lie, and how they
 * come there.
 *
 * Works on the struct cli_models of the cli, which owns its paths. Says on standard error what it
 * fetches. One thread. Tested by tests/cli/cli_pull.sh.
 */
#ifndef TANDEM_RUNTIME_CLI_CLI_MODELS_H
#define TANDEM_RUNTIME_CLI_CLI_MODELS_H

#include "runtime/cli/cli_command.h"

// Finds the folder, the server and the token from the options and the variables (NAME=VALUE, ended
// by NULL), as llama.cpp and the hub's own programs do: LLAMA_CACHE, HF_HUB_CACHE, HF_HOME,
// XDG_CACHE_HOME, HOME; HF_ENDPOINT; HF_TOKEN, HF_TOKEN_PATH; LLAMA_ARG_OFFLINE, HF_HUB_OFFLINE,
// TRANSFORMERS_OFFLINE.
void cli_models_open(struct cli *cli, char *const *variables);
void cli_models_close(struct cli *cli);

// Finds a model, or that file of it unless it is NULL, in the cache alone: ERR_FILE, with the name
// of what forbids to ask the hub, if it is not there.
enum status cli_models_find_offline(const struct cli *cli, const struct hub_name *name,
                                    const char *file, struct hub_files *files, struct err *e);

// Fetches files of a repository that are missing, after a line about them. ERR_FILE, ERR_FORMAT,
// ERR_CANCELLED: what came is kept.
enum status cli_models_fetch(struct cli *cli, const char *repo, const struct hub_files *files,
                             struct err *e);

// Fetches as much of the files as their headers take, into *heads, a zeroed one or one of the same
// files.
enum status cli_models_heads(const struct cli *cli, const char *repo, const struct hub_files *files,
                             struct hub_heads *heads, struct err *e);

// Puts the path of the model that -hf names into options.model (of bench: into its list), and that
// of the draft model that -hfd names into options.draft_model. If it is
// not in the cache, commands that need no more than its header get that, and others fetch the
// model; offline ERR_FILE. Does nothing without -hf, or for a list of names or devices.
enum status cli_models_take(struct cli *cli, struct err *e);

// ERR_FILE if nobody knows the folder of the cache, or if it is a file.
enum status cli_models_check_folder(const struct cli *cli, struct err *e);

// The name to type for a model of these files: org/repo:QUANT, or org/repo alone for files that a
// name does not choose, such as those for images. Returns out.
enum { MODEL_NAME_CHARS = HUB_REPO_CHARS + HUB_TAG_CHARS };
char *cli_models_name(char out[MODEL_NAME_CHARS], const char *repo, const struct hub_file *file);

#endif
