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
    matrix(prefix + "attn_k_b.weight", rank, key - rot, 1 / np.sqrt(rank), (heads,))
    matrix(prefix + "attn_v_b.weight", value, rank, 1.5 / np.sqrt(rank), (heads,))
    matrix(prefix + "attn_output.weight", n_embd, heads * value, 1 / np.sqrt(heads * value))


def latent_keys(spec):
    latent = spec["latent"]
    rank, rot = latent["rank"], latent["rot"]
    keys = {
        "attention.kv_lora_rank": rank,
        "attention.key_length": rank + rot,
        "attention.value_length": rank,
        "attention.key_length_mla": latent["key"],
        "attention.value_length_mla": latent["value"],
        "rope.dimension_count": rot,
    }
    return keys | {"attention.q_lora_rank": latent[k] for k in latent if k == "query_rank"}
