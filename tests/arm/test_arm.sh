#!/bin/sh
# test_arm.sh: the kernels of aarch64 and the tiny models under qemu, on a processor for each level
# of instructions. make test-arm builds what it runs.
#
# The products of integer types must be those of x86, bit for bit: check_ops prints a sum of the
# outputs' bits for each line. qemu shows nothing about speed.
set -u
native=build/release/tests
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A program of its own for cli_tiny.sh, which calls "$TANDEM".
printf '#!/bin/sh\nexec qemu-aarch64 -cpu "$ARM_CPU" %s/build/arm/tandem "$@"\n' "$PWD" >"$work/tandem"
chmod +x "$work/tandem"

# products FILE: type and bits of the lines about products of integer types, whatever the level.
products() {
    awk '/^ok matmul/ && $3 !~ /f16|f32|layer/ { print $2, $3, $NF }' "$1"
}
for op in matmul matmul_experts; do
    "$native/kernels/check_ops" --quick --isa avx2 --op $op
done >"$work/x86"
products "$work/x86" >"$work/x86.products"

# check_level ISA: the kernels of a level; $ARM_CPU is a processor that has it.
check_level() {
    isa=$1
    "$work/tandem" devices | grep -q "Q4_K $isa"
    [ $? -eq 0 ] && echo "ok ${isa}_is_chosen" || echo "not ok ${isa}_is_chosen"
    "$work/tandem" devices | grep -q " $isa (never run on real hardware)"
    [ $? -eq 0 ] && echo "ok ${isa}_was_not_run" || echo "not ok ${isa}_was_not_run"
    qemu-aarch64 -cpu "$ARM_CPU" build/arm/tests/kernels/check_ops --quick --isa "$isa" >"$work/$isa"
    code=$?
    grep '^[on]' "$work/$isa"
    [ $code -eq 0 ] || echo "not ok ${isa}_ops # exit code $code"
    products "$work/$isa" | cmp - "$work/x86.products" && [ -s "$work/x86.products" ]
    [ $? -eq 0 ] && echo "ok ${isa}_bits_of_x86" || echo "not ok ${isa}_bits_of_x86"
}

# The levels and the tiny models run side by side, since nothing else uses the other processors.
for level in neon=cortex-a57 dotprod=neoverse-n1 i8mm=max; do
    (ARM_CPU=${level#*=} && export ARM_CPU && check_level "${level%=*}") >"$work/${level%=*}.tests" 2>&1 &
done
(ARM_CPU=max TANDEM=$work/tandem TOOLS=$native && export ARM_CPU TANDEM TOOLS &&
    sh tests/cli/cli_tiny.sh || echo "not ok tiny_models # exit code $?") >"$work/tiny.tests" 2>&1 &
wait
cat "$work"/*.tests
