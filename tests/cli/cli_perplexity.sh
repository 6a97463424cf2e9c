#!/bin/sh
# cli_perplexity.sh: the perplexity of the default model on tests/golden/english.txt lies within 1 %
# of the value computed in double precision from the same weights. By the rule of llama-perplexity, and
# with files of probabilities, numbers are those of the logits that 'tandem run' writes.
# run: alone
set -u
: "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}" "${TANDEM:=build/tandem}"
: "${TOOLS:=build/release/tests}"
text=tests/golden/english
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

case $TANDEM in
*build/asan/* | *build/ubsan/* | *build/tsan/*)
    echo 'ok # SKIP perplexity: takes too long under a sanitizer'
    exit 0 ;;
esac

if "$TANDEM" tokenize -q -m "$MODEL" -f $text.txt --ids | cmp - $text.ids.txt; then
    echo 'ok perplexity_ids'
else
    echo 'not ok perplexity_ids'
fi

"$TANDEM" perplexity -q -m "$MODEL" -f $text.txt -c 512 --json >"$work/json"
code=$?
# number KEY: the value of a number in the JSON object.
number() { sed -n 's/.*"'"$1"'": *\([-+.0-9eE]*\).*/\1/p' "$work/json"; }
# Limits of the ratio are 1 % either way; the keys must agree with each other as well.
if [ $code -eq 0 ] && awk -v tokens="$(number tokens)" -v nats="$(number mean_nats)" \
    -v perplexity="$(number perplexity)" '
        { golden[$1] = $2 }
        END {
            ratio = perplexity / golden["perplexity"]
            self = perplexity / exp(nats)
            exit !(tokens == golden["scored"] && ratio > 0.99 && ratio < 1.01 &&
                   self > 0.9999 && self < 1.0001)
        }' $text.golden.txt; then
    echo "ok perplexity $(number perplexity), golden $(sed -n 's/^perplexity //p' $text.golden.txt)"
else
    echo "not ok perplexity, exit code $code"
    cat "$work/json" $text.golden.txt
fi

# ---- The rule of llama-perplexity, and files of probabilities --------------------------------------
# Two tiny models; the logits of a prompt that begins with the window are those of the window.
head -c 400 $text.txt >"$work/text"
"$TOOLS/lib/write_tiny" "$work/a.gguf" &&
    "$TANDEM" quantize -q "$work/a.gguf" "$work/b.gguf" Q4_0 &&
    for model in a b; do
        "$TANDEM" run -q -m "$work/$model.gguf" -f "$work/text" -n 0 --isa ref --logits-out "$work/$model.f32"
    done &&
    "$TANDEM" tokenize -q -m "$work/a.gguf" -f "$work/text" --ids >"$work/ids"
# measure MODEL ARGUMENT...
measure() { model=$1 && shift && "$TANDEM" perplexity -q -m "$work/$model.gguf" --isa ref "$@"; }
measure a -f "$work/text" -c 65 --chunks 1 --kl-divergence-base "$work/base" --json >"$work/a.json" &&
    measure b --kl-divergence-base "$work/base" --kl-divergence --json >"$work/b.json" &&
    measure a --kl-divergence-base "$work/base" --kl-divergence --json >"$work/self.json"
measure a -f "$work/text" -c 40 --ppl-stride 8 --chunks 1 --json >"$work/stride.json"
refused=0
given="-f $work/text -c 65"
for more in "$given" "$given --kl-divergence-base $work/none" \
    "--kl-divergence-base $work/base --kl-divergence"; do
    measure a --chunks 0 $more 2>"$work/err" >"$work/out"
    [ $? -eq 2 ] && [ ! -s "$work/out" ] && [ ! -e "$work/none" ] &&
        grep -q 'option --chunks: expected at least 1' "$work/err" && refused=$((refused + 1))
done
if [ $refused -eq 3 ]; then echo 'ok perplexity_of_no_window_is_refused'; else
    echo 'not ok perplexity_of_no_window_is_refused'
    cat "$work/err"
