"""make_tiny_models.py: writes tiny/NAME.gguf, random models of a few kilobytes, with the
float64 logits of prompt.txt in tiny/NAME.bin and its token ids in tiny/NAME.ids.txt.

Each model turns other switches of the architecture. Weights are random valid blocks, so no
quantiser is needed and every bit pattern of a block occurs. The container and the SentencePiece
tokens are written and computed here; logits come from reference.py, those of other families than
llama from other_families.py, and byte-level BPE tokens from the `tokenizers` package. Needs numpy,
gguf (for reading back), tokenizers, torch and transformers. The files are the same in every run on
one machine (README.md).

    make_tiny_models.py [NAME...]     makes these, or all
"""

import os
import struct
import sys
import zlib

import numpy as np
from tokenizers import Tokenizer, models, pre_tokenizers

import other_families
import reference
import tiny_blocks

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tiny")
PROMPT = "the hen and the other, 7 naïve"
ALIGNMENT = 32

# --- Random weights: raw[n_blocks, block_bytes] whose values have mean about 0 and deviation std.


def halves(rng, n, value):
    """n halves within 20 % of value, as 2 bytes each."""
    return (value * rng.uniform(0.8, 1.2, n)).astype("<f2").view(np.uint8).reshape(n, 2)


def random_plain(rng, n, std, name):
    values = rng.normal(0, std, n).astype(np.float32)
    if name == "F32":
        return values.view(np.uint8).reshape(n, 4)
    if name == "F16":
        return values.astype("<f2").view(np.uint8).reshape(n, 2)
    return (values.view(np.uint32) >> 16).astype("<u2").view(np.uint8).reshape(n, 2)


# For each type: deviation of y / d with all other bytes random, where d lies, and where the minimum
# lies and how many d it is on average.
SPREAD = {
    "Q8_0": (73.9, 0, None, 0),
    "Q4_0": (4.6, 0, None, 0),
    "Q4_1": (4.6, 0, 2, -7.5),
    "Q5_0": (9.2, 0, None, 0),
    "Q5_1": (9.2, 0, 2, -15.5),
    "Q4_K": (260.0, 0, 2, 7.5),
    "Q5_K": (530.0, 0, 2, 15.5),
    "Q6_K": (680.0, 208, None, 0),
    "Q3_K": (42.5, 108, None, 0),
    "Q2_K": (13.9, 80, 82, 1.5),
    "IQ3_XXS": (143.0, 0, None, 0),
    "IQ3_S": (140.0, 0, None, 0),
    "IQ2_XXS": (53.0, 0, None, 0),
    "IQ2_XS": (56.0, 0, None, 0),
    "IQ2_S": (57.0, 0, None, 0),
    "IQ1_S": (7.2, 0, None, 0),
    "IQ1_M": (7.2, None, None, 0),
    "TQ1_0": (0.82, 52, None, 0),
    "TQ2_0": (0.82, 64, None, 0),
    "IQ4_NL": (70.8, 0, None, 0),
    "IQ4_XS": (1310.0, 0, None, 0),
}


def random_weights(rng, name, shape, std):
    """Bytes of a tensor with that shape, rows first."""
    _, elements, size, _ = reference.TYPES[name]
    n = int(np.prod(shape)) // elements
    assert shape[-1] % elements == 0, f"{name} cannot hold rows of {shape[-1]}"
    if name in ("F32", "F16", "BF16"):
        return random_plain(rng, n, std, name).tobytes()
    raw = rng.integers(0, 256, (n, size), dtype=np.uint8)
    if name == "MXFP4":  # 2^(byte - 128) times values of deviation 5.85
        raw[:, 0] = round(128 + np.log2(std / 5.85)) + rng.integers(-1, 2, n)
        return raw.tobytes()
    spread, d_at, minimum_at, minimum = SPREAD[name]
    if name == "IQ1_M":
        d = halves(rng, n, std / spread).view("<u2")[:, 0]
        reference.put_top_nibbles(raw, d.astype(int))
        return raw.tobytes()
    raw[:, d_at : d_at + 2] = halves(rng, n, std / spread)
    if minimum_at:
        raw[:, minimum_at : minimum_at + 2] = halves(rng, n, minimum * std / spread)
    if name == "TQ2_0":  # two bits are 0, 1 or 2
        places = rng.integers(0, 3, (4, n, 64), dtype=np.uint8)
        raw[:, :64] = sum(place << 2 * i for i, place in enumerate(places))
    if name == "Q6_K":  # scales of -64..63
        raw[:, 192:208] = rng.integers(-64, 64, (n, 16), dtype=np.int8).view(np.uint8)
    return raw.tobytes()


# --- Vocabularies

BPE_MERGES = (
    "Ġ t|h e|Ġt he|i n|e r|a n|Ġ a|o n|n d|Ġa nd|o r|Ġ s|Ġs at|a t|he n|Ġ hen|Ġ h|e n|Ġ o|Ġo t|Ġot he|"
    "r e|Ġ r|e d|Ġr ed|Ġ n|Ġn o|Ġo n|c a|r t|a r"
).split("|")
SPM_PIECES = (
    "▁t|he|▁the|in|er|an|▁a|nd|▁and|on|▁s|at|▁sat|▁h|en|▁hen|▁o|▁on|th|re|▁r|ed|▁red|ar|▁n|ea|▁no"
).split("|")


def byte_characters():
    """The 256 characters of byte-level BPE."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(others)) for b in range(256)]


def bpe_vocabulary(add_bos):
    merges = [tuple(merge.split(" ")) for merge in BPE_MERGES]
    pieces = ["<|end|>", "<|user|>"] + byte_characters() + ["".join(m) for m in merges]
    keys = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.token_type": [3, 3] + [1] * (len(pieces) - 2),
        "tokenizer.ggml.merges": [" ".join(m) for m in merges],
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": 0,
        "tokenizer.ggml.add_bos_token": add_bos,
    }
    tokenizer = Tokenizer(models.BPE(vocab={p: i for i, p in enumerate(pieces)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return keys, [0] * add_bos + tokenizer.encode(PROMPT).ids


def spm_encode(pieces, scores, text):
    """Merges the neighbours with the best score until none is left; the rest becomes bytes."""
    ids = {piece: i for i, piece in enumerate(pieces)}
    parts = list("▁" + text.replace(" ", "▁"))
    while True:
        joined = [a + b for a, b in zip(parts, parts[1:])]
        pairs = [(scores[ids[piece]], -i) for i, piece in enumerate(joined) if piece in ids]
        if not pairs:
            break
        i = -max(pairs)[1]
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    known = [[ids[p]] if p in ids else [ids[f"<0x{b:02X}>"] for b in p.encode()] for p in parts]
    return [i for part in known for i in part]


def spm_vocabulary():
    pieces = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    kinds, scores = [2, 3, 3] + [6] * 256, [0.0] * 259
    pieces += SPM_PIECES + list("▁abcdefghijklmnoprstuvw.,7")
    kinds += [1] * (len(pieces) - 259)
    scores += [-float(i) for i in range(len(pieces) - 259)]
    keys = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": pieces,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": kinds,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
    return keys, [1] + spm_encode(pieces, scores, PROMPT)


# --- The container


class Typed:
    """A metadata value whose integer type is not the usual u32."""

    def __init__(self, number, layout, value):
        self.number, self.layout, self.value = number, layout, value


def text_bytes(text):
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def value_bytes(value):
    """Type number and bytes of one metadata value."""
    if isinstance(value, Typed):
        return value.number, struct.pack(value.layout, value.value)
    if isinstance(value, bool):
        return 7, struct.pack("<B", value)
    if isinstance(value, int):
        return 4, struct.pack("<I", value)
    if isinstance(value, float):
        return 6, struct.pack("<f", value)
    if isinstance(value, str):
        return 8, text_bytes(value)
    if isinstance(value[0], int) and not isinstance(value[0], bool):  # arrays of integers are i32 here
        value = [Typed(5, "<i", v) for v in value]
    items = [value_bytes(v) for v in value]
    return 9, struct.pack("<IQ", items[0][0], len(items)) + b"".join(raw for _, raw in items)


def pad(raw):
    return raw + bytes(-len(raw) % ALIGNMENT)


def write_gguf(path, keys, tensors):
    """tensors: [(name, type name, shape rows first, bytes)]"""
    out = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    for key, value in keys.items():
        number, raw = value_bytes(value)
        out += text_bytes(key) + struct.pack("<I", number) + raw
    data = b""
    for name, type_name, shape, raw in tensors:
        out += text_bytes(name) + struct.pack(f"<I{len(shape)}Q", len(shape), *shape[::-1])
        out += struct.pack("<IQ", reference.TYPES[type_name][0], len(data))
        data += pad(raw)
    with open(path, "wb") as file:
        file.write(pad(out) + data)


def write_split(name, keys, tensors, n_parts):
    """Part 1 holds the metadata and no tensor; the others share the tensors."""
    per_part = -(-len(tensors) // (n_parts - 1))
    for part in range(n_parts):
        own = tensors[(part - 1) * per_part : part * per_part] if part else []
        split = {
            "split.no": Typed(2, "<H", part),
            "split.count": Typed(2, "<H", n_parts),
            "split.tensors.count": Typed(5, "<i", len(tensors)),
        }
        path = os.path.join(FOLDER, f"{name}-{part + 1:05d}-of-{n_parts:05d}.gguf")
        write_gguf(path, {**(keys if part == 0 else {}), **split}, own)


# --- The models


def pick_type(types, name):
    """The type of the longest prefix of the tensor's name, or of its name within the layer."""
    short = name.split(".", 2)[2] if name.startswith("blk.") else name
    fits = [p for p in types if name.startswith(p) or short.startswith(p)]
    return types[max(fits, key=len)]


