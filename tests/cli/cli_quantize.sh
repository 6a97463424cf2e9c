#!/bin/sh
# cli_quantize.sh: tandem quantize: tiny models in every mixture run and give nearly the logits that
# they gave before; bytes do not depend on threads; nothing is overwritten or left behind.
set -u
: "${TANDEM:=build/tandem}" "${TOOLS:=build/release/tests}" "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}"
prompt=tests/golden/tiny/prompt.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

check() { # name, exit code of the test before it, detail
    if [ "$2" -eq 0 ]; then echo "ok $1 ${3:-}"; else echo "not ok $1 ${3:-}"; fi
}
fails() { # name, exit code, text that standard error must hold, command...
    name=$1 code=$2 text=$3
    shift 3
    "$@" >"$work/out" 2>"$work/err"
    got=$?
    [ $got -eq "$code" ] && grep -q -e "$text" "$work/err"
    check "$name" $? "exit code $got: $(head -c 300 "$work/err")"
}
logits() { # model, file
    "$TANDEM" run -q -m "$1" -f $prompt -n 0 --isa ref --logits-out "$2"
}
nmse() { # file, file, limit
    python3 -c '
import array, sys
a, b = (array.array("f", open(name, "rb").read()) for name in sys.argv[1:3])
error = sum((x - y) ** 2 for x, y in zip(a, b)) / sum(x * x for x in a)
print("nmse %.2g" % error)
sys.exit(len(a) != len(b) or not error <= float(sys.argv[3]))' "$@"
}

"$TOOLS/lib/write_tiny" "$work/dense.gguf" && "$TOOLS/lib/write_tiny" "$work/experts.gguf" 4
check quantize_tiny_models $?
# The logits of random weights react more to errors than those of trained ones, and with experts most
# of all, since some tokens go to others: the limits are twice what was measured.
for model in dense experts; do
    logits "$work/$model.gguf" "$work/$model.f32"
    for row in 'F32 0 0' 'F16 1e-5 1e-5' 'BF16 1e-4 1e-3' 'Q8_0 1e-3 6e-3' 'Q6_K 1e-3 6e-3' 'Q5_K_M 3e-2 7e-2' 'Q5_K_S 3e-2 7e-2' \
        'Q5_1 3e-2 7e-2' 'Q5_0 4e-2 1e-1' 'Q4_K_M 4e-2 1e-1' 'Q4_K_S 4e-2 1e-1' 'Q4_1 1e-1 3e-1' \
        'Q4_0 1.5e-1 3e-1' 'IQ4_NL 1e-1 3e-1' 'IQ4_XS 1e-1 3e-1' 'Q2_K 1.5e-1 3.5e-1' 'Q3_K_L 1e-1 3e-1' 'Q3_K_M 1e-1 3e-1' 'Q3_K_S 1e-1 3e-1' 'MXFP4_MOE 1e-3 1.5e-1'; do
        # shellcheck disable=SC2086
        set -- $row
        type=$1 limit=$2
        [ $model = dense ] || limit=$3
        out=$work/$model.$type.gguf
        "$TANDEM" quantize -q "$work/$model.gguf" "$out" "$type" &&
            logits "$out" "$work/out.f32" &&
            detail=$(nmse "$work/$model.f32" "$work/out.f32" "$limit")
        check "quantize_${model}_$type" $? "${detail:-}"
        if [ "$type" = Q4_K_M ]; then
            "$TANDEM" quantize -q -t 3 "$work/$model.gguf" "$work/other" q4_k_m &&
                cmp "$out" "$work/other"
            check "quantize_same_bytes_by_3_threads_$model" $?
            rm -f "$work/other"
        fi
    done
done
"$TANDEM" inspect -v -m "$work/experts.MXFP4_MOE.gguf" 2>"$work/log" | grep -q 'MXFP4 .*ffn_down_exps'
check quantize_experts_are_mxfp4 $?

# Experts that a checkpoint has in MXFP4 stay as they are; all else becomes Q8_0.
oss=tests/golden/tiny/converted_gpt_oss.gguf
experts_of() { "$TANDEM" inspect -v -m "$1" 2>/dev/null | grep 'MXFP4 .*_exps'; }
"$TANDEM" quantize -q $oss "$work/oss.gguf" MXFP4_MOE 2>"$work/log" &&
    experts_of $oss >"$work/before" && experts_of "$work/oss.gguf" >"$work/after" &&
    cmp "$work/before" "$work/after" &&
    "$TANDEM" inspect -v -m "$work/oss.gguf" 2>/dev/null | grep -q 'Q8_0 .*attn_q.weight'
check quantize_mxfp4_experts_stay $? "$(cat "$work/log")"
fails quantize_mxfp4_experts_name_the_type 1 'MXFP4_MOE' "$TANDEM" quantize $oss "$work/new" Q4_K_M

