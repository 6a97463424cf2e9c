# results.sh: what the scripts of tests/cli share; they read it with ". tests/lib/results.sh". It makes
# the folder $work, which is removed at the end, and these functions. A script may set prefix, the
# beginning of the names of its tests.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=$work/out err=$work/err code='' prefix=''
: >"$out" >"$err"

# capture PROGRAM ARGUMENT...: runs it; sets code and keeps what it writes as $out and $err.
capture() {
    "$@" >"$out" 2>"$err"
    code=$?
}
# result NAME: prints whether the test before it succeeded.
result() {
    if [ $? -eq 0 ]; then
        echo "ok $prefix$1"
    else
        echo "not ok $prefix$1"
        echo "  code $code"
        head -n 5 "$out" "$err"
    fi
}
