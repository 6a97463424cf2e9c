#!/bin/sh
# cli_golden.sh: the default model against tests/golden: token ids must be equal, the logits of four
# prompts within the error of 8-bit activations with the fastest kernels, and those of two prompts
# exact to rounding with the definition of the ops, which is slow. tests/golden/README.md says where
# the limits come from.
# run: alone
set -u
: "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}"
: "${TANDEM:=build/tandem}" "${TOOLS:=build/release/tests}"
golden=tests/golden
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

case $TANDEM in
*build/asan/* | *build/ubsan/* | *build/tsan/*)
    echo 'ok # SKIP golden: takes too long under a sanitizer, cli_tiny runs there'
    exit 0 ;;
esac

# compare NAME PROMPT MAX_NMSE OPTION...: runs the prompt and leaves "nmse X ..." in $work/NAME.
compare() {
    name=$1 prompt=$golden/$2 limit=$3
    shift 3
    { cat "$prompt.txt" && echo; } >"$work/prompt" # run leaves out the last newline of a file
    if "$TANDEM" run -q -m "$MODEL" -f "$work/prompt" -n 0 --logits-out "$work/logits" "$@" &&
        "$TOOLS/lib/check_logits" "$prompt.bin" "$work/logits" "$limit" >"$work/$name"; then
        echo "ok $name $(cat "$work/$name")"
    else
        echo "not ok $name $(cat "$work/$name" 2>/dev/null), limit $limit"
    fi
    rm -f "$work/logits"
}

for prompt in prose code chat mixed; do
    if "$TANDEM" tokenize -q -m "$MODEL" -f "$golden/prompt_$prompt.txt" --ids |
        cmp - "$golden/prompt_$prompt.ids.txt"; then
        echo "ok golden_ids_$prompt"
    else
        echo "not ok golden_ids_$prompt"
    fi
done

for prompt in prose code chat mixed; do
    compare "golden_$prompt" "prompt_$prompt" 4e-3
done
mean=$(cat "$work"/golden_* | awk '$1 == "nmse" { sum += $2; n++ }
    END { if (n == 4) print sum / n; else print "nothing" }')
if awk -v mean="$mean" 'BEGIN { exit !(mean != "nothing" && mean + 0 <= 2e-3) }'; then
    echo "ok golden_mean nmse $mean"
else
    echo "not ok golden_mean nmse $mean, limit 2e-3"
fi

for prompt in chat mixed; do
    compare "golden_ref_$prompt" "prompt_$prompt" 1e-9 --isa ref -ctk f32 -ctv f32
done
