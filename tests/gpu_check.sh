#!/bin/sh
# gpu_check.sh: checks and measures everything on the GPU of this machine; make gpu-check runs it.
#
#   sh tests/gpu_check.sh
#
# Takes the programs of build/gpu-pack (see make gpu-pack) where that folder is, so that a machine
# with a GPU needs no library, no compiler and no network; else those of build/, of which the ones
# that run a model may be missing. One line per check; exit code 1 if one failed. A step that passes
# its limit of time fails, and what it printed until then is kept.
#
# Variables: DEVICE (cuda, on a Mac metal); PARTS, of "right sanitizers speed plans"; OP, the only op
# to check and to measure; MODEL, a real one to compare logits with; DRY=1 for shapes small enough for
# the emulator. Everything goes to
# SCRATCH (build/gpu-check); RESULTS (bench/results, in a dry run SCRATCH) gets gpu-<name>.json and
# .md, and SCRATCH an archive of both and of all that the steps printed, which is what to send.
set -u
: "${DEVICE:=$([ "$(uname -s)" = Darwin ] && echo metal || echo cuda)}" "${DRY:=0}" "${OP:=}" "${SCRATCH:=build/gpu-check}"
: "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}" "${PARTS:=right sanitizers speed plans}"

if [ -d build/gpu-pack ]; then
    programs=build/gpu-pack
    export LD_LIBRARY_PATH="$PWD/build/gpu-pack/lib:${LD_LIBRARY_PATH:-}"
    tandem=$programs/tandem check_ops=$programs/check_ops bench_device=$programs/bench_device
    bench_peak=$programs/bench_peak bench_engine=$programs/bench_engine
    bench_link=$programs/bench_link bench_prediction=$programs/bench_prediction
    make_model=$programs/make_model compare_logits=$programs/compare_logits
else
    bench=build/release/bench
    tandem=build/tandem check_ops=build/release/tests/kernels/check_ops
    bench_device=$bench/bench_device bench_engine=$bench/bench_engine
    bench_link=$bench/bench_link bench_prediction=$bench/bench_prediction
    make_model=$bench/make_model bench_peak=$bench/cuda/bench_peak
    compare_logits=build/release/tests/lib/compare_logits
