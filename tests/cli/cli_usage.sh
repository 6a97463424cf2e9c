#!/bin/sh
# cli_usage.sh: what the command line says and returns: help, wrong options and values, missing
# files, standard output that is full, Ctrl-C.
set -u
: "${TANDEM:=build/tandem}" "${TANDEM_SIM:=build/tandem-sim}"
: "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}"
. tests/lib/results.sh

# call ARGUMENT...: runs the program; sets code, $out and $err.
call() { capture "$TANDEM" "$@"; }

# wrong NAME TEXT ARGUMENT...: code 2, nothing on standard output, a line that holds TEXT or, like
# the second line, says what to do and where help is.
wrong() {
    name=$1 text=$2
    shift 2
    call "$@"
    [ "$code" -eq 2 ] && ! [ -s "$out" ] && [ "$(wc -l <"$err")" -eq 2 ] &&
        grep -qF -- "$text" "$err" && grep -qF "'tandem help" "$err"
    result "usage_$name"
}

# fails NAME TEXT ARGUMENT...: code 1 and a message that holds TEXT.
fails() {
    name=$1 text=$2
    shift 2
    call "$@"
    [ "$code" -eq 1 ] && ! [ -s "$out" ] && grep -qF -- "$text" "$err"
    result "usage_$name"
}

# ---- Help ----------------------------------------------------------------------------------------
call help
[ $code -eq 0 ] && ! [ -s "$err" ] && grep -q '^usage: tandem COMMAND' "$out"
result usage_help
sed -n '/^Examples/q; s/^  \([a-z][a-z]*\)  *[^ ].*/\1/p' "$out" >"$work/commands"
[ "$(wc -l <"$work/commands")" -eq 18 ]
result usage_help_lists_the_commands
sed -n '/general\.architecture:$/,/^$/p' "$out" | sed 1d | tr -d ' ' | tr ',' '\n' |
    grep . | sort >"$work/families"
sed -n '/^| `general/,/^$/p' README.md | sed 1d | cut -d'|' -f2 | grep -o '`[^`]*`' |
    tr -d '`' | sort >"$work/readme"
[ "$(wc -l <"$work/families")" -gt 50 ] && diff "$work/families" "$work/readme"
result usage_help_and_readme_list_the_same_families
while read -r command; do
    case $command in help | version) continue ;; esac
    call "$command" --help
    cp "$out" "$work/page"
    call help "$command"
    [ $code -eq 0 ] && cmp -s "$out" "$work/page" && grep -q "^usage: tandem $command" "$out"
    result "usage_help_$command"
    tail -n 1 "$out" | grep -q "^  tandem $command "
    result "usage_help_${command}_ends_with_an_example"
done <"$work/commands"
for command in --version -V version 'run --version' 'plan -m x --version'; do
    # shellcheck disable=SC2086
    call $command
    [ $code -eq 0 ] && grep -qE '^tandem [0-9]+\.[0-9]+\.[0-9]+$' "$out"
    result "usage_version_by_${command}"
done
call help
cp "$out" "$work/page"
call
[ $code -eq 0 ] && cmp -s "$out" "$work/page" && ! [ -s "$err" ]
result usage_alone_lists_the_commands
for command in 'help -h' 'help --help' 'version -h' 'version --usage' 'help help' --help; do
    # shellcheck disable=SC2086
    call $command
    [ $code -eq 0 ] && cmp -s "$out" "$work/page"
    result "usage_help_by_${command}"
done
call help
[ "$(wc -L <"$out")" -le 96 ] && grep -q '^  tandem run -m model.gguf -p "' "$out"
result usage_help_is_narrow_and_has_examples
for command in run chat plan; do
    "$TANDEM" help $command | grep -qE 'perplexity|bench:|tokenize:|plan:|chat:'
    [ $? -eq 1 ]
    result "usage_help_${command}_is_about_it_alone"
done
"$TANDEM_SIM" help run >"$out" 2>"$err"
grep -q '^  sim ' "$out"
result usage_help_lists_the_devices