fi
python3 - "$work" <<'X'
import array, json, math, struct, sys
work = sys.argv[1]
ids = json.load(open(work + "/ids"))[:65]
data = open(work + "/base", "rb").read()
n_window, n_vocab, n_windows = struct.unpack_from("<3i", data, 8)
rows = {name: array.array("f", open("%s/%s.f32" % (work, name), "rb").read()) for name in "ab"}
names = "a", "b", "self", "stride"
got = {name: json.load(open("%s/%s.json" % (work, name))) for name in names}

def logs(name, position):
    row = rows[name][position * n_vocab:(position + 1) * n_vocab]
    most = max(row)
    total = math.log(sum(math.exp(x - most) for x in row)) + most
    return [x - total for x in row]

def check(name, good, *detail):
    print("ok" if good else "not ok", name, *detail)

scored = range(32, 64)
a, b = ([logs(name, p) for p in scored] for name in "ab")
nats = [sum(-row[ids[p + 1]] for row, p in zip(model, scored)) / len(scored) for model in (a, b)]
kl = sum(sum(math.exp(x) * (x - y) for x, y in zip(r, s)) for r, s in zip(a, b)) / len(scored)
same = sum(r.index(max(r)) == s.index(max(s)) for r, s in zip(a, b)) / len(scored)
# A token deeper than 16 below the best one is kept as 16 below it.
base = sum(-max(row[ids[p + 1]], max(row) - 16) for row, p in zip(a, scored)) / len(scored)
found = got["b"]["divergence"]
check("perplexity_second_half", got["a"]["tokens"] == 32 and
      abs(got["a"]["mean_nats"] - nats[0]) < 1e-4, got["a"]["mean_nats"], nats[0])
