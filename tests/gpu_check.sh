#!/bin/sh
# gpu_check.sh: checks and measures everything on the GPU of this machine; make gpu-check runs it.
#
#   sh tests/gpu_check.sh
#
# Takes the programs of build/gpu-pack (see make gpu-pack) where that folder is, so that a machine
# with a GPU needs no library, no compiler and no network; else those of build/, of which the ones
# that run a model may be missing. Variables: DEVICE (cuda, on a Mac metal), MODEL for the comparison of tokens (a
# made one if the file is not there), DRY=1 for shapes small enough for the emulator (then results
# go to build/gpu-check), RESULTS (bench/results) for gpu-<name>.json and .md. One line per check;
# exit code 1 if one failed.
set -u
: "${DEVICE:=$([ "$(uname -s)" = Darwin ] && echo metal || echo cuda)}" "${DRY:=0}" "${SCRATCH:=build/gpu-check}"
: "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}"

if [ -d build/gpu-pack ]; then
    programs=build/gpu-pack
    export LD_LIBRARY_PATH="$PWD/build/gpu-pack/lib:${LD_LIBRARY_PATH:-}"
    tandem=$programs/tandem check_ops=$programs/check_ops bench_device=$programs/bench_device
    bench_peak=$programs/bench_peak bench_engine=$programs/bench_engine
    make_model=$programs/make_model
else
    tandem=build/tandem check_ops=build/release/tests/kernels/check_ops
    bench_device=build/release/bench/bench_device bench_engine=build/release/bench/bench_engine
    make_model=build/release/bench/make_model bench_peak=build/release/bench/cuda/bench_peak
fi
[ "$DRY" = 1 ] && : "${RESULTS:=$SCRATCH}" || : "${RESULTS:=bench/results}"
mkdir -p "$SCRATCH" "$RESULTS"
failed=0 skipped=0 started=$(date +%s)

if [ "$DRY" = 1 ]; then
    quick=--quick ms=1 shape='layers=4 embd=512 ff=1024 heads=8 kv=2 vocab=512'
    prompt_tokens=16 new_tokens=4 repeats=1 tokens=8
else
    quick='' ms=50 shape='' prompt_tokens=512 new_tokens=128 repeats=5 tokens=32
fi

# macOS has no such program; every wait in tandem ends by itself.
command -v timeout >/dev/null || timeout() { shift; "$@"; }

# step STEP LIMIT COMMAND...: output goes to $SCRATCH/STEP.log
step() {
    step=$1 limit=$2
    shift 2
    begun=$(date +%s)
    timeout "$limit" "$@" >"$SCRATCH/$step.log" 2>"$SCRATCH/$step.err" </dev/null
    code=$?
    if [ $code -eq 0 ]; then
        echo "ok $step ($(($(date +%s) - begun)) s)"
    else
        failed=$((failed + 1))
        echo "not ok $step: exit code $code after $(($(date +%s) - begun)) s"
        { grep '^not ok' "$SCRATCH/$step.log"; tail -n 3 "$SCRATCH/$step.err"; } | head -n 12 |
            sed 's/^/  | /'
    fi
    return $code
}

# skip STEP WHY
skip() {
    skipped=$((skipped + 1))
    echo "ok $1 # SKIP $2"
}

# ---- What is here --------------------------------------------------------------------------------
rm -f "$SCRATCH"/*.log "$SCRATCH"/*.err "$SCRATCH"/*.json
models=0
[ -x "$tandem" ] && [ -x "$bench_engine" ] && [ -x "$make_model" ] && models=1
if [ $models = 1 ]; then
    "$tandem" devices --device "$DEVICE" >"$SCRATCH/devices.log" 2>&1
    "$tandem" devices --device "$DEVICE" --json >"$SCRATCH/devices.json" 2>"$SCRATCH/devices.err"
else
    "$bench_peak" --device "$DEVICE" --quick >"$SCRATCH/devices.log" 2>&1
fi
cat "$SCRATCH/devices.log"
name=$(sed -n "s/^${DEVICE%%:*} *//p" "$SCRATCH/devices.log" | head -n 1)
if [ -z "$name" ]; then
    echo 'not ok device: there is no GPU that tandem can use'
    exit 1
