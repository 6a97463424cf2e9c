/* matvec.cu: matmul_one_<type>, a weight times one token, and matmul_vec_<type>, times up to
 * MATVEC_TOKENS tokens: decode, where the time is that of reading the weight once.
 *
 * Grid (chunks of rows). A warp computes MATVEC_ONE_ROWS or MATVEC_ROWS rows: its lanes stride over
 * the rows' items (32 or 64 columns, see blocks.cuh), unpack each once in registers and multiply it
 * with every token's quantised activations by __dp4a; sums are floats, added up across the warp at
 * the end. Per row the weight is read once from memory, in 16-byte loads where that is possible,
 * the activations of all tokens from cache, once for two rows, since these are 72 of the 98 cache
 * lines that a warp's step of one token and a row of Q4_K takes. The kernels of one token have
 * registers for one: 56 instead of 127 for Q4_K on 8.6, 9 blocks on a multiprocessor instead of 4,
 * and the 6 loads of both rows under way before the first is used. F32, F16 and BF16 multiply with
 * x as floats, eight columns per lane. The columns that a lane adds up and their order depend on
 * n_cols alone, so a result is the same for every number of tokens and every row range; the GEMM
 * kernels round differently. n_tokens <= MATVEC_TOKENS.
 *
 * experts_one_<type> and experts_vec_<type>, the same for the pairs of experts of one token and of
 * several. Grid (chunks of rows, n_pairs): block y takes up to EXPERTS_VEC_PAIRS pairs (of one
 * token one) from order[y] on if such a run of their expert begins there, else it returns. With one
 * token every block has work, and an expert that several tokens share is read once for up to
 * EXPERTS_VEC_PAIRS of them.
 *
 * A launch for one token computes up to MATMUL_PARTS weights, since a start takes as long as a
 * small product (cuda_fuse.h): matmul_one_<type> of one type, matmul_mixed of those that files mix.
 * The blocks of one weight lie behind those of another. Tested by tests/kernels/check_ops.c.
 */
#include "kernels/cuda/activations.cuh"
#include "kernels/cuda/blocks.cuh"
#include "kernels/cuda/rows.cuh"

// The sum of v over the warp, in every lane.
DEVICE_FN float warp_sum(float v) {
    for (int apart = 16; apart > 0; apart /= 2) v += __shfl_xor_sync(0xffffffffu, v, apart);
    return v;
}

// The first of the N rows of this warp, or -1 past the end. The same for the whole warp.
template <int N, class Args> DEVICE_FN int warp_row(const Args &a, int block) {
    int row = (block * (MATVEC_THREADS / 32) + (int)threadIdx.x / 32) * N;
    return row < a.row_count ? a.row_first + row : -1;
}

// The part of this block.
DEVICE_FN int part_of(const struct products_params &p) {
    static_assert(MATMUL_PARTS == 3, "two comparisons find it");
    return ((int)blockIdx.x >= p.starts[1]) + ((int)blockIdx.x >= p.starts[2]);
}

// The last row that is computed. Rows of a warp that lie behind it repeat it and are not written.
template <class Args> DEVICE_FN int last_row(const Args &a) {
    return a.row_first + a.row_count - 1;
}

// Lane i writes sum i, so that no load of a bias or a residual waits for a store.
template <int TOKENS, int N, class Rows>
DEVICE_FN void write_sums(const typename Rows::params &p, const Rows &rows, int row,
                          const float *sums) {
    static_assert(N * TOKENS <= 32, "a lane for each sum");
    int lane = (int)threadIdx.x % 32, t = lane % TOKENS;
    float mine = 0;
#pragma unroll
    for (int i = 0; i < N * TOKENS; i++) {
        float sum = warp_sum(sums[i]);
        mine = lane == i ? sum : mine;
    }
    row += lane / TOKENS;
    if (lane >= N * TOKENS || t >= rows.count || row > last_row(p.a)) return;
    int64_t place = (int64_t)Rows::out_row(p, rows, t) * p.a.out_stride + row;
    p.a.out[place] = mine + Rows::bias(p, rows, row) + Rows::residual(p, place);
}

