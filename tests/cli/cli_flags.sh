#!/bin/sh
# cli_flags.sh: the options of llama-cli: each spelling is one of tandem's, or has no effect and a
# line says why, or is refused by its name; and command lines of model cards start.
set -u
: "${TANDEM:=build/tandem}" "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_STATE_HOME="$work/state"

# ---- Every spelling ------------------------------------------------------------------------------
# NAME, or NAME=VALUE where a value follows.
spellings='-m=x --model=x -p=x --prompt=x -f=/dev/null --file=/dev/null -n=4 --predict=4 --n-predict=4
-c=64 --ctx-size=64 -b=64 --batch-size=64 -ub=64 --ubatch-size=64 -t=1 --threads=1 -tb=1
--threads-batch=1 -ngl=9 --gpu-layers=9 --n-gpu-layers=9 -ot=x=CPU --override-tensor=x=CPU -cmoe
--cpu-moe -ncmoe=2 --n-cpu-moe=2 -ctk=f16 --cache-type-k=f16 -ctv=f16 --cache-type-v=f16 --temp=1
--top-k=4 --top-p=0.9 --min-p=0.1 --repeat-penalty=1.1 --repeat-last-n=8 -s=1 --seed=1 -e --escape
--no-escape --ignore-eos --device=none -dev=none -v --verbose -r=x --reverse-prompt=x
--presence-penalty=1 --frequency-penalty=1 --dry-multiplier=1 --dry-base=2 --dry-allowed-length=2
--dry-penalty-last-n=8 --dry-sequence-breaker=x --xtc-probability=0.1 --xtc-threshold=0.1
--top-nsigma=1 --top-n-sigma=1 --typical=0.9 --typical-p=0.9 --mirostat=1 --mirostat-lr=0.1
--mirostat-ent=5 --dynatemp-range=0.1 --dynatemp-exp=1 --samplers=top_k --sampling-seq=k
--sampler-seq=k -l=1+1 --logit-bias=1+1 -fa=on -fa --flash-attn=auto --jinja --no-mmap --mmap --mlock
-dio --direct-io -cnv --conversation -no-cnv --no-conversation -st --single-turn -i --interactive -if
--interactive-first -mli --multiline-input --no-display-prompt --color -co --warmup --no-warmup --perf
--no-perf --log-disable --log-file=/dev/null --log-colors --log-prefix --log-timestamps -lv=1 --verbosity=1
--verbose-prompt --simple-io -fit=on --fit=on -fitt=512 --fit-target=512 -fitc=4096 --fit-ctx=4096
--offline --op-offload --no-op-offload --no-host --repack -nr --no-repack -kvo -nkvo --no-kv-offload
-sm=row --split-mode=row -ts=1,1 --tensor-split=1,1 -mg=0 --main-gpu=0 --prio=2 --prio-batch=2
--poll=50 --poll-batch=1 -C=ff --cpu-mask=ff -Cr=0-1 --cpu-range=0-1 --cpu-strict=1 -Cb=ff -Crb=0-1
--cpu-mask-batch=ff --cpu-range-batch=0-1 --cpu-strict-batch=1 --numa=numactl --keep=4
--context-shift --no-context-shift -np=1 --parallel=1 -cb --swa-full --check-tensors -sp --special
-hf=a/b --hf-repo=a/b -hff=x --hf-file=x -hft=x --hf-token=x -mu=a/b --model-url=a/b -dr=x --lora=x
--lora-scaled=x --control-vector=x --mmproj=x -mm=x --image=x --audio=x -md=x --model-draft=x
-ngld=9 --gpu-layers-draft=9 --draft=4 --draft-max=4 --draft-min=1 --draft-p-min=0.5 --spec-type=ngram-simple
--rope-scaling=yarn --rope-scale=2 --rope-freq-base=1 --rope-freq-scale=1 --yarn-orig-ctx=1
--yarn-ext-factor=1 --yarn-attn-factor=1 --yarn-beta-slow=1 --yarn-beta-fast=1 -gan=2 -gaw=512
--override-kv=a=int:1 --grammar=x --grammar-file=x -j={} --json-schema={} -jf=x
--json-schema-file=x --prompt-cache=x --prompt-cache-all --prompt-cache-ro -bf=x --binary-file=x
--in-prefix=x --in-suffix=x --in-prefix-bos
--rpc=x -ncffn=2 --host=x --port=8080 --temperature=1 --log-verbose --list-devices --license
--completion-bash --no-jinja --no-log-prefix --no-log-timestamps -dt=1 --defrag-thold=1 -ctxcp=3
--ctx-checkpoints=3 --swa-checkpoints=3 -cram=1 --cache-ram=1 --mmproj-auto --no-mmproj
--no-mmproj-auto --mmproj-offload --no-mmproj-offload -mmu=x --mmproj-url=x -mmdev=x
--mmproj-device=x --video=x --image-min-tokens=1 --image-max-tokens=1 --reasoning-effort=low
--reasoning-preserve --no-reasoning-preserve --output-file=x --log-prompts-dir=x --server-base=x
--lazy-mode=x --skip-chat-parsing --no-skip-chat-parsing -hfd=x -hfrd=x --hf-repo-draft=x
--spec-draft-hf=x --spec-draft-ngl=1 --n-gpu-layers-draft=1 --spec-draft-model=x -devd=x
--device-draft=x --spec-draft-device=x -td=1 --threads-draft=1 --spec-draft-threads=1 -tbd=1
--threads-batch-draft=1 --spec-draft-threads-batch=1 -ctkd=f16 --cache-type-k-draft=f16
--spec-draft-type-k=f16 -ctvd=f16 --cache-type-v-draft=f16 --spec-draft-type-v=f16 -otd=x
--override-tensor-draft=x --spec-draft-override-tensor=x -cmoed --cpu-moe-draft
--spec-draft-cpu-moe -ncmoed=1 --n-cpu-moe-draft=1 --spec-draft-n-cpu-moe=1 --draft-p-split=1
--spec-draft-p-split=1 --spec-draft-p-min=1 --spec-draft-n-max=3 --spec-draft-n-min=3
--spec-ngram-simple-size-n=3 --spec-ngram-simple-size-m=8 --spec-ngram-simple-min-hits=1
--spec-ngram-map-k-size-n=3 --spec-ngram-map-k-size-m=8 --spec-ngram-map-k-min-hits=1
--spec-ngram-map-k4v-size-n=3 --spec-ngram-map-k4v-size-m=8 --spec-ngram-map-k4v-min-hits=1
--spec-ngram-mod-n-min=1 --spec-ngram-mod-n-max=8 --spec-ngram-mod-n-match=8
--spec-default --gpt-oss-20b-default --gpt-oss-120b-default --vision-gemma-4b-default
--vision-gemma-12b-default'
for command in run chat; do
    for spelling in $spellings; do
        name=${spelling%%=*}
        case $spelling in
        *=*) "$TANDEM" $command -p y -m "$work/none.gguf" "$name" "${spelling#*=}" ;;
        *) "$TANDEM" $command -p y -m "$work/none.gguf" "$name" ;;
        esac >"$work/out" 2>&1
        if grep -qiE 'unknown|did you mean|unexpected|does not belong' "$work/out"; then
            echo "  $spelling: $(head -n 1 "$work/out")"
        fi
    done >"$work/wrong"
    [ ! -s "$work/wrong" ] && [ "$(echo "$spellings" | wc -w)" -gt 240 ] &&
        echo "ok flags_every_spelling_has_a_name_in_$command" || {
        echo "not ok flags_every_spelling_has_a_name_in_$command"
        cat "$work/wrong"
    }
