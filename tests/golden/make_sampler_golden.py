"""make_sampler_golden.py: writes samplers.jsonl: the probabilities that llama.cpp draws from.

    venv/bin/pip install llama-cpp-python==0.3.36
    venv/bin/python tests/golden/make_sampler_golden.py

A line is a case: logits in 1/1024 (null: -inf), the tokens of the text so far, options by their
names in struct sampler_options, and [token, probability] of every token that is left. Cases with
breakers are of the vocabulary of tiny/plain.gguf. Each token has another logit, so that no result
depends on how equal ones are sorted. Read by tests/runtime/test_sampler.c.
"""

import ctypes
import json
import math
import os
import random

import llama_cpp as l

HERE = os.path.dirname(os.path.abspath(__file__))
ORDER = ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"]
USUAL = {"temp": 1.0, "repeat_penalty": 1.0, "dynatemp_exponent": 1.0}
SEED = 1


def open_vocabulary(path):
    params = l.llama_model_default_params()
    params.vocab_only = True
    model = l.llama_model_load_from_file(path.encode(), params)
    return model, l.llama_model_get_vocab(model)


def make_step(name, o, n_vocab, vocab):
    """The sampler of llama.cpp for a step, or None where it is off."""
    if name == "penalties":
        return l.llama_sampler_init_penalties(
            n_vocab, o.get("repeat_last_n", 0), o["repeat_penalty"],
            o.get("frequency_penalty", 0), o.get("presence_penalty", 0))
    if name == "dry":
        texts = [t.encode() for t in o.get("breakers", [])]
        breakers = (ctypes.c_char_p * len(texts))(*texts) if texts else None
        return l.llama_sampler_init_dry(
            vocab if texts else None, o.get("dry_multiplier", 0), o.get("dry_base", 0),
            o.get("dry_allowed_length", 0), o.get("dry_last_n", 0), breakers, len(texts))
    if name == "top_n_sigma":
        return l.llama_sampler_init_top_n_sigma(o.get("top_n_sigma", -1))
    if name == "top_k":
        return l.llama_sampler_init_top_k(o.get("top_k", 0))
    if name == "typ_p":
        return l.llama_sampler_init_typical(o.get("typical_p", 1), 0)
    if name == "top_p":
        return l.llama_sampler_init_top_p(o.get("top_p", 1), 0)
    if name == "min_p":
        return l.llama_sampler_init_min_p(o.get("min_p", 0), 0)
    if name == "xtc":
        return l.llama_sampler_init_xtc(
            o.get("xtc_probability", 0), o.get("xtc_threshold", 0.1), 0, SEED)
    return l.llama_sampler_init_temp_ext(
        o["temp"], o.get("dynatemp_range", 0), o["dynatemp_exponent"])


def make_chain(o, n_vocab, vocab):
    chain = l.llama_sampler_chain_init(l.llama_sampler_chain_default_params())
    if "biases" in o:
        list_type = l.llama_logit_bias * len(o["biases"])
        biases = list_type(*[l.llama_logit_bias(t, b) for t, b in o["biases"]])
        l.llama_sampler_chain_add(
            chain, l.llama_sampler_init_logit_bias(n_vocab, len(biases), biases))
    if o.get("mirostat"):
        l.llama_sampler_chain_add(chain, l.llama_sampler_init_temp(o["temp"]))
        tau, eta = o["mirostat_tau"], o["mirostat_eta"]
        l.llama_sampler_chain_add(
            chain, l.llama_sampler_init_mirostat(n_vocab, SEED, tau, eta, 100)
            if o["mirostat"] == 1 else l.llama_sampler_init_mirostat_v2(SEED, tau, eta))
        return chain
    for name in o.get("samplers", ";".join(ORDER)).split(";"):
        l.llama_sampler_chain_add(chain, make_step(name, o, n_vocab, vocab))
    l.llama_sampler_chain_add(chain, l.llama_sampler_init_dist(SEED))
    return chain


