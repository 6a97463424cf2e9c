#!/bin/sh
# cli_plans.sh: the plan of every machine of configs/machines for twelve models of configs/models,
# compared with tests/expected/plans/MACHINE--MODEL.txt; and that no limit is passed, that bytes add
# up, and that what a refusal asks for is enough.
#
#   sh tests/cli/cli_plans.sh             compares
#   sh tests/cli/cli_plans.sh --update    writes the expectations anew, to be read in the diff
#
# The expectations keep placement and key figures of what is printed, with single spaces.
set -u
: "${TANDEM:=build/tandem}"
expected=tests/expected/plans
models='llama-3.2-1b smollm2-1.7b qwen3-4b llama-3.1-8b qwen3.5-9b gemma-3-12b qwen3-14b
    gpt-oss-20b qwen3-30b-a3b qwen3.5-35b-a3b mixtral-8x7b llama-3.3-70b'
machines=$(cd configs/machines && ls ./*.json | sed 's,^\./,,; s,\.json$,,')
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Sanitizers are slow: fewer machines.
case $TANDEM in
*/asan/* | */ubsan/* | */tsan/*) machines='gtx-1060-6g-ddr4 mac-m2-16g' ;;
esac

# Leaves out names, headings and what is the same for all, and squeezes spaces.
cat >"$work/digest.awk" <<'X'
/^steps for one token/ { exit }
NR == 1 || /^MiB / || /^      [A-Za-z] = / || /^speeds: as the file/ || /^to run it/ { next }
/^[a-z]+ .* [0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+ +[0-9.]+$/ {
    print $1, $(NF - 5), $(NF - 4), $(NF - 3), $(NF - 2), $(NF - 1), $NF
    next
}
{ gsub(/ +/, " "); print }
X
# The outcome of one pair: plan and digest, or the refusal and whether its own figure lifts it.
cat >"$work/look" <<'X'
machine=$1 model=$2 at=$work/$1--$2
"$TANDEM" plan -v --machine "$machine" --shape "$model" >"$at.out" 2>"$at.err"
echo $? >"$at.code"
if [ "$(cat "$at.code")" -eq 0 ]; then
    awk -f "$work/digest.awk" "$at.out" >"$at.txt"
    "$TANDEM" plan --machine "$machine" --shape "$model" --json >"$at.json" 2>>"$at.err"
else
    { echo; cat "$at.err"; } | awk -f "$work/digest.awk" >"$at.txt"
    need=$(sed -n 's/.* needs* \([0-9.]*\) \([KMG]iB\).*/\1\2/p' "$at.err")
    "$TANDEM" plan --machine "$machine" --shape "$model" --ram "${need:-1}" >/dev/null 2>"$at.lifted"
    echo $? >>"$at.code"
fi
X
export TANDEM work
for machine in $machines; do
    for model in $models; do echo "$machine $model"; done
done | xargs -P 2 -n 2 sh "$work/look"

if [ "${1:-}" = --update ]; then
    mkdir -p "$expected"
    rm -f "$expected"/*.txt
    cp "$work"/*.txt "$expected"
    echo "$(ls "$expected" | wc -l) plans, $(cat "$expected"/*.txt | wc -c) bytes"
    exit 0
fi

for machine in $machines; do
    for model in $models; do
        if diff -u "$expected/$machine--$model.txt" "$work/$machine--$model.txt" >"$work/diff"; then
            echo "ok plans_${machine}_$model"
        else
            echo "not ok plans_${machine}_$model"
            sed 's/^/  /' "$work/diff"
        fi
    done
done

python3 - "$work" <<'X'
import glob, json, os, sys

work = sys.argv[1]
PURPOSES = ["weights_bytes", "kv_bytes", "scratch_bytes", "staging_bytes"]


def check(name, wrong):
    print(("not ok " if wrong else "ok ") + "plans_" + name)
    for line in wrong[:5]: print("  " + line)


def plans():
    for path in sorted(glob.glob(f"{work}/*.json")):
        yield os.path.basename(path)[:-5], json.load(open(path))


limits, sums, speeds, n = [], [], [], 0
for name, plan in plans():
    n += 1
    for d, device in enumerate(plan["devices"]):
        if device["total_bytes"] > device["budget_bytes"]: limits.append(name)
        if device["total_bytes"] != sum(device[p] for p in PURPOSES): sums.append(name)
        for purpose in ("weights_bytes", "kv_bytes"):
            of_units = sum(u[purpose] for u in plan["units"] if u["device"] == d)
            if d == 0 and purpose == "weights_bytes": # the CPU's rows of split units
                of_units += sum(u.get("cpu_weights_bytes", 0) for u in plan["units"])
            if of_units != device[purpose]: sums.append(f"{name} {device['kind']} {purpose}")
    if sum(d["weights_bytes"] for d in plan["devices"]) < plan["weights_bytes"]: sums.append(name)
    for phase in ("prompt", "decode"):
        if not 0.1 < plan["prediction"][phase]["tokens_per_second"] < 1e5: speeds.append(name)
check("no_limit_is_passed", limits)
check("bytes_add_up", sums)
check("speeds_are_possible", speeds)

refused = []
codes = {p: open(p).read().split() for p in glob.glob(f"{work}/*.code")}
for path, code in codes.items():
    message = open(path[:-5] + ".err").read()
    if code[0] == "0": continue
    if code != ["1", "0"] or message.count("\n") != 2 or (
            "--allow-paging" not in message and " are free" not in message):
        refused.append(os.path.basename(path) + " " + message)
check("refusals_say_what_would_fit", refused)
check("most_can_be_planned", [] if n * 2 > len(codes) > 0 else [f"{n} of {len(codes)}"])
X
