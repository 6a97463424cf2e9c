#!/bin/sh
# deps.sh: installs what the build needs through apt-get, and nothing that is there already.
#
#   sh tests/deps.sh          what building, running and testing need; clang makes the GPU's kernels,
#                             g++ the emulator that tests them
#   sh tests/deps.sh extra    also the sanitizers of clang, clang-format and valgrind
#   sh tests/deps.sh arm      also the cross compiler for aarch64 and qemu
#
# Quiet and quick when nothing is missing. On a system without dpkg it only looks and says what to
# install by hand.
set -eu

packages='gcc g++ clang make pkg-config libhwloc-dev libjemalloc-dev libpcre2-dev libutf8proc-dev
    libjansson-dev libedit-dev libcurl4-openssl-dev nettle-dev libzstd-dev libcmocka-dev libc6-dev
    ca-certificates zstd python3 python3-pip unzip gnuplot-nox'
extra='libclang-rt-14-dev libomp-14-dev clang-format valgrind'
arm='gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user'
case ${1:-} in
extra) packages="$packages $extra" ;;
arm) packages="$packages $arm" ;;
esac

say() { echo "tandem: $*" >&2; }

if ! command -v dpkg-query >/dev/null 2>&1; then
    lacking=''
    for tool in gcc pkg-config python3 unzip zstd; do
        command -v "$tool" >/dev/null 2>&1 || lacking="$lacking $tool"
    done
    for library in hwloc jemalloc libpcre2-8 libutf8proc jansson libedit libcurl nettle libzstd cmocka; do
        pkg-config --exists "$library" 2>/dev/null || lacking="$lacking $library"
    done
    [ -z "$lacking" ] && exit 0
    say "this is no Debian system; please install by hand:$lacking"
    exit 1
fi

# pkg-config is a name that another package provides on newer systems, hence the command.
missing=''
for package in $packages; do
    case $package in
    gcc | g++ | make | pkg-config | unzip | zstd | clang | clang-format | valgrind)
        command -v "$package" >/dev/null 2>&1 || missing="$missing $package" ;;
    libcurl4-openssl-dev) # or libcurl with another TLS, of which a system has one
        pkg-config --exists libcurl 2>/dev/null || missing="$missing $package" ;;
    gnuplot-nox) # or any other gnuplot
        command -v gnuplot >/dev/null 2>&1 || missing="$missing $package" ;;
    *)
        state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null || true)
        [ "$state" = installed ] || missing="$missing $package" ;;
    esac
done
[ -z "$missing" ] && exit 0

as_root=''
if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        say "packages are missing, and this is neither root nor is there sudo. As root, please run:"
        say "  apt-get install$missing"
        exit 1
    fi
    as_root='sudo'
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
apt() { $as_root env DEBIAN_FRONTEND=noninteractive apt-get -q -y "$@" </dev/null >>"$log" 2>&1; }

say "installing$missing"
# shellcheck disable=SC2086
if ! { apt update && apt install --no-install-recommends $missing; }; then
    tail -n 20 "$log" >&2
    say "apt-get failed (its last words are above); by hand: apt-get install$missing"
    exit 1
fi