# ---- Wrong usage ---------------------------------------------------------------------------------
wrong unknown_command "Did you mean 'run'" runn -m x
wrong swapped_letters "Did you mean 'run'" rnu -m x
for command in ps serve; do
    wrong command_of_a_server_$command 'there is no server' $command
done
wrong several_options '(did you mean --top-k?); --jsn is unknown (did you mean --json?)' run -m x -p y --topk 3 --jsn
wrong option_first 'a command comes first' -m x -p y
wrong file_first 'tandem chat -m x/y.gguf' x/y.gguf
wrong unknown_topic "Did you mean 'run'" help runn
wrong beginning_of_an_option 'Did you mean --ctx-size' run -m x -p y --ctx 7
wrong unknown_option 'Did you mean --top-k' run -m x -p y --topk 3
wrong foreign_option "does not belong to 'tandem inspect'" inspect x -ngl 3
wrong joined_value 'next argument: -n N' run -m x -p y -n20
wrong joined_by_a_sign 'next argument: -p TEXT' run -m x -p=hi
wrong missing_value 'option -n needs a value: N' run -m x -p y -n
wrong bad_number "got 'many'" run -m x -p y -n many
wrong bad_range 'from 0 to 1' run -m x -p y --top-p 2
wrong bad_size 'such as 6G' run -m x -p y --vram huge
wrong tiny_vram 'Did you mean 6G?' run -m x -p y --vram 6
wrong tiny_ram 'Did you mean 6G?' plan -m x --ram 6
wrong tiny_vram_of_bench 'Did you mean 6G?' bench -m "$MODEL" --vram 6
wrong bad_isa 'avx512, vbmi, zen4, avx512bf16, neon, dotprod, i8mm or auto' run -m x -p y --isa mmx
wrong bad_strategy 'streamed or row-split' run -m x -p y --strategy best
wrong bad_feed 'arena, staged or auto' run -m x -p y --feed pinned
wrong bad_wait_limit "got '0'" run -m x -p y --wait-limit 0
wrong foreign_trace "does not belong to 'tandem plan'" plan -m x --trace y
wrong later_kv_type 'not supported yet' run -m x -p y -ctk q5_1
wrong no_model 'needs a model' run -p y
wrong empty_model 'option -m: expected a file, got' run -m '' -p y
wrong empty_model_of_bench 'option -m: expected a file, got' bench -m x -m ''
for option in -f --prompt-cache --log-file --trace --logits-out --grammar-file; do
    wrong "empty_${option}" "option $option: expected a file, got ''" run -m x -p y $option ''
done
wrong no_text 'needs a text' run -m x
wrong two_texts 'just one text' run -m x -p y -f z
wrong unknown_device 'unknown kind' run -m "$MODEL" -p y -q --device toaster
wrong no_gpu 'a GPU' run -m "$MODEL" -p y -q --device none -ngl 3 --strict
for gpu in GPU gpu CUDA0 Metal; do
    wrong no_gpu_for_tensors_$gpu 'no usable GPU' plan -m "$MODEL" --device none -ot ffn=$gpu
done
wrong empty_stop 'at least one character' run -m "$MODEL" -p y -q --stop ''
wrong empty_prompt 'prompt is empty' run -m "$MODEL" -p '' -q
# Empty texts are told before the model is loaded, which says where its weights are.
: >"$work/empty"
printf '\n' >"$work/line"
for command in run chat perplexity; do
    call $command -m "$MODEL" -f "$work/empty"
    [ $code -eq 2 ] && grep -q 'is empty\|nothing to score' "$err" && ! grep -q weights "$err"
    result usage_empty_file_of_$command
done
call run -m "$MODEL" -f "$work/line"
[ $code -eq 2 ] && grep -q 'prompt is empty' "$err" && ! grep -q weights "$err"
result usage_empty_line
call run -m tests/golden/tiny/gemma2.gguf -f "$work/empty" -n 1 # texts begin with a token
[ $code -eq 0 ]
result usage_empty_file_behind_a_token
call chat -m "$MODEL" -p '' -f "$work/empty"
[ $code -eq 2 ] && grep -q 'question is empty' "$err" && ! grep -q weights "$err"
result usage_empty_question
call chat -m "$MODEL" -p hi -f "$work/empty" -n 1
[ $code -eq 0 ]
result usage_empty_file_beside_a_question
wrong context_of_one 'at least 2' perplexity -m "$MODEL" -f tests/cli/cli_usage.sh -q -c 1

