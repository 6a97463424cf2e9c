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


def heads_by_gates(weights):
    """The heads of each layer, which have a gate each."""
    gates = {name: value for name, value in weights.items() if "attn_gate" in name}
    return [len(gates[f"blk.{layer}.attn_gate.weight"]) for layer in range(len(gates))]


def latent_arguments(hp):
    rot = hp("rope.dimension_count")
    experts = expert_arguments(hp) if hp("expert_count", 0) else {}
    return experts | {
        "q_lora_rank": hp("attention.q_lora_rank", None),
        "kv_lora_rank": hp("attention.kv_lora_rank"),
        "qk_rope_head_dim": rot,
        "qk_nope_head_dim": hp("attention.key_length_mla", hp("attention.key_length")) - rot,
        "v_head_dim": hp("attention.value_length_mla", hp("attention.value_length")),
        "head_dim": rot,
        "num_key_value_heads": hp("attention.head_count"),
        "topk_method": "group_limited_greedy" if hp("expert_group_count", 1) > 1 else "greedy",
    }


def join_latent(hp, weights):
    """Puts the matrices of keys and values of a head into one, rows of keys first."""
    out = dict(weights)
    for name in [name for name in weights if "attn_k_b." in name]:
        keys = out.pop(name).transpose(0, 2, 1)
        both = np.concatenate([keys, out.pop(name.replace("k_b", "v_b"))], axis=1)
        out[name.replace("k_b", "kv_b")] = both.reshape(-1, both.shape[2])
    return out


def squared_by_gates(hp, weights):
    """Gates that are the same as ups."""
    ups = {name: value for name, value in weights.items() if ".ffn_up." in name}
    return weights | {name.replace("up", "gate"): value for name, value in ups.items()}


