/* cli_pages.c: see cli_pages.h. */
#include "runtime/cli/cli_pages.h"

#include "runtime/cli/cli_options.h"
#include "runtime/tandem.h"

#include <string.h>

static bool belongs(const struct option_spec *spec, int command) {
    return spec->names[0] && (spec->commands & 1u << command);
}

// ---- The manual page ----------------------------------------------------------------------------

// Writes text so that troff shows it as it is.
static void write_roff(const char *text, FILE *out) {
    if (*text == '.' || *text == '\'') fputs("\\&", out);
    for (; *text; text++) {
        if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '-')
            fputs("\\-", out);
        else
            fputc(*text, out);
    }
}

static void write_man_option(const struct option_spec *spec, FILE *out) {
    fputs(".TP\n\\fB", out);
    for (int k = 0; k < OPTION_NAMES && spec->names[k]; k++) {
        if (k) fputs("\\fR, \\fB", out);
        write_roff(spec->names[k], out);
    }
    fputs("\\fR", out);
    if (spec->value) {
        fputs(" \\fI", out);
        write_roff(spec->value, out);
        fputs("\\fR", out);
    }
    fputc('\n', out);
    write_roff(spec->help, out);
    fputc('\n', out);
}

static void write_man(FILE *out) {
    int32_t count;
    const struct option_spec *table = cli_option_table(&count);
    fputs(
        ".TH TANDEM 1 \"\" \"tandem " TANDEM_VERSION "\" \"User Commands\"\n"
        ".SH NAME\ntandem \\- run language models across GPU and CPU\n"
        ".SH SYNOPSIS\n.B tandem\n\\fICOMMAND\\fR [\\fIoptions\\fR]\n"
        ".SH DESCRIPTION\nRuns language models in GGUF files, also those larger than the memory of "
        "the GPU.\nA planner predicts what each placement of the weights would cost, and picks the "
        "fastest one that fits.\nBehind \\-\\- no argument is an option, whatever it begins "
        "with.\n",
        out);
    for (int c = 0; c < COMMAND_COUNT; c++) {
        const char *name = command_name((enum command)c);
        fprintf(out, ".SH TANDEM %s\n.B tandem %s\n", name, name);
        write_roff(command_words((enum command)c)->usage, out);
        fputs("\n.PP\n", out);
        write_roff(command_words((enum command)c)->summary, out);
        fputc('\n', out);
        for (int32_t i = 0; i < count; i++)
            if (belongs(&table[i], c)) write_man_option(&table[i], out);
    }
    fputs(".SH EXIT STATUS\n0 done, 1 a file, the memory or a device failed, 2 wrong usage, 3 with "
          "\\-\\-strict a placement that does not fit, 130 stopped by Ctrl\\-C.\n"
          ".SH FILES\n.TP\n\\fI~/.cache/tandem\\fR\nmeasured speeds of this computer\n"
          ".TP\n\\fI~/.cache/huggingface/hub\\fR\nmodels by name, shared with the hub's own "
          "programs\n"
          ".TP\n\\fI~/.local/state/tandem\\fR\nthe history of chat and kept conversations\n",
          out);
}

// ---- Completions --------------------------------------------------------------------------------

static void write_names(const struct option_spec *table, int32_t count, int command, FILE *out) {
    const char *space = "";
    for (int32_t i = 0; i < count; i++)
        for (int k = 0; k < OPTION_NAMES && belongs(&table[i], command) && table[i].names[k]; k++) {
            fprintf(out, "%s%s", space, table[i].names[k]);
            space = " ";
        }
}

// Writes the commands, as words.
static void write_commands(FILE *out) {
    for (int c = 0; c < COMMAND_COUNT; c++)
        fprintf(out, "%s%s", c ? " " : "", command_name((enum command)c));
}

