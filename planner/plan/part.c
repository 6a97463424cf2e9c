/* part.c: see part.h. A block follows no address, so its addresses here only identify the tensors
 * of the unit. */
#include "planner/plan/part.h"

#include "planner/blocks/blocks.h"
#include "planner/plan/footprint.h"

#include <string.h>

// A piece with n matrices of tensor i lies at ((i + 1) << TENSOR_BITS) + n.
enum { TENSOR_BITS = 44, SCRATCH = 4096 };

static void *address_of(int32_t tensor, int32_t n_matrices) {
    return (char *)((uintptr_t)(tensor + 1) << TENSOR_BITS) + n_matrices;
}

// ---- The op table -------------------------------------------------------------------------------

// Adds the tensors among the op's arguments. The op reads the same share of a matrix as of one in
// F32.
static void add_tensors(const struct part_walk *walk, const void *args, int n_pointers,
                        struct op_call *call) {
    const struct unit *unit = walk->unit;
    for (int i = 0; i < n_pointers; i++) {
        uintptr_t address;
        memcpy(&address, (const char *)args + (size_t)i * sizeof address, sizeof address);
        if (!(address >> TENSOR_BITS)) continue;
        const struct unit_tensor *t = &unit->tensors[(address >> TENSOR_BITS) - 1];
        if (tensor_role_info(t->role)->kind == KIND_BIASES) { // of the experts that are read
            call->vector_bytes +=
                (double)t->size_bytes * call->weight_bytes / (double)call->tensor->size_bytes;
            continue;
        }
        if (t->use == USE_VECTOR) {
            call->vector_bytes += (double)t->size_bytes;
            continue;
        }
        call->tensor = t;
        call->share = (double)(int32_t)address / t->n_matrices;
        call->weight_bytes = call->share * (double)t->size_bytes * (double)call->cost.weight_bytes /
                             ((double)sizeof(float) * t->n_cols * t->n_rows * t->n_matrices);
    }
}

// Counts the matrices of the experts that a text chooses, where the op counts those of independent
// choices. Matrices of heads, of units without experts, are all read.
static void count_chosen(const struct part_walk *walk, struct op_cost *cost) {
    const struct unit *unit = walk->unit;
    const int32_t n = unit->n_experts, n_used = unit->n_experts_used;
    if (!n) return;
    const double fewer =
        op_cost_distinct_experts(pass_expert_tokens(walk->pass, walk->w), n, n_used) /
        op_cost_distinct_experts(walk->pass->n_tokens, n, n_used);
    cost->weight_bytes = (uint64_t)((double)cost->weight_bytes * fewer + 0.5);
}

// Hands a call to the walk; a struct part_walk takes the place of the stream.
static void hand_on(struct stream *s, struct op_call call, const void *args, int n_pointers) {
    const struct part_walk *walk = (const void *)s;
    if (call.op == OP_matmul_experts) count_chosen(walk, &call.cost);
    add_tensors(walk, args, n_pointers, &call);
    walk->take(walk->context, &call);
}

#define OP(name, n_pointers, last)                                                     \
    static void list_##name(struct stream *s, const struct name##_args *args) {        \
        hand_on(s, (struct op_call){OP_##name, .cost = op_cost_##name(args, 1)}, args, \
                n_pointers);                                                           \
    }
#define OP_W(name, n_pointers, last)                                                      \
    static void list_##name(struct stream *s, enum weight_type type,                      \
                            const struct name##_args *args) {                             \
        hand_on(s, (struct op_call){OP_##name, .cost = op_cost_##name(type, args)}, args, \
                n_pointers);                                                              \
    }
#include "kernels/ops.def"
#undef OP
#undef OP_W

static const struct op_table LIST = {
#define OP(name, ...) .name = list_##name,
#define OP_W          OP
#include "kernels/ops.def"
#undef OP
#undef OP_W
};

// ---- What a block gets --------------------------------------------------------------------------

