/* cli_help.c: see cli_help.h. */
#include "runtime/cli/cli_help.h"

#include "runtime/model/families.h"

#include <stddef.h>
#include <string.h>

enum { HELP_INDENT = 34, HELP_COLUMNS = 96 };

// Prints text from column indent on, where the line is, broken between words.
static void print_wrapped(const char *text, int indent, FILE *out) {
    int column = indent;
    for (const char *word = text; *word;) {
        int length = (int)strcspn(word, " ");
        if (column > indent && column + 1 + length > HELP_COLUMNS) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else if (column > indent)
            column += fprintf(out, " ");
        column += fprintf(out, "%.*s", length, word);
        word += length;
        word += strspn(word, " ");
    }
    fputc('\n', out);
}

// Prints left in its column, and text in the other one.
static void print_row(const char *left, const char *text, FILE *out) {
    if (strlen(left) < HELP_INDENT - 3)
        fprintf(out, "  %-*s", HELP_INDENT - 2, left);
    else
        fprintf(out, "  %s\n%*s", left, HELP_INDENT, "");
    print_wrapped(text, HELP_INDENT, out);
}

static void print_option(const struct option_spec *spec, FILE *out) {
    char left[96];
    int length = 0;
    for (int k = 0; k < OPTION_NAMES && spec->names[k]; k++)
        length += snprintf(left + length, sizeof left - (size_t)length, "%s%s", k ? ", " : "",
                           spec->names[k]);
    if (spec->value) snprintf(left + length, sizeof left - (size_t)length, " %s", spec->value);
    print_row(left, spec->help, out);
}

static void print_devices(const struct device_driver *drivers, int32_t n_drivers, FILE *out) {
    fprintf(out, "\nKinds of --device in this program:\n  %-*s", HELP_INDENT - 2, "none");
    print_wrapped("only the CPU", HELP_INDENT, out);
    for (int32_t i = 0; i < n_drivers; i++) {
        fprintf(out, "  %-*s", HELP_INDENT - 2, drivers[i].prefix);
        print_wrapped(drivers[i].help, HELP_INDENT, out);
    }
}

static void print_families(FILE *out) {
    char families[2048];
    fprintf(out, "\nModels that run, by their general.architecture:\n  ");
    print_wrapped(family_list(families, sizeof families), 2, out);
}

static void help_all(FILE *out) {
    fprintf(out, "usage: tandem COMMAND [options]\n\n"
                 "Runs a language model (a GGUF file) on the GPU and the CPU together.\n\n");
    for (enum command i = 0; i < COMMAND_COUNT; i++) {
        char left[64];
        snprintf(left, sizeof left, "%s %s", command_name(i), command_words(i)->usage);
        print_row(left, command_words(i)->summary, out);
    }
    fprintf(out, "\nExamples:\n");
    for (enum command i = 0; i < COMMAND_COUNT; i++)
        if (command_words(i)->example)
            fprintf(out, "  tandem %s %s\n", command_name(i), command_words(i)->example);
    print_families(out);
    fprintf(out, "\n'tandem help COMMAND' lists the options of a command.\n\n"
                 "Behind -- no argument is an option, whatever it begins with.\n"
                 "Sizes take K M G T or KiB MiB GiB TiB (1024), KB MB GB TB (1000), B.\n"
                 "Exit codes: 0 done, 1 a file, the memory or a device failed, 2 wrong usage,\n"
                 "3 --strict and the placement asked for does not fit or is refused its memory,\n"
                 "130 stopped by Ctrl-C.\n");
}

// Prints the options of the command under their headings. True if --device is one of them.
static bool print_options(enum command topic, FILE *out) {
    int32_t count;
    const struct option_spec *table = cli_option_table(&count);
    const char *heading = NULL;
    bool devices = false;
    for (int32_t i = 0; i < count; i++) {
        if (!(table[i].commands & 1u << topic)) continue;
        if (!table[i].names[0]) {
            heading = table[i].help;
            continue;
        }
        if (heading) fprintf(out, "\n%s:\n", heading);
        heading = NULL;
        devices |= table[i].offset == offsetof(struct cli_options, device);
        print_option(&table[i], out);
    }
    return devices;
}

void cli_help(enum command topic, const struct device_driver *drivers, int32_t n_drivers,
              FILE *out) {
    ASSERT(topic < COMMAND_COUNT);
    if (topic >= COMMAND_HELP) {
        help_all(out);
        return;
    }
    const char *name = command_name(topic), *usage = command_words(topic)->usage;
    fprintf(out, "usage: tandem %s %s%s[options]\n\n'tandem %s' %s.\n%s", name, usage,
            *usage ? " " : "", name, command_words(topic)->summary, command_words(topic)->more);
    if (print_options(topic, out)) print_devices(drivers, n_drivers, out);
    const char *example = command_words(topic)->example;
    if (example) fprintf(out, "\nExample:\n  tandem %s %s\n", name, example);
}