"$TANDEM" quantize -q --pure --output-tensor-type q8_0 --token-embedding-type f16 \
    "$work/experts.gguf" "$work/ruled.gguf" Q4_1 &&
    "$TANDEM" inspect -v -m "$work/ruled.gguf" >"$work/tensors" 2>/dev/null &&
    grep -q 'Q8_0 .* output.weight' "$work/tensors" && grep -q 'F16 .* token_embd' "$work/tensors" &&
    grep -q 'Q4_1 .* blk.0.attn_v' "$work/tensors"
check quantize_rules $?
echo 'ffn_down=q5_1 attn_k=f16' >"$work/types"
"$TANDEM" quantize --tensor-type blk.1.attn_v=q8_0 --tensor-type nothing=q4_0 \
    --tensor-type-file "$work/types" "$work/dense.gguf" "$work/named.gguf" Q4_1 2>"$work/log" &&
    "$TANDEM" inspect -v -m "$work/named.gguf" >"$work/tensors" 2>/dev/null &&
    grep -q 'Q8_0 .* blk.1.attn_v' "$work/tensors" && grep -q 'Q4_1 .* blk.0.attn_v' "$work/tensors" &&
    grep -q 'Q5_1 .* blk.2.ffn_down' "$work/tensors" && grep -q 'F16 .* blk.3.attn_k' "$work/tensors" &&
    grep -q 'warning: --tensor-type nothing=Q4_0' "$work/log"
check quantize_patterns $? "$(cat "$work/log")"
fails quantize_rule_names_types 2 'output-tensor-type.*Q4_K' \
    "$TANDEM" quantize --output-tensor-type q9 "$work/dense.gguf" "$work/new" Q8_0

"$TANDEM" quantize -q --override-kv general.name=str:Mine --override-kv llama.context_length=int:77 \
    "$work/dense.gguf" "$work/keys.gguf" Q8_0 &&
    "$TANDEM" inspect -m "$work/keys.gguf" >"$work/out" 2>/dev/null &&
    grep -q 'Mine' "$work/out" && grep -q '77' "$work/out"
check quantize_keys $? "$(head -c 200 "$work/out")"
fails quantize_key_needs_a_type 2 'KEY=TYPE:VALUE' \
    "$TANDEM" quantize --override-kv a=1 "$work/dense.gguf" "$work/new" Q8_0

# Layers may go one after the other or at once: the second one is called as the first was.
"$TANDEM" quantize -q --prune-layers 0 "$work/dense.gguf" "$work/less.gguf" COPY &&
    "$TANDEM" quantize -q --prune-layers 0 "$work/less.gguf" "$work/least.gguf" Q8_0 &&
    "$TANDEM" quantize -q --prune-layers 1,0 "$work/dense.gguf" "$work/both.gguf" Q8_0 &&
    cmp "$work/least.gguf" "$work/both.gguf" && logits "$work/both.gguf" "$work/out.f32"
check quantize_prunes_layers $?
n_layers=$("$TANDEM" inspect -m "$work/dense.gguf" 2>/dev/null | sed -n 's/.*llama.block_count = u32: //p')
all=$(seq -s, 0 $((n_layers - 1)))
for list in "$n_layers" '' 1, ,1 a -1 '1 2' 99999999999999999999 "$all"; do
    fails "quantize_wrong_layers_$list" 2 'prune-layers: .*layer\|prune-layers: the list' \
        "$TANDEM" quantize "--prune-layers=$list" "$work/dense.gguf" "$work/new" Q8_0
done

# A dry run says what the real one makes, and writes nothing.
"$TANDEM" quantize --json -q "$work/dense.gguf" "$work/real.gguf" Q4_0 | grep -v '"file"' >"$work/real.json" &&
    "$TANDEM" quantize --json --dry-run "$work/dense.gguf" Q4_0 | grep -v '"file"' >"$work/dry.json" &&
    cmp "$work/real.json" "$work/dry.json"
check quantize_dry_run_json $?
"$TANDEM" quantize -v --dry-run "$work/dense.gguf" "$work/new" Q4_0 >"$work/out" 2>"$work/log" &&
    grep -q '^Q4_0 would have .* bits per weight$' "$work/out" &&
    grep -q 'blk.0.attn_v.weight: F16 to Q4_0' "$work/log"
check quantize_dry_run $? "$(cat "$work/out")"
fails quantize_dry_run_needs_a_type 2 'needs a model' "$TANDEM" quantize --dry-run "$work/dense.gguf"

parts=tests/golden/tiny/split-00001-of-00003.gguf
"$TANDEM" quantize -q $parts "$work/joined.gguf" COPY && logits $parts "$work/parts.f32" &&
    logits "$work/joined.gguf" "$work/joined.f32" && cmp "$work/parts.f32" "$work/joined.f32"
