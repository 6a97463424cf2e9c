#!/bin/sh
# cli_cuda_build.sh: which compiler makes the kernels for GPUs, and what is said about it: clangs that
# cannot compile them, or write PTX that old drivers do not read, are passed over; nvcc stands in for
# them; without any the program is built for the CPU. All but one of the compilers are scripts.
set -u
root=$(pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
targets='61:60 75:65 80:70'

check() { # name, exit code of the test before it
    if [ "$2" -eq 0 ]; then
        echo "ok cuda_build_$1"
    else
        echo "not ok cuda_build_$1"
        cat "$work/out"
    fi
}
# script NAME: makes a program of standard input.
script() {
    { echo '#!/bin/sh'; cat; } >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}

mkdir "$work/bin"
export PATH="$work/bin:$PATH"
# Writes the version that it is asked for.
fine_clang() {
    script fine-clang <<'X1'
while [ "$1" != -o ]; do
    case $1 in +ptx*) version=${1#+ptx} ;; esac
    shift
done
echo ".version ${version%?}.${version#?}" >"$2"
X1
}
fine_clang
script broken-clang <<'X1'
echo "device.cuh:102:48: error: use of undeclared identifier 'x'" >&2; exit 1
X1
# As one that takes the version of a toolkit that it finds.
script toolkit-clang <<'X1'
while [ "$1" != -o ]; do shift; done
echo '.version 8.8' >"$2"
X1
script silent-clang <<'X1'
exit 1
X1
script nvcc-13 <<'X1'
case $* in
--version) echo 'Cuda compilation tools, release 13.2, V13.2.51' ;;
--list-gpu-arch) printf 'compute_75\ncompute_80\ncompute_120\n' ;;
*) while [ "$1" != -o ]; do shift; done; echo by nvcc >"$2" ;;
esac
X1

# ---- The choice ----------------------------------------------------------------------------------
finds() { # name, expected words, clangs
    name=$1 expected=$2
    shift 2
    sh kernels/cuda/clang.sh find "$work/memory/clang" "$targets" "$@" >"$work/out" 2>&1
    grep -qxE -e "$expected" "$work/out"
    check "$name" $?
}
finds first_that_can fine-clang no-such-clang fine-clang broken-clang
finds passes_over_a_broken_one 'fine-clang broken-clang cannot: .*102:48: error: .*;' \
    broken-clang fine-clang
finds passes_over_wrong_ptx 'fine-clang toolkit-clang cannot: .* wrote PTX 8.8 instead of 6.0;' \
    toolkit-clang fine-clang
finds says_of_each '- silent-clang cannot: .* word; broken-clang cannot: .*error.*;' \
    silent-clang broken-clang
finds nothing - no-such-clang
# The answer is kept until a compiler changes.
finds before_it_changes fine-clang fine-clang
cp "$work/bin/broken-clang" "$work/bin/fine-clang"
finds sees_a_new_compiler '- fine-clang cannot: .*;' fine-clang
fine_clang
if clang=$(command -v clang-14 || command -v clang); then
    finds a_real_one "$clang" "$clang"
else
    echo 'ok 1 # SKIP there is no clang'
fi

sh kernels/cuda/clang.sh compile toolkit-clang 75 65 kernels/cuda/gather.cu "$work/x.ptx" \
    >"$work/out" 2>&1
[ $? -ne 0 ] && ! [ -e "$work/x.ptx" ] && grep -q 'gather.cu: .*PTX 8.8 instead of 6.5' "$work/out"
check refuses_wrong_ptx $?

# ---- The build -----------------------------------------------------------------------------------
mkdir "$work/tree"
ln -s "$root/kernels" "$root/bench" "$work/tree"
cat >"$work/tree/Makefile" <<'X1'
D := build/release
.DEFAULT_GOAL := build/cuda/images.def
include kernels/cuda/cuda.mk
FORCE:
images: ; @echo "images:$(CUDA_IMAGES)"
X1
# builds GOAL SETTING...: $work/out gets what make says.
builds() {
    goal=$1
    shift
    rm -rf "$work/tree/build"
    MAKEFLAGS='' MAKELEVEL=0 make -C "$work/tree" CUBINS= "$@" "$goal" >"$work/out" 2>&1
}
images=$work/tree/build/cuda/images.def
builds build/cuda/compute_75/gather.ptx CUDA_CLANGS='broken-clang fine-clang' NVCC=
[ $? -eq 0 ] && grep -q '^[.]version 6.5' "$work/tree/build/cuda/compute_75/gather.ptx" &&
    grep -q '^tandem: kernels for GPUs: broken-clang cannot: .*; fine-clang makes them' "$work/out"
check next_clang $?
builds build/cuda/images.def CUDA_CLANGS=fine-clang NVCC=nvcc-13 CUBINS=120
[ $? -eq 0 ] && grep -q '(compute_61, 61, true, 9000, gather,' "$images" &&
    grep -q '(compute_75, 75, true, 10020, gather,' "$images" &&
    grep -q '(compute_80, 80, true, 11000, gather,' "$images" &&
    grep -q '(sm_120, 120, false, 13000, gather,' "$images" && ! grep -q '^tandem' "$work/out"
check table_of_clang $?
builds build/cuda/images.def CUDA_CLANGS=fine-clang NVCC=nvcc-13 CUBINS=120 USE_ZSTD=libzstd
[ $? -eq 0 ] && grep -q 'gather, "build/cuda/compute_61/gather.ptx.zst")' "$images" &&
    grep -q 'gather, "build/cuda/sm_120/gather.cubin.zst")' "$images"
check table_of_packed $?
builds build/cuda/images.def CUDA_CLANGS=broken-clang NVCC=nvcc-13
[ $? -eq 0 ] && grep -q '(compute_75, 75, true, 13020, gather,' "$images" &&
    ! grep -q compute_61 "$images" && grep -q 'broken-clang cannot: .*; nvcc-13 makes them' "$work/out" &&
    grep -q 'need a driver of CUDA 13.2 and a GPU of 7.5 or newer, by clang one of 9.0 and 6.1' "$work/out"
check falls_back_to_nvcc $?
builds images CUDA_CLANGS=broken-clang NVCC=
[ $? -eq 0 ] && grep -qx 'images: *' "$work/out" && grep -q '^tandem: no clang that can .* for the CPU only' "$work/out"
check only_the_cpu $?
builds images CUDA=0
[ $? -eq 0 ] && grep -qx 'images: *' "$work/out" && ! grep -q '^tandem' "$work/out"
check without_cuda $?

# ---- Images that are not packed, as without zstd -------------------------------------------------
images=$root/build/cuda/images.def
if grep -qs '[.]ptx' "$images"; then
    sed 's/[.]zst")/")/' "$images" >"$work/plain.def"
    gcc -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror -I. -DCUDA_PACKED=0 -DCUDA_IMAGES="\"$work/plain.def\"" \
        -c -o "$work/plain.o" kernels/cuda/cuda_images.c >"$work/out" 2>&1 &&
        grep -q '[.]entry gather_rows' "$work/plain.o" && ! grep -q ZSTD_ "$work/plain.o"
    check not_packed $?
else
    echo 'ok cuda_build_not_packed # SKIP this build has no kernels for GPUs'
fi
