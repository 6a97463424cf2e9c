"""imatrix_sums.py: sums up a file of importance in a line for each tensor, and compares with others.

    python3 tests/golden/imatrix_sums.py FILE > LINES        prints the lines
    python3 tests/golden/imatrix_sums.py FILE LINES LIMIT    fails where a number is further off

tests/golden/imatrix.NAME.txt holds the lines of the file that llama-imatrix (llama.cpp of
llama-cpp-python 0.3.36) makes of tests/golden/tiny/NAME.gguf by:

    seq 1 600 >text; llama-imatrix -m NAME.gguf -f text -c 64 --no-ppl -o FILE

A line is a name, and then, for each count, the count, the mean of squares over columns, and the mean
column, weighted by the squares.
"""

import array
import struct
import sys

SIZES = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def number(self, kind):
        value = struct.unpack_from("<" + kind, self.data, self.at)[0]
        self.at += struct.calcsize(kind)
        return value

    def text(self):
        length = self.number("Q")
        self.at += length
        return self.data[self.at - length:self.at].decode()

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            element, count = self.number("I"), self.number("Q")
            return [self.value(element) for _ in range(count)]
        return self.number(SIZES[kind])


def read(path):
    """The F32 tensors of a GGUF file."""
    with open(path, "rb") as file:
        data = file.read()
    r = Reader(data)
    assert data[:4] == b"GGUF" and struct.unpack_from("<I", data, 4)[0] == 3
    r.at = 8
    n_tensors, n_values = r.number("Q"), r.number("Q")
    values = {}
    for _ in range(n_values):
        key = r.text()
        values[key] = r.value(r.number("I"))
    assert values["general.type"] == "imatrix" and values["imatrix.chunk_size"] == 64
    records = []
    for _ in range(n_tensors):
        name = r.text()
        count = 1
        for _ in range(r.number("I")):
            count *= r.number("Q")
        assert r.number("I") == 0
        records.append((name, count, r.number("Q")))
    start = (r.at + 31) // 32 * 32
    tensors = {}
    for name, count, offset in records:
        tensors[name] = array.array("f", data[start + offset:start + offset + 4 * count])
    return tensors


def lines(tensors):
    for name in sorted(tensors):
        if not name.endswith(".in_sum2"):
            continue
        sums, counts = tensors[name], tensors[name[:-8] + ".counts"]
        n = len(sums) // len(counts)
        words = [name[:-8]]
        for i, count in enumerate(counts):
            part = sums[i * n:(i + 1) * n]
            total = sum(part) or 1
            centre = sum(k * v for k, v in enumerate(part)) / total
            words.append("%d %.6g %.6g" % (count, total / n / max(count, 1), centre))
        yield " ".join(words)


def compare(found, wanted, limit):
    bad = 0
    assert len(found) == len(wanted), "%d tensors, expected %d" % (len(found), len(wanted))
    for a, b in zip(found, wanted):
        a, b = a.split(), b.split()
        far = a[0] != b[0] or len(a) != len(b)
        for x, y in zip(a[1:], b[1:]):
            far = far or abs(float(x) - float(y)) > limit * max(abs(float(y)), 1e-6)
        bad += far
        if far:
            print("found", *a, "expected", *b)
    return bad


if len(sys.argv) == 2:
    print("\n".join(lines(read(sys.argv[1]))))
else:
    with open(sys.argv[2]) as golden:
        sys.exit(compare(list(lines(read(sys.argv[1]))), golden.read().splitlines(),
                         float(sys.argv[3])) > 0)
