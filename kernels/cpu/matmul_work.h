/* matmul_work.h: the matmuls of each instruction-set level. A level provides a kernel that
 * multiplies a tile of rows with some tokens; this file shares the tiles of matmul and
 * matmul_experts among lanes.
 *
 * Owns nothing; call only on a CPU that has the level's instructions. Weights of integer types give
 * the same bits on every level. Used by the matmul files. Tested by tests/kernels/check_ops.c.
 */
#ifndef TANDEM_KERNELS_CPU_MATMUL_WORK_H
#define TANDEM_KERNELS_CPU_MATMUL_WORK_H

#include "kernels/cpu/act.h"
#include "kernels/cpu/cpu.h"

enum { MATMUL_TOKENS_MAX = 256 }; // tokens that share one reading of a tile's weights

// The weights that a lane reads after the rows before row of a matrix, for prefetches. weight NULL:
// the rows that follow.
struct sequel {
    const void *weight;
    int32_t row;
};

// Tokens that are multiplied with the same matrix. Their rows may lie anywhere in x and in out, as
// those of an expert do.
struct matmul_tokens {
    int32_t n;
    int32_t places[MATMUL_TOKENS_MAX]; // rows of out
    const void *x[MATMUL_TOKENS_MAX];  // the rows of x, [n_cols] floats; or as quantize of the
                                       // kernel wrote them: [n_cols] BF16 if extra is ACT_PAIRS,
                                       // else [n_cols] bytes, then [n_cols / ACT_COLS] struct
                                       // act_head
    int32_t n_tiles;                   // 1, or more: the tiles behind it too (see many_tiles)
    struct sequel after;
};

// A tile is tile_rows rows of the range in args; the last one may have fewer. If the range has
// fewer rows than that, each row is a tile.
struct matmul_kernel {
    // Multiplies tile index, and those after it if asked to, with all the tokens. Reads no x,
    // scratch or n_tokens of args. A result does not depend on the tile or the other tokens.
    void (*tile)(const struct matmul_args *args, int64_t index, const struct matmul_tokens *tokens);
    int32_t tile_rows;
    int32_t n_together;        // most tokens in one call, up to MATMUL_TOKENS_MAX
    act_quantize_fn *quantize; // NULL: it multiplies the floats themselves
    enum act_extra extra;      // that quantize is called with; read only if there is one
    int32_t many_tokens;       // from so many tokens on
    int32_t many_tiles;        // it takes so many tiles at once, else one
    enum weight_type type;
};

// Runs this lane's share of the op with a level's kernel. Lanes meet once if the kernel needs more
// than one row of x quantised.
void matmul_work(const struct lane *lane, const struct matmul_args *args,
                 const struct matmul_kernel *kernel);
void matmul_experts_work(const struct lane *lane, const struct matmul_experts_args *args,
                         const struct matmul_kernel *kernel);

// Where this lane's share of the weights begins; NULL if it has none, or if several groups of
// tokens pass the matrix. matmul_experts reads the lists of route, which have to be written.
const void *matmul_first_weight(const struct lane *lane, const struct matmul_args *args,
                                const struct matmul_kernel *kernel);
const void *matmul_experts_first_weight(const struct lane *lane,
                                        const struct matmul_experts_args *args,
                                        const struct matmul_kernel *kernel);

// Defines matmul_name and matmul_experts_name with the kernel, a struct matmul_kernel in braces.
#define MATMUL_OPS(name, ...)                                                            \
    static const struct matmul_kernel KERNEL_##name = __VA_ARGS__;                       \
    static void matmul_##name(const struct lane *lane, const struct matmul_args *args) { \
        matmul_work(lane, args, &KERNEL_##name);                                         \
    }                                                                                    \
    static void matmul_experts_##name(const struct lane *lane,                           \
                                      const struct matmul_experts_args *args) {          \
        matmul_experts_work(lane, args, &KERNEL_##name);                                 \
    }

// Puts both into the table under the name of a level.
#define MATMUL_INSTALL(table, NAME, name, level)                                                   \
    (table)->matmul[WEIGHT_##NAME] = matmul_##name;                                                \
    (table)->matmul_experts[WEIGHT_##NAME] = matmul_experts_##name;                                \
    (table)->matmul_kernel[WEIGHT_##NAME] = &KERNEL_##name;                                        \
    (void)snprintf((table)->matmul_path[WEIGHT_##NAME], sizeof(table)->matmul_path[WEIGHT_##NAME], \
                   level);

#endif
