#!/bin/sh
# cli_chat.sh: conversations with the whole program: a turn that goes on in the session says what
# the same conversation says when it is read anew, and every way out works.
# run: alone
set -u
: "${TANDEM:=build/tandem}" "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}"
. tests/lib/results.sh
nl='
'

# chat LINES ARGUMENT...: with LINES, as printf has them, on standard input, each a turn; sets code,
# $work/out and $work/err. once: all of LINES is one turn.
chat() {
    lines=$1
    shift
    once "$lines" --lines "$@"
}
once() {
    printf "$1" >"$work/in"
    shift
    "$TANDEM" chat -m "$MODEL" --temp 0 -c 512 "$@" <"$work/in" >"$work/out" 2>"$work/err"
    code=$?
}
export XDG_STATE_HOME="$work/state"
# answer PROMPT: what run says to a rendered conversation.
answer() { "$TANDEM" run -m "$MODEL" --temp 0 -c 512 -q -n 12 -p "$1"; }
end="<|im_end|>$nl"
asks="<|im_start|>user$nl" answers="$end<|im_start|>assistant$nl"

# ---- The session says what a fresh one says ------------------------------------------------------
chat 'What is the capital of Italy?\nAnd of France?\n' -sys 'Be brief.' -n 12 -q
system="<|im_start|>system${nl}Be brief.$end"
first="$system${asks}What is the capital of Italy?$answers"
reply=$(answer "$first")
second="$first$reply$end${asks}And of France?$answers"
printf '%s\n%s\n' "$reply" "$(answer "$second")" >"$work/expected"
[ $code -eq 0 ] && [ -n "$reply" ] && cmp -s "$work/out" "$work/expected"
result chat_second_turn_knows_the_first
! [ -s "$work/err" ]
result chat_quiet

# A reply that was cut after two tokens ends there for the next turn too.
chat 'What is the capital of Italy?\nAnd of France?\n' -sys 'Be brief.' -n 2 -q
reply=$("$TANDEM" run -m "$MODEL" --temp 0 -c 512 -q -n 2 -p "$first")
second="$first$reply$end${asks}And of France?$answers"
"$TANDEM" run -m "$MODEL" --temp 0 -c 512 -q -n 2 -p "$second" >"$work/expected"
[ $code -eq 0 ] && tail -n 1 "$work/out" | cmp -s - "$work/expected"
result chat_cut_reply_is_kept_whole

