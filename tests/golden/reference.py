"""reference.py: llama-architecture GGUF files in float64, written from the formulas alone.

The independent judge of the C engine: it shares no code with it and trades all speed for being easy
to check. make_logits_golden.py and make_tiny_models.py use it. `python reference.py` checks the
dequantisers against known block sums. Needs numpy and the `gguf` package (only for reading the
container).
"""

import glob
import os
import re

import numpy as np
from gguf import GGUFReader

# --- Weights: every decoder takes raw[n_blocks, block_bytes] uint8 and gives float64
# y[n_blocks, block_elements].


def half(raw, at):
    """The half at byte `at` of every block, as a column."""
    return raw[:, at : at + 2].copy().view("<f2").astype(np.float64)


def nibbles(q):
    """Low nibbles of all bytes first, high nibbles after: the order of every 32-element type."""
    return np.concatenate([q & 15, q >> 4], axis=1).astype(np.float64)


def bits32(raw, at):
    """The 32 bits of the u32 at byte `at`, bit j in column j."""
    return np.unpackbits(raw[:, at : at + 4], axis=1, bitorder="little").astype(np.float64)


def decode_f32(raw):
    return raw.copy().view("<f4").astype(np.float64)


def decode_f16(raw):
    return raw.copy().view("<f2").astype(np.float64)


def decode_bf16(raw):
    return (raw.copy().view("<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def decode_q4_0(raw):
    return half(raw, 0) * (nibbles(raw[:, 2:18]) - 8)


def decode_q4_1(raw):
    return half(raw, 0) * nibbles(raw[:, 4:20]) + half(raw, 2)


def decode_q5_0(raw):
    return half(raw, 0) * (nibbles(raw[:, 6:22]) + 16 * bits32(raw, 2) - 16)


def decode_q5_1(raw):
    return half(raw, 0) * (nibbles(raw[:, 8:24]) + 16 * bits32(raw, 4)) + half(raw, 2)


def decode_q8_0(raw):
    return half(raw, 0) * raw[:, 2:34].view(np.int8).astype(np.float64)


def scales_k4(sc):
    """Eight 6-bit scales and eight 6-bit minima from the 12 packed bytes of Q4_K and Q5_K."""
    scale = np.empty((len(sc), 8))
    minimum = np.empty((len(sc), 8))
    for i in range(4):
        scale[:, i] = sc[:, i] & 63
        minimum[:, i] = sc[:, i + 4] & 63
    for i in range(4, 8):
        scale[:, i] = (sc[:, i + 4] & 15) | ((sc[:, i - 4] >> 6) << 4)
        minimum[:, i] = (sc[:, i + 4] >> 4) | ((sc[:, i] >> 6) << 4)
    return scale, minimum


def decode_k45(raw, q_at, high):
    """Q4_K and Q5_K; high[n, 8, 32] is the value of the fifth bit, 0 for Q4_K."""
    scale, minimum = scales_k4(raw[:, 4:16])
    y = np.empty((len(raw), 8, 32))
    for i in range(8):
        q = raw[:, q_at + 32 * (i // 2) : q_at + 32 * (i // 2) + 32]
        v = (q & 15 if i % 2 == 0 else q >> 4) + high[:, i]
        y[:, i] = half(raw, 0) * scale[:, i : i + 1] * v - half(raw, 2) * minimum[:, i : i + 1]
    return y.reshape(len(raw), 256)


def decode_q4_k(raw):
    return decode_k45(raw, 16, np.zeros((len(raw), 8, 32)))


def decode_q5_k(raw):
    high = np.stack([16.0 * ((raw[:, 16:48] >> i) & 1) for i in range(8)], axis=1)
    return decode_k45(raw, 48, high)


def decode_q6_k(raw):
    ql, qh, sc = raw[:, 0:128], raw[:, 128:192], raw[:, 192:208].view(np.int8).astype(np.float64)
    y = np.empty((len(raw), 256))
    for k0 in range(0, 256, 32):
        n, g = k0 // 128, k0 % 128 // 32
        low = ql[:, 64 * n + 32 * (g & 1) :][:, :32]
        low = low & 15 if g < 2 else low >> 4
        high = (qh[:, 32 * n :][:, :32] >> (2 * g)) & 3
        y[:, k0 : k0 + 32] = (low | (high << 4)).astype(np.float64) - 32
    return half(raw, 208) * np.repeat(sc, 16, axis=1) * y


UNEVEN = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], float)
FLOATS_OF_4 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], float)