done

# Those of a conversation.
for flag in '-sys x' '--system-prompt x' '--chat-template chatml' '--chat-template-file x' '--chat-template-kwargs {}' \
    '--reasoning-format none' '--reasoning-format deepseek' '--reasoning off' '-rea on' '-sysf /dev/null' '--reasoning-budget 0' '--no-wrap' '--no-context-shift' '-cnv' '-st'; do
    # shellcheck disable=SC2086
    "$TANDEM" chat -p y -m "$work/none.gguf" $flag >"$work/out" 2>&1
    grep -q 'none.gguf: No such file' "$work/out" && ! grep -q unknown "$work/out" ||
        echo "  $flag: $(head -n 1 "$work/out")"
done >"$work/wrong"
[ ! -s "$work/wrong" ] && echo "ok flags_of_a_conversation" || { echo "not ok flags_of_a_conversation"
    cat "$work/wrong"; }

# Those of llama-bench, with values, which are no models.
for flag in '-nkvo 0' '-nkvo 1' '--no-host 0' '--repack 0' '-fa 0,1' '-fa on' '-mmp 0' '--mmap 0,1' '-embd 0' \
    '--embeddings 1' '-nopo 0' '-dio 0' '--poll 50' '-sm layer' '-mg 0' '-ts 1/1' '-C 0xff' '--cpu-strict 0' \
    '--prio 0' '--numa distribute' '-lm none' '-ncmoe 0' '-fitt 512' '-fitc 4096' '-r 1' '--delay 0' '-dev none'; do
    # shellcheck disable=SC2086
    "$TANDEM" bench $flag "$work/none.gguf" >"$work/out" 2>&1
    grep -q 'none.gguf: No such file' "$work/out" || echo "  $flag: $(head -n 1 "$work/out")"
