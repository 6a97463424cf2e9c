"""state_families.py: the families of other_families.py whose layers have other blocks than attention
to keys and values of each head.

Besides the entries that other_families.py explains, a family may have functions: "more" makes
arguments of transformers' configuration of the file's keys (hp), "reshape" makes weights as
transformers has them of the file's.
"""

import numpy as np


def expert_arguments(hp):
    """Of experts behind dense layers, with shared ones, as DeepSeek V3 and GLM 4.5 have them."""
    return {
        "n_routed_experts": hp("expert_count"),
        "num_experts": hp("expert_count"),
        "n_shared_experts": hp("expert_shared_count"),
        "first_k_dense_replace": hp("leading_dense_block_count"),
        "moe_intermediate_size": hp("expert_feed_forward_length"),
        "num_experts_per_tok": hp("expert_used_count"),
        "norm_topk_prob": hp("expert_weights_norm", False),
        "routed_scaling_factor": hp("expert_weights_scale", 1.0),
        "n_group": hp("expert_group_count", 1),
        "topk_group": hp("expert_group_used_count", 1),
    }


def latent_arguments(hp):
    rot = hp("rope.dimension_count")
    return expert_arguments(hp) | {
        "q_lora_rank": hp("attention.q_lora_rank", None),
        "kv_lora_rank": hp("attention.kv_lora_rank"),
        "qk_rope_head_dim": rot,
        "qk_nope_head_dim": hp("attention.key_length_mla") - rot,
        "v_head_dim": hp("attention.value_length_mla"),
        "head_dim": rot,
        "num_key_value_heads": hp("attention.head_count"),
        "topk_method": "greedy",
    }


def join_latent(hp, weights):
    """Puts the matrices of keys and values of a head into one, rows of keys first."""
    out = dict(weights)
    for name in [name for name in weights if "attn_k_b." in name]:
        keys = out.pop(name).transpose(0, 2, 1)
        both = np.concatenate([keys, out.pop(name.replace("k_b", "v_b"))], axis=1)
        out[name.replace("k_b", "kv_b")] = both.reshape(-1, both.shape[2])
    return out


SHARED_EXPERTS = {
    f"ffn_{name}_shexp.weight": f"mlp.shared_experts.{name}_proj.weight"
    for name in ("gate", "up", "down")
} | {"exp_probs_b.bias": "mlp.gate.e_score_correction_bias"}
LATENT = SHARED_EXPERTS | {
    "attn_q_a.weight": "self_attn.q_a_proj.weight",
    "attn_q_a_norm.weight": "self_attn.q_a_layernorm.weight",
    "attn_q_b.weight": "self_attn.q_b_proj.weight",
    "attn_kv_a_mqa.weight": "self_attn.kv_a_proj_with_mqa.weight",
    "attn_kv_a_norm.weight": "self_attn.kv_a_layernorm.weight",
    "attn_kv_b.weight": "self_attn.kv_b_proj.weight",
}

FAMILIES = {
    "glm4moe": {
        "model": "Glm4MoeForCausalLM",
        "layer": SHARED_EXPERTS
        | {"post_attention_norm.weight": "post_attention_layernorm.weight"},
        "more": expert_arguments,
        "constants": {"use_qk_norm": True, "attention_bias": True},
        "partial": True,
    },
    "dots1": {
        "model": "Dots1ForCausalLM",
        "layer": SHARED_EXPERTS,
        "more": expert_arguments,
        "constants": {"sliding_window": None},
    },
    "deepseek2": {
        "model": "DeepseekV2ForCausalLM",
        "sigmoid_model": "DeepseekV3ForCausalLM",  # of files whose gate is a sigmoid
        "layer": LATENT,
        "more": latent_arguments,
        "reshape": join_latent,
    },
}
