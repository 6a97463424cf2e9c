#!/bin/sh
# cli_tiny.sh: every tiny model of tests/golden/tiny: token ids are equal, logits are exact to
# rounding with the definition of the ops, and with the fastest kernels where weights are F32, within
# the error of 8-bit activations where they are not, and neither batch size nor thread count changes
# a bit of them.
set -u
: "${TANDEM:=build/tandem}" "${TOOLS:=build/release/tests}"
tiny=tests/golden/tiny
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

check() { # name, exit code of the test before it, detail
    if [ "$2" -eq 0 ]; then echo "ok $1 ${3:-}"; else echo "not ok $1 ${3:-}"; fi
}
# logits FILE OPTION...: the logits of the prompt, all positions.
logits() {
    file=$1
    shift
    "$TANDEM" run -q -m "$model" -f $tiny/prompt.txt -n 0 --logits-out "$file" "$@"
}
# judged FILE MAX_NMSE: prints the comparison.
judged() { "$TOOLS/lib/check_logits" "$tiny/$name.bin" "$1" "$2"; }

for golden in "$tiny"/*.bin; do
    name=$(basename "$golden" .bin)
    model=$tiny/$name.gguf
    [ -f "$model" ] || model=$(echo "$tiny/$name"-00001-of-*.gguf)
    rm -f "$work"/*

    "$TANDEM" tokenize -q -m "$model" -f $tiny/prompt.txt --ids | cmp - "$tiny/$name.ids.txt"
    check "tiny_ids_$name" $?

    detail=$(logits "$work/ref" --isa ref -ctk f32 -ctv f32 && judged "$work/ref" 1e-9)
    check "tiny_ref_$name" $? "$detail"
    logits "$work/ref_split" --isa ref -ctk f32 -ctv f32 -ub 7 && cmp "$work/ref" "$work/ref_split"
    check "tiny_ref_split_$name" $?

    # The parts of a split file hold less than a model.
    if [ "$model" = "$tiny/$name.gguf" ]; then
        "$TOOLS/lib/widen_gguf" "$model" "$work/wide.gguf"
        detail=$(model=$work/wide.gguf logits "$work/wide" -ctk f32 -ctv f32 &&
            judged "$work/wide" 1e-9)
        check "tiny_wide_$name" $? "$detail"
    fi

    detail=$(logits "$work/fast" && judged "$work/fast" 3e-3)
    check "tiny_fast_$name" $? "$detail"
    for options in '-ub 7' '-ub 1' '-t 1'; do
        # shellcheck disable=SC2086
        logits "$work/other" $options && cmp "$work/fast" "$work/other"
        check "tiny_same_bits_${name}_with_$(echo "$options" | tr -d ' -')" $?
    done
done
