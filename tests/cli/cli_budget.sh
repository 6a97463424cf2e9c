#!/bin/sh
# cli_budget.sh: random limits of memory, contexts, micro-batches and cache types on the simulated
# and the emulated accelerator: each runs within its limits, planned bytes allocated bytes, or is
# refused before loading with advice that is true. BUDGETS is how many, BUDGET_SEED which.
set -u
: "${TANDEM:=build/tandem}" "${TOOLS:=build/release/tests}"
: "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}" "${BUDGET_SEED:=1}"

# Sanitizers are slow: fewer.
case $TANDEM in
*/asan/* | */ubsan/* | */tsan/*) : "${BUDGETS:=10}" ;;
*) : "${BUDGETS:=60}" ;;
esac

# draws DEVICE COUNT: what ends without a verdict on every draw has failed.
draws() {
    "$TOOLS/lib/check_budget" "$1" "$MODEL" "$BUDGET_SEED" 0 "$2"
    code=$?
    [ $code -le 1 ] || echo "not ok budget_$1 ended with code $code"
}

draws sim "$BUDGETS"

emulator=$(dirname "$TANDEM")/emulator
if ! [ -f "$emulator/libcuda.so.1" ]; then
    echo 'ok 1 # SKIP there is no emulator (it needs x86-64 and a C++ compiler)'
    exit 0
fi
export LD_LIBRARY_PATH="$emulator:${LD_LIBRARY_PATH:-}"
draws cuda $(((BUDGETS + 8) / 9))