# ---- The world fails -----------------------------------------------------------------------------
fails no_model_file 'No such file' run -m "$work/none.gguf" -p y
fails name_as_model_file 'of that name at huggingface.co: -hf org/repo:Q8_0' run -m org/repo:Q8_0 -p y
fails name_as_model_file_of_bench 'huggingface.co: -hf org/repo' bench -m org/repo
fails address_as_model_file 'one at huggingface.co: -mu https://x/y.gguf' chat -m https://x/y.gguf
fails no_file_to_show "$work/none.gguf: No such file" show "$work/none.gguf"
fails no_folder_to_show 'none/x.gguf: No such file' show none/x.gguf
fails no_cache_folder "$work/none/x: No such file" run -m "$work/none.gguf" -p y -q \
    --prompt-cache "$work/none/x"
fails folder_as_model "$work" inspect "$work"
fails no_prompt_file 'No such file' run -m "$MODEL" -f "$work/none.txt"
fails no_trace_folder "$work/none/x: No such file" run -m "$work/none.gguf" -p y \
    --trace "$work/none/x"
fails no_grammar_file "$work/none.gbnf: No such file" run -m "$work/none.gguf" -p y \
    --grammar-file "$work/none.gbnf"
fails no_grammar 'rule rest is not defined' run -m "$work/none.gguf" -p y --grammar 'root ::= rest'
fails no_schema "no type 'thing'" run -m "$work/none.gguf" -p y -j '{"type":"thing"}'
for file in -f -sysf; do
    call chat -m "$MODEL" $file "$work/none.txt"
    [ $code -eq 1 ] && [ "$(wc -l <"$err")" -eq 1 ] && grep -q 'none.txt: No such file' "$err"
    result "usage_no_file_of_${file}_is_told_before_loading"
    call chat -m "$MODEL" $file "$work"
    [ $code -eq 1 ] && [ "$(wc -l <"$err")" -eq 1 ] && grep -q "$work: Is a directory" "$err"
    result "usage_folder_as_file_of_${file}_is_told_before_loading"
done
# The model's file is asked about conversations before a plan is made, for which there is no room.
echo '[{"name": "look", "parameters": {"type": "object"}}]' >"$work/tools"
echo '[{"name": "look", "parameters": {"type": "thing"}}]' >"$work/wrong_tools"
early() { # name, what is said, argument...
    name=$1 said=$2
    shift 2
    call chat -m "$MODEL" -p y --ram 16M "$@"
    [ $code -eq 1 ] && grep -q -e "$said" "$err" && ! grep -q weights "$err"
    result "usage_${name}_before_loading"
}
early no_chat_template "$work/none: No such file" --chat-template "$work/none"
early no_named_chat_template 'Did you mean chatml' --chat-template chatml2
early no_way_to_call_tools 'calls of tools is not known' --tools "$work/tools"
cat >"$work/template" <<'X'
{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}<|im_start|>assistant
X
early wrong_schema_of_a_tool "no type 'thing'" --tools "$work/wrong_tools" \
    --chat-template "$work/template"
call chat -m "$MODEL" -p y --ram 16M
[ $code -ne 0 ] && grep -q weights "$err"
result usage_no_room_is_told_else
fails no_logits_folder 'No such file' run -m "$MODEL" -p y --logits-out "$work/none/x"
echo old >"$work/old"
fails logits_without_a_model 'none.gguf' run -m "$work/none.gguf" -p y --logits-out "$work/old"
fails logits_of_a_text_too_long 'at most 3' run -m "$MODEL" -p 'one two three four five' -c 3 -q \
    --logits-out "$work/old"
