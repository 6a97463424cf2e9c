#!/bin/sh
# cli_sim.sh: a model split over the CPU and the simulated accelerator, by the whole program: splits,
# strategies and ways to feed a prompt write the same tokens, planned bytes are allocated bytes,
# decoding allocates nothing, and a device that fails ends the run with a message. Every number of
# layers and random placements of small models are in tests/runtime/test_engine.c and test_pipeline.c.
# run: alone
set -u
: "${TANDEM_SIM:=build/tandem-sim}" "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}"
. tests/lib/results.sh

# Sanitizers are slow: fewer tokens.
case $TANDEM_SIM in
*/asan/* | */ubsan/* | */tsan/*) n=8 ;;
*) n=16 ;;
esac

prompt='The path ran between the fields and the sea. On the one side there were sheep, and beyond
the sheep a line of thorn trees all bent the same way, like people listening at a door. On the other
side there was nothing at all. In summer'

# call ARGUMENT...: runs the program; sets code, $out and $err.
call() { capture timeout 120 "$TANDEM_SIM" "$@"; }
# generate NAME ARGUMENT...: keeps the JSON as $work/NAME.json. replay: likewise with a plan's context.
generate() {
    name=$1
    shift
    replay "$name" -c 256 "$@"
}
replay() {
    name=$1
    shift
    call run -m "$MODEL" -p "$prompt" -n $n --temp 0 --json -q --ignore-eos "$@"
    cp "$work/out" "$work/$name.json"
    [ $code -eq 0 ] && ! [ -s "$work/err" ]
    result "sim_$name"
}

# ---- The same tokens everywhere ------------------------------------------------------------------
generate cpu --device none
for k in 0 1 15 30 31; do generate "layers_$k" -ngl "$k" --device sim:vram=500M; done
generate auto --device sim:vram=50M
generate vram_limit --vram 50M --device sim:vram=500M
generate more_than_all -ngl 999 --device sim:vram=500M
for ub in 1 7; do
    generate "cpu_ubatch_$ub" --device none -ub $ub
    generate "split_ubatch_$ub" -ngl 15 --device sim:vram=500M -ub $ub
done
generate split_batch_5 -ngl 15 --device sim:vram=500M -b 5
generate split_one_thread -ngl 15 --device sim:vram=500M -t 1 -tb 1
generate split_slow_link -ngl 15 --device sim:vram=500M,h2d=200M,d2h=200M
for strategy in cpu layers attention-first streamed row-split; do
    generate "strategy_$strategy" --strategy $strategy --device sim:vram=60M
    generate "strategy_${strategy}_ubatch" --strategy $strategy --device sim:vram=60M -ub 40
done
for feed in arena staged; do
    generate "feed_$feed" --strategy streamed --feed $feed --device sim:vram=60M -ub 40
done

# Attention streamed, split, and both, whatever the planner would choose.
call plan -m "$MODEL" -c 256 -ub 40 --device sim:vram=500M --save "$work/plan"
for way in streamed split both; do
    python3 tests/cli/change_plan.py "$TANDEM_SIM" "$MODEL" sim:vram=500M $way 1 "$work/plan"
    call plan -m "$MODEL" --plan "$work/plan" --device sim:vram=500M
    [ $code -eq 0 ]
    result "sim_attention_${way}_plan"
    replay "attention_$way" --plan "$work/plan" --device sim:vram=500M
done

python3 - "$work" "$n" <<'X'
import glob, json, os, sys

work, n = sys.argv[1], int(sys.argv[2])
reference = json.load(open(f"{work}/cpu.json"))["tokens"]


def check(name, good):
    print(("ok " if good else "not ok ") + "sim_" + name)


check("length", len(reference) == n)
for path in sorted(glob.glob(f"{work}/*.json")):
    name = os.path.basename(path)[:-5]
    run = json.load(open(path))
    check(f"{name}_same_tokens", run["tokens"] == reference)
    check(f"{name}_planned_is_allocated",
          run["memory"] and all(r["planned_bytes"] == r["allocated_bytes"] for r in run["memory"]))
    planned = {}
    for row in run["memory"]:
        planned[row["device"]] = planned.get(row["device"], 0) + row["planned_bytes"]
    check(f"{name}_peak_is_planned",
          all(p["peak_bytes"] == planned[p["device"]] for p in run["peak"]))
    if run["heap"] is not None:
        check(f"{name}_decoding_allocates_nothing",
              run["heap"]["bytes_after_first_token"] == 0
              and run["heap"]["allocations_after_first_token"] == 0)
    layers = run["plan"]["gpu_layers"]
    if name.startswith("layers_"): check(f"{name}_honoured", layers == int(name[7:]))
    if name == "more_than_all": check(f"{name}_honoured", layers == 31)
    if name in ("auto", "vram_limit"):
        check(f"{name}_stays_below_the_limit",
              0 < layers < 31 and run["peak"][1]["peak_bytes"] <= 50 << 20)
X

# ---- What does not fit is refused, with what would -----------------------------------------------
too_many() { call run -m "$MODEL" -p x -n 1 -q --device sim:vram=50M -c 256 -ngl "$@"; }
too_many 31
[ $code -eq 1 ] && ! [ -s "$work/out" ] && grep -q 'are free' "$work/err"
result sim_too_many_layers
fits=$(sed -n 's/.*-ngl \([0-9]*\) fits.*/\1/p' "$work/err")
too_many "${fits:-none}"
[ $code -eq 0 ]
result sim_what_fits_is_true
too_many "$((${fits:-0} + 1))"
[ $code -eq 1 ]
result sim_one_more_does_not_fit
too_many 31 --strict
[ $code -eq 3 ] && grep -q 'are free' "$work/err"
result sim_strict
call plan -m "$MODEL" --device sim:vram=50M -ngl 31 --strict
[ $code -eq 3 ]
result sim_plan_strict
call run -m "$MODEL" -p x -n 1 -q --device none --ram 20M
[ $code -eq 1 ] && grep -q 'of its memory .* and 20.00 MiB are free' "$work/err"
result sim_too_little_memory
call plan -m "$MODEL" --device sim:vram=50M --json
python3 -c 'import json, sys; json.load(open(sys.argv[1]))["unit_device"][61]' "$work/out"
result sim_plan_json