def decode_iq4_nl(raw):
    return half(raw, 0) * UNEVEN[nibbles(raw[:, 2:18]).astype(int)]


def decode_mxfp4(raw):
    return 2.0 ** (raw[:, :1].astype(float) - 128) * FLOATS_OF_4[nibbles(raw[:, 1:17]).astype(int)]


def decode_iq4_xs(raw):
    upper = raw[:, 2:4].copy().view("<u2").astype(int)
    y = np.empty((len(raw), 8, 32))
    for i in range(8):
        low = raw[:, 4 + i // 2 : 5 + i // 2].astype(int) >> 4 * (i % 2) & 15
        scale = (low | (upper >> 2 * i & 3) << 4) - 32
        y[:, i] = scale * UNEVEN[nibbles(raw[:, 8 + 16 * i : 24 + 16 * i]).astype(int)]
    return half(raw, 0) * y.reshape(len(raw), 256)


def decode_q3_k(raw):
    high, pairs, sc = raw[:, :32].astype(int), raw[:, 32:96].astype(int), raw[:, 96:108].astype(int)
    scales = [
        (sc[:, i % 8] >> 4 * (i // 8) & 15 | (sc[:, 8 + i % 4] >> 2 * (i // 4) & 3) << 4) - 32
        for i in range(16)
    ]
    y = np.empty((len(raw), 8, 32))
    for g in range(8):
        two = pairs[:, 32 * (g // 4) :][:, :32] >> 2 * (g % 4) & 3
        y[:, g] = two - np.where(high >> g & 1, 0, 4)
    return half(raw, 108) * np.repeat(np.stack(scales, axis=1), 16, axis=1) * y.reshape(-1, 256)


def decode_q2_k(raw):
    sc, pairs = raw[:, :16].astype(int), raw[:, 16:80].astype(int)
    n = np.concatenate(
        [pairs[:, 32 * (g // 4) :][:, :32] >> 2 * (g % 4) & 3 for g in range(8)], axis=1
    )
    scale, minimum = np.repeat(sc & 15, 16, axis=1), np.repeat(sc >> 4, 16, axis=1)
    return half(raw, 80) * scale * n - half(raw, 82) * minimum


def codebook(name, bits, values):
    """A codebook of kernels/grids.def, data of the format: an entry a row, a column a value."""
    path = os.path.join(os.path.dirname(__file__), "..", "..", "kernels", "grids.def")
    with open(path, encoding="ascii") as lines:
        rows = re.findall(rf"^{name}\((0x.*)\)$", lines.read(), re.MULTILINE)
    codes = np.array([int(code, 16) for row in rows for code in row.split(", ")])
    columns = {2: 8, 3: 4}[bits]
    return np.array(values, float)[codes[:, None] >> bits * np.arange(columns) & 2**bits - 1]


MAGNITUDES_2 = [8, 25, 43, 0]
IQ2_XXS = codebook("IQ2_XXS", 2, MAGNITUDES_2)
IQ2_XS = codebook("IQ2_XS", 2, MAGNITUDES_2)
IQ2_S = codebook("IQ2_S", 2, MAGNITUDES_2)
IQ3_XXS = codebook("IQ3_XXS", 3, [4, 12, 20, 28, 36, 44, 52, 62])
IQ3_S = codebook("IQ3_S", 3, [1, 3, 5, 7, 9, 11, 13, 15])
IQ1 = codebook("IQ1_S", 2, [-1, 0, 1, 0])


def words(raw, at, n, kind):
    """n little-endian integers of every block from byte `at` on."""
    size = np.dtype(kind).itemsize
    return raw[:, at : at + n * size].copy().view(kind).astype(np.int64)


def signs(bits):
    """-1 or 1 for eight columns from eight bits."""
    return 1.0 - 2 * (bits[..., None] >> np.arange(8) & 1)


def signs_of_7(bits):
    parity = sum(bits >> i for i in range(7)) & 1
    return signs(bits | parity << 7)


def signs_of_words(w):
    return signs_of_7(w[..., None] >> 7 * np.arange(4) & 127)


def nibbles_in_turn(raw):
    return np.stack([raw & 15, raw >> 4], axis=-1).reshape(len(raw), -1).astype(float)


def decode_iq3_xxs(raw):
    w = words(raw, 66, 8, "<u4")
    y = IQ3_XXS[raw[:, 2:66]].reshape(-1, 8, 4, 8) * signs_of_words(w)
    scale = (0.5 + (w >> 28)) / 2
    return half(raw, 0) * (y * scale[..., None, None]).reshape(-1, 256)


def decode_iq3_s(raw):
    high = np.unpackbits(raw[:, 66:74], axis=1, bitorder="little").astype(int)
    y = IQ3_S[raw[:, 2:66] | high << 8].reshape(-1, 32, 8) * signs(raw[:, 74:106].astype(int))
    scale = 1 + 2 * nibbles_in_turn(raw[:, 106:110])
    return half(raw, 0) * np.repeat(scale, 32, axis=1) * y.reshape(-1, 256)


def decode_iq2_xxs(raw):
    groups = raw[:, 2:66].reshape(-1, 8, 8)
    w = groups[:, :, 4:].copy().view("<u4")[..., 0].astype(np.int64)
    y = IQ2_XXS[groups[:, :, :4]] * signs_of_words(w)
    scale = (0.5 + (w >> 28)) / 4
    return half(raw, 0) * (y * scale[..., None, None]).reshape(-1, 256)


def decode_iq2_xs(raw):
    w = words(raw, 2, 32, "<u2")
    y = (IQ2_XS[w & 511] * signs_of_7(w >> 9)).reshape(-1, 256)
    return half(raw, 0) * np.repeat((0.5 + nibbles_in_turn(raw[:, 66:74])) / 4, 16, axis=1) * y


def decode_iq2_s(raw):
    high = raw[:, 66:74, None].astype(int) >> 2 * np.arange(4) & 3
    place = raw[:, 2:34] | high.reshape(-1, 32) << 8
    y = (IQ2_S[place] * signs(raw[:, 34:66].astype(int))).reshape(-1, 256)
    return half(raw, 0) * np.repeat((0.5 + nibbles_in_turn(raw[:, 74:82])) / 4, 16, axis=1) * y


def decode_iq1_s(raw):
    h = words(raw, 34, 8, "<u2")
    high = (h[:, :, None] >> 3 * np.arange(4) & 7).reshape(-1, 32)
    y = IQ1[raw[:, 2:34] | high << 8].reshape(-1, 8, 32) + np.where(h >> 15, -1, 1)[..., None] / 8
    return half(raw, 0) * (y * (2 * (h >> 12 & 7) + 1)[..., None]).reshape(-1, 256)


def decode_iq1_m(raw):
    sc = words(raw, 48, 4, "<u2")
    bits = sc[:, 0] >> 12 | sc[:, 1] >> 8 & 0xF0 | sc[:, 2] >> 4 & 0xF00 | sc[:, 3] & 0xF000
    d = bits.astype("<u2").view("<f2").astype(float)[:, None]
    t = nibbles_in_turn(raw[:, 32:48]).astype(int)
    y = IQ1[raw[:, :32] | (t & 7) << 8] + np.where(t & 8, -1, 1)[..., None] / 8
    scale = (2 * (sc[:, :, None] >> 3 * np.arange(4) & 7) + 1).reshape(-1, 16)
    return d * np.repeat(scale, 16, axis=1) * y.reshape(-1, 256)


def decode_tq2_0(raw):
    pairs = raw[:, :64].reshape(-1, 2, 1, 32) >> 2 * np.arange(4).reshape(-1, 1) & 3
    return half(raw, 64) * (pairs.reshape(-1, 256).astype(float) - 1)


def decode_tq1_0(raw):
    def digits(part, count):
        rest = part[:, None, :].astype(int) * 3 ** np.arange(count)[:, None] % 256
        return (rest * 3 // 256).reshape(len(part), -1)

    parts = digits(raw[:, :32], 5), digits(raw[:, 32:48], 5), digits(raw[:, 48:52], 4)
    return half(raw, 52) * (np.concatenate(parts, axis=1) - 1)


# name -> (number in the file, elements, bytes, decoder)
TYPES = {
    "F32": (0, 1, 4, decode_f32),
    "F16": (1, 1, 2, decode_f16),
    "BF16": (30, 1, 2, decode_bf16),
    "Q8_0": (8, 32, 34, decode_q8_0),
    "Q4_0": (2, 32, 18, decode_q4_0),
    "Q4_1": (3, 32, 20, decode_q4_1),
    "Q5_0": (6, 32, 22, decode_q5_0),
    "Q5_1": (7, 32, 24, decode_q5_1),
    "Q4_K": (12, 256, 144, decode_q4_k),
    "Q5_K": (13, 256, 176, decode_q5_k),
    "Q6_K": (14, 256, 210, decode_q6_k),
    "Q3_K": (11, 256, 110, decode_q3_k),
    "IQ4_NL": (20, 32, 18, decode_iq4_nl),
    "IQ4_XS": (23, 256, 136, decode_iq4_xs),
    "MXFP4": (39, 32, 17, decode_mxfp4),
    "Q2_K": (10, 256, 84, decode_q2_k),
    "IQ3_XXS": (18, 256, 98, decode_iq3_xxs),
    "IQ3_S": (21, 256, 110, decode_iq3_s),
    "IQ2_XXS": (16, 256, 66, decode_iq2_xxs),
    "IQ2_XS": (17, 256, 74, decode_iq2_xs),
    "IQ2_S": (22, 256, 82, decode_iq2_s),
    "IQ1_S": (19, 256, 50, decode_iq1_s),
    "IQ1_M": (29, 256, 56, decode_iq1_m),
    "TQ1_0": (34, 256, 54, decode_tq1_0),
    "TQ2_0": (35, 256, 66, decode_tq2_0),
}
TYPE_NAMES = {number: name for name, (number, _, _, _) in TYPES.items()}


def decode(type_name, raw, shape):
    """raw bytes -> float64 of shape (rows first, the contiguous dimension last)."""
    _, _, block_bytes, decoder = TYPES[type_name]
    return decoder(np.frombuffer(raw, np.uint8).reshape(-1, block_bytes)).reshape(shape)


# --- The model


def open_parts(path):
    """Readers of all parts of a GGUF, the first part first."""
    match = re.fullmatch(r"(.*)-00001-of-(\d{5})\.gguf", path)
    paths = sorted(glob.glob(f"{match[1]}-*-of-{match[2]}.gguf")) if match else [path]
    return [GGUFReader(p) for p in paths]


def rope_tables(hp, n_rot, divisors, n_positions):
    """cos and sin [n_positions, n_rot / 2], both multiplied by the magnitude factor."""
    i = np.arange(n_rot // 2, dtype=np.float64)
    extrapolated = hp("rope.freq_base", 10000.0) ** (-2 * i / n_rot) / divisors
    kind, factor = hp("rope.scaling.type", None), hp("rope.scaling.factor", 1.0)
    scale = 1.0 if kind == "none" else 1.0 / factor
    frequency, magnitude = scale * extrapolated, hp("rope.scaling.attn_factor", 1.0)
    if kind == "yarn":
        n0 = hp("rope.scaling.original_context_length", hp("context_length"))

        def corr(turns):
            return (
                n_rot
                * np.log(n0 / (2 * np.pi * turns))
                / (2 * np.log(hp("rope.freq_base", 10000.0)))
            )

        low = max(0, np.floor(corr(hp("rope.scaling.yarn_beta_fast", 32.0))))
        high = min(n_rot - 1, np.ceil(corr(hp("rope.scaling.yarn_beta_slow", 1.0))))
        ramp = 1 - np.clip((i - low) / max(0.001, high - low), 0, 1)
        frequency = scale * extrapolated * (1 - ramp) + extrapolated * ramp
        magnitude *= 1 + 0.1 * np.log(factor) if factor > 1 else 1.0
    angle = np.arange(n_positions)[:, None] * frequency[None, :]
    return np.cos(angle) * magnitude, np.sin(angle) * magnitude


class Llama:
    """One model. quantise, if given, is applied to the input of every product with a quantised
    matrix, and round_kv to keys (after rotation) and values: they stand for what a fast engine
    does to save memory."""

    def __init__(self, path, quantise=None, round_kv=None):
        parts = open_parts(path)
        fields = parts[0].fields
        self.keys = {
            name: field.contents() for name, field in fields.items() if not name.startswith("GGUF.")
        }
        self.quantise, self.round_kv = quantise, round_kv
        self.weights, self.types = {}, {}
        for tensor in (t for part in parts for t in part.tensors):
            shape = tuple(int(n) for n in tensor.shape[::-1])
            self.types[tensor.name] = TYPE_NAMES[int(tensor.tensor_type)]
            self.weights[tensor.name] = decode(
                self.types[tensor.name], tensor.data.tobytes(), shape
            )
        self.join_experts()
        if "output.weight" not in self.weights:
            self.weights["output.weight"] = self.weights["token_embd.weight"]
            self.types["output.weight"] = self.types["token_embd.weight"]

    def join_experts(self):
        """Early files have a tensor for each expert, such as blk.0.ffn_up.3.weight."""
        single = [n.split(".") for n in self.weights if n.count(".") == 4 and ".ffn_" in n]
        for _, layer, name, number, _ in sorted(single, key=lambda n: int(n[3])):
            matrix = self.weights.pop(f"blk.{layer}.{name}.{number}.weight")
            kind = self.types.pop(f"blk.{layer}.{name}.{number}.weight")
            self.types[f"blk.{layer}.{name}_exps.weight"] = kind
            self.weights.setdefault(f"blk.{layer}.{name}_exps.weight", []).append(matrix)
        for name in {f"blk.{layer}.{name}_exps.weight" for _, layer, name, _, _ in single}:
            self.weights[name] = np.stack(self.weights[name])

    def hp(self, key, *default):
        name = f"{self.keys['general.architecture']}.{key}"
        value = self.keys.get(name, *default) if default else self.keys[name]
        return value

    def multiply(self, name, x, expert=...):
        if self.quantise and self.types[name + ".weight"] not in ("F32", "F16", "BF16"):
            x = self.quantise(x)
        y = x @ self.weights[name + ".weight"][expert].T
        return y + self.weights[name + ".bias"] if name + ".bias" in self.weights else y

    def norm(self, name, x):
        eps = self.hp("attention.layer_norm_rms_epsilon")
        return (
            x
            * self.weights[name + ".weight"]
            / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
        )

    def attention(self, prefix, x, cos, sin):
        n, heads = len(x), self.hp("attention.head_count")
        kv_heads = self.hp("attention.head_count_kv", heads)
        q = self.multiply(prefix + "attn_q", x).reshape(n, heads, -1)
        k = self.multiply(prefix + "attn_k", x).reshape(n, kv_heads, -1)
        v = self.multiply(prefix + "attn_v", x).reshape(n, kv_heads, -1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if self.round_kv:
            k, v = self.round_kv(k), self.round_kv(v)
        mask = np.triu(np.full((n, n), -np.inf), 1)
        out = np.empty((n, heads, v.shape[2]))
        for h in range(heads):
            group = h // (heads // kv_heads)
            scores = q[:, h] @ k[:, group].T / np.sqrt(q.shape[2]) + mask
            p = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[:, h] = p @ v[:, group] / p.sum(axis=1, keepdims=True)
        return self.multiply(prefix + "attn_output", out.reshape(n, -1))

    def experts(self, prefix, x):
        """Softmax over the router's logits; the weights of the chosen experts add up to 1."""
        logits = x @ self.weights[prefix + "ffn_gate_inp.weight"].T
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        out = np.zeros_like(x)
        for t, row in enumerate(p):
            chosen = np.argsort(-row, kind="stable")[: self.hp("expert_used_count")]
            for expert in chosen:
                gate = self.multiply(prefix + "ffn_gate_exps", x[t], expert)
                up = self.multiply(prefix + "ffn_up_exps", x[t], expert)
                hidden = gate / (1 + np.exp(-gate)) * up
                weight = row[expert] / row[chosen].sum()
                out[t] += weight * self.multiply(prefix + "ffn_down_exps", hidden, expert)
        return out

    def feed_forward(self, prefix, x):
        if self.hp("expert_count", 0):
            return self.experts(prefix, x)
        gate = self.multiply(prefix + "ffn_gate", x)
        return self.multiply(
            prefix + "ffn_down", gate / (1 + np.exp(-gate)) * self.multiply(prefix + "ffn_up", x)
        )

    def hidden(self, tokens):
        """[n_tokens, n_embd] before the final norm, for tokens at positions 0, 1, ..."""
        head = self.hp(
            "attention.key_length", self.hp("embedding_length") // self.hp("attention.head_count")
        )
        n_rot = self.hp("rope.dimension_count", head)
        divisors = self.weights.get("rope_freqs.weight", np.ones(n_rot // 2))
        cos, sin = rope_tables(self.hp, n_rot, divisors, len(tokens))
        h = self.weights["token_embd.weight"][np.asarray(tokens)]
        for layer in range(self.hp("block_count")):
            prefix = f"blk.{layer}."
            h = h + self.attention(prefix, self.norm(prefix + "attn_norm", h), cos, sin)
            h = h + self.feed_forward(prefix, self.norm(prefix + "ffn_norm", h))
        return h

    def logits(self, tokens):
        """[n_tokens, n_vocab]; rows of the head beyond the token list can never be tokens: -inf."""
        out = self.multiply("output", self.norm("output_norm", self.hidden(tokens)))
        out[:, len(self.keys["tokenizer.ggml.tokens"]) :] = -np.inf
        return out


def rotate(x, cos, sin):
    """Rotates the neighbours (x[2i], x[2i + 1]) of x [n_positions, n_heads, head]."""
    n_rot = 2 * cos.shape[1]
    a, b = x[:, :, 0:n_rot:2], x[:, :, 1:n_rot:2]
    y = x.copy()
    y[:, :, 0:n_rot:2] = a * cos[:, None] - b * sin[:, None]
    y[:, :, 1:n_rot:2] = a * sin[:, None] + b * cos[:, None]
    return y


def log_sum_exp(logits):
    top = logits.max(axis=-1, keepdims=True)
    return (top + np.log(np.exp(logits - top).sum(axis=-1, keepdims=True)))[..., 0]


def score_windows(model, tokens, window):
    """Negative log likelihoods (nats) of tokens, window by window; see README.md, "Perplexity"."""
    nats = []
    for start in range(0, len(tokens), window):
        part = np.asarray(tokens[start : start + window])
        if len(part) < 2:
            break
        logits = model.logits(part)[:-1]
        nats.append(log_sum_exp(logits) - logits[np.arange(len(part) - 1), part[1:]])
    return np.concatenate(nats)


# --- The golden file, described in README.md

N_SIGNS = 64
SIGN_SEED = 0x7461_6E64_656D


def sign_words(n_vocab):
    """splitmix64 of SIGN_SEED + v: bit k is the sign (1: minus) of entry v in projection k."""
    with np.errstate(over="ignore"):
        z = (
            np.uint64(SIGN_SEED)
            + np.arange(n_vocab, dtype=np.uint64)
            + np.uint64(0x9E3779B97F4A7C15)
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def sign_matrix(n_vocab):
    bits = (sign_words(n_vocab)[:, None] >> np.arange(N_SIGNS, dtype=np.uint64)) & np.uint64(1)
    return 1.0 - 2.0 * bits.astype(np.float64)


def write_golden(path, tokens, logits, columns, n_top=8):
    n_positions, n_vocab = logits.shape
    finite = np.where(np.isfinite(logits), logits, 0.0)
    top = np.argsort(-logits, axis=1, kind="stable")[:, :n_top]
    header = np.array([n_positions, n_vocab, len(columns), n_top, N_SIGNS, 0], "<u4")
    parts = [
        b"TDMGOLD1",
        header,
        np.array([SIGN_SEED], "<u8"),
        log_sum_exp(logits).astype("<f8"),
        (finite * finite).sum(axis=1).astype("<f8"),
        np.asarray(tokens, "<i4"),
        np.asarray(columns, "<u4"),
        top.astype("<u4"),
        np.take_along_axis(logits, top, 1).astype("<f4"),
        (finite @ sign_matrix(n_vocab)).astype("<f4"),
        logits[:, columns].astype("<f4"),
    ]
    with open(path, "wb") as out:
        for part in parts:
            out.write(part if isinstance(part, bytes) else part.tobytes())


def write_ids(path, tokens):
    """The form in which `tandem tokenize --ids` prints them."""
    with open(path, "w", encoding="ascii") as out:
        out.write(str([int(token) for token in tokens]) + "\n")


def nmse(actual, golden):
    good = np.isfinite(golden)
    return float(((actual - golden)[good] ** 2).sum() / (golden[good] ** 2).sum())


# --- Self-check: block byte i is (37 i + 11) mod 256 with d = 0.0625 and m or dmin = 0.03125.

KNOWN_SUMS = (
    {  # type: (positions of the halves d and m or None, y[0..3], last, sum, sum of magnitudes)
        "Q4_0": (0, None, [-0.1875, 0.125, 0.4375, -0.25], 0, -1.3125, 7.6875),
        "Q4_1": (0, 2, [0.96875, 0.28125, 0.59375, 0.90625], 0.78125, 16.3125, 16.3125),
        "Q5_0": (0, None, [0.5625, -0.125, 0.1875, -0.5], 0.0625, 0.9375, 15.4375),
        "Q5_1": (0, 2, [1.21875, 1.53125, 1.84375, 1.15625], 0.34375, 32.5625, 32.5625),
        "Q8_0": (0, None, [5.3125, 7.625, -6.0625, -3.75], -3, -11, 135.75),
        "Q4_K": (0, 2, [19.71875, -1.59375, 8.09375, 17.78125], 3.03125, 3402.5, 3439.25),
        "Q5_K": (0, 2, [50.71875, -1.59375, 39.09375, 17.78125], 6.78125, 7263.5, 7284.9375),
        "Q6_K": (208, None, [-89.4375, 106, 36.4375, -33.125], -3.75, 288.25, 16656.375),
        "Q3_K": (108, None, [5.0625, -6.75, 1.6875, -3.375], 2.625, 59.875, 575.625),
        "Q2_K": (80, 82, [2.0625, 0, 0.6875, 1.375], 0.28125, 128.6875, 160.25),
        "TQ1_0": (52, None, [-0.0625, -0.0625, -0.0625, 0], -0.0625, -0.125, 10.875),
        "TQ2_0": (64, None, [0.125, -0.0625, 0, 0.0625], -0.0625, 8.0625, 16.1875),
        "IQ4_NL": (0, None, [-2.1875, 1.5625, 7.0625, -3.0625], 0.0625, -16.0625, 106.5625),
        "IQ4_XS": (0, None, [4.0625, -0.0625, -4.3125, 5.1875], -1, -687.8125, 10416.4375),
        "IQ2_XXS": (
            (0, None, [-3.6953125, 3.6953125, 2.1484375, -2.1484375])
            + (-5.0390625, 47.734375, 660.4375)
        ),
        "IQ2_XS": (
            (0, None, [-0.6875, 2.1484375, -0.6875, -3.6953125]) + (-1.1875, 93.15625, 631.859375)
        ),
        "IQ2_S": (
            (0, None, [-9.0703125, 5.2734375, -1.6875, 1.6875])
            + (4.8828125, -50.0390625, 584.0078125)
        ),
        "IQ3_XXS": (0, None, [-0.8125, 0.5625, -0.4375, 0.1875], -0.9375, -42.75, 1262.75),
        "IQ3_S": (0, None, [-5.0625, 15.1875, -21.9375, -11.8125], 14.0625, 91, 1778.25),
        "IQ1_S": (
            (0, None, [-0.1640625, 0.0234375, 0.2109375, 0.2109375])
            + (-0.2734375, 1.25, 82.359375)
        ),
        "IQ1_M": (
            (None, None, [-0.0546875, 0.3828125, -0.0546875, -0.0546875])
            + (-0.1171875, 2.5625, 72.375)
        ),
        "MXFP4": (None, None, [0, 0.75, -0.25, -1.5], 0.75, 3.125, 18.875),
    }
)


def put_top_nibbles(raw, halves):
    """The four nibbles of halves, as integers, on top of the last four words of IQ1_M."""
    for i in range(4):
        raw[:, 49 + 2 * i] = raw[:, 49 + 2 * i] & 15 | (halves >> 4 * i & 15) << 4


def self_check():
    for name, (d_at, m_at, first, last, total, magnitude) in KNOWN_SUMS.items():
        _, elements, size, _ = TYPES[name]
        block = ((37 * np.arange(size) + 11) % 256).astype(np.uint8)
        if name == "IQ1_M":
            put_top_nibbles(block[None], np.array([0x2C00]))
        elif d_at is None:
            block[0] = 125  # 2^-3
        else:
            block[d_at : d_at + 2] = [0x00, 0x2C]
        if m_at is not None:
            block[m_at : m_at + 2] = [0x00, 0x28]
        y = decode(name, block.tobytes(), elements)
        expected = [*first, last, total, magnitude]
        actual = [*y[:4], y[-1], y.sum(), np.abs(y).sum()]
        assert np.array_equal(actual, expected), f"{name}: expected {expected}, got {actual}"
        print(f"ok {name}")


if __name__ == "__main__":
    self_check()
