#!/bin/sh
# race_metal.sh: every Metal kernel on the fake Metal with each GPU thread a thread of its own to
# TSan, and proof that this finds what it looks for: each barrier taken away makes it fail.
#
#   sh tests/race_metal.sh   through make race, which builds build/race/check_ops and the fake
#
# Only the kernels are watched, with and without matrices of simdgroups, in several orders of
# threads. Small sizes, but enough tokens for tiles: a thread is dear here.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export EMU_METAL_WORKERS=1 EMU_METAL_STATS=1

# check LIBRARY MATRIX SEED [ARGUMENT...]: sets code; output in $work/out.
check() {
    library=$1 matrix=$2 seed=$3
    shift 3
    EMU_METAL_SEED=$seed TSAN_OPTIONS=halt_on_error=1 timeout 900 build/race/check_ops \
        --device "metal:driver=$library,matrix=$matrix" "$@" >"$work/out" 2>&1
    code=$?
}
clean() { [ $code -eq 0 ] && ! grep -q 'WARNING: ThreadSanitizer' "$work/out"; }
result() { # NAME, after a test
    if [ $? -eq 0 ]; then
        echo "ok $1"
    else
        echo "not ok $1"
        echo "  code $code"; grep -E 'WARNING|SUMMARY|^not ok|fake Metal:' "$work/out" | head -n 12
    fi
}

library=$PWD/build/tsan/emulator/libmetal.so
for machine in '1 0 9' '0 1 3' '1 2 3'; do
    # shellcheck disable=SC2086
    set -- $machine
    check "$library" "$1" "$2" --quick --tokens "$3"
    clean
    result "no_race_with_matrix_$1_in_order_$2"
    sed -n 's/.*never dispatched: //p' "$work/out" | tr ' ' '\n' | sort >"$work/idle.$1.$2"
done
for matrix in 1 0; do
    for op in matmul matmul_experts; do
        check "$library" $matrix 3 --quick --tokens 33 --op $op
        clean
        result "no_race_in_large_${op}_with_matrix_$matrix"
        sed -n 's/.*never dispatched: //p' "$work/out" | tr ' ' '\n' | sort >"$work/idle.$op.$matrix"
    done
done
# Two threadgroups at a time, too: races between threadgroups.
EMU_METAL_WORKERS=2 check "$library" 1 0 --quick --tokens 3
clean
result no_race_between_threadgroups
# The one that copies is not check_ops's: a thread writes its bytes alone.
n_runs=$(ls "$work"/idle.* | wc -l)
sort "$work"/idle.* | uniq -c | awk -v n="$n_runs" '$1 == n && $2 !~ /^(none|move_rows)$/' >"$work/out"
! [ -s "$work/out" ]
result every_kernel_was_watched

# ---- Without a barrier ---------------------------------------------------------------------------
# A copy of what the library is made of, its objects included, so that only one file is compiled. The
# text that the program brings stays as it is: the emulated Metal compares it with its own.
mkdir -p "$work/tree/build/tsan"
cp -a Makefile base kernels planner runtime tests bench configs "$work/tree"
cp -a build/metal "$work/tree/build"
cp -a build/tsan/metal build/tsan/emulator "$work/tree/build/tsan"
# The ops whose kernels are in a file.
ops_of() {
    case $1 in
    norm) echo rms_norm ;;
    attention*) echo attention ;;
    route) echo route ;;
    state) echo delta_rule ;;
    *) echo matmul matmul_experts ;;
    esac
}
grep -nE '^ *(threadgroup|simdgroup)_barrier\(' kernels/metal/*.metal | cut -d : -f 1,2 >"$work/barriers"
while IFS=: read -r file line; do
    name=$(basename "$file" .metal)
    sed -i -E "${line}s/(threadgroup|simdgroup)_barrier\([^;]*;//" "$work/tree/$file"
    code=build
    found=1
    if MAKELEVEL=0 make -s -C "$work/tree" -o build/metal/metal_source.c BUILD=tsan \
        CUDA=0 fake-metal >"$work/out" 2>&1; then
        for op in $(ops_of "$name"); do
            for matrix in 1 0; do # one of them uses this file
                [ $found -eq 0 ] && break
                check "$work/tree/build/tsan/emulator/libmetal.so" $matrix 0 --op "$op" --quick \
                    --tokens 17
                grep -q 'WARNING: ThreadSanitizer: data race' "$work/out" &&
                    grep -q "$name.metal" "$work/out" && found=0
            done
        done
    fi
    [ $found -eq 0 ]
    result "race_found_without_${name}_$line"
    cp "$file" "$work/tree/$file"
done <"$work/barriers"
for name in norm attention attention_tiles gemm route state; do
    grep -q "/$name.metal:" "$work/barriers"
    result "${name}_has_barriers"
done