fi
slug=$(echo "$name" | tr 'A-Z' 'a-z' | tr -cs 'a-z0-9' '-' | sed 's/^-*//; s/-*$//')
[ "$DRY" = 1 ] && slug=dry-run

# ---- Right ---------------------------------------------------------------------------------------
# shellcheck disable=SC2086
step check_ops 240 "$check_ops" --device "$DEVICE" $quick

# Two models: the one that people run, and one of plain halves, whose tokens hang least on rounding.
tokens_of() { tr -d ' \n' <"$1" | grep -o '"tokens":\[[0-9,]*\]'; }
compare_tokens() { # label, model, splits
    for k in none $3; do
        device=$DEVICE layers=$k
        [ "$k" = none ] && device=none layers=0
        timeout 120 "$tandem" run -m "$2" -p 'The capital of France is' -n $tokens --temp 0 -c 256 \
            --ignore-eos --json -q -ngl "$layers" --device "$device" \
            >"$SCRATCH/tokens_$k.json" 2>"$SCRATCH/tokens.err" || return 1
        [ -n "$(tokens_of "$SCRATCH/tokens_$k.json")" ] || return 1
        [ "$(tokens_of "$SCRATCH/tokens_$k.json")" = "$(tokens_of "$SCRATCH/tokens_none.json")" ] ||
            { echo "  | $1: other tokens with -ngl $k"; return 1; }
    done
}
result() { # name; of the command before
    if [ $? -eq 0 ]; then echo "ok $1"; else
        failed=$((failed + 1))
        echo "not ok $1"
        head -n 3 "$SCRATCH/tokens.err" | sed 's/^/  | /'
    fi
}
if [ $models = 0 ]; then
    skip tokens 'what runs a model is not here: see the first lines of make gpu-check'
else
    "$make_model" "$SCRATCH/halves.gguf" layers=6 embd=512 ff=1024 heads=8 kv=2 vocab=512 type=F16
    compare_tokens halves "$SCRATCH/halves.gguf" "$(seq 0 7)"
    result tokens_of_made_model
fi
if [ $models = 1 ] && [ -f "$MODEL" ]; then
    if [ "$DRY" = 1 ]; then splits='0 15 31'; else splits=$(seq 0 31); fi
    compare_tokens model "$MODEL" "$splits"
    result tokens_of_model
fi

# Settings of the device follow a colon, and one another after commas.
case $DEVICE in *:*) single="$DEVICE,graphs=0" ;; *) single="$DEVICE:graphs=0" ;; esac
# The sanitizers slow kernels down by tens: a model's few tokens, or small shapes of every op.
if [ $models = 1 ]; then
    set -- "$tandem" run -m "$SCRATCH/halves.gguf" -p 'a b c d e f g h i j' -n 2 -q -ngl 7
else
    set -- "$check_ops" --quick
fi
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
        step $tool 150 compute-sanitizer --tool $tool --error-exitcode 9 "$@" --device "$single"
    done
else
    skip sanitizers 'compute-sanitizer is not here'
fi

# ---- Fast ----------------------------------------------------------------------------------------
if [ ! -x "$bench_peak" ]; then
    skip peak 'the peak of instructions is measured on NVIDIA GPUs only'
    : >"$SCRATCH/peak.log"
else
    # shellcheck disable=SC2086
    step peak 120 "$bench_peak" --device "$DEVICE" --json --ms $ms $quick
