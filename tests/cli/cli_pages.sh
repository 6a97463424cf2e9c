#!/bin/sh
# cli_pages.sh: the manual page and the completions name every command and every option of the help,
# and their readers take them.
set -u
: "${TANDEM:=build/tandem}"
. tests/lib/results.sh
prefix=pages_

commands='run chat plan bench inspect devices calibrate doctor tokenize perplexity quantize imatrix pull list show rm'
for page in man bash zsh fish; do
    "$TANDEM" help --$page >"$work/$page" 2>"$work/err" && ! [ -s "$work/err" ] &&
        ! grep -q "$(printf '\t')" "$work/$page"
    result "$page"
    for command in $commands; do grep -q "\\b$command\\b" "$work/$page" || echo "$command"; done \
        >"$work/lacking"
    [ -s "$work/$page" ] && ! [ -s "$work/lacking" ]
    result "${page}_names_every_command"
done
for command in $commands; do
    "$TANDEM" help $command | grep -oE '^  -[^ ,]+(, -[^ ,]+)*' | tr -d ' ' | tr ',' '\n'
done | sort -u >"$work/options"
sed 's/\\-/-/g' "$work/man" >"$work/plain"
while read -r option; do
    grep -qF -- "$option" "$work/plain" && grep -qF -- "$option" "$work/bash" &&
        grep -qF -- "$option" "$work/zsh" || echo "$option"
done <"$work/options" >"$work/lacking"
[ "$(wc -l <"$work/options")" -gt 100 ] && ! [ -s "$work/lacking" ]
result every_option
bash -n "$work/bash" && bash -c '. "$1"; COMP_WORDS=(tandem ch); COMP_CWORD=1; _tandem
    [ "${COMPREPLY[*]}" = chat ] || exit 1
    COMP_WORDS=(tandem chat --context --reasoning-f); COMP_CWORD=3; _tandem
    [ "${COMPREPLY[*]}" = --reasoning-format ]' bash "$work/bash"
result bash_completes
bash -c '. "$1"; COMP_WORDS=(tandem help "ch"); COMP_CWORD=2; _tandem
    [ "${COMPREPLY[*]}" = chat ]' bash "$work/bash"
result bash_completes_after_help
# Where the other shells are, they read theirs; everywhere no description has lost its quotes.
if command -v fish >/dev/null; then
    fish -N -c "source $work/fish; complete -C 'tandem help ch'; complete -C 'tandem run --esca'" >"$work/shown" 2>&1
    grep -q '^chat' "$work/shown" && grep -qF 'turn \n \r' "$work/shown"
    result fish_completes
fi
if command -v zsh >/dev/null; then
    zsh -n "$work/zsh"
    result zsh_reads_it
fi
grep -qF "command\'s options" "$work/fish" && grep -qF "command'\\''s options" "$work/zsh"
result quotes_in_descriptions
if command -v man >/dev/null; then
    MANWIDTH=80 man --warnings -l "$work/man" >"$work/shown" 2>"$work/err"
    [ "$(wc -l <"$work/shown")" -gt 300 ] && ! [ -s "$work/err" ]
    result man_shows_it
fi
"$TANDEM" help --nonsense >"$work/out" 2>"$work/err"
[ $? -eq 2 ] && grep -q 'no page --nonsense' "$work/err"
result unknown_page
