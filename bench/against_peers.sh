#!/bin/sh
# against_peers.sh: measures tandem beside llama-bench programs, on the CPU alone and in turn.
#
#   [TANDEM=build/tandem] [PEERS="NAME=PROGRAM ..."] bench/against_peers.sh [-m MODEL] [-p PROMPT]
#       [-n TOKENS] [-d DEPTH] [-k TYPE] [-t THREADS] [-i LEVEL] [-r ROUNDS] [-o ROWS]
#
# PEERS names llama-bench programs that were built for the CPU, as of llama.cpp or ik_llama.cpp, by
# paths without blanks; without it llama-bench is taken from the PATH. In each round every program
# computes a prompt of PROMPT tokens and then TOKENS single ones (0: not that test); they take turns
# in beginning, since a shared machine changes its speed. -d decodes behind DEPTH positions (with
# -p 0); a peer that knows no --n-depth is asked by -gp. -k is the type of the KV cache (f16). With
# either, peers are told to use flash attention (-fa 1). -i holds tandem to LEVEL, as avx2, beside
# peers that were built for no more (auto: the best of this computer). Prints the median of each
# over all rounds and tandem's median by each peer's: above 1, tandem is faster; in brackets the
# least and the most of a round. -o appends one row in the form of bench/results.tsv to that file.
# Exit code 1 if a program fails or names another model; 2 for a wrong command line, or without a
# peer.
set -u
: "${TANDEM:=build/tandem}" "${PEERS:=}"
model=models/SmolLM2-135M-Instruct.Q4_1.gguf prompt=512 tokens=64 depth=0 cache=f16 threads=1
level=auto rounds=5 rows=

fail() { # CODE TEXT
    echo "against_peers: $2" >&2
    exit "$1"
}

while getopts m:p:n:d:k:t:i:r:o: option; do
    case $option in
    m) model=$OPTARG ;;
    p) prompt=$OPTARG ;;
    n) tokens=$OPTARG ;;
    d) depth=$OPTARG ;;
    k) cache=$OPTARG ;;
    t) threads=$OPTARG ;;
    i) level=$OPTARG ;;
    r) rounds=$OPTARG ;;
    o) rows=$OPTARG ;;
    *) fail 2 'usage: against_peers.sh [-m MODEL] [-p N] [-n N] [-d N] [-k TYPE] [-t N] [-i LEVEL] [-r ROUNDS] [-o ROWS]' ;;
    esac
done
for number in "$prompt" "$tokens" "$depth" "$threads" "$rounds"; do
    case $number in
    '' | *[!0-9]*) fail 2 "'$number' is no number" ;;
    esac
done
[ "$((prompt + tokens))" -gt 0 ] || fail 2 'both tests are left out (-p 0 -n 0)'
[ "$depth" -eq 0 ] || [ "$prompt" -eq 0 ] ||
    fail 2 "-d $depth is for single tokens alone: give -p 0 with it"
[ "$threads" -gt 0 ] && [ "$rounds" -gt 0 ] || fail 2 '-t and -r must be at least 1'
[ -f "$model" ] || fail 2 "there is no model '$model'"
if [ -z "$PEERS" ]; then
    found=$(command -v llama-bench) ||
        fail 2 'no llama-bench was found: name some in PEERS="NAME=PROGRAM ..."'
    PEERS=llama-bench=$found
fi
for peer in $PEERS; do
    [ -x "${peer#*=}" ] || fail 2 "PEERS: '${peer#*=}' is no program"
done
[ -x "$TANDEM" ] || fail 2 "TANDEM: '$TANDEM' is no program"

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# tests PROGRAM: the arguments that ask it for the tests.
tests() {
    if [ "$depth" -eq 0 ]; then
        echo "-p $prompt -n $tokens"
    elif [ "$1" = "$TANDEM" ] || "$1" --help 2>&1 | grep -q -- --n-depth; then
        echo "-p 0 -n $tokens -d $depth"
    elif "$1" --help 2>&1 | grep -q -- '-gp <'; then
        echo "-p 0 -n 0 -gp $depth,$tokens"
    else
        fail 1 "$1 cannot decode behind a depth: it knows neither --n-depth nor -gp"
    fi
}
# measure ROUND NAME PROGRAM: one run without repetitions, whose results become a file.
measure() {
    result=$work/$2.$1.json errors=$work/errors name=$2 program=$3
    set -- -m "$model"
    asked=$(tests "$program") || exit 1
    for word in $asked; do set -- "$@" "$word"; done
    set -- "$@" -t "$threads" -r 1 -o json
    [ "$cache" = f16 ] || set -- "$@" -ctk "$cache" -ctv "$cache"
    if [ "$name" = tandem ]; then
        set -- bench "$@" --device none --isa "$level" -q
    elif [ "$depth" -gt 0 ] || [ "$cache" != f16 ]; then
        set -- "$@" -fa 1
    fi
    "$program" "$@" >"$result" 2>"$errors" || {
        tail -n 5 "$errors" >&2
        fail 1 "$name failed: $program $*"
    }
}