// The sum of four words of signed bytes.
DEVICE_FN int sum_bytes(int4 words) {
    const int ones = 0x01010101;
    int sum = __dp4a(words.x, ones, __dp4a(words.y, ones, 0));
    return __dp4a(words.z, ones, __dp4a(words.w, ones, sum));
}

// 32 columns of a token.
struct acts_group {
    int4 low, high;
    float2 scale;
};
DEVICE_FN acts_group load_acts(const void *acts, int n_cols, int g) {
    const int4 *bytes = (const int4 *)acts_bytes(acts, g);
    return {__ldg(bytes), __ldg(bytes + 1), acts_scale(acts, n_cols, g)};
}

// Returns sum plus the product of 32 columns of a weight row with those of a token. Every
// multiply-add is explicit, so that the compiler rounds alike for every number of tokens.
template <class W>
DEVICE_FN float add_group(float sum, const weight_group &w, const acts_group &acts) {
    const int4 low = acts.low, high = acts.high;
    const float2 x = acts.scale;
    int first = 0, last = 0;
    first = __dp4a((int)w.words[0], low.x, first), first = __dp4a((int)w.words[1], low.y, first);
    first = __dp4a((int)w.words[2], low.z, first), first = __dp4a((int)w.words[3], low.w, first);
    last = __dp4a((int)w.words[4], high.x, last), last = __dp4a((int)w.words[5], high.y, last);
    last = __dp4a((int)w.words[6], high.z, last), last = __dp4a((int)w.words[7], high.w, last);
    if (W::TWO_SCALES)
        return fmaf(x.x, fmaf(w.scale, (float)first, w.scale_high * (float)last), sum);
    if (W::HAS_OFFSET) sum = fmaf(w.offset, x.y, sum);
    if (W::TWO_OFFSETS) {
        int minima = (int)(w.minima & 15) * sum_bytes(low) + (int)(w.minima >> 4) * sum_bytes(high);
        sum = fmaf(w.offset * x.x, (float)minima, sum);
    }
    return fmaf(w.scale * x.x, (float)(first + last), sum);
}

// i itself, which the compiler takes for another number, so that it reads again what it reads with
// it instead of keeping that in registers.
DEVICE_FN int again(int i) {
    asm volatile("" : "+r"(i));
    return i;
}

// The parameters of a launch for one weight, or of part i of one for several; of_all: activations,
// strides and n_cols, which are the same for all parts, from the first, which has a fixed address.
template <class Params> struct one_weight {
    const Params &p;
    DEVICE_FN const Params &own(const one_weight &l) { return l.p; }
    DEVICE_FN const Params &of_all(const one_weight &l) { return l.p; }
    DEVICE_FN const Params &at_end(const one_weight &l) { return l.p; }
};
struct one_of_weights {
    const products_params &p;
    int i;
    DEVICE_FN const matmul_params &own(const one_of_weights &l) { return l.p.parts[l.i]; }
    DEVICE_FN const matmul_params &of_all(const one_of_weights &l) { return l.p.parts[0]; }
    DEVICE_FN const matmul_params &at_end(const one_of_weights &l) { return l.p.parts[again(l.i)]; }
};

// The first row of this warp in its part, or -1.
DEVICE_FN int first_row(const one_of_weights &l) {
    return warp_row<MATVEC_ONE_ROWS>(l.p.parts[l.i].a, (int)blockIdx.x - l.p.starts[l.i]);
}

// sums[r * TOKENS + t] is of row row + r and token t.
template <class W, int TOKENS, int N, class Launch, class Rows>
DEVICE_FN void multiply_rows(const Launch &launch, const Rows &rows, int row) {
    const typename Rows::params &p = Launch::own(launch), &same = Launch::of_all(launch);
    int lane = (int)threadIdx.x % 32, n_items = same.a.n_cols / (32 * W::ITEM_GROUPS);
    const uint8_t *weights = Rows::weight(p, rows) + row * p.weight_stride;
    const char *acts = (const char *)same.a.scratch;
    float sums[N * TOKENS] = {};
    int x_rows[TOKENS];
#pragma unroll
    for (int t = 0; t < TOKENS; t++) x_rows[t] = Rows::x_row(p, rows, t);
    for (int item = lane; item < n_items; item += 32) {
        weight_group groups[N][W::ITEM_GROUPS];
#pragma unroll
        for (int r = 0; r < N; r++)
            W::load(groups[r], weights + (row + r > last_row(p.a) ? 0 : r * p.weight_stride), item);
        int g = W::first_group(item);
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            if (t >= rows.count) continue;
            const char *x = acts + x_rows[t] * same.acts_stride;
#pragma unroll
            for (int i = 0; i < W::ITEM_GROUPS; i++) {
                const acts_group a = load_acts(x, same.a.n_cols, g + i * W::ITEM_STEP);
#pragma unroll
                for (int r = 0; r < N; r++)
                    sums[r * TOKENS + t] = add_group<W>(sums[r * TOKENS + t], groups[r][i], a);
            }
        }
    }
    write_sums<TOKENS, N>(Launch::at_end(launch), rows, row, sums);
}

