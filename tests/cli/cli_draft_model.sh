#!/bin/sh
# cli_draft_model.sh: texts by a draft model (-md) are those without it, on the CPU, the simulated and
# the emulated GPU, wherever each of both models is, with every byte of both planned and none allocated
# while text is written; plans for both; what cannot be is refused before a model is loaded.
set -u
: "${TANDEM:=build/tandem}" "${TANDEM_SIM:=build/tandem-sim}"
: "${TOOLS:=build/release/tests}"
: "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}"
. tests/lib/results.sh
prefix=draft_model_
export XDG_CACHE_HOME="$work/cache" TANDEM_CALIBRATE=never
case $TANDEM in
*/asan/* | */ubsan/* | */tsan/*) n=10 splits='9:0' ;;
*) n=40 splits='1:auto 9:0 31:all' ;;
esac
program=$TANDEM
prompt='The capital of France is'
# The model, smaller: it mostly guesses what the model writes.
draft=$work/draft.gguf
capture "$TANDEM" quantize --allow-requantize "$MODEL" "$draft" Q2_K
[ $code -eq 0 ]
result smaller

# generate NAME ARGUMENT...: keeps the JSON as $work/NAME.json.
generate() {
    name=$1
    shift
    capture timeout 300 "$program" run -m "$MODEL" -c 256 -p "$prompt" -n "$n" --ignore-eos \
        --json -q "$@"
    cp "$out" "$work/$name.json"
    [ $code -eq 0 ] && ! [ -s "$err" ]
    result "$name"
}
# alike NAME NAME [LAYERS]: the second has drafts by a model with so many layers on the GPU, and the
# tokens of the first.
alike() {
    python3 - "$work/$1.json" "$work/$2.json" "${3:-}" <<'X'
import json, sys
plain, drafted = (json.load(open(p)) for p in sys.argv[1:3])
t, model = drafted["timings"], drafted["draft_model"]
assert plain["tokens"] == drafted["tokens"] and "draft_model" not in plain
assert 0 <= t["draft_n_accepted"] <= t["draft_n"] and t["draft_ms"] > 0
assert t["decode_steps"] == plain["timings"]["decode_steps"]
for rows in drafted["memory"], model["memory"]:
    assert rows and all(r["planned_bytes"] == r["allocated_bytes"] for r in rows)
assert sys.argv[3] in ("", str(model["plan"]["gpu_layers"])), model["plan"]["gpu_layers"]
h = None if "emulated" in str(drafted["memory"]) else drafted["heap"] # its driver allocates
assert h is None or h["bytes_after_first_token"] == h["allocations_after_first_token"] == 0
X
    result "$2_alike"
}

generate plain --temp 0 --device none
generate same --temp 0 --device none -md "$MODEL"
alike plain same
generate smaller_one --temp 0 --device none -md "$draft" --spec-draft-n-max 5 -td 1
alike plain smaller_one
generate drawn_plain --seed 3 --temp 0.7 --device none
generate drawn --seed 3 --temp 0.7 --device none -md "$draft" -ctkd q8_0 -ctvd q8_0
alike drawn_plain drawn
program=$TANDEM_SIM
for split in $splits; do
    generate "sim_$split" --temp 0 --device sim:vram=300M -ngl "${split%:*}" -ngld "${split#*:}" -md "$draft"
    case $split in *:all) layers=31 ;; *:0) layers=0 ;; *) layers= ;; esac
    alike plain "sim_$split" $layers
done
# Where the model is much slower than its draft model, most tokens are guessed.
if [ "$n" -eq 40 ]; then
    generate sim_slow --temp 0 --device sim:vram=300M,op=400 -ngl all -ngld 0 -md "$draft"
    alike plain sim_slow 0
    python3 -c 'import json, sys; assert json.load(open(sys.argv[1]))["timings"]["draft_n_accepted"] > 9' \
        "$work/sim_slow.json"
    result most_are_guessed
    # And where the draft model is much slower, it is given up.
    capture "$TANDEM_SIM" run -m "$MODEL" -c 512 -p "$prompt" -n 300 --ignore-eos --temp 0 \
        --device sim:vram=300M,op=100 -ngl 0 -ngld all -md "$draft"
    [ $code -eq 0 ] && grep -q '^tandem: the draft model was given up: a token takes it 80 %' "$err"
    result given_up
fi
program=$TANDEM
emulator=$(dirname "$TANDEM")/emulator
if [ -f "$emulator/libcuda.so.1" ] && [ "$n" -eq 40 ]; then
    n=6
    generate short_plain --temp 0 --device none
    LD_LIBRARY_PATH="$emulator:${LD_LIBRARY_PATH:-}" generate cuda --temp 0 --device cuda -ngl 2 \
        -md "$draft" -ngld 1
    alike short_plain cuda 1
fi

# ---- Memory that both share ------------------------------------------------------------------------
# Limits hold for both together: what the draft model takes is not the model's.
capture "$TANDEM_SIM" run -m "$MODEL" -c 256 -p "$prompt" -n 2 --json -q --device sim:vram=300M \
    --vram 150M --ram 400M -md "$draft"
[ $code -eq 0 ] && python3 - "$out" <<'X'
import json, sys
r = json.load(open(sys.argv[1]))
rows = r["memory"] + r["draft_model"]["memory"]
both = {True: 0, False: 0}
for row in rows: both["simulated" in row["device"]] += row["allocated_bytes"]
assert 100 << 20 < both[True] <= 150 << 20 and both[False] <= 400 << 20, both
X
result limits_hold_for_both
capture "$TANDEM" run -m "$MODEL" -c 256 -p "$prompt" -n 2 -q --device none --ram 200M -md "$MODEL"
[ $code -eq 1 ] && grep -q 'Leave out the draft model (-md), take a smaller one or a shorter context (-c)' "$err"
result no_room

capture "$TANDEM" run -m "$MODEL" -c 256 -p "$prompt" -n 2 -q --device none --ram 90M -md "$MODEL"
[ $code -eq 1 ] && grep -q 'the draft model: .* needs ' "$err" && grep -q 'Leave out the draft model (-md)' "$err"
result no_room_for_the_draft_model
capture "$TANDEM" run -m "$MODEL" -c 256 -p "$prompt" -n 2 -q --device none --ram 120M -md "$MODEL"
[ $code -eq 1 ] && grep -q 'the draft model leaves no RAM to' "$err" && grep -q 'Leave out the draft model (-md)' "$err"
result no_room_at_all
# Both are planned for the prompt that is known.
capture "$TANDEM" run -m "$MODEL" -c 512 -p hi -n 1 -q --device none --ram 200M --allow-paging -md "$draft"
[ $code -eq 0 ]
result planned_for_the_prompt
capture "$TANDEM" run -m "$MODEL" -c 256 -p "$prompt" -n 4 --device none -ub 1 -md "$draft"
[ $code -eq 0 ] && grep -q 'no tokens are guessed: -ub 1 leaves no room' "$err"
result micro_batches_of_one

# ---- A conversation and plans ------------------------------------------------------------------------
talk() { capture "$TANDEM" chat -m "$MODEL" --device none -c 512 -n 20 --temp 0 "$@" <"$work/turns"; }
printf 'Count to nine.\nAnd back.\n/undo\nAnd on.\n' >"$work/turns"
talk -q --simple-io && cp "$out" "$work/answer"
talk -q --simple-io -md "$draft" && [ $code -eq 0 ] && cmp -s "$out" "$work/answer" && [ -s "$out" ]
result chat
talk -md "$draft" -v
[ "$(grep -c ' scratch  *[0-9]' "$err")" -eq 2 ] &&
    grep -q '^tandem: the draft model: on the CPU; weights: ' "$err" && grep -q '^tandem: drafts ' "$err"
result told
capture "$TANDEM" plan -m "$MODEL" --device none -c 256 -md "$draft" --save "$work/plan.json"
[ $code -eq 0 ] && grep -q '^the draft model:' "$out" && grep -q '^the model, in what that leaves:' "$out" &&
    grep -q '"max_logits": 17' "$work/plan.json"
result plan
capture "$TANDEM" run -m "$MODEL" --device none --plan "$work/plan.json" -p x -n 2 -q -md "$draft"
[ $code -eq 0 ]
result plan_with_room
capture "$TANDEM" plan -m "$MODEL" --device none -c 256 --save "$work/one.json"
capture "$TANDEM" run -m "$MODEL" --device none --plan "$work/one.json" -p x -n 2 -q -md "$draft"
[ $code -eq 2 ] && grep -q -- '--spec-type: rows of logits in the plan .*one.json: expected 17, got 1' "$err" &&
    grep -q -- 'the same --spec-type and --spec-draft-n-max' "$err"
result plan_without_room
capture "$TANDEM" plan --shape llama-3.1-8b -md llama-3.2-1b --machine rtx-2060-6g -c 4096 --json
[ $code -eq 0 ] && python3 - "$out" <<'X'
import json, sys
plan = json.load(open(sys.argv[1]))
assert plan["draft_model"]["gpu_layers"] == 17 and plan["gpu_layers"] > 0
X
result plan_of_shapes

# ---- What is refused, before a model is loaded ---------------------------------------------------------
"$TOOLS/lib/write_tiny" "$work/tiny.gguf" >/dev/null 2>&1
capture "$TANDEM" run -m "$MODEL" --device none -p x -n 2 -md "$work/tiny.gguf"
[ $code -eq 2 ] && grep -q 'tiny.gguf: the ' "$err" && grep -q 'Take a draft model of the same family' "$err"
result other_tokens
capture "$TANDEM" run -m "$MODEL" --device none -p x -n 2 -md "$work/none.gguf"
[ $code -eq 1 ] && grep -q 'none.gguf: No such file' "$err"
result no_file
capture env LLAMA_ARG_SPEC_DRAFT_MODEL="$draft" "$TANDEM" run -m "$MODEL" --device none -p x -n 2 -c 64
[ $code -eq 0 ] && grep -q '^tandem: the draft model: ' "$err"
result variable
capture env LLAMA_ARG_SPEC_DRAFT_MODEL="$work/none.gguf" "$TANDEM" run -m "$MODEL" --device none -p x -n 2 -c 64 \
    --spec-type none
[ $code -eq 0 ]
result variable_without_drafts
