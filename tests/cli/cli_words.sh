#!/bin/sh
# cli_words.sh: what people read at the default level is in their words, not in the program's: help,
# texts around a run, warnings and errors. `tandem plan` has its own words, and -v may be technical.
set -u
: "${TANDEM:=build/tandem}" "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_STATE_HOME="$work/state"
ours='accelerator|lanes?|units?|rates|pass(es)?'

# reads NAME ARGUMENT...: neither stream has a word of ours.
reads() {
    name=$1
    shift
    "$TANDEM" "$@" >"$work/text" 2>&1 </dev/null
    if ! [ -s "$work/text" ] || grep -niwE "$ours" "$work/text" >"$work/found"; then
        echo "not ok words_$name"
        head -n 3 "$work/found"
    else
        echo "ok words_$name"
    fi
}

for command in run chat plan bench inspect devices calibrate doctor tokenize perplexity quantize pull list show rm help; do
    reads "help_$command" help $command
done
reads run run -m "$MODEL" -p 'Once upon a time' -n 4
reads chat chat -m "$MODEL" -p 'Name a city.' -n 4
reads bench bench -m "$MODEL" -p 8 -n 2 -r 1
reads perplexity perplexity -m "$MODEL" -f "$0" -c 64
reads devices devices
reads doctor doctor --device none
reads tokenize tokenize -m "$MODEL" -p hi
reads size run -m x -p y --vram 6
reads option run -m x -p y --nonsense
reads no_gpu run -m "$MODEL" -p hi -n 1 --device none -ngl 9 --strict
reads no_gpu_warned run -m "$MODEL" -p hi -n 1 --device none -ngl 9
reads no_gpu_for_tensors run -m "$MODEL" -p hi -n 1 --device none -ot ffn=GPU
reads pattern run -m "$MODEL" -p hi -n 1 --device none -ot nothing=CPU
reads too_little_memory run -m "$MODEL" -p hi -n 1 --device none --ram 40M
reads context run -m "$MODEL" -p 'one two three four five six' -c 4
reads device run -m "$MODEL" -p hi --device toaster
reads no_file run -m none.gguf -p hi
reads no_model run -m "$0" -p hi
