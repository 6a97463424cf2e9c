#!/bin/sh
# cli_grammar.sh: tandem run with a grammar: the text obeys it and ends where it ends; wrong grammars
# are refused before anything is written.
set -u
: "${TANDEM:=build/tandem}" "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

check() { # name, exit code of the test before it, detail
    if [ "$2" -eq 0 ]; then echo "ok $1 ${3:-}"; else echo "not ok $1 ${3:-}"; fi
}
run() { # option...
    "$TANDEM" run -q -m "$MODEL" -p 'The capital of France is' -n 24 -s 3 "$@" >"$work/out" 2>"$work/err"
}

run --temp 0 --grammar 'root ::= "Paris" | "London"'
[ $? -eq 0 ] && [ "$(cat "$work/out")" = Paris ]
check grammar_is_obeyed_to_its_end $? "$(cat "$work/out")"
printf 'root ::= (" " word)+ "." # words\nword ::= [a-z]{2,5}\n' >"$work/words"
run --temp 1.5 --grammar-file "$work/words"
grep -qE '^( [a-z]{2,5})+( [a-z]*)?[.]?$' "$work/out"
check grammar_of_a_file_is_obeyed $? "$(cat "$work/out")"
run --temp 0 && cp "$work/out" "$work/free" && run --temp 0 --grammar 'root ::= [^z]*' &&
    cmp -s "$work/out" "$work/free"
check grammar_that_allows_the_text_changes_nothing $?
run --grammar 'root ::= rest'
[ $? -eq 1 ] && grep -q 'rule rest is not defined' "$work/err" && [ ! -s "$work/out" ]
check grammar_error_is_told $? "$(cat "$work/err")"
run --grammar 'root ::= "a"' --grammar-file "$work/words"
[ $? -eq 2 ]
check grammar_may_be_given_once $?
run --temp 1 --json-schema '{"type":"object","properties":{"n":{"type":"integer","minimum":1,"maximum":20}},"required":["n"]}'
python3 -c 'import json, sys; sys.exit(not 1 <= json.load(open(sys.argv[1]))["n"] <= 20)' "$work/out"
check grammar_of_a_schema_is_obeyed $? "$(cat "$work/out")"
run -j '{"type":"thing"}'
[ $? -eq 1 ] && grep -q "no type 'thing'" "$work/err"
check grammar_of_a_wrong_schema_is_refused $? "$(cat "$work/err")"

# Thoughts of a model come before a grammar: this template opens the thoughts, the next one ends
# them.
sign='{# </think> #}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
<think>'
printf '%s\n' "$sign" >"$work/opens"
printf '%s</think>\n' "$sign" >"$work/closes"
for name in opens closes; do
    "$TANDEM" chat -q -m "$MODEL" -p 'Capital of France?' -n 12 --temp 0 --chat-template "$work/$name" \
        --reasoning-format none --grammar 'root ::= "Lisbon"' >"$work/$name.out" 2>"$work/err"
done
[ "$(tr -d '\n ' <"$work/closes.out")" = Lisbon ] && [ -s "$work/opens.out" ] && ! grep -q Lisbon "$work/opens.out"
check grammar_waits_for_the_end_of_thoughts $? "$(cat "$work/opens.out" "$work/closes.out")"
# This model does not end thoughts: it writes as many tokens as it may.
"$TANDEM" chat -m "$MODEL" -p 'Say hi.' -n 40 --temp 0 --chat-template "$work/opens" \
    --reasoning-format none --grammar 'root ::= [^Z]*' >"$work/out" 2>"$work/err"
grep -q 'generation *40 tokens' "$work/err"
check grammar_ends_no_text_within_a_thought $? "$(cat "$work/out" "$work/err")"
printf '[{"name": "look", "parameters": {"type": "object"}}]' >"$work/tools"
"$TANDEM" chat -q -m "$MODEL" -p Hello -n 4 --tools "$work/tools" --chat-template chatml \
    >"$work/out" 2>"$work/err"
[ $? -ne 0 ] && grep -q 'calls of tools is not known' "$work/err" &&
    grep -q 'template FILE; or go without tools' "$work/err"
check tools_need_a_family_with_them $? "$(cat "$work/err")"
