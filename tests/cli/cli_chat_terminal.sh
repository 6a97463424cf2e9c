#!/bin/sh
# cli_chat_terminal.sh: `tandem chat` at a terminal, which tests/lib/terminal.py plays: keys, pastes,
# the history, Ctrl-C.
# run: alone
set -u
: "${TANDEM:=build/tandem}" "${TANDEM_SIM:=build/tandem-sim}"
: "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_STATE_HOME="$work/state" TERM=xterm

# at_terminal NAME: the steps of standard input (tests/lib/terminal.py) succeed. ARGUMENTS are those
# of chat.
at_terminal() {
    name=$1
    shift
    if { echo "wait('Ctrl-D ends the program')"; cat; } |
        python3 "$(dirname "$0")/../lib/terminal.py" "$TANDEM" chat -m "$MODEL" --temp 0 "$@" \
            >"$work/log" 2>&1; then
        echo "ok $name"
    else
        echo "not ok $name"
        tail -n 5 "$work/log"
    fi
}

at_terminal terminal_hint_speed_and_end -n 6 -c 512 <<'X'
saw('/help')
line('Name a city.')
wait(r'\[\d+ tokens, [\d.]+ tokens/s; context \d+ of 512\]')
keys(CTRL_D)
ends(0)
saw('prompt')
X
# The token that ends an answer is the first one: nothing is written, but that it came is told.
at_terminal terminal_empty_answer -n 6 -c 512 -l 2+100 <<'X'
line('Name a city.')
wait(r'\[1 token; context \d+ of 512\]')
keys(CTRL_D)
ends(0)
X
at_terminal terminal_commands_and_bye -n 6 -c 512 <<'X'
line('/help')
wait('/regen')
line('/nonsense')
wait('no command /nonsense')
line('/bye')
ends(0)
X
# Text typed before the cursor, deleted and moved over reaches the model as it shows.
at_terminal terminal_editing -n 6 -c 512 -sys 'Be brief.' <<'X'
keys('ame a citx', LEFT, CTRL_A, 'N', CTRL_E, BACKSPACE, 'y.', LEFT, LEFT, RIGHT, RIGHT, '\r')
answered()
line('/save typed')
wait('Saved')
said('typed', 'Name a city.')
keys(CTRL_D)
ends(0)
X
at_terminal terminal_characters -n 6 -c 512 <<'X'
keys('日本語🙂x', BACKSPACE, BACKSPACE, BACKSPACE, 'é 👍', '\r')
answered()
line('/save characters')
wait('Saved')
said('characters', '日本é 👍')
keys(CTRL_D)
ends(0)
X
at_terminal terminal_history -n 4 -c 512 <<'X'
line('Name a lake.')
answered()
keys(CTRL_D)
ends(0)
X
at_terminal terminal_history_is_kept -n 4 -c 512 <<'X'
keys(UP)
wait('Name a lake')
keys(BACKSPACE, '?', '\r')
answered()
line('/save again')
wait('Saved')
said('again', 'Name a lake?')
keys(UP, UP, UP, CTRL_D)
wait('\x07') # Ctrl-D behind a text rings
keys(CTRL_C)
dropped()
keys(CTRL_D)
ends(0)
X
[ "$(stat -c %a "$work/state/tandem/history")" = 600 ] && echo "ok terminal_history_is_private" ||
    echo "not ok terminal_history_is_private"
