"""tiny_blocks.py: random tensors of the blocks that few families have, for make_tiny_models.py.

Each function adds the tensors of one layer through the functions matrix(name, rows, columns, std,
matrices=()) and vector(name, values).
"""

import numpy as np


def latent_attention(matrix, vector, rng, prefix, spec):
    """Attention to latent vectors, with the matrices of keys and values apart."""
    latent, heads, n_embd = spec["latent"], spec["heads"], spec["n_embd"]
    rank, key, value, rot = (latent[k] for k in ("rank", "key", "value", "rot"))
    std = 1.5 / np.sqrt(n_embd)
    if "query_rank" in latent:
        low = latent["query_rank"]
        matrix(prefix + "attn_q_a.weight", low, n_embd, std)
        vector(prefix + "attn_q_a_norm.weight", rng.normal(1, 0.3, low))
        matrix(prefix + "attn_q_b.weight", heads * key, low, 1.5 / np.sqrt(low))
    else:
        matrix(prefix + "attn_q.weight", heads * key, n_embd, std)
    matrix(prefix + "attn_kv_a_mqa.weight", rank + rot, n_embd, std)
    vector(prefix + "attn_kv_a_norm.weight", rng.normal(1, 0.3, rank))
    if latent.get("joined"):
        matrix(prefix + "attn_kv_b.weight", heads * (key - rot + value), rank, 1 / np.sqrt(rank))
    else:
        matrix(prefix + "attn_k_b.weight", rank, key - rot, 1 / np.sqrt(rank), (heads,))
        matrix(prefix + "attn_v_b.weight", value, rank, 1.5 / np.sqrt(rank), (heads,))
    matrix(prefix + "attn_output.weight", n_embd, heads * value, 1 / np.sqrt(heads * value))


def latent_keys(spec):
    latent = spec["latent"]
    rank, rot = latent["rank"], latent["rot"]
    joined = {
        "attention.kv_lora_rank": rank,
        "attention.key_length": latent["key"],
        "attention.value_length": latent["value"],
        "attention.head_count_kv": spec["heads"],
        "rope.dimension_count": rot,
    }
    keys = {
        "attention.kv_lora_rank": rank,
        "attention.key_length": rank + rot,
        "attention.value_length": rank,
        "attention.key_length_mla": latent["key"],
        "attention.value_length_mla": latent["value"],
        "rope.dimension_count": rot,
    }
    keys = joined if latent.get("joined") else keys
    return keys | {"attention.q_lora_rank": latent[k] for k in latent if k == "query_rank"}


def recurrent(matrix, vector, rng, prefix, spec):
    """What a layer has in place of attention: a gated short convolution, or Mamba-2."""
    mixer, n_embd = spec["mixer"], spec["n_embd"]
    std, taps = 1.5 / np.sqrt(n_embd), mixer["taps"]
    if mixer["kind"] == "conv":
        matrix(prefix + "shortconv.in_proj.weight", 3 * n_embd, n_embd, std)
        vector(prefix + "shortconv.conv.weight", rng.normal(0, 0.7, (n_embd, taps)))
        matrix(prefix + "shortconv.out_proj.weight", n_embd, n_embd, 1 / np.sqrt(n_embd))
        return
    heads, head, groups, state = (mixer[k] for k in ("heads", "head", "groups", "state"))
    inner = heads * head
    channels = inner + 2 * groups * state
    matrix(prefix + "ssm_in.weight", inner + channels + heads, n_embd, std)
    vector(prefix + "ssm_conv1d.weight", rng.normal(0, 0.5, (channels, taps)))
    vector(prefix + "ssm_conv1d.bias", rng.normal(0, 0.3, channels))
    vector(prefix + "ssm_dt.bias", rng.normal(-1, 1, heads))
    vector(prefix + "ssm_a", -np.exp(rng.normal(-1, 1, (heads, 1))))
    vector(prefix + "ssm_d", rng.normal(1, 0.3, (heads, 1)))
    if mixer.get("normed", True):
        vector(prefix + "ssm_norm.weight", rng.normal(1, 0.3, (groups, inner // groups)))
    matrix(prefix + "ssm_out.weight", n_embd, inner, 1 / np.sqrt(inner))


def squared_ffn(matrix, vector, rng, prefix, spec, kind):
    """A layer of an FFN without a gate alone, or ("E") of such experts with a shared one."""
    n_embd, widths = spec["n_embd"], {"": spec["ff"]}
    if kind == "E":
        experts = (spec["experts"],)
        matrix(prefix + "ffn_up_exps.weight", spec["ff"], n_embd, 1 / np.sqrt(n_embd), experts)
        matrix(prefix + "ffn_down_exps.weight", n_embd, spec["ff"], 0.2, experts)
        vector(prefix + "ffn_gate_inp.weight", rng.normal(0, 0.3, (*experts, n_embd)))
        vector(prefix + "exp_probs_b.bias", rng.normal(0, 1, experts))
        widths = {"_shexp": spec["shared"]}
    for suffix, width in widths.items():
        matrix(f"{prefix}ffn_up{suffix}.weight", width, n_embd, 1 / np.sqrt(n_embd))
        matrix(f"{prefix}ffn_down{suffix}.weight", n_embd, width, 0.2)


def recurrent_keys(spec):
    mixer = spec["mixer"]
    kv = [spec["kv"] if i in mixer["attends"] else 0 for i in range(spec["layers"])]
    keys = {} if mixer.get("beside") else {"attention.head_count_kv": kv}
    if mixer["kind"] == "conv":
        return keys | {"shortconv.l_cache": mixer["taps"]}
    return keys | {
        "ssm.conv_kernel": mixer["taps"],
        "ssm.state_size": mixer["state"],
        "ssm.group_count": mixer["groups"],
        "ssm.time_step_rank": mixer["heads"],
        "ssm.inner_size": mixer["heads"] * mixer["head"],
    }