fi
[ "$DRY" = 1 ] && : "${RESULTS:=$SCRATCH}" || : "${RESULTS:=bench/results}"
mkdir -p "$SCRATCH" "$RESULTS"
rm -rf "$SCRATCH"/*.md "$SCRATCH"/*.log "$SCRATCH"/*.err "$SCRATCH"/*.json* "$SCRATCH"/*.csv "$SCRATCH/jit" "$SCRATCH/cache"
failed=0 skipped=0 started=$(date +%s)
# The driver keeps translated kernels here, and tandem what it measures: every machine starts anew.
mkdir -p "$SCRATCH/jit" "$SCRATCH/cache"
CUDA_CACHE_PATH=$(cd "$SCRATCH/jit" && pwd)
XDG_CACHE_HOME=$(cd "$SCRATCH/cache" && pwd)
export CUDA_CACHE_PATH XDG_CACHE_HOME TANDEM_CALIBRATE=never

if [ "$DRY" = 1 ]; then
    quick=--quick ms=0 shape='layers=4 embd=256 ff=512 heads=4 kv=2 vocab=512'
    prompt_tokens=16 new_tokens=4 repeats=1 long=100 short=16 depths=32
    some_ops='--op matmul' strategies='-p 16 -n 2 -r 1 --no-warmup' prediction='-r 1 -x 1000 -m 0.1 -w layers -k 15'
else
    quick='' ms=50 shape='' prompt_tokens=512 new_tokens=128 repeats=5 long=1200 short=64 depths=''
    some_ops='' strategies='-p 512 -n 16 -r 2' prediction='-r 2 -m 3 -k 2'
fi

[ "$OP" ] && only_op="--op $OP" some_ops='' || only_op=''
# macOS has no such program; every wait in tandem ends by itself.
command -v timeout >/dev/null || timeout() { shift 3; "$@"; }
has_part() { case " $PARTS " in *" $1 "*) true ;; *) false ;; esac; }
# Milliseconds; whole seconds where date knows no more.
now_ms() { case $(date +%N) in *[!0-9]* | '') echo $(($(date +%s) * 1000)) ;; *) echo $(($(date +%s%N) / 1000000)) ;; esac; }
# Settings of a device follow a colon, and one another after commas.
with() { case $1 in *:*) echo "$1,$2" ;; *) echo "$1:$2" ;; esac; }

# ---- Steps ---------------------------------------------------------------------------------------

# done_with NAME CODE SECONDS WHY: a line for people, and one for the report.
done_with() {
    good=true
    if [ "$2" -eq 0 ]; then echo "ok $1 ($3 s)"; else
        good=false failed=$((failed + 1))
        echo "not ok $1: $4"
    fi
    echo "{\"step\": \"$1\", \"ok\": $good, \"exit_code\": $2, \"seconds\": $3}" >>"$SCRATCH/steps.jsonl"
}
why_not() { # code, limit
    case $1 in 124 | 137) echo "no end after $2 s; what it printed is kept" ;; *) echo "exit code $1" ;; esac
}
# again STEP LIMIT COMMAND...: a failure inside a graph names no kernel, so the same once more with
# launches one by one, which the driver waits for.
again() {
    name=$1 limit=$2 count=$#
    shift 2
    for argument; do
        case $argument in "$DEVICE" | "$DEVICE":* | "$DEVICE",*) argument=$(with "$argument" graphs=0) ;; esac
        set -- "$@" "$argument"
    done
    shift $((count - 2))
    CUDA_LAUNCH_BLOCKING=1 timeout -k 5 "$limit" "$@" >"$SCRATCH/${name}_again.log" \
        2>"$SCRATCH/${name}_again.err" </dev/null
    echo "  | once more with graphs=0 and CUDA_LAUNCH_BLOCKING=1: exit code $?"
    tail -n 3 "$SCRATCH/${name}_again.err" | sed 's/^/  | /'
}
# step STEP LIMIT COMMAND...: output goes to $SCRATCH/STEP.log
step() {
    step=$1 limit=$2 begun=$(date +%s)
    shift 2
    timeout -k 5 "$limit" "$@" >"$SCRATCH/$step.log" 2>"$SCRATCH/$step.err" </dev/null
    code=$?
    done_with "$step" $code $(($(date +%s) - begun)) "$(why_not $code "$limit")"
    [ $code -eq 0 ] && return 0
    { grep '^not ok' "$SCRATCH/$step.log"; tail -n 3 "$SCRATCH/$step.err"; } | head -n 12 | sed 's/^/  | /'
    if grep -qE 'ERROR_(ILLEGAL_ADDRESS|LAUNCH_FAILED)' "$SCRATCH/$step.log" "$SCRATCH/$step.err"; then
        again "$step" "$limit" "$@"
    fi
    return $code
}
skip() { # step, why
    skipped=$((skipped + 1))
    echo "ok $1 # SKIP $2"
    echo "{\"step\": \"$1\", \"skipped\": \"$2\"}" >>"$SCRATCH/steps.jsonl"
}

# ---- What is here --------------------------------------------------------------------------------

# Clocks, power and the link under load, twice a second until the end.
sampler=''
finish() {
    [ "$sampler" ] && kill "$sampler" 2>/dev/null
    rm -f "$SCRATCH"/*.gguf "$SCRATCH"/*.f32
}
trap finish EXIT
trap 'exit 130' INT TERM
if [ "${DEVICE%%:*}" = cuda ] && command -v nvidia-smi >/dev/null; then
    nvidia-smi -q >"$SCRATCH/nvidia_smi.log" 2>&1
    nvidia-smi --query-gpu=timestamp,index,pstate,clocks.sm,clocks.mem,power.draw,power.limit,temperature.gpu,utilization.gpu,clocks_throttle_reasons.active,pcie.link.gen.current,pcie.link.width.current \
        --format=csv -lms 500 >"$SCRATCH/clocks.csv" 2>/dev/null </dev/null &
    sampler=$!
else
    skip clocks 'nvidia-smi is not here'
fi
for compiler in nvcc /usr/local/cuda/bin/nvcc clang gcc; do
    command -v "$compiler" >/dev/null && "$compiler" --version
done >"$SCRATCH/compilers.log" 2>&1
{ uname -a; cat /proc/version /proc/driver/nvidia/version; [ -e /dev/dxg ] && echo WSL2; } >"$SCRATCH/system.log" 2>/dev/null

models=0
[ -x "$tandem" ] && [ -x "$bench_engine" ] && [ -x "$make_model" ] && models=1
# The first start translates PTX, the second finds it.
begun=$(now_ms)
if [ $models = 1 ]; then
    "$tandem" devices --device "$DEVICE" >"$SCRATCH/devices.log" 2>&1
    first_ms=$(($(now_ms) - begun)) begun=$(now_ms)
    "$tandem" devices --device "$DEVICE" --json >"$SCRATCH/devices.json" 2>"$SCRATCH/devices.err"
else
    "$bench_peak" --device "$DEVICE" --quick >"$SCRATCH/devices.log" 2>&1
    first_ms=$(($(now_ms) - begun)) begun=$(now_ms)
    "$bench_peak" --device "$DEVICE" --quick >/dev/null 2>&1
fi
second_ms=$(($(now_ms) - begun))
cat "$SCRATCH/devices.log"
name=$(sed -n "s/^${DEVICE%%:*} *//p" "$SCRATCH/devices.log" | head -n 1)
if [ -z "$name" ]; then
    echo 'not ok device: there is no GPU that tandem can use'
    exit 1
