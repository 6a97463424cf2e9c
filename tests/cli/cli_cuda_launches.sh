#!/bin/sh
# cli_cuda_launches.sh: the kernels that one more token of a model of 32 layers takes on the emulated
# NVIDIA GPU, where each costs a start: norms, gated units and attention quantise what they write,
# rope stores keys and values, and products of one input are one launch.
set -u
: "${TANDEM:=build/tandem}" "${TOOLS:=build/release/tests}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

emulator=$(dirname "$TANDEM")/emulator
make_model=$TOOLS/../bench/make_model
if ! [ -f "$emulator/libcuda.so.1" ] || ! [ -x "$make_model" ]; then
    echo 'ok 1 # SKIP there is no emulator (it needs x86-64 and a C++ compiler)'
    exit 0
fi
export LD_LIBRARY_PATH="$emulator:${LD_LIBRARY_PATH:-}"

# kernels TOKENS: prints the kernels that ran for so many tokens.
kernels() {
    EMU_CUDA_STATS=1 timeout 200 "$TANDEM" run -m "$work/model" -p 1 -n "$1" -c 256 --temp 0 -q \
        --ignore-eos --device cuda -ngl all 2>&1 >"$work/out" |
        sed -n 's/^emulator: \([0-9]*\) kernels run.*/\1/p'
}
# launches NAME MOST ARGUMENT...: the fourth token that is decoded takes at most so many.
launches() {
    name=$1 most=$2
    shift 2
    "$make_model" "$work/model" layers=32 embd=256 ff=256 heads=4 kv=2 vocab=512 "$@"
    before=$(kernels 3) after=$(kernels 4)
    count=$((${after:-0} - ${before:-0}))
    if [ $count -gt 32 ] && [ $count -le "$most" ]; then
        echo "ok cuda_launches_$name"
    else
        echo "not ok cuda_launches_$name"
        echo "  $count kernels, at most $most"
    fi
}
# Half of the values are of another type than queries and keys.
launches Q4_K_M 330
launches Q8_0 330 type=Q8_0
# Floats are not quantised.
launches F16 330 type=F16