// Fills the first or the last piece with its rows, as if they were F32: the tensor may have a type
// without kernels. Experts have all rows of some matrices. Matrices that are not cut are in the
// first piece; every device has the vectors.
static void fill_piece(const struct part_walk *walk, bool last, struct weight *out) {
    for (int32_t i = 0; i < walk->unit->n_tensors; i++) {
        const struct unit_tensor *t = &walk->unit->tensors[i];
        const struct cut cut = footprint_cut(t, unit_is_cut(t) ? walk->part.cpu_parts : 0);
        const bool in_last = last && (t->use != USE_VECTOR || walk->part.first);
        const int32_t first = in_last ? cut.first : 0, n = in_last ? cut.n - cut.first : cut.first;
        out[i] = (struct weight){DTYPE_F32, t->n_cols, n, first, address_of(i, 1), 0};
        if (t->use != USE_EXPERTS) continue;
        out[i] = (struct weight){DTYPE_F32, t->n_cols, t->n_rows, 0, address_of(i, n), 0};
    }
}

static bool knows(const struct block *block, enum tensor_role role) {
    for (int32_t i = 0; i < block->n_tensors; i++)
        if (block->tensors[i].role == role) return true;
    return false;
}

// Encodes matrices that the block does not know; in a split unit the accelerator has them, in the
// first phase.
static void encode_unknown(const struct block *block, const struct forward *f) {
    const struct unit *unit = f->unit;
    for (int32_t i = 0; i < unit->n_tensors; i++) {
        const struct unit_tensor *t = &unit->tensors[i];
        void *const weight = address_of(i, t->n_matrices);
        if (knows(block, t->role) || !f->pieces[0][i].n_rows) continue;
        if (t->use == USE_MATRIX)
            LIST.matmul(f->stream, WEIGHT_F32,
                        &(struct matmul_args){.weight = weight,
                                              .n_tokens = f->n_tokens,
                                              .n_cols = t->n_cols,
                                              .row_count = t->n_rows});
        if (t->use == USE_EXPERTS)
            LIST.matmul_experts(f->stream, WEIGHT_F32,
                                &(struct matmul_experts_args){.weight = weight,
                                                              .n_tokens = f->n_tokens,
                                                              .n_used = unit->n_experts_used,
                                                              .n_experts = unit->n_experts,
                                                              .n_cols = t->n_cols,
                                                              .row_count = t->n_rows});
    }
}

// Hands every op on, for the tokens that are the unit's own.
static void walk_own(const struct part_walk *walk) {
    static const struct hparams none;
    const struct unit_part *part = &walk->part;
    const struct block *block = blocks_of_unit(walk->shape, walk->unit);
    const bool first = !part->cpu_parts || part->first, last = part->cpu_parts && part->last;
    struct weight pieces[MAX_PIECES][MAX_UNIT_TENSORS];
    struct forward f = {.stream = (void *)(uintptr_t)walk,
                        .ops = &LIST,
                        .hp = &none,
                        .shape = walk->shape,
                        .unit = walk->unit,
                        .phase = part->phase,
                        .n_tokens = walk->pass->n_tokens,
                        .n_logits = walk->pass->n_logits,
                        .k_type = walk->w->kv_type_k,
                        .v_type = walk->w->kv_type_v};
    for (int i = 0; i < AREAS; i++) f.area[i] = (float *)(uintptr_t)SCRATCH;
    for (int i = 0; i < MAX_PIECES; i++) f.slots[i] = (const int32_t *)(uintptr_t)SCRATCH;
    for (int i = 0; i < 2; i++) {
        if (!(i ? last : first)) continue;
        fill_piece(walk, i, pieces[f.n_pieces]);
        f.pieces[f.n_pieces] = pieces[f.n_pieces];
        f.n_pieces++;
    }
    block->encode(&f);
    if (first && (part->phase == PHASE_ALL || part->phase == PHASE_IN)) encode_unknown(block, &f);
}

void part_walk(const struct part_walk *walk) {
    const struct pass pass = pass_of_unit(walk->pass, walk->shape, walk->unit);
    struct part_walk own = *walk;
    own.pass = &pass;
    if (pass.n_tokens > 0) walk_own(&own);
}
