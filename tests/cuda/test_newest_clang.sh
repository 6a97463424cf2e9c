#!/bin/sh
# test_newest_clang.sh: the newest clang that PyPI or Debian has compiles every kernel, and writes the
# version of PTX that old drivers read. It is the one inside the ziglang package, clang 22.
#
#   sh tests/cuda/test_newest_clang.sh      through make newest-clang
#
# All kernels for 8.0, whose code has every branch but a few of 7.5; of the others the kernels that a
# build tries a clang with (clang.sh find), and those of 7.5's own instructions.
set -u
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folder=build/newest-clang
package=ziglang==0.17.1
sha256=ea6cc5d87b033cf0aedfbc8f9549a908cae6c50ac31f1698188fa48a74524b54
version=22

sh tests/macos/zig.sh $folder $package $sha256 || exit 1
clang=$work/clang
printf '#!/bin/sh\nexec "%s/ziglang/zig" clang -isystem "%s/ziglang/lib/include" "$@"\n' \
    "$PWD/$folder" "$PWD/$folder" >"$clang"
chmod +x "$clang"

result() { # name, after a test
    if [ $? -eq 0 ]; then echo "ok newest_clang_$1"; else
        echo "not ok newest_clang_$1"
        head -n 8 "$work/log"
    fi
}
"$clang" --version >"$work/log" 2>&1
grep -q "clang version $version" "$work/log"
result version
sh kernels/cuda/clang.sh find "$work/memory" '61:60 75:65 80:70' "$clang" >"$work/log" 2>&1
[ "$(cat "$work/log")" = "$clang" ]
result can_be_taken
compile() { # ARCH PTX SOURCE
    sh kernels/cuda/clang.sh compile "$clang" "$1" "$2" "$3" "$work/out.ptx" >"$work/log" 2>&1
    result "$(basename "$3" .cu)_$1"
}
for source in kernels/cuda/*.cu bench/cuda/*.cu; do
    compile 80 70 "$source"
done
compile 75 65 kernels/cuda/gemm_mma_narrow.cu
compile 61 60 kernels/cuda/matvec.cu