fi
echo "first start $first_ms ms, second $second_ms ms"
slug=$(echo "$name" | tr 'A-Z' 'a-z' | tr -cs 'a-z0-9' '-' | sed 's/^-*//; s/-*$//')
[ "$DRY" = 1 ] && slug=dry-run

# Native code is one of two paths: PTX is what most people run. In a dry run there is no native code,
# and another PTX takes its place.
image=$(sed -n 's/^ *kernels: \([a-z]*_[0-9]*\).*/\1/p' "$SCRATCH/devices.log" | head -n 1)
other=$(sed -n 's/^ *kernels: .*(others: //p' "$SCRATCH/devices.log" | tr ';' '\n' |
    sed -n 's/^ *\(compute_[0-9]*\): not needed.*/\1/p' | head -n 1)
case $image in compute_*) [ "$DRY" = 1 ] || other='' ;; esac
images='' # "" stands for the default
[ "$other" ] && images=$other
on_image() { [ "$1" = default ] && echo "$DEVICE" || with "$DEVICE" "image=$1"; }
of_image() { [ "$1" = default ] || echo "_$1"; }

# Layers of a model of 8B shape in Q4_K_M that fit: of memory 131 MB each and 750 MB besides for the
# head and what is computed, of the disk the same. The cache takes 4 KiB for each layer and position.
free_mb=0
[ $models = 1 ] && free_mb=$(sed -n 's/.*"free_bytes": *\([0-9]*\)......,*$/\1/p' "$SCRATCH/devices.json" | tail -n 1)
disk_mb=$(df -Pk "$SCRATCH" | awk 'NR == 2 { print int($4 / 1024) }')
least_mb=$free_mb
[ "$disk_mb" -lt "$free_mb" ] && least_mb=$disk_mb
layers=$(((${least_mb:-0} - 800) / 133))
[ $layers -gt 32 ] && layers=32
if [ "$DRY" = 1 ]; then layers=4; elif [ $layers -ge 1 ]; then
    shape="layers=$layers"
    for depth in 4096 16384; do
        [ $((layers * (131 + depth / 256) + 900)) -lt "$free_mb" ] && depths=${depths:+$depths,}$depth
    done
fi

make_mixed() { # a small one in Q4_K_M
    [ -f "$SCRATCH/mixed.gguf" ] || "$make_model" "$SCRATCH/mixed.gguf" layers=4 embd=512 ff=512 heads=8 kv=2 vocab=512
}

# ---- Right ---------------------------------------------------------------------------------------