[ "$(cat "$work/old"*)" = old ]
result usage_old_logits_stay_where_there_are_no_new_ones
fails prompt_too_long 'at most 3' run -m "$MODEL" -p 'one two three four five' -c 3 -q
echo 'this is no model' >"$work/text.gguf"
fails no_gguf 'text.gguf' run -m "$work/text.gguf" -p y
# other NAME TEXT BYTES: the error of a file that is something else says by TEXT what to do.
other() {
    # shellcheck disable=SC2059
    printf "$3" >"$work/$1.gguf"
    fails "no_gguf_but_$1" "$2" inspect "$work/$1.gguf"
}
other safetensors 'convert_hf_to_gguf.py' '\140\0\0\0\0\0\0\0{"__metadata__":{"format":"pt"}}'
other hole 'incomplete or damaged' '\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0'
other zip 'a zip archive' 'PK\3\4\24\0'
other gzip 'gunzip' '\037\213\010\0'
other zstd 'unzstd' '\050\265\057\375\0'
other ggml 'before GGUF' 'tjgg\0\0\0\0'
other pointer 'git lfs pull' 'version https://git-lfs.github.com/spec/v1\noid sha256:0\n'
other page '/resolve/' '\n  <!DOCTYPE html><html><head><title>x</title></head></html>\n'
other answer "a server's error" '{"error":"Invalid username or password."}'
sed 's/llama[.]/llomo./g; s/\(\x05\x00\x00\x00\x00\x00\x00\x00\)llama/\1llomo/' "$MODEL" >"$work/other.gguf"
fails other_architecture "models of architecture llomo are not supported yet" run -m "$work/other.gguf" -p y
sed -n 2p "$err" | grep -q "^  'tandem plan' works; these run: llama, "
result usage_other_architecture_says_what_runs
call plan -m "$work/other.gguf" --device none
[ $code -eq 0 ] && grep -q '(llomo): 30 layers' "$out"
result usage_other_architecture_is_planned
rm "$work/other.gguf"
mkdir "$work/folder.gguf"
head -c 200000 "$MODEL" >"$work/cut.gguf"
head -c 3000000 "$MODEL" >"$work/short.gguf"
for kind in none folder text cut short; do
    for command in 'run -p y' 'plan' 'inspect' 'tokenize -p y'; do
        # shellcheck disable=SC2086
        call $command -m "$work/$kind.gguf"
        [ $code -eq 1 ] && [ "$(grep -o "$kind[.]gguf" "$err" | wc -l)" -eq 1 ]
        result "usage_names_the_file_once_${kind}_${command%% *}"
    done
done
if [ -c /dev/full ]; then
    "$TANDEM" help >/dev/full 2>"$err"
    code=$?
    [ $code -eq 1 ] && grep -q 'standard output' "$err"
    result usage_full_output
    "$TANDEM" run -m "$MODEL" -p hi -n 2 -q >/dev/full 2>"$err"
    code=$?
    [ $code -eq 1 ] && grep -q 'standard output: No space left' "$err" &&
        [ "$(grep -c 'standard output' "$err")" -eq 1 ]
    result usage_full_output_of_a_text
    "$TANDEM" run -m "$MODEL" -p hi -n 200 --ignore-eos -c 256 >/dev/full 2>"$err"
    code=$?
    [ $code -eq 1 ] && grep -q 'standard output: No space left' "$err" &&
        grep -q 'generation  *1 token$' "$err" && ! grep -q stopped "$err"
    result usage_full_output_ends_a_text
    "$TANDEM" run -m "$MODEL" -p hi -n 2 -q --json >/dev/full 2>"$err"
    code=$?
    [ $code -eq 1 ] && grep -q 'standard output: No space left' "$err"
    result usage_full_output_of_json
    "$TANDEM" perplexity -m "$MODEL" -f LICENSE -q >/dev/full 2>"$err"
    code=$?
    [ $code -eq 1 ] && grep -q 'standard output: No space left' "$err"
    result usage_full_output_of_a_measurement
    call plan -m "$MODEL" --device none --save /dev/full
    [ $code -eq 1 ] && grep -q '/dev/full: No space left' "$err"
    result usage_full_plan_file
    call run -m "$MODEL" -p hi -n 2 --log-file /dev/full
    [ $code -eq 1 ] && [ -s "$out" ] && grep -q 'error: /dev/full: lines of the log are missing' "$err"
    result usage_full_log