def layer_spec(spec, layer):
    """The spec of a layer, which may have other heads or another width than the rest."""
    spec = spec | spec.get("of_layer", {}).get(layer, {})
    if layer < spec.get("dense", 0):  # the first layers have no experts
        spec = {k: v for k, v in spec.items() if k not in ("experts", "shared")}
    return spec


def model_tensors(rng, spec, n_vocab):
    n_embd, head, tensors = spec["n_embd"], spec["head"], []

    def matrix(name, rows, columns, std, experts=()):
        type_name = pick_type(spec["types"], name)
        shape = (*experts, rows, columns)
        raw = random_weights(rng, type_name, shape, std)
        tensors.append((name, type_name, shape, raw))

    def vector(name, values):
        type_name = pick_type(spec.get("vectors", {"": "F32"}), name)
        floats = values.astype("<f4")
        raw = floats.astype("<f2") if type_name == "F16" else floats
        if type_name == "BF16":
            raw = (floats.view("<u4") >> 16).astype("<u2")
        tensors.append((name, type_name, values.shape, raw.tobytes()))

    def norm(name):
        if name.split(".")[-2] in spec.get("lacks", []):
            return
        vector(name, rng.normal(1, 0.1, n_embd))
        if spec.get("centred_bias"):
            vector(name.replace(".weight", ".bias"), rng.normal(0, 0.3, n_embd))

    matrix("token_embd.weight", n_vocab, n_embd, 1.0)
    if spec.get("rope_freqs"):
        vector("rope_freqs.weight", np.linspace(1, 8, head // 2))
    if "turning" in spec:  # only so many pairs of a head turn
        vector("rope_freqs.weight", np.repeat([1, 1e30], [spec["turning"], 99])[: head // 2])
    if "inputs" in spec:  # of layers
        width = spec["inputs"] * spec["layers"]
        matrix("per_layer_token_embd.weight", n_vocab, width, 0.5)
        matrix("per_layer_model_proj.weight", width, n_embd, 1.0)
        vector("per_layer_proj_norm.weight", rng.normal(1, 0.2, spec["inputs"]))
    for name, end in {"long": 9, "short": 3}.items() if "longrope" in spec else ():
        vector(f"rope_factors_{name}.weight", np.linspace(1, end, spec["longrope"] // 2))

    def delta_net(prefix):
        n, n_keys, size, taps = (spec["delta"][k] for k in ("heads", "keys", "dim", "taps"))
        channels, std = (n + 2 * n_keys) * size, 1.5 / np.sqrt(n_embd)
        sizes = {"attn_qkv": channels, "attn_gate": n * size, "ssm_alpha": n, "ssm_beta": n}
        if spec["delta"].get("joined"):  # betas and alphas of each key head
            sizes = {"attn_qkv": channels, "attn_gate": n * size, "ssm_ba": 2 * n}
        if spec["delta"].get("joined_in"):  # and queries, keys, values and gates
            sizes = {"ssm_in": channels + n * size, "ssm_ba": 2 * n}
        for name, rows in sizes.items():
            matrix(f"{prefix}{name}.weight", rows, n_embd, std)
        taps_std = spec["delta"].get("taps_std", 0.5)
        vector(prefix + "ssm_conv1d.weight", rng.normal(0, taps_std, (channels, taps)))
        vector(prefix + "ssm_dt.bias", rng.normal(-1, 1, n))
        vector(prefix + "ssm_a", -np.exp(rng.normal(-1, 1, n)))
        vector(prefix + "ssm_norm.weight", rng.normal(1, 0.3, size))
        matrix(prefix + "ssm_out.weight", n_embd, n * size, 1 / np.sqrt(n * size))

    def attention(prefix, spec):
        heads, kv, head = spec["heads"], spec["kv"], spec["head"]
        q_rows = heads * head * (1 + ("delta" in spec))
        sizes = {"attn_q": q_rows, "attn_k": kv * head, "attn_v": kv * head}
        if spec.get("fused"):
            sizes = {"attn_qkv": (heads + 2 * kv) * head}
        for name in spec.get("without", []):
            sizes.pop(name, None)
        for name, rows in sizes.items():
            matrix(f"{prefix}{name}.weight", rows, n_embd, 1.5 / np.sqrt(n_embd))
        if spec.get("gated_apart"):
            rows = heads if spec.get("gates_heads") else heads * head
            matrix(prefix + "attn_gate.weight", rows, n_embd, 1.5 / np.sqrt(n_embd))
        matrix(prefix + "attn_output.weight", n_embd, heads * head, 1 / np.sqrt(heads * head))
        for name in ["attn_q", "attn_k"] * spec.get("normed", False):
            if name in sizes:
                width = sizes[name] if spec.get("normed_whole") else head
                width = (sizes[name] // head, head) if spec.get("normed_each") else width
                vector(f"{prefix}{name}_norm.weight", rng.normal(1, 0.3, width))
        return sizes

    def layer_end(prefix, spec):
        """What the last layers of Gemma 4 have besides."""
        if "beside" in spec:  # a dense FFN beside the experts
            shapes = [("gate", spec["beside"], n_embd), ("up", spec["beside"], n_embd)]
            for name, rows, columns in shapes + [("down", n_embd, spec["beside"])]:
                matrix(f"{prefix}ffn_{name}.weight", rows, columns, 1.5 / np.sqrt(columns))
            vector(prefix + "ffn_gate_inp.scale", rng.normal(2, 0.5, n_embd))
            vector(prefix + "ffn_down_exps.scale", rng.normal(1, 0.3, spec["experts"]))
            for name in ("post_ffw_norm_1", "post_ffw_norm_2", "pre_ffw_norm_2"):
                norm(f"{prefix}{name}.weight")
        if "inputs" in spec:
            matrix(prefix + "inp_gate.weight", spec["inputs"], n_embd, 1.5 / np.sqrt(n_embd))
            matrix(prefix + "proj.weight", n_embd, spec["inputs"], 1 / np.sqrt(spec["inputs"]))
            norm(prefix + "post_norm.weight")
        if spec.get("layer_scale"):
            vector(prefix + "layer_output_scale.weight", rng.normal(0.8, 0.1, 1))

    model_spec = spec
    for layer in range(spec["layers"]):
        spec, prefix = layer_spec(model_spec, layer), f"blk.{layer}."
        heads, ff = spec["heads"], spec["ff"]
        if heads > 0:
            norm(prefix + "attn_norm.weight")
        if "kinds" in spec and spec["kinds"][layer] in "-E":  # an FFN alone
            tiny_blocks.squared_ffn(matrix, vector, rng, prefix, spec, spec["kinds"][layer])
            continue
        if "delta" in spec and layer not in spec["delta"]["attends"]:
            delta_net(prefix)
        elif "mixer" in spec and layer not in spec["mixer"]["attends"]:
            tiny_blocks.recurrent(matrix, vector, rng, prefix, spec)
        elif "latent" in spec:
            tiny_blocks.latent_attention(matrix, vector, rng, prefix, spec)
        elif heads > 0:
            sizes = attention(prefix, spec)
        if spec.get("mixer", {}).get("beside"):
            tiny_blocks.recurrent(matrix, vector, rng, prefix, spec)
        for name in spec.get("biases", []):
            vector(f"{prefix}{name}.bias", rng.normal(0, 0.5, sizes.get(name, n_embd)))
        for name, width in {"attn": n_embd, "ffn": ff}.items() if "sub_norms" in spec else ():
            vector(f"{prefix}{name}_sub_norm.weight", rng.normal(1, 0.3, width))
        if spec.get("sinks"):
            vector(prefix + "attn_sinks.weight", rng.normal(0, 1, heads))
        if "kinds" in spec:
            continue
        renamed = "sinks" in spec or "delta" in spec or "renamed" in spec  # the norm before the FFN
        if spec.get("post_norms") or renamed:
            norm(prefix + "post_attention_norm.weight")
        if not renamed:
            norm(prefix + "ffn_norm.weight")
        experts, suffix = (spec["experts"],) if "experts" in spec else (), ".weight"
        if experts and "beside" in spec:
            matrix(prefix + "ffn_gate_up_exps.weight", 2 * ff, n_embd, 0.3, experts)
            matrix(prefix + "ffn_down_exps.weight", n_embd, ff, 1 / np.sqrt(ff), experts)
            vector(prefix + "ffn_gate_inp.weight", rng.normal(0, 1, (*experts, n_embd)))
            layer_end(prefix, spec)
            norm(prefix + "post_ffw_norm.weight")
            continue
        if experts:  # far apart, so that rounding of activations does not choose others
            suffix = "_exps.weight"
            router_std = spec.get("router_std", 1)
            vector(prefix + "ffn_gate_inp.weight", rng.normal(0, router_std, (*experts, n_embd)))
        if experts and spec.get("selection_bias"):
            shape = (1, *experts) if spec["selection_bias"] == "row" else experts
            vector(prefix + "exp_probs_b.bias", rng.normal(0, 0.5, shape))
        fused = spec.get("fused_ffn", spec.get("fused", False))  # gate and up are one tensor
        if spec.get("apart"):  # a tensor for each expert, in the order of early files
            for e in range(spec["experts"]):
                matrix(f"{prefix}ffn_gate.{e}.weight", ff, n_embd, 1.5 / np.sqrt(n_embd))
                matrix(f"{prefix}ffn_down.{e}.weight", n_embd, ff, 1 / np.sqrt(ff))
                matrix(f"{prefix}ffn_up.{e}.weight", ff, n_embd, 1.5 / np.sqrt(n_embd))
            continue
        for name in ["ffn_gate", "ffn_up"][fused or spec.get("ungated", False) :]:
            rows = ff * (1 + fused)
            matrix(prefix + name + suffix, rows, n_embd, 1.5 / np.sqrt(n_embd), experts)
        matrix(prefix + "ffn_down" + suffix, n_embd, ff, 1 / np.sqrt(ff), experts)
        widths = {"up": ff, "down": n_embd} | ({} if spec.get("ungated") else {"gate": ff})
        for name, rows in widths.items() if spec.get("ffn_biases") else ():
            vector(f"{prefix}ffn_{name}.bias", rng.normal(0, 0.5, rows))
        if "shared" in spec:  # an expert that every token takes, with a gate of one row
            matrix(prefix + "ffn_gate_shexp.weight", spec["shared"], n_embd, 1.5 / np.sqrt(n_embd))
            matrix(prefix + "ffn_up_shexp.weight", spec["shared"], n_embd, 1.5 / np.sqrt(n_embd))
            matrix(prefix + "ffn_down_shexp.weight", n_embd, spec["shared"], 0.2)
            if spec.get("shared_gate", True):
                vector(prefix + "ffn_gate_inp_shexp.weight", rng.normal(0, 0.3, (1, n_embd)))
        if spec.get("expert_biases"):
            vector(prefix + "ffn_gate_inp.bias", rng.normal(0, 1, experts))
            for name, rows in {"gate": ff, "up": ff, "down": n_embd}.items():
                vector(f"{prefix}ffn_{name}_exps.bias", rng.normal(0, 0.5, (*experts, rows)))
        if spec.get("post_norms"):
            norm(prefix + "post_ffw_norm.weight")
        layer_end(prefix, spec)
    norm("output_norm.weight")
    if not model_spec.get("tied", True):
        matrix("output.weight", n_vocab, n_embd, 1 / np.sqrt(n_embd))
    if model_spec.get("output_bias"):
        vector("output.bias", rng.normal(0, 0.5, n_vocab))
    return tensors


def model_keys(name, spec):
    keys = {
        "block_count": spec["layers"],
        "context_length": 256,
        "embedding_length": spec["n_embd"],
        "feed_forward_length": spec["ff"],
        "attention.head_count": spec["heads"],
        "attention.head_count_kv": spec["kv"],
    }
    centred = "attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"
    keys[spec.get("eps_key", centred["centred" not in spec])] = spec.get("eps", 1e-3)
    if spec["head"] * spec["heads"] != spec["n_embd"]:
        keys["attention.key_length"] = spec["head"]
        keys["attention.value_length"] = spec["head"]
        keys["rope.dimension_count"] = spec["head"]
    if "experts" in spec:
        keys |= {"expert_count": spec["experts"], "expert_used_count": spec["used"]}
    if "latent" in spec:
        keys |= tiny_blocks.latent_keys(spec)
    if "mixer" in spec:
        keys |= tiny_blocks.recurrent_keys(spec)
    if "delta" in spec:
        delta = spec["delta"]
        keys |= {"ssm.conv_kernel": delta["taps"], "ssm.state_size": delta["dim"]}
        keys |= {"ssm.group_count": delta["keys"], "ssm.time_step_rank": delta["heads"]}
        keys |= {"ssm.inner_size": delta["heads"] * delta["dim"]}
    architecture = spec.get("architecture", "llama")
    names = {"general.architecture": architecture, "general.name": "tiny " + name}
    keys |= spec.get("keys", {})
    keys = {f"{architecture}.{key}": value for key, value in keys.items()}
    return names | keys | spec.get("more_keys", {})


SMALL = {"n_embd": 32, "heads": 2, "kv": 1, "head": 16, "ff": 64, "layers": 2, "vocabulary": "bpe"}
# Latent attention, and a dense FFN before the layers with experts.
DEEPSEEK2 = {
    "architecture": "deepseek2",
    "dense": 1,
    "heads": 4,
    "kv": 1,
    "tied": False,
    "latent": {"rank": 32, "query_rank": 64, "key": 48, "value": 32, "rot": 16},
    "used": 2,
    "ff": 32,
    "shared": 32,
    "shared_gate": False,
    "types": {"": "Q8_0", "attn_q_b": "F16"},
    "of_layer": {0: {"ff": 64}},
}
# Keys of families whose first layer has a dense FFN of 64 columns.
DENSE_FIRST_KEYS = {
    "feed_forward_length": 64,
    "leading_dense_block_count": 1,
    "expert_feed_forward_length": 32,
    "expert_shared_count": 1,
}
# GLM 4.5's models share this: half of each head turns, and the norm before the FFN is called
# post_attention_norm.
GLM4MOE = (
    {"architecture": "glm4moe", "layers": 3, "dense": 1, "heads": 4, "kv": 2, "head": 32}
    | {"biases": ["attn_q", "attn_k", "attn_v"], "renamed": True, "tied": False}
    | {"experts": 8, "used": 2, "ff": 32, "shared": 32, "shared_gate": False}
    | {"selection_bias": True, "router_std": 0.3}
    | {"types": {"": "Q8_0", "attn_q": "F16"}, "of_layer": {0: {"ff": 64}}}
    | {
        "keys": DENSE_FIRST_KEYS
        | {
            "expert_gating_func": 2,
            "expert_weights_norm": True,
            "expert_weights_scale": 1.5,
            "rope.dimension_count": 16,
            "rope.freq_base": 1e6,
        }
    }
)
# Layer 0 has a dense FFN; layer 3 sees all positions and has no rotary ones. Norms end attention and
# what experts, and a shared one, make together.
AFMOE = (
    {"architecture": "afmoe", "normed": True, "heads": 4, "kv": 2, "head": 16, "layers": 4}
    | {"gated_apart": True, "post_norms": True, "experts": 4, "used": 2, "selection_bias": True}
    | {"ff": 32, "of_layer": {0: {"ff": 64}}, "tied": False}
    | {"types": {"": "Q8_0", "attn_v": "F16", "attn_gate": "F16"}}
    | {
        "keys": DENSE_FIRST_KEYS
        | {
            "expert_weights_norm": True,
            "expert_weights_scale": 2.826,
            "attention.sliding_window": 5,
        }
    }
)
# Each head has a gate, layers with a window have more heads, all of whose elements turn, and the
# first of four layers has none.
LAGUNA = (
    {"architecture": "laguna", "normed": True, "heads": 4, "kv": 2, "head": 16, "layers": 5}
    | {"gated_apart": True, "gates_heads": True, "dense": 3, "shared": 64, "shared_gate": False}
    | {"experts": 4, "used": 2, "selection_bias": True, "router_std": 0.3, "tied": False, "ff": 32}
    | {"of_layer": {0: {"ff": 64}, 3: {"heads": 6}} | {i: {"ff": 64, "heads": 6} for i in (1, 2)}}
    | {"types": {"": "Q8_0", "attn_v": "F16", "attn_gate": "F16"}}
    | {
        "keys": {
            "attention.head_count": [4, 6, 6, 6, 4],
            "attention.sliding_window": 5,
            "feed_forward_length": 64,
            "leading_dense_block_count": 3,
            "expert_feed_forward_length": 32,
            "expert_shared_feed_forward_length": 64,
            "expert_gating_func": 2,
            "expert_weights_norm": True,
            "expert_weights_scale": 2.5,
            "rope.dimension_count": 8,
            "rope.dimension_count_swa": 16,
            "rope.freq_base": 500000.0,
            "rope.freq_base_swa": 10000.0,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 32.0,
            "rope.scaling.original_context_length": 128,
        }
    }
)
GPT_OSS = (
    {"architecture": "gpt-oss", "sinks": True, "layers": 3, "tied": False}
    | {"experts": 4, "used": 2, "ff": 32}
    | {"heads": 4, "kv": 2, "types": {"": "Q8_0", "attn_q": "F16"}}
    | {
        "keys": {
            "expert_feed_forward_length": 32,
            "attention.sliding_window": 6,
            "rope.freq_base": 150000.0,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 32.0,
            "rope.scaling.original_context_length": 128,
        }
    }
)
STARCODER2 = (
    {"architecture": "starcoder2", "centred": True, "ungated": True}
    | {"heads": 4, "kv": 2, "head": 8}
    | {"types": {"": "Q8_0", "attn_v": "F16"}, "keys": {"rope.freq_base": 1e5}}
)
ALL_BIASES = ["attn_q", "attn_k", "attn_v", "attn_output"]
MODELS = {
    # The smallest: what mutation tests start from.
    "seed": SMALL | {"ff": 32, "types": {"": "Q4_0"}, "eps": 1e-5},
    "plain": SMALL
    | {"kv": 2, "types": {"token": "BF16", "attn": "F32", "ffn": "F16"}}
    | {"vocabulary": "spm", "ff": 32},
    "q8_0_rope_freqs": SMALL
    | {"types": {"": "Q8_0"}, "tied": False, "rope_freqs": True}
    | {"vocabulary": "bpe_bos", "keys": {"rope.freq_base": 500000.0}},
    "q4_0": SMALL
    | {"n_embd": 64, "heads": 4, "kv": 2, "ff": 96, "vocabulary": "spm"}
    | {"types": {"": "Q4_0"}},
    "q4_1_biases": SMALL | {"heads": 4, "types": {"": "Q4_1"}, "biases": ALL_BIASES},
    # The matrices of the FFN have biases too, which Hugging Face calls mlp_bias.
    "ffn_biases": SMALL | {"heads": 4, "types": {"": "Q4_0"}, "biases": ALL_BIASES, "ffn_biases": True},
    "q5_0_linear": SMALL
    | {"types": {"": "Q5_0"}, "vocabulary": "spm"}
    | {"keys": {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}},
    "q5_1_yarn": SMALL
    | {"types": {"": "Q5_1"}, "head": 32, "heads": 2, "kv": 2, "ff": 32}
    | {
        "keys": {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 8.0,
            "rope.scaling.original_context_length": 128,
        }
    },
    "kquant_down": SMALL
    | {"ff": 256, "layers": 3, "vocabulary": "spm"}
    | {
        "types": {
            "": "Q5_0",
            "blk.0.ffn_down": "Q4_K",
            "blk.1.ffn_down": "Q5_K",
            "blk.2.ffn_down": "Q6_K",
        }
    },
    "kquant_mixed": SMALL
    | {"n_embd": 256, "ff": 32}
    | {
        "types": {
            "token_embd": "Q6_K",
            "attn_q": "Q4_K",
            "attn_k": "Q5_K",
            "attn_v": "Q6_K",
            "attn_output": "Q4_0",
            "ffn_gate": "Q4_K",
            "ffn_up": "Q5_K",
            "ffn_down": "Q8_0",
        }
    },
    "few_bits": SMALL
    | {"n_embd": 256, "ff": 256}
    | {
        "types": {
            "": "IQ4_NL",
            "attn_q": "Q3_K",
            "attn_v": "Q2_K",
            "attn_output": "MXFP4",
            "ffn_gate": "IQ4_XS",
            "ffn_up": "MXFP4",
            "ffn_down": "Q3_K",
        }
    },
    "codebooks": SMALL
    | {"n_embd": 256, "ff": 256}
    | {
        "types": {
            "": "IQ3_XXS",
            "token_embd": "IQ2_S",
            "attn_q": "IQ2_XXS",
            "attn_k": "IQ2_XS",
            "attn_v": "IQ3_S",
            "attn_output": "Q4_0",
            "blk.0.ffn_gate": "IQ1_S",
            "blk.1.ffn_gate": "IQ1_M",
            "ffn_up": "IQ3_S",
        }
    },
    "ternary": SMALL
    | {"n_embd": 256, "ff": 256}
    | {
        "types": {
            "": "TQ2_0",
            "token_embd": "Q4_K",
            "attn_q": "TQ1_0",
            "attn_k": "TQ1_0",
            "blk.1.ffn_up": "TQ1_0",
            "attn_output": "Q4_0",
        }
    },
    # 14 rows of the head are no token; q and v have biases, k and the output have none.
    "padded_rows": SMALL
    | {"types": {"": "Q4_1"}, "tied": False, "padding": 14}
    | {"biases": ["attn_q", "attn_v"]},
    "experts": SMALL
    | {"experts": 6, "used": 2, "types": {"": "F16", "ffn": "Q8_0"}, "vocabulary": "spm"},
    "experts_mixed": SMALL
    | {"experts": 3, "used": 3, "types": {"": "Q5_1", "ffn_gate": "Q4_0", "ffn_up": "F32"}}
    | {"n_embd": 64, "heads": 4, "ff": 96}
    | {"keys": {"feed_forward_length": 64, "expert_feed_forward_length": 96}},
    "experts_apart": SMALL
    | {"experts": 4, "used": 2, "apart": True, "ff": 32, "types": {"": "Q8_0", "ffn_down": "F16"}},
    # The parts of a split file cut through the experts of a layer.
    "experts_in_parts": SMALL
    | {"experts": 4, "used": 2, "apart": True, "ff": 32, "types": {"": "Q8_0"}, "parts": 4},
    # Norms, biases and routers in other types than F32.
    "half_vectors": SMALL
    | {"experts": 4, "used": 2, "heads": 4, "types": {"": "Q8_0"}, "biases": ALL_BIASES}
    | {"vectors": {"": "F16", "attn_norm": "BF16", "attn_k": "BF16", "output_norm": "F32"}},
    "qwen2": SMALL
    | {"architecture": "qwen2", "biases": ["attn_q", "attn_k", "attn_v"], "tied": False}
    | {"n_embd": 64, "heads": 4, "kv": 2, "types": {"": "Q8_0", "attn_k": "F16"}}
    | {"keys": {"rope.freq_base": 1e6}},
    "qwen2_unbiased": SMALL
    | {"architecture": "qwen2", "n_embd": 64, "heads": 4, "kv": 2, "types": {"": "Q8_0"}},
    "qwen3": SMALL
    | {"architecture": "qwen3", "normed": True, "types": {"": "Q8_0", "attn_v": "F16"}}
    | {"heads": 4, "kv": 2, "keys": {"rope.freq_base": 1e6}},
    "qwen3moe": SMALL
    | {"architecture": "qwen3moe", "normed": True, "experts": 4, "used": 2, "tied": False}
    | {"types": {"": "Q8_0", "attn_q": "F16"}, "ff": 32, "vocabulary": "spm"}
    | {"keys": {"feed_forward_length": 96, "expert_feed_forward_length": 32}},
    "qwen2moe": SMALL
    | {"architecture": "qwen2moe", "biases": ["attn_q", "attn_k", "attn_v"], "tied": False}
    | {"experts": 4, "used": 2, "ff": 32, "shared": 64, "heads": 4, "kv": 2}
    | {"types": {"": "Q8_0", "attn_q": "F16", "ffn_down_shexp": "F16"}, "vocabulary": "spm"}
    | {
        "keys": {
            "feed_forward_length": 96,
            "expert_feed_forward_length": 32,
            "expert_shared_feed_forward_length": 64,
            "rope.freq_base": 1e6,
        }
    },
    # Layer 3 has attention, the others delta nets of 4 heads that share 2 key heads.
    "qwen35": SMALL
    | {"architecture": "qwen35", "normed": True, "layers": 5, "heads": 4, "kv": 2, "tied": False}
    | {"delta": {"heads": 4, "keys": 2, "dim": 16, "taps": 4, "attends": [3]}}
    | {"types": {"": "Q8_0", "attn_k": "F16", "ssm_beta": "F32"}}
    | {"keys": {"rope.dimension_count": 8, "rope.freq_base": 1e7}},
    "qwen35moe": SMALL
    | {"architecture": "qwen35moe", "normed": True, "layers": 4, "tied": False}
    | {"delta": {"heads": 2, "keys": 1, "dim": 24, "taps": 4, "attends": [3]}}
    | {"experts": 4, "used": 2, "ff": 32, "shared": 64, "vocabulary": "spm"}
    | {"types": {"": "Q8_0", "attn_q": "F16", "ssm_out": "F16", "ffn_down_shexp": "F16"}}
    | {
        "keys": {
            "expert_feed_forward_length": 32,
            "expert_shared_feed_forward_length": 64,
            "rope.dimension_count": 8,
        }
    },
    "qwen3next": SMALL
    | {"architecture": "qwen3next", "normed": True, "layers": 4, "tied": False, "vocabulary": "spm"}
    | {"delta": {"heads": 4, "keys": 2, "dim": 16, "taps": 4, "attends": [3], "joined": True}}
    | {"experts": 4, "used": 2, "ff": 32, "shared": 64}
    | {"types": {"": "Q8_0", "attn_q": "F16", "ssm_ba": "F32", "ffn_down_shexp": "F16"}}
    | {
        "keys": {
            "expert_feed_forward_length": 32,
            "expert_shared_feed_forward_length": 64,
            "rope.dimension_count": 8,
            "rope.freq_base": 1e7,
        }
    },
    # Queries, keys, values and gates of delta nets are one tensor, as in early files.
    "qwen3next_joined": SMALL
    | {"architecture": "qwen3next", "normed": True, "layers": 4, "heads": 4, "kv": 2}
    | {"delta": {"heads": 4, "keys": 2, "dim": 16, "taps": 4, "attends": [3], "joined": True}
        | {"joined_in": True}}
    | {"experts": 4, "used": 2, "ff": 32, "shared": 32}
    | {"types": {"": "Q8_0", "attn_q": "F16", "ssm_ba": "F32", "blk.1.ssm_in": "F16"}}
    | {
        "keys": {
            "expert_feed_forward_length": 32,
            "expert_shared_feed_forward_length": 32,
            "rope.dimension_count": 8,
            "rope.freq_base": 1e7,
        }
    },
    # The norm before the FFN is called post_attention_norm.
    "seed_oss": SMALL
    | {"architecture": "seed_oss", "biases": ["attn_q", "attn_k", "attn_v"], "tied": False}
    | {"head": 32, "heads": 4, "kv": 2, "types": {"": "Q8_0", "attn_k": "F16"}, "renamed": True}
    | {"keys": {"rope.freq_base": 1e7}},
    # Heads are normed behind their rotary positions.
    "hunyuan": SMALL
    | {"architecture": "hunyuan-dense", "normed": True, "types": {"": "Q8_0", "attn_v": "F16"}}
    | {"heads": 4, "kv": 2, "head": 32, "vocabulary": "spm"},
    # Layers 0 and 3 have attention; a head is no multiple of 8 wide.
    # The keys of its delta nets are so short that the epsilon of their lengths shows.
    "qwen35_layers": SMALL
    | {"architecture": "qwen35", "normed": True, "layers": 4, "vocabulary": "spm", "ff": 32}
    | {"delta": {"heads": 6, "keys": 2, "dim": 12, "taps": 3, "taps_std": 0.02, "attends": [0, 3]}}
    | {"types": {"": "F16"}}
    | {"keys": {"attention.recurrent_layers": [0, 1, 1, 0], "rope.dimension_count": 12}},
    # Layers 0 and 2 see 5 positions.
    "gemma2": SMALL
    | {"architecture": "gemma2", "post_norms": True, "types": {"": "Q8_0", "attn_v": "F16"}}
    | {"heads": 4, "kv": 2, "layers": 3, "vocabulary": "spm"}
    | {
        "keys": {
            "attention.sliding_window": 5,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 6.0,
            "attention.scale": 0.125,
        }
    },
    "granite": SMALL
    | {"architecture": "granite", "vocabulary": "spm", "heads": 4, "kv": 2, "eps": 1e-2}
    | {"types": {"": "Q8_0", "attn_k": "F16"}}
    | {
        "keys": {
            "embedding_scale": 12.0,
            "residual_scale": 0.22,
            "attention.scale": 0.25,
            "logit_scale": 8.0,
        }
    },
    "granitemoe": SMALL
    | {"architecture": "granitemoe", "experts": 4, "used": 2, "ff": 32, "heads": 4, "kv": 2}
    | {"shared": 64, "shared_gate": False, "types": {"": "Q8_0", "attn_k": "F16"}, "eps": 1e-2}
    | {
        "keys": {
            "embedding_scale": 12.0,
            "residual_scale": 0.22,
            "attention.scale": 0.25,
            "logit_scale": 8.0,
            "expert_shared_feed_forward_length": 64,
        }
    },
    "granitemoe_unshared": SMALL
    | {"architecture": "granitemoe", "experts": 4, "used": 2, "ff": 32, "heads": 4, "kv": 2}
    | {"types": {"": "Q8_0", "attn_k": "F16"}, "eps": 1e-2}
    | {
        "keys": {
            "embedding_scale": 12.0,
            "residual_scale": 0.22,
            "attention.scale": 0.25,
            "logit_scale": 8.0,
        }
    },
    "ernie4_5": SMALL
    | {"architecture": "ernie4_5", "head": 32, "kv": 2, "types": {"": "Q8_0", "attn_k": "F16"}}
    | {"keys": {"rope.freq_base": 5e5}, "vocabulary": "spm"},
    # Half of each head turns; gate and up are one tensor, and q, k and v are not.
    "glm4": SMALL
    | {"architecture": "glm4", "post_norms": True, "fused_ffn": True, "tied": False}
    | {"head": 32, "kv": 2, "biases": ["attn_q", "attn_k", "attn_v"], "types": {"": "Q8_0"}}
    | {"keys": {"rope.dimension_count": 16}},
    # From position 8 on scores have another temperature.
    "mistral3": SMALL
    | {"architecture": "mistral3", "head": 32, "kv": 2, "types": {"": "Q8_0", "attn_k": "F16"}}
    | {
        "keys": {
            "rope.freq_base": 1e6,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 32.0,
            "rope.scaling.original_context_length": 8,
            "rope.scaling.yarn_log_multiplier": 1.0,
            "attention.temperature_scale": 0.4,
        }
    },
    # All of a head turns, at plain angles.
    "phi3_plain": SMALL
    | {"architecture": "phi3", "fused": True, "head": 32, "kv": 2, "types": {"": "Q8_0"}}
    | {"keys": {"rope.scaling.original_context_length": 256}},
    # A context of 256 takes the long factors.
    "phi3": SMALL
    | {"architecture": "phi3", "fused": True, "longrope": 12, "tied": False}
    | {"types": {"": "Q8_0", "attn_output": "F16"}}
    | {
        "keys": {
            "rope.dimension_count": 12,
            "rope.scaling.original_context_length": 16,
            "rope.scaling.attn_factor": 2**0.5,
        }
    },
    # Layer 3 has no rotary positions.
    "smollm3": SMALL
    | {"architecture": "smollm3", "layers": 5, "kv": 2, "types": {"": "Q8_0", "attn_k": "F16"}}
    | {"keys": {"rope.freq_base": 5e6}, "ff": 32},
    # Layers 0 and 2 see 6 positions; the norm before the FFN is called post_attention_norm.
    "gpt_oss": SMALL | GPT_OSS | {"expert_biases": True, "biases": ALL_BIASES},
    # Without biases the rounding of activations grows; with F16 there is none.
    "gpt_oss_unbiased": SMALL | GPT_OSS | {"types": {"": "F16"}},
    # Layers 0, 1 and 3 see 4 positions, with angles of their own.
    "gemma3": SMALL
    | {"architecture": "gemma3", "post_norms": True, "normed": True, "layers": 4}
    | {"types": {"": "Q8_0", "attn_q": "F16"}, "head": 32, "heads": 2, "vocabulary": "spm"}
    | {
        "keys": {
            "attention.sliding_window": 4,
            "attention.sliding_window_pattern": 3,
            "rope.freq_base": 1e6,
            "rope.scaling.type": "linear",
            "rope.scaling.factor": 8.0,
        }
    },
    # Layers 0, 1 and 3 see 4 positions. Layers 3 and 4 read the caches of 1 and 2 and are twice as
    # wide; 3 has keys and values that nobody reads.
    "gemma4": SMALL
    | {"architecture": "gemma4", "post_norms": True, "normed": True, "layers": 5, "heads": 4}
    | {"types": {"": "Q8_0", "attn_q": "F16"}, "kv": 1, "head": 32, "inputs": 32, "turning": 4}
    | {"layer_scale": True, "vocabulary": "spm"}
    | {
        "of_layer": {
            0: {"head": 16},
            1: {"head": 16},
            3: {"head": 16, "ff": 128},
            4: {"ff": 128, "without": ["attn_k", "attn_v"]},
        },
        "keys": {
            "feed_forward_length": [64, 64, 64, 128, 128],
            "attention.sliding_window": 4,
            "attention.sliding_window_pattern": [True, True, False, True, False],
            "attention.key_length": 32,
            "attention.value_length": 32,
            "attention.key_length_swa": 16,
            "attention.value_length_swa": 16,
            "attention.shared_kv_layers": 2,
            "rope.dimension_count": 32,
            "rope.dimension_count_swa": 16,
            "rope.freq_base": 1e6,
            "rope.freq_base_swa": 1e4,
            "embedding_length_per_layer_input": 32,
            "final_logit_softcapping": 6.0,
        },
    },
    # Layers 1 and 2 see all positions, with fewer and larger heads, whose values come from the keys.
    "gemma4_experts": SMALL
    | {"architecture": "gemma4", "post_norms": True, "normed": True, "layers": 3, "heads": 4}
    | {"types": {"": "Q8_0", "attn_k": "F16"}, "kv": 2, "head": 32, "turning": 4}
    | {"experts": 4, "used": 2, "beside": 64, "ff": 32, "layer_scale": True}
    | {
        "of_layer": {
            0: {"head": 16, "kv": 2},
            1: {"kv": 1, "without": ["attn_v"]},
            2: {"kv": 1, "without": ["attn_v"]},
        },
        "keys": {
            "feed_forward_length": 64,
            "expert_feed_forward_length": 32,
            "attention.head_count_kv": [2, 1, 1],
            "attention.sliding_window": 5,
            "attention.sliding_window_pattern": [True, False, False],
            "attention.key_length": 32,
            "attention.value_length": 32,
            "attention.key_length_swa": 16,
            "attention.value_length_swa": 16,
            "rope.dimension_count": 32,
            "rope.dimension_count_swa": 16,
            "rope.freq_base": 1e6,
            "rope.freq_base_swa": 1e4,
        },
    },
    # Layer 0 has a dense FFN. Experts are chosen from the 2 best of 4 groups.
    "deepseek2": SMALL
    | DEEPSEEK2
    | {"layers": 3, "experts": 8, "selection_bias": True, "router_std": 0.3, "vocabulary": "spm"}
    | {
        "keys": DENSE_FIRST_KEYS
        | {
            "expert_gating_func": 2,
            "expert_weights_norm": True,
            "expert_weights_scale": 1.5,
            "expert_group_count": 4,
            "expert_group_used_count": 2,
        }
    },
    "glm4moe": SMALL | GLM4MOE | {"normed": True},
    # The smaller model has no norms of heads.
    "glm4moe_air": SMALL | GLM4MOE,
    # Layers 0 and 3 have short convolutions in place of attention.
    "lfm2": SMALL
    | {"architecture": "lfm2", "layers": 4, "heads": 4, "kv": 2, "head": 16, "n_embd": 64}
    | {"mixer": {"kind": "conv", "taps": 3, "attends": [1, 2]}, "normed": True}
    | {"types": {"": "Q8_0", "attn_q": "F16", "shortconv.out": "F16"}, "vocabulary": "spm"}
    | {"keys": {"rope.freq_base": 1e6}},
    "lfm2moe": SMALL
    | {"architecture": "lfm2moe", "layers": 3, "dense": 1, "heads": 2, "kv": 1}
    | {"mixer": {"kind": "conv", "taps": 3, "attends": [1]}, "normed": True}
    | {"experts": 8, "used": 2, "ff": 32, "selection_bias": True, "router_std": 0.3}
    | {"types": {"": "Q8_0", "attn_v": "F16"}, "of_layer": {0: {"ff": 64}}}
    | {
        "keys": {
            "feed_forward_length": 64,
            "leading_dense_block_count": 1,
            "expert_feed_forward_length": 32,
            "expert_gating_func": 2,
            "rope.freq_base": 1e6,
        }
    },
    # Layers 0 and 2 have Mamba-2 in place of attention, which has no rotary positions.
    "granitehybrid": SMALL
    | {"architecture": "granitehybrid", "layers": 3, "heads": 4, "kv": 2, "n_embd": 64, "head": 16}
    | {"mixer": {"kind": "mamba", "taps": 4, "heads": 4, "head": 32, "groups": 1, "state": 16, "attends": [1]}}
    | {"experts": 4, "used": 2, "ff": 32, "shared": 64, "shared_gate": False, "eps": 1e-2}
    | {"types": {"": "Q8_0", "attn_k": "F16", "ssm_in": "F16"}}
    | {
        "keys": {
            "feed_forward_length": 32,
            "expert_shared_feed_forward_length": 64,
            "embedding_scale": 12.0,
            "residual_scale": 0.22,
            "attention.scale": 0.25,
            "logit_scale": 8.0,
            "rope.scaling.finetuned": False,
        }
    },
    # A layer has Mamba-2, attention or an FFN; nothing has rotary positions.
    "nemotron_h": SMALL
    | {"architecture": "nemotron_h", "layers": 5, "heads": 4, "kv": 2, "head": 16, "tied": False}
    | {"mixer": {"kind": "mamba", "taps": 4, "heads": 4, "head": 16, "groups": 2, "state": 24, "attends": [3]}}
    | {"kinds": "M-M*-", "types": {"": "Q8_0", "attn_k": "F16", "ssm_in": "F16"}}
    | {"keys": {"feed_forward_length": [0, 64, 0, 0, 64]}},
    "nemotron_h_moe": SMALL
    | {"architecture": "nemotron_h_moe", "layers": 4, "heads": 4, "kv": 1, "head": 16, "tied": False}
    | {"mixer": {"kind": "mamba", "taps": 4, "heads": 4, "head": 24, "groups": 1, "state": 16, "attends": [2]}}
    | {"kinds": "ME*E", "experts": 8, "used": 2, "ff": 32, "shared": 64}
    | {"types": {"": "Q8_0", "attn_q": "F16", "ffn_down_shexp": "F16"}, "vocabulary": "spm"}
    | {"eps_key": "attention.layer_norm_epsilon"}
    | {
        "keys": {
            "feed_forward_length": [0, 64, 0, 64],
            "expert_feed_forward_length": 32,
            "expert_shared_feed_forward_length": 64,
            "expert_shared_count": 1,
            "expert_weights_norm": True,
            "expert_weights_scale": 1.5,
        }
    },
    # An FFN of squares, without a gate.
    "arcee": SMALL
    | {"architecture": "arcee", "ungated": True, "heads": 4, "kv": 2, "head": 8, "tied": False}
    | {"types": {"": "Q8_0", "attn_v": "F16"}, "vocabulary": "spm"}
    | {"keys": {"rope.freq_base": 1e4}},
    # Attention and Mamba-2 side by side, without a norm of its states.
    "falcon_h1": SMALL
    | {"architecture": "falcon-h1", "layers": 2, "heads": 4, "kv": 2, "head": 32, "tied": False}
    | {"mixer": {"kind": "mamba", "taps": 4, "heads": 4, "head": 16, "groups": 2, "state": 24}
        | {"attends": range(2), "beside": True, "normed": False}}
    | {"types": {"": "Q8_0", "attn_k": "F16", "ssm_in": "F16"}, "vocabulary": "spm"}
    | {"keys": {"rope.freq_base": 1e6}},
    # The same with a norm of each group of states.
    "falcon_h1_normed": SMALL
    | {"architecture": "falcon-h1", "layers": 2, "heads": 4, "kv": 2, "head": 32, "tied": False}
    | {"mixer": {"kind": "mamba", "taps": 4, "heads": 4, "head": 16, "groups": 2, "state": 24}
        | {"attends": range(2), "beside": True}}
    | {"types": {"": "Q8_0", "attn_k": "F16", "ssm_in": "F16"}, "vocabulary": "spm"}
    | {"keys": {"rope.freq_base": 1e6}},
    # A dense one, with two groups and rotary positions.
    "granitehybrid_dense": SMALL
    | {"architecture": "granitehybrid", "layers": 3, "heads": 4, "kv": 2, "n_embd": 64, "head": 16}
    | {"mixer": {"kind": "mamba", "taps": 4, "heads": 8, "head": 16, "groups": 2, "state": 24, "attends": [2]}}
    | {"types": {"": "Q8_0"}, "vocabulary": "spm", "tied": False}
    | {
        "keys": {
            "embedding_scale": 2.0,
            "residual_scale": 0.5,
            "attention.scale": 0.25,
            "logit_scale": 2.0,
            "rope.scaling.finetuned": True,
        }
    },
    # The groups of a softmax are ranked by their best expert.
    "deepseek2_groups": SMALL
    | DEEPSEEK2
    | {"experts": 12, "router_std": 0.15}
    | {
        "keys": DENSE_FIRST_KEYS
        | {
            "expert_weights_scale": 4.0,
            "expert_group_count": 3,
            "expert_group_used_count": 1,
        }
    },
    # GLM-4.7-Flash: sigmoids choose among all experts, which are in no groups.
    "deepseek2_flash": SMALL
    | DEEPSEEK2
    | {"layers": 2, "experts": 8, "selection_bias": True, "router_std": 0.3}
    | {
        "keys": DENSE_FIRST_KEYS
        | {"expert_gating_func": 2, "expert_weights_norm": True, "expert_weights_scale": 1.8}
    },
    # The matrices of keys and values are one, as in early files.
    "deepseek2_joined": SMALL
    | {"architecture": "deepseek2", "layers": 2, "heads": 4, "kv": 4, "tied": False}
    | {"latent": {"rank": 32, "query_rank": 64, "key": 48, "value": 32, "rot": 16, "joined": True}}
    | {"types": {"": "Q8_0", "blk.1.attn_kv_b": "F32"}, "vocabulary": "spm"}
    | {"experts": 4, "used": 2, "ff": 32, "shared": 32, "shared_gate": False, "dense": 1}
    | {"of_layer": {0: {"ff": 96}}}
    | {
        "keys": {
            "feed_forward_length": 96,
            "leading_dense_block_count": 1,
            "expert_feed_forward_length": 32,
            "expert_shared_count": 1,
            "expert_weights_scale": 2.0,
        }
    },
    "minicpm3": SMALL
    | {"architecture": "minicpm3", "layers": 3, "heads": 4, "n_embd": 64, "tied": False}
    | {"latent": {"rank": 32, "query_rank": 64, "key": 24, "value": 16, "rot": 8, "joined": True}}
    | {"types": {"": "Q8_0", "attn_kv_b": "F16", "attn_output": "F16"}, "eps": 1e-2, "kv": 4},
    # Queries are made in one step; scores have YaRN's scale.
    "deepseek2_lite": SMALL
    | {"architecture": "deepseek2", "layers": 2, "dense": 1, "heads": 4, "kv": 1}
    | {"latent": {"rank": 64, "key": 64, "value": 32, "rot": 32}}
    | {"experts": 4, "used": 2, "ff": 32, "shared": 64, "shared_gate": False}
    | {"types": {"": "Q8_0", "attn_k_b": "F16", "attn_v_b": "F32"}}
    | {"of_layer": {0: {"ff": 96}}}
    | {
        "keys": {
            "feed_forward_length": 96,
            "leading_dense_block_count": 1,
            "expert_feed_forward_length": 32,
            "expert_shared_count": 2,
            "expert_weights_scale": 1.0,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 40.0,
            "rope.scaling.original_context_length": 64,
            "rope.scaling.yarn_log_multiplier": 0.0707,
        }
    },
    # No norm before attention and the FFN, but behind them; one norm for the heads of queries.
    "olmo2": SMALL
    | {"architecture": "olmo2", "lacks": ["attn_norm", "ffn_norm"], "post_norms": True}
    | {"normed": True, "normed_whole": True, "heads": 4, "kv": 2, "head": 8, "tied": False}
    | {"types": {"": "Q8_0", "attn_v": "F16"}, "keys": {"rope.freq_base": 5e5}},
    # Layers 0, 1 and 2 see 5 positions, which are not scaled.
    "olmo3": SMALL
    | {"architecture": "olmo2", "lacks": ["attn_norm", "ffn_norm"], "post_norms": True}
    | {"normed": True, "normed_whole": True, "heads": 4, "kv": 4, "head": 8, "layers": 4}
    | {"types": {"": "Q8_0", "attn_v": "F16"}, "tied": False, "vocabulary": "spm", "ff": 32}
    | {
        "keys": {
            "attention.sliding_window": 5,
            "attention.sliding_window_pattern": [True, True, True, False],
            "rope.freq_base": 5e5,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 8.0,
            "rope.scaling.original_context_length": 32,
        }
    },
    # Layers 0, 1 and 2 see 5 positions; layer 3 has no rotary positions.
    "exaone4": SMALL
    | {"architecture": "exaone4", "lacks": ["attn_norm", "ffn_norm"], "post_norms": True}
    | {"normed": True, "heads": 4, "kv": 2, "head": 8, "layers": 4, "ff": 32}
    | {"types": {"": "Q8_0", "attn_v": "F16"}}
    | {
        "keys": {
            "attention.sliding_window": 5,
            "attention.sliding_window_pattern": [True, True, True, False],
            "rope.freq_base": 1e6,
        }
    },
    # Every layer sees all positions, and has rotary ones.
    "exaone4_full": SMALL
    | {"architecture": "exaone4", "lacks": ["attn_norm", "ffn_norm"], "post_norms": True}
    | {"normed": True, "heads": 4, "kv": 2, "vocabulary": "spm", "ff": 32, "tied": False}
    | {"head": 8, "types": {"": "Q8_0", "attn_q": "F16"}},
    # Attention and FFN side by side. Layer 3 sees all positions and has no rotary ones.
    "cohere2": SMALL
    | {"architecture": "cohere2", "lacks": ["ffn_norm"], "centred": True, "layers": 4, "ff": 32}
    | {"heads": 4, "kv": 2, "head": 8, "types": {"": "Q8_0", "attn_v": "F16"}}
    | {"keys": {"attention.sliding_window": 5, "logit_scale": 0.25}},
    "command_r": SMALL
    | {"architecture": "command-r", "lacks": ["ffn_norm"], "centred": True, "vocabulary": "spm"}
    | {"heads": 2, "kv": 2, "types": {"": "Q8_0", "attn_q": "F16"}}
    | {"keys": {"logit_scale": 0.0625, "rope.freq_base": 8e6}},
    # Layer 0 has a dense FFN.
    "ernie4_5_moe": SMALL
    | {"architecture": "ernie4_5-moe", "kv": 2, "types": {"": "Q8_0", "attn_k": "F16"}}
    | {"experts": 4, "used": 2, "selection_bias": "row", "shared": 32, "shared_gate": False, "ff": 32}
    | {"layers": 3, "dense": 1, "of_layer": {0: {"ff": 64}}, "vocabulary": "spm"}
    | {
        "keys": {
            "feed_forward_length": 64,
            "expert_feed_forward_length": 32,
            "expert_shared_feed_forward_length": 32,
            "expert_shared_count": 1,
            "interleave_moe_layer_step": 1,
            "leading_dense_block_count": 1,
            "rope.freq_base": 5e5,
        }
    },
    "hunyuan_moe": SMALL
    | {"architecture": "hunyuan-moe", "normed": True, "types": {"": "Q8_0", "attn_v": "F16"}}
    | {"heads": 4, "kv": 2, "experts": 4, "used": 2, "ff": 32, "shared": 32, "shared_gate": False}
    | {"keys": {"expert_feed_forward_length": 32, "expert_shared_feed_forward_length": 32}},
    # Norms subtract a mean and have biases, as all matrices have; the FFN has no gate.
    "starcoder2": SMALL
    | STARCODER2
    | {"centred_bias": True, "biases": ALL_BIASES, "ffn_biases": True},
    "starcoder2_unbiased": SMALL | STARCODER2,
    # A quarter of each head turns.
    "stablelm": SMALL
    | {"architecture": "stablelm", "centred": True, "centred_bias": True, "tied": False}
    | {"biases": ["attn_q", "attn_k", "attn_v"], "kv": 2, "vocabulary": "spm"}
    | {"types": {"": "Q8_0", "attn_v": "F16"}, "keys": {"rope.dimension_count": 4}},
    # Attention and FFN side by side.
    "stablelm_beside": SMALL
    | {"architecture": "stablelm", "centred": True, "centred_bias": True, "tied": False}
    | {"lacks": ["ffn_norm"], "types": {"": "Q8_0", "attn_v": "F16"}}
    | {"keys": {"rope.dimension_count": 4}},
    # Each head of queries and keys has a norm of its own.
    "stablelm_normed": SMALL
    | {"architecture": "stablelm", "centred": True, "centred_bias": True, "tied": False}
    | {"lacks": ["ffn_norm"], "types": {"": "Q8_0", "attn_v": "F16"}, "vocabulary": "spm"}
    | {"heads": 4, "kv": 2, "head": 8, "normed": True, "normed_each": True}
    | {"keys": {"rope.dimension_count": 4}},
    "command_r_normed": SMALL
    | {"architecture": "command-r", "lacks": ["ffn_norm"], "centred": True}
    | {"heads": 4, "kv": 2, "head": 8, "types": {"": "Q8_0", "attn_q": "F16"}}
    | {"normed": True, "normed_each": True, "keys": {"logit_scale": 0.0625, "rope.freq_base": 8e6}},
    # Norms before the last matrices of attention and the FFN.
    "bitnet": SMALL
    | {"architecture": "bitnet", "sub_norms": True, "heads": 4, "kv": 2, "head": 16, "n_embd": 64}
    | {"types": {"": "Q8_0", "attn_v": "F16"}, "ff": 96, "vocabulary": "spm"},
    "phi2": SMALL
    | {"architecture": "phi2", "centred": True, "centred_bias": True, "ungated": True}
    | {"lacks": ["ffn_norm"], "kv": 2, "biases": ALL_BIASES, "ffn_biases": True, "tied": False}
    | {"types": {"": "Q8_0", "attn_v": "F16"}, "output_bias": True, "vocabulary": "spm"}
    | {"keys": {"rope.dimension_count": 8}},
    "gemma": SMALL
    | {"architecture": "gemma", "head": 32, "types": {"": "Q8_0", "attn_v": "F16"}},
    # Positions have parts, which are the same in a text.
    "qwen2vl": SMALL
    | {"architecture": "qwen2vl", "biases": ["attn_q", "attn_k", "attn_v"], "heads": 4, "kv": 2}
    | {"types": {"": "Q8_0", "attn_v": "F16"}, "ff": 32, "n_embd": 64}
    | {"keys": {"rope.dimension_sections": [2, 3, 3, 0], "rope.freq_base": 1e6}},
    "qwen3vl": SMALL
    | {"architecture": "qwen3vl", "normed": True, "heads": 4, "kv": 2, "vocabulary": "spm"}
    | {"types": {"": "Q8_0", "attn_v": "F16"}, "ff": 32}
    | {"keys": {"rope.dimension_sections": [3, 3, 2, 0], "rope.freq_base": 5e6}},
    "qwen3vlmoe": SMALL
    | {"architecture": "qwen3vlmoe", "normed": True, "heads": 4, "kv": 2, "tied": False}
    | {"experts": 4, "used": 2, "types": {"": "Q8_0", "attn_v": "F16"}, "ff": 32}
    | {
        "keys": {
            "feed_forward_length": 64,
            "expert_feed_forward_length": 32,
            "rope.dimension_sections": [3, 3, 2, 0],
        }
    },
    "internlm2": SMALL
    | {"architecture": "internlm2", "kv": 2, "types": {"": "Q8_0", "attn_v": "F16"}}
    | {"tied": False, "ff": 32, "keys": {"rope.freq_base": 1e6}},
    "olmoe": SMALL
    | {"architecture": "olmoe", "normed": True, "normed_whole": True, "heads": 4, "kv": 4, "head": 8}
    | {"experts": 4, "used": 2, "types": {"": "Q8_0", "attn_v": "F16"}, "ff": 32, "tied": False},
    # One norm for all heads of queries; half of each head turns.
    "minimax_m2": SMALL
    | {"architecture": "minimax-m2", "normed": True, "normed_whole": True, "heads": 4, "kv": 2}
    | {"experts": 4, "used": 2, "selection_bias": True, "ff": 32, "vocabulary": "spm"}
    | {"types": {"": "Q8_0", "attn_v": "F16"}, "tied": False, "head": 16}
    | {
        "keys": {
            "expert_feed_forward_length": 32,
            "expert_gating_func": 2,
            "rope.dimension_count": 8,
            "rope.freq_base": 5e6,
        }
    },
    # Layer 0 has a dense FFN.
    "dots1": SMALL
    | {"architecture": "dots1", "normed": True, "heads": 2, "kv": 2, "dense": 1, "layers": 3}
    | {"experts": 4, "used": 2, "selection_bias": True, "shared": 64, "shared_gate": False}
    | {"types": {"": "Q8_0", "attn_v": "F16"}, "ff": 32, "of_layer": {0: {"ff": 64}}}
    | {"tied": False}
    | {
        "keys": {
            "feed_forward_length": 64,
            "leading_dense_block_count": 1,
            "expert_feed_forward_length": 32,
            "expert_shared_count": 2,
            "expert_gating_func": 2,
            "expert_weights_norm": True,
            "expert_weights_scale": 1.5,
        }
    },
    "exaone": SMALL
    | {"architecture": "exaone", "kv": 1, "types": {"": "Q8_0", "attn_v": "F16"}, "ff": 32}
    | {"keys": {"rope.freq_base": 1e6}},
    "minicpm": SMALL
    | {"architecture": "minicpm", "heads": 4, "kv": 2, "head": 8, "vocabulary": "spm", "eps": 1e-2}
    | {"types": {"": "Q8_0", "attn_k": "F16"}, "ff": 32}
    | {"keys": {"embedding_scale": 12.0, "residual_scale": 0.5, "logit_scale": 4.0}},
    # Layer 0 has a dense FFN; half of each head turns.
    "bailingmoe2": SMALL
    | {"architecture": "bailingmoe2", "normed": True, "heads": 4, "kv": 2, "dense": 1, "layers": 3}
    | {"experts": 8, "used": 2, "selection_bias": True, "shared": 32, "shared_gate": False}
    | {"types": {"": "Q8_0", "attn_output": "F16"}, "ff": 32, "of_layer": {0: {"ff": 64}}}
    | {"tied": False, "router_std": 0.5}
    | {
        "keys": {
            "feed_forward_length": 64,
            "leading_dense_block_count": 1,
            "expert_feed_forward_length": 32,
            "expert_shared_count": 1,
            "expert_gating_func": 2,
            "expert_group_count": 4,
            "expert_group_used_count": 2,
            "expert_weights_norm": True,
            "expert_weights_scale": 1.5,
            "rope.dimension_count": 8,
            "rope.freq_base": 6e5,
        }
    },
    # Layers 0 and 2 have a window, in which positions are not scaled and the base is another.
    "mellum": SMALL
    | {"architecture": "mellum", "normed": True, "heads": 4, "kv": 2, "head": 16, "layers": 3}
    | {"experts": 8, "used": 2, "ff": 32, "tied": False, "types": {"": "Q8_0", "attn_q": "F16"}}
    | {
        "keys": {
            "feed_forward_length": 64,
            "expert_feed_forward_length": 32,
            "attention.sliding_window": 6,
            "attention.sliding_window_pattern": [True, False, True],
            "rope.freq_base": 5e5,
            "rope.freq_base_swa": 1e4,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 16.0,
            "rope.scaling.original_context_length": 64,
        }
    },
    "orion": SMALL
    | {"architecture": "orion", "centred": True, "centred_bias": True, "heads": 4, "kv": 2, "head": 8}
    | {"tied": False, "vocabulary": "spm", "ff": 32, "types": {"": "Q8_0", "attn_v": "F16"}},
    "pangu_embedded": SMALL
    | {"architecture": "pangu-embedded", "biases": ALL_BIASES, "heads": 4, "kv": 2, "head": 16}
    | {"tied": False, "vocabulary": "spm", "ff": 32, "types": {"": "Q8_0", "attn_v": "F16"}},
    "baichuan": SMALL
    | {"architecture": "baichuan", "heads": 4, "kv": 4, "head": 8, "tied": False, "ff": 32}
    | {"vocabulary": "spm", "types": {"": "Q8_0", "attn_v": "F16"}},
    # Queries, keys and values are one tensor with biases, as all matrices have them.
    "codeshell": SMALL
    | {"architecture": "codeshell", "centred": True, "centred_bias": True, "ungated": True}
    | {"fused": True, "fused_ffn": False, "biases": ["attn_qkv", "attn_output"]}
    | {"ffn_biases": True, "heads": 4, "kv": 2, "head": 8, "tied": False}
    | {"types": {"": "Q8_0", "attn_output": "F16"}},
    "xverse": SMALL
    | {"architecture": "xverse", "heads": 4, "kv": 4, "head": 8, "tied": False, "ff": 32}
    | {"types": {"": "Q8_0", "attn_v": "F16"}, "keys": {"rope.dimension_count": 8}},
    # Half of each head turns; gate and up are one tensor.
    "chatglm": SMALL
    | {"architecture": "chatglm", "fused_ffn": True, "tied": False, "heads": 4, "kv": 2, "ff": 32}
    | {"head": 8, "biases": ["attn_q", "attn_k", "attn_v"], "types": {"": "Q8_0"}}
    | {"keys": {"rope.dimension_count": 4, "rope.freq_base": 5e6}},
    # Half of each head turns.
    "nemotron": SMALL
    | {"architecture": "nemotron", "centred": True, "centred_bias": True, "ungated": True}
    | {"heads": 4, "kv": 2, "head": 8, "tied": False, "vocabulary": "spm", "layers": 3}
    | {"types": {"": "Q8_0", "attn_v": "F16"}, "keys": {"rope.dimension_count": 4}},
    # All matrices have biases.
    "jais2": SMALL
    | {"architecture": "jais2", "centred": True, "centred_bias": True, "ungated": True}
    | {"biases": ["attn_q", "attn_k", "attn_v", "attn_output"], "ffn_biases": True}
    | {"heads": 4, "kv": 2, "head": 8, "tied": False, "types": {"": "Q8_0", "attn_v": "F16"}}
    | {"keys": {"rope.dimension_count": 8}},
    # Layer 0 has a dense FFN.
    "deepseek": SMALL
    | {"architecture": "deepseek", "heads": 2, "kv": 2, "dense": 1, "layers": 3, "tied": False}
    | {"experts": 8, "used": 3, "shared": 64, "shared_gate": False, "router_std": 0.5}
    | {"types": {"": "Q8_0", "attn_q": "F16"}, "ff": 32, "of_layer": {0: {"ff": 64}}}
    | {"keys": DENSE_FIRST_KEYS | {"expert_shared_count": 2, "expert_weights_scale": 1.0}},
    # The heads are wider than the embedding.
    "bailingmoe": SMALL
    | {"architecture": "bailingmoe", "heads": 4, "kv": 2, "head": 16, "tied": False, "ff": 32}
    | {"experts": 8, "used": 3, "shared": 64, "shared_gate": False, "router_std": 0.5}
    | {"types": {"": "Q8_0", "attn_v": "F16"}}
    | {
        "keys": DENSE_FIRST_KEYS
        | {
            "leading_dense_block_count": 0,
            "expert_shared_count": 2,
            "expert_weights_norm": True,
            "expert_weights_scale": 1.0,
            "rope.freq_base": 6e5,
        }
    },
    # Layers differ in KV heads and in the width of the FFN; two have no attention.
    "deci": SMALL
    | {"architecture": "deci", "heads": 4, "kv": 2, "head": 8, "layers": 5, "tied": False}
    | {"types": {"": "Q8_0", "attn_v": "F16"}}
    | {"of_layer": {0: {"ff": 96}, 1: {"heads": 0}, 2: {"kv": 1}, 3: {"ff": 32}, 4: {"heads": 0}}}
    | {
        "keys": {
            "attention.head_count": [4, 0, 4, 4, 0],
            "attention.head_count_kv": [2, 0, 1, 2, 0],
            "feed_forward_length": [96, 64, 64, 32, 64],
            "rope.freq_base": 5e5,
        }
    },
    # Each layer has numbers of its own for its activation.
    "apertus": SMALL
    | {"architecture": "apertus", "normed": True, "ungated": True, "heads": 4, "kv": 2, "head": 8}
    | {"tied": False, "types": {"": "Q8_0", "attn_v": "F16"}, "keys": {"rope.freq_base": 12e6}}
    | {
        "more_keys": {
            "xielu.alpha_p": [0.2, -0.4],
            "xielu.alpha_n": [-0.9, 0.6],
            "xielu.beta": [0.5, 0.4],
            "xielu.eps": [-1e-6, -0.01],
        }
    },
    # Scores have YaRN's scale, and from position 8 on another temperature; experts in all layers.
    "mistral4": SMALL
    | {"architecture": "mistral4", "heads": 4, "kv": 1, "tied": False, "ff": 32}
    | {"latent": {"rank": 32, "query_rank": 32, "key": 24, "value": 16, "rot": 8}}
    | {"experts": 8, "used": 2, "shared": 32, "shared_gate": False, "router_std": 0.5}
    | {"types": {"": "Q8_0", "attn_k_b": "F16", "attn_v_b": "F32"}}
    | {
        "keys": {
            "leading_dense_block_count": 0,
            "expert_feed_forward_length": 32,
            "expert_shared_count": 1,
            "expert_weights_norm": True,
            "expert_weights_scale": 1.0,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 128.0,
            "rope.scaling.original_context_length": 8,
            "rope.scaling.yarn_log_multiplier": 0.1,
            "attention.temperature_scale": 0.4,
            "attention.temperature_length": 8,
        }
    },
    # Layer 0 has a dense FFN; layer 3 sees all positions and has no rotary ones.
    "exaone_moe": SMALL
    | {"architecture": "exaone-moe", "normed": True, "heads": 4, "kv": 2, "head": 8, "layers": 4}
    | {"experts": 4, "used": 2, "selection_bias": True, "shared": 32, "shared_gate": False}
    | {"dense": 1, "ff": 32, "of_layer": {0: {"ff": 64}}, "tied": False}
    | {"types": {"": "Q8_0", "attn_v": "F16"}}
    | {
        "keys": DENSE_FIRST_KEYS
        | {
            "expert_gating_func": 2,
            "expert_weights_norm": True,
            "expert_weights_scale": 1.5,
            "attention.sliding_window": 5,
            "rope.freq_base": 1e6,
        }
    },
    # Heads are normed behind their rotary positions, which turn neighbours.
    "maincoder": SMALL
    | {"architecture": "maincoder", "normed": True, "heads": 4, "kv": 2, "head": 8, "ff": 32}
    | {"types": {"": "Q8_0", "attn_v": "F16"}, "tied": False, "keys": {"rope.freq_base": 1e6}},
    # Latent attention without a rank of queries; the FFN has no gate, and squares.
    "plm": SMALL
    | {"architecture": "plm", "layers": 3, "heads": 4, "kv": 4, "ungated": True}
    | {"latent": {"rank": 32, "key": 24, "value": 16, "rot": 8, "joined": True}}
    | {"types": {"": "Q8_0", "attn_kv_b": "F16"}, "keys": {"rope.freq_base": 1e5}},
    # The file says that the FFN is twice as wide as it is.
    "qwen": SMALL
    | {"architecture": "qwen", "fused": True, "fused_ffn": False, "biases": ["attn_qkv"], "kv": 4}
    | {"heads": 4, "head": 8, "tied": False, "ff": 32, "types": {"": "Q8_0", "attn_output": "F16"}}
    | {"keys": {"feed_forward_length": 64, "rope.dimension_count": 8}},
    # Attention, with one head of keys and values, and FFN side by side.
    "falcon": SMALL
    | {"architecture": "falcon", "fused": True, "fused_ffn": False, "lacks": ["ffn_norm"]}
    | {"centred": True, "centred_bias": True, "ungated": True, "heads": 4, "head": 8}
    | {"types": {"": "Q8_0", "attn_output": "F16"}},
    "afmoe": SMALL | AFMOE | {"shared": 32, "shared_gate": False, "dense": 1},
    # Experts alone end with a norm.
    "afmoe_unshared": SMALL
    | AFMOE
    | {"layers": 2, "of_layer": {}, "router_std": 2}
    | {"keys": AFMOE["keys"] | {"leading_dense_block_count": 0, "expert_shared_count": 0}},
    "laguna": SMALL | LAGUNA,
    "split": SMALL | {"types": {"": "Q5_1", "attn_q": "F16", "token_embd": "Q4_0"}, "parts": 3},
}


def make_model(name, spec):
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    add_bos = spec["vocabulary"] == "bpe_bos"
    spm = spec["vocabulary"] == "spm"
    vocabulary, tokens = spm_vocabulary() if spm else bpe_vocabulary(add_bos)
    n_vocab = len(vocabulary["tokenizer.ggml.tokens"]) + spec.get("padding", 0)
    keys, tensors = model_keys(name, spec) | vocabulary, model_tensors(rng, spec, n_vocab)
    parts = spec.get("parts", 1)
    path = os.path.join(FOLDER, name + ("" if parts == 1 else f"-00001-of-{parts:05d}") + ".gguf")
    if parts == 1:
        write_gguf(path, keys, tensors)
    else:
        write_split(name, keys, tensors, parts)
    # Families that transformers lacks differ from llama in the file's names alone.
    known = spec.get("architecture") in other_families.FAMILIES
    judge = other_families.Model if known else reference.Llama
    logits = judge(path).logits(tokens)
    reference.write_golden(os.path.join(FOLDER, name + ".bin"), tokens, logits, np.arange(n_vocab))
    reference.write_ids(os.path.join(FOLDER, name + ".ids.txt"), tokens)
    spread = logits[np.isfinite(logits)].std()
    print(f"{name}: {len(tokens)} tokens, {n_vocab} rows, deviation of the logits {spread:.2f}")


if __name__ == "__main__":
    os.makedirs(FOLDER, exist_ok=True)
    with open(os.path.join(FOLDER, "prompt.txt"), "w", encoding="utf-8") as prompt:
        prompt.write(PROMPT)
    for model_name in sys.argv[1:] or MODELS:
        make_model(model_name, MODELS[model_name])