check quantize_copy_joins_parts $?
# The parts stay with their tensors, whose types are those of the whole file.
"$TANDEM" quantize -q --keep-split $parts "$work/same.gguf" COPY &&
    cmp "$work/same-00002-of-00003.gguf" tests/golden/tiny/split-00002-of-00003.gguf &&
    cmp "$work/same-00003-of-00003.gguf" tests/golden/tiny/split-00003-of-00003.gguf &&
    logits "$work/same-00001-of-00003.gguf" "$work/out.f32" &&
    cmp "$work/parts.f32" "$work/out.f32"
check quantize_keeps_parts $?
"$TANDEM" quantize --allow-requantize --keep-split $parts "$work/kept" Q4_K_M 2>"$work/log" &&
    grep -q 'in 3 parts' "$work/log" &&
    "$TANDEM" quantize -q --allow-requantize $parts "$work/whole.gguf" Q4_K_M &&
    logits "$work/kept-00001-of-00003.gguf" "$work/out.f32" &&
    logits "$work/whole.gguf" "$work/whole.f32" && cmp "$work/whole.f32" "$work/out.f32"
check quantize_types_of_parts $?
rm "$work/same-00001-of-00003.gguf" "$work/same-00003-of-00003.gguf"
fails quantize_overwrites_no_part 1 'same-00002-of-00003.gguf.*exists' \
    "$TANDEM" quantize --keep-split $parts "$work/same.gguf" COPY
[ ! -e "$work/same-00001-of-00003.gguf" ] && [ ! -e "$work/same-00003-of-00003.gguf" ]
check quantize_leaves_no_part $?
"$TANDEM" quantize -q --keep-split "$work/dense.gguf" "$work/one.gguf" COPY &&
    logits "$work/one-00001-of-00001.gguf" "$work/out.f32" && cmp "$work/dense.f32" "$work/out.f32"
check quantize_keeps_one_part $?
fails quantize_split_is_read 1 'quantised already' "$TANDEM" quantize "$parts" "$work/new" Q8_0
fails quantize_refuses_quantised 1 'allow-requantize' "$TANDEM" quantize "$MODEL" "$work/new" Q4_0
# F32 of a file's blocks means the same, and from Q8_0 hardly anything is lost.
"$TANDEM" quantize -q --allow-requantize "$work/dense.Q4_K_M.gguf" "$work/again.gguf" F32 &&
    logits "$work/dense.Q4_K_M.gguf" "$work/before.f32" &&
    logits "$work/again.gguf" "$work/again.f32" &&
    detail=$(nmse "$work/before.f32" "$work/again.f32" 1e-10)
check quantize_blocks_become_floats $? "${detail:-}"
rm "$work/again.gguf"
"$TANDEM" quantize -q --allow-requantize "$work/dense.Q8_0.gguf" "$work/again.gguf" Q4_K_M &&
    logits "$work/again.gguf" "$work/again.f32" &&
    detail=$(nmse "$work/dense.f32" "$work/again.f32" 4e-2)
check quantize_again $? "${detail:-}"
fails quantize_refuses_to_overwrite 1 'exists' \
    "$TANDEM" quantize "$work/dense.gguf" "$work/experts.gguf" Q4_0
fails quantize_needs_a_type 2 'needs a model' "$TANDEM" quantize "$work/dense.gguf" "$work/new"
fails quantize_names_the_types 2 'Q4_K_M' "$TANDEM" quantize "$work/dense.gguf" "$work/new" Q9
fails quantize_missing_source 1 'No such file' "$TANDEM" quantize "$work/none" "$work/new" Q8_0
fails quantize_missing_folder 1 'No such file' \
    "$TANDEM" quantize "$work/dense.gguf" "$work/none/new" Q8_0
head -c 3000 "$work/dense.gguf" >"$work/cut.gguf"
fails quantize_cut_source 1 'error' "$TANDEM" quantize "$work/cut.gguf" "$work/new" Q8_0
fails quantize_bad_importance 1 'importance' \
    "$TANDEM" quantize --imatrix $prompt "$work/dense.gguf" "$work/new" Q8_0
# A file of at most 40 blocks of 512 bytes stands for a disk that fills up.
fails quantize_full_disk 1 'File too large' sh -c \
    'trap "" XFSZ; ulimit -f 40; exec "$1" quantize "$2" "$3" Q8_0' - \
    "$TANDEM" "$work/dense.gguf" "$work/new"
ls "$work" | grep -q -e '^new' -e 'part$'
[ $? -eq 1 ]
check quantize_leaves_nothing_behind $?

"$TANDEM" quantize --json -q -o "$work/new" --type Q8_0 -m "$work/dense.gguf" | grep -q '"tensors": *[1-9]'
check quantize_json $?