def scaled_latent_arguments(hp):
    """Of MiniCPM3, whose factors no file has."""
    names = ("q_lora_rank", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    latent = latent_arguments(hp)
    return {name: latent[name] for name in names} | {
        "num_key_value_heads": hp("attention.head_count"),
        "head_dim": hp("rope.dimension_count"),
        "scale_emb": 12,
        "scale_depth": 1.4,
        "dim_model_base": 256,
    }


def empty_shared_experts(hp, weights):
    """Shared experts without columns, in layers with experts that have none."""
    out, n_embd = dict(weights), hp("embedding_length")
    for name in [name for name in weights if name.endswith("ffn_gate_inp.weight")]:
        for kind in ("gate", "up", "down"):
            shared = name.replace("gate_inp", kind + "_shexp")
            out.setdefault(shared, np.zeros((n_embd, 0) if kind == "down" else (0, n_embd)))
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


def layer_kinds(hp, recurrent):
    """The layers without KV heads are recurrent."""
    kv = hp("attention.head_count_kv")
    kinds = ["full_attention" if n else recurrent for n in kv]
    return {"num_key_value_heads": max(kv), "layer_types": kinds, "layers_block_type": kinds}


def conv_arguments(hp):
    return layer_kinds(hp, "conv") | {
        "norm_eps": hp("attention.layer_norm_rms_epsilon"),
        "conv_L_cache": hp("shortconv.l_cache"),
        "block_auto_adjust_ff_dim": False,
        "num_dense_layers": hp("leading_dense_block_count", 0),
        "num_experts": hp("expert_count", 0),
        "num_experts_per_tok": hp("expert_used_count", 0),
        "moe_intermediate_size": hp("expert_feed_forward_length", 0),
    }


def mamba_arguments(hp):
    heads = hp("ssm.time_step_rank")
    return layer_kinds(hp, "linear_attention") | {
        "mamba_n_heads": heads,
        "mamba_n_groups": hp("ssm.group_count"),
        "mamba_d_state": hp("ssm.state_size"),
        "mamba_d_head": hp("ssm.inner_size") // heads,
        "mamba_d_conv": hp("ssm.conv_kernel"),
        "mamba_expand": hp("ssm.inner_size") // hp("embedding_length"),
        "position_embedding_type": "rope" if hp("rope.scaling.finetuned", False) else None,
        "num_local_experts": hp("expert_count", 0),
        "num_experts_per_tok": hp("expert_used_count", 0),
        "shared_intermediate_size": hp(
            "expert_shared_feed_forward_length", hp("feed_forward_length")
        ),
        "pad_token_id": 0,
    }


def beside_arguments(hp):
    """Of Falcon H1, whose multipliers are in the weights of files."""
    heads = hp("ssm.time_step_rank")
    return {
        "mamba_d_ssm": hp("ssm.inner_size"),
        "mamba_n_heads": heads,
        "mamba_d_head": hp("ssm.inner_size") // heads,
        "mamba_n_groups": hp("ssm.group_count"),
        "mamba_d_state": hp("ssm.state_size"),
        "mamba_d_conv": hp("ssm.conv_kernel"),
        "mamba_norm_before_gate": False,
        "pad_token_id": 0,
    }


def alone_arguments(hp):
    """Of Nemotron H, whose layers have one block each."""
    widths, kv = hp("feed_forward_length"), hp("attention.head_count_kv")
    feeds = "moe" if hp("expert_count", 0) else "mlp"
    kinds = [
        feeds if width else "full_attention" if n else "linear_attention"
        for width, n in zip(widths, kv)
    ]
    heads = hp("ssm.time_step_rank")
    return {
        "layers_block_type": kinds,
        "num_key_value_heads": max(kv),
        "intermediate_size": max(widths),
        "layer_norm_epsilon": hp("attention.layer_norm_epsilon", None)
        or hp("attention.layer_norm_rms_epsilon"),
        "ssm_state_size": hp("ssm.state_size"),
        "mamba_num_heads": heads,
        "mamba_head_dim": hp("ssm.inner_size") // heads,
        "n_groups": hp("ssm.group_count"),
        "conv_kernel": hp("ssm.conv_kernel"),
        "n_routed_experts": hp("expert_count", 1),
        "num_experts_per_tok": hp("expert_used_count", 1),
        "moe_intermediate_size": hp("expert_feed_forward_length", 1),
        "moe_shared_expert_intermediate_size": hp("expert_shared_feed_forward_length", 1),
        "norm_topk_prob": hp("expert_weights_norm", False),
        "routed_scaling_factor": hp("expert_weights_scale", 1.0),
    }


def plain_states(hp, weights):
    """Convolutions with an axis between, logarithms of decays, and gates and ups in one tensor."""
    out = {}
    for name, value in weights.items():
        short = name.split(".", 2)[-1]
        if short in ("shortconv.conv.weight", "ssm_conv1d.weight"):
            value = value[:, None, :]
        if short == "ssm_a":
            value = np.log(-value[:, 0])
        if short == "ssm_d":
            value = value[:, 0]
        if short == "ssm_norm.weight":
            value = value.reshape(-1)
        out[name] = value
    return out


def joined_shared_mlp(hp, weights):
    """Granite's dense FFN and its shared expert are one module, whose gates and ups are joined."""
    out = plain_states(hp, weights)
    for name in [name for name in out if "ffn_gate.weight" in name]:
        both = [out.pop(name), out.pop(name.replace("ffn_gate", "ffn_up"))]
        prefix = name[: -len("ffn_gate.weight")]
        out[prefix + "ffn_gate_up_shexp.weight"] = np.concatenate(both)
        out[prefix + "ffn_down_shexp.weight"] = out.pop(prefix + "ffn_down.weight")
    return out


CONV = {
    "attn_norm.weight": "operator_norm.weight",
    "attn_output.weight": "self_attn.out_proj.weight",
    "attn_q_norm.weight": "self_attn.q_layernorm.weight",
    "attn_k_norm.weight": "self_attn.k_layernorm.weight",
    "shortconv.in_proj.weight": "conv.in_proj.weight",
    "shortconv.conv.weight": "conv.conv.weight",
    "shortconv.out_proj.weight": "conv.out_proj.weight",
    "ffn_norm.weight": "ffn_norm.weight",
    "ffn_gate.weight": "feed_forward.w1.weight",
    "ffn_up.weight": "feed_forward.w3.weight",
    "ffn_down.weight": "feed_forward.w2.weight",
    "ffn_gate_inp.weight": "feed_forward.gate.weight",
    "ffn_gate_up_exps.weight": "feed_forward.experts.gate_up_proj",
    "ffn_down_exps.weight": "feed_forward.experts.down_proj",
    "exp_probs_b.bias": "feed_forward.expert_bias",
}
CONV_FAMILY = {
    "layer": CONV,
    "outside": {"output_norm.weight": "model.embedding_norm.weight"},
    "more": conv_arguments,
    "reshape": plain_states,
}
MAMBA = {
    "ssm_in.weight": "mamba.in_proj.weight",
    "ssm_conv1d.weight": "mamba.conv1d.weight",
    "ssm_conv1d.bias": "mamba.conv1d.bias",
    "ssm_dt.bias": "mamba.dt_bias",
    "ssm_a": "mamba.A_log",
    "ssm_d": "mamba.D",
    "ssm_norm.weight": "mamba.norm.weight",
    "ssm_out.weight": "mamba.out_proj.weight",
}

ALONE_FAMILY = {
    "model": "NemotronHForCausalLM",
    "layer": {ours: theirs.replace("mamba.", "mixer.") for ours, theirs in MAMBA.items()}
    | {f"attn_{ours}.weight": f"mixer.{ours[0]}_proj.weight" for ours in ("q", "k", "v", "output")}
    | {f"ffn_{name}.weight": f"mixer.{name}_proj.weight" for name in ("up", "down")}
    | {f"ffn_{name}_exps.weight": f"mixer.experts.{name}_proj" for name in ("up", "down")}
    | {
        f"ffn_{name}_shexp.weight": f"mixer.shared_experts.{name}_proj.weight"
        for name in ("up", "down")
    }
    | {
        "attn_norm.weight": "norm.weight",
        "ffn_gate_inp.weight": "mixer.gate.weight",
        "exp_probs_b.bias": "mixer.gate.e_score_correction_bias",
    },
    "outside": {
        "token_embd.weight": "model.embeddings.weight",
        "output_norm.weight": "model.norm_f.weight",
    },
    "more": alone_arguments,
    "reshape": plain_states,
}

FAMILIES = {
    "nemotron_h": ALONE_FAMILY,
    "nemotron_h_moe": ALONE_FAMILY | {"eps": "layer_norm_epsilon"},
    "lfm2": CONV_FAMILY | {"model": "Lfm2ForCausalLM"},
    "lfm2moe": CONV_FAMILY | {"model": "Lfm2MoeForCausalLM"},
    "falcon-h1": {
        "model": "FalconH1ForCausalLM",
        "layer": MAMBA
        | {
            "ffn_norm.weight": "pre_ff_layernorm.weight",
            "ffn_gate.weight": "feed_forward.gate_proj.weight",
            "ffn_up.weight": "feed_forward.up_proj.weight",
            "ffn_down.weight": "feed_forward.down_proj.weight",
        },
        "outside": {"output_norm.weight": "model.final_layernorm.weight"},
        "more": beside_arguments,
        "by_tensors": {"mamba_rms_norm": lambda weights: "blk.0.ssm_norm.weight" in weights},
        "reshape": plain_states,
    },
    "granitehybrid": {
        "model": "GraniteMoeHybridForCausalLM",
        "adjacent": True,
        "layer": MAMBA
        | {
            "ffn_gate_inp.weight": "block_sparse_moe.router.weight",
            "ffn_gate_up_exps.weight": "block_sparse_moe.experts.gate_up_proj",
            "ffn_down_exps.weight": "block_sparse_moe.experts.down_proj",
            "ffn_gate_up_shexp.weight": "shared_mlp.input_linear.weight",
            "ffn_down_shexp.weight": "shared_mlp.output_linear.weight",
        },
        "arguments": {
            "embedding_multiplier": "embedding_scale",
            "residual_multiplier": "residual_scale",
            "attention_multiplier": "attention.scale",
            "logits_scaling": "logit_scale",
        },
        "more": mamba_arguments,
        "reshape": joined_shared_mlp,
    },
    "glm4moe": {
        "model": "Glm4MoeForCausalLM",
        "layer": SHARED_EXPERTS
        | {"post_attention_norm.weight": "post_attention_layernorm.weight"},
        "more": expert_arguments,
        "constants": {"attention_bias": True},
        "by_tensors": {"use_qk_norm": lambda weights: "blk.0.attn_q_norm.weight" in weights},
        "partial": True,
    },
    "bailingmoe2": {
        "model": "Glm4MoeForCausalLM",
        "layer": SHARED_EXPERTS,
        "more": expert_arguments,
        "constants": {"use_qk_norm": True, "attention_bias": False},
        "partial": True,
    },
    "dots1": {
        "model": "Dots1ForCausalLM",
        "layer": SHARED_EXPERTS,
        "more": expert_arguments,
        "constants": {"sliding_window": None},
    },
    "exaone-moe": {
        "model": "ExaoneMoeForCausalLM",
        "windowed": "ExaoneMoeForCausalLM",
        "period": 4,
        "layer": SHARED_EXPERTS,
        "arguments": {"num_experts": "expert_count", "num_shared_experts": "expert_shared_count"},
        "more": expert_arguments,
    },
    "afmoe": {
        "model": "AfmoeForCausalLM",
        "windowed": "AfmoeForCausalLM",
        "period": 4,
        "layer": SHARED_EXPERTS
        | {
            "attn_gate.weight": "self_attn.gate_proj.weight",
            "post_attention_norm.weight": "post_attention_layernorm.weight",
            "ffn_norm.weight": "pre_mlp_layernorm.weight",
            "ffn_gate_inp.weight": "mlp.router.gate.weight",
            "exp_probs_b.bias": "mlp.expert_bias",
            "post_ffw_norm.weight": "post_mlp_layernorm.weight",
        },
        "arguments": {
            "num_experts": "expert_count",
            "num_shared_experts": "expert_shared_count",
            "num_dense_layers": "leading_dense_block_count",
            "route_scale": "expert_weights_scale",
        },
        "more": expert_arguments,
        "constants": {"mup_enabled": True},
        "reshape": empty_shared_experts,
    },
    "laguna": {
        "model": "LagunaForCausalLM",
        "windowed": "LagunaForCausalLM",
        "period": 4,
        "first_sees_all": True,
        "largest": True,
        "unscaled": True,
        "layer": SHARED_EXPERTS | {"attn_gate.weight": "self_attn.g_proj.weight"},
        "arguments": {
            "num_experts": "expert_count",
            "num_experts_per_tok": "expert_used_count",
            "moe_intermediate_size": "expert_feed_forward_length",
            "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
            "moe_routed_scaling_factor": "expert_weights_scale",
        },
        "by_tensors": {"num_attention_heads_per_layer": heads_by_gates},
        "more": lambda hp: {
            "mlp_layer_types": [
                "dense" if layer < hp("leading_dense_block_count") else "sparse"
                for layer in range(hp("block_count"))
            ]
        },
        "parts": {
            "full_attention": "rope.dimension_count",
            "sliding_attention": "rope.dimension_count_swa",
        },
    },
    "mistral4": {
        "model": "Mistral4ForCausalLM",
        "layer": LATENT,
        "more": lambda hp: latent_arguments(hp) | {"head_dim": hp("attention.key_length_mla")},
        "reshape": join_latent,
    },
    "minicpm3": {
        "model": "MiniCPM3ForCausalLM",
        "layer": LATENT,
        "more": scaled_latent_arguments,
        "reshape": join_latent,
    },
    # An FFN of squares is one whose gate, with a ReLU, is the same matrix.
    "plm": {
        "model": "DeepseekV2ForCausalLM",
        "layer": LATENT,
        "more": lambda hp: latent_arguments(hp)
        | {"hidden_act": "relu", "first_k_dense_replace": hp("block_count")},
        "reshape": squared_by_gates,
    },
    "deepseek2": {
        "model": "DeepseekV2ForCausalLM",
        "sigmoid_model": "DeepseekV3ForCausalLM",  # of files whose gate is a sigmoid
        "layer": LATENT,
        "more": latent_arguments,
        "reshape": join_latent,
    },
}