fi
"$TANDEM" run -m "$MODEL" -p hi -n 2 -q 2>"$err" >&-
code=$?
[ $code -eq 1 ] && [ "$(wc -l <"$err")" -eq 1 ] && grep -q 'standard output: Bad file' "$err"
result usage_closed_output
"$TANDEM" plan -m "$MODEL" --device none -q --save /dev/stdout 2>"$err" >&-
code=$?
[ $code -eq 1 ] && grep -q '/dev/stdout: Bad file' "$err"
result usage_closed_output_of_a_file
"$TANDEM" run -m "$MODEL" -p hi -n 2 --logits-out "$work/logits" >"$out" 2>&-
code=$?
[ $code -eq 0 ] && [ -s "$out" ] && [ "$(wc -c <"$work/logits")" -eq $((4 * 49152)) ]
result usage_closed_errors_are_not_in_a_file
"$TANDEM" run -m "$MODEL" -p hi -n 2 --log-file "$work/log" >"$out" 2>&-
code=$?
[ $code -eq 0 ] && grep -q '^tandem: generation' "$work/log"
result usage_closed_errors_go_to_the_log
"$TANDEM" chat -m "$MODEL" -q >"$out" 2>"$err" <&-
code=$?
[ $code -eq 1 ] && grep -q 'standard input: Bad file' "$err"
result usage_closed_input_is_not_the_model

# ---- What is told, but not refused ---------------------------------------------------------------
# warns NAME TEXT ARGUMENT...: code 0 and a warning that holds TEXT.
warns() {
    name=$1 text=$2
    shift 2
    call "$@"
    [ "$code" -eq 0 ] && grep -q "warning: .*$text" "$err"
    result "usage_warns_$name"
}
warns no_gpu 'no usable GPU' plan -m "$MODEL" --device none -ngl 99
warns no_gpu_of_bench 'no usable GPU' bench -m "$MODEL" --device none -ngl 0,99 -p 4 -n 0 -r 1
[ "$(grep -c 'pp4' "$out")" -eq 2 ]
result usage_no_gpu_of_bench_measures_all
warns long_context 'trained on 8192' plan -m "$MODEL" --device none -c 10000
warns many_threads '1000 threads on' plan -m "$MODEL" -t 1000
call plan -m "$MODEL" --device none -c 0
[ $code -eq 0 ] && grep -q '^context 8192,' "$out"
result usage_context_of_the_model
call plan -m "$MODEL" --device none -c 2k
[ $code -eq 0 ] && grep -q '^context 2048,' "$out"
result usage_context_in_k
wrong context_in_nothing "got '8kk'" plan -m "$MODEL" -c 8kk
wrong context_of_too_many "got '9000000000k'" plan -m "$MODEL" -c 9000000000k
call plan -m "$MODEL" --device none
[ $code -eq 0 ] && grep -q '^context 4096,' "$out"
result usage_context_by_default
call run -m "$MODEL" -q -p "$(printf '\377\376')"
[ $code -eq 1 ] && ! [ -s "$out" ] && grep -q 'no token of the model stands for the byte 0xff' "$err"
result usage_prompt_without_tokens
call run -m "$MODEL" -p '\x\n\n\n' -n 0 --no-escape
sed -n 's/.*prompt  *\([0-9]*\) token.*/\1/p' "$err" >"$work/page"
call run -m "$MODEL" -p '\x\n\n\n' -n 0
[ "$(sed -n 's/.*prompt  *\([0-9]*\) token.*/\1/p' "$err")" -lt "$(cat "$work/page")" ]
result usage_escapes_are_read
printf 'Once upon\n' >"$work/two"
call run -m "$MODEL" -f "$work/two" -n 0
grep -q 'prompt  *2 tokens' "$err"
result usage_last_newline_of_a_file
call run -m "$MODEL" -p 'Once upon a time' -n 4 --temp 0
[ "$(wc -l <"$err")" -eq 3 ] && grep -q '^tandem: on the CPU; weights: [0-9.]* MiB in RAM' "$err" &&
    grep -qE '^tandem: prompt +4 tokens, +[0-9.]+ tokens/s \((planned|estimated) [0-9.]+\)$' "$err" &&
    grep -qE '^tandem: generation +4 tokens, .* tokens/s \((planned|estimated) [0-9.]+\)$' "$err"
