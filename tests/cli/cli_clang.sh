#!/bin/sh
# cli_clang.sh: clang accepts every source of the libraries with the warnings of the Makefile, which
# stop a build. It reads them without writing code: every kernel of x86 is seen, in seconds.
set -u
. tests/lib/results.sh
if ! command -v clang >/dev/null; then
    echo 'ok 1 # SKIP clang is not here'
    exit 0
fi

# reads FILE: true if clang accepts every line of FILE, which are commands; complaints go to
# $work/err.
reads() {
    xargs -P 2 -d '\n' -I '{}' sh -c '{}' <"$1" >"$work/out" 2>&1
    code=$?
    grep -E '(error|warning): ' "$work/out" >"$work/err"
    [ $code -eq 0 ]
}

D=build/release
make -n -B CC=clang BUILD=release $D/libkernels.a $D/libtandem_all.a $D/libtest.a |
    sed -n 's/^.*\(clang -std=.*\) -MMD -MP -c -o [^ ]* /\1 -fsyntax-only /p' >"$work/commands"
[ "$(wc -l <"$work/commands")" -gt 250 ] 2>"$work/err"
result clang_has_commands
reads "$work/commands"
result clang_accepts_sources

echo 'short narrow(int wide); short narrow(int wide) { return wide; }' >"$work/bad.c"
sed -n "1s,[^ ]*[.]c\$,$work/bad.c,p" "$work/commands" >"$work/bad"
! reads "$work/bad" && grep -q 'implicit-int-conversion' "$work/err"
result clang_refuses_a_warning
