#!/bin/sh
# cli_cuda.sh: models split over the CPU and the emulated NVIDIA GPU, by the whole program: splits of
# the default model write the CPU's tokens, the tiny models have the logits of tests/golden, memory is
# what was planned and never more than there is, and what is wrong with the driver or the device ends
# in a message.
#
# GPU and CPU round differently, so the prompts are ones whose next tokens are far ahead of all others:
# counting. Eight tokens take the kernels for few, fourteen those for many.
set -u
: "${TANDEM:=build/tandem}" "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}"
: "${TOOLS:=build/release/tests}"
tiny=tests/golden/tiny
. tests/lib/results.sh

emulator=$(dirname "$TANDEM")/emulator
if ! [ -f "$emulator/libcuda.so.1" ]; then
    echo 'ok 1 # SKIP there is no emulator (it needs x86-64 and a C++ compiler)'
    exit 0
fi
export LD_LIBRARY_PATH="$emulator:${LD_LIBRARY_PATH:-}"
# Plans must not depend on what was measured on this machine, perhaps while others were working.
export XDG_CACHE_HOME="$work/cache" TANDEM_CALIBRATE=never
# Sanitizers are slow: fewer splits and tokens.
case $TANDEM in
*/asan/* | */ubsan/* | */tsan/*) splits='0 1 2' n=4 most=1 ;;
*) splits='0 2 31' n=6 most=31 ;;
esac
prompt='1, 2, 3,'

# call ARGUMENT...: runs the program; sets code, $out and $err.
call() { capture timeout 200 "$TANDEM" "$@"; }
# generate NAME ARGUMENT...: keeps the JSON as $work/NAME.json. replay: likewise with a plan's context.
generate() {
    name=$1
    shift
    replay "$name" -c 256 "$@"
}
replay() {
    name=$1
    shift
    call run -m "$MODEL" --temp 0 --json -q --ignore-eos "$@"
    cp "$work/out" "$work/$name.json"
    [ $code -eq 0 ] && ! [ -s "$work/err" ]
    result "cuda_$name"
}

# ---- The CPU's tokens ----------------------------------------------------------------------------
generate few_none -p "$prompt" -n $n --device none
for k in $splits; do generate "few_$k" -p "$prompt" -n $n --device cuda -ngl "$k"; done
# Without saying so: the GPU is found and filled.
generate few_default -p "$prompt" -n 1
EMU_CUDA_CC=6.1 generate few_pascal -p "$prompt" -n 4 -ngl 2
EMU_CUDA_CC=7.5 EMU_CUDA_SEED=3 generate few_turing -p "$prompt" -n 4 -ngl 2
many='1, 2, 3, 4, 5,'
generate many_none -p "$many" -n 4 --device none
generate many_tensor -p "$many" -n 2 --device cuda -ngl $most
EMU_CUDA_CC=6.1 generate many_pascal -p "$many" -n 4 --device cuda -ngl $((most / 4))
EMU_CUDA_CC=7.5 generate many_turing -p "$many" -n 4 --device cuda -ngl $((most / 4))
generate many_batches -p "$many" -n 4 --device cuda -ngl 2 -ub 5
# Weights that pass through, which only prompts of more than 32 tokens do, and rows of one matrix on
# both.
prompt_40='1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13,'
generate long_none -p "$prompt_40" -n 3 --device none
generate long_streamed -p "$prompt_40" -n 2 --device cuda --strategy streamed --vram 50M
call plan -m "$MODEL" -c 256 -ub 40 --device cuda --save "$work/plan"
python3 tests/cli/change_plan.py "$TANDEM" "$MODEL" cuda both 8 "$work/plan"
replay long_attention -p "$prompt_40" -n 3 --plan "$work/plan" --device cuda
generate few_row_split -p "$prompt" -n 4 --device cuda --strategy row-split --vram 60M
# Where the driver has no operations on memory the CPU computes before more is encoded. Streams that
# lag at random moments meet flags that are up, and ones that are not.
EMU_CUDA_FLAGS=0 generate few_no_flags -p "$prompt" -n 4 --device cuda -ngl 2
EMU_CUDA_FLAGS=0 generate few_row_split_no_flags -p "$prompt" -n 4 --device cuda --strategy row-split \
    --vram 60M
EMU_CUDA_SEED=5 generate few_row_split_late -p "$prompt" -n 4 --device cuda --strategy row-split --vram 60M

# ---- Graphs --------------------------------------------------------------------------------------
# stats TOKENS OPTION...: sets launches, graphs and copies to the calls of the driver.
stats() {
    count=$1
    shift
    EMU_CUDA_STATS=1 call run -n "$count" --temp 0 -q --ignore-eos --device "$device" "$@"
    launches=$(sed -n 's/.*calls: \([0-9]*\) launches.*/\1/p' "$work/err")
    copies=$(sed -n 's/.* \([0-9]*\) copies.*/\1/p' "$work/err")
    graphs=$(sed -n 's/.*and \([0-9]*\) graphs launched.*/\1/p' "$work/err")
}
# replayed NAME SEGMENTS OPTION...: the third token that is decoded takes so many graphs and beside
# them at most one launch, if the GPU does not wait for the CPU by flags: that brings the tables while
# the CPU embeds. At the first one lists were new, at the second graphs. Nothing is copied but by
# kernels.
device=cuda
replayed() {
    name=$1 segments=$2
    single=0
    [ "$device" = cuda ] || single=1 name=${name}_without_flags
    shift 2
    stats 3 "$@"
    before="$launches $graphs" copied=$copies
    stats 4 "$@"
    more=$((graphs - ${before#* }))
    [ $code -eq 0 ] && [ $((launches - ${before% *})) -le $single ] && [ "$copies" -eq "$copied" ] &&
        [ $more -eq "$segments" ]
    result "cuda_replays_$name"
}
replayed whole 1 -c 256 -m $tiny/qwen3.gguf -f $tiny/prompt.txt -ngl all
replayed layers 1 -c 256 -m $tiny/qwen3.gguf -f $tiny/prompt.txt -ngl 2
# A token is one graph, however often the CPU has a part of it: by layers, by rows, by experts. Without
# flags it is a graph up to each hand-over. Here two layers with their experts on the CPU, and the head.
set -- -c 256 -m $tiny/qwen3moe.gguf -f $tiny/prompt.txt -ngl all --cpu-moe
replayed experts 1 "$@"
device=cuda:flags=0
replayed experts 3 "$@"
device=cuda
replayed streamed 1 -c 256 -m "$MODEL" -p 1, --strategy streamed --vram 50M
replayed row_split 1 -c 256 -m "$MODEL" -p 1, --strategy row-split --vram 60M
# The GPU's rows of queries, attention, its rows of the output, and the CPU's, which go back with all
# others, in each of 30 layers: 120 graphs without flags.
call plan -m "$MODEL" -c 256 --device cuda --save "$work/plan"
python3 tests/cli/change_plan.py "$TANDEM" "$MODEL" cuda split 1 "$work/plan"
replayed split 1 -m "$MODEL" -p 1, --plan "$work/plan"
# Two layers: of each what is up to the pairs, and the GPU's own experts; and the rest behind both.
call plan -m $tiny/qwen3moe.gguf -c 256 --device cuda --save "$work/experts"
python3 tests/cli/change_plan.py "$TANDEM" $tiny/qwen3moe.gguf cuda experts 1 "$work/experts"
set -- -m $tiny/qwen3moe.gguf -f $tiny/prompt.txt --plan "$work/experts"
replayed split_experts 1 "$@"
device=cuda:flags=0
replayed split_experts 5 "$@"
set -- -m $tiny/qwen3moe.gguf -f $tiny/prompt.txt -n 12 --temp 0 -q --ignore-eos
call run "$@" -c 256 --device none
cp "$work/out" "$work/tokens"
for cc in 6.1 7.5 8.6; do
    EMU_CUDA_CC=$cc call run "$@" --device cuda --plan "$work/experts"
    [ $code -eq 0 ] && [ -s "$work/tokens" ] && cmp -s "$work/out" "$work/tokens"
    result "cuda_split_experts_$cc"
done

# ---- The logits of tests/golden, with every weight type -------------------------------------------
# logits NAME MODEL OPTION...: those of the tiny prompt, as close as the CPU's fast kernels must be.
logits() {
    name=$1 golden=$tiny/$2.bin model=$tiny/$2.gguf
    shift 2
    [ -f "$model" ] || model=$(echo "${model%.gguf}"-00001-of-*.gguf)
    call run -q -m "$model" -f $tiny/prompt.txt -n 0 --device cuda --logits-out "$work/logits" "$@"
    [ $code -eq 0 ] && "$TOOLS/lib/check_logits" "$golden" "$work/logits" 3e-3 >>"$work/err"
    result "cuda_$name"
    rm -f "$work/logits"
}
# Whole in one batch, and split in micro-batches, on two of the three kinds of device that have
# kernels of their own, by turns: cli_kernels.sh has every op on each of them.
kinds='8.6 6.1 7.5' layers=1
for golden in "$tiny"/*.bin; do
    kind=$(basename "$golden" .bin)
    # shellcheck disable=SC2086
    set -- $kinds
    kinds="$2 $3 $1" layers=$((3 - layers))
    EMU_CUDA_CC=$1 logits "tiny_${kind}_$1" "$kind" -ngl all
    # How a converter writes a file changes nothing behind its reading.
    case $kind in converted_*) continue ;; esac
    EMU_CUDA_CC=$2 logits "tiny_${kind}_${2}_split" "$kind" -ngl $layers -ub 5
done

# ---- Memory --------------------------------------------------------------------------------------
for vram in 64M 96M 128M 192M 512M 2G; do
    EMU_CUDA_VRAM=$vram generate "vram_$vram" -p Hello -n 1 -c 128 --device cuda
done
EMU_CUDA_VRAM=2G generate vram_lowered -p Hello -n 1 -c 128 --device cuda --vram 30M

python3 - "$work" <<'X'
import glob, json, os, sys

work = sys.argv[1]


def check(name, good):
    print(("ok " if good else "not ok ") + "cuda_" + name)


runs = {os.path.basename(p)[:-5]: json.load(open(p)) for p in sorted(glob.glob(f"{work}/*.json"))}
for name, run in runs.items():
    kind = name.split("_")[0]
    if kind in ("few", "many", "long"):
        expected = runs[f"{kind}_none"]["tokens"]
        check(f"{name}_same_tokens", run["tokens"] and run["tokens"] == expected[: len(run["tokens"])])
    check(f"{name}_planned_is_allocated",
          run["memory"] and all(r["planned_bytes"] == r["allocated_bytes"] for r in run["memory"]))
    if name[4:].isdigit(): check(f"{name}_honoured", run["plan"]["gpu_layers"] == int(name[4:]))
    if not name.endswith("none"):
        check(f"{name}_names_the_device", "NVIDIA" in run["peak"][1]["device"])
    if kind == "vram":
        size = name[5:]
        limit = 30 << 20 if size == "lowered" else int(size[:-1]) << (30 if size[-1] == "G" else 20)
        check(f"{name}_never_exceeded", 0 < run["peak"][1]["peak_bytes"] <= limit)
X

# ---- Nothing to use: the CPU computes, and says nothing ------------------------------------------
quiet() { # name, variable
    env "$2" timeout 100 "$TANDEM" run -m "$MODEL" -p "$prompt" -n 2 --temp 0 -c 128 \
        >"$work/out" 2>"$work/err"
    code=$?
    [ $code -eq 0 ] && ! grep -q warning "$work/err" && grep -q 'on the CPU' "$work/err"
    result "cuda_quiet_$1"
}
quiet no_driver LD_LIBRARY_PATH=/nowhere
quiet no_device EMU_CUDA_INIT=100
quiet stub EMU_CUDA_INIT=34

# ---- Something that cannot be used: a warning, or an error if it was asked for -------------------
refused() { # name, variable, words
    env "$2" timeout 100 "$TANDEM" run -m "$MODEL" -p "$prompt" -n 2 -c 128 --device cuda -q \
        >"$work/out" 2>"$work/err"
    code=$?
    [ $code -eq 1 ] && ! [ -s "$work/out" ] && [ "$(wc -l <"$work/err")" -le 2 ] &&
        grep -q "^tandem: error: .*$3" "$work/err"
    result "cuda_refused_$1"
}
refused no_driver LD_LIBRARY_PATH=/nowhere 'no NVIDIA driver'
refused no_device EMU_CUDA_INIT=100 'finds no GPU'
refused stub EMU_CUDA_INIT=34 'stub'
refused old_driver EMU_CUDA_DRIVER=8000 'too old.*9.0.*8.0'
refused old_device EMU_CUDA_CC=5.2 'too old.*6.1.*5.2'
refused modules EMU_CUDA_FAIL_MODULE=all 'no kernels for this GPU.*CUDA_ERROR_INVALID_IMAGE'
refused context EMU_CUDA_FAIL_CONTEXT=1 'CUDA_ERROR_OUT_OF_MEMORY'
env EMU_CUDA_DRIVER=8000 "$TANDEM" run -m "$MODEL" -p "$prompt" -n 2 -c 128 >"$work/out" 2>"$work/err"
code=$?
[ $code -eq 0 ] && grep -q 'warning: no cuda device: .*too old' "$work/err"
result cuda_warns_of_old_driver
env EMU_CUDA_FAIL_MODULE=1 "$TANDEM" devices >"$work/out" 2>"$work/err"
code=$?
[ $code -eq 0 ] && grep -q 'kernels: compute_75 (.*compute_80: .*CUDA_ERROR_INVALID_IMAGE' "$work/out"
result cuda_next_image
env EMU_CUDA_INIT=100 "$TANDEM" devices >"$work/out" 2>"$work/err"
code=$?
[ $code -eq 0 ] && grep -q 'no cuda device: .*finds no GPU' "$work/out"
result cuda_devices_says_why

# A GPU that stands still amid a token is named with the step that it should have sent.
env EMU_CUDA_FAIL_RAISE=20 "$TANDEM" run -m "$MODEL" -p "$prompt" -n 2 --temp 0 -q --device cuda \
    --strategy row-split --vram 60M --wait-limit 1 >"$work/out" 2>"$work/err"
code=$?
[ $code -eq 1 ] &&
    grep -q 'error: waiting for the residual stream for blk[.].*(emulated): no answer within the limit of 1 s' "$work/err"
result cuda_names_the_step_that_stood_still

# ---- Streamed weights: from the mapped file where the driver pins it, else from an arena ---------
"$TOOLS/../bench/make_model" "$work/streamed" layers=4 embd=512 ff=512 heads=8 kv=2 vocab=512
# streams: writes a few tokens with all of the model streamed, whatever this machine's rates are.
streams() {
    call run -m "$work/streamed" -p "$prompt_40 $prompt_40" -n 4 -c 128 --temp 0 --ignore-eos "$@"
}
streams --device none
mv "$work/out" "$work/streamed.txt"
# same_streamed: streams the CPU's tokens, nearly all from pinned memory.
same_streamed() {
    streams --device cuda --strategy streamed -ngl 0 --vram 4M --feed arena
    pinned=$(sed -n 's/.*pinned \([0-9]*\) bytes for reading only.*/\1/p' "$work/err")
    copied=$(sed -n 's/.*copied \([0-9]*\) bytes of pinned and .*/\1/p' "$work/err")
    [ $code -eq 0 ] && cmp -s "$work/out" "$work/streamed.txt" &&
        [ "$(grep -c "^emulator" "$work/err")" -eq 2 ] && [ "${copied:-0}" -gt 3000000 ]
}
export EMU_CUDA_STATS=1
same_streamed && [ "$pinned" -gt 3000000 ] && grep -q 'of pinned and 0 of pageable memory' "$work/err"
result cuda_streamed_from_the_file
export EMU_CUDA_READ_ONLY=0
same_streamed && [ "$pinned" -eq 0 ] && grep -q 'of pinned and 0 of pageable memory' "$work/err"
result cuda_streamed_from_an_arena
unset EMU_CUDA_READ_ONLY
for n in 2 3 4; do # where the file is refused, an arena is pinned; copies of the rest are slower
    export EMU_CUDA_FAIL_REGISTER=$n
    same_streamed
    result "cuda_streamed_refused_$n"
done
# Without --feed arena, what cannot be pinned as a whole goes through pinned blocks.
export EMU_CUDA_READ_ONLY=0 EMU_CUDA_FAIL_REGISTER=2
streams --device cuda --strategy streamed -ngl 0 --vram 4M
[ $code -eq 0 ] && cmp -s "$work/out" "$work/streamed.txt" &&
    grep -q 'warning: streamed weights go through small pinned blocks instead' "$work/err" &&
    grep -q 'copied [0-9]\{7\} bytes of pinned and 0 of pageable memory' "$work/err"
result cuda_streamed_through_blocks
streams --device cuda --strategy streamed -ngl 0 --vram 4M --strict
[ $code -eq 0 ] && cmp -s "$work/out" "$work/streamed.txt" && ! grep -q 'pinned blocks' "$work/err"
result cuda_streamed_strict
unset EMU_CUDA_READ_ONLY EMU_CUDA_FAIL_REGISTER
# Weights that stay on the GPU come there through pinned blocks.
streams --device cuda -ngl all
copied=$(sed -n 's/.*copied \([0-9]*\) bytes of pinned and 0 of pageable memory.*/\1/p' "$work/err")
[ $code -eq 0 ] && cmp -s "$work/out" "$work/streamed.txt" && [ "${copied:-0}" -gt 3000000 ]
result cuda_loaded_through_pinned_blocks
unset EMU_CUDA_STATS

# ---- PTX that the driver translates, and WSL2 -----------------------------------------------------
# start: opens the GPU where no home can be written to.
start() {
    HOME=/nowhere XDG_CACHE_HOME=$work/cache EMU_CUDA_JIT=100 timeout 60 "$TANDEM" run -m $tiny/qwen3.gguf \
        -p a -n 1 -c 64 --device cuda -ngl all "$@" >"$work/out" 2>"$work/err"
    code=$?
}
start
[ $code -eq 0 ] && [ "$(grep -c 'the driver translates the kernels for NVIDIA.*, once' "$work/err")" -eq 1 ]
result cuda_says_that_it_translates
start
[ $code -eq 0 ] && [ -n "$(ls "$work/cache/tandem/cuda")" ] && ! grep -q 'translates' "$work/err"
result cuda_keeps_what_was_translated
CUDA_CACHE_PATH=$work start
[ $code -eq 0 ] && grep -q 'translates' "$work/err" && [ "$(ls "$work" | grep -c '^[0-9a-f]\{16\}$')" -gt 5 ]
result cuda_leaves_the_folder_of_the_user
"$TANDEM" devices --device cuda:wsl2=1 >"$work/out" 2>"$work/err"
code=$?
[ $code -eq 0 ] && grep -q 'launches in graphs, WSL2' "$work/out"
result cuda_devices_says_wsl2

# ---- A device that fails on the way: a clear message, no hang, no text after it ------------------
for fault in LAUNCH=1 LAUNCH=7 LAUNCH=30 KERNEL=40 COPY=1 COPY=8 DMA=1 DMA=8 \
    STREAM=1 EVENT=2; do
    env "EMU_CUDA_FAIL_$fault" timeout 100 "$TANDEM" run -m "$MODEL" -p "$prompt" -n 4 --temp 0 \
        -c 128 -q --ignore-eos -ngl 2 --device cuda >"$work/out" 2>"$work/err"
    code=$?
    [ $code -eq 1 ] && [ "$(wc -l <"$work/err")" -le 2 ] &&
        grep -q '^tandem: error: .*CUDA_ERROR_' "$work/err"
    result "cuda_fault_$(echo $fault | tr = _)"
done

# A kernel that fails inside a graph has no name; with single launches that are waited for it has.
set -- -m $tiny/qwen3.gguf -p 'a b c' -n 8 -c 64 -q --ignore-eos -ngl all
EMU_CUDA_FAIL_KERNEL=60 call run "$@" --device cuda
[ $code -eq 1 ] && grep -q 'computing: CUDA_ERROR_ILLEGAL_ADDRESS' "$work/err" &&
    grep -q 'graphs=0 and CUDA_LAUNCH_BLOCKING=1' "$work/err"
result cuda_says_how_to_name_the_kernel
CUDA_LAUNCH_BLOCKING=1 EMU_CUDA_FAIL_KERNEL=60 call run "$@" --device cuda:graphs=0
[ $code -eq 1 ] && grep -q 'starting the kernel [a-z_0-9]*: CUDA_ERROR_ILLEGAL_ADDRESS' "$work/err"
result cuda_names_the_kernel

# ---- Memory that the driver refuses after all: a smaller plan, or exit code 3 -------------
for fault in ALLOC=1 ALLOC=2 ALLOC=3 STREAM=3; do
    for strict in '' --strict; do
        # shellcheck disable=SC2086
        env "EMU_CUDA_FAIL_$fault" timeout 100 "$TANDEM" run -m "$MODEL" -p "$prompt" -n 4 --temp 0 \
            -c 128 --ignore-eos -ngl 2 --device cuda $strict >"$work/out" 2>"$work/err"
        code=$?
        if [ "$strict" ]; then
            [ $code -eq 3 ] && grep -q '^tandem: error: .*CUDA_ERROR_OUT_OF_MEMORY' "$work/err"
        else
            [ $code -eq 0 ] && [ -s "$work/out" ] &&
                grep -q 'warning: .* goes to the CPU: .*CUDA_ERROR_OUT_OF_MEMORY' "$work/err" &&
                grep -q ' of 31 layers on .*(emulated); weights' "$work/err"
        fi
        result "cuda_refused_memory$(echo "_$fault$strict" | tr '=-' __)"
    done
done
# Every allocation: at last all is on the CPU. A plan with nothing on the accelerator asks for none.
for arguments in '-ngl 2' '-ngl 0 --vram 1M --strict'; do
    # shellcheck disable=SC2086
    env EMU_CUDA_FAIL_ALLOC=all timeout 100 "$TANDEM" run -m "$MODEL" -p "$prompt" -n 4 --temp 0 \
        -c 128 --ignore-eos --device cuda $arguments >"$work/refused" 2>"$work/err"
    refused_code=$?
    call run -m "$MODEL" -p "$prompt" -n 4 --temp 0 -c 128 --ignore-eos --device none
    [ $refused_code -eq 0 ] && [ $code -eq 0 ] && cmp -s "$work/refused" "$work/out"
    result "cuda_refuses_all$(echo "_$arguments" | tr -c 'a-z0-9\n' _)"
done
