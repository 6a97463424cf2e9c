#!/bin/sh
# cli_peers.sh: bench/against_peers.sh with programs that pretend to be llama-bench and tandem and
# write fixed speeds: turns, medians, ratios, rows of the ledger and errors; and once with tandem
# itself.
set -u
: "${TANDEM:=build/tandem}"
tiny=tests/golden/tiny/plain.gguf
. tests/lib/results.sh
prefix=peers_

# fake NAME MODEL SPEED...: writes a program that appends NAME to $work/turns and, the nth time,
# says the nth SPEED for a prompt and a tenth of it for single tokens.
fake() {
    name=$1 file=$2
    shift 2
    cat >"$work/$name" <<X
#!/bin/sh
echo $name >>$work/turns
echo "\$*" >>$work/$name.arguments
set -- \$(echo $* | cut -d ' ' -f \$(grep -cx $name $work/turns))
echo '['
echo 'WARNING: a program that talks'
echo "{\"build_commit\": \"c-$name\", \"cpu_info\": \"a CPU\", \"model_type\": \"a model\","
echo "\"model_filename\": \"some/$file\", \"n_prompt\": 8, \"n_gen\": 0, \"avg_ts\": \$1},"
echo "{\"n_prompt\": 0, \"n_gen\": 4, \"avg_ts\": \$((\$1 / 10))}]"
X
    chmod +x "$work/$name"
}
# compare PEERS ARGUMENT...: runs the script with the fake tandem; sets code, $out and $err.
compare() {
    rm -f "$work/turns"
    peers=$1
    shift
    TANDEM=$work/tandem PEERS=$peers timeout 60 sh bench/against_peers.sh -m $tiny -p 8 -n 4 \
        "$@" >"$out" 2>"$err"
    code=$?
}
# wrong NAME CODE TEXT: the last comparison ended with CODE, wrote TEXT and no result.
wrong() {
    [ "$code" -eq "$2" ] && grep -qF -- "$3" "$err" && ! [ -s "$out" ]
    result "$1"
}

fake tandem plain.gguf 300 100 200
fake one plain.gguf 200 100 1000
fake two plain.gguf 400 800 400
compare "one=$work/one two=$work/two" -t 3 -i avx2 -r 3 -o "$work/rows"
cat >"$work/want" <<'X'
prefill of 8: tandem 200.0 tokens/s, one 200.0: 1.00 x (0.20 to 1.50), two 400.0: 0.50 x (0.12 to 0.75)
decode of 4: tandem 20.0 tokens/s, one 20.0: 1.00 x (0.20 to 1.50), two 40.0: 0.50 x (0.12 to 0.75)
X
[ "$code" -eq 0 ] && cmp -s "$out" "$work/want"
result medians_and_ratios
[ "$(tr '\n' ' ' <"$work/turns")" = 'tandem one two one two tandem two tandem one ' ]
result takes_turns
grep -q '^bench -m .* -p 8 -n 4 -t 3 -r 1 -o json --device none --isa avx2 ' "$work/tandem.arguments" &&
    grep -qx -- "-m $tiny -p 8 -n 4 -t 3 -r 1 -o json" "$work/one.arguments"
result same_arguments
awk -F '\t' 'NF != 6 || $2 != "a CPU" || $3 !~ /against_peers.sh -m plain.gguf -p 8 -n 4 -t 3 -i avx2 -r 3$/ ||
    $4 !~ /^a model: prefill of 8: .* 0.75\); decode of 4: / || $6 != "peers: one c-one, two c-two" {
    exit bad = 1 } END { exit bad || NR != 1 }' "$work/rows"
result appends_a_row