static void write_bash(FILE *out) {
    int32_t count;
    const struct option_spec *table = cli_option_table(&count);
    fputs("# bash completion for tandem\n_tandem() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} words=\n"
          "    case $COMP_CWORD:${COMP_WORDS[1]} in\n    1:* | 2:help) words='",
          out);
    write_commands(out);
    fputs("' ;;\n", out);
    for (int c = 0; c < COMMAND_HELP; c++) {
        fprintf(out, "    *:%s) words='", command_name((enum command)c));
        write_names(table, count, c, out);
        fputs("' ;;\n", out);
    }
    fputs("    esac\n    if [[ $COMP_CWORD -eq 1 || ${COMP_WORDS[1]} == help || $word == -* ]]; "
          "then\n"
          "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n    else\n"
          "        mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n    fi\n}\n"
          "complete -o filenames -F _tandem tandem\n",
          out);
}

// Writes text inside single quotes of zsh, where a colon ends a name.
static void write_zsh_quoted(const char *text, FILE *out) {
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", out);
        else if (*text != ':')
            fputc(*text, out);
    }
}

// Writes text inside single quotes of fish.
static void write_fish_quoted(const char *text, FILE *out) {
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\') fputc('\\', out);
        fputc(*text, out);
    }
}

static void write_zsh(FILE *out) {
    int32_t count;
    const struct option_spec *table = cli_option_table(&count);
    fputs("#compdef tandem\n_tandem() {\n    if ((CURRENT == 2)) || [[ $words[2] == help ]]; then\n"
          "        ((CURRENT > 3)) && return\n        local -a commands=(\n",
          out);
    for (int c = 0; c < COMMAND_COUNT; c++) {
        fprintf(out, "            '%s:", command_name((enum command)c));
        write_zsh_quoted(command_words((enum command)c)->summary, out);
        fputs("'\n", out);
    }
    fputs("        )\n        _describe command commands\n        return\n    fi\n    case "
          "$words[2] in\n",
          out);
    for (int c = 0; c < COMMAND_HELP; c++) {
        fprintf(out, "    %s) compadd -- ", command_name((enum command)c));
        write_names(table, count, c, out);
        fputs(" ;;\n", out);
    }
    fputs("    esac\n    _files\n}\n_tandem \"$@\"\n", out);
}

static void write_fish_option(const struct option_spec *spec, const char *command, FILE *out) {
    fprintf(out, "complete -c tandem -n '__fish_seen_subcommand_from %s'", command);
    for (int k = 0; k < OPTION_NAMES && spec->names[k]; k++) {
        const char *name = spec->names[k] + strspn(spec->names[k], "-");
        const char *kind = strncmp(spec->names[k], "--", 2) == 0 ? "-l" : name[1] ? "-o" : "-s";
        fprintf(out, " %s %s", kind, name);
    }
    fprintf(out, "%s -d '", spec->value ? " -r" : "");
    write_fish_quoted(spec->help, out);
    fputs("'\n", out);
}

static void write_fish(FILE *out) {
    int32_t count;
    const struct option_spec *table = cli_option_table(&count);
    fputs("complete -c tandem -f -n '__fish_seen_subcommand_from help; and "
          "test (count (commandline -opc)) -eq 2' -a '",
          out);
    write_commands(out);
    fputs("'\n", out);
    for (int c = 0; c < COMMAND_COUNT; c++) {
        const char *name = command_name((enum command)c);
        fprintf(out, "complete -c tandem -f -n __fish_use_subcommand -a %s -d '", name);
        write_fish_quoted(command_words((enum command)c)->summary, out);
        fputs("'\n", out);
        for (int32_t i = 0; i < count; i++)
            if (belongs(&table[i], c)) write_fish_option(&table[i], name, out);
    }
}

bool cli_page_write(const char *name, FILE *out) {
    static const struct {
        const char *name;
        void (*write)(FILE *out);
    } pages[] = {
        {"--man", write_man}, {"--bash", write_bash}, {"--zsh", write_zsh}, {"--fish", write_fish}};
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
        if (strcmp(pages[i].name, name) == 0) return pages[i].write(out), true;
    return false;
}
