#!/bin/sh
# cli_imatrix.sh: tandem imatrix: the numbers of llama-imatrix (tests/golden/imatrix_sums.py), whatever
# the micro-batch; quantize takes them, and its errors where it matters are smaller; refusals.
set -u
: "${TANDEM:=build/tandem}" "${TOOLS:=build/release/tests}"
. tests/lib/results.sh
prefix=imatrix_
tiny=tests/golden/tiny
program=$(realpath "$TANDEM")
seq 1 600 >"$work/text"

# numbers NAME LIMIT ARGUMENT...
numbers() {
    name=$1 limit=$2
    shift 2
    capture "$TANDEM" imatrix -m "$tiny/$name.gguf" -f "$work/text" -c 64 -o "$work/$name$*" "$@"
    [ $code -eq 0 ] && grep -q 'windows of 64 tokens' "$err" &&
        python3 tests/golden/imatrix_sums.py "$work/$name$*" "tests/golden/imatrix.$name.txt" "$limit" >"$out"
}
# Rounding of halves differs, and with it now and then the choice of an expert.
for row in 'converted_llama 2e-3' 'converted_qwen35 4e-3' 'converted_granitehybrid 6e-3' 'converted_qwen3moe 2e-2'; do
    # shellcheck disable=SC2086
    numbers $row
    result "numbers_${row% *}"
done
# llama-imatrix rounds what meets BF16 to BF16, as this level alone does here.
numbers converted_qwen35 3e-4 --isa avx512bf16 || grep -q 'this CPU cannot run' "$err"
result numbers_by_pairs_of_bf16
capture "$TANDEM" imatrix -q -m "$tiny/converted_qwen3moe.gguf" -f "$work/text" -c 64 -ub 7 -t 1 -o "$work/other"
cmp "$work/converted_qwen3moe" "$work/other" >>"$err"
result same_bytes_by_small_batches

"$TOOLS/lib/write_tiny" "$work/experts.gguf" 16
capture "$TANDEM" imatrix --json -m "$work/experts.gguf" -f "$work/text" -c 64 --chunks 2 -o "$work/sums"
[ $code -eq 0 ] && grep -q '"windows": *2' "$out" && grep -q '"expert_matrices": *192' "$out" &&
    grep -q '"matrices": *32' "$out"
result json
capture "$TANDEM" show "$work/sums"
grep -qx 'importance     of the columns of 32 matrices, by 2 windows of 64 tokens' "$out" &&
    grep -qx "text           $work/text" "$out" && [ "$(wc -l <"$out")" -eq 5 ] &&
    grep -qx "runs here      no, because it is no model: it holds the importance of a model's columns" "$out" &&
    grep -q "^               give it to 'tandem quantize --imatrix' with that model" "$out" &&
    ! grep -qE 'unknown|chat|parameters' "$out"
result show_says_what_it_is
capture "$TANDEM" inspect "$work/sums"
[ $code -eq 0 ] && sed -n 1p "$out" | grep -q '^importance ' && grep -q "general.type = string: 'imatrix'" "$out"
result inspect_says_what_it_is
capture "$TANDEM" inspect --json "$work/sums"
[ $code -eq 0 ] && grep -q '"refused": "it is no model: ' "$out" && grep -q '"runs_here": false' "$out"
result inspect_json
capture "$TANDEM" quantize --imatrix "$work/sums" "$work/experts.gguf" "$work/small.gguf" Q4_1
[ $code -eq 0 ] && grep -q '28 of them with importance' "$err"
result quantize_takes_it
capture "$TANDEM" imatrix -m "$work/experts.gguf" -f "$work/text" -o "$work/sums"
[ $code -eq 1 ] && grep -q 'exists' "$err"
result overwrites_nothing
capture "$TANDEM" imatrix -m "$work/experts.gguf" -f "$work/text" -c 500000 -o "$work/none"
[ $code -ne 0 ] && ! [ -e "$work/none" ]
result context_too_long
echo short >"$work/short"
capture "$TANDEM" imatrix -m "$work/experts.gguf" -f "$work/short" -c 64 -o "$work/none"
[ $code -eq 2 ] && grep -q 'fills no window.*64' "$err" && ! [ -e "$work/none" ]
result text_too_short
capture "$TANDEM" imatrix -m "$work/experts.gguf"
[ $code -eq 2 ] && grep -q 'needs a text' "$err"
result needs_a_text
capture "$TANDEM" imatrix -m "$work/experts.gguf" -f "$work/text" --chunks 0
[ $code -eq 2 ] && grep -q 'chunks' "$err"
result no_chunks
(cd "$work" && "$program" imatrix -q -m experts.gguf -f text -c 64 --chunks 1 2>>err) &&
    [ -s "$work/imatrix.gguf" ]
result default_name
# Ctrl-C keeps what was computed.
seq 1 60000 >"$work/long"
capture env TERM=xterm python3 tests/lib/terminal.py "$TANDEM" imatrix -m "$tiny/converted_llama.gguf" \
    -f "$work/long" -c 64 -t 1 -o "$work/part" <<'X'
wait(r'measure +\[[^]]*\] +[1-9]')
keys(CTRL_C)
ends(130)
computed, windows = map(int, re.search(r'part has the inputs of (\d+) of (\d+) windows', seen()).groups())
assert 0 < computed < windows, seen()
X
[ $code -eq 0 ] && capture "$TANDEM" quantize --imatrix "$work/part" "$tiny/converted_llama.gguf" "$work/part.gguf" Q4_1 &&
    [ $code -eq 0 ] && grep -q 'with importance' "$err"
result interrupted
