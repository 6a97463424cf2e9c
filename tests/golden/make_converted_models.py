"""make_converted_models.py: writes tiny/converted_NAME.gguf, random models that llama.cpp's own
convert_hf_to_gguf.py made of Hugging Face checkpoints, with the float64 logits of prompt.txt in
tiny/converted_NAME.bin and its token ids in tiny/converted_NAME.ids.txt.

The checkpoint is written by transformers, in the type of the GGUF file, so that nothing is rounded
on the way; the logits are those of the same checkpoint in float64, and the ids those of the tokenizer
that lies beside it. So the judge never sees the GGUF file, and a key, a permutation or a tensor that
the converter writes otherwise than tandem reads shows. Needs numpy, torch, transformers, tokenizers,
sentencepiece and a source tree of llama.cpp. The files are the same in every run on
one machine (README.md).

    make_converted_models.py LLAMA_CPP [NAME...]     makes these, or all
"""

import json
import os
import subprocess
import sys
import tempfile
import zlib

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from sentencepiece import SentencePieceProcessor
from sentencepiece import sentencepiece_model_pb2 as sp_model
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

import make_tiny_models as tiny
import reference

# The converter takes as the name of a pre-tokenizer the sum of the ids of a text, which no
# tiny vocabulary has; so the name is given to it, and the rest is its own.
CONVERT = """
import sys
sys.path.insert(0, sys.argv[1])
sys.argv = [sys.argv[1] + "/convert_hf_to_gguf.py"] + sys.argv[2:]
name = sys.argv.pop()
import convert_hf_to_gguf
from conversion.base import TextModel
TextModel.get_vocab_base_pre = lambda self, tokenizer: name
convert_hf_to_gguf.main()
"""
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace("{1,3}", "")
QWEN35 = QWEN2.replace(r"\p{L}+", r"[\p{L}\p{M}]+").replace(r"[^\s\p{L}\p{N}]", r"[^\s\p{L}\p{M}\p{N}]")
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve"
    r"|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:"
    r"'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# --- Tokenizers: each writes its files to a folder and returns the ids of the prompt, the number of
# tokens, and the ids of BOS and EOS.


def byte_level(pattern, normalizer=None):
    def write(folder):
        merges = [tuple(merge.split(" ")) for merge in tiny.BPE_MERGES]
        pieces = tiny.byte_characters() + ["".join(m) for m in merges]
        vocab = {piece: i for i, piece in enumerate(pieces)}
        tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
        tokenizer.normalizer = normalizer
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pattern), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.add_special_tokens(["<|end|>", "<|user|>"])
        fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>")
        fast.save_pretrained(folder)
        return tokenizer.encode(tiny.PROMPT).ids, len(pieces) + 2, None, len(pieces)

    return write


