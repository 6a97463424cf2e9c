/* hello.c: a program that writes with a model through libtandem: hello MODEL.gguf "PROMPT".
 *
 * cc hello.c $(pkg-config --cflags --libs tandem) -o hello. Compiles as C and as C++. Run by
 * tests/cli/cli_library.sh, which compares its text with that of `tandem run`.
 */
#include <tandem.h>
#include <stdio.h>

static bool print(void *context, const char *text, size_t length) {
    return fwrite(text, 1, length, (FILE *)context) == length; // false would end the answer
}

static enum tandem_status write_text(struct tandem_engine *engine, const char *prompt,
                                     struct tandem_error *e) {
    struct tandem_session *session;
    struct tandem_sampling sampling;
    struct tandem_generate_options options;
    tandem_sampling_defaults(&sampling, sizeof sampling);
    tandem_generate_defaults(&options, sizeof options);
    sampling.temp = 0; // always the likeliest token
    options.sampling = &sampling;
    options.max_tokens = 32;
    options.on_text = print;
    options.context = stdout;
    if (tandem_session_new(&session, engine, e) != TANDEM_OK) return e->status;
    return tandem_generate(session, prompt, &options, NULL, e);
}

int main(int argc, char **argv) {
    struct tandem_engine *engine = NULL;
    struct tandem_error e;
    char text[1024];
    if (argc != 3) return 2;
    if (tandem_open(&engine, argv[1], NULL, &e) != TANDEM_OK ||
        write_text(engine, argv[2], &e) != TANDEM_OK)
        fprintf(stderr, "%s\n", tandem_error_text(&e, text, sizeof text));
    putchar('\n');
    tandem_close(engine); // with its sessions
    return e.status == TANDEM_OK ? 0 : 1;
}