result usage_three_lines_around_a_text

# ---- What goes where -----------------------------------------------------------------------------
call run -m "$MODEL" -p 'Once upon a time' -n 4 --temp 0
[ $code -eq 0 ] && [ -s "$out" ] && grep -q 'tokens/s' "$err" && ! grep -q "$(printf '\r')" "$err"
result usage_text_and_statistics_are_apart
"$TANDEM" run -m "$MODEL" -p 'Once upon a time' -n 4 --temp 0 >"$work/both" 2>&1
[ "$(sed '1d; 2q' "$work/both")" = "$(cat "$out")" ] && grep -q '^tandem: generation ' "$work/both" &&
    ! grep -q '^$' "$work/both"
result usage_text_ends_before_the_statistics
call run -m "$MODEL" -p 'Once upon a time' -n 4 --temp 0 -q
[ $code -eq 0 ] && [ -s "$out" ] && ! [ -s "$err" ]
result usage_quiet
cp "$out" "$work/plain"
call run -m "$MODEL" -p 'Once upon a time' -n 4 --temp 0 -q --echo
[ "$(cat "$out")" = "Once upon a time$(cat "$work/plain")" ]
result usage_echo
printf 'Once upon a time' | "$TANDEM" run -m "$MODEL" -f - -n 4 --temp 0 -q >"$out" 2>"$err"
[ -s "$out" ] && cmp -s "$out" "$work/plain"
result usage_prompt_from_standard_input
call run -m "$MODEL" -p hi -n 1
[ $code -eq 0 ] && grep -qE '^tandem: prompt +1 token, ' "$err" && grep -qE '^tandem: generation +1 token$' "$err"
result usage_one_token
call run -m "$MODEL" -p 'Once upon a time' -n 0
[ $code -eq 0 ] && ! [ -s "$out" ] && grep -q 'prompt .* 4 tokens' "$err"
result usage_no_new_tokens
call run -m "$MODEL" -p 'Once upon a time' -c 16 --temp 0 --ignore-eos
[ $code -eq 0 ] && grep -q 'context of 16 tokens is full' "$err"
result usage_context_full
call run -m "$MODEL" -p 'Once upon a time' -c 16 --temp 0 --ignore-eos --json -q
[ $code -eq 0 ] && python3 - "$out" <<'X'
import json, sys
run = json.load(open(sys.argv[1]))
sys.exit(not (run["stop"] == "context" and run["prompt_tokens"] + len(run["tokens"]) == 16 + 1))
X
result usage_context_full_to_the_last_token
printf 'Once \377 upon' >"$work/bytes"
for command in run tokenize perplexity imatrix; do
    case $command in imatrix) more="-o $work/sums" ;; *) more= ;; esac
    call $command -m "$MODEL" -f "$work/bytes" $more
    [ $code -eq 1 ] && ! [ -s "$out" ] &&
        grep -q 'no token of the model stands for the byte 0xff, at offset 5 of the text' "$err"
    result usage_byte_without_a_token_$command
done
for echo in '' --echo; do
    printf 'Once\344 upon' >"$work/bytes"
    call run -m "$MODEL" -f "$work/bytes" -n 3 --temp 0 --json -q $echo
    [ $code -eq 0 ] && python3 - "$out" "$echo" <<'X'
import json, sys
run = json.load(open(sys.argv[1]))
expected = "Once\ufffd upon" if sys.argv[2] else None
sys.exit(not (run.get("prompt") == expected and "Once" not in run["text"]))
X
    result "usage_json_prompt$(echo "$echo" | tr - _)"
