#!/bin/sh
# cli_drafts.sh: texts by --spec-type ngram-simple are those without it, on the CPU, the simulated and
# the emulated GPU, with every byte planned and none allocated while text is written; what cannot be
# is refused.
set -u
: "${TANDEM:=build/tandem}" "${TANDEM_SIM:=build/tandem-sim}"
: "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}"
. tests/lib/results.sh
prefix=drafts_
export XDG_CACHE_HOME="$work/cache" TANDEM_CALIBRATE=never
case $TANDEM in
*/asan/* | */ubsan/* | */tsan/*) n=12 splits=9 ;;
*) n=40 splits='1 9 31' ;;
esac
program=$TANDEM
# A long count, so that rounding decides no token.
prompt='1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4,'
drafts='--spec-type ngram-simple --spec-ngram-simple-size-n 3 --spec-ngram-simple-size-m 7'

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
# alike NAME NAME: the second has drafts, and the tokens of the first.
alike() {
    python3 - "$work/$1.json" "$work/$2.json" <<'X'
import json, sys
plain, drafted = (json.load(open(p)) for p in sys.argv[1:])
t = drafted["timings"]
assert plain["tokens"] == drafted["tokens"] and "draft_n" not in plain["timings"]
assert 0 <= t["draft_n_accepted"] <= t["draft_n"] and t["draft_n"] > 0 and t["tokens_per_pass"] >= 1
assert t["decode_steps"] == plain["timings"]["decode_steps"]
assert all(r["planned_bytes"] == r["allocated_bytes"] for r in drafted["memory"])
h = None if "emulated" in str(drafted["memory"]) else drafted["heap"] # its driver allocates
assert h is None or h["bytes_after_first_token"] == h["allocations_after_first_token"] == 0
X
    result "$2_alike"
}

generate plain --temp 0 --device none
# shellcheck disable=SC2086
generate greedy --temp 0 --device none $drafts
alike plain greedy
generate drawn_plain --seed 3 --temp 0.5 --repeat-penalty 1.05 --device none
# shellcheck disable=SC2086
generate drawn --seed 3 --temp 0.5 --repeat-penalty 1.05 --device none $drafts
alike drawn_plain drawn
program=$TANDEM_SIM
for k in $splits; do
    # shellcheck disable=SC2086
    generate "sim_$k" --temp 0 --device sim:vram=200M -ngl "$k" $drafts
    alike plain "sim_$k"
done
program=$TANDEM
emulator=$(dirname "$TANDEM")/emulator
if [ -f "$emulator/libcuda.so.1" ] && [ "$n" -eq 40 ]; then
    n=10
    generate short_plain --temp 0 --device none
    export LD_LIBRARY_PATH="$emulator:${LD_LIBRARY_PATH:-}"
    # shellcheck disable=SC2086
    generate cuda --temp 0 --device cuda -ngl 2 $drafts
    alike short_plain cuda
fi

# ---- A conversation, the plan and what is refused ------------------------------------------------
talk() { capture "$TANDEM" chat -m "$MODEL" --device none -c 256 -n 20 --temp 0 -p 'Count to nine.' "$@"; }
talk && cp "$out" "$work/answer"
# shellcheck disable=SC2086
talk $drafts && cmp -s "$out" "$work/answer"
result chat
# A terminal shows a bar for the prompt alone, not for the passes within the text, of which the last
# ones have more than 32 tokens.
case $TANDEM in */asan/* | */ubsan/* | */tsan/*) ;; *)
    capture env TERM=xterm python3 tests/lib/terminal.py "$TANDEM" run -m "$MODEL" --device none --isa ref \
        -t 1 -c 256 -p "$prompt" -n 130 --ignore-eos --temp 0 --spec-type ngram-simple \
        --spec-ngram-simple-size-n 3 <<'X'
ends(0)
drafted, right = map(int, re.search(r'drafts +(\d+) tokens, (\d+) of them right', seen()).groups())
assert right > 90, seen()
assert seen().rfind('prefill') < seen().index(' 5, 6, 7'), seen()
X
    [ $code -eq 0 ]
    result no_bar_within_the_text
    ;;
esac
capture "$TANDEM" plan -m "$MODEL" --device none -c 256 --save "$work/one.json"
# shellcheck disable=SC2086
capture "$TANDEM" plan -m "$MODEL" --device none -c 256 $drafts --save "$work/eight.json"
grep -q '"max_logits": 8' "$work/eight.json" && ! cmp -s "$work/one.json" "$work/eight.json"
result plan_counts_the_logits
# shellcheck disable=SC2086
capture "$TANDEM" run -m "$MODEL" --device none --plan "$work/eight.json" -p x -n 2 -q $drafts
[ $code -eq 0 ]
result plan_with_room
# shellcheck disable=SC2086
capture "$TANDEM" run -m "$MODEL" --device none --plan "$work/one.json" -p x -n 2 -q $drafts
[ $code -eq 2 ] && grep -q -- '--spec-type: rows of logits in the plan .*one.json: expected 8, got 1' "$err"
result plan_without_room
capture "$TANDEM" run -m "$MODEL" -p x --spec-type draft-mtp
[ $code -eq 2 ] && grep -q 'draft-mtp is not in tandem yet' "$err"
result other_types

# ---- The variable --------------------------------------------------------------------------------
export LLAMA_ARG_SPEC_TYPE=ngram-simple
generate variable_plain --temp 0 --device none --spec-type none
generate variable --temp 0 --device none --spec-ngram-simple-size-n 3 --spec-ngram-simple-size-m 7
alike variable_plain variable
# A plan file tells how many rows there are.
capture "$TANDEM" run -m "$MODEL" --device none --plan "$work/one.json" -p x -n 2 -q
[ $code -eq 0 ]
result variable_with_a_plan
capture env LLAMA_ARG_SPEC_TYPE=draft-mtp "$TANDEM" run -m "$MODEL" -p x
[ $code -eq 2 ] && grep -q 'LLAMA_ARG_SPEC_TYPE.*draft-mtp is not in tandem yet' "$err"
result variable_of_another_type
