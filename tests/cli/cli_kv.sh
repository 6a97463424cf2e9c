#!/bin/sh
# cli_kv.sh: a KV cache of Q8_0 or Q4_0 by the whole program: it writes the same tokens however a
# prompt is fed and a model is split, takes the memory that it should, and its logits are close to
# those with a cache of F16. These are compared with the definition of the ops: 8-bit activations
# turn even the rounding of F16 into an error of 5e-3.
# run: alone
set -u
: "${TANDEM_SIM:=build/tandem-sim}" "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

prompt='The path ran between the fields and the sea. On the one side there were sheep, and beyond
the sheep a line of thorn trees all bent the same way, like people listening at a door.'

result() { # NAME, exit code of the test before it
    if [ "$2" -eq 0 ]; then echo "ok kv_$1"; else echo "not ok kv_$1"; head -n 3 "$work/err"; fi
}
# call ARGUMENT...: runs the prompt; standard output and errors stay in $work.
call() {
    timeout 120 "$TANDEM_SIM" run -q -m "$MODEL" -p "$prompt" --temp 0 -c 128 "$@" \
        >"$work/out" 2>"$work/err" && ! [ -s "$work/err" ]
}
# same NAME OPTION...: the tokens are those of the first call.
same() {
    name=$1
    shift
    call -n 16 --ignore-eos -ctk $type -ctv $type "$@" && cmp "$work/first" "$work/out"
    result "${type}_$name" $?
}

for type in q8_0 q4_0; do
    call -n 16 --ignore-eos -ctk $type -ctv $type --device none && cp "$work/out" "$work/first" &&
        [ -s "$work/first" ]
    result ${type}_runs $?
    same ubatch_7 --device none -ub 7
    same one_thread --device none -t 1 -tb 1
    same split --device sim:vram=500M -ngl 15
    same split_ubatch_7 --device sim:vram=500M -ngl 22 -ub 7
    # 30 layers, 2 caches, 128 positions, 192 columns: 34 or 18 bytes for 32 of them.
    case $type in q8_0) block=34 ;; *) block=18 ;; esac
    "$TANDEM_SIM" run -q -m "$MODEL" -p "$prompt" -n 1 -c 128 --device none --json \
        -ctk $type -ctv $type >"$work/out" 2>"$work/err" &&
        grep -q "$((30 * 2 * 128 * 192 / 32 * block))" "$work/out"
    result ${type}_memory $?
done

case $TANDEM_SIM in
*/asan/* | */ubsan/* | */tsan/*)
    echo 'ok # SKIP kv_close: takes too long under a sanitizer'
    exit 0 ;;
esac

# A cache that pushes weights off the GPU is told, and only that. What was measured here may not matter.
export XDG_CACHE_HOME="$work/cache" TANDEM_CALIBRATE=never
told() { # ARGUMENT...: runs one token with 8,192 positions; true if the line is there
    timeout 120 "$TANDEM_SIM" run -m "$MODEL" -p Once -n 1 -c 8192 "$@" 2>"$work/err" >"$work/out" &&
        grep -q '^tandem: the KV cache takes .* With -ctk q8_0 -ctv q8_0 this' "$work/err"
}
told --device sim:vram=200M && grep -q 'takes 180.00 MiB, ' "$work/err"
result smaller_cache_told $?
# The gain is that of the cache alone: another micro-batch than the one asked for makes this 18 times
# as fast.
timeout 120 "$TANDEM_SIM" run -m "$MODEL" -f tests/golden/prompt_prose.txt -n 1 -c 512 -ub 1 \
    --device sim:vram=60M 2>"$work/err" >"$work/out" &&
    ! grep -Eq 'about ([2-9]|[1-9][0-9]+)[0-9.]* times as fast' "$work/err"
result smaller_cache_gain_by_itself $?
for other in '--device none' '--device sim:vram=600M' '--device sim:vram=200M -q' \
    '--device sim:vram=200M -ctk q8_0 -ctv q8_0'; do
    # shellcheck disable=SC2086
    told $other
    result "nothing_told_with_$(echo "$other" | tr -c 'a-z0-9\n' _)" $((! $?))
done

prompt='The path ran between the fields and the sea.'
for types in 'f16 f16' 'q8_0 q8_0' 'q8_0 f16' 'f16 q8_0' 'q4_0 q4_0' 'q8_0 q4_0'; do
    file=$work/$(echo "$types" | tr ' ' _)
    call -n 0 --device none --isa ref --logits-out "$file" -ctk "${types% *}" -ctv "${types#* }"
    result "logits_$(basename "$file")" $?
done
python3 - "$work" <<'X'
import array, os, sys
def load(name):
    with open(os.path.join(sys.argv[1], name), 'rb') as f:
        return array.array('f', f.read())
want = load('f16_f16')
energy = sum(x * x for x in want)
limits = {'q8_0_q8_0': 2e-3, 'q8_0_f16': 2e-3, 'f16_q8_0': 2e-3, 'q4_0_q4_0': 2e-1, 'q8_0_q4_0': 1e-1}
for name, limit in limits.items():
    got = load(name)
    nmse = sum((x - y) ** 2 for x, y in zip(want, got)) / energy
    good = len(got) == len(want) > 0 and 0 < nmse <= limit
    print('ok' if good else 'not ok', f'kv_close_{name} nmse {nmse:.2e}, limit {limit:.0e}')
X