done
call run -m "$MODEL" -p 'Once upon a time' -n 9 --temp 0 --ignore-eos --json -v
[ $code -eq 0 ] && python3 - "$out" "$err" <<'X'
import json, re, sys
run, text = json.load(open(sys.argv[1])), open(sys.argv[2]).read()
t, memory = run["timings"], run["memory"]
def near(a, b): return abs(a - b) <= 1e-6 * abs(b)
def printed(pattern): return [float(x) for x in re.search(pattern, text).groups()]
prompt = printed(r"prompt +([0-9.]+) ms, +(\d+) tokens, +([0-9.]+) tokens/s")
new = printed(r"new +([0-9.]+) ms, +(\d+) tokens, +([0-9.]+) tokens/s")
sizes = printed(r"memory +([0-9.]+) MiB allocated, ([0-9.]+) MiB planned")
sys.exit(not (
    t["prompt_n"] == run["prompt_tokens"] == prompt[1]
    and t["predicted_n"] == len(run["tokens"]) == new[1] == 9 and t["decode_steps"] == 8
    and near(t["prompt_per_second"] * t["prompt_ms"], t["prompt_n"] * 1e3)
    and near(t["predicted_per_second"] * t["predicted_ms"], t["decode_steps"] * 1e3)
    and near(t["predicted_per_token_ms"] * t["decode_steps"], t["predicted_ms"])
    and abs(prompt[0] - t["prompt_ms"]) <= 0.0501 and abs(new[0] - t["predicted_ms"]) <= 0.0501
    and abs(prompt[2] - t["prompt_per_second"]) <= 0.0501
    and abs(new[2] - t["predicted_per_second"]) <= 0.0501
    and abs(sizes[0] * 2**20 - sum(r["allocated_bytes"] for r in memory)) <= 0.0501 * 2**20
    and abs(sizes[1] * 2**20 - sum(r["planned_bytes"] for r in memory)) <= 0.0501 * 2**20))
X
result usage_statistics_are_those_of_the_json
# stops NAME TEXT ARGUMENT...: a run whose text is TEXT, and says that a stop text has come.
stops() {
    name=$1 text=$2
    shift 2
    call run -m "$MODEL" -p 'Once upon a time' -n 20 --temp 0 --json -q "$@"
    [ $code -eq 0 ] && python3 - "$out" "$text" <<'X'
import json, sys
run = json.load(open(sys.argv[1]))
sys.exit(not (run["text"] == sys.argv[2] and run["stop"] == "word"))
X
    result "usage_stop_$name"
}
call run -m "$MODEL" -p 'Once upon a time' -n 20 --temp 0 -q
whole=$(cat "$out")
# The end of the sixth word with the start of the seventh, the ninth word, and the two that
# follow it: which words a model writes depends on the last bits of the processor's kernels.
two=$(echo "$whole" | awk '{ print substr($6, length($6)) " " substr($7, 1, 1) }')
word=$(echo "$whole" | awk '{ print $9 }') later=$(echo "$whole" | awk '{ print $10 " " $11 }')
stops of_two_tokens "${whole%%"$two"*}" --stop "$two"
stops by_its_other_names "${whole%%"$word"*}" -r nowhere --reverse-prompt "$word" --stop="$later"
call run -m "$MODEL" -p 'Once upon a time' -n 20 --temp 0 -q --stop "$two"
[ $code -eq 0 ] && [ "$(cat "$out")" = "${whole%%"$two"*}" ]
result usage_stop_shows_the_text_before_it
turn='<|im_start|>user\nList two colours.<|im_end|>\n<|im_start|>assistant\n'
call run -m "$MODEL" -p "$turn" -e -n 60 --temp 0 -q -e --stop '\n'
[ $code -eq 0 ] && [ -s "$out" ] && [ "$(wc -l <"$out")" -eq 1 ]
result usage_stop_takes_escapes
call run -m "$MODEL" -p "$turn" -e -n 200 --temp 0 -q --json --ignore-eos --stop '<|im_end|>'
[ $code -eq 0 ] && grep -q '"stop": "word"' "$out" && grep -q '"text": "[^"]' "$out"
result usage_stop_at_a_control_token
call tokenize -m "$MODEL" -p 'Hello world<|im_end|>' --show-count
printf "%s\n" " 19556 -> 'Hello'" "   905 -> ' world'" "     2 -> '<|im_end|>'" \
    'Total number of tokens: 3' | cmp -s - "$out"
result usage_tokenize
call tokenize -m "$MODEL" -p 'Hello\nworld' -e --ids
[ "$(cat "$out")" = '[19556, 198, 6693]' ]
result usage_tokenize_escape
call inspect "$MODEL"
[ $code -eq 0 ] && grep -q "general.architecture = string: 'llama'" "$out" &&
    grep -q 'Q4_1 .*66355200  in 210' "$out" && ! grep -q 'blk.3.ffn_norm.weight' "$out"
