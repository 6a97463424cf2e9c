/* cli_command.h: functions that the commands of the command line share.
 *
 * A struct cli is made by cli_main and lent to the command that runs. One thread. Tested by
 * tests/cli/cli_*.sh.
 */
#ifndef TANDEM_RUNTIME_CLI_CLI_COMMAND_H
#define TANDEM_RUNTIME_CLI_CLI_COMMAND_H

#include "runtime/cli/cli_options.h"
#include "runtime/cli/progress_bar.h"
#include "runtime/engine/engine.h"
#include "runtime/hub/hub.h"

// Models by name (cli_models.h).
struct cli_models {
    struct hub hub; // folder NULL: nobody knows where the cache is
    char folder[PATH_MAX], token[512];
    const char *variable;      // that names the folder; NULL without one
    char path[PATH_MAX];       // of the model that the options name, once it is found
    struct hub_heads heads;    // of a model whose header is enough
    char draft_path[PATH_MAX]; // the same of the draft model
    struct hub_heads draft_heads;
};

struct cli {
    struct cli_options options;
    struct cli_models models;
    char *tensor_overrides;              // owned; all of -ot, with commas between them, or NULL
    const struct device_driver *drivers; // borrowed
    int32_t n_drivers;
    const char *cache_path;  // the folder of calibrations; NULL: none is kept
    const char *state_path;  // the folder of histories and conversations; NULL: none is kept
    bool may_calibrate;      // a command may measure this computer unasked
    struct machine measured; // what that gave, if it cannot be kept in a file
    bool interrupted;        // Ctrl-C ended the work early: exit code 130, after all is told
    bool dumb;               // the terminal knows no control sequences: TERM=dumb
    int screen;              // standard error, once --log-file has taken its place; else -1
    int output_errno;        // why standard output refused text first; 0: it did not
    struct log log;
    struct progress_bar bar;
};

// A listener that draws the bar of cli and stops the work at Ctrl-C.
struct progress cli_progress(struct cli *cli);
// Joins what was given by -ot.
enum status cli_join_overrides(struct cli *cli, struct err *e);
// Fills *out from the options, with that listener.
void cli_engine_options(struct cli *cli, struct engine_options *out);
// The same for the draft model, which has its own context, limits and place.
void cli_draft_options(struct cli *cli, struct engine_options *out);
// Checks that the file of --trace can be written, before anything else is done.
enum status cli_check_trace(const struct cli *cli, struct err *e);
// Writes the file of --trace if the engine, which may be NULL, traces. status and *e are those of
// the command so far: after a failure they come back as they are, and a line in the log says if the
// file could not be written.
enum status cli_write_trace(const struct cli *cli, const struct engine *engine, enum status status,
                            struct err *e);
// With -v: prints on standard error how busy devices and link were.
void cli_print_usage(const struct cli *cli, const struct engine *engine);
// Prints the names that --shape or --machine takes on standard output, a line each, or as JSON.
enum status cli_print_names(const struct cli_options *o, struct err *e);
// Reads the shape of the model that -m or --shape names, from its header or description alone.
// ERR_USAGE says how to see the names that are built in.
enum status cli_read_shape(struct shape *out, const struct cli_options *o, struct err *e);
// Reads that of the draft model: of a file, or of one that is built in. If both models are files,
// ERR_USAGE where their tokens differ.
enum status cli_read_draft_shape(struct shape *out, const struct cli_options *o, struct err *e);
// Reads the machine that --machine names.
enum status cli_read_machine(struct machine *out, const char *name, struct err *e);
// Turns \n, \r, \t, \\, \" and \' into the characters that they stand for, in place; any other
// backslash stays. Returns the new length.
size_t cli_unescape(char *text, size_t length);
// Reads the text of -p, -f or --stdin. The caller frees *text with mem_free.
enum status cli_read_text(const struct cli *cli, char **text, size_t *length, struct err *e);

#endif