check("perplexity_base_file", data[:8] == b"_logits_" and (n_window, n_windows) == (65, 1) and
      list(struct.unpack_from("<65i", data, 20)) == ids and
      len(data) == 20 + 4 * 65 + 32 * 2 * (2 * ((n_vocab + 1) // 2) + 4))
check("perplexity_divergence", kl > 1e-4 and abs(found["mean"]["value"] - kl) < 1e-3 * kl + 1e-5,
      found["mean"]["value"], kl)
check("perplexity_of_both", abs(got["b"]["mean_nats"] - nats[1]) < 1e-4 and
      abs(math.log(found["base_perplexity"]) - base) < 1e-3 and
      abs(found["log_perplexity_ratio"]["value"] - nats[1] + base) < 1e-3)
check("perplexity_same_best_token", abs(found["same_best"]["value"] - same) < 1e-6)
found = got["self"]["divergence"]
check("perplexity_no_divergence_from_itself", abs(found["mean"]["value"]) < 1e-4 and
      found["same_best"]["value"] == 1, found["mean"]["value"])
last = sum(-logs("a", p)[ids[p + 1]] for p in range(31, 39)) / 8
found = got["stride"]
check("perplexity_stride_of_a_window", found["tokens"] == 8 and found["stride"] == 8 and
      not found["second_half"] and abs(found["mean_nats"] - last) < 1e-4, found["mean_nats"], last)
X
[ $? -eq 0 ] || echo 'not ok perplexity_files'
# llama-perplexity of llama-cpp-python 0.3.36 gives these numbers for the model in F32 with -c 128
# -b 128 --ppl-stride 64, for which its windows ("Calculation chunk") are of 256 tokens.
head -c 2600 $text.txt >"$work/strides"
for row in '2 128 21.5326' '-1 384 19.2908'; do
    set -- $row
    "$TANDEM" perplexity -q -m "$MODEL" -f "$work/strides" -c 256 --ppl-stride 64 --chunks "$1" \
        >"$work/out"
    if awk -v tokens="$2" -v golden="$3" '
            { found = $0; sub(/.*perplexity /, "", found); ratio = found / golden
              exit !($1 == tokens && /the last 64 of windows of 256/ && ratio > 0.99 && ratio < 1.01) }
        ' "$work/out"; then
        echo "ok perplexity_strides_as_llama $1"
    else
        echo "not ok perplexity_strides_as_llama $1"
        cat "$work/out"
    fi
done
# fails NAME TEXT FILE: a file that is no base is refused.
fails() {
    measure b --kl-divergence-base "$3" --kl-divergence >"$work/out" 2>&1
    [ $? -eq 1 ] && grep -q "$2" "$work/out" && echo "ok perplexity_$1" || { echo "not ok perplexity_$1"
        cat "$work/out"; }
}
head -c 5000 "$work/base" >"$work/short"
fails short_base 'has not the size' "$work/short"
fails no_base 'is no file of' "$work/a.gguf"
{ head -c 20 "$work/base"; printf '\377\377\377\177'; tail -c +25 "$work/base"; } >"$work/tokens"
fails base_with_wrong_tokens 'tokens that there are not' "$work/tokens"
{ head -c 280 "$work/base"; printf '\000\000\300\177'; tail -c +285 "$work/base"; } >"$work/nan"
fails base_with_a_damaged_row 'row 0 are damaged' "$work/nan"
{ head -c 8 "$work/base"; printf '\377\377\377\177\377\377\377\177\377\377\377\177'; } >"$work/huge"
fails huge_base 'has not the size' "$work/huge"
measure b -f "$work/text" --kl-divergence >"$work/out" 2>&1
[ $? -eq 2 ] && echo 'ok perplexity_needs_a_base' || echo 'not ok perplexity_needs_a_base'

# ---- Tasks with choices -----------------------------------------------------------------------------
# choices MODEL SUITE N ARGUMENT...: N tasks of tests/golden/choices as JSON.
choices() {
    file=$(ls tests/golden/choices/"$2".[tcb]*) option=--$(echo "$2" | tr _ -) model=$1 n=$3
    shift 3
    "$TANDEM" perplexity -q -m "$model" $option $option-tasks "$n" -f "$file" --json "$@"
}
for suite in hellaswag winogrande multiple_choice; do
    for n in 0 4; do choices "$MODEL" $suite $n >"$work/$suite.$n.json"; done
done
# Small models that begin texts with a token, have a window, and have a state.
for name in converted_llama converted_gemma3 converted_qwen3next; do
    for suite in hellaswag winogrande multiple_choice; do
        choices tests/golden/tiny/$name.gguf $suite 0 --isa ref >"$work/$name.$suite.json"
        choices tests/golden/tiny/$name.gguf $suite 0 --isa ref -ub 7 >"$work/ub7"
        if cmp "$work/ub7" "$work/$name.$suite.json"; then
            echo "ok perplexity_${suite}_by_micro_batch $name"
        else
            echo "not ok perplexity_${suite}_by_micro_batch $name"
        fi
    done
done
python3 - "$work" "$TANDEM" <<'X'
import array, json, math, re, struct, subprocess, sys
work, tandem = sys.argv[1:]
folder = "tests/golden/choices/"

def check(name, good, *detail):
    print("ok" if good else "not ok", name, *detail)

# Beside llama-perplexity: the same tasks, the same answers where it is sure of them.
golden = {}
for line in open(folder + "llama.txt"):
    suite, n, *row = line.split()
    golden.setdefault((suite, "4" if n == "4" else "0"), []).append(row)
for (suite, n), rows in golden.items():
    got = json.load(open("%s/%s.%s.json" % (work, suite, n)))
    good = got["suite"] == suite and got["tasks"] == len(got["results"]) == len(rows)
    good &= got["right"] == sum(r["right"] for r in got["results"])
    for task, (right, *scores) in zip(got["results"], rows):
        mine = task["mean_log_probabilities"]
        for x, y in zip(mine, scores):
            good &= y == "-" or abs(x - float(y)) < 0.15
        if not scores or (right != "-" and abs(float(scores[0]) - float(scores[1])) > 0.3):
            good &= task["right"] == bool(int(right))
    check("perplexity_%s_%s_as_llama" % (suite, n), good, got["right"], got["results"])

# From the logits of each text by itself.
def words(data, at):
    n, = struct.unpack_from("<I", data, at)
    return data[at + 4:at + 4 + n].decode(), at + 4 + n

def answers(data, at):
    n, = struct.unpack_from("<I", data, at)
    at, texts = at + 4, []
    for _ in range(n):
        text, at = words(data, at)
        texts.append(text)
    return texts, at + 4 * n

lines = open(folder + "hellaswag.txt").read().split("\n")
tasks = {"hellaswag": [[lines[6 * i] + " " + e for e in lines[6 * i + 2:6 * i + 6]]
                       for i in range(len(lines) // 6)], "winogrande": [], "multiple_choice": []}
for line in open(folder + "winogrande.csv"):
    _, sentence, one, two, _ = re.match(r'(\d+),("[^"]*"|[^,]*),(.*),(.*),(.)$', line).groups()
    before, after = sentence.strip('"').split("_")
    tasks["winogrande"].append([(before + w, after) for w in (one, two)])
data = open(folder + "multiple_choice.bin", "rb").read()
n_tasks, = struct.unpack_from("<I", data)
at = 4 + 4 * n_tasks
for _ in range(n_tasks):
    question, at = words(data, at)
    texts, at = answers(data, at)
    tasks["multiple_choice"].append([question + " " + t for t in texts])
    _, at = answers(data, at)

def call(*arguments):
    return subprocess.run([tandem, *arguments], check=True, capture_output=True).stdout

def ids_of(model, text):
    return json.loads(call("tokenize", "-q", "-m", model, "-p", text, "--ids"))

def scores_of(model, suite, texts):
    if suite == "winogrande":
        ends = [len(ids_of(model, a)) for a, b in texts]
        texts = [a + b for a, b in texts]
    ids = [ids_of(model, t) for t in texts]
    common = 0
    while common < min(map(len, ids)) - 1 and len({tuple(i[:common + 1]) for i in ids}) == 1:
        common += 1
    behind = suite == "winogrande" and all(len(i) - common > 3 for i in ids)
    scores = []
    for k, (text, tokens) in enumerate(zip(texts, ids)):
        call("run", "-q", "-m", model, "-p", text, "-n", "0", "--isa", "ref", "--no-parse-special",
             "--logits-out", work + "/row")
        rows = array.array("f", open(work + "/row", "rb").read())
        width = len(rows) // len(tokens)
        first = max(1, ends[k] if behind else common)
        last = len(tokens)
        if suite == "winogrande" and last - first > 1:
            last -= 1
        total = 0
        for i in range(first, last):
            row = rows[(i - 1) * width:i * width]
            most = max(row)
            total += row[tokens[i]] - most - math.log(sum(math.exp(x - most) for x in row))
        scores.append(total / (last - first))
    return scores

for name in "converted_llama", "converted_gemma3", "converted_qwen3next":
    for suite, texts in tasks.items():
        got = json.load(open("%s/%s.%s.json" % (work, name, suite)))
        worst = 0
        for task in got["results"][::3]:
            own = scores_of("tests/golden/tiny/%s.gguf" % name, suite, texts[task["task"] - 1])
            mine = task["mean_log_probabilities"]
            worst = max([worst, *(abs(x - y) for x, y in zip(own, mine))])
            if len(own) != len(mine) or own.index(max(own)) != task["best"]:
                worst = math.inf
        check("perplexity_%s_by_logits %s" % (suite, name), worst < 1e-4, worst)
X
[ $? -eq 0 ] || echo 'not ok perplexity_choices'

# refuses NAME CODE TEXT ARGUMENT...: a file of tasks, or options that do not fit it.
refuses() {
    name=$1 code=$2 text=$3
    shift 3
    "$TANDEM" perplexity -q -m "$work/a.gguf" "$@" >"$work/out" 2>"$work/err"
    if [ $? -eq "$code" ] && [ ! -s "$work/out" ] && grep -qe "$text" "$work/err"; then
        echo "ok perplexity_$name"
    else
        echo "not ok perplexity_$name"
        cat "$work/err"
    fi
}
choices=tests/golden/choices
sed 9d $choices/hellaswag.txt >"$work/hs"
refuses hellaswag_line 1 "$work/hs: line 14: .*expected 0 to 3" --hellaswag -f "$work/hs"
sed 's/,1$//' $choices/winogrande.csv >"$work/wg"
refuses winogrande_line 1 "$work/wg: line 1: .*five between commas" --winogrande -f "$work/wg"
head -c 500 $choices/multiple_choice.bin >"$work/mc"
refuses multiple_choice_task 1 "$work/mc: task 4: the file ends" --multiple-choice -bf "$work/mc"
: >"$work/empty"
refuses no_tasks 1 'there are no tasks' --winogrande -f "$work/empty"
refuses task_too_long 1 'task 3: .*expected at most 20 tokens' --hellaswag -c 20 \
    -f $choices/hellaswag.txt
refuses two_suites 2 '--hellaswag and --winogrande cannot' --hellaswag --winogrande -f "$work/hs"
refuses suite_and_rule 2 '--winogrande and --second-half cannot' --winogrande --second-half \
    -f "$work/wg"
refuses stride_too_long 2 'expected at most 39, got 40' -c 40 --ppl-stride 40 -f $choices/hellaswag.txt
refuses stride_of_one_window 2 'at least 4097 tokens' -c 4096 --ppl-stride 8 -f $choices/winogrande.csv
refuses number_alone 2 'number of tasks needs --hellaswag' --hellaswag-tasks 3 -f "$work/hs"

# ---- Ctrl-C -----------------------------------------------------------------------------------------
# stopped NAME ARGUMENT...: a run that Ctrl-C stops prints what it has scored, and of how many windows
# or tasks; a run of these alone prints the same.
stopped() {
    name=$1
    shift
    set -- perplexity -t 1 -m tests/golden/tiny/converted_llama.gguf "$@"
    if TERM=xterm python3 tests/lib/terminal.py "$TANDEM" "$@" >"$work/part" <<'X'
wait(r'measure +\[[^]]*\] +[1-9]')
keys(CTRL_C)
ends(130)
line = r'(\d+ t.*); stopped after (\d+) of (\d+) (windows|tasks)\n((?:(?!tandem:).+\n)*)'
print("%s\n%s%s %s" % tuple(re.search(line, seen()).group(1, 5, 2, 3)))
X
    then
        n=$(sed -n '$s/ .*//p' "$work/part") all=$(sed -n '$s/.* //p' "$work/part")
        case $name in
        tasks) head -n "$n" "$work/tasks" >"$work/first" && "$TANDEM" "$@" -q -f "$work/first" ;;
        base) [ ! -e "$work/logits" ] && "$TANDEM" "$@" -q --chunks "$n" ;; # it would have all windows
        *) "$TANDEM" "$@" -q --chunks "$n" ;;
        esac >"$work/whole"
        if [ "$n" -gt 0 ] && [ "$n" -lt "$all" ] && sed '$d' "$work/part" | cmp -s - "$work/whole"; then
            echo "ok perplexity_stopped_$name after $n of $all"
            return
        fi
    fi
    echo "not ok perplexity_stopped_$name"
    cat "$work/part" "$work/whole"
}
seq 1 60000 >"$work/long"
stopped text -f "$work/long" -c 64 -ub 8
stopped second_halves -f "$work/long" -c 64 --second-half
stopped base -f "$work/long" -c 64 --kl-divergence-base "$work/logits"
"$TANDEM" perplexity -q -m tests/golden/tiny/converted_llama.gguf -f "$work/long" -c 64 --chunks 2000 \
    --kl-divergence-base "$work/logits" >"$work/out" 2>&1
stopped divergence -ub 8 --kl-divergence-base "$work/logits" --kl-divergence
n=0 && while [ $n -lt 400 ]; do cat $choices/winogrande.csv && n=$((n + 1)); done >"$work/tasks"
stopped tasks --winogrande -f "$work/tasks"