# Three lines that are pasted at once are one turn, and so is one that a terminal's own line would
# cut at 4,095 bytes.
at_terminal terminal_paste_of_lines -n 4 -c 512 <<'X'
paste('one\rtwo\tand\nthree 🙂')
keys('\r')
answered()
line('/save lines')
wait('Saved')
said('lines', 'one\ntwo\tand\nthree 🙂')
keys(CTRL_D)
ends(0)
X
at_terminal terminal_paste_of_4200_characters -n 4 -c 4096 <<'X'
text = ('The cat sat on the mat and looked at the moon. ' * 90)[:4200]
paste(text)
keys('\r')
answered()
line('/save long')
wait('Saved')
said('long', text.strip())
keys(CTRL_D)
ends(0)
X
at_terminal terminal_lines_by_hand -n 4 -c 512 <<'X'
keys('one\\\r')
wait(r'\n\. ')
keys('two\r')
answered()
line('/save one')
wait('Saved')
said('one', 'one\ntwo')
keys('"""three\r')
wait(r'\n\. ')
keys('four"""\r')
answered()
line('/save two')
wait('two.json')
said('two', 'three\nfour')
keys(CTRL_D)
ends(0)
X
# Ctrl-C drops a line, stops an answer, which stays, and ends the program if it comes twice at an
# empty line.
at_terminal terminal_ctrl_c_drops_a_line -n 4 -c 512 <<'X'
keys('Name a ci')
wait('Name a ci') # a Ctrl-C that comes before the text is read ends the program
keys(CTRL_C)
dropped()
line('Name a lake.')
answered()
line('/save dropped')
wait('Saved')
said('dropped', 'Name a lake.')
keys('one\\\r')
wait(r'\n\. ')
keys(CTRL_C)
dropped()
keys(CTRL_C)
wait(r'Ctrl-C again, or Ctrl-D, ends the program\.\n> ')
line('Name a river.') # and the next one asks again
answered()
prompt()
keys(CTRL_C)
wait(r'Ctrl-C again, or Ctrl-D, ends the program\.\n> ')
keys(CTRL_C)
ends(0)
X
at_terminal terminal_ctrl_c_in_an_answer -c 2048 --stop 'neverever' <<'X'
line('Write a very long story about the sea.')
wait(r'story[^\n]*\n[^\n]*\w+ \w+')
keys(CTRL_C)
wait('tokens/s; context')
line('/save sea')
wait('Saved')
reply = messages('sea')[-1]
assert reply['role'] == 'assistant' and 2 < len(reply['content']) < 6000, reply
line('/undo')
wait('taken back')
line('/bye')
ends(0)
X
# A message that Ctrl-C takes back while it is read takes no earlier one along, for which it has no
# room.
at_terminal terminal_ctrl_c_in_a_message -n 4 -c 100 -sys 'Be brief.' --isa ref -t 1 <<'X'
line('Name a city.')
answered()
line('Name a river. ' * 16)
wait('prefill')
keys(CTRL_C)
wait(r'stopped\. Your message was not added')
wait(r'Name a river\. Name a river\.') # it is in the line again
keys(CTRL_U)
line('/save city')
wait('Saved')
said('city', 'Name a city.')
keys(CTRL_D)
ends(0)
X
# Text typed during an answer does not show in it, and is the next line.
at_terminal terminal_typing_in_an_answer -n 60 -c 1024 <<'X'
line('Write a very long story about the sea.')
wait(r'story[^\n]*\n[^\n]*\w+ \w+')
paste('Name\na river.')
wait('tokens/s; context')
keys('\r')
answered()
line('/save river')
wait('Saved')
said('river', 'Name\na river.')
keys(CTRL_D)
ends(0)
X
# A message without room comes back into the line.
at_terminal terminal_full_context_keeps_the_line -n 4 -c 64 -sys 'Be brief.' --no-context-shift <<'X'
line('Name a city. ' * 20)
wait('64 tokens is full')
wait('Name a city. Name a city.')
keys(CTRL_U, 'Name a city.\r')
answered()
line('/save short')
wait('Saved')
said('short', 'Name a city.')
line('/set predict 99')
line('Write a very long story about the sea.')
wait('context 64 of 64')
wait('64 tokens is full')
keys(CTRL_D)
ends(0)
X
# A dumb terminal shows control sequences as text, so it gets none.
TERM=dumb
at_terminal terminal_that_is_dumb -n 6 -c 512 <<'X'
line('Name a city.')
wait(r'\[\d+ tokens, [\d.]+ tokens/s; context \d+ of 512\]')
keys(CTRL_D)
ends(0)
if b'\033' in raw:
    fail('a control sequence')
X
TERM=emacs
at_terminal terminal_that_cannot_edit -n 4 -c 512 <<'X'
line('Name a city.')
answered()
prompt()
keys('many words ' * 400, '\r') # of which such a terminal drops the end
wait('cuts lines at 4095 characters; the line was not sent')
prompt()
line('/save short')
wait('Saved')
said('short', 'Name a city.')
keys(CTRL_D)
ends(0)
X
# While the memory of a long context is cleared, which takes seconds, a bar says so.
printf '%s\n' "wait(r'reserve +\\[')" "wait('context 30000')" "wait('tokens/s')" 'ends(0)' \
    "bars = re.findall(rb'\r(reserve[^\r\n\033]*)', raw)" \
    'assert not re.search(rb"%[^\r]*tandem", raw), raw # a bar is cleared before a text' \
    'assert bars and all(len(bar) < 40 for bar in bars), bars # a bar of two lines cannot be erased' |
    TERMINAL_COLUMNS=40 python3 "$(dirname "$0")/../lib/terminal.py" "$TANDEM" run -m "$MODEL" -p 'Once upon' -n 2 \
        --temp 0 -c 30000 >"$work/log" 2>&1 && echo 'ok terminal_long_context_is_announced' || {
    echo 'not ok terminal_long_context_is_announced'
    tail -n 5 "$work/log"
}
# Lines are broken between words, and shorter than the window.
TERM=xterm TERMINAL_COLUMNS=40
export TERMINAL_COLUMNS
at_terminal terminal_wraps_words -n 60 -c 512 <<'X'
line('Tell a long story.')
answered()
shown = re.sub(r'prefill +\[[#.]*\] +\d+%', '', seen()) # a bar, if the prompt takes long enough
answer = re.search(r'Tell a long story\.\n(.*?)\n\[', shown, re.S).group(1)
assert len(answer) > 100 and all(len(text) < 40 for text in answer.split('\n')), answer
keys(CTRL_D)
ends(0)
X
# The lines follow the window, in an answer that goes on however late it gets narrow.
at_terminal terminal_wraps_words_of_a_resized_window -c 4096 --ignore-eos <<'X'
line('Tell a long story.')
wait(r'story\.\n[^\n]*\n[^\n]*\w+ \w+')
resize(24)
wait(r'(\n[^\n]{1,23}){6}\n')
keys(CTRL_C)
answered()
keys(CTRL_D)
ends(0)
X
at_terminal terminal_help_is_narrow -n 4 -c 512 <<'X'
line('/help')
wait('ends the program\n> ')
shown = seen().split('/help\n')[-1].split('\n')
assert len(shown) > 12 and all(len(text) < 80 for text in shown), shown
keys(CTRL_D)
ends(0)
X
at_terminal terminal_no_wrap -n 60 -c 512 --no-wrap <<'X'
line('Tell a long story.')
answered()
shown = re.sub(r'prefill +\[[#.]*\] +\d+%', '', seen()) # a bar, if the prompt takes long enough
answer = re.search(r'Tell a long story\.\n(.*?)\n\[', shown, re.S).group(1)
assert any(len(text) > 40 for text in answer.split('\n')), answer
keys(CTRL_D)
ends(0)
X
unset TERMINAL_COLUMNS