result usage_inspect
cp "$out" "$work/page"
call inspect "$MODEL" -v
[ $code -eq 0 ] && grep -q '^  F32 .* 2304  .576.  blk.3.ffn_norm.weight$' "$out" &&
    [ "$(wc -l <"$out")" -eq $(($(wc -l <"$work/page") + 272 + 2)) ]
result usage_inspect_lists_the_tensors
cp "$work/page" "$out"
[ "$(head -n 10 "$out" | cut -c 1-13 | tr -d ' \n')" = \
    architectureparametersquantizationcontextattentionfeed-forwardvocabularytemplatefilerunshere ] &&
    grep -qx 'parameters     134.5 million in 272 tensors' "$out" &&
    grep -q '^quantization   mostly Q4_1, 5.[0-9]* bits' "$out" &&
    grep -qx "template       the file's own" "$out" && grep -q '^runs here      yes' "$out"
result usage_inspect_begins_with_ten_lines
sed 's/smollm/nobody/' "$MODEL" >"$work/nobody.gguf"
call inspect "$work/nobody.gguf"
rm "$work/nobody.gguf"
[ $code -eq 0 ] &&
    grep -q '^runs here      no, because tokenizer.ggml.pre: unknown pre-tokenizer' "$out"
result usage_inspect_says_why_not
# A file of one key, n = 2^64 - 1, and no tensors.
printf 'GGUF\3\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0n\12\0\0\0\377\377\377\377\377\377\377\377' \
    >"$work/large.gguf"
call inspect "$work/large.gguf"
grep -q 'n = u64: 18446744073709551615$' "$out"
result usage_inspect_large_number
call inspect --json "$work/large.gguf"
python3 -c 'import json, sys; sys.exit(abs(json.load(sys.stdin)["keys"][0]["value"] / 2**64 - 1) > 1e-8)' <"$out"
result usage_inspect_large_number_as_json
call devices --device none
[ $code -eq 0 ] && grep -q '^cpu ' "$out" && grep -q 'matmul:.*Q4_1' "$out"
result usage_devices
call plan -m "$MODEL" --device none
[ $code -eq 0 ] && grep -q '^generation: .* tokens/s' "$out"
result usage_plan

# ---- Numbers -------------------------------------------------------------------------------------
# one WORD ARGUMENT...: what the command prints has "1 WORD", and nowhere a plural behind a 1.
one() {
    word=$1
    shift
    call "$@" -m "$MODEL"
    cat "$out" "$err" >"$work/both"
    [ $code -eq 0 ] && grep -q "\\b1 $word\\b" "$work/both" &&
        ! grep -E '(^|[^0-9.])1 (threads|tokens|tasks|windows|copies|steps|bytes)\b' "$work/both"
    result "usage_one_$word"
}
one thread plan --device none -t 1
one task perplexity --winogrande --winogrande-tasks 1 -f tests/golden/choices/winogrande.csv
seq 1 40 >"$work/numbers"
one token perplexity -c 2 --chunks 1 -f "$work/numbers"
one window imatrix -c 32 --chunks 1 -f "$work/numbers" -o "$work/sums"

# ---- Ctrl-C --------------------------------------------------------------------------------------
cat >"$work/interrupt" <<'X'
import signal, subprocess, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
run = subprocess.Popen(sys.argv[1:], stdout=subprocess.PIPE)
text = run.stdout.read(1)
run.send_signal(signal.SIGINT)
sys.stdout.buffer.write(text + run.communicate(timeout=100)[0])
sys.exit(run.returncode)
X
python3 "$work/interrupt" "$TANDEM" run -m "$MODEL" -p 'Once upon a time' --ignore-eos \
    -t 1 -c 8192 --temp 0 >"$out" 2>"$err"
code=$?
[ $code -eq 130 ] && [ -s "$out" ] && grep -q 'stopped' "$err" && grep -q 'tokens/s' "$err"
result usage_interrupt_ends_the_text
