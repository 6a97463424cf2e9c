#!/bin/sh
# run.sh: runs test programs and scripts, counts every single test, and sums up in the last line.
#
#   sh tests/run.sh PROGRAM|SCRIPT.sh|"PROGRAM ARGUMENT..." ...     from the root of the tree
#
# Each prints "ok ..." or "not ok ..." per test (cmocka does so by itself here). Besides a failed
# test these count as one failure each: a crash, an exit code without a failed test, a run longer
# than TEST_TIMEOUT seconds, fewer tests than announced, and no test at all. The output of what
# failed is shown; all output stays in build/log/. Exit code 0 only if something ran and all passed.
set -u

: "${TEST_TIMEOUT:=480}"
export CMOCKA_MESSAGE_OUTPUT=TAP
# A refused allocation gives NULL under the sanitizers too, as it does without them.
export ASAN_OPTIONS=allocator_may_return_null=1
# No test measures this machine unasked, or finds what was measured on it before.
export TANDEM_CALIBRATE=never XDG_CACHE_HOME="$PWD/build/no-cache"
passed=0 failed=0 skipped=0
mkdir -p build/log

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

run_one() {
    name=$(basename "${1%% *}" .sh)
    case $1 in build/*/tests/*) variant=${1#build/} variant=${variant%%/*} ;; *) variant=release ;; esac
    [ "$variant" = release ] || name="$variant/$name"
    log=build/log/$(echo "$name" | tr / -).log
    case $1 in *.sh) shell=sh ;; *) shell='' ;; esac

    start=$(date +%s%N)
    # shellcheck disable=SC2086
    timeout -k 5 "$TEST_TIMEOUT" $shell $1 </dev/null >"$log" 2>&1
    code=$?
    tenths=$((($(date +%s%N) - start) / 100000000))

    # shellcheck disable=SC2046
    set -- $(count "$log")
    why=$(trouble "$code" "$@")
    ok=$1 bad=$(($2 + (${#why} > 0)))
    passed=$((passed + ok)) failed=$((failed + bad)) skipped=$((skipped + $3))

    text="$ok passed"
    [ "$bad" -gt 0 ] && text="$text, $bad failed${why:+ ($why)}"
    [ "$3" -gt 0 ] && text="$text, $3 skipped"
    [ "$bad" -gt 0 ] && mark=FAIL || mark='  ok'
    printf '%s  %-28s %s.%s s   %s\n' "$mark" "$name" $((tenths / 10)) $((tenths % 10)) "$text"
    [ "$bad" -eq 0 ] || tail -n 60 "$log" | sed 's/^/      | /'
}

for test; do run_one "$test"; done
[ "$skipped" -eq 0 ] || echo "$skipped skipped"
[ $((passed + failed)) -gt 0 ] || echo 'no test ran'
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
