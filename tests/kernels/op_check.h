/* op_check.h: runs one op on every device at hand and compares with its definition.
 *
 * A struct op_check owns the rigs (the same backend with 1, 2 and 3 lanes) and the scene: the
 * memory of one case, laid out once and then copied to each device and to the definition. Every
 * byte of the scene that the op has no business with must come back as it was. On the CPU there are
 * pages around each operand that nobody can read (op_guard.c). Failures are printed, never fatal,
 * but for an access to such a page, which ends the program after a message. One thread. Used by
 * tests/kernels/check_ops.c.
 */
#ifndef TANDEM_TESTS_KERNELS_OP_CHECK_H
#define TANDEM_TESTS_KERNELS_OP_CHECK_H

#include "kernels/cpu/cpu.h"
#include "kernels/device.h"
#include "kernels/op_command.h"
#include "kernels/op_cost.h"

// The use that an op makes of a byte of the scene.
enum op_role {
    ROLE_KEPT,
    ROLE_F32,
    ROLE_F16,
    ROLE_BITS, // must be the definition's, bit for bit, whatever the limit
    ROLE_SCRATCH
};

// How a shape (a struct of the check's own, holding sizes and offsets into the scene) becomes
// arguments whose pointers start at base, and which bytes such a call writes.
struct op_case {
    enum op_id op;
    enum weight_type type; // of ops with weight types
    double limit;          // largest normalised mean square error; 0: bit for bit
    bool may_skip;         // writes fewer bytes than op_cost says
    bool of_many;          // sequences: writes more, since op_cost counts the state of one
    bool may_be_nan;       // where the definition says NaN, NaN is right
    bool is_other;         // of another op than the whole: only the CPU need give the same bits
    // The energy (sum of squares) to expect of a shape's outputs; NULL: what they have. For sums of
    // few terms, which may cancel by chance.
    double (*expect)(const void *shape);
    void (*place)(union op_args *args, const void *shape, char *base);
    void (*mark)(uint8_t *roles, const void *shape);
};

enum { OP_RIGS_MAX = 3, OP_SCENE_BYTES = 16 << 20, OP_REGIONS_MAX = 32 };

struct op_rig {
    struct device *device; // owned, as are the next two
    struct stream *stream;
    struct buffer memory;
    uint64_t layout; // of the scene, around whose operands pages of memory are closed; 0: none
};

// A part of the scene.
struct op_region {
    uint64_t offset, size_bytes;
};

// The cases of a line that have too few outputs to be judged alone.
struct op_few {
    double error; // sum of squares, each in units of the energy to expect of the output
    double limit; // of the mean
    int64_t count;
};

struct op_check {
    struct op_rig rigs[OP_RIGS_MAX];
    int n_rigs;
    struct cpu_table definition;
    const char *backend; // the third word of a line: "avx2", "sim"
    bool quick;          // fewer and smaller cases
    int32_t max_tokens;  // of a case
    bool rounds_bf16;    // products of BF16 round activations to BF16
    uint64_t seed;       // of each line, so that every level gets the same cases
    uint64_t random;     // state of the generator
    int n_passed, n_failed;

    // The scene. Offsets into it are what shapes hold.
    uint8_t *before;                     // what every run starts from
    uint8_t *expected;                   // after the definition
    uint8_t *actual;                     // after the device
    uint8_t *whole;                      // after the first device, for the same shape
    uint8_t *roles;                      // enum op_role of every byte
    uint64_t outputs_start, outputs_end; // bytes outside are all ROLE_KEPT
    uint64_t used_bytes, align_bytes;
    uint64_t page_bytes; // operands have closed pages around them; 0: they have guard bands
    uint64_t layout;     // the number of this arrangement of operands, from 1 on
    struct op_region regions[OP_REGIONS_MAX]; // the operands, if they have closed pages
    int n_regions;

    // The line that is being measured.
    enum op_id op;
    char label[24], what[120], why[400];
    double worst;
    struct op_few few;
    uint64_t bits; // a hash of the outputs of all cases on the first device
    bool failed;
    // Those of each line of an op at the weakest level but the definition's; 0: not yet.
    uint64_t level_bits[OP_COUNT][WEIGHT_COUNT];
};

// Takes over an open device as the next rig. False after a message if its memory is refused.
bool op_check_add(struct op_check *c, struct device *device);
// False after a message if host memory is refused.
bool op_check_open(struct op_check *c, uint64_t seed);
void op_check_close(struct op_check *c); // accepts a zeroed one; closes the devices
void op_check_close_rigs(struct op_check *c);