done >"$work/wrong"
[ ! -s "$work/wrong" ] && echo "ok flags_of_llama_bench" || { echo "not ok flags_of_llama_bench"
    cat "$work/wrong"; }

# ---- Command lines of model cards and forums -----------------------------------------------------
# starts NAME ARGUMENT...: text comes, and each option without effect has its line.
starts() {
    name=$1
    shift
    if "$TANDEM" "$@" -m "$MODEL" -n 3 -c 256 >"$work/out" 2>"$work/err" </dev/null &&
        [ -s "$work/out" ]; then
        echo "ok flags_$name"
    else
        echo "not ok flags_$name"
        head -n 3 "$work/err"
    fi
}
starts reasoning_card chat --jinja -ngl 99 -fa on -sm row --temp 0.6 --top-k 20 --top-p 0.95 --min-p 0 \
    --no-context-shift -p 'Name a city.'
grep -q '^tandem: --jinja has no effect: ' "$work/err" && grep -q 'fa has no effect' "$work/err" &&
    echo "ok flags_without_effect_are_told" || echo "not ok flags_without_effect_are_told"
starts presence run -ngl 99 --temp 0.7 --top-p 0.8 --top-k 20 --min-p 0 --presence-penalty 1.5 -p Once
starts experts run -ngl 99 --n-cpu-moe 20 --prio 3 -fa --no-warmup -p Once
starts all_experts run -cmoe -ngl 99 --no-mmap -ub 64 -t 2 -p Once
starts conversation chat -cnv --color -co --simple-io -p 'Name a city.'
starts locked run --no-mmap --mlock -p Once
starts no_conversation run -no-cnv --no-display-prompt --seed 42 -p Once
starts cache_types run -ctk q8_0 -ctv q8_0 --flash-attn on -p Once
starts fitted run -fit on -fitt 512 -fitc 4096 -p Once
starts single_turn chat -st --no-perf --log-disable --jinja -sys 'Be brief.' -p 'Name a city.'
for flag in '-dr a/b' '--mmproj x.gguf' '--lora x.gguf' '-devd x'; do
    # shellcheck disable=SC2086
    "$TANDEM" run $flag -p y -m "$MODEL" >"$work/out" 2>&1
    [ $? -eq 2 ] && grep -qF -- "${flag%% *} is not in tandem yet" "$work/out" ||
        echo "  $flag: $(head -n 1 "$work/out")"
done >"$work/wrong"
[ ! -s "$work/wrong" ] && echo "ok flags_not_in_tandem_yet" || { echo "not ok flags_not_in_tandem_yet"
    cat "$work/wrong"; }

# Standard error goes to the file; an error to both.
"$TANDEM" run -p Once -m "$MODEL" -n 2 --log-file "$work/log" >"$work/out" 2>"$work/err" && [ -s "$work/out" ] &&
    ! [ -s "$work/err" ] && grep -q 'prompt .* tokens' "$work/log" &&
    ! "$TANDEM" run -p y -m "$work/none.gguf" --log-file "$work/log" 2>"$work/err" &&
    grep -q 'No such file' "$work/log" && grep -q 'No such file' "$work/err" &&
    echo "ok flags_log_file" || echo "not ok flags_log_file"
# Instructions from a file are those of the command line.
printf 'Answer in capitals.\n\n' >"$work/system"
"$TANDEM" chat -m "$MODEL" -c 256 -n 6 --temp 0 -p 'Name a city.' -sysf "$work/system" >"$work/out" 2>"$work/err" &&
    "$TANDEM" chat -m "$MODEL" -c 256 -n 6 --temp 0 -p 'Name a city.' -sys 'Answer in capitals.' 2>"$work/other.err" |
    cmp - "$work/out" && grep -o 'prompt .* tokens' "$work/err" >"$work/a" &&
    grep -o 'prompt .* tokens' "$work/other.err" >"$work/b" && [ -s "$work/out" ] &&
    echo "ok flags_system_prompt_file" || echo "not ok flags_system_prompt_file"