def characters(folder):
    """As Gemma 4 does: BPE of characters, with bytes for those that have no token."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    letters = list("▁abcdefghijklmnoprstuvw.,7\n")
    merges = [tuple(m.replace("Ġ", "▁").split(" ")) for m in tiny.BPE_MERGES]
    pieces = special + [f"<0x{b:02X}>" for b in range(256)] + letters + ["".join(m) for m in merges]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: i for i, piece in enumerate(pieces)},
            merges=merges,
            byte_fallback=True,
            unk_token="<unk>",
            fuse_unk=True,
        )
    )
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    tokenizer.add_special_tokens(special)
    tokenizer.save(os.path.join(folder, "tokenizer.json"))
    config = {"tokenizer_class": "GemmaTokenizer", "add_bos_token": True}
    names = dict(zip(("pad_token", "eos_token", "bos_token", "unk_token", "mask_token"), special))
    with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as out:
        json.dump(config | names, out)
    return [2] + tokenizer.encode(tiny.PROMPT).ids, len(pieces), 2, 1


def sentence_piece(prefix):
    def write(folder):
        keys, _ = tiny.spm_vocabulary()
        proto = sp_model.ModelProto()
        for piece, score, kind in zip(
            *(keys["tokenizer.ggml." + k] for k in ("tokens", "scores", "token_type"))
        ):
            proto.pieces.add(piece=piece, score=score, type=kind)
        proto.trainer_spec.model_type = sp_model.TrainerSpec.BPE
        proto.trainer_spec.byte_fallback = True
        proto.trainer_spec.vocab_size = len(proto.pieces)
        proto.normalizer_spec.name = "identity"
        proto.normalizer_spec.add_dummy_prefix = prefix
        proto.normalizer_spec.remove_extra_whitespaces = False
        raw = proto.SerializeToString()
        with open(os.path.join(folder, "tokenizer.model"), "wb") as out:
            out.write(raw)
        with open(os.path.join(folder, "tokenizer_config.json"), "w", encoding="utf-8") as out:
            json.dump({"tokenizer_class": "LlamaTokenizer", "add_bos_token": True}, out)
        ids = SentencePieceProcessor(model_proto=raw).encode(tiny.PROMPT)
        return [1] + ids, len(proto.pieces), 1, 2

    return write


# --- The models

# The least of each kind: 32 wide, four heads of 16.
SMALL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
DELTA = {
    "num_hidden_layers": 4,
    "hidden_size": 32,
    "intermediate_size": 32,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 16,
    "linear_value_head_dim": 16,
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
}
PERIODIC = {"sliding_window": 5, "num_hidden_layers": 3}
WINDOW, FULL = "sliding_attention", "full_attention"

MODELS = {
    # Rotary positions turn neighbours in the file and halves in the checkpoint, and factors of
    # frequencies are written.
    "llama": {
        "class": "LlamaForCausalLM",
        "arguments": {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 5e5,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            }
        },
        "type": "f16",
        "tokenizer": sentence_piece(True),
    },
    "qwen3moe": {
        "class": "Qwen3MoeForCausalLM",
        "arguments": EXPERTS
        | {"norm_topk_prob": True, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
        "type": "bf16",
        "tokenizer": byte_level(QWEN2, normalizers.NFC()),
        "pre": "qwen2",
    },
    # Experts as MXFP4, as they are published.
    "gpt_oss": {
        "class": "GptOssForCausalLM",
        "arguments": PERIODIC
        | {
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "intermediate_size": 32,
            "layer_types": [WINDOW, FULL, WINDOW],
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 150000.0,
                "factor": 32.0,
                "beta_fast": 32.0,
                "beta_slow": 1.0,
                "truncate": True,  # not as published: no key says so, and llama.cpp truncates
                "original_max_position_embeddings": 128,
            },
        },
        "type": "bf16",
        "tokenizer": byte_level(O200K),
        "pre": "gpt-4o",
        "mxfp4": True,
    },
    "gemma3": {
        "class": "Gemma3ForCausalLM",
        "arguments": PERIODIC
        | {
            "num_hidden_layers": 7,
            "tie_word_embeddings": True,
            "query_pre_attn_scalar": 16,
            "layer_types": [WINDOW] * 5 + [FULL, WINDOW],
            "rope_parameters": {
                FULL: {"rope_type": "default", "rope_theta": 1e6},
                WINDOW: {"rope_type": "default", "rope_theta": 1e4},
            },
        },
        "type": "bf16",
        "tokenizer": sentence_piece(False),
    },
    # The last two layers read the caches of others and are twice as wide.
    "gemma4": {
        "class": "Gemma4ForCausalLM",
        "arguments": PERIODIC
        | {
            "num_hidden_layers": 5,
            "num_key_value_heads": 1,
            "global_head_dim": 32,
            "hidden_size_per_layer_input": 16,
            "num_kv_shared_layers": 2,
            "use_double_wide_mlp": True,
            "final_logit_softcapping": 6.0,
            "tie_word_embeddings": True,
            "layer_types": [WINDOW, WINDOW, FULL, WINDOW, FULL],
            "rope_parameters": {
                FULL: {
                    "rope_type": "proportional",
                    "rope_theta": 1e6,
                    "partial_rotary_factor": 0.25,
                },
                WINDOW: {"rope_type": "default", "rope_theta": 1e4},
            },
        },
        "type": "f16",
        "tokenizer": characters,
        "rows": ["vocab_size_per_layer_input"],
    },
    # Heads of values change places; a layer that only drafts tokens is in the file and not run.
    "qwen35": {
        "class": "Qwen3_5ForCausalLM",
        "arguments": DELTA
        | {
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e7,
                "partial_rotary_factor": 0.5,
                "mrope_section": [2, 1, 1],
                "mrope_interleaved": True,
            }
        },
        "type": "bf16",
        "tokenizer": byte_level(QWEN35, normalizers.NFC()),
        "pre": "qwen35",
        "drafts": True,
    },
    "qwen3next": {
        "class": "Qwen3NextForCausalLM",
        "arguments": DELTA
        | EXPERTS
        | {
            "norm_topk_prob": True,
            "shared_expert_intermediate_size": 32,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 1e7,
                "partial_rotary_factor": 0.25,
            },
        },
        "type": "bf16",
        "tokenizer": byte_level(QWEN2, normalizers.NFC()),
        "pre": "qwen2",
        "options": ["--no-mtp"],
    },
    # Keys and values come from latent vectors, whose matrix the converter cuts in two.
    "deepseek2": {
        "class": "DeepseekV3ForCausalLM",
        "arguments": {
            "num_hidden_layers": 3,
            "num_key_value_heads": 4,
            "head_dim": 8,
            "q_lora_rank": 32,
            "kv_lora_rank": 32,
            "qk_nope_head_dim": 16,
            "qk_rope_head_dim": 8,
            "v_head_dim": 16,
            "first_k_dense_replace": 1,
            "n_routed_experts": 4,
            "n_shared_experts": 1,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 32,
            "n_group": 2,
            "topk_group": 1,
            "norm_topk_prob": True,
            "routed_scaling_factor": 2.5,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
        },
        "type": "bf16",
        "tokenizer": byte_level(LLAMA3),
        "pre": "dbrx",
        "published": {"scoring_func": "sigmoid"},  # which transformers does not know
    },
    "cohere2": {
        "class": "Cohere2ForCausalLM",
        "arguments": PERIODIC
        | {
            "num_hidden_layers": 4,
            "layer_norm_eps": 1e-5,
            "num_attention_heads": 2,  # the converter takes a head for 32 / 2 wide
            "num_key_value_heads": 1,
            "logit_scale": 0.25,
            "rotary_pct": 1.0,
            "tie_word_embeddings": True,
            "layer_types": [WINDOW] * 3 + [FULL],
            "rope_parameters": {"rope_type": "default", "rope_theta": 5e4},
        },
        "type": "f16",
        "tokenizer": byte_level(QWEN2),
        "pre": "megrez",
    },
    "lfm2": {
        "class": "Lfm2ForCausalLM",
        "arguments": {
            "num_hidden_layers": 4,
            "conv_L_cache": 3,
            "conv_bias": False,
            "block_auto_adjust_ff_dim": False,
            "norm_eps": 1e-5,
            "tie_word_embeddings": True,
            "layer_types": ["conv", FULL, "conv", FULL],
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        },
        "type": "bf16",
        "tokenizer": byte_level(QWEN2),
        "pre": "megrez",
    },
    "granitehybrid": {
        "class": "GraniteMoeHybridForCausalLM",
        "arguments": {
            "num_hidden_layers": 3,
            "layer_types": ["mamba", "attention", "mamba"],
            "mamba_n_heads": 4,
            "mamba_d_head": 16,
            "mamba_d_state": 16,
            "mamba_n_groups": 1,
            "mamba_d_conv": 4,
            "mamba_expand": 2,
            "num_attention_heads": 2,
            "num_key_value_heads": 1,
            "num_local_experts": 4,
            "num_experts_per_tok": 2,
            "intermediate_size": 32,
            "shared_intermediate_size": 32,
            "embedding_multiplier": 12.0,
            "residual_multiplier": 0.22,
            "attention_multiplier": 0.25,
            "logits_scaling": 8.0,
            "tie_word_embeddings": True,
        },
        "type": "bf16",
        "tokenizer": byte_level(LLAMA3),
        "pre": "dbrx",
        "rows_total": 296,  # the converter rounds the vocabulary up to a multiple of 8
        "published": {"layer_types": ["mamba", "attention", "mamba"]},  # transformers renames them
    },
}
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
FP4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0]


def fill(model, rng, kind):
    """Random weights that the type of the file holds exactly; vectors around what they begin with."""
    kept = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    for name in sorted(set(kept) & set(model.state_dict())):
        parameter = kept[name]
        shape = tuple(parameter.shape)
        if parameter.dim() < 2:
            values = parameter.detach().float().numpy() + rng.normal(0, 0.1, shape)
        else:
            values = rng.normal(0, 1.5 / np.sqrt(shape[-1]), shape)
        parameter.data = torch.tensor(values).to(TYPES[kind]).to(torch.float32)


def pack_experts(folder, model, rng):
    """Replaces the experts of the checkpoint and of the model by MXFP4 of random bytes."""
    path = os.path.join(folder, "model.safetensors")
    tensors = load_file(path)
    weights = dict(model.named_parameters())
    for name in sorted(tensors):
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            continue
        n, columns, rows = tensors.pop(name).shape
        blocks = rng.integers(0, 256, (n, rows, columns // 32, 16), dtype=np.uint8)
        scales = rng.integers(122, 125, (n, rows, columns // 32), dtype=np.uint8)
        tensors[name + "_blocks"], tensors[name + "_scales"] = map(torch.tensor, (blocks, scales))
        nibbles = np.stack((blocks & 15, blocks >> 4), -1).reshape(n, rows, columns // 32, 32)
        values = np.array(FP4)[nibbles] * 2.0 ** (scales[..., None].astype(int) - 127)
        values = torch.tensor(values.reshape(n, rows, columns)).transpose(1, 2).contiguous()
        weights[name].data = values.to(weights[name].dtype)
    save_file(tensors, path, {"format": "pt"})
    set_key(folder, "quantization_config", {"quant_method": "mxfp4"})


def add_drafting_layer(folder, n_embd):
    """Adds a layer that predicts the token after the next, which transformers leaves out; it is like
    the last layer with attention."""
    path = os.path.join(folder, "model.safetensors")
    tensors = load_file(path)
    last = "model.layers.3."
    for name in [name for name in tensors if name.startswith(last)]:
        tensors["mtp.layers.0." + name[len(last) :]] = tensors[name].clone()
    norm = tensors["model.norm.weight"]
    for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"):
        tensors[f"mtp.{name}.weight"] = norm.clone()
    tensors["mtp.fc.weight"] = torch.ones((n_embd, 2 * n_embd), dtype=norm.dtype)
    save_file(tensors, path, {"format": "pt"})
    set_key(folder, "mtp_num_hidden_layers", 1)


def set_key(folder, key, value):
    path = os.path.join(folder, "config.json")
    with open(path, encoding="utf-8") as file:
        config = json.load(file)
    config[key] = value
    with open(path, "w", encoding="utf-8") as file:
        json.dump(config, file)


def make(converter, name, spec, folder):
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    torch.manual_seed(zlib.crc32(name.encode()))  # for what transformers begins with
    tokens, n_vocab, bos, eos = spec["tokenizer"](folder)
    n_vocab = spec.get("rows_total", n_vocab)
    model_class = getattr(transformers, spec["class"])
    rows = {key: n_vocab for key in ["vocab_size", *spec.get("rows", [])]}
    ids = {"pad_token_id": None, "bos_token_id": bos, "eos_token_id": eos}
    config = model_class.config_class(**SMALL | spec["arguments"] | rows | ids)
    config._attn_implementation = config._experts_implementation = "eager"
    model = model_class(config).float().eval()
    fill(model, rng, spec["type"])
    config.dtype = TYPES[spec["type"]]
    state = {name: tensor.to(config.dtype) for name, tensor in model.state_dict().items()}
    if config.tie_word_embeddings:
        state.pop("lm_head.weight")
    model.save_pretrained(folder, state_dict=state)
    for key, value in spec.get("published", {}).items():
        set_key(folder, key, value)
    if "mxfp4" in spec:
        pack_experts(folder, model, rng)
    if "drafts" in spec:
        add_drafting_layer(folder, config.hidden_size)
    path = os.path.join(tiny.FOLDER, f"converted_{name}")
    arguments = [converter, folder, "--outtype", spec["type"], "--outfile", path + ".gguf"]
    arguments += [*spec.get("options", []), spec.get("pre", "")]
    command = [sys.executable, "-c", CONVERT, *arguments]
    subprocess.run(command, check=True, capture_output="VERBOSE" not in os.environ)
    with torch.no_grad():
        logits = model.double()(torch.tensor([tokens])).logits[0].numpy()
    reference.write_golden(path + ".bin", tokens, logits, np.arange(n_vocab))
    reference.write_ids(path + ".ids.txt", tokens)
    size = os.path.getsize(path + ".gguf") // 1024
    print(f"{name}: {size} KiB, {len(tokens)} tokens, {n_vocab} rows, deviation {logits.std():.2f}")


if __name__ == "__main__":
    for model_name in sys.argv[2:] or MODELS:
        with tempfile.TemporaryDirectory() as scratch:
            checkpoint = os.path.join(scratch, "checkpoint")  # its name is that of the model
            os.mkdir(checkpoint)
            make(os.path.abspath(sys.argv[1]), model_name, MODELS[model_name], checkpoint)
