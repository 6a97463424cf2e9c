#!/bin/sh
# cli_cuda_ops.sh: every op of the CUDA backend against its definition, on emulated devices of three
# generations: with tensor cores, with those of 7.5, and without any.
set -u
: "${TANDEM:=build/tandem}" "${TOOLS:=build/release/tests}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

library=$(dirname "$TANDEM")/emulator/libcuda.so.1
if ! [ -f "$library" ]; then
    echo 'ok 1 # SKIP there is no emulator (it needs x86-64 and a C++ compiler)'
    exit 0
fi
for cc in 8.6 7.5 6.1; do
    EMU_CUDA_CC=$cc "$TOOLS/check_ops" --device "cuda:driver=$library" >"$work/out" 2>&1
    code=$?
    grep -E '^(not )?ok ' "$work/out" | sed "s/\$/ on $cc/"
    if [ $code -eq 0 ] && grep -q '^ok matmul q4_k' "$work/out"; then
        echo "ok cuda_ops_ran_to_the_end_on_$cc"
    else
        echo "not ok cuda_ops_ran_to_the_end_on_$cc"
        echo "  code $code"; tail -n 3 "$work/out"
    fi
done