# logits NAME MODEL LIMIT LENGTH VARIANT...: a text of so many characters at most, on the CPU and then
# as each variant says, "LABEL|OPTIONS". A greedy text ends where two tokens are nearly as likely, so
# it is the NMSE of logits that counts; the first position with another likeliest token is told.
logits() {
    label=$1 model=$2 nmse=$3 begun=$(date +%s) bad=0
    head -c "$4" tests/golden/prompt_prose.txt >"$SCRATCH/prompt.txt"
    shift 4
    if ! timeout 300 "$tandem" run -m "$model" -f "$SCRATCH/prompt.txt" -n 0 -c 1024 -q --json --device none \
        --logits-out "$SCRATCH/cpu.f32" >"$SCRATCH/logits_cpu.json" 2>"$SCRATCH/logits_$label.err"; then
        done_with "logits_$label" 1 $(($(date +%s) - begun)) "the CPU alone: $(tail -n 1 "$SCRATCH/logits_$label.err")"
        return
    fi
    count=$(sed -n 's/.*"prompt_tokens": *\([0-9]*\).*/\1/p' "$SCRATCH/logits_cpu.json" | head -n 1)
    vocab=$(($(wc -c <"$SCRATCH/cpu.f32") / 4 / ${count:-1}))
    for variant; do
        context='-c 1024' options=${variant#*|}
        case $options in --plan*) context='' ;; esac
        rm -f "$SCRATCH/gpu.f32"
        # shellcheck disable=SC2086
        timeout 300 "$tandem" run -m "$model" -f "$SCRATCH/prompt.txt" -n 0 $context -q --device "$DEVICE" \
            --logits-out "$SCRATCH/gpu.f32" $options >/dev/null 2>>"$SCRATCH/logits_$label.err"
        line=$("$compare_logits" "$SCRATCH/cpu.f32" "$SCRATCH/gpu.f32" "$vocab" "$nmse" \
            2>>"$SCRATCH/logits_$label.err") || { bad=1; echo "  | $label ${variant%%|*}: $line"; }
        echo "$label ${variant%%|*} ${line:-nothing was computed}" >>"$SCRATCH/logits.log"
    done
    done_with "logits_$label" $bad $(($(date +%s) - begun)) "$(tail -n 1 "$SCRATCH/logits_$label.err")"
}

# Which experts a plan would split depends on speeds, so here every layer's are. The engine keeps to
# such a plan; the tokens, which may differ from the CPU's where two are nearly as likely, are told.
split_experts() {
    command -v python3 >/dev/null || { skip split_experts 'python3 is not here'; return; }
    set -- -m "$SCRATCH/experts.gguf" -p 'a b c d e f g h' -n 8 --temp 0 --ignore-eos --json -q
    "$tandem" plan -m "$SCRATCH/experts.gguf" -c 256 -q --device "$DEVICE" --save "$SCRATCH/split.plan" \
        >"$SCRATCH/plan.log" 2>&1
    python3 tests/cli/change_plan.py "$tandem" "$SCRATCH/experts.gguf" "$DEVICE" experts 1 "$SCRATCH/split.plan"
    step split_experts 120 "$tandem" run "$@" --plan "$SCRATCH/split.plan" --device "$DEVICE"
    "$tandem" run "$@" -c 256 --device none 2>/dev/null | tokens_of >"$SCRATCH/tokens_cpu.log"
    tokens_of <"$SCRATCH/split_experts.log" | paste "$SCRATCH/tokens_cpu.log" - |
        awk '$1 != $2 { at = NR; exit } END { print "experts split tokens, first_other", at ? at - 1 : -1 }' >>"$SCRATCH/logits.log"
}
tokens_of() { tr -d ' \n' | sed 's/.*"tokens":\[\([0-9,]*\)\].*/\1/' | tr ',' '\n'; }

# Every matmul and every way in which a plan uses both devices, on models that are made here: halves,
# quantised, and with experts, of which a near tie takes others and changes a position's logits.
check_logits() {
    "$make_model" "$SCRATCH/halves.gguf" layers=4 embd=256 ff=512 heads=4 kv=2 vocab=512 type=F16
    make_mixed
    "$make_model" "$SCRATCH/experts.gguf" layers=4 embd=256 ff=256 heads=4 kv=2 vocab=512 experts=8 used=2
    logits halves "$SCRATCH/halves.gguf" 1e-4 "$long" 'all|-ngl all' 'half|-ngl 2 -ub 32'
    logits mixed "$SCRATCH/mixed.gguf" 3e-3 "$long" 'all|-ngl all' 'half|-ngl 2 -ub 32' \
        'streamed|--strategy streamed --vram 5M' 'row_split|--strategy row-split --vram 5M' \
        'attention_first|--strategy attention-first --vram 8M'
    logits one_by_one "$SCRATCH/mixed.gguf" 3e-3 "$short" 'one|-ngl all -ub 1' 'few|-ngl all -ub 5'
    logits one_by_one_halves "$SCRATCH/halves.gguf" 1e-4 "$short" 'one|-ngl all -ub 1'
    logits experts "$SCRATCH/experts.gguf" 3e-2 "$long" 'all|-ngl all' 'on_cpu|-ngl all --cpu-moe -ub 32'
    split_experts
    if ! [ -f "$MODEL" ]; then
        skip logits_of_model "$MODEL is not here: make model fetches it, MODEL=FILE names another"
    elif [ "$DRY" = 1 ]; then
        logits model "$MODEL" 3e-3 "$short" 'some|-ngl 3'
    else
        set --
        for k in $(seq 0 31); do set -- "$@" "$k|-ngl $k"; done
        logits model "$MODEL" 3e-3 "$long" "$@" 'one|-ngl all -ub 1'
    fi
}