// Starts and ends one line of output: "ok matmul q4_1 avx2 nmse 3.1e-05 bits 9ae16a3b2f90404f". The
// bits are the same where all outputs are.
void op_line_start(struct op_check *c, enum op_id op, const char *label);
void op_line_end(struct op_check *c);

// Names the case in hand, for a message about its failure.
void op_describe(struct op_check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Says why the line in hand fails; the first of them is shown.
void op_fail(struct op_check *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

// Fails line number i of the op in hand if its bits are not those that a weaker level of the CPU
// had, the definition apart.
void op_compare_levels(struct op_check *c, int i);

// Runs the case on the definition and on every rig. The first rig is held against the definition,
// the others must equal the first bit for bit.
void op_run_whole(struct op_check *c, const struct op_case *k, const void *shape);
// Runs a part (fewer tokens, fewer rows) of what op_run_whole ran last, on the rig with most lanes.
// Its output must equal that of the whole run bit for bit, unless the device may round by batch.
void op_run_part(struct op_check *c, const struct op_case *k, const void *part);

// Ops one after another, with pointers into memory at base.
enum { OP_CHAIN_MAX = 16 };
struct op_chain {
    struct op_command commands[OP_CHAIN_MAX];
    int n;
};
// Runs the ops in one list and each in a list of its own, on every rig: what c->roles calls outputs
// comes out the same, bit for bit.
void op_run_chain(struct op_check *c,
                  void (*place)(struct op_chain *chain, const void *shape, char *base),
                  const void *shape);

// The scene: forget all; add an operand and get its offset; find it in before. On the CPU one ends
// less than 4 bytes before a closed page or starts behind one, as chance decides.
void op_scene_clear(struct op_check *c);
uint64_t op_scene_add(struct op_check *c, uint64_t size_bytes); // filled with NaN
void *op_scene_at(struct op_check *c, uint64_t offset);
void op_mark(uint8_t *roles, uint64_t offset, uint64_t size_bytes, enum op_role role);

// Adds an operand with random numbers of a normal distribution, or random blocks of a weight type.
uint64_t op_scene_normal(struct op_check *c, int64_t count, float deviation);
uint64_t op_scene_weights(struct op_check *c, enum weight_type type, int64_t count);
void op_fill_weights(struct op_check *c, enum weight_type type, void *out, int64_t count);
void op_fill_normal(struct op_check *c, float *out, int64_t count, float deviation);
uint32_t op_random(struct op_check *c, uint32_t limit); // 0..limit-1

// The sum of squares of each row of a matrix (n_cols up to 2048): the energy to expect of its
// product with activations of deviation 1.
void op_row_squares(struct op_check *c, enum weight_type type, uint64_t weight, int32_t n_rows,
                    int32_t n_cols, double *squares);
// The largest NMSE of products with weights of that type. Integer types turn activations into
// bytes; the level avx512bf16 rounds those that meet BF16 to BF16, whose errors of up to 2^-9 have
// a mean square of some 2e-6, 3e-6 in the worst case seen.
double op_product_limit(const struct op_check *c, enum weight_type type);
// Scratch of a matmul with n_rows rows of x, on any rig.
uint64_t op_scratch_bytes(const struct op_check *c, enum weight_type type, int32_t n_cols,
                          int32_t n_rows);

// For op_check.c, in op_guard.c.
// Adds an operand between closed pages and returns its offset.
uint64_t op_guard_add(struct op_check *c, uint64_t size_bytes);
// Opens the pages of an earlier layout in a rig's memory and closes those around the operands. From
// now on an access to one names the op that was at work. False after op_fail.
bool op_guard_close(struct op_check *c, struct op_rig *rig);
// The pages of operand i, which are open.
struct op_region op_guard_span(const struct op_check *c, int i);

// How many tokens the ops are tried with: case i of op_n_batches has op_batch, the last one as many
// as there may be.
enum { OP_BATCHES_MAX = 5 };
static const int32_t OP_BATCHES[OP_BATCHES_MAX] = {1, 2, 7, 33, 128};
static inline int op_n_batches(const struct op_check *c) {
    int n = 1;
    while (n < OP_BATCHES_MAX && OP_BATCHES[n - 1] < c->max_tokens) n++;
    return n;
}
static inline int32_t op_batch(const struct op_check *c, int i) {
    return OP_BATCHES[i] < c->max_tokens ? OP_BATCHES[i] : c->max_tokens;
}

static inline const float *floats_at(const char *base, uint64_t offset) {
    return (const float *)(base + offset);
}

#endif
