#!/bin/sh
# cli_chat.sh: conversations with the whole program: a turn that goes on in the session says what
# the same conversation says when it is read anew, and every way out works.
# run: alone
set -u
: "${TANDEM:=build/tandem}" "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
nl='
'

# result NAME: prints whether the test before it succeeded.
result() {
    if [ $? -eq 0 ]; then
        echo "ok $1"
    else
        echo "not ok $1"
        echo "  code $code"; head -n 5 "$work/out" "$work/err"
    fi
}
# chat LINES ARGUMENT...: with LINES, as printf has them, on standard input; sets code, $work/out
# and $work/err.
chat() {
    printf "$1" >"$work/in"
    shift
    "$TANDEM" chat -m "$MODEL" --temp 0 -c 512 "$@" <"$work/in" >"$work/out" 2>"$work/err"
    code=$?
}
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
chat 'Hello\n' --chat-template nobody
[ $code -eq 1 ] && grep -q 'chatml, .*gemma' "$work/err" && ! grep -q 'load ' "$work/err"
result chat_template_unknown
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

# ---- Commands and ends ---------------------------------------------------------------------------
chat 'Hello\n/reset\nHello\n\n/exit\nHello\n' -n 6
[ $code -eq 0 ] && [ "$(wc -l <"$work/out")" -eq 2 ] && [ "$(uniq "$work/out" | wc -l)" -eq 1 ]
result chat_reset_and_exit
grep -q 'prompt .* tokens/s' "$work/err"
result chat_statistics_at_the_end
chat 'Hello' -n 6
[ $code -eq 0 ] && [ "$(wc -l <"$work/out")" -eq 1 ]
result chat_line_without_newline
chat '' -n 6
[ $code -eq 0 ] && ! [ -s "$work/out" ]
result chat_without_input
chat 'Hello\nHello again\nTell me more\nTell me more\n/reset\nHello\n' -c 48 -n 10 -sys 'Be brief.'
[ $code -eq 0 ] && grep -q 'context of 48 tokens is full' "$work/err" &&
    [ "$(head -n 1 "$work/out")" = "$(tail -n 1 "$work/out")" ]
result chat_full_context_goes_on

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
    while b"micro-batch" not in open(sys.argv[2], "rb").read(): pass
    text = b""
chat.send_signal(signal.SIGINT)
rest, _ = chat.communicate(b"/exit\n" if where == "answer" else None, timeout=100)
sys.stdout.buffer.write(text + rest)
sys.exit(chat.returncode)
X
for where in prompt answer; do
    python3 "$work/interrupt" $where "$work/err" "$TANDEM" chat -m "$MODEL" --temp 0 -t 1 \
        >"$work/out"
    code=$?
    if [ $where = prompt ]; then ! [ -s "$work/out" ]; else [ -s "$work/out" ]; fi &&
        [ $code -eq 0 ] && grep -q '^tandem: load ' "$work/err"
    result chat_interrupt_of_the_$where
done