if has_part right; then
    only=''
    for i in default $images; do
        # shellcheck disable=SC2086
        step "check_ops$(of_image $i)" 300 "$check_ops" --device "$(on_image $i)" $quick $only_op $only
        only=$some_ops
    done
    if [ $models = 1 ]; then check_logits; else
        skip logits 'what runs a model is not here: see the first lines of make gpu-check'
    fi
fi

# Sanitizers slow kernels down by tens: small shapes of every op, quantised ones too. The driver is
# asked for each kernel in every module, and memcheck takes a no for an error unless told otherwise.
if has_part sanitizers; then
    if command -v compute-sanitizer >/dev/null; then
        # shellcheck disable=SC2086
        for tool in memcheck racecheck synccheck initcheck; do
            [ $tool = memcheck ] && set -- --report-api-errors no || set --
            step $tool 400 compute-sanitizer --tool $tool "$@" --error-exitcode 9 "$check_ops" --quick \
                $only_op --device "$(with "$DEVICE" graphs=0)"
        done
        [ -f "$SCRATCH/mixed.gguf" ] && step memcheck_model 300 compute-sanitizer --tool memcheck \
            --report-api-errors no --error-exitcode 9 "$tandem" run -m "$SCRATCH/mixed.gguf" -p 'a b c d e f g h i j' -n 2 -c 256 \
            -q -ngl all --device "$(with "$DEVICE" graphs=0)"
    else
        skip sanitizers 'compute-sanitizer is not here'
    fi
fi

# ---- Fast ----------------------------------------------------------------------------------------

# calibrate IMAGE: plans are made with the rates of this machine, as they are for its user.
calibrated=''
calibrate() {
    case " $calibrated " in *" $1 "*) return 0 ;; esac
    step "calibrate$(of_image "$1")" 60 "$tandem" calibrate --device "$(on_image "$1")" --json \
        --machine-out "$SCRATCH/machine$(of_image "$1").json" -q
    calibrated="$calibrated $1"
}

made=0
make_speed_model() {
    [ $made = 1 ] && return 0
    if [ $layers -lt 1 ]; then
        skip speed_model "memory or disk for a layer of 8B shape: $free_mb MB on the GPU, $disk_mb MB in $SCRATCH"
        return 1
    fi
    [ "$DRY" = 1 ] || echo "writing a model of $layers layers, $(((layers * 131 + 730))) MB, to $SCRATCH; it is removed at the end"
    # shellcheck disable=SC2086
    step make_model 300 "$make_model" "$SCRATCH/speed.gguf" $shape && made=1
}
kernel_times() { # name, tokens as bench takes them
    what=kernels_$1
    shift
    step "$what" 120 "$tandem" bench -m "$SCRATCH/speed.gguf" --device "$(with "$DEVICE" times=1)" -ngl all \
        "$@" -r 1 -o jsonl -v
    sed -n 's/^.*kernel time: \([0-9.]*\) %, \([0-9.]*\) ms, \([0-9]*\) launches of \([a-z0-9_]*\)$/{"kernel": "\4", "percent": \1, "ms": \2, "launches": \3}/p' \
        "$SCRATCH/$what.err" >"$SCRATCH/$what.jsonl"
}
measure_engine() {
    make_speed_model || return
    for i in default $images; do
        calibrate "$i"
        step "engine$(of_image $i)" 240 "$bench_engine" -m "$SCRATCH/speed.gguf" -d "$(on_image $i)" \
            -c "$XDG_CACHE_HOME/tandem" -g 999999 -p $prompt_tokens -n $new_tokens -r $repeats
    done
    # Where the time of a prompt and of a token goes: each launch by itself, between two events.
    if [ "${DEVICE%%:*}" = cuda ]; then
        kernel_times prompt -p $prompt_tokens -n 0
        kernel_times token -p 0 -n $new_tokens
    else
        skip kernels_prompt 'the times of kernels are measured on NVIDIA GPUs only'
    fi
    [ "$depths" ] && step depth 400 "$tandem" bench -m "$SCRATCH/speed.gguf" --device "$DEVICE" -ngl all \
        -p 0 -n $new_tokens -d "$depths" -r 1 -o jsonl -q
}
if has_part speed; then
    if [ -x "$bench_peak" ]; then
        # shellcheck disable=SC2086
        step peak 120 "$bench_peak" --device "$DEVICE" --json --ms $ms $quick
    else
        skip peak 'the peak of instructions is measured on NVIDIA GPUs only'
    fi
    # The other image measures matmuls alone, which are most of a model's time.
    # shellcheck disable=SC2086
    step ops 600 "$bench_device" --device "$DEVICE" --json --ms $ms $quick $only_op
    for i in $images; do
        # shellcheck disable=SC2086
        step "ops_$i" 300 "$bench_device" --device "$(on_image $i)" --json --ms $ms $quick --op "${OP:-matmul}"
    done
    if [ $models = 1 ]; then measure_engine; else skip engine 'what runs a model is not here'; fi
