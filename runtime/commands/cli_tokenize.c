/* cli_tokenize.c: `tandem tokenize`: shows the tokens of a text, as llama-tokenize prints them. See
 * commands.h. */
#include "runtime/commands/commands.h"

#include "base/mem.h"
#include "runtime/gguf/gguf.h"
#include "runtime/report/report_json.h"
#include "runtime/text/tokenizer.h"

static void print_ids(const struct token_list *list) {
    putchar('[');
    for (uint64_t i = 0; i < list->count; i++) printf("%s%d", i ? ", " : "", list->ids[i]);
    puts("]");
}

static enum status print_pieces(const struct tokenizer *t, const struct token_list *list,
                                struct err *e) {
    size_t room = tokenizer_longest(t) + 1;
    char *piece = mem_alloc(room, 1);
    if (!piece) return err_memory(e, room, "a token's text");
    for (uint64_t i = 0; i < list->count; i++) {
        size_t length = tokenizer_decode(t, list->ids[i], false, true, piece, room);
        printf("%6d -> '", list->ids[i]);
        fwrite(piece, 1, length < room ? length : room, stdout);
        puts("'");
    }
    mem_free(piece);
    return OK;
}

static enum status print_json(const struct token_list *list, struct err *e) {
    json_t *ids = json_array();
    for (uint64_t i = 0; i < list->count; i++)
        json_array_append_new(ids, json_integer(list->ids[i]));
    return report_json_write(
        json_pack("{s:o, s:o}", "tokens", ids, "count", report_json_count(list->count)), stdout, e);
}

static enum status print_tokens(const struct cli_options *o, const struct tokenizer *t,
                                const struct token_list *list, struct err *e) {
    if (o->json) return print_json(list, e);
    if (o->ids)
        print_ids(list);
    else if (print_pieces(t, list, e))
        return e->status;
    if (o->show_count) printf("Total number of tokens: %llu\n", (unsigned long long)list->count);
    return OK;
}

enum status cli_tokenize(struct cli *cli, struct err *e) {
    const struct cli_options *o = &cli->options;
    struct tokenizer_flags flags = {.add_special = !o->no_bos,
                                    .parse_special = !o->no_parse_special};
    struct gguf gguf = {0};
    struct tokenizer *tokenizer = NULL;
    struct token_list list = {0};
    char *text = NULL;
    size_t length = 0;
    enum status status = OK;
    if (gguf_open(&gguf, o->model, e) || tokenizer_open(&tokenizer, &gguf, &cli->log, e) ||
        cli_read_text(cli, &text, &length, e) ||
        tokenizer_encode(tokenizer, text, length, flags, &list, e) ||
        print_tokens(o, tokenizer, &list, e))
        status = e->status;
    mem_free(text);
    token_list_close(&list);
    tokenizer_close(tokenizer);
    gguf_close(&gguf);
    return status;
}