def probabilities(logits, history, o, vocab):
    data = (l.llama_token_data * len(logits))()
    for i, x in enumerate(logits):
        data[i] = l.llama_token_data(i, -math.inf if x is None else x / 1024, 0)
    array = l.llama_token_data_array(
        ctypes.cast(data, ctypes.POINTER(l.llama_token_data)), len(logits), -1, False)
    chain = make_chain(o, len(logits), vocab)
    for token in history:
        l.llama_sampler_accept(chain, token)
    l.llama_sampler_apply(chain, ctypes.byref(array))
    left = [(array.data[i].id, array.data[i].p) for i in range(array.size)]
    l.llama_sampler_free(chain)
    return sorted([t, float("%.9g" % p)] for t, p in left if p > 0)


def between(rng, low, high):
    return round(rng.uniform(low, high), 3)


def some_options(rng, n):
    """Options of a random case: each step is on now and then."""
    o = dict(USUAL)
    def maybe(**values):
        if rng.random() < 0.4:
            o.update(values)
    maybe(temp=between(rng, 0.2, 2))
    maybe(repeat_penalty=between(rng, 0.8, 1.6), repeat_last_n=rng.choice([3, 8, 64]))
    maybe(frequency_penalty=between(rng, -1, 1), presence_penalty=between(rng, -1, 1),
          repeat_last_n=rng.choice([3, 8, 64]))
    maybe(dry_multiplier=between(rng, 0.1, 2), dry_base=between(rng, 1, 3),
          dry_allowed_length=rng.randint(0, 3), dry_last_n=rng.choice([6, 20, 64]))
    maybe(top_k=rng.randint(1, n))
    maybe(top_p=between(rng, 0.1, 0.99))
    maybe(min_p=between(rng, 0.01, 0.5))
    # llama.cpp has no number for the entropy of candidates of -inf.
    o.update({"typical_p": between(rng, 0.1, 0.95)} if rng.random() < 0.4 else
             {"top_n_sigma": between(rng, 0.3, 2)} if rng.random() < 0.5 else {})
    maybe(xtc_probability=1.0, xtc_threshold=between(rng, 0.02, 0.4))
    maybe(dynatemp_range=between(rng, 0.1, 1), dynatemp_exponent=between(rng, 0.5, 2))
    maybe(biases=[[rng.randrange(n), between(rng, -3, 3)] for _ in range(3)])
    if rng.random() < 0.3:
        o["samplers"] = ";".join(rng.sample(ORDER, rng.randint(1, len(ORDER))))
    return o


def case(rng, n, vocab):
    o = some_options(rng, n)
    if vocab:
        o.update(dry_multiplier=1.0, dry_base=1.5, dry_allowed_length=1, dry_last_n=64,
                 breakers=rng.choice([["\n", ":", '"', "*"], ["the"], ["the in"], ["ten", " "]]))
    elif rng.random() < 0.15:
        o = {"temp": between(rng, 0.4, 1.5), "mirostat": rng.choice([1, 2]), "mirostat_eta": 0.1,
             "mirostat_tau": between(rng, 0.5, 3), "repeat_penalty": 1.0}
    logits = rng.sample(range(-6 * 1024, 6 * 1024), n)
    if "typical_p" not in o and rng.random() < 0.3:
        for i in rng.sample(range(n), n // 4):
            logits[i] = None
    few = rng.sample(range(n), min(n, 12 if vocab else 5))
    history = [rng.choice(few) for _ in range(rng.randint(0, 40))]
    o = {k: v for k, v in o.items() if v != 0}
    return {"logits": logits, "history": history, "options": o,
            "left": probabilities(logits, history, o, vocab)}


def main():
    silent = l.llama_log_callback(lambda *_: None)
    l.llama_log_set(silent, None)
    rng = random.Random(20240)
    model, vocab = open_vocabulary(os.path.join(HERE, "tiny", "plain.gguf"))
    n_vocab = l.llama_vocab_n_tokens(vocab)
    with open(os.path.join(HERE, "samplers.jsonl"), "w") as out:
        for i in range(240):
            n = n_vocab if i % 12 == 0 else rng.randint(2, 40)
            line = case(rng, n, vocab if i % 12 == 0 else None)
            out.write(json.dumps(line, separators=(",", ":")) + "\n")
    l.llama_model_free(model)


if __name__ == "__main__":
    main()
