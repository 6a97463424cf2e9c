#!/bin/sh
# cli_kernels.sh: every op on the emulated GPU against its definition, and the sums of the kernels
# that measure single instructions, on the three kinds of device that have kernels of their own,
# with threads in order and at random.
set -u
: "${TANDEM:=build/tandem}" "${TOOLS:=build/release/tests}"
emulator=$(dirname "$TANDEM")/emulator/libcuda.so.1

if ! [ -f "$emulator" ]; then
    echo 'ok 1 # SKIP there is no emulator (it needs x86-64, a C++ compiler and the CUDA backend)'
    exit 0
fi
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# 65 tokens are a full tile of matmuls and the rest of one. 7.5 and 8.6 share most loops: 33 tokens of
# them take all kernels too. Sanitizers are slow and take fewer anyway.
case $TANDEM in
*/asan/* | */ubsan/* | */tsan/*) most='' some='' ;;
*) most='--tokens 65' some='--tokens 33' ;;
esac
for machine in "6.1 1 $most" "7.5 0 $some" "8.6 0 $most"; do
    # shellcheck disable=SC2086
    set -- $machine
    cc=$1 seed=$2
    shift 2
    EMU_CUDA_CC=$cc EMU_CUDA_SEED=$seed EMU_CUDA_STATS=1 \
        "$TOOLS/kernels/check_ops" --device "cuda:driver=$emulator" "$@" >"$out" 2>&1
    code=$?
    sed -n "s/^\(ok\|not ok\) \([^ ]*\) \([^ ]*\) cuda/\1 kernels_${cc}_\2_\3/p" "$out"
    # The emulator complains of what a real driver would only suffer from.
    ! grep -v ' bytes allocated$\| graphs launched; ' "$out" | grep '^emulator: ' && [ $code -eq 0 ]
    if [ $? -eq 0 ]; then echo "ok kernels_${cc}_without_complaint"; else
        echo "not ok kernels_${cc}_without_complaint"
        echo "  code $code"; tail -n 3 "$out"
    fi
    if EMU_CUDA_CC=$cc EMU_CUDA_SEED=$seed "$TOOLS/../bench/cuda/bench_peak" --quick \
        --device "cuda:driver=$emulator" >"$out" 2>&1 && ! grep '^emulator: ' "$out"; then
        echo "ok kernels_${cc}_peak"
    else
        echo "not ok kernels_${cc}_peak"
        tail -n 3 "$out"
    fi
done
