#!/bin/sh
# cli_malformed.sh: what the whole program does with broken model files: every file that the reader
# must refuse, and random mutants of small models. It may succeed or fail with a message; it may not
# crash, hang or fail silently.
# run: alone
set -u
: "${TANDEM:=build/tandem}" "${TOOLS:=build/release/tests}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Sanitizers are slow: fewer mutants.
case $TANDEM in
*/asan/* | */ubsan/* | */tsan/*) batches=2 ;;
*) batches=4 ;;
esac
per_batch=200

# Looks at the files it is given; prints a line for each that is handled wrong, "opened FILE" for
# each that can be read, and "ran FILE" for each that can even be run.
cat >"$work/look" <<'X'
out=$(mktemp) err=$(mktemp)
fine() { # code, file, what
    case $1 in
    0) return 0 ;;
    1) tail -n 2 "$err" | grep -q '^tandem: error: ' && return 1 ;; # the way out may follow
    esac
    echo "wrong $3 $2: code $1, $(head -n 1 "$err")"
    return 1
}
for file; do
    timeout 10 "$TANDEM" inspect "$file" >"$out" 2>"$err"
    fine $? "$file" inspect || continue
    echo "opened $file"
    timeout 10 "$TANDEM" run -m "$file" -p ab -n 2 --device none -t 1 >"$out" 2>"$err"
    fine $? "$file" run && echo "ran $file"
done
rm -f "$out" "$err"
X
export TANDEM
look() { # list of files on standard input; appends to $work/seen
    xargs -P 2 -n 25 sh "$work/look" >>"$work/seen"
}
# result NAME: prints whether the test before it succeeded.
result() {
    if [ $? -eq 0 ]; then echo "ok $1"; else echo "not ok $1"; grep '^wrong' "$work/seen" | head -n 5; fi
}
count() { grep -c "^$1" "$work/seen"; }

# ---- Broken on purpose ---------------------------------------------------------------------------
mkdir "$work/broken"
"$TOOLS/runtime/test_gguf" --write "$work/broken"
: >"$work/seen"
ls "$work/broken" | sed "s,^,$work/broken/," | look
[ "$(ls "$work/broken" | wc -l)" -gt 50 ] && [ "$(count wrong)" -eq 0 ]
result malformed_no_broken_file_crashes
[ "$(count ran)" -eq 0 ] && [ "$(count opened)" -lt 20 ]
result malformed_broken_files_are_refused
for valid in valid valid-values; do
    grep -q "^opened $work/broken/$valid.gguf" "$work/seen"
    result "malformed_${valid}_is_not"
done

# ---- Mutants -------------------------------------------------------------------------------------
for model in tests/golden/tiny/q4_1_biases.gguf tests/golden/tiny/padded_rows.gguf; do
    name=$(basename "$model" .gguf) batch=0
    : >"$work/seen"
    while [ $batch -lt $((batches / 2)) ]; do
        mkdir "$work/mutants"
        "$TOOLS/lib/write_mutants" "$model" $((batch * per_batch + 1)) $per_batch "$work/mutants"
        ls "$work/mutants" | sed "s,^,$work/mutants/," | look
        rm -rf "$work/mutants"
        batch=$((batch + 1))
    done
    [ "$(count wrong)" -eq 0 ]
    result "malformed_mutants_of_$name"
    # Enough of them got far enough to mean something.
    [ "$(count opened)" -gt 10 ] && [ "$(count ran)" -gt 0 ]
    result "malformed_mutants_of_${name}_reach_the_model"
    echo "# $name: $((batch * per_batch)) mutants, $(count opened) opened, $(count ran) ran"
done
