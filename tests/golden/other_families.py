"""other_families.py: logits of GGUF files of families other than llama, by Hugging Face transformers.

The judge is the model code that the families' makers published, run in float64 with the decoded
weights of the file; nothing of it is shared with the engine. (Its norms, softmax and rotary tables
stay in float32, which costs an NMSE of about 1e-14.) FAMILIES says how the file's keys and tensors
are called there. Needs torch and transformers.

    other_families.py MODEL.gguf IDS WINDOW     prints the perplexity of a file of token ids
"""

import json
import sys

import numpy as np
import torch
import transformers

import reference
import state_families

# transformers' names of the arguments that every family has, by the file's keys.
ARGUMENTS = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "max_position_embeddings": "context_length",
}
# transformers' names of tensors, by the file's; those of a layer come behind "model.layers.N.".
OUTSIDE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
    "output_norm.bias": "model.norm.bias",
    "output.bias": "lm_head.bias",
}
LAYER = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_norm.bias": "input_layernorm.bias",
    "attn_q_norm.weight": "self_attn.q_norm.weight",
    "attn_k_norm.weight": "self_attn.k_norm.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_norm.bias": "post_attention_layernorm.bias",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
} | {
    f"attn_{ours}.{kind}": f"self_attn.{theirs}_proj.{kind}"
    for ours, theirs in {"q": "q", "k": "k", "v": "v", "output": "o"}.items()
    for kind in ("weight", "bias")
}
EXPERTS = {
    "ffn_gate_inp.weight": "mlp.gate.weight",
    "ffn_gate_up_exps.weight": "mlp.experts.gate_up_proj",
    "ffn_down_exps.weight": "mlp.experts.down_proj",
}
SHARED_EXPERT = {
    f"ffn_{name}_shexp.weight": f"mlp.shared_expert.{name}_proj.weight"
    for name in ("gate", "up", "down")
} | {"ffn_gate_inp_shexp.weight": "mlp.shared_expert_gate.weight"}
EXPERT_ARGUMENTS = {
    "num_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length",
}

# Norms after attention and after the FFN, which move the name of the norm before the FFN.
POST_NORMS = {
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "ffn_norm.weight": "pre_feedforward_layernorm.weight",
    "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
}
GRANITE_SCALES = {
    "embedding_multiplier": "embedding_scale",
    "residual_multiplier": "residual_scale",
    "attention_multiplier": "attention.scale",
    "logits_scaling": "logit_scale",
}
GEMMA = {
    "layer": POST_NORMS,
    "one_plus": True,  # transformers keeps the weights of norms less 1
    "arguments": {"sliding_window": "attention.sliding_window"},
    "optional": {
        "attn_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping",
    },
}

# Tensors of gated delta nets. The norm after one is kept as it is.
DELTA = {
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "attn_qkv.weight": "linear_attn.in_proj_qkv.weight",
    "attn_gate.weight": "linear_attn.in_proj_z.weight",
    "ssm_alpha.weight": "linear_attn.in_proj_a.weight",
    "ssm_beta.weight": "linear_attn.in_proj_b.weight",
    "ssm_conv1d.weight": "linear_attn.conv1d.weight",
    "ssm_dt.bias": "linear_attn.dt_bias",
    "ssm_a": "linear_attn.A_log",
    "ssm_norm.weight": "linear_attn.norm.weight",
    "ssm_out.weight": "linear_attn.out_proj.weight",
}

DELTA_ARGUMENTS = {
    "linear_conv_kernel_dim": "ssm.conv_kernel",
    "linear_key_head_dim": "ssm.state_size",
    "linear_value_head_dim": "ssm.state_size",
    "linear_num_key_heads": "ssm.group_count",
    "linear_num_value_heads": "ssm.time_step_rank",
}

# Families whose only norms are behind attention and the FFN.
POST_NORMS_ALONE = {
    "post_attention_norm.weight": "post_attention_layernorm.weight",
    "post_ffw_norm.weight": "post_feedforward_layernorm.weight",
}
COHERE = {
    "arguments": {"logit_scale": "logit_scale"},
    "eps": "layer_norm_eps",
}



