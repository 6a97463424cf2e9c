#!/bin/sh
# run.sh: runs test programs and scripts, counts every single test, and sums up in the last line.
#
#   sh tests/run.sh PROGRAM|SCRIPT.sh|"PROGRAM ARGUMENT..." ...     from the root of the tree
#
# At first TEST_JOBS of them run at once, as many as there are processors; then, one by one, those
# whose source has a line "# run: alone" or "// run: alone". Both come in the order of the list.
#
# Each prints "ok ..." or "not ok ..." per test (cmocka does so by itself here). Besides a failed
# test these count as one failure each: a crash, an exit code without a failed test, a run longer
# than TEST_TIMEOUT seconds, fewer tests than announced, and no test at all. The output of what
# failed is shown; all output stays in build/log/. Exit code 0 only if something ran and all passed.
set -u

: "${TEST_TIMEOUT:=480}" "${TEST_JOBS:=$(nproc 2>/dev/null || echo 1)}"
export CMOCKA_MESSAGE_OUTPUT=TAP
# A refused allocation gives NULL under the sanitizers too, as it does without them.
export ASAN_OPTIONS=allocator_may_return_null=1
# No test measures this machine unasked, or finds what was measured on it before.
export TANDEM_CALIBRATE=never XDG_CACHE_HOME="$PWD/build/no-cache"
passed=0 failed=0 skipped=0
mkdir -p build/log
# The results lie here, a file for each test, named by its place in the list. A lane takes a test by
# making a folder, which only one can.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
mkfifo "$work/done"

# Turns the output of one program into "passed failed skipped announced".
count() {
    LC_ALL=C awk '
        /^1\.\.[0-9]+/                   { announced += substr($0, 4) }
        /^(not )?ok( [0-9]+)?( -)? # SKIP/ { skipped++; next }
        /^ok( |$)/                       { passed++ }
        /^not ok( |$)/                   { failed++ }
        END { print passed + 0, failed + 0, skipped + 0, announced + 0 }' "$1"
}

# Why a program failed although none of its tests says so; empty if it did not.
trouble() { # exit code, passed, failed, skipped, announced
    if [ "$1" -eq 124 ] || [ "$1" -eq 137 ]; then echo "no end after $TEST_TIMEOUT s"
    elif [ "$1" -gt 128 ]; then echo "killed by signal $(($1 - 128))"
    elif [ "$1" -ne 0 ] && [ "$3" -eq 0 ]; then echo "exit code $1"
    elif [ "$5" -gt $(($2 + $3 + $4)) ]; then echo "$5 tests announced, $(($2 + $3 + $4)) ran"
    elif [ $(($2 + $3 + $4)) -eq 0 ]; then echo "ran no test"
    fi
}

is_alone() { # test
    source=${1%% *}
    case $source in build/*/tests/*) source=tests/${source#build/*/tests/}.c ;; esac
    grep -qsE '^(#|//) run: alone' "$source"
}

# Leaves "passed failed skipped" and, below it, what is to be shown in the result of that place.
run_one() { # place, test
    result=$work/$1 name=$(basename "${2%% *}" .sh)
    case $2 in build/*/tests/*) variant=${2#build/} variant=${variant%%/*} ;; *) variant=release ;; esac
    [ "$variant" = release ] || name="$variant/$name"
    log=build/log/$(echo "$name" | tr / -).log
    case $2 in *.sh) shell=sh ;; *) shell='' ;; esac

    start=$(date +%s%N)
    # shellcheck disable=SC2086
    timeout -k 5 "$TEST_TIMEOUT" $shell $2 </dev/null >"$log" 2>&1
    code=$?
    tenths=$((($(date +%s%N) - start) / 100000000))

    # shellcheck disable=SC2046
    set -- $(count "$log")
    why=$(trouble "$code" "$@")
    ok=$1 bad=$(($2 + (${#why} > 0)))
    text="$ok passed"
    [ "$bad" -gt 0 ] && text="$text, $bad failed${why:+ ($why)}"
    [ "$3" -gt 0 ] && text="$text, $3 skipped"
    [ "$bad" -gt 0 ] && mark=FAIL || mark='  ok'
    {
        echo "$ok $bad $3"
        printf '%s  %-28s %s.%s s   %s\n' "$mark" "$name" $((tenths / 10)) $((tenths % 10)) "$text"
        [ "$bad" -eq 0 ] || tail -n 60 "$log" | sed 's/^/      | /'
    } >"$result.unfinished"
    mv "$result.unfinished" "$result"
}

# Runs what nobody else has taken, and tells of each through the pipe.
lane() {
    place=0
    for test; do
        place=$((place + 1))
        if is_alone "$test"; then continue; fi
        mkdir "$work/taken.$place" 2>/dev/null || continue
        run_one "$place" "$test"
        echo "$place" >"$work/done"
    done
}

show() { # place
    read -r ok bad none <"$work/$1"
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + none))
    tail -n +2 "$work/$1"
}

exec 3<>"$work/done"
job=0
while [ $((job += 1)) -le "$TEST_JOBS" ]; do lane "$@" & done
place=0
for test; do
    place=$((place + 1))
    if is_alone "$test"; then continue; fi
    until [ -f "$work/$place" ]; do read -r _ <&3; done
    show "$place"
done
place=0
for test; do
    place=$((place + 1))
    if ! is_alone "$test"; then continue; fi
    run_one "$place" "$test"
    show "$place"
done
[ "$skipped" -eq 0 ] || echo "$skipped skipped"
[ $((passed + failed)) -gt 0 ] || echo 'no test ran'
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
