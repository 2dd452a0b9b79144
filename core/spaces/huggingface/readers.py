"""Readers: the description of a model, by its type in transformers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from edgefront.core.spaces.huggingface.fields import Fields


def _gpt2(fields: Fields) -> dict[str, Any]:
    width = fields.count("n_embd")
    fields.fixed("scale_attn_weights", True)
    fields.fixed("scale_attn_by_inverse_layer_idx", False)
    fields.fixed("add_cross_attention", False)
    layer = [
        {"kind": "attention", "n_head": fields.count("n_head")},
        {"kind": "feed_forward", "d_inner": fields.count("n_inner", 4 * width)},
    ]
    return {
        "d_model": width,
        "positions": {"kind": "learned", "length": fields.count("n_positions", 1024)},
        "norm_eps": fields.epsilon("layer_norm_epsilon", 1e-5),
        "activation": fields.activation("activation_function", "gelu_new"),
        "embedding": {"vocab_size": fields.count("vocab_size")},
        "blocks": layer * _bounded(fields, "n_layer"),
        "output": {"kind": "tokens", "tied": fields.flag("tie_word_embeddings", True)},
    }


def _opt(fields: Fields) -> dict[str, Any]:
    width = fields.count("hidden_size")
    fields.fixed("enable_bias", True)
    fields.fixed("layer_norm_elementwise_affine", True)
    fields.fixed("_remove_final_layer_norm", False)
    layer = [
        {"kind": "attention", "n_head": fields.count("num_attention_heads")},
        {"kind": "feed_forward", "d_inner": fields.count("ffn_dim")},
    ]
    return {
        "d_model": width,
        "positions": {"kind": "learned", "length": fields.count("max_position_embeddings", 2048), "offset": 2},
        "norm": "pre" if fields.flag("do_layer_norm_before", True) else "post",
        "activation": fields.activation("activation_function", "relu"),
        "embedding": {"vocab_size": fields.count("vocab_size"), "d_embed": fields.count("word_embed_proj_dim", width)},
        "blocks": layer * _bounded(fields, "num_hidden_layers"),
        "output": {"kind": "tokens", "tied": fields.flag("tie_word_embeddings", True)},
    }


def _llama(fields: Fields) -> dict[str, Any]:
    bias = "all" if fields.flag("attention_bias", False) else "none"
    layer = [_attention(fields, bias=bias), _gated(fields, fields.flag("mlp_bias", False))]
    return _rotary_model(fields, layer * _bounded(fields, "num_hidden_layers"), tied=False, eps=1e-6)


def _mistral(fields: Fields) -> dict[str, Any]:
    # Absent it is 4096, null it is none.
    window = fields.count("sliding_window", 4096) if fields.config.get("sliding_window", 0) is not None else None
    layer = [_attention(fields, bias="none", window=window), _gated(fields)]
    return _rotary_model(fields, layer * _bounded(fields, "num_hidden_layers"), tied=False, eps=1e-6)


def _qwen2(fields: Fields) -> dict[str, Any]:
    return _qwen(fields, bias="qkv")


def _qwen3(fields: Fields) -> dict[str, Any]:
    return _qwen(fields, bias="all" if fields.flag("attention_bias", False) else "none", d_head=128, qk_norm=True)


def _qwen(fields: Fields, d_head: int | None = None, **attention: Any) -> dict[str, Any]:
    layers = _bounded(fields, "num_hidden_layers")
    window = fields.count("sliding_window", 4096) if fields.flag("use_sliding_window", False) else None
    first = fields.count("max_window_layers", 28) if fields.config.get("max_window_layers") != 0 else 0
    types = fields.layer_types(
        ("full_attention", "sliding_attention"),
        layers,
        ["full_attention" if window is None or layer < first else "sliding_attention" for layer in range(layers)],
    )
    if window is None and "sliding_attention" in types:
        fields.fault("use_sliding_window", False, "layer_types has sliding_attention", "true, with sliding_window")
    wide = _attention(fields, d_head, **attention)
    feed_forward = _gated(fields)
    narrow = {**wide, "window": window}
    blocks = [part for kind in types for part in (narrow if kind == "sliding_attention" else wide, feed_forward)]
    return _rotary_model(fields, blocks, tied=False, eps=1e-6)


def _lfm2(fields: Fields) -> dict[str, Any]:
    layers = _bounded(fields, "num_hidden_layers")
    attending: Any = fields.get("full_attn_idxs", (list,), "a list", list(range(layers)))
    if len(attending) > layers:
        fields.fault("full_attn_idxs", attending, f"there are {layers} layers", f"at most {layers} entries")
        attending = []
    types = fields.layer_types(
        ("full_attention", "conv"),
        layers,
        ["full_attention" if layer in attending else "conv" for layer in range(layers)],
    )
    name = "block_ff_dim" if fields.config.get("block_ff_dim") is not None else "intermediate_size"
    inner = fields.count(name)
    if fields.flag("block_auto_adjust_ff_dim", True):
        # As its code rounds: of 2/3, times the factor, up to a multiple.
        factor = fields.get("block_ffn_dim_multiplier", (int, float), "a number", 1.0)
        multiple = fields.count("block_multiple_of", 256)
        wide = factor * (2 * inner // 3)
        inner = -(-int(wide) // multiple) * multiple if math.isfinite(wide) else 0
        if inner < 1:
            fields.fault("block_ffn_dim_multiplier", factor, "leaves no inner width", "a positive number")
    parts: dict[str, dict[str, Any]] = {
        "full_attention": _attention(fields, bias="none", qk_norm=True),
        "conv": {
            "kind": "short_conv",
            "kernel": fields.count("conv_L_cache", 3),
            "bias": fields.flag("conv_bias", False),
        },
    }
    feed_forward = {"kind": "feed_forward", "d_inner": inner, "gated": True, "bias": False}
    blocks = [part for kind in types for part in (parts.get(kind, {}), feed_forward)]
    tied = "tie_embedding" if fields.config.get("tie_embedding") is not None else "tie_word_embeddings"
    return _rotary_model(fields, blocks, tied=True, eps=1e-5, theta=1_000_000, names=("norm_eps", tied, None))


READERS: Mapping[str, Callable[[Fields], dict[str, Any]]] = {
    "gpt2": _gpt2,
    "opt": _opt,
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "lfm2": _lfm2,
}


def _bounded(fields: Fields, field: str) -> int:
    """Number of layers; of one that no description can have, 1."""
    layers = fields.count(field)
    if layers > 512:
        fields.fault(field, layers, "a description has at most 512 layers", "1 to 512")
        return 1
    return max(layers, 1)


def _attention(fields: Fields, d_head: int | None = None, **values: Any) -> dict[str, Any]:
    heads = fields.count("num_attention_heads")
    width = fields.count("head_dim", d_head)  # type: ignore[arg-type]
    return {
        "kind": "attention",
        "n_head": heads,
        "n_kv_head": fields.count("num_key_value_heads", heads),
        **({} if width is None else {"d_head": width}),
        **values,
    }


def _gated(fields: Fields, bias: bool = False) -> dict[str, Any]:
    return {"kind": "feed_forward", "d_inner": fields.count("intermediate_size"), "gated": True, "bias": bias}


def _rotary_model(
    fields: Fields,
    blocks: list[dict[str, Any]],
    *,
    tied: bool,
    eps: float,
    theta: int = 10_000,
    names: tuple[str, str, str | None] = ("rms_norm_eps", "tie_word_embeddings", "hidden_act"),
) -> dict[str, Any]:
    """`names`: of the fields of epsilon, tied output, and activation, silu where it has none."""
    epsilon, tie, activation = names
    return {
        "d_model": fields.count("hidden_size"),
        "positions": fields.rotary(theta),
        "norm_kind": "rms",
        "norm_eps": fields.epsilon(epsilon, eps),
        "activation": "silu" if activation is None else fields.activation(activation, "silu"),
        "embedding": {"vocab_size": fields.count("vocab_size")},
        "blocks": blocks,
        "output": {"kind": "tokens", "tied": fields.flag(tie, tied)},
    }