// Loads eight columns, with zeros past the end. Fast if all lie inside and are 16-byte aligned.
template <class W>
DEVICE_FN void load_eight(float *out, const uint8_t *row, int column, int n_cols, bool aligned) {
    if (aligned) {
        W::eight(out, row, column);
        return;
    }
#pragma unroll
    for (int i = 0; i < 8; i++) out[i] = column + i < n_cols ? W::element(row, column + i) : 0;
}

template <class W, int TOKENS, int N, class Launch, class Rows>
DEVICE_FN void multiply_floats(const Launch &launch, const Rows &rows, int row) {
    const typename Rows::params &p = Launch::own(launch), &same = Launch::of_all(launch);
    int lane = (int)threadIdx.x % 32;
    const uint8_t *weights = Rows::weight(p, rows) + row * p.weight_stride;
    bool aligned = same.a.n_cols % 8 == 0;
    float sums[N * TOKENS] = {};
    for (int column = 8 * lane; column < same.a.n_cols; column += 8 * 32) {
        float w[N][8], x[8];
#pragma unroll
        for (int r = 0; r < N; r++)
            load_eight<W>(w[r], weights + (row + r > last_row(p.a) ? 0 : r * p.weight_stride),
                          column, same.a.n_cols, aligned);
#pragma unroll
        for (int t = 0; t < TOKENS; t++) {
            if (t >= rows.count) continue;
            // The row is looked up again each time: kept in registers, it spilled on 6.1.
            const float *token = same.a.x + (int64_t)Rows::x_row(p, rows, t) * same.a.n_cols;
            load_eight<weight_f32>(x, (const uint8_t *)token, column, same.a.n_cols, aligned);
#pragma unroll
            for (int i = 0; i < 8 * N; i++)
                sums[i / 8 * TOKENS + t] =
                    fmaf(w[i / 8][i % 8], x[i % 8], sums[i / 8 * TOKENS + t]);
        }
    }
    write_sums<TOKENS, N>(Launch::at_end(launch), rows, row, sums);
}

// Blocks of a multiprocessor that F16 and BF16 keep registers for: as many as they had without
// being told, for then they spilled on 8.6.
static constexpr int HALF_BLOCKS = CUDA_ARCH >= 750 ? 7 : 6;
#ifdef __NVCC__ // which takes other numbers of registers than clang
static constexpr bool BY_NVCC = true;
#else
static constexpr bool BY_NVCC = false;
#endif
// The same for types whose words are shifted into place by choices. nvcc spills with 5 blocks of
// Q3_K for one token, and with its own choice for ternary weights.
template <class W> constexpr int VEC_BLOCKS = 0;
template <> constexpr int VEC_BLOCKS<weight_q3_k> = 3;
template <class W> constexpr int EXPERT_BLOCKS = 0;
template <> constexpr int EXPERT_BLOCKS<weight_q6_k> = CUDA_ARCH >= 800 ? 5 : 4;
template <> constexpr int EXPERT_BLOCKS<weight_q3_k> = CUDA_ARCH >= 800 ? 5 : 4;
template <class W> constexpr int EXPERT_ONE_BLOCKS = EXPERT_BLOCKS<W>;
template <> constexpr int EXPERT_ONE_BLOCKS<weight_q3_k> = CUDA_ARCH >= 800 && !BY_NVCC ? 5 : 4;
template <class W> constexpr int EXPERT_VEC_BLOCKS = EXPERT_BLOCKS<W>;
template <> constexpr int EXPERT_VEC_BLOCKS<weight_tq1_0> = CUDA_ARCH >= 800 && BY_NVCC ? 7 : 0;
template <> constexpr int EXPERT_VEC_BLOCKS<weight_tq2_0> = CUDA_ARCH >= 800 && BY_NVCC ? 7 : 0;

