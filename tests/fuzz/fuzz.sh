#!/bin/sh
# fuzz.sh: runs each fuzzer for some seconds and stops at the first finding.
#
#   sh tests/fuzz/fuzz.sh SECONDS PROGRAM...
#
# A corpus grows in build/fuzz/corpus/NAME; tests/corpus/NAME, where it exists, seeds it. What was
# found lies beside it as NAME-crash-*, to be replayed with: PROGRAM FILE
set -eu

seconds=$1
shift
[ $# -gt 0 ] || { echo 'tandem: there are no fuzzers yet' >&2; exit 1; }
for program; do
    name=$(basename "$program")
    corpus=build/fuzz/corpus/$name
    seeds=tests/corpus/$name
    mkdir -p "$corpus"
    [ -d "$seeds" ] || seeds=''
    log=build/fuzz/$name.log
    # shellcheck disable=SC2086
    if ! "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=4096 -max_len=65536 \
        -artifact_prefix="build/fuzz/$name-" "$corpus" $seeds >"$log" 2>&1; then
        tail -n 40 "$log"
        echo "FAIL  $name: see $log"
        exit 1
    fi
    runs=$(sed -n 's/^Done \([0-9]*\) runs.*/\1/p' "$log")
    echo "  ok  $name: $runs runs in $seconds s, $(ls "$corpus" | wc -l) inputs in the corpus"
done
