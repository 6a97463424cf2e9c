#!/bin/sh
# cli_leaks.sh: memory errors and leaks of the whole program on small models: commands that succeed,
# commands that fail in the options, the file, the plan, the prompt or on the device, and a device that
# refuses each of its three buffers in turn.
#
# A program built with the address sanitizer watches itself; any other runs under valgrind, which
# sees values that were never written too, and without that every test is skipped. valgrind takes two
# seconds for each: where there is a build with the sanitizer, only one command of each kind runs there.
set -u
: "${TANDEM:=build/tandem}" "${TANDEM_SIM:=build/tandem-sim}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tiny=tests/golden/tiny/plain.gguf

case $TANDEM in
*/asan/*) watch='' ;;
*/ubsan/* | */tsan/*)
    echo 'ok leaks # SKIP this sanitizer looks for something else'
    exit 0 ;;
*)
    if ! command -v valgrind >/dev/null 2>&1; then
        echo 'ok leaks # SKIP no valgrind'
        exit 0
    fi
    watch='valgrind -q --soname-synonyms=somalloc=*jemalloc* --leak-check=full
        --show-leak-kinds=definite,indirect --errors-for-leak-kinds=definite,indirect
        --error-exitcode=99' ;;
esac

# clean NAME CODES COMMAND ARGUMENT...: the exit code is one of CODES and nothing was found.
# Standard input is $work/in.
printf 'ab\n/reset\nab ab\n' >"$work/in"
clean() {
    name=$1 codes=$2
    shift 2
    # shellcheck disable=SC2086
    timeout 120 $watch "$@" <"$work/in" >"$work/out" 2>"$work/err"
    code=$?
    case " $codes " in *" $code "*) good=0 ;; *) good=1 ;; esac
    if grep -qE 'Sanitizer|runtime error:|^==[0-9]+== ' "$work/err"; then good=1; fi
    if [ $good -eq 0 ]; then
        echo "ok leaks_$name"
    else
        echo "not ok leaks_$name"
        echo "  code $code"; head -n 20 "$work/err"
    fi
}

clean run 0 "$TANDEM" run -m $tiny -p 'ab ab' -n 4 -t 2
clean run_split 0 "$TANDEM_SIM" run -m $tiny -p 'ab ab' -n 4 -ngl 1 -v
clean chat '0 1' "$TANDEM" chat -m $tiny -n 3
clean plan 0 "$TANDEM_SIM" plan -m $tiny --json -v
clean tokenize 0 "$TANDEM" tokenize -m $tiny --stdin --json
clean perplexity 0 "$TANDEM" perplexity -m $tiny -f "$work/in" -c 4
clean perplexity_tasks 0 "$TANDEM" perplexity -m $tiny --hellaswag -f tests/golden/choices/hellaswag.txt
clean imatrix 0 "$TANDEM" imatrix -m $tiny -f "$work/in" -c 4 -o "$work/sums"
clean imatrix_short 2 "$TANDEM" imatrix -m $tiny -f "$work/in" -c 4096 -o "$work/none"

checked=$(dirname "$TANDEM")/asan
if [ -x "$checked/tandem" ] && [ -x "$checked/tandem-sim" ]; then
    TANDEM=$checked/tandem TANDEM_SIM=$checked/tandem-sim watch=''
fi
clean run_json 0 "$TANDEM" run -m $tiny -f "$work/in" -n 4 --json --temp 1 --repeat-penalty 1.1
clean run_logits 0 "$TANDEM" run -m $tiny -p ab -n 0 --logits-out "$work/logits"
clean inspect 0 "$TANDEM" inspect $tiny --json
clean devices 0 "$TANDEM_SIM" devices --json
clean help 0 "$TANDEM" help run

clean wrong_option 2 "$TANDEM" run --nonsense
clean no_file 1 "$TANDEM" run -m "$work/none.gguf" -p ab
clean unknown_device 2 "$TANDEM" run -m $tiny -p ab --device toaster
clean prompt_too_long 1 "$TANDEM" run -m $tiny -p 'ab ab ab ab ab' -c 2
clean no_room 3 "$TANDEM_SIM" run -m $tiny -p ab -ngl all --strict --device sim:vram=1K
clean full_context 0 "$TANDEM" run -m $tiny -p ab -c 8 --ignore-eos
for fault in copy:3 op:20 lost:60; do
    clean "fault_$fault" 1 "$TANDEM_SIM" run -m $tiny -p 'ab ab' -n 8 --ignore-eos -ngl all \
        --device "sim:fail=$fault"
done
for n in 1 2 3; do
    clean "refused_buffer_$n" 0 "$TANDEM_SIM" run -m $tiny -p ab -n 2 -ngl all \
        --device "sim:fail=alloc:$n"
    clean "refused_buffer_strict_$n" 3 "$TANDEM_SIM" run -m $tiny -p ab -n 2 -ngl all --strict \
        --device "sim:fail=alloc:$n"
done

# One file that ends too early; test_gguf opens all kinds of broken ones under the address sanitizer.
head -c 1000 $tiny >"$work/cut.gguf"
clean broken 1 "$TANDEM" inspect "$work/cut.gguf"
clean run_broken 1 "$TANDEM" run -m "$work/cut.gguf" -p ab