fi
# shellcheck disable=SC2086
step ops 180 "$bench_device" --device "$DEVICE" --json --ms $ms $quick
if [ $models = 1 ]; then
    # shellcheck disable=SC2086
    step make_model 120 "$make_model" "$SCRATCH/speed.gguf" $shape
    step engine 180 "$bench_engine" -m "$SCRATCH/speed.gguf" -d "$DEVICE" -g 999999 \
        -p $prompt_tokens -n $new_tokens -r $repeats
    rm -f "$SCRATCH/speed.gguf" "$SCRATCH/halves.gguf"
else
    skip engine 'what runs a model is not here'
fi

# ---- The report ----------------------------------------------------------------------------------
# Matmuls of more than 8 tokens are made of tiles: they get their share of what the instruction
# behind them reaches alone.
awk -F '"' '
    FILENAME == ARGV[1] {
        teraops = $7
        gsub(/[^0-9.]/, "", teraops)
        n = split($10, types, " ")
        for (i = 1; i <= n; i++) { peak[types[i]] = 1000 * teraops; instruction[types[i]] = $4 }
        next
    }
    $4 == "matmul" && peak[$8] > 0 {
        tokens = $11
        gsub(/[^0-9]/, "", tokens)
        if (tokens + 0 > 8) {
            gflops = $NF
            gsub(/[^0-9.]/, "", gflops)
            share = sprintf(", \"instruction\": \"%s\", \"percent_of_peak\": %.1f}",
                            instruction[$8], 100 * gflops / peak[$8])
            sub(/}/, share)
        }
    }
    { print }' "$SCRATCH/peak.log" "$SCRATCH/ops.log" >"$SCRATCH/ops.json"

# A list that a program did not finish is none.
list() { if [ "$(tail -n 1 "$1" 2>/dev/null)" = ']' ]; then cat "$1"; else echo null; fi; }
{
    echo '{'
    printf '"name": "%s", "commit": "%s", "dry_run": %s, "failed": %d, "skipped": %d, "seconds": %d,\n' "$name" \
        "$(git rev-parse --short HEAD 2>/dev/null)" "$([ "$DRY" = 1 ] && echo true || echo false)" \
        $failed $skipped $(($(date +%s) - started))
    if [ $models = 1 ]; then
        printf '"devices": '; cat "$SCRATCH/devices.json"
        printf ',\n"engine": ['; paste -sd, - <"$SCRATCH/engine.log"; printf '],\n'
    fi
    printf '"peak": '; list "$SCRATCH/peak.log"
    printf ',\n"ops": '; list "$SCRATCH/ops.json"
    echo '}'
} >"$RESULTS/gpu-$slug.json"
{
    printf '# %s\n\n' "$name"
    sed 's/^/    /' "$SCRATCH/devices.log"
    if [ $models = 1 ]; then
        printf '\n## A model of 8B shape, Q4_K_M\n\n'
        sed 's/^/    /' "$SCRATCH/engine.log"
    fi
    printf '\n## Instructions alone\n\n| instruction | TFLOP/s or TOP/s | prefill of |\n|---|---|---|\n'
    awk -F '"' '/instruction/ { gsub(/[^0-9.]/, "", $7); print "| " $4 " | " $7 " | " $10 " |" }' \
        "$SCRATCH/peak.log"
    printf '\n## Ops\n\n| op | type | tokens | us | GB/s | %% of copy | GFLOP/s | instruction | %% of its peak |\n'
    echo '|---|---|---|---|---|---|---|---|---|'
    awk -F '[":,{} ]+' '/"op"/ {
        for (i = 2; i < NF; i += 2) value[$i] = $(i + 1)
        print "| " value["op"] " | " value["type"] " | " value["tokens"] " | " value["us"] " | " \
            value["gb_per_second"] " | " value["percent_of_copy"] " | " value["gflops"] " | " \
            value["instruction"] " | " value["percent_of_peak"] " |"
        split("", value)
    }' "$SCRATCH/ops.json"
} >"$RESULTS/gpu-$slug.md"
echo "$RESULTS/gpu-$slug.json and .md; $failed failed, $skipped skipped, $(($(date +%s) - started)) s"
[ $failed -eq 0 ]
