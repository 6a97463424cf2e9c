#!/bin/sh
# cli_prompt_cache.sh: run --prompt-cache: the text is that of a run without it, whatever is kept and
# wherever it was computed; what cannot be used is refused and left as it is.
set -u
: "${TANDEM:=build/tandem}" "${TANDEM_SIM:=build/tandem-sim}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

check() { # name, exit code of the test before it
    if [ "$2" -eq 0 ]; then echo "ok prompt_cache_$1"; else
        echo "not ok prompt_cache_$1"
        tail -n 3 "$work/err"
    fi
}
# write MODEL PROMPT OPTION...: writes the text to $work/text and leaves the exit code.
write() {
    model=$1 prompt=$2
    shift 2
    "$TANDEM" run -m "tests/golden/tiny/$model.gguf" -p "$prompt" -n 6 --temp 1 --seed 5 \
        --repeat-penalty 1.3 -t 2 "$@" >"$work/text" 2>"$work/err"
}
kept() { sed -n 's/^tandem: \([0-9]*\) of the prompt.*/\1/p' "$work/err"; }

long='ab ba abba ab ba abba ab ba abba ab ba abba'
for model in plain gemma3 qwen35; do
    file=$work/$model.session
    write $model "$long" && cp "$work/text" "$work/first"
    write $model "$long" --prompt-cache "$file" && [ -s "$file" ] && [ -z "$(kept)" ] &&
        cmp "$work/first" "$work/text"
    check "${model}_new" $?
    write $model "$long" --prompt-cache "$file" && [ "$(kept)" -gt 10 ] &&
        cmp "$work/first" "$work/text"
    check "${model}_same" $?
    : >"$work/empty"
    write $model "$long" --prompt-cache "$work/empty" && [ -z "$(kept)" ] &&
        cmp "$work/first" "$work/text" && [ -s "$work/empty" ]
    check "${model}_empty_file_is_a_new_one" $?
    for other in "$long ab" "ab ba abba b" "b"; do
        write $model "$other" && cp "$work/text" "$work/wanted"
        write $model "$other" --prompt-cache "$file" --prompt-cache-ro && [ -n "$(kept)" ] &&
            cmp "$work/wanted" "$work/text"
        check "${model}_$(echo "$other" | wc -c)_characters" $?
    done
done

# A file of the CPU goes on where a device has some layers.
"$TANDEM_SIM" run -m tests/golden/tiny/plain.gguf -p "$long" -n 6 --temp 1 --seed 5 \
    --repeat-penalty 1.3 --device sim:vram=64M -ngl 2 --prompt-cache "$work/plain.session" \
    >"$work/text" 2>"$work/err" && [ "$(kept)" -gt 10 ]
code=$?
write plain "$long" && cp "$work/text" "$work/first"
[ $code -eq 0 ] && "$TANDEM_SIM" run -m tests/golden/tiny/plain.gguf -p "$long" -n 6 --temp 1 \
    --seed 5 --repeat-penalty 1.3 --device sim:vram=64M -ngl 2 --prompt-cache "$work/plain.session" \
    2>"$work/err" | cmp "$work/first" -
check other_placement $?

cp "$work/plain.session" "$work/before"
write plain "$long ab" --prompt-cache "$work/plain.session" --prompt-cache-ro &&
    cmp "$work/before" "$work/plain.session"
check read_only $?
write plain "$long" --prompt-cache "$work/plain.session" --prompt-cache-all &&
    [ "$(wc -c <"$work/plain.session")" -gt "$(wc -c <"$work/before")" ]
check all_keeps_the_text $?

# refused NAME CODE WORD MODEL OPTION...: an error with that word and a way out; the file stays.
refused() {
    name=$1 code=$2 word=$3 model=$4
    shift 4
    cp "$work/plain.session" "$work/before"
    write "$model" "$long" "$@"
    [ $? -eq "$code" ] && grep -q "$word" "$work/err" && [ ! -s "$work/text" ] &&
        cmp "$work/before" "$work/plain.session"
    check "$name" $?
}
refused other_model 2 'model' gemma3 --prompt-cache "$work/plain.session"
refused other_cache_type 2 "keys\|type" plain --prompt-cache "$work/plain.session" -ctk f32
refused all_alone 2 'prompt-cache FILE' plain --prompt-cache-all
refused with_logits 2 'logits-out' plain --prompt-cache "$work/plain.session" \
    --logits-out "$work/logits"
printf 'xyz' | dd of="$work/plain.session" bs=1 seek=200 conv=notrunc 2>/dev/null
refused damaged 1 'plain.session' plain --prompt-cache "$work/plain.session"
head -c 100 "$work/before" >"$work/plain.session"
refused cut_short 1 'plain.session' plain --prompt-cache "$work/plain.session"
# A pipe, which stands for /dev/null, is refused before the prompt is read, and stays.
mkfifo "$work/pipe"
write plain "$long" --prompt-cache "$work/pipe"
[ $? -eq 1 ] && [ -p "$work/pipe" ] && ! [ -s "$work/text" ] && grep -q 'pipe: No such device' "$work/err"
check pipe $?
