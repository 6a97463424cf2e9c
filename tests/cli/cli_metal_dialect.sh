#!/bin/sh
# cli_metal_dialect.sh: the Metal kernels keep the rules of their language that a host's compiler
# does not know: clang reads them with address spaces as attributes, so that no pointer leaves its
# space, and a list of words is looked for that Metal has not. Kernels that break a rule each are
# refused.
set -u
. tests/lib/results.sh
if ! command -v clang++ >/dev/null; then
    echo 'ok 1 # SKIP clang is not here'
    exit 0
fi

# check FILE: what is wrong with it goes to $work/err.
check() {
    {
        echo 'using namespace metal;'
        cc -E -undef -nostdinc -x c++ -w -Ibuild/metal/stub -I. "$1" |
            awk -v mode=check -f tests/metal/host_kernels.awk || return 1
    } >"$work/kernels.cc" 2>"$work/err"
    # _Float16 is there on this target.
    clang++ --target=aarch64-linux-gnu -x c++ -std=c++17 -fsyntax-only -Wall -Wextra -Werror \
        -Wno-unknown-pragmas -Wno-unused-function -DMETAL_CHECK -nostdinc -I. \
        -include tests/metal/metal_host.hpp "$work/kernels.cc" 2>"$work/err"
}
# lint FILE ...: no numbers of 64 bits with a point, nothing of the C++ library, no lambdas, no
# exceptions, no memory of the heap, no printing.
lint() {
    ! sed 's,//.*,,; /^\/[*]/,/[*]\//d' "$@" | grep -nE \
        '\b(double|try|catch|throw|virtual|new|delete|malloc|thread_local|asm|goto|printf|typeid)\b|std::|long long|\[[&=]?\] *\(' \
        >"$work/err"
}

# The stubs of Metal's headers are made with the text of the kernels.
if ! [ -d build/metal/stub ]; then make -s build/metal/args.metal; fi
for file in $(grep -lE '^kernel |host_name' kernels/metal/*.metal); do
    check "$file"
    result "metal_dialect_$(basename "$file" .metal)"
done
lint kernels/metal/*.metal
result metal_dialect_words

# ---- Deliberate errors ---------------------------------------------------------------------------
# refused NAME WORDS: reads a kernel's text; it must not pass, for this reason.
refused() {
    {
        echo '#include "kernels/metal/device.metal"'
        cat
    } >"$work/$1.metal"
    code=0
    check "$work/$1.metal" && lint "$work/$1.metal" && code=1
    [ $code -eq 0 ] && grep -qE "$2" "$work/err"
    result "metal_dialect_refuses_$1"
}
refused lost_device "cannot initialize a variable of type 'const float \*'" <<'X'
kernel void f(device const float *x [[buffer(1)]]) { const float *p = x; (void)p; }
X
refused device_for_threadgroup 'no matching function|cannot initialize' <<'X'
static float first(threadgroup const float *p) { return p[0]; }
kernel void f(device float *x [[buffer(1)]]) { x[0] = first(x); }
X
refused constant_that_is_written 'const-qualified' <<'X'
kernel void f(constant int &x [[buffer(1)]]) { x = 1; }
X
refused parameter_without_attribute 'no attribute in' <<'X'
kernel void f(device float *x) { x[0] = 1; }
X
refused unknown_position 'unknown attribute thread_number' <<'X'
kernel void f(device float *x [[buffer(1)]], uint i [[thread_number]]) { x[i] = 1; }
X
refused index_used_twice 'buffer\(1\) twice' <<'X'
kernel void f(device float *x [[buffer(1)]], device float *y [[buffer(1)]]) { x[0] = y[0]; }
X
refused double 'double' <<'X'
kernel void f(device float *x [[buffer(1)]]) { x[0] = float(double(x[1]) * 3); }
X
refused lambda 'auto add' <<'X'
kernel void f(device float *x [[buffer(1)]]) { auto add = [=](float v) { return v + 1; }; x[0] = add(1); }
X
refused standard_library 'std' <<'X'
kernel void f(device float *x [[buffer(1)]]) { x[0] = std::sqrt(x[0]); }
X