# No number of likeliest tokens means all of them.
for k in 0 -1 1; do
    "$TANDEM" run -p Once -m "$MODEL" -n 8 -c 64 -s 7 --temp 2 --top-p 1 --min-p 0 -q --top-k $k >"$work/k$k" 2>"$work/err"
done
[ -s "$work/k0" ] && cmp -s "$work/k0" "$work/k-1" && ! cmp -s "$work/k0" "$work/k1" &&
    echo "ok flags_top_k_of_all" || echo "not ok flags_top_k_of_all"

# A model's file has a say in sampling where no option has: here one key stands in another's place.
LC_ALL=C sed 's/tokenizer.ggml.padding_token_id/general.sampling.penalty_last_n/' "$MODEL" >"$work/keys.gguf"
recent() { # output, model, options
    out=$1 model=$2
    shift 2
    "$TANDEM" run -m "$model" -p 'One two three one two' -n 16 -c 64 --temp 0 --repeat-penalty 3 "$@" >"$out" 2>"$out.err"
}
recent "$work/by_key" "$work/keys.gguf" && recent "$work/by_option" "$MODEL" --repeat-last-n 2 &&
    recent "$work/given" "$work/keys.gguf" --repeat-last-n 64 && recent "$work/usual" "$MODEL"
[ -s "$work/by_key" ] && cmp -s "$work/by_key" "$work/by_option" && cmp -s "$work/given" "$work/usual" &&
    ! cmp -s "$work/by_key" "$work/usual" && ! grep -q 'asks for' "$work/given.err" &&
    grep -q 'file asks for --repeat-last-n 2[.] ' "$work/by_key.err" &&
    echo "ok flags_sampling_of_the_model" || echo "not ok flags_sampling_of_the_model"
rm -f "$work/keys.gguf"

# CUDA0 is the first device of that kind: what fails is the driver, not the name.
"$TANDEM" run -dev CUDA0 -p y -m "$MODEL" -n 1 >"$work/out" 2>&1
! grep -q 'unknown kind' "$work/out" && echo "ok flags_device_of_llama_cpp" ||
    echo "not ok flags_device_of_llama_cpp"

# ---- The environment -----------------------------------------------------------------------------
LLAMA_ARG_MODEL=$MODEL LLAMA_ARG_N_PREDICT=0 "$TANDEM" run -p 'Once upon' >"$work/out" 2>"$work/err" &&
    ! [ -s "$work/out" ] && grep -q 'prompt .* 2 tokens' "$work/err" &&
    echo "ok flags_from_the_environment" || echo "not ok flags_from_the_environment"
# No variable makes a right command line fail.
export LLAMA_ARG_HF_REPO=a/b LLAMA_ARG_THREADS=2 LLAMA_ARG_CTX_SIZE=8192 LLAMA_ARG_SWA_FULL=1 \
    LLAMA_ARG_N_GPU_LAYERS=99 HF_ENDPOINT=http://127.0.0.1:1
plan="--shape llama-3.3-70b --machine rtx-3060-12g --ram 64G"
# shellcheck disable=SC2086
"$TANDEM" bench -m "$work/none.gguf" 2>&1 | grep -q 'none.gguf: No such file' &&
    "$TANDEM" bench --list-devices >"$work/out" 2>&1 && "$TANDEM" plan --machine list >"$work/out" &&
    "$TANDEM" plan $plan --strategy cpu --save "$work/plan" >"$work/out" 2>&1 &&
    "$TANDEM" plan $plan --plan "$work/plan" >"$work/out" 2>&1 &&
    grep -q '^Llama 3.3 70B' "$work/out" &&
    echo "ok flags_exclude_variables" || { echo "not ok flags_exclude_variables"
    head -n 3 "$work/out"; }
unset LLAMA_ARG_HF_REPO LLAMA_ARG_THREADS LLAMA_ARG_CTX_SIZE LLAMA_ARG_SWA_FULL LLAMA_ARG_N_GPU_LAYERS HF_ENDPOINT