fi

# ---- Plans ---------------------------------------------------------------------------------------

# strategies NAME MODEL: every way to place a model half of which fits on the GPU, as measured and as
# planned, and its tokens beside those of the CPU.
measure_strategies() {
    half=$(($(wc -c <"$2") / 2097152))
    # shellcheck disable=SC2086
    step "strategies_$1" 600 "$tandem" bench -m "$2" --device "$DEVICE" --strategies \
        --vram "$((half > 4 ? half : 4))M" $strategies -o jsonl -q
}
measure_plans() {
    calibrate default
    make_speed_model || return
    measure_strategies dense "$SCRATCH/speed.gguf"
    if [ "$DRY" = 1 ]; then experts='layers=2 embd=256 ff=256 heads=4 kv=2 vocab=512 experts=8 used=2'
    else experts='layers=8 embd=2048 ff=768 heads=16 kv=4 vocab=32000 experts=64 used=8'; fi
    # shellcheck disable=SC2086
    step make_experts 120 "$make_model" "$SCRATCH/many.gguf" $experts && measure_strategies experts "$SCRATCH/many.gguf"
    # How much of the copies of streamed weights was hidden is in its statistics.
    step streamed 300 "$tandem" run -m "$SCRATCH/speed.gguf" -f "$SCRATCH/prompt.txt" -n 2 -c 2048 -v \
        --strategy streamed --vram "$((half > 4 ? half : 4))M" --device "$DEVICE" --trace "$SCRATCH/trace.json"
    # A share of the weights has to be more memory than a plan takes besides them.
    [ "$DRY" = 1 ] && predicted=mixed || predicted=speed
    # shellcheck disable=SC2086
    step prediction 600 "$bench_prediction" -c "$XDG_CACHE_HOME/prediction" -d "$DEVICE" $prediction "$SCRATCH/$predicted.gguf"
}
if has_part plans; then
    # shellcheck disable=SC2086
    step link 120 "$bench_link" --device "$DEVICE" $quick
    if [ $models = 1 ]; then
        head -c "$long" tests/golden/prompt_prose.txt >"$SCRATCH/prompt.txt"
        make_mixed
        measure_plans
    else
        skip plans 'what runs a model is not here'
    fi
fi

# ---- The report ----------------------------------------------------------------------------------
[ "$sampler" ] && nvidia-smi -q >"$SCRATCH/nvidia_smi_after.log" 2>&1
export SCRATCH RESULTS DRY name slug image other failed skipped started first_ms second_ms layers
sh tests/gpu_report.sh || failed=$((failed + 1))
(cd "$SCRATCH" && tar -czf "gpu-$slug.tar.gz" ./*.md ./*.log ./*.err ./*.json* ./*.csv 2>/dev/null)
echo "$failed failed, $skipped skipped, $(($(date +%s) - started)) s; $RESULTS/gpu-$slug.json and .md"
echo "to send: $SCRATCH/gpu-$slug.tar.gz, with an issue at $(git config --get remote.origin.url 2>/dev/null ||
    echo 'the place that tandem came from')"
[ $failed -eq 0 ]