# Ctrl-C again and again, while the device does not answer, ends the program; whenever it comes, the
# terminal is as it was before.
cat >"$work/around" <<'X'
trap : INT
stty -a >"$1/before"
"$2" chat -m "$3" --device sim:stall=1000:500 --vram 1G -ngl all -c 512
trap '' INT # nor does stty end by one that comes late
stty -a >"$1/after"
X
printf '%s\n' "wait('Ctrl-D ends the program')" "line('Write a very long story about the sea.')" \
    "wait('about the sea')" 'interrupt_until_closed()' 'ends(0)' 'assert b"\033[?2004l" in raw' |
    python3 "$(dirname "$0")/../lib/terminal.py" sh "$work/around" "$work" "$TANDEM_SIM" "$MODEL" >"$work/log" 2>&1 &&
    cmp "$work/before" "$work/after" && echo 'ok terminal_is_as_before_after_two_ctrl_c' || {
    echo 'not ok terminal_is_as_before_after_two_ctrl_c'
    tail -n 5 "$work/log"
    diff "$work/before" "$work/after"
}
# The same after a signal that ends the program, in a line and in an answer; the one that Ctrl-\
# sends stands for all.
cat >"$work/around" <<'X'
ulimit -c 0
trap : QUIT
stty -a >"$1/before"
"$2" chat -m "$3" --temp 0 -c 2048 --ignore-eos
echo "code $?"
stty -a >"$1/after"
X
# after_a_signal NAME: it comes after the steps of standard input.
after_a_signal() {
    rm -f "$work/after"
    {
        echo "wait('Ctrl-D ends the program')"
        cat
        printf '%s\n' "keys('\\x1c')" "wait('code 131')" 'ends(0)' 'assert b"\033[?2004l" in raw'
    } | python3 "$(dirname "$0")/../lib/terminal.py" sh "$work/around" "$work" "$TANDEM" "$MODEL" >"$work/log" 2>&1 &&
        cmp "$work/before" "$work/after" && echo "ok terminal_is_as_before_after_a_signal_in_$1" || {
        echo "not ok terminal_is_as_before_after_a_signal_in_$1"
        tail -n 5 "$work/log"
        diff "$work/before" "$work/after"
    }
}
after_a_signal a_line <<'X'
keys('Name a ci')
wait('Name a ci')
X
after_a_signal an_answer <<'X'
line('Tell a long story.')
wait(r'story\.\n[^\n]*\n[^\n]*\w+ \w+')
X
# Ctrl-Z hands the terminal to the shell, which gives it its own mode and marks no pastes. Behind fg
# the line is there again, and its keys.
cat >"$work/around" <<'X'
set -m
mode=$(stty -g)
"$1" chat -m "$2" --temp 0 -n 4 -c 512
stty "$mode"
printf '\033[?2004lin the shell\n'
fg
X
python3 "$(dirname "$0")/../lib/terminal.py" sh "$work/around" "$TANDEM" "$MODEL" >"$work/log" 2>&1 <<'X' &&
wait('Ctrl-D ends the program')
keys('Name a cit')
wait('Name a cit')
keys('\x1a')
wait(r'in the shell(.|\n)*> Name a cit')
assert b'\033[?2004h' in raw[raw.index(b'in the shell'):], raw
paste('y,\rplease')
wait('please')
keys(BACKSPACE, '\r')
answered()
line('/save stopped')
wait('Saved')
said('stopped', 'Name a city,\npleas')
keys(CTRL_D)
ends(0)
X
    echo 'ok terminal_is_taken_again_after_ctrl_z' || {
    echo 'not ok terminal_is_taken_again_after_ctrl_z'
    tail -n 5 "$work/log"
}
