#!/bin/sh
# race.sh: every kernel on the emulator with each GPU thread a thread of its own to TSan, and proof
# that this finds what it looks for: each barrier of the GEMMs, in full and in narrow tiles, of the
# attention of many tokens, of norms, of rope_store and of sort_pairs taken away makes it fail.
#
#   sh tests/race.sh           through make race, which builds build/race/check_ops and the emulator
#   sh tests/race.sh FILE...   takes the barriers of these kernels away, no more; 1 to 5 minutes each
#
# Only the kernels are watched. Several devices, since each has kernels of its own, and several
# orders of threads. Small sizes, but enough tokens for the GEMMs: a thread is dear here, and 1,024
# experts are as many blocks. What a GEMM of several tiles does is looked at for itself.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export EMU_CUDA_WORKERS=1 EMU_CUDA_STATS=1

# check LIBRARY CC SEED [ARGUMENT...]: sets code; output in $work/out.
check() {
    library=$1 cc=$2 seed=$3
    shift 3
    EMU_CUDA_CC=$cc EMU_CUDA_SEED=$seed TSAN_OPTIONS=halt_on_error=1 timeout 400 \
        build/race/check_ops --device "cuda:driver=$library" "$@" >"$work/out" 2>&1
    code=$?
}
clean() { [ $code -eq 0 ] && ! grep -q 'WARNING: ThreadSanitizer' "$work/out"; }
result() { # NAME, after a test
    if [ $? -eq 0 ]; then
        echo "ok $1"
    else
        echo "not ok $1"
        echo "  code $code"; grep -E 'WARNING|SUMMARY|^not ok|emulator:' "$work/out" | head -n 12
    fi
}

whole() {
    library=$PWD/build/tsan/emulator/libcuda.so.1
    for machine in '8.6 0' '6.1 1' '7.5 2'; do
        # shellcheck disable=SC2086
        check "$library" $machine --quick --tokens 33
        clean
        result "no_race_on_${machine% *}_in_order_${machine#* }"
        sed -n 's/.*never launched: //p' "$work/out" | tr ' ' '\n' | sort >"$work/idle.${machine% *}"
    done
    for cc in 8.6 6.1; do
        check "$library" $cc 3 --op matmul
        clean
        result "no_race_in_large_matmuls_on_$cc"
        sed -n 's/.*never launched: //p' "$work/out" | tr ' ' '\n' | sort >"$work/idle.large.$cc"
    done
    # Two blocks at a time, too: races between blocks.
    EMU_CUDA_WORKERS=2 check "$library" 8.6 0 --quick
    clean
    result no_race_between_blocks
    # Those that only multiply in registers are not check_ops's, nor is the one that copies: a thread
    # writes its bytes alone.
    comm -12 "$work/idle.8.6" "$work/idle.6.1" | comm -12 - "$work/idle.large.8.6" |
        grep -v '^none$\|^peak_\|^move_rows$' >"$work/out"
    ! [ -s "$work/out" ]
    result every_kernel_was_watched
}
[ $# -gt 0 ] || whole

# ---- Without a barrier ---------------------------------------------------------------------------
# A copy of what the library is made of, its objects included, so that only one file is compiled.
mkdir -p "$work/tree/build/tsan"
cp -a Makefile base kernels planner runtime tests bench configs "$work/tree"
cp -a build/tsan/emulator "$work/tree/build/tsan"
files=${1:-all}
[ $# -gt 0 ] || set -- kernels/cuda/gemm*.cu* kernels/cuda/attention_[mt]*.cu \
    kernels/cuda/norm.cu kernels/cuda/kv.cu kernels/cuda/experts.cu
# found_without OP TOKENS: true if a race of $file is reported on a GPU; one of them uses this file.
found_without() {
    for cc in 8.6 6.1; do
        check "$work/tree/build/tsan/emulator/libcuda.so.1" $cc 0 --op "$1" --quick --tokens "$2"
        grep -q 'WARNING: ThreadSanitizer: data race' "$work/out" &&
            grep -q "${file%%[._]*}" "$work/out" && return 0
    done
    return 1
}
grep -Hn '__syncthreads();' "$@" | cut -d : -f 1,2 >"$work/barriers"
while IFS=: read -r file line; do
    case $file in
    */experts.cu) op=route ;;
    */attention*) op=attention ;;
    */state.cu) op=delta_rule ;;
    */norm.cu) op=rms_norm ;;
    */kv.cu) op=layer ;;
    *) op=matmul ;;
    esac
    case $file in
    */gemm*) sizes='33 20' ;; # up to 32 tokens have narrow tiles
    *) sizes=33 ;;
    esac
    cp -a "$file" "$work/kept"
    sed -i "${line}s/__syncthreads();/;/" "$work/tree/$file"
    code=build
    MAKELEVEL=0 make -s -C "$work/tree" BUILD=tsan emulator >"$work/out" 2>&1 && code=built
    for size in $sizes; do
        [ "$code" != build ] && found_without "$op" "$size"
        result "race_found_without_${file##*/}_${line}_at_$size"
    done
    cp "$work/kept" "$work/tree/$file"
done <"$work/barriers"
[ "$files" = all ] || exit 0
for kernel in gemm attention_mma attention_tiles norm kv experts; do
    grep -q "/$kernel" "$work/barriers"
    result "${kernel}_has_barriers"
done
