#!/bin/sh
# clang.sh: compiles kernels with clang, and finds a clang that can. cuda.mk calls it.
#
#   sh kernels/cuda/clang.sh compile CLANG ARCH PTX SOURCE TARGET
#       makes PTX for compute capability ARCH (61) in the language of version PTX (60 is 6.0), which
#       decides what the oldest driver is. A clang that finds a toolkit may write another version;
#       that is a failure.
#   sh kernels/cuda/clang.sh find MEMORY "61:60 75:65 ..." CLANG...
#       prints the first CLANG that compiles a kernel for all targets, or "-", and then why others
#       before it cannot. MEMORY is a file that keeps the answer until a compiler or a source changes.
set -u
here=$(dirname "$0")

# The folder that does not exist keeps clang from a toolkit, whose newer version of PTX it would take.
compile() {
    "$1" -std=c++17 -O3 -I. -x cuda --cuda-device-only -nocudainc -nocudalib \
        --cuda-path=/nonexistent -S -Wall -Wextra -Werror -Wno-unknown-cuda-version \
        --cuda-gpu-arch="sm_$2" -Xclang -target-feature -Xclang "+ptx$3" -o "$5" "$4" || return 1
    wanted=$(echo "$3" | sed 's/.$/.&/')
    written=$(sed -n 's/^[.]version //p' "$5")
    [ "$written" = "$wanted" ] && return 0
    rm -f "$5"
    echo "$4: $1 wrote PTX ${written:-without a version} instead of $wanted" >&2
    return 1
}

# The matrix kernels of attention take most of what device.cuh has, and compile in half a second.
can_compile() { # CLANG TARGETS
    for target in $2; do
        compile "$1" "${target%:*}" "${target#*:}" "$here/attention_mma.cu" "$scrap.ptx" \
            >"$scrap.log" 2>&1 || return 1
    done
}

find_clang() { # TARGETS CLANG...
    targets=$1 why=''
    shift
    for clang in "$@"; do
        if can_compile "$clang" "$targets"; then
            echo "$clang$why"
            return
        fi
        reason=$(grep -m 1 -E 'error|instead of' "$scrap.log" || head -n 1 "$scrap.log")
        why="$why $clang cannot: ${reason:-it fails without a word};"
    done
    echo "-$why"
}

case ${1:-} in
compile)
    shift
    compile "$@" ;;
find)
    memory=$2 targets=$3 scrap=$2.$$
    shift 3
    clangs='' paths=''
    for clang in "$@"; do
        path=$(command -v "$clang") || continue
        clangs="$clangs $clang" paths="$paths $path"
    done
    mkdir -p "$(dirname "$memory")"
    # shellcheck disable=SC2086
    state="$targets:$clangs
$(ls -lL $paths "$0" "$here/device.cuh" "$here/attention_mma.cu")"
    if [ "$(sed 1d "$memory" 2>/dev/null)" != "$state" ]; then
        # shellcheck disable=SC2086
        answer=$(find_clang "$targets" $clangs)
        printf '%s\n%s\n' "$answer" "$state" >"$scrap" && mv "$scrap" "$memory"
        rm -f "$scrap.ptx" "$scrap.log"
    fi
    head -n 1 "$memory" ;;
*)
    echo "usage: clang.sh compile CLANG ARCH PTX SOURCE TARGET, or find MEMORY TARGETS CLANG..." >&2
    exit 2 ;;
esac
