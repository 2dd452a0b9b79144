"""Small random models of transformers, by type, and what ours scores with their weights."""

from __future__ import annotations

from typing import Any

import torch
from foreign_models import randomised, transformers
from tiny_models import as_tensors

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import load


def small(kind: str) -> Any:
    """A random model of transformers, of a small configuration by its own class."""
    common = {
        "vocab_size": 89, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2,
    }  # fmt: skip
    special: dict[str, dict[str, Any]] = {
        "llama": {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}},
        "mistral": {"sliding_window": 5},
        "qwen2": {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
        "qwen3": {"head_dim": 10, "tie_word_embeddings": True},
        "lfm2": {"full_attn_idxs": [1], "block_multiple_of": 20, "pad_token_id": None},
    }
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    if kind == "opt":
        config = transformers.OPTConfig(
            vocab_size=89, hidden_size=32, ffn_dim=48, num_hidden_layers=2, num_attention_heads=4,
            max_position_embeddings=40, word_embed_proj_dim=20, pad_token_id=1, **ends,
        )  # fmt: skip
    elif kind == "gpt2":
        config = transformers.GPT2Config(vocab_size=89, n_embd=32, n_head=4, n_layer=2, n_positions=40, **ends)
    else:
        config = transformers.AutoConfig.for_model(kind, **common, **special[kind], **ends)
    return randomised(transformers.AutoModelForCausalLM.from_config(config), "float32")


def our_logits(model: Architecture, weights: Any, tokens: Any) -> Any:
    with torch.inference_mode():
        return load(LanguageModel(model), as_tensors(weights)).eval()(torch.from_numpy(tokens)).numpy()
