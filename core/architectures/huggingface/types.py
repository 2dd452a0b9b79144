"""The types of transformers by name: how the configuration of each is read, and the one nearest to a model written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, FeedForward, ShortConv
from edgefront.core.architectures.embeddings_and_head import RotaryPositions
from edgefront.core.architectures.huggingface.fields import WRITTEN, Fields
from edgefront.core.architectures.huggingface.rotary_types import (
    TYPES,
    Config,
    Parts,
    bounded,
    read_lfm2,
    read_mobilellm,
    tokens,
)


def _read_gpt2(fields: Fields) -> Config:
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
        "blocks": layer * bounded(fields, fields.either("n_layer", "num_hidden_layers")),
        "output": {"kind": "tokens", "tied": fields.flag("tie_word_embeddings", True)},
    }


def _write_gpt2(parts: Parts) -> Config:
    architecture = parts.architecture
    return {
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": architecture.d_model,
        "n_head": parts.attention.n_head,
        "n_inner": parts.feed_forward.d_inner,
        "n_layer": parts.layers,
        "n_positions": architecture.max_length or 1024,
        "activation_function": WRITTEN[architecture.activation],
        "layer_norm_epsilon": float(architecture.norm_eps),
        **tokens(architecture),
    }


def _read_opt(fields: Fields) -> Config:
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
        "blocks": layer * bounded(fields, "num_hidden_layers"),
        "output": {"kind": "tokens", "tied": fields.flag("tie_word_embeddings", True)},
    }


def _write_opt(parts: Parts) -> Config:
    architecture = parts.architecture
    return {
        "architectures": ["OPTForCausalLM"],
        "hidden_size": architecture.d_model,
        "num_attention_heads": parts.attention.n_head,
        "ffn_dim": parts.feed_forward.d_inner,
        "num_hidden_layers": parts.layers,
        "max_position_embeddings": architecture.max_length or 2048,
        "do_layer_norm_before": architecture.norm == "pre",
        "word_embed_proj_dim": architecture.d_embed,
        "activation_function": WRITTEN[architecture.activation],
        **tokens(architecture),
    }


READERS: Mapping[str, Callable[[Fields], Config]] = {
    "gpt2": _read_gpt2,
    "opt": _read_opt,
    **{kind: declared.read for kind, declared in TYPES.items()},
    "mobilellm": read_mobilellm,
    "lfm2": read_lfm2,
}


def nearest_configurations(architecture: Architecture) -> Iterator[tuple[str, Config]]:
    """Type and nearest configuration of each type that has the parts of this model."""

    def first(kind: type[Any]) -> Any:
        return next((block for block in architecture.blocks if isinstance(block, kind)), None)

    attention, feed_forward, conv = first(Attention), first(FeedForward), first(ShortConv)
    if feed_forward is None:
        return
    writers: dict[str, Callable[[Parts], Config]] = {"gpt2": _write_gpt2, "opt": _write_opt}
    if isinstance(architecture.positions, RotaryPositions):
        writers = {kind: declared.write for kind, declared in TYPES.items() if kind != "lfm2" or conv is not None}
    for kind, write in writers.items():
        if attention is not None or kind == "lfm2":  # without attention no heads are made
            yield kind, write(Parts(architecture, attention or Attention(n_head=1), feed_forward))


def unloadable(kind: str, config: Mapping[str, Any]) -> str | None:
    """Why transformers (5.23) does not load or run this configuration of ours; None where it does."""
    width, heads = config.get("hidden_size", 0), config.get("num_attention_heads", 1)
    if kind in ("llama", "gemma3_text") and width % heads:  # validate_architecture of their configurations
        return f"a hidden_size {width} that is no multiple of num_attention_heads {heads}"
    if kind == "lfm2" and "full_attention" not in config["layer_types"]:  # its cache counts the tokens of an attention
        return "no full_attention among its layer_types"
    return None
