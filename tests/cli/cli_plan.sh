#!/bin/sh
# cli_plan.sh: tandem plan by the whole program: models and machines by name and by file, what is
# refused and how, constraints that are kept, plans that are saved and replayed to the byte, huge
# files whose weights are not touched, and runs held against their prediction. The plans themselves
# are compared by cli_plans.sh.
set -u
: "${TANDEM:=build/tandem}" "${TANDEM_SIM:=build/tandem-sim}" "${TOOLS:=build/release/tests}"
: "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}"
. tests/lib/results.sh
prefix=plan_
# Nothing measured here may change a plan.
export XDG_CACHE_HOME="$work/cache" TANDEM_CALIBRATE=never

plan() { capture "$TANDEM" plan "$@"; }
sim() { capture "$TANDEM_SIM" "$@"; }
# refused NAME CODE TEXT ARGUMENT...: that exit code, one line that holds TEXT, no plan.
refused() {
    name=$1 expected=$2 text=$3
    shift 3
    plan "$@"
    [ "$code" -eq "$expected" ] && ! [ -s "$out" ] && [ "$(wc -l <"$err")" -le 2 ] &&
        grep -qF -- "$text" "$err"
    result "$name"
}
# holds EXPRESSION: whether it is true of the JSON in $out, as p; units is {name: device}.
holds() {
    [ "$code" -eq 0 ] && python3 - "$out" "$1" <<'X'
import json, sys
p = json.load(open(sys.argv[1]))
units = {u["name"]: u["device"] for u in p.get("units", [])}
sys.exit(not eval("(" + sys.argv[2] + ")"))
X
}

# advised: the value of -ot that the last refusal names.
advised() { sed -n "s/^  -ot '\(.*\)' matches all of it.*/\1/p" "$err"; }

# ---- Models and machines by name and by file -----------------------------------------------------
machine=gtx-1060-6g-ddr4
plan --shape llama-3.1-8b --machine $machine
[ $code -eq 0 ] && ! [ -s "$err" ] && grep -q '^generation: .* tokens/s, .*; limited by ' "$out" &&
    grep -q '^prompt of 1024 tokens: first token after' "$out" &&
    grep -q "^speeds: .*$machine" "$out" && grep -q '^ *0 [gCaferbsRSptBqum]*$' "$out"
