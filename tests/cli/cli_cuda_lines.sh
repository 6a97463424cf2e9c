#!/bin/sh
# cli_cuda_lines.sh: the cache lines of 128 bytes that the loads of products touch on the emulated
# NVIDIA GPU, by kernel, against tests/expected/cuda_lines.tsv. --update writes the table.
#
# For many tokens: for 64 rows, 64 tokens (narrow tiles: 32) and 64 columns, on average over 256.
# For one token, and for eight: for a row of 2048 columns. A load of a warp that reads 16 bytes a
# lane in a row touches 4 lines, one whose lanes read a row each 32. Lines that are read twice count
# twice, also where they are in a cache. Types with codebooks are left out: how many lines their
# lookups touch depends on where the linker places the codebooks.
set -u
: "${TANDEM:=build/tandem}" "${TOOLS:=build/release/tests}"
expected=tests/expected/cuda_lines.tsv
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

emulator=$(dirname "$TANDEM")/emulator/libcuda.so.1
if ! [ -f "$emulator" ] || ! [ -x "$TOOLS/lib/multiply_each" ]; then
    echo 'ok 1 # SKIP there is no emulator (it needs x86-64 and a C++ compiler)'
    exit 0
fi

# count CAPABILITY TOKENS ROWS COLUMNS: a line for each product: kernel and lines.
count() {
    EMU_CUDA_CC=$1 EMU_CUDA_LINES=1 timeout 100 "$TOOLS/lib/multiply_each" \
        --device "cuda:driver=$emulator" "$2" "$3" "$4" 2>&1 |
        sed -n 's/^emulator: \(matmul_[a-z0-9_]*\|gemm_[a-z0-9_]*\|narrow_[a-z0-9_]*\): \([0-9]*\) lines$/\1 \2/p'
}
# compare CAPABILITY TOKENS ROWS COLUMNS STEPS: the lines of a step, from twice as many columns.
compare() {
    count "$1" "$2" "$3" "$4" >"$work/short"
    count "$1" "$2" "$3" $((2 * $4)) >"$work/long"
    paste -d ' ' "$work/short" "$work/long" |
        awk -v cc="$1" -v steps="$5" '{ printf "%s\t%s\t%.1f\n", $1, cc, ($4 - $2) / steps }'
}
{
    printf 'kernel\tcapability\tlines of a step\n'
    for capability in 6.1 7.5 8.6; do
        compare $capability 64 64 256 4
        compare $capability 32 64 256 4
        compare $capability 1 8 2048 8
        compare $capability 8 8 2048 8
    done
} | grep -v '_iq[123]' >"$work/lines.tsv"
if [ "${1:-}" = --update ]; then
    cp "$work/lines.tsv" $expected
    exit 0
fi

if [ "$(grep -c . "$work/lines.tsv")" -gt 100 ] && cmp -s "$work/lines.tsv" $expected; then
    echo 'ok cuda_lines'
else
    echo 'not ok cuda_lines'
    diff "$work/lines.tsv" $expected | head -20 | sed 's/^/  /'
    echo "  if that is meant: sh tests/cli/cli_cuda_lines.sh --update"
fi
# The GEMM of the most common type, which took 576 when each lane loaded a row of its own.
if awk -F '\t' '$1 == "gemm_mma_q4_k" && $3 > 0 && $3 <= 150 { n++ } END { exit n != 2 }' \
    "$work/lines.tsv"; then
    echo 'ok cuda_lines_q4_k'
else
    echo 'not ok cuda_lines_q4_k'
fi