order="tandem=$TANDEM $PEERS" round=0
while [ "$round" -lt "$rounds" ]; do
    for one in $order; do measure "$round" "${one%%=*}" "${one#*=}"; done
    first=${order%% *} order="${order#* } $first" round=$((round + 1))
done

commit=$(git rev-parse --short HEAD 2>/dev/null)$(git diff --quiet HEAD 2>/dev/null || echo +)
names=$(for peer in $PEERS; do echo "${peer%%=*}"; done)
command="bench/against_peers.sh -m ${model##*/} -p $prompt -n $tokens"
[ "$depth" -eq 0 ] || command="$command -d $depth"
[ "$cache" = f16 ] || command="$command -k $cache"
command="$command -t $threads -i $level -r $rounds"
# shellcheck disable=SC2086
python3 - "$work" "$rounds" "$depth" "$commit" "$command" "$rows" $names <<'X'
import json, os, statistics, sys

work, rounds, depth, commit, command, rows, *peers = sys.argv[1:]
depth = int(depth)


def give_up(text):
    print("against_peers:", text, file=sys.stderr)
    sys.exit(1)


# Some programs write warnings between the lines of their results.
def parse(path):
    return json.loads("".join(line for line in open(path) if not line[:1].isalpha()))


def load(name):
    try:
        return [parse(f"{work}/{name}.{i}.json") for i in range(int(rounds))]
    except ValueError:
        give_up(f"{name} wrote something that is no JSON")


# The test of a result. One by -gp has its depth as a prompt and counts the tokens behind it alone.
def test_of(result):
    prompt, tokens, behind = result["n_prompt"], result["n_gen"], result.get("n_depth", 0)
    return (0, tokens, prompt) if depth and prompt and tokens else (prompt, tokens, behind)


def speeds(name, runs, test):
    found = [[r["avg_ts"] for r in run if test_of(r) == test] for run in runs]
    if not all(len(f) == 1 and f[0] > 0 for f in found):
        give_up(f"{name} has no result of {test[0]} prompt tokens and {test[1]} generated ones"
                + (f" behind {test[2]}" if test[2] else ""))
    return [f[0] for f in found]


runs = {name: load(name) for name in ["tandem"] + peers}
first = {name: run[0][0] for name, run in runs.items()}
for peer in peers:
    files = [os.path.basename(first[name]["model_filename"]) for name in ("tandem", peer)]
    if files[0] != files[1]:
        give_up(f"another model: {files[0]} by tandem, {files[1]} by {peer}")
results = []
for test in (test_of(r) for r in runs["tandem"][0]):
    name = f"prefill of {test[0]}" if test[0] else f"decode of {test[1]}"
    name += f" behind {test[2]}" if test[2] else ""
    ours = speeds("tandem", runs["tandem"], test)
    text = f"{name}: tandem {statistics.median(ours):.1f} tokens/s"
    for peer in peers:
        theirs = speeds(peer, runs[peer], test)
        ratios = [a / b for a, b in zip(ours, theirs)]
        text += (f", {peer} {statistics.median(theirs):.1f}: "
                 f"{statistics.median(ours) / statistics.median(theirs):.2f} x "
                 f"({min(ratios):.2f} to {max(ratios):.2f})")
    results.append(text)
print("\n".join(results))
if rows:
    builds = ", ".join(f"{p} {first[p].get('build_commit', 'unknown')}" for p in peers)
    row = [commit, first["tandem"]["cpu_info"], command,
           f"{first['tandem']['model_type']}: " + "; ".join(results), "keep", f"peers: {builds}"]
    with open(rows, "a") as out:
        print("\t".join(row), file=out)
X
