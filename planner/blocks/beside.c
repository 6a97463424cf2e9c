/* beside.c: attention and a state space model (Mamba-2) side by side: both read the same norm of
 * the residual stream, and both are added to it. Tested by tests/cli/cli_tiny.sh and
 * tests/runtime/test_pipeline.c. Source: Falcon-H1, Zuo et al. 2025.
 */
#include "planner/blocks/encode.h"

static void encode_beside(const struct forward *f) {
    encode_attention(f);
    encode_mamba_of_normed(f);
}

static const struct block_tensor TENSORS[] = {
    {ROLE_ATTN_NORM, DIM_EMBD, DIM_ONE, false},
    {ROLE_ATTN_Q, DIM_EMBD, DIM_Q_ROWS, false},
    {ROLE_ATTN_K, DIM_EMBD, DIM_KEYS, false},
    {ROLE_ATTN_V, DIM_EMBD, DIM_VALUES, false},
    {ROLE_ATTN_OUTPUT, DIM_ATTENDED, DIM_EMBD, false},
    {ROLE_SSM_IN, DIM_EMBD, DIM_MIXER_IN, false},
    {ROLE_SSM_CONV, DIM_TAPS, DIM_CHANNELS, false},
    {ROLE_SSM_CONV_BIAS, DIM_CHANNELS, DIM_ONE, true},
    {ROLE_SSM_DT_BIAS, DIM_DELTA_HEADS, DIM_ONE, false},
    {ROLE_SSM_A, DIM_ONE, DIM_DELTA_HEADS, false},
    {ROLE_SSM_D, DIM_ONE, DIM_DELTA_HEADS, false},
    {ROLE_SSM_NORM, DIM_GROUP, DIM_GROUPS, true},
    {ROLE_SSM_OUT, DIM_DELTA, DIM_EMBD, false},
};

static const struct block_area NEEDED[] = {
    {AREA_RESIDUAL, ROWS_TOKENS, DIM_EMBD},
    {AREA_NORMED, ROWS_TOKENS, DIM_EMBD},
    {AREA_FREQS, ROWS_ONE, DIM_HALF_ROT},
    {AREA_ANGLES, ROWS_TOKENS, DIM_ROT},
    {AREA_OTHER_ANGLES, ROWS_TOKENS, DIM_OTHER_ROT},
    {AREA_Q, ROWS_TOKENS, DIM_QUERIES},
    {AREA_ATTENDED, ROWS_TOKENS, DIM_ATTENDED},
    {AREA_K, ROWS_TOKENS, DIM_KEYS},
    {AREA_V, ROWS_TOKENS, DIM_VALUES},
    {AREA_MIXER_IN, ROWS_TOKENS, DIM_MIXER_IN},
    {AREA_CONVOLVED, ROWS_TOKENS, DIM_CHANNELS},
    {AREA_DELTA_OUT, ROWS_TOKENS, DIM_DELTA},
    {AREA_MATMUL, ROWS_TOKENS, DIM_EMBD},
    {AREA_MATMUL, ROWS_TOKENS, DIM_ATTENDED},
    {AREA_MATMUL, ROWS_TOKENS, DIM_DELTA},
};

const struct block block_beside = {BLOCK_TENSORS(TENSORS), BLOCK_AREAS(NEEDED),
                                   .encode = encode_beside, .encode_shared = encode_angles};
