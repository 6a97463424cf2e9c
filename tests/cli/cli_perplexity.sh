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
got = {name: json.load(open("%s/%s.json" % (work, name))) for name in ("a", "b", "self")}

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
X
[ $? -eq 0 ] || echo 'not ok perplexity_files'
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
