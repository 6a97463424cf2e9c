/* embed.h: puts the bytes of a file into the program when it is compiled.
 *
 * EMBED_FILE(symbol, path, alignment) declares symbol[], the bytes of path and a byte 0 behind
 * them, and symbol_end[], which begins with that byte. Owns nothing: the bytes are read-only data.
 * The assembler reads the file, so the object depends on it and a makefile has to say so. Tested by
 * tests/planner/test_machine.c.
 */
#ifndef TANDEM_BASE_EMBED_H
#define TANDEM_BASE_EMBED_H

// Where constants lie, as the assembler of ELF or of Mach-O names it.
#ifdef __APPLE__
#define EMBED_SECTION "__TEXT,__const"
#else
#define EMBED_SECTION ".rodata"
#endif

// The name for the assembler is given, since Mach-O would put an underscore before it.
#define EMBED_DECLARE(symbol) \
    extern const char symbol[] __asm__(#symbol) __attribute__((visibility("hidden")))
#define EMBED_FILE(symbol, path, alignment)                                           \
    __asm__(".pushsection " EMBED_SECTION "\n\t.balign " #alignment "\n" #symbol      \
            ":\n\t.incbin \"" path "\"\n" #symbol "_end:\n\t.byte 0\n\t.popsection"); \
    EMBED_DECLARE(symbol);                                                            \
    EMBED_DECLARE(symbol##_end);

#endif
