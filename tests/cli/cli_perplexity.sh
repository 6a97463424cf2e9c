#!/bin/sh
# cli_perplexity.sh: the perplexity of the default model on tests/golden/english.txt lies within 1 %
# of the value computed in double precision from the same weights.
# run: alone
set -u
: "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}" "${TANDEM:=build/tandem}"
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
