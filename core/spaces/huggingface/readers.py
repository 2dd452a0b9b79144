"""Readers: the description of a model, by its type in transformers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from edgefront.core.spaces.architecture import MAX_LAYER_PAIRS
from edgefront.core.spaces.block import MAX_WIDTH
from edgefront.core.spaces.huggingface.fields import REQUIRED, Fields
from edgefront.core.spaces.numbers import as_number


def _gpt2(fields: Fields) -> dict[str, Any]:
    # transformers takes the names of other types, too.
    width = fields.count(fields.either("n_embd", "hidden_size"))
    fields.fixed("scale_attn_weights", True)
    fields.fixed("scale_attn_by_inverse_layer_idx", False)
    length = fields.count(fields.either("n_positions", "max_position_embeddings"), 1024)
    fields.fixed("n_ctx", length, f"n_positions says {length}")
    layer = [
        {"kind": "attention", "n_head": fields.count(fields.either("n_head", "num_attention_heads"))},
        {"kind": "feed_forward", "d_inner": fields.count("n_inner", 4 * width)},
    ]
    return {
        "d_model": width,
        "positions": {"kind": "learned", "length": length},
        "norm_eps": fields.epsilon("layer_norm_epsilon", 1e-5),
        "activation": fields.activation("activation_function", "gelu_new"),
        "embedding": {"vocab_size": fields.count("vocab_size")},
        "blocks": layer * _bounded(fields, fields.either("n_layer", "num_hidden_layers")),
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
    fields.fixed("rope_interleaved", False)
    fields.fixed("activation", "swiglu")  # Falcon 3
    layer = [_attention(fields, bias=bias), _gated(fields, fields.flag("mlp_bias", False))]
    return _rotary_model(fields, layer * _bounded(fields, "num_hidden_layers"), tied=False, context=2048)


def _granite(fields: Fields) -> dict[str, Any]:
    bias = "all" if fields.flag("attention_bias", False) else "none"
    scale = as_number(fields.positive("attention_multiplier", 1.0))
    layer = [_attention(fields, bias=bias, scale=scale), _gated(fields, fields.flag("mlp_bias", False))]
    model = _rotary_model(fields, layer * _bounded(fields, "num_hidden_layers"), tied=False, context=2048)
    return {
        **model,
        "embedding": {
            **model["embedding"],
            "multiplier": as_number(fields.positive("embedding_multiplier", 1.0)),
        },
        "residual_multiplier": as_number(fields.positive("residual_multiplier", 1.0)),
        "output": {**model["output"], "logits_scaling": as_number(fields.positive("logits_scaling", 1.0))},
    }


def _mobilellm(fields: Fields) -> dict[str, Any]:
    """Llama as facebook/MobileLLM's own code has it (Liu et al. 2024, arXiv 2402.14905): `share_embedding` ties the
    output, and `layer_sharing` computes each layer twice, one time after the other, with the same weights."""
    tied = fields.flag("share_embedding", REQUIRED) is True
    layer = [
        _attention(fields, bias="all" if fields.flag("attention_bias", False) else "none"),
        _gated(fields, fields.flag("mlp_bias", False)),
    ]
    if fields.flag("layer_sharing", REQUIRED) is True:
        layer += [{**block, "shares": 2} for block in layer]
    model = _rotary_model(fields, layer * _bounded(fields, "num_hidden_layers"), tied=False, context=2048, eps=1e-5)
    return {**model, "output": {"kind": "tokens", "tied": tied or model["output"]["tied"]}}


def _mistral(fields: Fields) -> dict[str, Any]:
    fields.fixed("attention_bias", False)
    fields.fixed("mlp_bias", False)
    layer = [_attention(fields, groups=8, bias="none", window=_window(fields)), _gated(fields)]
    return _rotary_model(fields, layer * _bounded(fields, "num_hidden_layers"), tied=False, context=131_072)


def _qwen2(fields: Fields) -> dict[str, Any]:
    return _qwen(fields, bias="qkv")


def _qwen3(fields: Fields) -> dict[str, Any]:
    return _qwen(fields, bias="all" if fields.flag("attention_bias", False) else "none", d_head=128, qk_norm=True)


def _qwen(fields: Fields, d_head: int | None = None, **attention: Any) -> dict[str, Any]:
    layers = _bounded(fields, "num_hidden_layers")
    fields.fixed("use_mrope", False)
    # The window and its first layer are written by all, whether they have one or not.
    fields.ignore("sliding_window", "max_window_layers")
    window = _window(fields) if fields.flag("use_sliding_window", False) else None
    first = layers
    if window is not None and fields.value("layer_types") is None:
        first = fields.count("max_window_layers", 28) if fields.value("max_window_layers") != 0 else 0
    types = fields.layer_types(
        ("full_attention", "sliding_attention"),
        layers,
        ["full_attention" if layer < first else "sliding_attention" for layer in range(layers)],
    )
    if window is None and "sliding_attention" in types:
        reason = "layer_types has sliding_attention"
        fields.fault("use_sliding_window", False, reason, "true, with sliding_window")
    wide = _attention(fields, d_head, groups=32, **attention)
    feed_forward = _gated(fields)
    narrow = {**wide, "window": window}
    blocks = [part for kind in types for part in (narrow if kind == "sliding_attention" else wide, feed_forward)]
    return _rotary_model(fields, blocks, tied=False, context=32_768)


def _smollm3(fields: Fields) -> dict[str, Any]:
    layers = _bounded(fields, "num_hidden_layers")
    turned = _turned_layers(fields, layers)
    window = None
    if fields.flag("use_sliding_window", False):
        window = fields.count("sliding_window") if fields.value("sliding_window") is not None else None
    fields.ignore("sliding_window")
    types = fields.layer_types(
        ("full_attention", "sliding_attention"),
        layers,
        ["full_attention" if window is None or turns else "sliding_attention" for turns in turned],
    )
    heads = fields.count("num_attention_heads")
    attention = _attention(fields, groups=min(4, heads), bias="all" if fields.flag("attention_bias", False) else "none")
    feed_forward = _gated(fields, fields.flag("mlp_bias", False))
    blocks = [
        part
        for turns, kind in zip(turned, types, strict=True)
        for part in (
            {**attention, "rope": turns, "window": window if kind == "sliding_attention" else None},
            feed_forward,
        )
    ]
    return _rotary_model(fields, blocks, tied=True, context=32_768, theta=2_000_000)


def _turned_layers(fields: Fields, layers: int) -> list[bool]:
    """Whether positions turn queries and keys, by layer: all but every fourth, unless the file says which."""
    step = fields.count("no_rope_layer_interval", 4)
    given: Any = fields.get("no_rope_layers", (list,), "a list", None)
    derived = [bool((layer + 1) % step) for layer in range(layers)]
    if given is None:
        return derived
    if len(given) != layers or any(turns not in (0, 1) for turns in given):
        fields.fault("no_rope_layers", given, f"must have {layers} entries, 0 or 1", f"{layers} entries, 0 or 1")
        return derived
    return [turns == 1 for turns in given]


def _olmo2(fields: Fields) -> dict[str, Any]:
    bias = "all" if fields.flag("attention_bias", False) else "none"
    layer = [_attention(fields, bias=bias, qk_norm="whole"), _gated(fields)]
    layers = layer * _bounded(fields, "num_hidden_layers")
    return {**_rotary_model(fields, layers, tied=False, context=2048, eps=1e-5), "norm": "branch"}


def _gemma3(fields: Fields) -> dict[str, Any]:
    layers, width = _bounded(fields, "num_hidden_layers"), fields.count("hidden_size")
    for name in ("final_logit_softcapping", "attn_logit_softcapping"):
        fields.fixed(name, None)
    fields.fixed("use_bidirectional_attention", False)
    step = fields.count("sliding_window_pattern", 6)
    derived = ["sliding_attention" if (layer + 1) % step else "full_attention" for layer in range(layers)]
    types = fields.layer_types(("full_attention", "sliding_attention"), layers, derived)
    window = _window(fields)
    attention = _attention(
        fields, 256, groups=4, bias="all" if fields.flag("attention_bias", False) else "none", qk_norm=True
    )
    scaled_as = fields.count("query_pre_attn_scalar", 256)
    if scaled_as != attention["d_head"]:
        attention["scale"] = as_number(scaled_as**-0.5)
    context = fields.count("max_position_embeddings", 131_072)
    rotary = fields.rotary_by_type(
        {"full_attention": (1_000_000, "rope_theta"), "sliding_attention": (10_000, "rope_local_base_freq")}, context
    )
    local = rotary["sliding_attention"]
    if "scaling" in local:
        name = "rope_parameters.sliding_attention.rope_type"
        fields.fault(name, "llama3", "local layers have unstretched positions", "default")
    parts = {
        "full_attention": attention,
        "sliding_attention": {**attention, "window": window, "theta": local["theta"]},
    }
    return {
        "d_model": width,
        "positions": rotary["full_attention"],
        "context_length": context,
        "norm": "both",
        "norm_kind": "rms",
        "norm_eps": fields.epsilon("rms_norm_eps", 1e-6),
        "activation": fields.activation("hidden_activation", "gelu_pytorch_tanh"),
        "embedding": {"vocab_size": fields.count("vocab_size", 262_208), "scaled": True},
        "blocks": [part for kind in types for part in (parts[kind], _gated(fields))],
        "output": {"kind": "tokens", "tied": fields.flag("tie_word_embeddings", True)},
    }


def _gpt_neox(fields: Fields) -> dict[str, Any]:
    parallel = "own_norm" if fields.flag("use_parallel_residual", True) else None
    layer = [
        {
            "kind": "attention",
            "n_head": fields.count("num_attention_heads"),
            "bias": "all" if fields.flag("attention_bias", True) else "none",
        },
        {"kind": "feed_forward", "d_inner": fields.count("intermediate_size"), "parallel": parallel},
    ]
    return _layer_norm_model(
        fields, layer, context=2048, activation="gelu", share=0.25, beside=("rotary_emb_base", "rotary_pct")
    )


def _stablelm(fields: Fields) -> dict[str, Any]:
    fields.fixed("qk_layernorm", False)
    parallel = "shared_norm" if fields.flag("use_parallel_residual", False) else None
    bias = "qkv" if fields.flag("use_qkv_bias", False) else "none"
    heads = fields.count("num_attention_heads")
    layer = [
        {
            "kind": "attention",
            "n_head": heads,
            "n_kv_head": fields.count("num_key_value_heads", 32, null=heads),
            "bias": bias,
        },
        {**_gated(fields), "parallel": parallel},
    ]
    return _layer_norm_model(fields, layer, context=4096, activation="silu", share=0.25)


def _phi(fields: Fields) -> dict[str, Any]:
    fields.fixed("qk_layernorm", False)
    heads = fields.count("num_attention_heads")
    layer = [
        {"kind": "attention", "n_head": heads, "n_kv_head": fields.count("num_key_value_heads", heads), "bias": "all"},
        {"kind": "feed_forward", "d_inner": fields.count("intermediate_size"), "parallel": "shared_norm"},
    ]
    model = _layer_norm_model(fields, layer, context=2048, activation="gelu_new", share=0.5)
    return {**model, "output": {**model["output"], "bias": True}}


def _bloom(fields: Fields) -> dict[str, Any]:
    width = fields.count(fields.either("hidden_size", "n_embed"))
    fields.fixed("apply_residual_connection_post_layernorm", False)
    fields.fixed("n_inner", 4 * width, "inner widths of this type are 4 times hidden_size")
    layer = [
        {"kind": "attention", "n_head": fields.count(fields.either("n_head", "num_attention_heads")), "bias": "all"},
        {"kind": "feed_forward", "d_inner": 4 * width},
    ]
    return {
        "d_model": width,
        "positions": {"kind": "alibi"},
        "context_length": fields.count("seq_length", 2048),
        "norm_eps": fields.epsilon("layer_norm_epsilon", 1e-5),
        "activation": "gelu_tanh",
        "embedding": {"vocab_size": fields.count("vocab_size"), "norm": True},
        "blocks": layer * _bounded(fields, fields.either("n_layer", "num_hidden_layers")),
        "output": {"kind": "tokens", "tied": fields.flag("tie_word_embeddings", True)},
    }


def _layer_norm_model(
    fields: Fields,
    layer: list[dict[str, Any]],
    *,
    context: int,
    activation: str,
    share: float,
    beside: tuple[str, str] = ("rope_theta", "partial_rotary_factor"),
) -> dict[str, Any]:
    """`context`, `activation`, `share`: what a missing field means to this type. `beside`: as of `Fields.rotary`."""
    context = fields.count("max_position_embeddings", context)
    return {
        "d_model": fields.count("hidden_size"),
        "positions": fields.rotary(10_000, context, share, beside),
        "context_length": context,
        "norm_eps": fields.epsilon("layer_norm_eps", 1e-5),
        "activation": fields.activation("hidden_act", activation),
        "embedding": {"vocab_size": fields.count("vocab_size")},
        "blocks": layer * _bounded(fields, "num_hidden_layers"),
        "output": {"kind": "tokens", "tied": fields.flag("tie_word_embeddings", False)},
    }


def _lfm2(fields: Fields) -> dict[str, Any]:
    layers = _bounded(fields, "num_hidden_layers")
    feed_forward = {"kind": "feed_forward", "d_inner": _lfm2_inner(fields), "gated": True, "bias": False}
    parts: dict[str, dict[str, Any]] = {
        "full_attention": _attention(fields, groups=8, bias="none", qk_norm=True),
        "conv": {
            "kind": "short_conv",
            "kernel": fields.count("conv_L_cache", 3),
            "bias": fields.flag("conv_bias", False),
        },
    }
    blocks = [part for kind in _lfm2_types(fields, layers) for part in (parts[kind], feed_forward)]
    fields.fixed("hidden_act", "silu")
    fields.fixed("block_use_swiglu", True)
    fields.fixed("use_pos_enc", True)
    tied = fields.either("tie_embedding", "tie_word_embeddings")
    names = ("norm_eps", tied, None)
    model = _rotary_model(fields, blocks, tied=True, context=128_000, eps=1e-5, theta=1_000_000, names=names)
    # What published files say once more.
    for field, expected, others in (
        ("hidden_size", model["d_model"], ("block_dim", "conv_dim", "conv_dim_out")),
        ("num_attention_heads", fields.value("num_attention_heads"), ("num_heads",)),
        ("norm_eps", float(model["norm_eps"]), ("block_norm_eps", "rms_norm_eps")),
        ("rope_theta", float(model["positions"]["theta"]), ("theta",)),
    ):
        for other in others:
            fields.fixed(other, expected, f"{field} says {expected}")
    return model


def _lfm2_inner(fields: Fields) -> int:
    """Inner width: as its code rounds, 2/3 of what is given, times a factor, up to a multiple."""
    inner = fields.count(fields.either("block_ff_dim", "intermediate_size"))
    fields.ignore("block_ffn_dim_multiplier", "block_multiple_of")
    if not fields.flag("block_auto_adjust_ff_dim", True):
        return inner
    inner = 2 * inner // 3
    if fields.config.get("block_ffn_dim_multiplier", 1) is None:
        return inner
    factor = fields.positive("block_ffn_dim_multiplier", 1.0)
    multiple = fields.count("block_multiple_of", 256)
    wide = factor * inner
    if not 1 <= wide <= MAX_WIDTH:
        fields.fault("block_ffn_dim_multiplier", factor, "leaves no inner width", "a positive number")
        return 1
    return -(-int(wide) // multiple) * multiple


def _lfm2_types(fields: Fields, layers: int) -> list[str]:
    """The mixer of each layer."""
    every = list(range(layers))
    attention_layers: Any = fields.get("full_attn_idxs", (list,), "a list", every)
    for index in attention_layers:
        if type(index) is not int or not 0 <= index < layers:
            fields.fault("full_attn_idxs", attention_layers, f"there are {layers} layers", f"layers 0 to {layers - 1}")
            attention_layers = every
            break
    derived = ["full_attention" if layer in attention_layers else "conv" for layer in range(layers)]
    types = fields.layer_types(("full_attention", "conv"), layers, derived)
    if types != derived and fields.value("full_attn_idxs") is not None:
        fields.fault("full_attn_idxs", attention_layers, "layer_types says otherwise", "one of the two")
    return types


READERS: Mapping[str, Callable[[Fields], dict[str, Any]]] = {
    "gpt2": _gpt2,
    "opt": _opt,
    "llama": _llama,
    "granite": _granite,
    "mobilellm": _mobilellm,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "smollm3": _smollm3,
    "olmo2": _olmo2,
    "gemma3_text": _gemma3,
    "gpt_neox": _gpt_neox,
    "stablelm": _stablelm,
    "phi": _phi,
    "bloom": _bloom,
    "lfm2": _lfm2,
}


def _bounded(fields: Fields, field: str) -> int:
    """Number of layers; of one that no description can have, 1."""
    layers = fields.count(field)
    if layers > MAX_LAYER_PAIRS:
        fields.fault(field, layers, f"a description has at most {MAX_LAYER_PAIRS} layers", f"1 to {MAX_LAYER_PAIRS}")
        return 1
    return layers


def _window(fields: Fields) -> int | None:
    """Missing it is 4096, null it is none."""
    return fields.count("sliding_window", 4096) if fields.config.get("sliding_window", 0) is not None else None


def _attention(
    fields: Fields, d_head: int | None = None, *, groups: int | None = None, **values: Any
) -> dict[str, Any]:
    """`groups`: heads of keys and values where the field is missing; as many as there are of queries where it is null,
    and in all types without such a default."""
    heads = fields.count("num_attention_heads")
    width = fields.count("head_dim", d_head)  # type: ignore[arg-type]
    return {
        "kind": "attention",
        "n_head": heads,
        "n_kv_head": fields.count("num_key_value_heads", groups or heads, null=heads),
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
    context: int,
    eps: float = 1e-6,
    theta: int = 10_000,
    names: tuple[str, str, str | None] = ("rms_norm_eps", "tie_word_embeddings", "hidden_act"),
) -> dict[str, Any]:
    """`tied`, `context`, `eps`, `theta`: what a missing field means to this type. `names`: of the fields of epsilon,
    tied output, and activation, silu where it has none."""
    epsilon, tie, activation = names
    context = fields.count("max_position_embeddings", context)
    fields.fixed("max_sequence_length", context, f"max_position_embeddings says {context}")
    return {
        "d_model": fields.count("hidden_size"),
        "positions": fields.rotary(theta, context),
        "context_length": context,
        "norm_kind": "rms",
        "norm_eps": fields.epsilon(epsilon, eps),
        "activation": "silu" if activation is None else fields.activation(activation, "silu"),
        "embedding": {"vocab_size": fields.count("vocab_size")},
        "blocks": blocks,
        "output": {"kind": "tokens", "tied": fields.flag(tie, tied)},
    }
