#!/bin/sh
# cli_words.sh: what people read at the default level is in their words, not in the program's: help,
# plans, texts around a run, warnings and errors. -v may be technical.
set -u
: "${TANDEM:=build/tandem}" "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_STATE_HOME="$work/state"
ours='accelerator|lanes?|units?|rates|pass(es)?|fix:'

# reads NAME ARGUMENT...: neither stream has a word of ours, or a way out in the sentence itself.
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
for model in llama-3.1-8b gpt-oss-20b qwen3.5-9b llama-3.3-70b; do
    for machine in gtx-1060-6g-ddr4 rtx-3060-12g mac-m2-16g cpu-only two-gpus; do
        reads "plan_${model}_$machine" plan --shape $model --machine $machine --ram 64G
    done
done
reads plan_refused plan --shape llama-3.3-70b --machine rtx-3060-12g
reads plan_refused_by_strategy plan --shape gpt-oss-20b --machine rtx-3060-12g --strategy cpu -ngl 3
"$TANDEM" plan --shape gpt-oss-20b --machine rtx-3060-12g --save "$work/saved" >"$work/text"
reads plan_of_another_machine plan --shape gpt-oss-20b --machine cpu-only --plan "$work/saved"
sed 's/"blk.3.attention": "[a-z]*",//' "$work/saved" >"$work/lacking"
reads plan_that_lacks_a_name plan --shape gpt-oss-20b --machine rtx-3060-12g --plan "$work/lacking"
sed 's/"kind": "cuda"/"kind": "cpu"/' "$work/saved" >"$work/other"
reads plan_of_no_gpu plan --shape gpt-oss-20b --machine rtx-3060-12g --plan "$work/other"
reads run run -m "$MODEL" -p 'Once upon a time' -n 4
reads chat chat -m "$MODEL" -p 'Name a city.' -n 4
reads bench bench -m "$MODEL" -p 8 -n 2 -r 1
reads perplexity perplexity -m "$MODEL" -f "$0" -c 64
reads devices devices
head -c 200000 "$MODEL" >"$work/cut.gguf"
reads inspect_of_a_cut_file inspect "$work/cut.gguf"
sed 's/smollm/nobody/' "$MODEL" >"$work/nobody.gguf"
reads inspect_of_what_cannot_run inspect "$work/nobody.gguf"
rm "$work/nobody.gguf"
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