def usual_scale(hp):
    """The scale of scores where no key says another."""
    return (hp("embedding_length") // hp("attention.head_count")) ** -0.5


def norms_of_heads(hp, weights):
    """Norms with weights of their own for each head, as a tensor for each."""
    out = {}
    for name, value in weights.items():
        if "_norm.weight" in name and value.ndim > 1:
            base = name.removesuffix(".weight")
            out |= {f"{base}.{head}.weight": row for head, row in enumerate(value)}
        else:
            out[name] = value
    return out


def ungated_shared_expert(hp, weights):
    """A shared expert without a gate: one whose gate is always a half, twice as large."""
    out = dict(weights)
    for name in weights:
        if name.endswith("ffn_down_shexp.weight"):
            out[name] = 2 * weights[name]
            gate = name.replace("ffn_down_shexp", "ffn_gate_inp_shexp")
            out[gate] = np.zeros((1, hp("embedding_length")))
    return out


def halves_of_norms(hp, weights):
    """The norms of heads that turn neighbours, in the order in which halves turn."""
    norms = {name: value for name, value in weights.items() if "_norm.weight" in name}
    return weights | {
        name: value.reshape(-1, 2).T.reshape(-1)
        for name, value in norms.items()
        if ".attn_q_norm." in name or ".attn_k_norm." in name
    }


def split_heads(hp, weights):
    """Queries, keys and values as tensors of their own."""
    out = {}
    n_heads = hp("attention.head_count")
    n_kv = hp("attention.head_count_kv", n_heads)
    for name, value in weights.items():
        if ".attn_qkv." not in name:
            out[name] = value
            continue
        width = len(value) // (n_heads + 2 * n_kv)
        parts = np.split(value, [n_heads * width, (n_heads + n_kv) * width])
        out |= {name.replace("qkv", kind): part for kind, part in zip("qkv", parts)}
    return out


def like_the_largest(hp, weights):
    """Layers like the largest one: KV heads are repeated, an FFN gets columns of zeros, and attention
    that a layer lacks has matrices of zeros."""
    out = dict(weights)
    n_embd, head = hp("embedding_length"), hp("embedding_length") // hp("attention.head_count")
    for layer in range(hp("block_count")):
        prefix = f"blk.{layer}."
        shapes = {"q": n_embd, "k": head * hp("attention.head_count_kv"), "output": n_embd}
        for name, rows in (shapes | {"v": shapes["k"]}).items():
            value = out.get(f"{prefix}attn_{name}.weight", np.zeros((rows, n_embd)))
            heads = value.reshape(-1, head, n_embd)
            heads = np.repeat(heads, rows // head // len(heads), axis=0)
            out[f"{prefix}attn_{name}.weight"] = heads.reshape(rows, n_embd)
        out.setdefault(prefix + "attn_norm.weight", np.ones(n_embd))
        missing = hp("feed_forward_length") - len(out[prefix + "ffn_up.weight"])
        for name, pads in {"gate": (missing, 0), "up": (missing, 0), "down": (0, missing)}.items():
            value = out[f"{prefix}ffn_{name}.weight"]
            out[f"{prefix}ffn_{name}.weight"] = np.pad(value, [(0, pad) for pad in pads])
    return out


# The same as Qwen2 MoE, but for the order in which heads turn and the gate of the shared expert.
UNGATED_SHARED_EXPERT = {
    "model": "Qwen2MoeForCausalLM",
    "adjacent": True,
    "layer": SHARED_EXPERT,
    "reshape": ungated_shared_expert,
    "arguments": EXPERT_ARGUMENTS,
    "more": lambda hp: {
        "shared_expert_intermediate_size": hp("expert_shared_count")
        * hp("expert_feed_forward_length"),
        "mlp_only_layers": list(range(hp("leading_dense_block_count", 0))),
        "norm_topk_prob": hp("expert_weights_norm", False),
    },
}

# Norms with biases, attention and FFN side by side.
PHI = {
    "model": "PhiForCausalLM",
    "layer": {
        f"{ours}.{kind}": f"{theirs}.{kind}"
        for ours, theirs in {
            "attn_output": "self_attn.dense",
            "ffn_up": "mlp.fc1",
            "ffn_down": "mlp.fc2",
        }.items()
        for kind in ("weight", "bias")
    },
    "outside": {
        f"output_norm.{kind}": f"model.final_layernorm.{kind}" for kind in ("weight", "bias")
    },
    "eps": "layer_norm_eps",
}

# Class of the model, and which arguments it has besides: keys of the file (optional ones may be
# missing), and constants; "period": all layers but the last of each period have a window, and
# "local_base" is the base of their angles if it is not that of the others.
STARCODER2 = {
    "model": "Starcoder2ForCausalLM",
    "layer": {
        f"ffn_{ours}.{kind}": f"mlp.{theirs}.{kind}"
        for ours, theirs in {"up": "c_fc", "down": "c_proj"}.items()
        for kind in ("weight", "bias")
    },
    "eps": "norm_epsilon",
}

FAMILIES = {
    "olmo2": {
        "model": "Olmo2ForCausalLM",
        "windowed": "Olmo3ForCausalLM",
        "layer": POST_NORMS_ALONE,
        "unscaled": True,  # positions in layers with a window
        "constants": {"pad_token_id": 0},
    },
    "exaone4": {"model": "Exaone4ForCausalLM", "windowed": "Exaone4ForCausalLM"}
    | {"layer": POST_NORMS_ALONE},
    "mellum": {
        "model": "MellumForCausalLM",
        "windowed": "MellumForCausalLM",
        "arguments": EXPERT_ARGUMENTS,
        "unscaled": True,
        "constants": {"norm_topk_prob": True},
    },
    "cohere2": COHERE
    | {"model": "Cohere2ForCausalLM", "windowed": "Cohere2ForCausalLM", "period": 4},
    "command-r": COHERE
    | {"model": "CohereForCausalLM"}
    | {"by_tensors": {"use_qk_norm": lambda weights: "blk.0.attn_q_norm.weight" in weights}},
    "bitnet": {
        "model": "BitNetForCausalLM",
        "layer": {
            "attn_sub_norm.weight": "self_attn.attn_sub_norm.weight",
            "ffn_sub_norm.weight": "mlp.ffn_sub_norm.weight",
        },
        "constants": {"hidden_act": "silu"},
    },
    "ernie4_5-moe": {
        "model": "Ernie4_5_MoeForCausalLM",
        "layer": {
            "exp_probs_b.bias": "mlp.gate.moe_statics.e_score_correction_bias",
        }
        | {
            f"ffn_{name}_shexp.weight": f"mlp.shared_experts.{name}_proj.weight"
            for name in ("gate", "up", "down")
        },
        "arguments": {
            "moe_num_experts": "expert_count",
            "moe_k": "expert_used_count",
            "moe_intermediate_size": "expert_feed_forward_length",
            "moe_num_shared_experts": "expert_shared_count",
            "moe_layer_start_index": "leading_dense_block_count",
        },
        "constants": {"use_bias": False},
    },
    "hunyuan-moe": {
        "model": "HunYuanMoEV1ForCausalLM",
        "layer": {
            "attn_q_norm.weight": "self_attn.query_layernorm.weight",
            "attn_k_norm.weight": "self_attn.key_layernorm.weight",
            "ffn_gate_inp.weight": "mlp.gate.wg.weight",
        }
        | {
            f"ffn_{name}_shexp.weight": f"mlp.shared_mlp.{name}_proj.weight"
            for name in ("gate", "up", "down")
        },
        "arguments": {"num_experts": "expert_count", "moe_topk": "expert_used_count"},
    },
    "starcoder2": STARCODER2,
    "codeshell": STARCODER2 | {"reshape": split_heads},
    "stablelm": {
        "model": "StableLmForCausalLM",
        "eps": "layer_norm_eps",
        "partial": True,
        "by_tensors": {
            "use_parallel_residual": lambda weights: "blk.0.ffn_norm.weight" not in weights,
            "use_qkv_bias": lambda weights: "blk.0.attn_q.bias" in weights,
            "qk_layernorm": lambda weights: "blk.0.attn_q_norm.weight" in weights,
        },
        "reshape": norms_of_heads,
    },
    "orion": {
        "model": "StableLmForCausalLM",
        "eps": "layer_norm_eps",
        "more": lambda hp: {
            "rope_parameters": {"rope_type": "default", "rope_theta": hp("rope.freq_base", 10000.0)}
            | {"partial_rotary_factor": 1.0}
        },
    },
    "phi2": PHI | {"partial": True},
    # The same as Phi, all of whose heads turn, without biases of matrices.
    "falcon": PHI
    | {"reshape": split_heads}
    | {
        "more": lambda hp: {
            "rope_parameters": {"rope_type": "default", "rope_theta": hp("rope.freq_base", 10000.0)}
            | {"partial_rotary_factor": 1.0}
        }
    },
    "gemma": {"model": "GemmaForCausalLM", "one_plus": True},
    "arcee": {"model": "ArceeForCausalLM", "adjacent": True},
    "nemotron": {"model": "NemotronForCausalLM", "one_plus": True, "eps": "norm_eps"}
    | {"partial": True},
    "jais2": {
        "model": "Jais2ForCausalLM",
        "layer": {f"ffn_{part}.bias": f"mlp.{part}_proj.bias" for part in ("up", "down")},
        "eps": "layer_norm_eps",
        "constants": {"attention_bias": True, "mlp_bias": True, "eos_token_id": 0},
    },
    # The same as llama, but for the order in which heads turn.
    "exaone": {"model": "LlamaForCausalLM"},
    "baichuan": {"model": "LlamaForCausalLM", "adjacent": True},
    "xverse": {"model": "LlamaForCausalLM", "adjacent": True},
    "pangu-embedded": {"model": "LlamaForCausalLM", "constants": {"attention_bias": True}},
    "minicpm": {"model": "GraniteForCausalLM", "adjacent": True}
    | {"arguments": {k: v for k, v in GRANITE_SCALES.items() if k != "attention_multiplier"}}
    | {"more": lambda hp: {"attention_multiplier": usual_scale(hp)}},
    "chatglm": {
        "model": "GlmForCausalLM",
        "layer": {"ffn_up.weight": "mlp.gate_up_proj.weight"},
        "constants": {"attention_bias": True, "pad_token_id": 0, "eos_token_id": 0},
        "partial": True,
    },
    # All parts of a position of text are the same.
    "qwen2vl": {"model": "Qwen2VLTextModel", "text": True, "mrope": True},
    "qwen3vl": {"model": "Qwen3VLTextModel", "text": True, "mrope": True},
    "qwen3vlmoe": {"model": "Qwen3VLMoeTextModel", "text": True, "mrope": True}
    | {"arguments": EXPERT_ARGUMENTS},
    "olmoe": {
        "model": "OlmoeForCausalLM",
        "arguments": {"num_experts": "expert_count", "num_experts_per_tok": "expert_used_count"},
        "constants": {"norm_topk_prob": False, "pad_token_id": 0},
    },
    "minimax-m2": {
        "model": "MiniMaxM2ForCausalLM",
        "layer": {"exp_probs_b.bias": "mlp.e_score_correction_bias"},
        "arguments": {
            "num_local_experts": "expert_count",
            "num_experts_per_tok": "expert_used_count",
        },
        "partial": True,
    },
    "gemma2": GEMMA | {"model": "Gemma2ForCausalLM", "period": 2},
    "granite": {
        "model": "GraniteForCausalLM",
        "adjacent": True,  # rotary positions turn neighbours: rows of q and k change places
        "arguments": GRANITE_SCALES,
    },
    "granitemoe": {
        "model": "GraniteMoeSharedForCausalLM",
        "adjacent": True,
        "layer": {
            "ffn_gate_inp.weight": "block_sparse_moe.router.weight",
            "ffn_gate_up_exps.weight": "block_sparse_moe.experts.gate_up_proj",
            "ffn_down_exps.weight": "block_sparse_moe.experts.down_proj",
            "ffn_gate_up_shexp.weight": "shared_mlp.input_linear.weight",
            "ffn_down_shexp.weight": "shared_mlp.output_linear.weight",
        },
        "arguments": GRANITE_SCALES
        | {
            "num_local_experts": "expert_count",
            "num_experts_per_tok": "expert_used_count",
        },
        "more": lambda hp: {
            "shared_intermediate_size": hp("expert_shared_feed_forward_length", 0)
        },
    },
    # In these two transformers turns neighbours too.
    "ernie4_5": {"model": "Ernie4_5ForCausalLM", "constants": {"use_bias": False}},
    "glm4": {
        "model": "Glm4ForCausalLM",
        "layer": {
            "post_attention_norm.weight": "post_self_attn_layernorm.weight",
            "ffn_norm.weight": "post_attention_layernorm.weight",
            "post_ffw_norm.weight": "post_mlp_layernorm.weight",
            "ffn_up.weight": "mlp.gate_up_proj.weight",
        },
        "constants": {"attention_bias": True, "pad_token_id": 0, "eos_token_id": 0},
        "partial": True,  # only a part of each head turns
    },
    "mistral3": {"model": "Ministral3ForCausalLM", "adjacent": True},
    "phi3": {
        "model": "Phi3ForCausalLM",
        "layer": {
            "attn_qkv.weight": "self_attn.qkv_proj.weight",
            "ffn_up.weight": "mlp.gate_up_proj.weight",
        },
        "arguments": {
            "original_max_position_embeddings": "rope.scaling.original_context_length",
        },
        "constants": {"pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0},
    },
    "smollm3": {
        "model": "SmolLM3ForCausalLM",
        "adjacent": True,
        "constants": {"no_rope_layer_interval": 4, "pad_token_id": 0},
    },
    "gpt-oss": {
        "model": "GptOssForCausalLM",
        "layer": {
            "attn_sinks.weight": "self_attn.sinks",
            "post_attention_norm.weight": "post_attention_layernorm.weight",
            "ffn_gate_inp.weight": "mlp.router.weight",
            "ffn_gate_inp.bias": "mlp.router.bias",
            "ffn_gate_up_exps.bias": "mlp.experts.gate_up_proj_bias",
            "ffn_down_exps.bias": "mlp.experts.down_proj_bias",
        },
        "pairs": True,  # gates and ups of experts alternate, and matrices have columns first
        "arguments": {
            "num_local_experts": "expert_count",
            "num_experts_per_tok": "expert_used_count",
            "sliding_window": "attention.sliding_window",
        },
        "period": 2,
    },
    "gemma4": {
        "model": "Gemma4ForCausalLM",
        "gemma4": True,
        "layer": POST_NORMS
        | {
            "inp_gate.weight": "per_layer_input_gate.weight",
            "proj.weight": "per_layer_projection.weight",
            "post_norm.weight": "post_per_layer_input_norm.weight",
            "layer_output_scale.weight": "layer_scalar",
            "ffn_gate_inp.weight": "router.proj.weight",
            "ffn_gate_inp.scale": "router.scale",
            "ffn_down_exps.scale": "router.per_expert_scale",
            "ffn_gate_up_exps.weight": "experts.gate_up_proj",
            "ffn_down_exps.weight": "experts.down_proj",
            "post_ffw_norm_1.weight": "post_feedforward_layernorm_1.weight",
            "post_ffw_norm_2.weight": "post_feedforward_layernorm_2.weight",
            "pre_ffw_norm_2.weight": "pre_feedforward_layernorm_2.weight",
        },
        "outside": {
            "per_layer_token_embd.weight": "model.embed_tokens_per_layer.weight",
            "per_layer_model_proj.weight": "model.per_layer_model_projection.weight",
            "per_layer_proj_norm.weight": "model.per_layer_projection_norm.weight",
        },
        "arguments": {"sliding_window": "attention.sliding_window"},
        "optional": {"final_logit_softcapping": "final_logit_softcapping"},
    },
    "gemma3": GEMMA | {"model": "Gemma3ForCausalLM", "period": 6, "local_base": 10000.0},
    "qwen35": {
        "model": "Qwen3_5ForCausalLM",
        "one_plus": True,
        "delta": True,
        "layer": DELTA,
        "arguments": DELTA_ARGUMENTS,
    },
    "qwen35moe": {
        "model": "Qwen3_5MoeForCausalLM",
        "one_plus": True,
        "delta": True,
        "layer": DELTA | SHARED_EXPERT,
        "arguments": DELTA_ARGUMENTS
        | EXPERT_ARGUMENTS
        | {"shared_expert_intermediate_size": "expert_shared_feed_forward_length"},
    },
    "qwen3next": {
        "model": "Qwen3NextForCausalLM",
        "one_plus": True,
        "delta": True,
        "layer": DELTA
        | SHARED_EXPERT
        | {
            "ssm_qkvz.weight": "linear_attn.in_proj_qkvz.weight",
            "ssm_ba.weight": "linear_attn.in_proj_ba.weight",
        },
        "arguments": DELTA_ARGUMENTS
        | EXPERT_ARGUMENTS
        | {"shared_expert_intermediate_size": "expert_shared_feed_forward_length"},
        "constants": {"norm_topk_prob": True},
        "grouped": True,  # heads of values are in the order of their key heads already
    },
    "seed_oss": {
        "model": "SeedOssForCausalLM",
        "layer": {"post_attention_norm.weight": "post_attention_layernorm.weight"},
        "constants": {"attention_bias": True, "attention_out_bias": False, "pad_token_id": 0},
    },
    "hunyuan-dense": {
        "model": "HunYuanDenseV1ForCausalLM",
        "layer": {
            "attn_q_norm.weight": "self_attn.query_layernorm.weight",
            "attn_k_norm.weight": "self_attn.key_layernorm.weight",
        },
    },
    "maincoder": {
        "model": "HunYuanDenseV1ForCausalLM",
        "adjacent": True,
        "layer": {
            "attn_q_norm.weight": "self_attn.query_layernorm.weight",
            "attn_k_norm.weight": "self_attn.key_layernorm.weight",
        },
        "reshape": halves_of_norms,
    },
    "qwen": {
        "model": "Qwen2ForCausalLM",
        "reshape": split_heads,
        "more": lambda hp: {"intermediate_size": hp("feed_forward_length") // 2},
    },
    "qwen2": {"model": "Qwen2ForCausalLM"},
    "qwen2moe": {
        "model": "Qwen2MoeForCausalLM",
        "layer": SHARED_EXPERT,
        "arguments": EXPERT_ARGUMENTS
        | {"shared_expert_intermediate_size": "expert_shared_feed_forward_length"},
        "constants": {"norm_topk_prob": False},
    },
    "apertus": {
        "model": "ApertusForCausalLM",
        "layer": {
            "attn_norm.weight": "attention_layernorm.weight",
            "ffn_norm.weight": "feedforward_layernorm.weight",
        },
        "xielu": True,
    },
    # The numbers of the largest layer count.
    "deci": {
        "model": "LlamaForCausalLM",
        "adjacent": True,
        "largest": True,
        "reshape": like_the_largest,
    },
    "deepseek": UNGATED_SHARED_EXPERT,
    "bailingmoe": UNGATED_SHARED_EXPERT,
    "qwen3": {"model": "Qwen3ForCausalLM"},
    "qwen3moe": {
        "model": "Qwen3MoeForCausalLM",
        "arguments": EXPERT_ARGUMENTS,
        "constants": {"norm_topk_prob": True},
    },
}
FAMILIES |= state_families.FAMILIES


class Model:
    """One model, with the methods of reference.Llama that make goldens."""

    def __init__(self, path):
        (part,) = reference.open_parts(path)
        self.keys = {name: field.contents() for name, field in part.fields.items()}
        self.architecture = self.keys["general.architecture"]
        weights = {}
        for tensor in part.tensors:
            shape = tuple(int(n) for n in tensor.shape[::-1])
            name = reference.TYPE_NAMES[int(tensor.tensor_type)]
            weights[tensor.name] = reference.decode(name, tensor.data.tobytes(), shape)
        family = FAMILIES[self.architecture]
        self.windowed = "windowed" in family and self.hp("attention.sliding_window", None)
        sigmoid = self.hp("expert_gating_func", 1) == 2 and "sigmoid_model" in family
        kind = "windowed" if self.windowed else "sigmoid_model" if sigmoid else "model"
        model_class = getattr(transformers, family[kind])
        config = model_class.config_class(**self.arguments(family, weights))
        config._attn_implementation = config._experts_implementation = "eager"
        self.model = model_class(config).double().eval()
        for module in self.model.modules():  # some of its norms have an epsilon of their own
            if hasattr(module, "variance_epsilon"):
                module.variance_epsilon = getattr(config, family.get("eps", "rms_norm_eps"))
        theirs = self.their_weights(weights)
        self.head = theirs.pop("lm_head.weight") if "text" in family else None
        if "text" in family:  # the part of a model that has no head
            theirs = {name.removeprefix("model."): value for name, value in theirs.items()}
        # A bias that the file lacks adds nothing; each tensor that it has must have its place.
        for name, value in self.model.state_dict().items():
            if name.rpartition(".")[2].endswith("bias"):
                theirs.setdefault(name, torch.zeros_like(value))
        self.model.load_state_dict(theirs, strict=True)

    def hp(self, key, *default):
        name = f"{self.architecture}.{key}"
        value = self.keys.get(name, *default) if default else self.keys[name]
        largest = "largest" in FAMILIES[self.architecture] and isinstance(value, list)
        return max(value) if largest else value

    def arguments(self, family, weights):
        named = ARGUMENTS | family.get("arguments", {})
        head_dim = self.hp("embedding_length") // self.hp("attention.head_count")
        constants = family.get("constants", {})
        optional = {k: self.hp(v, None) for k, v in family.get("optional", {}).items()}
        head_dim = self.hp("attention.key_length", head_dim)
        scale = self.hp("attention.scale", head_dim**-0.5)
        layers = self.layer_types(family)
        eps = "attention.layer_norm_epsilon" if "eps" in family else "attention.layer_norm_rms_epsilon"
        constants = constants | {family.get("eps", "rms_norm_eps"): self.hp(eps)}
        told = family.get("by_tensors", {})
        constants |= {theirs: tell(weights) for theirs, tell in told.items()}
        if "windowed" in family:
            optional |= layers | {"sliding_window": self.windowed}
        if "one_plus" in family and "delta" not in family:
            layers["query_pre_attn_scalar"] = round(scale**-2)
        return constants | {theirs: self.hp(ours) for theirs, ours in named.items()} | {
            "vocab_size": len(weights["token_embd.weight"]),
            "tie_word_embeddings": "output.weight" not in weights,
            "intermediate_size": self.hp("feed_forward_length"),
            "head_dim": head_dim,
            "rope_parameters": self.rope(family) | self.long_rope(weights),
        } | optional | self.gemma4(family, weights) | (
            layers if "period" in family or "delta" in family else {}
        ) | family.get("more", lambda hp: {})(self.hp)

    def gemma4(self, family, weights):
        """What Gemma 4 has besides: its layers differ in heads and widths."""
        if "gemma4" not in family:
            return {}
        slides = self.hp("attention.sliding_window_pattern")
        n_kv = self.hp("attention.head_count_kv")
        n_kv = n_kv if isinstance(n_kv, list) else [n_kv] * len(slides)
        widths = self.hp("feed_forward_length")
        turning = int((weights.pop("rope_freqs.weight") < 2).sum())
        full = {
            "rope_type": "proportional",
            "rope_theta": self.hp("rope.freq_base"),
            "partial_rotary_factor": 2 * turning / self.hp("attention.key_length"),
        }
        sliding = {"rope_type": "default", "rope_theta": self.hp("rope.freq_base_swa")}
        n_experts = self.hp("expert_count", 0)
        return {
            "rope_parameters": {"full_attention": full, "sliding_attention": sliding},
            "layer_types": ["sliding_attention" if s else "full_attention" for s in slides],
            "num_key_value_heads": n_kv[slides.index(True)],
            "num_global_key_value_heads": n_kv[slides.index(False)],
            "attention_k_eq_v": bool(n_experts),
            "head_dim": self.hp("attention.key_length_swa"),
            "global_head_dim": self.hp("attention.key_length"),
            "intermediate_size": widths[0] if isinstance(widths, list) else widths,
            "use_double_wide_mlp": isinstance(widths, list),
            "num_kv_shared_layers": self.hp("attention.shared_kv_layers", 0),
            "hidden_size_per_layer_input": self.hp("embedding_length_per_layer_input", 0),
            "vocab_size_per_layer_input": len(weights["token_embd.weight"]),
            "enable_moe_block": n_experts > 0,
            "num_experts": n_experts or None,
            "top_k_experts": self.hp("expert_used_count", None),
            "moe_intermediate_size": self.hp("expert_feed_forward_length", None),
        }

    def is_unused(self, name):
        """Keys and values of layers that read the cache of another."""
        n_own = self.hp("block_count") - self.hp("attention.shared_kv_layers", 0)
        unused = ("attn_k.", "attn_v.", "attn_k_norm.")
        parts = (name + "..").split(".", 2)
        return name.startswith("blk.") and int(parts[1]) >= n_own and parts[2].startswith(unused)

    def long_rope(self, weights):
        factors = {
            kind + "_factor": weights.pop(f"rope_factors_{kind}.weight", np.zeros(0)).tolist()
            for kind in ("long", "short")
        }
        if not factors["long_factor"]:
            return {}
        original = self.hp("rope.scaling.original_context_length")
        head_dim = self.hp("embedding_length") // self.hp("attention.head_count")
        part = self.hp("rope.dimension_count") / head_dim
        return factors | {
            "rope_type": "longrope",
            "original_max_position_embeddings": original,
            "partial_rotary_factor": part,
        }

    def layer_types(self, family):
        n_layers = self.hp("block_count")
        if "gemma4" in family:
            return {}
        if "delta" in family:
            recurrent = [(i + 1) % 4 > 0 for i in range(n_layers)]
            recurrent = self.hp("attention.recurrent_layers", recurrent)
            kinds = ["full_attention", "linear_attention"]
            return {"layer_types": [kinds[bool(flag)] for flag in recurrent]}
        period = self.hp("attention.sliding_window_pattern", family.get("period", 1))
        if isinstance(period, list):
            return {"layer_types": ["sliding_attention" if s else "full_attention" for s in period]}
        kinds = ["full_attention", "sliding_attention"]
        wide = 0 if "first_sees_all" in family else period - 1
        return {"layer_types": [kinds[i % period != wide] for i in range(n_layers)]}

    def rope(self, family):
        rope = {"rope_type": "default", "rope_theta": self.hp("rope.freq_base", 10000.0)}
        if "partial" in family:
            head_dim = self.hp("embedding_length") // self.hp("attention.head_count")
            part = self.hp("rope.dimension_count") / self.hp("attention.key_length", head_dim)
            rope["partial_rotary_factor"] = part
        if "mrope" in family:
            rope["mrope_section"] = self.hp("rope.dimension_sections")[:3]
        local = dict(rope)
        if "delta" in family:
            part = self.hp("rope.dimension_count") / self.hp("attention.key_length", 16)
            rope |= {"partial_rotary_factor": part, "mrope_section": [1, 1, 1]}
        if self.hp("rope.scaling.type", None) == "linear":
            rope |= {"rope_type": "linear", "factor": self.hp("rope.scaling.factor")}
        if self.hp("rope.scaling.type", None) == "yarn":
            original = self.hp("rope.scaling.original_context_length")
            rope |= {"rope_type": "yarn", "factor": self.hp("rope.scaling.factor")}
            rope |= {"original_max_position_embeddings": original, "truncate": True}
            multiplier = self.hp("rope.scaling.yarn_log_multiplier", None)
            if multiplier:
                rope |= {"mscale": 1.0, "mscale_all_dim": multiplier}
            if multiplier and "attn_kv" in str(family.get("layer")):
                rope |= {"mscale": 10 * multiplier, "mscale_all_dim": 10 * multiplier}
            temperature = self.hp("attention.temperature_scale", None)
            if temperature:
                rope["llama_4_scaling_beta"] = temperature
        if "unscaled" in family and self.windowed:
            local["rope_theta"] = self.hp("rope.freq_base_swa", rope["rope_theta"])
            ropes = {"full_attention": rope, "sliding_attention": local}
            for kind, key in family.get("parts", {}).items():  # how much of each head turns
                part = self.hp(key) / self.hp("attention.key_length")
                ropes[kind]["partial_rotary_factor"] = part
            return ropes
        if "local_base" not in family:
            return rope
        local["rope_theta"] = self.hp("rope.freq_base_swa", family["local_base"])
        return {"full_attention": rope, "sliding_attention": local}

    def their_weights(self, weights):
        out, family = {}, FAMILIES[self.architecture]
        # transformers keeps the gates and ups of experts in one tensor, the gates first.
        for name in [name for name in weights if "ffn_gate_exps." in name]:
            up = name.replace("ffn_gate", "ffn_up")
            both = [weights.pop(name), weights.pop(up)]
            pairs = np.stack(both, axis=2).reshape(len(both[0]), -1, *both[0].shape[2:])
            joined = pairs if "pairs" in family else np.concatenate(both, axis=1)
            weights[name.replace("ffn_gate", "ffn_gate_up")] = joined
        for name in [name for name in weights if "ffn_gate_shexp." in name]:
            if "ffn_gate_up_shexp.weight" in family.get("layer", {}):
                both = [weights.pop(name), weights.pop(name.replace("ffn_gate", "ffn_up"))]
                weights[name.replace("ffn_gate", "ffn_gate_up")] = np.concatenate(both)
        for name in [name for name in weights if name.endswith("_exps.weight")]:
            if "pairs" in family:
                weights[name] = np.ascontiguousarray(weights[name].transpose(0, 2, 1))
        if "reshape" in family:
            weights = family["reshape"](self.hp, weights)
        if "delta" in family:
            joins = "grouped" in family
            weights = self.by_key_head(weights) if joins else self.grouped(weights)
        for name, value in weights.items():
            if self.is_unused(name):
                continue
            value = torch.from_numpy(value).double()
            heads = {"attn_q.": "", "attn_k.": "_kv"}.get((name + "...").split(".", 2)[2][:7])
            if heads is not None and "adjacent" in family:
                value = self.halves(value, self.n_heads(heads))
            is_norm = "norm" in name and name.endswith(".weight") and "ssm_" not in name
            if is_norm and family.get("one_plus"):
                value = value - 1
            if not name.startswith("blk."):
                out[(OUTSIDE | family.get("outside", {}))[name]] = value
                continue
            _, layer, rest = name.split(".", 2)
            part, _, more = rest.partition(".")
            head = more.partition(".")[0]
            if head.isdigit():  # the norm of a head
                theirs = f"self_attn.{part[5]}_layernorm.norms.{head}.weight"
                out[f"model.layers.{layer}.{theirs}"] = value
                continue
            names = LAYER | EXPERTS | family.get("layer", {})
            out[f"model.layers.{layer}.{names[rest]}"] = value
        for name in ("alpha_p", "alpha_n", "beta", "eps") if "xielu" in family else ():
            for layer, value in enumerate(self.keys["xielu." + name]):
                shape = (1,) * name.startswith("alpha")
                tensor = torch.tensor(value, dtype=torch.float64).reshape(shape)
                out[f"model.layers.{layer}.mlp.act_fn.{name}"] = tensor
        if "lm_head.weight" not in out:
            out["lm_head.weight"] = out["model.embed_tokens.weight"]
        return out

    def grouped(self, weights):
        """Delta nets with the heads of values in the order of the key heads that they share."""
        n_keys, n = self.hp("ssm.group_count"), self.hp("ssm.time_step_rank")
        size = self.hp("ssm.state_size")

        def reorder(value, width, axis=0):
            shape = list(value.shape)
            tiles = value.reshape(shape[:axis] + [n // n_keys, n_keys, width] + shape[axis + 1 :])
            return np.ascontiguousarray(np.swapaxes(tiles, axis, axis + 1)).reshape(shape)

        out = dict(weights)
        for name, value in weights.items():
            short = name.split(".", 2)[-1]
            if short in ("attn_qkv.weight", "ssm_conv1d.weight"):
                keys, values = np.split(value, [2 * n_keys * size])
                out[name] = np.concatenate([keys, reorder(values, size)])
            if short == "ssm_conv1d.weight":
                out[name] = out[name][:, None, :]
            if short == "attn_gate.weight":
                out[name] = reorder(value, size)
            if short in ("ssm_alpha.weight", "ssm_beta.weight", "ssm_dt.bias"):
                out[name] = reorder(value, 1)
            if short == "ssm_a":
                out[name] = reorder(np.log(-value), 1)
            if short == "ssm_out.weight":
                out[name] = reorder(value, size, 1)
        return out

    def by_key_head(self, weights):
        """Delta nets with queries, keys, values and gates in one tensor, by key head."""
        n_keys, out = self.hp("ssm.group_count"), {}
        width = n_keys * self.hp("ssm.state_size")
        for name, value in weights.items():
            if name.endswith("attn_qkv.weight"):
                gate = weights[name.replace("attn_qkv", "attn_gate")]
                parts = [*np.split(value, [width, 2 * width]), gate]
                parts = [part.reshape(n_keys, -1, value.shape[1]) for part in parts]
                joined = np.concatenate(parts, axis=1).reshape(-1, value.shape[1])
                out[name.replace("attn_qkv", "ssm_qkvz")] = joined
            elif name.endswith("ssm_in.weight"):
                out[name.replace("ssm_in", "ssm_qkvz")] = value
            elif name.endswith("ssm_conv1d.weight"):
                out[name] = value[:, None, :]
            elif name.endswith("ssm_a"):
                out[name] = np.log(-value)
            elif not name.endswith("attn_gate.weight"):
                out[name] = value
        return out

    def n_heads(self, kind):
        """Of queries, or of keys ("_kv") in layers that have any."""
        n = self.hp("attention.head_count" + kind)
        return max(n) if isinstance(n, list) else n

    def halves(self, value, n_heads):
        """The rows of each head in the order in which its halves turn, not neighbours."""
        pairs = value.reshape(n_heads, -1, 2, *value.shape[1:])
        return pairs.transpose(1, 2).reshape(value.shape)

    def logits(self, tokens):
        """[n_tokens, n_vocab]"""
        with torch.no_grad():
            made = self.model(torch.tensor([tokens]))
            if self.head is not None:
                return (made.last_hidden_state[0] @ self.head.T).numpy()
            return made.logits[0].double().numpy()


def print_perplexity(path, ids, window):
    """Of a whole model, of the tokens that `tandem tokenize --ids` printed; see README.md."""
    with open(ids, encoding="ascii") as file:
        tokens = json.load(file)
    nats = reference.score_windows(Model(path), tokens, window)
    print(f"window {window}\ntokens {len(tokens)}\nscored {len(nats)}")
    print(f"mean_nats {nats.mean():.6f}\nperplexity {np.exp(nats.mean()):.5f}")


if __name__ == "__main__":
    print_perplexity(sys.argv[1], sys.argv[2], int(sys.argv[3]))