// One token has a kernel of its own, with fewer sums and pointers in registers.
#define MATMUL_VEC(type, multiply, vec_rows, ...)                                                \
    KERNEL void __launch_bounds__(MATVEC_THREADS)                                                \
        matmul_one_##type(const struct products_params p) {                                      \
        const one_of_weights launch = {p, part_of(p)};                                           \
        const token_rows rows = {0, 1};                                                          \
        int row = first_row(launch);                                                             \
        if (row >= 0) multiply<weight_##type, 1, MATVEC_ONE_ROWS>(launch, rows, row);            \
    }                                                                                            \
    KERNEL void __launch_bounds__(__VA_ARGS__) matmul_vec_##type(const struct matmul_params p) { \
        const one_weight<matmul_params> launch = {p};                                            \
        const token_rows rows = {0, p.a.n_tokens};                                               \
        int row = warp_row<vec_rows>(p.a, (int)blockIdx.x);                                      \
        if (row >= 0) multiply<weight_##type, MATVEC_TOKENS, vec_rows>(launch, rows, row);       \
    }                                                                                            \
    KERNEL void __launch_bounds__(MATVEC_THREADS, EXPERT_ONE_BLOCKS<weight_##type>)              \
        experts_one_##type(const struct experts_params p) {                                      \
        const one_weight<experts_params> launch = {p};                                           \
        int row = warp_row<MATVEC_ONE_ROWS>(p.a, (int)blockIdx.x);                               \
        if (row < 0) return;                                                                     \
        const expert_rows rows = find_run(p.a, (int)blockIdx.y, 1);                              \
        if (rows.count > 0) multiply<weight_##type, 1, MATVEC_ONE_ROWS>(launch, rows, row);      \
    }                                                                                            \
    KERNEL void __launch_bounds__(MATVEC_THREADS, EXPERT_VEC_BLOCKS<weight_##type>)              \
        experts_vec_##type(const struct experts_params p) {                                      \
        const one_weight<experts_params> launch = {p};                                           \
        int row = warp_row<MATVEC_WIDE_ROWS>(p.a, (int)blockIdx.x);                              \
        if (row < 0) return;                                                                     \
        const expert_rows rows = find_run(p.a, (int)blockIdx.y, EXPERTS_VEC_PAIRS);              \
        if (rows.count == 1)                                                                     \
            multiply<weight_##type, 1, MATVEC_WIDE_ROWS>(launch, rows, row);                     \
        else if (rows.count > 1)                                                                 \
            multiply<weight_##type, EXPERTS_VEC_PAIRS, MATVEC_WIDE_ROWS>(launch, rows, row);     \
    }
#define MATMUL_VEC_FLOATS(name) MATMUL_VEC(name, multiply_floats, MATVEC_WIDE_ROWS, MATVEC_THREADS)
#define MATMUL_VEC_HALVES(name) \
    MATMUL_VEC(name, multiply_floats, MATVEC_WIDE_ROWS, MATVEC_THREADS, HALF_BLOCKS)
#define MATMUL_VEC_BYTES(name) \
    MATMUL_VEC(name, multiply_rows, MATVEC_ROWS, MATVEC_THREADS, VEC_BLOCKS<weight_##name>)
#define WEIGHT(NAME, name, KIND, ...) MATMUL_VEC_##KIND(name)
#include "kernels/weights.def"
#undef WEIGHT

KERNEL void __launch_bounds__(MATVEC_THREADS) matmul_mixed(const struct products_params p) {
    const one_of_weights launch = {p, part_of(p)};
    const token_rows rows = {0, 1};
    int row = first_row(launch);
    if (row < 0) return;
    switch (p.types[launch.i]) {
#define MIXED(NAME, name) \
    case WEIGHT_##NAME: multiply_rows<weight_##name, 1, MATVEC_ONE_ROWS>(launch, rows, row); break;
        MATMUL_MIXED(MIXED)
#undef MIXED
    }
}
