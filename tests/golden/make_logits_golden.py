"""make_logits_golden.py MODEL.gguf: writes the goldens of prompt_*.txt and english.txt beside them.

MODEL is SmolLM2-135M-Instruct Q4_1. Tokens come from the `tokenizers` package, rebuilt from the
vocabulary in the file, and logits from reference.py, so nothing of the C engine is involved. With
--errors it prints what rounding of activations and of the cache costs instead (the table in
README.md). Needs numpy, gguf, tokenizers and 4 GB of memory.
"""

import os
import sys

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

import reference

FOLDER = os.path.dirname(os.path.abspath(__file__))
PROMPTS = ["prompt_prose", "prompt_code", "prompt_chat", "prompt_mixed"]
WINDOW = 512
N_COLUMNS = 512


def build_tokenizer(keys):
    """The pre-tokenizer "smollm": every digit alone, then the GPT-2 pattern on bytes."""
    tokens = keys["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in keys["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={t: i for i, t in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = keys["tokenizer.ggml.token_type"]
    tokenizer.add_special_tokens(
        [AddedToken(t, special=True) for t, kind in zip(tokens, kinds) if kind == 3]
    )
    return tokenizer


def read_tokens(tokenizer, name):
    with open(os.path.join(FOLDER, name + ".txt"), encoding="utf-8", newline="") as file:
        text = file.read()
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert (
        tokenizer.decode(ids, skip_special_tokens=False) == text
    ), f"{name}: the tokens do not spell the text"
    return ids


def make_goldens(path):
    model = reference.Llama(path)
    tokenizer = build_tokenizer(model.keys)
    columns = np.sort(
        np.random.default_rng(1).choice(
            model.weights["token_embd.weight"].shape[0], N_COLUMNS, False
        )
    )
    for name in PROMPTS:
        tokens = read_tokens(tokenizer, name)
        path = os.path.join(FOLDER, name)
        reference.write_ids(path + ".ids.txt", tokens)
        reference.write_golden(path + ".bin", tokens, model.logits(tokens), columns)
        print(name, len(tokens), "tokens")
    tokens = read_tokens(tokenizer, "english")
    reference.write_ids(os.path.join(FOLDER, "english.ids.txt"), tokens)
    nats = reference.score_windows(model, tokens, WINDOW)
    text = f"window {WINDOW}\ntokens {len(tokens)}\nscored {len(nats)}\n"
    text += f"mean_nats {nats.mean():.6f}\nperplexity {np.exp(nats.mean()):.5f}\n"
    with open(os.path.join(FOLDER, "english.golden.txt"), "w", encoding="ascii") as out:
        out.write(text)
    print(text, end="")


# --- What rounding costs


def blocks(x, size):
    return x.reshape(*x.shape[:-1], -1, size)


def absmax_scale(b):
    scale = np.abs(b).max(axis=-1, keepdims=True) / 127
    return np.where(scale == 0, 1, scale)


def round_absmax(size, levels=127, half_scale=False):
    def quantise(x):
        b = blocks(x, size)
        scale = absmax_scale(b) * 127 / levels
        stored = scale.astype(np.float16).astype(np.float64) if half_scale else scale
        return (np.clip(np.rint(b / scale), -levels, levels) * stored).reshape(x.shape)

    return quantise


def round_signed_extreme(size):
    """The element of largest magnitude becomes -127 exactly, as in activation blocks of 256."""

    def quantise(x):
        b = blocks(x, size)
        at = np.abs(b).argmax(axis=-1)[..., None]
        extreme = np.take_along_axis(b, at, -1)
        inverse = np.where(extreme == 0, 0, -127 / np.where(extreme == 0, 1, extreme))
        q = np.minimum(127, np.rint(b * inverse))
        return (q / np.where(inverse == 0, 1, inverse)).reshape(x.shape)

    return quantise


def round_best(size, shrinks):
    """Of several scales the one with the least squared error, refitted to the integers."""

    def quantise(x):
        b = blocks(x, size)
        best, best_error = None, None
        for shrink in shrinks:
            q = np.clip(np.rint(b / (absmax_scale(b) * shrink)), -127, 127)
            norm = (q * q).sum(axis=-1, keepdims=True)
            y = q * ((q * b).sum(axis=-1, keepdims=True) / np.where(norm == 0, 1, norm))
            error = ((y - b) ** 2).sum(axis=-1, keepdims=True)
            best = y if best is None else np.where(error < best_error, y, best)
            best_error = error if best_error is None else np.minimum(error, best_error)
        return best.reshape(x.shape)

    return quantise


def round_twice(size):
    """Two bytes per element: the rounding error of the first is rounded again."""
    once = round_absmax(size)

    def quantise(x):
        y = once(x)
        return y + once(x - y)

    return quantise


def to_half(x):
    return x.astype(np.float16).astype(np.float64)


def to_bf16(x):
    return (
        ((x.astype(np.float32).view(np.uint32) + 0x8000) & 0xFFFF0000)
        .view(np.float32)
        .astype(np.float64)
    )


VARIANTS = {
    "f16 cache only": (None, to_half),
    "f16 activations": (to_half, None),
    "bf16 activations": (to_bf16, None),
    "q8 per 32, absmax / 127": (round_absmax(32), None),
    "q8 per 32, absmax / 127, half scale": (round_absmax(32, half_scale=True), None),
    "q8 per 32, absmax / 127, half scale, f16 cache": (round_absmax(32, half_scale=True), to_half),
    "q8 per 32, best of 9 scales": (round_best(32, np.linspace(0.92, 1.04, 9)), None),
    "q8 per 16, absmax / 127": (round_absmax(16), None),
    "q8 per 64, absmax / 127": (round_absmax(64), None),
    "q8 per 192 (256-like), signed extreme": (round_signed_extreme(192), None),
    "q8 twice per 32": (round_twice(32), None),
}


def print_errors(path):
    model = reference.Llama(path)
    tokenizer = build_tokenizer(model.keys)
    prompts = [read_tokens(tokenizer, name) for name in PROMPTS]
    english = read_tokens(tokenizer, "english")
    exact = [model.logits(tokens) for tokens in prompts]
    base = reference.score_windows(model, english, WINDOW).mean()
    for name, (model.quantise, model.round_kv) in VARIANTS.items():
        actual = [model.logits(tokens) for tokens in prompts]
        errors = [reference.nmse(a, e) for a, e in zip(actual, exact)]
        agree = np.mean(
            np.concatenate([(a.argmax(1) == e.argmax(1)) for a, e in zip(actual, exact)])
        )
        nats = reference.score_windows(model, english, WINDOW).mean()
        row = " ".join(f"{e:.2e}" for e in errors)
        change = 100 * (np.exp(nats - base) - 1)
        print(f"{name}: mean {np.mean(errors):.2e} ({row}),", end=" ")
        print(f"argmax {100 * agree:.1f} %, ppl {change:+.3f} %", flush=True)


if __name__ == "__main__":
    if sys.argv[2:] == ["--errors"]:
        print_errors(sys.argv[1])
    else:
        make_goldens(sys.argv[1])