# ---- A device that fails: a clear message, no hang, no text after it -----------------------------
for fault in copy:1 copy:100 op:1 op:100 op:1000 lost:1 lost:200 lost:1000; do
    call run -m "$MODEL" -p "$prompt" -n 20 --temp 0 -c 256 -q --ignore-eos -ngl 15 \
        --device "sim:vram=500M,fail=$fault"
    [ $code -eq 1 ] && [ "$(wc -l <"$work/err")" -le 2 ] && grep -q '^tandem: error: .*sim' "$work/err"
    result "sim_fault_$(echo $fault | tr : _)"
done

# ---- Memory that is refused after all: a smaller plan, with a line, or exit code 3 --------
for refusal in none fail=alloc:1 fail=alloc:3 taken=490M taken=500M; do
    device=sim:vram=500M,$refusal
    [ $refusal = none ] && device=none
    layers='-ngl 15'
    [ $refusal = none ] && layers=''
    # shellcheck disable=SC2086
    call run -m "$MODEL" -p "$prompt" -n 20 --temp 0 -c 256 --ignore-eos $layers --device "$device"
    if [ $refusal = none ]; then
        cp "$work/out" "$work/cpu_text"
        continue
    fi
    [ $code -eq 0 ] && cmp -s "$work/out" "$work/cpu_text" &&
        grep -q 'warning: .* goes to the CPU: simulated accelerator.*wanted [0-9.]* [KMG]iB' "$work/err"
    result "sim_demotion_$(echo $refusal | tr '=:' __)"
    call run -m "$MODEL" -p "$prompt" -n 20 --temp 0 -c 256 -q -ngl 15 --strict --device "$device"
    [ $code -eq 3 ] && [ "$(wc -l <"$work/err")" -le 2 ] && ! [ -s "$work/out" ]
    result "sim_demotion_strict_$(echo $refusal | tr '=:' __)"
done
