#!/bin/sh
# cli_metal.sh: models split over the CPU and the emulated Metal, by the whole program: splits of the
# default model write the CPU's tokens, the tiny models have the logits of tests/golden, memory is
# what was planned and never more than there is, and what is wrong with Metal, its kernels or the
# device ends in a message. METAL_ALL=1, as make metal-check sets it, adds splits and devices.
#
# GPU and CPU round differently, so the prompts are ones whose next tokens are far ahead of all others:
# counting. Eight tokens take the kernels for few, fourteen those for many.
set -u
: "${TANDEM:=build/tandem}" "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}"
: "${TOOLS:=build/release/tests}" "${METAL_ALL:=}"
tiny=tests/golden/tiny
. tests/lib/results.sh

metal=$(dirname "$TANDEM")/emulator/libmetal.so
if ! [ -f "$metal" ]; then
    echo 'ok 1 # SKIP there is no emulated Metal (it needs x86-64 and a C++ compiler)'
    exit 0
fi
device=metal:driver=$metal
# Sanitizers are slow: fewer splits.
case $TANDEM in
*/asan/* | */ubsan/* | */tsan/*) splits='0 2' ;;
*) splits="0 1 2 7${METAL_ALL:+ 15 all}" ;;
esac
prompt='1, 2, 3,' many='1, 2, 3, 4, 5,'

# call ARGUMENT...: runs the program; sets code, $out and $err.
call() { capture timeout 200 "$TANDEM" "$@"; }
# generate NAME ARGUMENT...: keeps the JSON as $work/NAME.json.
generate() {
    name=$1
    shift
    call run -m "$MODEL" -c 256 --temp 0 --json -q --ignore-eos "$@"
    cp "$work/out" "$work/$name.json"
    [ $code -eq 0 ] && ! [ -s "$work/err" ]
    result "metal_$name"
}

# ---- The CPU's tokens ----------------------------------------------------------------------------
generate few_none -p "$prompt" -n 2 --device none
for k in $splits; do generate "few_$k" -p "$prompt" -n 2 --device $device -ngl "$k"; done
generate many_none -p "$many" -n 2 --device none
generate many_1 -p "$many" -n 1 --device $device -ngl 1
generate many_2 -p "$many" -n 1 --device $device,matrix=0 -ngl 2 -ub 5
if [ "$METAL_ALL" ]; then
    for k in 0 1 2 7 15 all; do
        generate "many_${k}_whole" -p "$many" -n 2 --device $device -ngl $k
        EMU_METAL_SEED=5 generate "many_${k}_old" -p "$many" -n 2 --device $device,matrix=0 -ngl $k
    done
    for type in q8_0 q4_0 f32; do
        generate "cache_${type}_none" -p "$many" -n 4 --device none -ctk $type -ctv $type
        generate "cache_${type}_7" -p "$many" -n 4 --device $device -ngl 7 -ctk $type -ctv $type
    done
fi

# ---- The logits of tests/golden, with every weight type -------------------------------------------
# logits NAME MODEL OPTION...: those of the tiny prompt, as close as the CPU's fast kernels must be.
logits() {
    name=$1 golden=$tiny/$2.bin model=$tiny/$2.gguf
    shift 2
    [ -f "$model" ] || model=$(echo "${model%.gguf}"-00001-of-*.gguf)
    call run -q -m "$model" -f $tiny/prompt.txt -n 0 --logits-out "$work/logits" "$@"
    [ $code -eq 0 ] && "$TOOLS/lib/check_logits" "$golden" "$work/logits" 3e-3 >>"$work/err"
    result "metal_$name"
    rm -f "$work/logits"
}
# By turns whole in one batch, with matrices of simdgroups, and split in micro-batches without.
turn=1
for golden in "$tiny"/*.bin; do
    kind=$(basename "$golden" .bin)
    # How a converter writes a file changes nothing behind its reading.
    case $kind$METAL_ALL in converted_*1) ;; converted_*) continue ;; esac
    turn=$((1 - turn))
    if [ $turn -eq 0 ] || [ "$METAL_ALL" ]; then
        logits "tiny_$kind" "$kind" --device $device -ngl all
    fi
    if [ $turn -eq 1 ] || [ "$METAL_ALL" ]; then
        logits "tiny_${kind}_split" "$kind" --device $device,matrix=0 -ngl 1 -ub 5
    fi
done

# ---- Memory --------------------------------------------------------------------------------------
EMU_METAL_MEMORY=48M generate memory_48M -p 1, -n 1 -c 128 --device $device -ngl 5
generate memory_36M -p 1, -n 1 -c 128 --device $device --vram 36M -ngl 2
EMU_METAL_MEMORY=64M call run -m "$MODEL" -c 128 -p 1, -n 1 --device $device -ngl all
[ $code -eq 1 ] && grep -q 'the layers on Apple M1 (emulated) need .* and 59.99 MiB are free' \
    "$work/err" && grep -q -- '-ngl 14 fits' "$work/err"
result metal_memory_says_what_fits
# Metal buffers that are much shorter than the weights.
EMU_METAL_BUFFER=8M generate few_short_buffers -p "$prompt" -n 1 --device $device -ngl 2

python3 - "$work" <<'X'
import glob, json, os, sys

work = sys.argv[1]


def check(name, good):
    print(("ok " if good else "not ok ") + "metal_" + name)


runs = {os.path.basename(p)[:-5]: json.load(open(p)) for p in sorted(glob.glob(f"{work}/*.json"))}
for name, run in runs.items():
    kind = name.rsplit("_", 1)[0] if name.startswith("cache") else name.split("_")[0]
    if kind != "memory":
        expected = runs[f"{kind}_none"]["tokens"]
        check(f"{name}_same_tokens", run["tokens"] and run["tokens"] == expected[: len(run["tokens"])])
    check(f"{name}_planned_is_allocated",
          run["memory"] and all(r["planned_bytes"] == r["allocated_bytes"] for r in run["memory"]))
    layers = name.split("_")[1]
    if layers.isdigit(): check(f"{name}_honoured", run["plan"]["gpu_layers"] == int(layers))
    if not name.endswith("none"):
        check(f"{name}_names_the_device", "Apple M1 (emulated)" == run["peak"][1]["device"])
    if kind == "memory":
        limit = int(name[7:-1]) << 20
        check(f"{name}_never_exceeded", 0 < run["peak"][1]["peak_bytes"] <= limit)
X

# ---- Nothing to use: the CPU computes, and says nothing ------------------------------------------
call run -m $tiny/qwen3.gguf -f $tiny/prompt.txt -n 1 --temp 0 -v
[ $code -eq 0 ] && ! grep -q warning "$work/err" && grep -q 'no metal device: no Metal' "$work/err"
result metal_quiet_without_metal
call devices
[ $code -eq 0 ] && grep -q 'no metal device: no Metal on this machine' "$work/out"
result metal_devices_says_why

# ---- Something that cannot be used: an error if it was asked for ---------------------------------
# refused NAME VARIABLE WORDS [OPTION...]: one of the shortest runs ends with these words.
refused() {
    name=$1 variable=$2 words=$3
    shift 3
    [ $# -gt 0 ] || set -- --device $device
    env "$variable" timeout 100 "$TANDEM" run -m $tiny/qwen3.gguf -f $tiny/prompt.txt -n 4 --temp 0 \
        --ignore-eos -q -ngl 2 "$@" >"$work/out" 2>"$work/err"
    code=$?
    [ $code -eq 1 ] && [ "$(wc -l <"$work/err")" -le 2 ] &&
        grep -q "^tandem: error: .*$words" "$work/err"
    result "metal_refused_$name"
}
refused no_metal A= 'no Metal on this machine' --device metal
refused no_library A= 'no Metal on this machine (/nowhere' --device metal:driver=/nowhere
refused no_device EMU_METAL_DEVICES=0 'Metal finds no GPU'
refused other_maker EMU_METAL_FAMILY=0 'no GPU of Apple silicon'
refused own_memory EMU_METAL_UNIFIED=0 'no GPU of Apple silicon'
refused width EMU_METAL_WIDTH=16 'simdgroups of 32.*16'
refused kernel EMU_METAL_FAIL_PIPELINE=9 'the kernel [a-z_0-9]* is refused: Compiler'
refused text EMU_METAL_FAIL_LIBRARY=1 'norm.metal:12:5: error: use of undeclared'
printf 'kernel void f() {\n    g(;\n}\n' >"$work/wrong.metal"
refused line A= 'the kernels do not compile: .*:3:1: error:' --device "$device,source=$work/wrong.metal"
refused memory_of_a_pass EMU_METAL_FAIL_MEMORY=2 'Insufficient Memory'

# ---- A device that fails on the way: a clear message, no hang, no text after it ------------------
for fault in KERNEL=1 KERNEL=30 COMMANDS=12 COMPUTE=1 COMPUTE=3; do
    refused "fault_$(echo $fault | tr = _)" EMU_METAL_FAIL_$fault '\(computing\|Metal gives no\)'
done

# ---- Weights that the GPU cannot use where the file is mapped are copied ---------------------------
whole() {
    timeout 100 env "$@" "$TANDEM" run -m $tiny/qwen3.gguf -n 8 --temp 0 -f $tiny/prompt.txt \
        --ignore-eos -ngl all --device $device >"$work/out" 2>"$work/err"
    code=$?
}
whole A=
[ $code -eq 0 ] && ! grep -q 'copied instead' "$work/err" && mv "$work/out" "$work/in_place"
result metal_weights_in_place
whole EMU_METAL_FAIL_BUFFER=2
[ $code -eq 0 ] && cmp -s "$work/out" "$work/in_place" && grep -q 'copied instead' "$work/err"
result metal_weights_copied

# ---- Memory that Metal refuses after all: a smaller plan, or exit code 3 --------------------------
for fault in BUFFER=4 BUFFER=5 BUFFER=8 QUEUE=2; do
    for strict in '' --strict; do
        # shellcheck disable=SC2086
        env "EMU_METAL_FAIL_$fault" timeout 100 "$TANDEM" run -m $tiny/qwen3.gguf -n 2 --temp 0 \
            -f $tiny/prompt.txt --ignore-eos -ngl 2 --device $device $strict >"$work/out" \
            2>"$work/err"
        code=$?
        if [ "$strict" ]; then
            [ $code -eq 3 ] && grep -q '^tandem: error: .*Apple M1' "$work/err"
        else
            [ $code -eq 0 ] && [ -s "$work/out" ] && grep -q 'warning: .* goes to the CPU' "$work/err"
        fi
        result "metal_refused_memory$(echo "_$fault$strict" | tr '=-' __)"
    done
done
