"""make_quantize_golden.py: writes quantize.txt: the errors of the quantisers of llama.cpp.

    venv/bin/pip install llama-cpp-python==0.3.36 gguf numpy
    venv/bin/python tests/golden/make_quantize_golden.py

A line is a type, the root of the mean squared error over the rows below without importance, and the
root of the mean of importance times squared error with it. tests/kernels/test_quantize.c makes the
same rows, and may not be more than 2 % worse.
"""

import ctypes
import os

import gguf
import llama_cpp
import numpy as np

ROWS, COLUMNS = 64, 1024
TYPES = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K",
         "MXFP4", "IQ4_NL", "IQ4_XS", "TQ2_0", "TQ1_0", "IQ3_S", "IQ3_XXS", "IQ2_S", "IQ2_XS",
         "IQ2_XXS"]
NEED_IMPORTANCE = ["IQ2_XS", "IQ2_XXS"]  # that of every column is 1 where there is none
HERE = os.path.dirname(os.path.abspath(__file__))


def splitmix(n):
    """The first n outputs of splitmix64 from seed 0."""
    mask = (1 << 64) - 1
    for i in range(1, n + 1):
        z = i * 0x9E3779B97F4A7C15 & mask
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & mask
        z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
        yield z ^ z >> 31


def make_rows():
    """Sums of four uniform numbers; every 16th is four times as large."""
    out = []
    for i, z in enumerate(splitmix(ROWS * COLUMNS)):
        total = sum(z >> 16 * k & 0xFFFF for k in range(4)) - 2 * 0xFFFF
        out.append(total / 65536 * (4 if i % 16 == 5 else 1))
    return np.array(out, np.float32).reshape(ROWS, COLUMNS)


def main():
    folder = os.path.join(os.path.dirname(llama_cpp.__file__), "lib")
    ggml = ctypes.CDLL(os.path.join(folder, "libggml-base.so"))
    ggml.ggml_quantize_chunk.restype = ctypes.c_size_t
    ggml.ggml_quantize_chunk.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p] + \
        [ctypes.c_int64] * 3 + [ctypes.c_void_p]
    rows = make_rows()
    importance = np.array([1 + i * 7 % 13 for i in range(COLUMNS)], np.float32)
    with open(os.path.join(HERE, "quantize.txt"), "w") as out:
        for name in TYPES:
            errors = []
            for weights in (None, importance):
                if weights is None and name in NEED_IMPORTANCE:
                    weights_given = np.ones(COLUMNS, np.float32)
                else:
                    weights_given = weights
                kind = gguf.GGMLQuantizationType[name]
                bytes_ = np.zeros(rows.size * 2, np.uint8)
                used = ggml.ggml_quantize_chunk(
                    kind, rows.ctypes.data, bytes_.ctypes.data, 0, ROWS, COLUMNS,
                    None if weights_given is None else weights_given.ctypes.data)
                again = gguf.dequantize(bytes_[:used].reshape(ROWS, -1), kind)
                squares = (again.astype(np.float64) - rows) ** 2
                errors.append(np.sqrt((squares * (1 if weights is None else weights)).mean()))
            out.write("%s %.6g %.6g\n" % (name, *errors))


if __name__ == "__main__":
    main()