# A stop text ends an answer before it; the next turn knows all that was drawn.
reply=$(answer "$first")
stop=$(printf '%s' "$reply" | cut -c 5-9)
chat 'What is the capital of Italy?\nAnd of France?\n' -sys 'Be brief.' -n 12 -q --stop "$stop"
[ $code -eq 0 ] && [ ${#stop} -eq 5 ] && [ "$(head -n 1 "$work/out")" = "${reply%%"$stop"*}" ] &&
    [ "$(wc -l <"$work/out")" -eq 2 ]
result chat_stop_text

# A turn with a byte without a token is taken back; the conversation goes on. Else it is an error.
chat 'What is \377?\nWhat is the capital of Italy?\n' -sys 'Be brief.' -n 12 -q
[ $code -eq 0 ] && printf '%s\n' "$(answer "$first")" | cmp -s - "$work/out" &&
    grep -q '^the conversation: no token of the model stands for the byte 0xff, at offset [0-9]* of the' "$work/err" &&
    grep -q '^  The byte is no UTF-8: ' "$work/err" && grep -q '^Your message was not added' "$work/err"
result chat_byte_without_a_token
once 'What is \377?' -n 2 -q
[ $code -eq 1 ] && ! [ -s "$work/out" ] && grep -q 'error: the conversation: no token .* the byte 0xff,' "$work/err"
result chat_byte_without_a_token_once

# ---- Templates -----------------------------------------------------------------------------------
# The model's own template and ChatML say the same where there is a system prompt.
chat 'What is the capital of Italy?\nAnd of France?\n' -sys 'Be brief.' -n 12 -q
cp "$work/out" "$work/expected"
chat 'What is the capital of Italy?\nAnd of France?\n' -sys 'Be brief.' -n 12 -q \
    --chat-template chatml
[ $code -eq 0 ] && cmp -s "$work/out" "$work/expected"
result chat_template_by_name
cat >"$work/template" <<'X'
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\n' + word ~ m.content + '<|im_end|>\n' }}
{%- endfor %}
{{- '<|im_start|>assistant\n' }}
X
chat 'capital of Italy?\n' -n 12 -q --chat-template "$work/template" \
    --chat-template-kwargs '{"word": "What is the "}'
[ $code -eq 0 ] &&
    [ "$(cat "$work/out")" = "$(answer "${asks}What is the capital of Italy?$answers")" ]
result chat_template_from_file
chat 'capital of Italy?\n' -n 12 -q --chat-template "$(cat "$work/template")" \
    --chat-template-kwargs '{"word": "What is the "}'
[ $code -eq 0 ] &&
    [ "$(cat "$work/out")" = "$(answer "${asks}What is the capital of Italy?$answers")" ]
result chat_template_as_text
chat 'Hello\n' --chat-template nobody
[ $code -eq 1 ] && grep -q 'chatml, .*gemma' "$work/err" && ! grep -q 'load ' "$work/err"
result chat_template_unknown
! grep -q 'did you mean' "$work/err" && [ $code -eq 1 ]
result chat_template_unknown_has_no_neighbour
for name in chatlm:chatml gema4:gemma4 lama3.1:llama3.1 gpt-os:gpt-oss mistralv3-tekken:mistral-v3-tekken; do
    chat 'Hello\n' --chat-template "${name%:*}"
    [ $code -eq 1 ] && grep -qi "did you mean ${name#*:}? Or take a file.*one of alpaca" "$work/err"
    result "chat_template_${name%:*}_names_the_nearest"
done
chat 'Hello\n' --chat-template-kwargs '[1]'
[ $code -eq 2 ] && grep -q 'no JSON object' "$work/err"
result chat_template_wrong_variables
echo '{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}' >"$work/template"
chat 'Hello\n' --chat-template "$work/template"
[ $code -eq 1 ] && grep -q 'line 1: it works on more than 256 MiB' "$work/err"
result chat_template_without_end
# A reply that the template drops from older turns leaves the session too.
cat >"$work/template" <<'X'
{%- for m in messages if m.role == 'user' %}
{{- '<|im_start|>user\n' + m.content + '<|im_end|>\n' }}
{%- endfor %}
{{- '<|im_start|>assistant\n' }}
X
chat 'Name a city.\nName a river.\n' -n 12 -q --chat-template "$work/template"
answer "${asks}Name a city.$end${asks}Name a river.$answers" >"$work/expected"
[ $code -eq 0 ] && [ "$(tail -n 1 "$work/out")" = "$(tail -n 1 "$work/expected")" ]
result chat_template_that_forgets

# ---- Thoughts ------------------------------------------------------------------------------------
# This template begins a thought, which the model never ends.
chat 'Hello\nHello\n' -n 6 -q --chat-template deepseek-r1
[ $code -eq 0 ] && [ "$(wc -l <"$work/out")" -eq 2 ] && [ "$(wc -c <"$work/out")" -eq 2 ]
result chat_thoughts_are_hidden_in_a_file
chat 'Hello\n' -n 6 -q --chat-template deepseek-r1 --reasoning-format none
[ $code -eq 0 ] && [ "$(wc -c <"$work/out")" -gt 3 ]
result chat_thoughts_as_they_come
chat 'Hello\n' -n 3 -q --chat-template deepseek-r1 --reasoning-format none
{ printf '%s' "$(cat "$work/out")"; printf ' Enough.\n</think>\n'; } >"$work/expected"
chat 'Hello\n' -n 20 -q --chat-template deepseek-r1 --reasoning-format none --no-wrap \
    --reasoning-budget 3 --reasoning-budget-message ' Enough.'
[ $code -eq 0 ] && head -n 3 "$work/out" | cmp -s - "$work/expected"
result chat_thoughts_end_at_their_budget
sed '1,/think>/d' "$work/out" | sed '/./,$!d' >"$work/expected"
chat 'Hello\n' -n 20 -q --chat-template deepseek-r1 --no-wrap \
    --reasoning-budget 3 --reasoning-budget-message ' Enough.'
[ $code -eq 0 ] && [ -s "$work/expected" ] && cmp -s "$work/out" "$work/expected"
result chat_answers_after_the_budget

# ---- Commands and ends ---------------------------------------------------------------------------
chat 'Hello\n/reset \nHello\n\n/exit\nHello\n' -n 6
[ $code -eq 0 ] && [ "$(wc -l <"$work/out")" -eq 2 ] && [ "$(uniq "$work/out" | wc -l)" -eq 1 ]
result chat_reset_and_exit
grep -q 'prompt .* tokens/s' "$work/err"
result chat_statistics_at_the_end
cp "$work/out" "$work/answers"
chat 'Hello\r\n/reset \r\nHello\r\n\r\n/exit\r\nHello\r\n' -n 6
[ $code -eq 0 ] && cmp -s "$work/out" "$work/answers"
result chat_lines_of_windows
chat 'Hello' -n 6
[ $code -eq 0 ] && [ "$(wc -l <"$work/out")" -eq 1 ]
result chat_line_without_newline
chat '' -n 6
[ $code -eq 0 ] && ! [ -s "$work/out" ]
result chat_without_input

# ---- A full context ------------------------------------------------------------------------------
# The third question has no room beside the first, which is forgotten: what is left says what a
# fresh conversation says. The instructions stay.
chat 'Name a city.\nName a river.\nName a lake.\n' -c 72 -n 10 -sys 'Be brief.'
cp "$work/out" "$work/answers"
grep -q 'context of 72 tokens is full: forgot the oldest turn' "$work/err"
forgot=$?
begin="<|im_start|>system${nl}Be brief.$end${asks}"
third="${begin}Name a river.$end<|im_start|>assistant$nl$(sed -n 2p "$work/answers")$end${asks}"
"$TANDEM" run -m "$MODEL" --temp 0 -c 72 -q -n 10 -p "${third}Name a lake.$answers" \
    >"$work/expected"
[ $code -eq 0 ] && [ $forgot -eq 0 ] && sed -n 3p "$work/answers" | cmp -s - "$work/expected"
result chat_full_context_forgets_the_oldest_turn
chat '/set predict 8\nHello\n/set predict 45\nTell me a story about a dog.\n' -c 80 -sys 'Be brief.'
[ $code -eq 0 ] && grep -q 'forgot the oldest turn' "$work/err" &&
    [ "$(sed -n '2,$p' "$work/out" | wc -w)" -gt 30 ] && ! grep -q '/clear' "$work/err"
result chat_full_context_within_an_answer
# A grammar goes on where it was: begun anew, it would write its first character again.
chat '/set predict 8\nHello\n/set predict 45\nTell me a story about a dog.\n' -c 80 -sys 'Be brief.' \
    --grammar 'root ::= "<" [^<>\n]{300,}'
[ $code -eq 0 ] && grep -q 'forgot the oldest turn' "$work/err" &&
    [ "$(tr -cd '<' <"$work/out" | wc -c)" -eq 2 ]
result chat_full_context_within_a_grammar
chat 'Hello\nHello again\nTell me more\nTell me more\n/reset\nHello\n' -c 48 -n 10 -sys 'Be brief.' \
    --no-context-shift
[ $code -eq 0 ] && grep -q 'context of 48 tokens is full' "$work/err" &&
    [ "$(head -n 1 "$work/out")" = "$(tail -n 1 "$work/out")" ]
result chat_full_context_refuses
# Nothing is forgotten for a message that has no room all the same.
long=$(yes word | head -n 90 | tr '\n' ' ')
chat "Name a city.\\nName a river.\\n$long\\n/save $work/kept.json\\n" -c 80 -n 4 -sys 'Be brief.'
[ $code -eq 0 ] && grep -q 'message was not added' "$work/err" &&
    ! grep -q 'forgot' "$work/err" && grep -q 'Name a city' "$work/kept.json"
result chat_message_without_room_leaves_the_others

# ---- One question --------------------------------------------------------------------------------
chat 'What is the capital of Italy?\n' -n 12 -q
cp "$work/out" "$work/expected"
once 'ignored' -n 12 -q -p 'What is the capital of Italy?'
[ $code -eq 0 ] && [ -s "$work/out" ] && cmp -s "$work/out" "$work/expected"
result chat_one_question
once 'What is the capital of Italy?\n' -n 12 -q
[ $code -eq 0 ] && cmp -s "$work/out" "$work/expected"
result chat_pipe_is_one_question
printf 'What is\nthe capital\n' >"$work/question"
once 'What is\nthe capital\n' -n 12 -q
cp "$work/out" "$work/expected"
once '' -n 12 -q -f "$work/question"
[ $code -eq 0 ] && [ "$(wc -l <"$work/out")" -ge 1 ] && cmp -s "$work/out" "$work/expected"
result chat_question_from_a_file
once 'one two' -n 12 -q -p 'Count the words:' -f -
cp "$work/out" "$work/expected"
once 'Count the words:\n\none two\n' -n 12 -q
[ $code -eq 0 ] && cmp -s "$work/out" "$work/expected"
result chat_question_and_a_pipe
once 'x' -n 12 -q -p ''
[ $code -eq 2 ] && grep -q 'question is empty' "$work/err"
result chat_empty_question
once 'x' -n 12 -q -c 32 -f "$0"
[ $code -eq 1 ] && grep -q 'longer than the context' "$work/err" && ! grep -q '/clear' "$work/err" &&
    tail -n 1 "$work/err" | grep -q 'Use a longer context (-c)'
result chat_question_without_room

# ---- Lines of several lines ----------------------------------------------------------------------
once 'one\ntwo\nthree' -n 8 -q
cp "$work/out" "$work/expected"
chat 'one\\\ntwo\\\nthree\n' -n 8 -q
[ $code -eq 0 ] && [ -s "$work/out" ] && cmp -s "$work/out" "$work/expected"
result chat_backslash_joins_lines
chat '"""one\ntwo\nthree"""\n' -n 8 -q
[ $code -eq 0 ] && cmp -s "$work/out" "$work/expected"
result chat_quotes_join_lines
chat '"""\none\ntwo\nthree\n"""\n' -n 8 -q
[ $code -eq 0 ] && cmp -s "$work/out" "$work/expected"
result chat_quotes_on_lines_of_their_own

# ---- Commands ------------------------------------------------------------------------------------
chat '/help\n/?\n/nonsense\n/bye\nHello\n' -n 6
[ $code -eq 0 ] && ! [ -s "$work/out" ] && [ "$(grep -c '^  /regen ' "$work/err")" -eq 2 ] &&
    grep -q 'there is no command /nonsense' "$work/err"
result chat_help_and_unknown_command
chat '/etc/passwd is a file\n' -n 6
[ $code -eq 0 ] && [ "$(wc -l <"$work/out")" -ge 1 ] && ! grep -q 'no command' "$work/err"
result chat_path_is_no_command
chat 'Name a city.\n/regen\n' -n 6
[ $code -eq 0 ] && [ "$(wc -l <"$work/out")" -eq 2 ] && [ "$(uniq "$work/out" | wc -l)" -eq 1 ]
result chat_regen
chat '/regen\n/undo\nHello\n' -n 6
[ $code -eq 0 ] && grep -q 'no question to answer again' "$work/err" &&
    grep -q 'no question to take back' "$work/err" && [ "$(wc -l <"$work/out")" -eq 1 ]
result chat_commands_without_a_question
chat 'Name a city.\nName a river.\n/undo\nName a river.\n' -n 8
[ $code -eq 0 ] && [ "$(sed -n 2p "$work/out")" = "$(sed -n 3p "$work/out")" ]
result chat_undo
chat 'Name a city.\n' -n 8 -q -sys 'Speak like a pirate.'
cp "$work/out" "$work/expected"
chat '/system Speak like a pirate.\nName a city.\n/system\n/system none\n/system\n' -n 8
[ $code -eq 0 ] && cmp -s "$work/out" "$work/expected" &&
    grep -q '^Speak like a pirate.$' "$work/err" && grep -q 'no instructions' "$work/err"
result chat_system
chat '/set predict 3\n/set seed 5\nTell me a long story.\n/set predict\n/set tempo 3\n/set temp x\n/show\n' -n 60
[ $code -eq 0 ] && [ "$(wc -w <"$work/out")" -le 3 ] && grep -q "no setting 'tempo'" "$work/err" &&
    grep -q "predict needs a value" "$work/err" && grep -q "got 'x'" "$work/err" &&
    grep -q '^  seed  *5$' "$work/err" && grep -q 'tokens used, 1 question$' "$work/err"
result chat_set_and_show
chat '/show\nName a city.\n/clear\n/show\n' -n 4
[ $code -eq 0 ] && [ "$(grep -c '^  context  *0 of [0-9]* tokens used' "$work/err")" -eq 2 ]
result chat_shows_an_empty_context
chat 'Name a city.\n/save one\n/clear\n/load one\nName a river.\n/save ./%%\n' -n 8 -sys 'Be brief.'
mv ./% "$work/saved" 2>/dev/null
rm -f ./%.session
[ $code -eq 0 ] && python3 - "$work" <<'X'
import json, os, sys
work = sys.argv[1]
one = json.load(open(work + "/state/tandem/chats/one.json"))["messages"]
two = json.load(open(work + "/saved"))["messages"]
answers = open(work + "/out").read().split("\n")
assert [m["role"] for m in one] == ["system", "user", "assistant"], one
assert two[:3] == one and two[4]["content"] == "\n".join(answers[1:-1]), two
assert os.stat(work + "/state/tandem").st_mode & 0o77 == 0
X
result chat_save_and_load
# A later run goes on with what was computed: it reads the new question alone, and answers alike.
prompt_tokens() { sed -n 's/.*prompt *\([0-9]*\) tokens.*/\1/p' "$work/err"; }
chat "Tell me about the history of the city of Paris.\n/save $work/kept.json\n" -n 20
first=$(cat "$work/out")
chat "/load $work/kept.json\nName a river.\n" -n 8
grep -q '^Loaded 1 question and 1 answer[.]$' "$work/err"
result chat_load_says_how_much
with=$(prompt_tokens) answer=$(cat "$work/out")
mv "$work/kept.json.session" "$work/away"
chat "/load $work/kept.json\nName a river.\n" -n 8
without=$(prompt_tokens)
[ $code -eq 0 ] && [ -n "$first" ] && [ "$(cat "$work/out")" = "$answer" ] && [ $((with + 30)) -lt "$without" ]
result chat_save_keeps_the_state
head -c 2000 "$work/away" >"$work/kept.json.session"
chat "/load $work/kept.json\nName a river.\n" -n 8
[ $code -eq 0 ] && grep -q "state is left out" "$work/err" && [ "$(cat "$work/out")" = "$answer" ]
result chat_load_of_a_broken_state
echo '{"messages": [{"role": "king", "content": "x"}]}' >"$work/king.json"
chat "/load nobody\n/load $work/king.json\n/load $0\n/save\n" -n 8
[ $code -eq 0 ] && grep -q 'nobody.json: No such file' "$work/err" && grep -q "'king'" "$work/err" &&
    grep -q 'cli_chat.sh: line 1' "$work/err" && grep -q 'name of a conversation' "$work/err"
result chat_load_of_no_conversation
"$TANDEM" chat -m "$MODEL" -p x --chat-template nobody >"$work/out" 2>"$work/err"
[ $? -eq 1 ] && sed -n 2p "$work/err" | grep -q ' one of alpaca, .*, [.][.][.]$'
result chat_templates_are_listed_by_whole_names
# A pipe, which stands for /dev/null, stays; so does a link to a file.
mkfifo "$work/pipe"
ln -s saved.json "$work/link" && echo old >"$work/saved.json"
chat "Name a city.\n/save $work/pipe\n/save $work/link\n" -n 4
[ $code -eq 0 ] && [ -p "$work/pipe" ] && grep -q 'pipe: No such device' "$work/err" &&
    [ -L "$work/link" ] && grep -q '"Name a city."' "$work/saved.json"
result chat_save_replaces_files_alone
# The switch for thoughts reaches the template by each of its names, also in the middle.
for name in enable_thinking thinking reasoning; do
    cat >"$work/template" <<X
{{- '<|im_start|>user\n' + messages[-1].content + (' 1+1=2, 2+2=' if $name else '') }}
{{- '<|im_end|>\n<|im_start|>assistant\n' }}
X
    chat 'Hello 1+1=2, 2+2=\n' -n 8 -q --chat-template "$work/template" --reasoning off
    cp "$work/out" "$work/expected"
    chat 'Hello\n/set reasoning on\nHello\n/set reasoning off\nHello\n' -n 8 -q \
        --chat-template "$work/template" --reasoning off
    [ $code -eq 0 ] && [ "$(sed -n 2p "$work/out")" = "$(cat "$work/expected")" ] &&
        [ "$(sed -n 1p "$work/out")" = "$(sed -n 3p "$work/out")" ] &&
        [ "$(sed -n 1p "$work/out")" != "$(sed -n 2p "$work/out")" ]
    result chat_reasoning_switch_$name
done

# Where the template opens a thought whatever the switch says, it is ended at once.
cat >"$work/template" <<'X'
{#- </think> #}{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
{%- endfor %}
{{- '<|im_start|>assistant\n<think>\n' }}
X
chat 'Name a city.\n' -n 12 -q --chat-template "$work/template" --reasoning off
[ $code -eq 0 ] && [ -s "$work/out" ] &&
    [ "$(cat "$work/out")" = "$(answer "${asks}Name a city.$answers<think>$nl$nl</think>$nl$nl")" ]
result chat_reasoning_off_ends_a_thought_that_a_template_opens

# Where it has no switch, the least that it can ask for is asked for, and told if thoughts stay.
least() { # NAME ENDING REPLY WARNING ARGUMENT...: the template ends with ENDING, the prompt with REPLY
    name=$1 reply=$3 warning=$4
    cat >"$work/template" <<X
{#- </think> #}{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
{%- endfor %}
{{- '<|im_start|>assistant\n' + ($2) }}
X
    shift 4
    chat 'Name a city.\n' -n 12 --chat-template "$work/template" "$@"
    [ $code -eq 0 ] && [ -s "$work/out" ] &&
        [ "$(cat "$work/out")" = "$(answer "${asks}Name a city.$answers$reply")" ] &&
        [ "$(grep -o 'cannot turn thoughts off.*effort\|cannot turn thoughts off' "$work/err")" = "$warning" ]
    result chat_reasoning_$name
}
effort="reasoning_effort | default('high')"
least least_effort_is_none "'<think></think>' if $effort == 'low' else ''" '<think></think>' '' --reasoning off
least budget_is_none "'<think></think>' if thinking_budget == 0 else ''" '<think></think>' '' --reasoning-budget 0
least lowest_effort "$effort" low \
    'cannot turn thoughts off: it asks for the lowest effort' --reasoning off
least own_effort "$effort" high 'cannot turn thoughts off' --reasoning off \
    --chat-template-kwargs '{"reasoning_effort": "high"}'
least no_switch "''" '' 'cannot turn thoughts off' --reasoning off
least refused_effort "raise_exception('no') if reasoning_effort is defined else ''" '' 'cannot turn thoughts off' \
    --reasoning off
least on_stays_as_it_is "$effort" high '' --reasoning on

# ---- Calls of tools ------------------------------------------------------------------------------
# Three calls as examples make the small model call too.
cat >"$work/template" <<'X'
{%- macro call(c) -%}
{{- '<tool_call>\n{"name": "' + c.name + '", "arguments": ' + (c.arguments | tojson) + '}\n</tool_call>' -}}
{%- endmacro -%}
{%- for place in (['Rome', 'Oslo', 'Bern'] if tools else []) -%}
{{- '<|im_start|>user\nLook at ' + place + '.<|im_end|>\n<|im_start|>assistant\n' -}}
{{- call({'name': tools[0].function.name, 'arguments': {'place': place}}) + '<|im_end|>\n' -}}
{%- endfor -%}
{%- for m in messages -%}
{{- '<|im_start|>' + m.role + '\n' + m.content -}}
{%- for c in m.tool_calls or [] %}{{ call(c.function) }}{% endfor -%}
{{- '<|im_end|>\n' -}}
{%- endfor -%}
{{- '<|im_start|>assistant\n' }}
X
echo '[{"name": "look", "parameters": {"type": "object", "properties": {"place": {"type": "string"}}}}]' \
    >"$work/tools"
calls() {
    lines=$1
    shift
    chat "$lines" -n 60 --chat-template "$work/template" --tools "$work/tools" "$@"
}
calls "/result x\nLook at Riga.\n/save $work/calls.json\n/result Look at Minsk.\n/result Look at Paris.\n"
printf 'look {"place": "%s"}\n' Riga Minsk Paris >"$work/expected"
[ $code -eq 0 ] && cmp -s "$work/out" "$work/expected" &&
    [ "$(grep -c 'no call of a tool waits' "$work/err")" -eq 1 ]
result chat_results_of_calls
calls "/load $work/calls.json\n/result Look at Minsk.\n/save $work/more.json\n"
[ $code -eq 0 ] && [ "$(cat "$work/out")" = 'look {"place": "Minsk"}' ] && python3 - "$work" <<'X'
import json, sys
one, more = (json.load(open(f"{sys.argv[1]}/{n}.json"))["messages"] for n in ("calls", "more"))
assert [m["role"] for m in more] == ["user", "assistant", "tool", "assistant"], more
assert more[:2] == one and more[2]["content"] == "Look at Minsk.", more
(first,), (second,) = one[1]["tool_calls"], more[3]["tool_calls"]
assert first["function"]["name"] == "look", first
assert json.loads(first["function"]["arguments"]) == {"place": "Riga"}, first
assert json.loads(second["function"]["arguments"]) == {"place": "Minsk"}, second
assert more[2]["tool_call_id"] == first["id"] and len(first["id"]) == 9, more
assert one[1]["content"] == "", one
X
result chat_calls_are_saved_and_loaded
calls "Look at Riga.\n/result x\n/save $work/cut.json\n" -n 16
[ $code -eq 0 ] && grep -q 'a call that was cut off' "$work/err" &&
    grep -q 'no call of a tool waits' "$work/err" && ! grep -q tool_calls "$work/cut.json"
result chat_cut_call_is_left_out

# Some models know a call by its name and its number.
section='<|tool_calls_section_begin|><|tool_call_begin|>functions.'
arguments="':0<|tool_call_argument_begin|>' + (c.arguments | tojson) + '<|tool_call_end|><|tool_calls_section_end|>'"
cp "$work/template" "$work/template.before"
sed "s/^{{- '<tool_call>.*/{{- '$section' + c.name + $arguments -}}/" "$work/template.before" >"$work/template"
calls "Look at Riga.\n/save $work/numbered.json\n" -n 100
[ $code -eq 0 ] && [ "$(cat "$work/out")" = 'look {"place": "Riga"}' ] &&
    grep -q '"functions.look:0"' "$work/numbered.json"
result chat_numbers_calls
mv "$work/template.before" "$work/template"

# A file can have another template for conversations with tools.
second="tokenizer.chat_template.tool_use=str:$(cat "$work/template")"
"$TANDEM" quantize --override-kv "$second" "$MODEL" "$work/two.gguf" COPY >"$work/out" 2>&1
printf 'Look at Riga.\n' | "$TANDEM" chat -m "$work/two.gguf" --temp 0 -c 512 --lines -n 60 \
    --tools "$work/tools" >"$work/out" 2>"$work/err"
code=$?
[ $code -eq 0 ] && [ "$(cat "$work/out")" = 'look {"place": "Riga"}' ]
result chat_takes_the_template_for_tools
rm -f "$work/two.gguf"

# A result that does not fit into the context leaves the question and the call, which waits again.
long=$(seq 1 400 | tr '\n' ' ')
calls "/load $work/calls.json\n/result $long\n/save $work/full.json\n/result Look at Minsk.\n" -c 320
printf 'look {"place": "Minsk"}\n' >"$work/expected"
[ $code -eq 0 ] && cmp -s "$work/out" "$work/expected" && cmp -s "$work/full.json" "$work/calls.json" &&
    grep -q 'context of 320 tokens is full' "$work/err" &&
    grep -q 'results were not added' "$work/err"
result chat_long_result_leaves_the_call

# An answer is there still if its question cannot be answered again.
chat "Say hi.\n/save $work/before.json\n/system $long\n/regen\n/system none\n/save $work/after.json\n" \
    -n 8 -c 128
[ $code -eq 0 ] && cmp -s "$work/before.json" "$work/after.json" &&
    grep -q assistant "$work/after.json" && grep -q 'answer stays as it was' "$work/err"
result chat_regen_keeps_the_answer_until_it_has_another

# ---- Ctrl-C --------------------------------------------------------------------------------------
# At the prompt it ends the program; in an answer, which begins before it is sent, only that.
cat >"$work/interrupt" <<'X'
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
where, err = sys.argv[1], open(sys.argv[2], "w+b")
chat = subprocess.Popen(sys.argv[3:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err)
if where == "answer":
    chat.stdin.write(b"Write a very long story about the sea.\n")
    chat.stdin.flush()
    text = chat.stdout.read(1)
else:
    while b"; context" not in open(sys.argv[2], "rb").read(): pass
    text = b""
chat.send_signal(signal.SIGINT)
rest, _ = chat.communicate(b"/exit\n" if where == "answer" else None, timeout=100)
sys.stdout.buffer.write(text + rest)
sys.exit(chat.returncode)
X
for where in prompt answer; do
    python3 "$work/interrupt" $where "$work/err" "$TANDEM" chat -m "$MODEL" --temp 0 -t 1 --lines \
        >"$work/out"
    code=$?
    if [ $where = prompt ]; then ! [ -s "$work/out" ]; else [ -s "$work/out" ]; fi &&
        [ $code -eq 0 ] && grep -q '^tandem: generation ' "$work/err"
    result chat_interrupt_of_the_$where
done