result by_name
cp "$out" "$work/by_name"
plan --shape configs/models/llama-3.1-8b.json --machine configs/machines/$machine.json
cmp -s "$out" "$work/by_name"
result by_file
(cd "$work" && "$TANDEM" plan --shape llama-3.1-8b --machine $machine) >"$out" 2>"$err"
case $TANDEM in /*) cmp -s "$out" "$work/by_name" ;; *) true ;; esac
result from_any_folder
for model in llama-3.3-70b mixtral-8x7b; do
    plan --shape $model --machine rtx-3060-12g --ram 64G
    [ $code -eq 0 ] && [ "$(wc -l <"$out")" -le 24 ] && [ "$(wc -L <"$out")" -le 120 ]
    result "${model}_fits_a_screen"
done
tail -n 1 "$work/by_name" | grep -qx 'to run it there: tandem chat -m FILE'
result ends_with_a_command
plan "$MODEL" -t 1 -fa on -ot 'blk\.3=CPU' -ctk q8_0 --cache-type-v=q8_0 -q
[ $code -eq 0 ] && ! grep -q '^to run it' "$out"
result ends_without_a_command_if_quiet
plan "$MODEL" --device none --prompt-tokens 9 -fa on -ot 'blk\.3=CPU' -ctk q8_0 --cache-type-v=q8_0
grep -qF "to run it: tandem chat $MODEL --device none --prompt-tokens 9 -ot 'blk\.3=CPU' -ctk q8_0 --cache-type-v=q8_0" "$out"
result ends_with_a_command_of_the_same_options
plan --shape llama-3.1-8b --machine $machine -v
[ $code -eq 0 ] && grep -qE '^ +[0-9]+ +[0-9.]+ +[0-9.]+ compute +c(pu|uda) +blk\.31\.ffn' "$out"
result steps_with_times
plan --shape llama-3.1-8b --machine $machine --vram 2G --strategy streamed -v --json
holds 'any(s["kind"] == "store" and s["bytes_per_row"] == 4096 for s in p["steps_prefill"]) and
    any(s.get("bytes_per_past") == 4096 for s in p["steps_prefill"] if s["kind"] == "fetch") and
    not any(s["kind"] in ("store", "fetch") for s in p["steps_one"])'
result steps_of_streamed_attention
plan --shape llama-3.1-8b --machine $machine --vram 3G --strategy row-split -v --json
holds '{s["phase"] for s in p["steps_one"] if s["kind"] == "compute"} == {"all", "in", "mid", "out"}
    and {s["data"] for s in p["steps_one"] if s["kind"] == "send"} ==
    {"residual", "hidden", "queries", "attended"}'
result steps_of_split_attention
plan --shape llama-3.1-8b --machine two-gpus
grep -q '^note: 1 more GPU is here' "$out"
result unused_accelerators_are_told
plan --shape llama-3.1-8b --machine $machine -c 8192 --prompt-tokens 4000 --gen-tokens 10 --json
holds 'p["n_ctx"] == 8192 and p["prompt_tokens"] == 4000 and p["gen_tokens"] == 10'
result workload

# ---- What is refused -----------------------------------------------------------------------------
refused unknown_machine 2 'tandem plan --machine list' --shape qwen3-8b --machine gtx1061
plan --shape QWEN3-8B --machine GTX1060
[ $code -eq 0 ] && grep -q gtx-1060-6g-ddr4 "$out"
result names_by_their_beginning
refused many_machines 2 'rtx-3060-12g, rtx-3060-laptop-6g' --shape qwen3-8b --machine RTX3060
refused unknown_shape 2 'tandem plan --shape list' --shape lama --machine $machine
for kind in models machines; do
    option=--shape
    [ $kind = models ] || option=--machine
    plan $option list
    ls configs/$kind | sed -n 's/[.]json$//p' | LC_ALL=C sort >"$work/names"
    [ $code -eq 0 ] && LC_ALL=C sort "$out" | cmp -s - "$work/names"
    result "lists_the_${kind}_that_are_built_in"
    plan $option list --json
    [ $code -eq 0 ] &&
        python3 -c 'import json, sys; print(*json.load(sys.stdin)["names"], sep="\n")' <"$out" |
        LC_ALL=C sort | cmp -s - "$work/names"
    result "lists_the_${kind}_as_json"
done
refused no_machine_file 1 'No such file' --shape qwen3-8b --machine "$work/none.json"
refused no_shape_file 1 'No such file' --shape "$work/none.json" --machine $machine
echo '{"name": "x", "devices": 3}' >"$work/bad.json"
refused bad_machine_file 1 "$work/bad.json" --shape qwen3-8b --machine "$work/bad.json"
refused bad_shape_file 1 "$work/bad.json" --shape "$work/bad.json" --machine $machine
echo 'no JSON' >"$work/text.json"
refused machine_is_no_json 1 "$work/text.json" --shape qwen3-8b --machine "$work/text.json"
refused model_and_shape 2 'cannot be combined' -m "$MODEL" --shape qwen3-8b
refused no_model 2 '--shape NAME' --machine $machine
refused device_of_other_machine 2 '--device' --shape qwen3-8b --machine $machine --device none
refused threads_of_other_machine 2 '-t cannot be combined' --shape qwen3-8b --machine $machine -t 4
refused half_automatic_cache 2 '-ctk auto -ctv auto' --shape qwen3-8b --machine $machine -ctk auto
refused long_prompt 2 'prompt' --shape qwen3-8b --machine $machine -c 512 --prompt-tokens 4000
refused too_big 1 'GiB of RAM' --shape llama-3.3-70b --machine $machine
refused too_big_strict 3 'GiB of RAM' --shape llama-3.3-70b --machine $machine --strict
refused too_many_layers 1 ' of its memory (weights 7.98 GiB' --shape qwen3-14b --machine $machine -ngl all
refused no_accelerator 2 '-ngl' --shape qwen3-14b --machine cpu-only -ngl 3 --strict
refused unwritable 1 'No such file' --shape qwen3-8b --machine $machine --save "$work/none/plan"
echo earlier >"$work/kept"
(
    trap '' XFSZ
    ulimit -f 1 # a file as on a full disk
    "$TANDEM" plan --shape qwen3-8b --machine $machine --save "$work/kept"
) >/dev/null 2>"$work/err"
[ $? -eq 1 ] && grep -q "$work/kept: File too large" "$work/err" && [ "$(cat "$work/kept")" = earlier ]
result full_disk_keeps_the_earlier_file

# ---- Constraints ---------------------------------------------------------------------------------
moe='--shape gpt-oss-20b --machine rtx-3060-12g --json'
plan $moe --cpu-moe
holds 'all(d == 0 for n, d in units.items() if n.endswith("experts")) and sum(units.values()) > 0'
result cpu_moe
attention='[d for n, d in units.items() if n.endswith("attention")]'
plan $moe
holds "sum($attention) > 0"
result attention_on_the_gpu
plan $moe --no-kv-offload
holds "not any($attention) and sum(units.values()) > 0"
result no_kv_offload
plan $moe -nkvo -ot 'blk\.3\.attn=GPU'
holds "sum($attention) == 1 and units['blk.3.attention'] == 1"
result no_kv_offload_and_a_pattern
plan --shape qwen3.5-9b --machine $machine -nkvo --json
holds 'all(d == 0 for u in p["units"] for n, d in [(u["name"], u["device"])] if n == "blk.3.attention") and units["blk.0.attention"] == 1'
result no_kv_offload_leaves_states
plan $moe --n-cpu-moe 5
holds 'all(units[f"blk.{i}.experts"] == (i > 4) for i in range(24))'
result n_cpu_moe
plan $moe -ot 'blk\.[0-9]\.ffn_.*_exps=CPU,blk\.1[0-9]\.attn=CPU'
holds 'all(units[f"blk.{i}.experts"] == 0 for i in range(10)) and
       all(units[f"blk.{i}.attention"] == 0 for i in range(10, 20)) and
       units["blk.15.experts"] == 1'
result patterns
plan $moe -ot 'blk\.[0-9]\.ffn_up_exps=CPU' -ot 'ffn_(gate|down)_exps=CPU,ffn_up_exps=CPU' -ot '^output=CPU'
holds 'all(units[f"blk.{i}.experts"] == 0 for i in range(24)) and units["head"] == 0'
result patterns_of_several_options
LLAMA_ARG_OVERRIDE_TENSOR='^output=CPU' plan $moe
holds 'units["head"] == 0'
result pattern_of_a_variable
plan $moe --override-tensor '^output=CPU'
holds 'units["head"] == 0'
result pattern_of_the_head
refused pattern_without_device 2 -ot $moe -ot 'ffn'
refused pattern_of_no_device 2 toaster $moe -ot 'ffn=toaster'
refused pattern_that_is_broken 2 '(ffn' $moe -ot '(ffn=CPU'
refused pattern_of_nothing 2 'nosuch' $moe -ot 'nosuch=CPU'
refused pattern_of_a_part 2 'apart: expected with blk.3' $moe -ot 'blk.3.ffn_down_exps=CPU'
plan $moe -ot "$(advised)"
holds 'units["blk.3.experts"] == 0 and units["blk.4.experts"] == 1'
result pattern_that_is_advised
refused pattern_of_parts 2 'apart: expected with blk.0' $moe -ot '.ffn_(up|down)_exps.=CPU'
plan $moe -ot "$(advised)"
holds 'all(units[f"blk.{i}.experts"] == 0 for i in range(24))'
result pattern_that_is_advised_for_all_layers
small='-m tests/golden/tiny/gemma4.gguf --machine rtx-3060-12g --json'
refused pattern_of_a_gate 2 'apart: expected with blk.4.inp_gate' $small -ot 'blk.4.inp_gate=CPU'
plan $small -ot "$(advised)"
holds 'units["blk.4.ffn"] == 0'
result pattern_that_is_advised_with_a_gate
refused pattern_that_does_not_fit 1 'and 4.00 GiB are free' $moe -ot 'exps=GPU' --vram 4G
plan $moe --vram 3G
holds 'p["devices"][1]["total_bytes"] <= 3 << 30 and p["devices"][1]["budget_bytes"] == 3 << 30'
result vram
plan $moe -ngl 7
holds 'p["gpu_layers"] == 7'
result layers
plan --shape llama-3.1-8b --machine gtx-1650-4g -c 32768 -ctk auto -ctv auto --json
holds 'p["cache_type_k"] in ("F16", "Q8_0") and p["cache_type_k"] == p["cache_type_v"]'
result automatic_cache
# Advice is measured in the midst of a context, and so is what it is compared with.
plan --shape qwen3-4b --machine $machine -ctk q8_0 --json
holds '[(a["helps"], a["prediction"]["total_ms"]) for a in p["advice"] if "more of VRAM" in a["text"]][0]
    == (False, p["advice_now"]["total_ms"]) and p["advice_now"]["total_ms"] > p["prediction"]["total_ms"]'
result advice_has_its_measure
plan --shape llama-3.1-8b --machine $machine --json
cp "$out" "$work/advice"
plan --shape llama-3.1-8b --machine $machine
python3 - "$work/advice" "$out" <<'X'
import json, sys
p, table = json.load(open(sys.argv[1])), open(sys.argv[2]).read()
useless = table.partition("would not help:")[2]
helps = [a["text"] for a in p["advice"] if a["helps"]]
sys.exit(not helps or any(t in useless or t not in table for t in helps) or
         any(not a["helps"] and a["text"] not in useless for a in p["advice"]))
X
result advice_that_helps_is_that_of_the_table
# The smaller KV cache of a Qwen3 4B gains 0.006 % (5299.785 to 5299.479 ms), which is no help.
plan --shape qwen3-4b --machine $machine -ctk q8_0 --json
holds 'all(a["helps"] == any(f(p["advice_now"]) >= 1.01 * f(a["prediction"])
    for f in (lambda x: x["total_ms"], lambda x: x["decode"]["ms"]))
    for a in p["advice"]) and any(a["helps"] for a in p["advice"])'
result advice_helps_from_one_percent_on
capture "$TANDEM" plan --shape llama-3.1-8b --machine $machine --cpu-moe
[ $code -eq 0 ] && [ "$(grep -c 'has no experts' "$err")" -eq 1 ]
result cpu_moe_without_experts_is_told_once
# Changes are tried with the micro-batch that was asked for, not with one of the planner's choice,
# which alone would read the prompt 24 times as fast.
plan --shape llama-3.1-8b --machine rtx-3060-12g -ub 1 --json
holds '[a["helps"] for a in p["advice"] if "Q3_K" not in a["text"]] == [False] * 3'
result advice_keeps_the_micro_batch
plan --shape llama-3.1-8b --machine rtx-3060-12g -ctk q4_0 -ctv q8_0 --json
holds 'p["advice"] and not any("q8_0" in a["text"] for a in p["advice"])'
result advice_of_no_larger_cache

# ---- Saved and replayed --------------------------------------------------------------------------
same='p["units"], p["devices"], p["n_ctx"], p["n_ubatch"], p["prediction"]'
for pair in "llama-3.1-8b $machine" 'qwen3-30b-a3b rtx-3060-12g' 'qwen3.5-9b gtx-1650-4g'; do
    set -- $pair
    plan --shape "$1" --machine "$2" -c 2048 --json --save "$work/saved"
    cp "$out" "$work/first"
    plan --shape "$1" --machine "$2" --plan "$work/saved" --json
    [ $code -eq 0 ] && python3 - "$work/first" "$out" <<X
import json, sys
first, again = ((lambda p: ($same))(json.load(open(path))) for path in sys.argv[1:])
sys.exit(first != again)
X
    result "replayed_$1"
done
set -- --shape qwen3.5-9b --plan "$work/saved"
refused replay_without_room 1 'and 1.00 GiB are free' "$@" --machine gtx-1650-4g --vram 1G
# Options that --plan cannot be combined with are no way out.
grep -q '^  Make a plan for less: tandem plan' "$err" && ! grep -q -e '-ngl' "$err"
result replay_without_room_needs_another_plan
refused replay_without_device 2 'a device of kind cuda' "$@" --machine cpu-only
refused replay_of_another_model 2 'another model' --shape qwen3-8b --plan "$work/saved" \
    --machine gtx-1650-4g
refused replay_and_more 2 'cannot be combined' "$@" --machine gtx-1650-4g -c 4096
refusal=$("$TANDEM" run -m "$MODEL" -p x --plan "$work/saved" --logits-out "$work/logits" 2>&1)
[ $? -eq 2 ] && echo "$refusal" | grep -q 'Leave --plan out'
result replay_with_logits
refused replay_of_nothing 1 'No such file' --shape qwen3.5-9b --plan "$work/none"
refused replay_of_no_plan 1 'tandem_plan' "$@" --machine gtx-1650-4g --plan "$work/bad.json"

# ---- On this machine -----------------------------------------------------------------------------
run="run -m $MODEL -p Once -n 8 --temp 0 --ignore-eos --json -q"
device='--device sim:vram=60M'
sim plan -m "$MODEL" $device -c 256 --save "$work/split" --json
holds '0 < sum(units.values()) and p["rates"]["source"] == "nearest" and p["can_run"]'
result on_the_simulated_device
cp "$out" "$work/planned"
sim $run $device --plan "$work/split"
[ $code -eq 0 ] && python3 - "$work/planned" "$out" <<'X'
import json, sys
planned, run = (json.load(open(path)) for path in sys.argv[1:])
bytes_of = lambda p: [d["total_bytes"] for d in p["devices"]]
sys.exit(not (bytes_of(planned) == bytes_of(run["plan"])
              and planned["unit_device"] == run["plan"]["unit_device"]
              and all(r["planned_bytes"] == r["allocated_bytes"] for r in run["memory"])))
X
result a_saved_plan_runs
sim $run --device none --plan "$work/split"
[ $code -eq 2 ] && grep -q 'a device of kind sim' "$err"
result a_saved_plan_wants_its_device
sim $run $device -c 256 -ot 'blk\.2[0-9]\..*=GPU,blk\.[0-9]\.=CPU'
[ $code -eq 0 ] && python3 - "$out" <<'X'
import json, sys
where = json.load(open(sys.argv[1]))["plan"]["unit_device"]
sys.exit(not (all(where[41:61]) and not any(where[1:21])))
X
result patterns_run
sim $run $device -c 256
holds 'p["predicted"]["decode_per_token_ms"] > 0 and p["predicted"]["prompt_passes"] == 1 and
       p["predicted"]["prompt_ms"] > 0 and p["predicted"]["rates"]["source"] == "nearest"'
result run_is_held_against_its_prediction
holds 'all((p["predicted"][d] > 0) == (p["predicted"][x] > p["timings"][m]) for d, x, m in
       (("decode_deviation", "decode_per_token_ms", "predicted_per_token_ms"),
        ("prompt_deviation", "prompt_ms", "prompt_ms")))'
result a_prediction_that_is_too_slow_is_above
sim run -m "$MODEL" -p Once -n 8 --temp 0 --ignore-eos $device -c 256 -v
[ $code -eq 0 ] && grep -qE 'decode [0-9.]+ ms/token \(predicted [0-9.]+, [+-][0-9]+ %\)' "$err" &&
    grep -q "'tandem calibrate' measures this one" "$err" &&
    awk '/^tandem: memory/ { exit $3 != $6 }' "$err"
result run_tells_its_prediction
capture "$TANDEM" run -m "$MODEL" -p Once -n 8 --temp 0 --ignore-eos --device none -c 256 -v
[ $code -eq 0 ] && grep -q 'speeds of a similar machine (cpu-only' "$err"
result run_on_the_cpu_takes_the_rates_of_a_cpu

# ---- What cannot run yet -------------------------------------------------------------------------
# One tensor of a type without kernels: the type is what is told, not the architecture.
python3 - "$MODEL" "$work/i8.gguf" <<'X'
import os, struct, sys
header = bytearray(open(sys.argv[1], "rb").read(3 << 20))
at = header.find(b"blk.3.ffn_norm.weight") + len("blk.3.ffn_norm.weight")
struct.pack_into("<I", header, at + 4 + 8 * struct.unpack_from("<I", header, at)[0], 24)  # I8
open(sys.argv[2], "wb").write(header)
os.truncate(sys.argv[2], os.path.getsize(sys.argv[1]))
X
plan -m "$work/i8.gguf"
[ $code -eq 0 ] &&
    grep -q '^note: this model can be planned but not run yet: tensor blk.3.ffn_norm.weight .*I8$' "$out"
result names_the_type_that_cannot_run
capture "$TANDEM" inspect "$work/i8.gguf"
[ $code -eq 0 ] && grep -q '^runs here      no, because tensor blk.3.ffn_norm.weight .*I8' "$out"
result inspect_names_the_type_that_cannot_run
rm "$work/i8.gguf"

# ---- A huge file whose weights are not there -----------------------------------------------------
header=$("$TOOLS/lib/write_shape" mixtral-8x7b "$work/huge.gguf")
[ "$(stat -c %s "$work/huge.gguf")" -gt 20000000000 ] &&
    [ "$(du -B1 "$work/huge.gguf" | cut -f 1)" -lt 10000000 ]
result huge_file_is_sparse
# Pages of the file that are touched count as memory of the process: 20 GB if all of them were.
cat >"$work/touched" <<'X'
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
sys.exit(code or resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss > 1 << 20)
X
python3 "$work/touched" "$TANDEM" plan -m "$work/huge.gguf" --machine rtx-3060-12g --ram 64G --json \
    >"$out" 2>"$err"
code=$?
holds 'p["weights_bytes"] > 2e10 and p["can_run"] and p["devices"][1]["total_bytes"] > 5e9'
result huge_file_without_touching_weights
cp "$out" "$work/of_file"
plan --shape mixtral-8x7b --machine rtx-3060-12g --ram 64G --json
[ $code -eq 0 ] && python3 - "$work/of_file" "$out" <<'X'
import json, sys
of_file, of_shape = (json.load(open(path)) for path in sys.argv[1:])
sys.exit(of_file["devices"] != of_shape["devices"] or of_file["units"] != of_shape["units"])
X
result huge_file_is_planned_like_its_shape
# A refusal names the context that fits, where paging cannot help.
refused context_that_fits 1 'need 18.82 GiB' --shape llama-3.1-8b --machine rtx-3060-12g \
    --vram 2G --ram 4G -c 131072
fits=$(sed -n 's/^ *-c \([0-9]*\) fits; or .*/\1/p' "$err")
plan --shape llama-3.1-8b --machine rtx-3060-12g --vram 2G --ram 4G -c "$fits"
[ $code -eq 0 ] && [ "$fits" -ge 4096 ]
result context_that_fits_is_planned
truncate -s "$header" "$work/huge.gguf"
refused huge_file_that_was_cut 1 "$work/huge.gguf" -m "$work/huge.gguf" --machine $machine
