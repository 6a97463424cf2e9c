#!/bin/sh
# race.sh: every kernel on the emulator with each GPU thread a thread of its own to TSan, and proof
# that this finds what it looks for: each __syncthreads and __syncwarp of the kernels, left out by the
# emulator, makes it fail.
#
#   sh tests/race.sh           through make race, which builds build/race/check_ops and the emulator
#   sh tests/race.sh FILE...   leaves the barriers of these kernels out, no more
#
# Only the kernels are watched. Several devices, since each has kernels of its own, and several
# orders of threads. Small sizes, but enough tokens for the GEMMs: a thread is dear here, and 1,024
# experts are as many blocks. What a GEMM of several tiles does is looked at for itself. As many jobs
# run at once as there are processors, an op or a barrier each; each says how long it took, and is
# stopped after half an hour of a processor's time, which others' work beside it does not shorten.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1

# check CC SEED [ARGUMENT...]: sets code and seconds; output in $out.
check() {
    cc=$1 seed=$2 begun=$(date +%s)
    shift 2
    (
        ulimit -t 1800
        EMU_CUDA_CC=$cc EMU_CUDA_SEED=$seed EMU_CUDA_STATS=1 TSAN_OPTIONS=halt_on_error=1 \
            build/race/check_ops --device "cuda:driver=$PWD/build/tsan/emulator/libcuda.so.1" \
            "$@" >"$out" 2>&1
    )
    code=$? seconds=$(($(date +%s) - begun))
}
result() { # NAME, after a test
    if [ $? -eq 0 ]; then
        echo "ok $1 ($seconds s)"
    else
        echo "not ok $1: code $code"
        grep -E 'WARNING|SUMMARY|^not ok|emulator:' "$out" | head -n 12 | sed 's/^/  /'
    fi
}

# ---- A job, in a process of its own --------------------------------------------------------------

whole() { # NAME WORKERS CC SEED [ARGUMENT...]
    label=$1 out=$work/$1
    export EMU_CUDA_WORKERS="$2"
    shift 2
    check "$@"
    [ $code -eq 0 ] && ! grep -q 'WARNING: ThreadSanitizer' "$out"
    result "no_race_$label"
    sed -n 's/.*never launched: //p' "$out" | tr ' ' '\n' | sort >"$out.idle"
}
# without FILE LINE OP TOKENS: a race of that file is reported on a GPU; one of them uses the file.
without() {
    out=$work/without_$1_$2_$4 total=0
    export EMU_CUDA_WORKERS=1 EMU_CUDA_WITHOUT="$1:$2"
    for cc in 8.6 6.1; do
        check $cc 0 --op "$3" --quick --tokens "$4"
        total=$((total + seconds))
        grep -q 'WARNING: ThreadSanitizer: data race' "$out" && grep -q "/${1%%[._]*}" "$out" && break
        false
    done
    code=$code,$? seconds=$total
    [ "${code#*,}" = 0 ]
    result "race_found_without_$1_$2_at_$4"
}
case ${1:-} in
--job)
    shift
    "$@"
    exit
    ;;
esac

# ---- The list of jobs ----------------------------------------------------------------------------
work=$(mktemp -d)
export work
trap 'rm -rf "$work"' EXIT

files=${1:-all}
[ $# -gt 0 ] || set -- kernels/cuda/*.cu kernels/cuda/gemm*.cuh
grep -HnE '__sync(threads|warp)\(\);' "$@" | cut -d : -f 1,2 >"$work/barriers"
# The longest come first.
ops='attention matmul matmul_experts layer embed rms_norm rope_table rope kv_store swiglu gather_rows'
ops="$ops cap_logits route combine_experts split_rows short_conv delta_rule mamba_scan"
{
    if [ "$files" = all ]; then
        # Two blocks at a time, too: races between blocks.
        echo whole between_blocks 2 8.6 0 --quick
        for op in $ops; do
            for machine in '8.6 0' '6.1 1' '7.5 2'; do
                echo whole "in_${op}_on_${machine% *}" 1 "$machine" --op "$op" --quick --tokens 33
            done
        done
        echo whole in_large_matmuls_on_8.6 1 8.6 3 --op matmul
        echo whole in_large_matmuls_on_6.1 1 6.1 3 --op matmul
    fi
    while IFS=: read -r file line; do
        case $file in
        */experts.cu) op=route sizes=33 ;;
        */attention.cu) op=attention sizes=33 ;; # so many that keys are not split
        */attention*) op=attention sizes=9 ;;    # the fewest that have tiles
        */state.cu) op=delta_rule sizes=33 ;;
        */norm.cu) op=rms_norm sizes=33 ;;
        */kv.cu) op=layer sizes=33 ;;
        *) op=matmul sizes='33 20' ;; # up to 32 tokens have narrow tiles
        esac
        for size in $sizes; do echo without "${file##*/}" "$line" $op "$size"; done
    done <"$work/barriers"
} >"$work/jobs"
xargs -P "$(nproc)" -L 1 sh "$0" --job <"$work/jobs"
[ "$files" = all ] || exit 0

# Those that only multiply in registers are not check_ops's, nor is the one that copies: a thread
# writes its bytes alone.
out=$work/idle code=0 seconds=0
cat "$work"/*.idle | sort | uniq -c | awk -v n="$(grep -c '^whole' "$work/jobs")" '$1 == n { print $2 }' |
    grep -v '^none$\|^peak_\|^move_rows$' >"$out"
! [ -s "$out" ]
result every_kernel_was_watched
grep -o '^OP[_W]*([a-z_]*' kernels/ops.def | sed 's/.*(//' | while read -r op; do
    case " $ops " in *" $op "*) ;; *) echo "$op" ;; esac
done >"$out"
! [ -s "$out" ]
result every_op_is_in_the_list
for kernel in gemm attention attention_mma attention_tiles norm kv experts state; do
    grep -q "/${kernel}[._]" "$work/barriers"
    result "${kernel}_has_barriers"
done
