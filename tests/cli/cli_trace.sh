#!/bin/sh
# cli_trace.sh: --trace and -v by the whole program: the file holds every step of the plan with the
# plan's bytes, spans of one stream never overlap, the figures are those of the spans, and a run
# that is stopped or fails leaves what there is.
set -u
: "${TANDEM_SIM:=build/tandem-sim}" "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}"
. tests/lib/results.sh
prefix=trace_
case $TANDEM_SIM in
*/asan/* | */ubsan/* | */tsan/*) n=4 ;;
*) n=16 ;;
esac

# More tokens than two micro-batches of 64.
for i in 1 2 3; do
    echo "Part $i. The path ran between the fields and the sea. On the one side there were sheep, and"
    echo 'beyond the sheep a line of thorn trees all bent the same way, like people at a door. On the'
    echo 'other side there was nothing at all, and the wind came from there in every season.'
done >"$work/prompt"

# call ARGUMENT...: runs the program; sets code, $out and $err.
call() { capture timeout 120 "$TANDEM_SIM" "$@"; }
run() { call run -m "$MODEL" -f "$work/prompt" -n $n --temp 0 --ignore-eos "$@"; }

# trace NAME ARGUMENT...: plans as the arguments say, and runs that very plan; keeps the plan's
# steps, the run's trace and its result in $work/NAME.{steps,trace,run}.
trace() {
    name=$1
    shift
    call plan -m "$MODEL" -c 512 -ub 64 --prompt-tokens 200 --gen-tokens $n --save "$work/plan" \
        "$@" -v --json
    cp "$work/out" "$work/$name.steps"
    [ $code -eq 0 ]
    result "${name}_plan"
    run --plan "$work/plan" --device sim:vram=500M,h2d=4G,d2h=4G --trace "$work/$name.trace" -v --json
    cp "$work/out" "$work/$name.run"
    [ $code -eq 0 ] && [ -s "$work/$name.trace" ]
    result "$name"
}

# ---- What the file holds -------------------------------------------------------------------------
sim='--device sim:vram=500M,h2d=4G,d2h=4G'
# shellcheck disable=SC2086
{
    trace layers $sim -ngl 15
    for feed in arena staged; do
        trace "streamed_$feed" $sim --vram 60M --strategy streamed --feed $feed
    done
    trace row_split $sim --vram 60M --strategy row-split
}

cat >"$work/check" <<'X'
import json, sys

work, names = sys.argv[1], sys.argv[2:]


def check(name, good):
    print(("ok " if good else "not ok ") + "trace_" + name)
    return good


def overlaps(spans):
    ends, found = {}, 0
    for span in sorted(spans, key=lambda s: (round(s["ts"], 3), s["dur"])):
        found += span["ts"] < ends.get(span["tid"], 0) - 0.002
        ends[span["tid"]] = span["ts"] + span["dur"]
    return found


# Kind -> number and bytes, of the spans of one pass and of the plan's steps for such a pass.
def of_spans(spans):
    found = {}
    for s in spans:
        n, size = found.get(s["cat"], (0, 0))
        found[s["cat"]] = n + 1, size + s["args"].get("bytes", 0)
    return found


# Without logits the tail is neither fetched nor computed.
def of_steps(steps, n_tokens, n_logits, n_past):
    found = {}
    for s in steps:
        n, size = found.get(s["kind"], (0, 0))
        rows = n_logits if s["kind"] == "logits" or s.get("tail") else n_tokens
        if not rows and s["kind"] in ("logits", "fetch", "compute"): continue
        found[s["kind"]] = n + 1, (size + s.get("bytes", 0) + s.get("bytes_per_row", 0) * rows
                                   + s.get("bytes_per_past", 0) * n_past)
    return found


def check_one(name):
    steps = json.load(open(f"{work}/{name}.steps"))
    events = json.load(open(f"{work}/{name}.trace"))["traceEvents"]
    usage = json.load(open(f"{work}/{name}.run"))["usage"]
    threads = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    owners = {e["tid"]: e["pid"] for e in events if e["name"] == "thread_name"}
    spans = [e for e in events if e["ph"] == "X"]
    check(f"{name}_threads_have_names",
          spans and all(owners.get(s["tid"]) == s["pid"] for s in spans))
    check(f"{name}_no_overlaps", spans and overlaps(spans) == 0)
    planned = [s for s in spans if "planned" in threads[s["tid"]]]
    steps_run = [s for s in spans if "planned" not in threads[s["tid"]]
                 and threads[s["tid"]] != "stage"]
    check(f"{name}_planned_beside_measured", len(planned) >= len(steps_run) > 0)

    # The last pass of the prompt has logits, as every pass of one token has.
    passes = {}
    for s in steps_run: passes.setdefault(s["args"]["pass"], []).append(s)
    size = {i: p[0]["args"]["tokens"] for i, p in passes.items()}
    prompts = [i for i in passes if size[i] > 32]
    ones = [i for i in passes if size[i] == 1]
    check(f"{name}_all_passes", len(prompts) >= 2 and len(ones) >= 3
          and usage["prefill"]["passes"] == len(prompts) and usage["one"]["passes"] == len(ones))
    good = bool(prompts)
    for i in prompts + ones:
        past = passes[i][0]["args"]["past"]
        more = i in prompts[:-1] or (i == prompts[-1] and max(passes) > i and size[i + 1] > 1)
        wanted = of_steps(steps["steps_prefill" if size[i] > 32 else "steps_one"], size[i],
                          0 if more else 1, past)
        found = of_spans(passes[i])
        if found != wanted:
            print(f"  pass {i} of {size[i]}: {found}, planned {wanted}")
            good = False
    check(f"{name}_steps_and_bytes_of_the_plan", good)
    for group, of in ("prefill", prompts), ("one", ones):
        copied = [s for i in of for s in passes[i] if "bytes" in s["args"]]
        there = sum(s["args"]["bytes"] for s in copied if threads[s["tid"]] != "copy out")
        total = sum(s["args"]["bytes"] for s in copied)
        fetched = sum(s["args"]["bytes"] for s in copied if s["cat"] == "fetch")
        u = usage[group]
        shares = u["measured"]["busy_share"] + [u["measured"]["link_share"],
                                                u["measured"]["hidden_share"]]
        check(f"{name}_usage_of_{group}",
              u["to_bytes"] == there and u["to_bytes"] + u["from_bytes"] == total
              and u["fetched_bytes"] == fetched and all(0 <= x <= 1.000001 for x in shares)
              and u["tokens"] == sum(size[i] for i in of))
    return spans


kinds = {}
for name in names:
    kinds[name] = {s["cat"] for s in check_one(name)}
every = {"inputs", "compute", "send", "wait", "logits"}
check("layers_kinds", kinds["layers"] >= every)
check("row_split_kinds", kinds["row_split"] >= {"inputs", "compute", "send", "wait"})
for name in names:
    if name.startswith("streamed"):
        check(f"{name}_kinds", kinds[name] >= {"inputs", "compute", "fetch"})
X
python3 "$work/check" "$work" layers streamed_arena streamed_staged row_split

# ---- What people read ----------------------------------------------------------------------------
# shellcheck disable=SC2086
{
    run -c 512 $sim --vram 60M --strategy streamed -ub 64 -v
    [ $code -eq 0 ] && grep -q '^tandem: prompt: [2-9] passes, .* ms each' "$work/err" &&
        grep -q '^tandem: one token: .* passes, .* ms each' "$work/err" &&
        grep -q 'busy: cpu .* %.*, sim .* %.*, link .* % .*GB/s' "$work/err" &&
        grep -q 'copied per token: .* MiB there (.* fetched).*hidden .* %' "$work/err"
    result verbose
    cp "$work/out" "$work/text"
    run -c 512 $sim --vram 60M --strategy streamed -ub 64 --trace "$work/trace" --json -q
    python3 -c '
import json, sys
heap = json.load(open(sys.argv[1]))["heap"]
sys.exit(bool(heap and (heap["bytes_after_first_token"] or heap["allocations_after_first_token"])))
' "$work/out"
    result allocates_nothing
    run -c 512 $sim --vram 60M --strategy streamed -ub 64 --json -q
    python3 -c '
import json, sys
run = json.load(open(sys.argv[1]))
print(run["text"])
sys.exit(run["usage"] is not None)' "$work/out" >"$work/plain"
    result is_not_made_unasked
    [ -s "$work/text" ] && cmp -s "$work/plain" "$work/text"
    result changes_no_text
}

# ---- Other commands, ends and failures -----------------------------------------------------------
# holds NAME: $work/trace is a trace with spans.
holds() {
    python3 -c '
import json, sys
sys.exit(not any(e["ph"] == "X" for e in json.load(open(sys.argv[1]))["traceEvents"]))
' "$work/trace" 2>"$work/err"
    result "$1"
    rm -f "$work/trace"
}
call perplexity -m "$MODEL" -f "$work/prompt" -c 64 --device sim:vram=500M -ngl 15 -v \
    --trace "$work/trace"
grep -q 'busy:' "$work/err"
result perplexity_verbose
holds perplexity
echo Hello >"$work/line"
timeout 120 "$TANDEM_SIM" chat -m "$MODEL" -c 256 -n 4 --device sim:vram=500M -ngl 15 -v \
    --trace "$work/trace" <"$work/line" >"$work/out" 2>"$work/err"
code=$?
[ $code -eq 0 ] && grep -q 'busy:' "$work/err"
result chat_verbose
holds chat

cat >"$work/interrupt" <<'X'
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
run = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)
run.stdout.read(1)
run.send_signal(signal.SIGINT)
run.communicate(timeout=100)
sys.exit(run.returncode)
X
python3 "$work/interrupt" "$TANDEM_SIM" run -m "$MODEL" -p 'Once upon a time' --ignore-eos -c 8192 \
    --temp 0 --device sim:vram=500M -ngl 15 --trace "$work/trace" >"$work/out" 2>"$work/err"
code=$?
[ $code -eq 130 ] && grep -q stopped "$work/err"
result interrupt
holds interrupt_leaves_it
run -c 512 -q --device sim:vram=500M,fail=op:1000 -ngl 15 --trace "$work/trace"
[ $code -eq 1 ] && [ "$(wc -l <"$work/err")" -le 2 ] && grep -q '^tandem: error: .*sim' "$work/err"
result failure
holds failure_leaves_it
call run -m "$work/none.gguf" -p x --trace "$work/none/trace"
[ $code -eq 1 ] && grep -q "$work/none/trace: No such file" "$work/err"
result is_opened_before_the_model
call run -m "$work/none.gguf" -p x --trace "$work/none.trace"
[ $code -eq 1 ] && [ ! -e "$work/none.trace" ]
result is_no_empty_file
if [ -c /dev/full ]; then
    run -c 512 -q --device sim:vram=500M -ngl 15 --trace /dev/full
    [ $code -eq 1 ] && grep -q '/dev/full' "$work/err"
    result full_disk
fi

# ---- A device that hangs -------------------------------------------------------------------------
run -c 512 -q --device sim:vram=500M,stall=1500:5 -ngl 15 --wait-limit 0.3
[ $code -eq 1 ] && grep -q '^tandem: error: .*wait' "$work/err" && grep -q '0\.3' "$work/err"
result wait_limit
