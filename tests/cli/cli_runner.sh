#!/bin/sh
# cli_runner.sh: shows that the test runner counts right, that nothing bad passes for good (failed
# tests, crashes, hangs, tests that were announced and never ran, programs that ran none), what runs
# at once and what alone.
set -u
runner=$(pwd)/tests/run.sh
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

# runs NAME EXPECTED_LAST_LINE EXPECTED_CODE [SECONDS]: the script of standard input under the runner,
# which stops it after so long.
runs() {
    cat >"$1.sh"
    TEST_TIMEOUT=${4:-100} sh "$runner" "$1.sh" >"$1.out" 2>&1
    code=$?
    if [ "$(tail -n 1 "$1.out")" = "$2" ] && [ "$code" -eq "$3" ]; then
        echo "ok runner_$1"
    else
        echo "not ok runner_$1"
        cat "$1.out"
    fi
}

runs counts_passes '2 passed, 0 failed' 0 <<'X'
echo '1..2'; echo 'ok 1 - a'; echo 'noise: not ok'; echo 'ok b'
X
runs counts_failures '1 passed, 2 failed' 1 <<'X'
echo 'ok a'; echo 'not ok 2 - b'; echo 'not ok c'; exit 2
X
runs counts_skipped_tests_as_neither '1 passed, 0 failed' 0 <<'X'
echo '1..2'; echo 'ok 1 - a'; echo 'not ok 2 # SKIP b'
X
runs fails_an_exit_code '1 passed, 1 failed' 1 <<'X'
echo 'ok a'; exit 3
X
runs fails_a_crash '1 passed, 1 failed' 1 <<'X'
echo 'ok a'; kill -SEGV $$
X
runs fails_a_crash_after_a_failure '0 passed, 2 failed' 1 <<'X'
echo 'not ok a'; kill -SEGV $$
X
runs fails_a_hang '1 passed, 1 failed' 1 5 <<'X'
echo 'ok a'; while :; do sleep 1; done
X
runs fails_a_missing_test '1 passed, 1 failed' 1 <<'X'
echo '1..3'; echo 'ok 1 - a'
X
runs fails_no_test '0 passed, 1 failed' 1 <<'X'
true
X

sh "$runner" >none.out 2>&1
if [ $? -eq 1 ] && [ "$(tail -n 1 none.out)" = '0 passed, 0 failed' ]; then
    echo 'ok runner_fails_an_empty_list'
else
    echo 'not ok runner_fails_an_empty_list'
fi
grep -q '| not ok 2 - b' counts_failures.out && echo 'ok runner_shows_the_output_of_failures' ||
    echo 'not ok runner_shows_the_output_of_failures'

# Each waits for the other, the first one longer; the third was given first and runs by itself.
cat >alone.sh <<'Y'
# run: alone
[ -f a ] && [ -f b ] && ! [ -f running ] && echo 'ok c'
Y
cat >first.sh <<'Y'
touch running a
until [ -f b ]; do sleep 0.1; done
sleep 0.3
rm running
echo 'ok a'
Y
cat >second.sh <<'Y'
touch b
until [ -f a ]; do sleep 0.1; done
echo 'ok b'
Y
TEST_TIMEOUT=100 TEST_JOBS=2 sh "$runner" alone.sh first.sh second.sh >order.out 2>&1
if [ $? -eq 0 ] && [ "$(tail -n 1 order.out)" = '3 passed, 0 failed' ]; then
    echo 'ok runner_runs_at_once_what_may'
else
    echo 'not ok runner_runs_at_once_what_may'
    cat order.out
fi
if [ "$(awk '{ printf "%s ", $2 }' order.out)" = 'first second alone passed, ' ]; then
    echo 'ok runner_keeps_the_order'
else
    echo 'not ok runner_keeps_the_order'
fi
rm -f a b
TEST_TIMEOUT=5 TEST_JOBS=1 sh "$runner" first.sh second.sh >one.out 2>&1
if [ "$(tail -n 1 one.out)" = '1 passed, 1 failed' ]; then
    echo 'ok runner_runs_one_after_the_other'
else
    echo 'not ok runner_runs_one_after_the_other'
fi