# ---- Behind a depth ------------------------------------------------------------------------------
# behind NAME HELP PROMPT DEPTH SPEED: writes a program whose help is HELP, and whose one result, of
# four tokens, names PROMPT and DEPTH.
behind() {
    cat >"$work/$1" <<X
#!/bin/sh
if [ "\$1" = --help ]; then echo '$2'; exit; fi
echo "\$*" >"$work/$1.arguments"
echo '[{"cpu_info": "a CPU", "model_type": "a model", "model_filename": "plain.gguf",'
echo '"n_prompt": $3, "n_gen": 4, "n_depth": $4, "avg_ts": $5}]'
X
    chmod +x "$work/$1"
}
mv "$work/tandem" "$work/tandem.shallow"
behind tandem 'no list' 0 64 300
behind deep '  -d, --n-depth <n>' 0 64 200
behind pair '  -gp <pp,tg>' 64 0 100
compare "deep=$work/deep pair=$work/pair" -p 0 -d 64 -k q8_0 -r 1 -o "$work/deep.rows"
[ "$code" -eq 0 ] && grep -qx 'decode of 4 behind 64: tandem 300.0 tokens/s, deep 200.0: 1.50 x (1.50 to 1.50), pair 100.0: 3.00 x (3.00 to 3.00)' "$out"
result decodes_behind_a_depth
cache='-t 1 -r 1 -o json -ctk q8_0 -ctv q8_0'
grep -qx -- "bench -m $tiny -p 0 -n 4 -d 64 $cache --device none --isa auto -q" "$work/tandem.arguments" &&
    grep -qx -- "-m $tiny -p 0 -n 4 -d 64 $cache -fa 1" "$work/deep.arguments" &&
    grep -qx -- "-m $tiny -p 0 -n 0 -gp 64,4 $cache -fa 1" "$work/pair.arguments"
result asks_each_its_way
cut -f 3 "$work/deep.rows" | grep -q -- '-p 0 -n 4 -d 64 -k q8_0 -t 1 -i auto -r 1$'
result names_depth_and_cache_in_the_row
compare "deep=$work/deep" -p 0 -k q8_0 -r 1
grep -qx -- "-m $tiny -p 0 -n 4 $cache -fa 1" "$work/deep.arguments"
result asks_for_a_cache_without_depth
behind deep '--n-depth' 0 32 200
compare "deep=$work/deep" -p 0 -d 64 -r 1
wrong refuses_another_depth 1 'deep has no result of 0 prompt tokens and 4 generated ones behind 64'
behind old 'usage' 0 0 200
compare "old=$work/old" -p 0 -d 64 -r 1
wrong refuses_a_peer_without_depth 1 'it knows neither --n-depth nor -gp'
compare "deep=$work/deep" -d 64 -r 1
wrong refuses_a_prompt_behind_a_depth 2 '-d 64 is for single tokens alone: give -p 0 with it'
mv "$work/tandem.shallow" "$work/tandem"

# ---- Errors --------------------------------------------------------------------------------------
fake larger large.gguf 200
compare "larger=$work/larger" -r 1
wrong refuses_another_model 1 'another model: plain.gguf by tandem, large.gguf by larger'
printf '#!/bin/sh\necho "no such tensor" >&2\nexit 3\n' >"$work/failing"
chmod +x "$work/failing"
compare "failing=$work/failing" -r 1
wrong tells_of_a_failing_program 1 "failing failed: $work/failing -m"
grep -q 'no such tensor' "$err"
result passes_on_its_message
printf '#!/bin/sh\necho usage\n' >"$work/talking"
chmod +x "$work/talking"
compare "talking=$work/talking" -r 1
wrong refuses_what_is_no_json 1 'talking wrote something that is no JSON'
sed 's/n_gen\\": 4/n_gen\\": 5/' "$work/one" >"$work/other"
chmod +x "$work/other"
compare "other=$work/other" -r 1
wrong refuses_a_missing_result 1 'other has no result of 0 prompt tokens and 4 generated ones'
compare "none=$work/none" -r 1
wrong refuses_a_missing_program 2 "PEERS: '$work/none' is no program"
compare "one=$work/one" -r none
wrong refuses_a_word_for_a_number 2 "'none' is no number"
compare "one=$work/one" -p 0 -n 0
wrong refuses_no_test 2 'both tests are left out'
mkdir "$work/bin"
for program in sh mktemp rm git; do ln -s "$(command -v $program)" "$work/bin/"; done
PATH=$work/bin sh bench/against_peers.sh -m $tiny >"$out" 2>"$err"
code=$?
wrong refuses_without_a_peer 2 'no llama-bench was found: name some in PEERS='

# ---- tandem itself -------------------------------------------------------------------------------
fake llama-bench plain.gguf 100
rm -f "$work/turns"
PATH=$work:$PATH PEERS='' TANDEM=$TANDEM sh bench/against_peers.sh -m $tiny -p 8 -n 4 -r 1 \
    >"$out" 2>"$err"
code=$?
[ "$code" -eq 0 ] && [ "$(grep -c 'tandem [0-9.]* tokens/s, llama-bench 10' "$out")" -eq 2 ]
result takes_llama_bench_from_the_path
