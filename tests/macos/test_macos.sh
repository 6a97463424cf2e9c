#!/bin/sh
# test_macos.sh: whether programs made for a Mac by make macos-check would start on one without
# anything installed: their format, their processor, and where they take what they do not hold.
#
#   MACOS_PROGRAMS="PROGRAM..." MACOS_TARGET=aarch64-macos.11.0 sh tests/macos/test_macos.sh
#
# Everything undefined has to come from libSystem, which is the C library of macOS; Metal is found at
# run time. The first program's file type and imports are printed. Nothing is run.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
system=/usr/lib/libSystem.B.dylib
case $MACOS_TARGET in x86_64*) cpu=x86_64 ;; *) cpu=arm64 ;; esac

result() { # exit code, name
    [ "$1" -eq 0 ] && echo "ok $2" || echo "not ok $2"
}

imports() { python3 tests/macos/imports.py "$1"; }

for program in $MACOS_PROGRAMS; do
    name=macos_$(basename "$program")
    imports "$program" >"$work/imports"
    result $? "${name}_is_a_program"
    grep -qx "cpu $cpu" "$work/imports"
    result $? "${name}_is_for_$cpu"
    grep -qx 'minimum 11.0' "$work/imports"
    result $? "${name}_needs_macos_11"
    awk '$1 == "library" { print $2 }' "$work/imports" | grep -vx "$system" >"$work/others"
    [ ! -s "$work/others" ] && grep -q "^library $system" "$work/imports"
    result $? "${name}_loads_libsystem_alone"
    sed 's/^/# /' "$work/others"
    grep '^symbol' "$work/imports" | grep -v "^symbol $system " >"$work/others"
    [ ! -s "$work/others" ] && grep -q "^symbol $system " "$work/imports"
    result $? "${name}_takes_all_from_libsystem"
    sed 's/^/# /' "$work/others"
    [ -f "$work/first" ] || cp "$work/imports" "$work/first"
done
awk '{ n[$1]++ } $1 != "symbol" { print "# " $0 } END { print "# " n["symbol"] " undefined symbols" }' "$work/first"

# Shows that the check can fail: a program of this system, a library and a text are refused.
imports /bin/sh >/dev/null 2>&1
[ $? -ne 0 ]
result $? macos_refuses_programs_of_other_systems
imports "$0" >/dev/null 2>&1
[ $? -ne 0 ]
result $? macos_refuses_text
