#!/bin/sh
# cli_metal_kernels.sh: every op on the emulated Metal against its definition, and the loops over
# tiles with and without matrices of simdgroups. METAL_ALL=1, as make metal-check sets it, takes
# every op with all sizes on both kinds of device, with threads in order and at random.
set -u
: "${TANDEM:=build/tandem}" "${TOOLS:=build/release/tests}" "${METAL_ALL:=}"
metal=$(dirname "$TANDEM")/emulator/libmetal.so

if ! [ -f "$metal" ]; then
    echo 'ok 1 # SKIP there is no emulated Metal (it needs x86-64 and a C++ compiler)'
    exit 0
fi
out=$(mktemp)
trap 'rm -f "$out"' EXIT

# check NAME MATRIX SEED ARGUMENT...: a line for each op and type.
check() {
    name=$1 matrix=$2 seed=$3
    shift 3
    EMU_METAL_SEED=$seed EMU_METAL_STATS=1 "$TOOLS/kernels/check_ops" \
        --device "metal:driver=$metal,matrix=$matrix" "$@" >"$out" 2>&1
    code=$?
    sed -n "s/^\(ok\|not ok\) \([^ ]*\) \([^ ]*\) metal/\1 metal_${name}_\2_\3/p" "$out"
    # The emulated Metal complains of what the real one would only suffer from.
    ! grep -v ' dispatches, \|: never dispatched:' "$out" | grep '^fake Metal: ' && [ $code -eq 0 ]
    if [ $? -eq 0 ]; then echo "ok metal_${name}_without_complaint"; else
        echo "not ok metal_${name}_without_complaint"
        echo "  code $code"; tail -n 3 "$out"
    fi
}

# Matmuls of 17 tokens take tiles, and attention does with matrices. Sanitizers are slow and take
# fewer anyway.
check few 1 1 --quick --tokens 1
check tiles 1 0 --quick --tokens 17 --op matmul
check old_tiles 0 0 --quick --tokens 17 --op matmul
check rows 1 0 --quick --tokens 17 --op attention
check old_rows 0 0 --quick --tokens 17 --op attention
check more_rows 1 1 --quick --tokens 33 --op attention
[ "$METAL_ALL" ] || exit 0
for tokens in 33 128; do
    check "new_$tokens" 1 0 --tokens $tokens
    check "old_$tokens" 0 7 --tokens $tokens
done
