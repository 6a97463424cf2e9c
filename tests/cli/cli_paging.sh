#!/bin/sh
# cli_paging.sh: models that are larger than the RAM that --ram allows: refused in two lines, or read
# from the disk with the same text as from RAM.
set -u
: "${TANDEM:=build/tandem}" "${TANDEM_SIM:=build/tandem-sim}" "${MODEL:=models/SmolLM2-135M-Instruct.Q4_1.gguf}"
. tests/lib/results.sh

# run PROGRAM ARGUMENT...: sets code, $work/out and $work/err.
run() {
    program=$1
    shift
    timeout 300 "$program" run -m "$MODEL" -c 512 -n 12 --ignore-eos --temp 0 -p 'The capital of France' "$@" \
        >"$work/out" 2>"$work/err"
    code=$?
}

run "$TANDEM" --device none -q
[ $code -eq 0 ] && cp "$work/out" "$work/in_ram"
result paging_reference
run "$TANDEM" --device none --ram 90M
[ $code -eq 1 ] && [ "$(wc -l <"$work/err")" -eq 2 ] &&
    grep -q 'needs 104.71 MiB of RAM, and there are 90.00 MiB for it' "$work/err" &&
    grep -q 'allow-paging reads the rest from the disk, at about .* tokens/s' "$work/err"
result paging_refused_in_two_lines
run "$TANDEM" --device none --ram 90M --allow-paging
[ $code -eq 0 ] && cmp -s "$work/out" "$work/in_ram" && grep -q 'MiB of weights do not fit in RAM' "$work/err"
result paging_same_text
# A run tells how much it has read from the disk, and offers no lock where that was planned. File
# systems without a disk of their own (device number 0) may count no bytes.
code='' told='MiB came from the disk during the run ([0-9]* major faults), since not all weights fit in RAM'
! grep -q -e '--mlock' "$work/err" &&
    { [ $(($(stat -c %d "$MODEL" 2>/dev/null || echo 0) / 256)) -eq 0 ] || grep -q "$told" "$work/err"; }
result paging_disk_is_told
run "$TANDEM" --device none -c 4096 --ram 160M
[ $code -eq 1 ] && grep -q -e '-c 2048 fits; or --allow-paging' "$work/err"
result paging_shorter_context
run "$TANDEM" --device none -c 4096 --ram 100M
[ $code -eq 1 ] && n_ctx=$(sed -n 's/^ *-c \([0-9]*\) fits with --allow-paging; or .*/\1/p' "$work/err") &&
    [ -n "$n_ctx" ] && run "$TANDEM" --device none -c "$n_ctx" --ram 100M --allow-paging && [ $code -eq 0 ]
result paging_shorter_context_and_paging
run "$TANDEM" --device none -c 4096 --ram 10M
[ $code -eq 1 ] && ram=$(sed -n 's/^ *Raise --ram to \([0-9]*M\), or take a smaller model.*/\1/p' "$work/err") &&
    [ -n "$ram" ] && run "$TANDEM" --device none -c 4096 --ram "$ram" && [ $code -eq 0 ]
result paging_cannot_help
# More RAM helps where even that does not hold all weights; the disk is what limits such a plan.
"$TANDEM" plan --shape llama-3.3-70b --machine gtx-1650-4g --allow-paging >"$work/plan" 2>"$work/err" &&
    grep -q '^generation: .*; limited by reading the disk' "$work/plan" &&
    grep -q '^  4 GiB more of RAM .* tokens/s, x 1\.1' "$work/plan" &&
    ! grep -q '^would not help: .*of RAM' "$work/plan"
result paging_advice
# A saved plan with cold weights is the same again, or refused with the option that it needs.
saved_plan() {
    "$TANDEM" plan --shape llama-3.3-70b --machine gtx-1650-4g "$@" >"$work/plan" 2>"$work/err"
}
saved_plan --allow-paging --save "$work/saved" && saved_plan --allow-paging --plan "$work/saved" --save "$work/again" &&
    cmp -s "$work/saved" "$work/again" && grep -q '27.38 GiB of weights do not fit in RAM' "$work/err"
result paging_replayed
saved_plan --plan "$work/saved"
[ $? -eq 1 ] && [ "$(wc -l <"$work/err")" -eq 2 ] && grep -q 'needs 37.73 GiB of RAM beside the GPU' "$work/err" &&
    grep -q -e 'tandem plan ... --save FILE; or --allow-paging reads the rest from the disk' "$work/err"
result paging_replay_names_the_option
# Without what is read at once, or with too little on the GPU, paging does not help either.
saved_plan --allow-paging --plan "$work/saved" --ram 2G
[ $? -eq 1 ] && grep -q 'need 37.73 GiB of its memory .*, and 2.00 GiB are free' "$work/err" &&
    ! saved_plan --allow-paging --plan "$work/saved" --vram 2G && grep -q 'GTX 1650 need' "$work/err"
result paging_replay_refused
"$TANDEM" plan -m "$MODEL" -c 512 --device none --ram 90M --allow-paging --save "$work/saved" >"$work/plan" 2>"$work/err" &&
    timeout 300 "$TANDEM" run -m "$MODEL" -n 12 --ignore-eos --temp 0 -p 'The capital of France' --device none \
        --ram 90M --allow-paging --plan "$work/saved" >"$work/out" 2>"$work/err"
code=$?
[ $code -eq 0 ] && cmp -s "$work/out" "$work/in_ram" && grep -q 'MiB of weights do not fit in RAM' "$work/err"
result paging_replay_runs
run "$TANDEM_SIM" --device sim:vram=24M --ram 80M --allow-paging
[ $code -eq 0 ] && cmp -s "$work/out" "$work/in_ram"
result paging_beside_a_gpu
run "$TANDEM" --device none --ram 30M --allow-paging
[ $code -eq 1 ] && [ "$(wc -l <"$work/err")" -eq 2 ]
result paging_needs_some_ram
run "$TANDEM" --device none --mlock -q
[ $code -eq 0 ] && cmp -s "$work/out" "$work/in_ram"
result paging_mlock
# The first run of a file that is not in RAM reads it before it computes, which is no paging.
cp "$MODEL" "$work/cold.gguf" && sync "$work/cold.gguf" &&
    dd if="$work/cold.gguf" iflag=nocache count=0 2>"$work/dd" && MODEL=$work/cold.gguf run "$TANDEM" --device none
[ "$code" = 0 ] && cmp -s "$work/out" "$work/in_ram" && ! grep -q 'came from the disk' "$work/err"
result paging_cold_start
