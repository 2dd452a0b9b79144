"""Writers: the configuration that comes nearest to a model, by type in transformers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Attention, FeedForward, ShortConv
from edgefront.core.spaces.embeddings_and_head import AlibiPositions, RotaryPositions
from edgefront.core.spaces.huggingface.fields import WRITTEN

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class _Parts:
    """A model with its first attention and its first feed_forward, as which the others are written."""

    architecture: Architecture
    attention: Attention
    feed_forward: FeedForward

    @property
    def layers(self) -> int:
        return max(1, len(self.architecture.blocks) // 2)

    @property
    def biased(self) -> bool:
        return self.architecture.attention_bias(self.attention) == "all"


def nearest_configurations(architecture: Architecture) -> Iterator[tuple[str, dict[str, Any]]]:
    """Type and nearest configuration of each type that has the parts of this model."""

    def first(kind: type[_Value]) -> _Value | None:
        return next((block for block in architecture.blocks if isinstance(block, kind)), None)

    attention, feed_forward, conv = first(Attention), first(FeedForward), first(ShortConv)
    if feed_forward is None:
        return
    rotary = isinstance(architecture.positions, RotaryPositions)
    writers = _OF_ROTARY_POSITIONS if rotary else _OF_LEARNED_POSITIONS
    if isinstance(architecture.positions, AlibiPositions):
        writers = {"bloom": _bloom}
    if attention is not None:
        parts = _Parts(architecture, attention, feed_forward)
        for kind, write in writers.items():
            yield kind, write(parts)
    if conv is not None and rotary:
        # Without attention no heads are made.
        yield "lfm2", _lfm2(_Parts(architecture, attention or Attention(n_head=1), feed_forward), conv)


def unloadable(kind: str, config: Mapping[str, Any]) -> str | None:
    """Why transformers (5.23) does not load or run this configuration of ours; None where it does."""
    width, heads = config.get("hidden_size", 0), config.get("num_attention_heads", 1)
    if kind in ("llama", "gemma3_text") and width % heads:  # validate_architecture of their configurations
        return f"a hidden_size {width} that is no multiple of num_attention_heads {heads}"
    if kind == "lfm2" and "full_attention" not in config["layer_types"]:  # its cache counts the tokens of an attention
        return "no full_attention among its layer_types"
    return None


def _gpt2(parts: _Parts) -> dict[str, Any]:
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
        **_tokens(architecture),
    }


def _opt(parts: _Parts) -> dict[str, Any]:
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
        **_tokens(architecture),
    }


def _bloom(parts: _Parts) -> dict[str, Any]:
    """Its inner width is 4 times d_model, whatever a file says."""
    architecture = parts.architecture
    return {
        "architectures": ["BloomForCausalLM"],
        "hidden_size": architecture.d_model,
        "n_head": parts.attention.n_head,
        "n_layer": parts.layers,
        "seq_length": architecture.stated_length,
        "layer_norm_epsilon": float(architecture.norm_eps),
        **_tokens(architecture),
    }


def _llama(parts: _Parts) -> dict[str, Any]:
    return {
        **_rotary(parts, "LlamaForCausalLM"),
        "attention_bias": parts.biased,
        "mlp_bias": parts.feed_forward.bias,
    }


def _granite(parts: _Parts) -> dict[str, Any]:
    architecture = parts.architecture
    return {
        **_rotary(parts, "GraniteForCausalLM"),
        "attention_bias": parts.biased,
        "mlp_bias": parts.feed_forward.bias,
        "embedding_multiplier": float(architecture.embedding.multiplier),
        "attention_multiplier": architecture.attention_scale(parts.attention),
        "residual_multiplier": float(architecture.residual_multiplier),
        "logits_scaling": float(architecture.output.logits_scaling),
    }


def _mistral(parts: _Parts) -> dict[str, Any]:
    return {**_rotary(parts, "MistralForCausalLM"), "sliding_window": parts.attention.window}


def _qwen2(parts: _Parts) -> dict[str, Any]:
    return _qwen(parts, "Qwen2ForCausalLM")


def _qwen3(parts: _Parts) -> dict[str, Any]:
    return {**_qwen(parts, "Qwen3ForCausalLM"), "attention_bias": parts.biased}


def _qwen(parts: _Parts, name: str) -> dict[str, Any]:
    return {**_layers_of_types(parts, name), "max_window_layers": 0}


def _layers_of_types(parts: _Parts, name: str) -> dict[str, Any]:
    """Fields of a model with one window in some of the layers."""
    windows = [getattr(block, "window", None) for block in parts.architecture.blocks[::2]][: parts.layers]
    window = next((window for window in windows if window is not None), None)
    return {
        **_rotary(parts, name),
        "layer_types": ["full_attention" if window is None else "sliding_attention" for window in windows],
        "sliding_window": window,
        "use_sliding_window": window is not None,
    }


def _lfm2(parts: _Parts, conv: ShortConv) -> dict[str, Any]:
    rotary = _rotary(parts, "Lfm2ForCausalLM")
    del rotary["hidden_act"]
    eps = rotary.pop("rms_norm_eps")
    kinds = ["conv" if isinstance(block, ShortConv) else "full_attention" for block in parts.architecture.blocks[::2]]
    return {
        **rotary,
        "norm_eps": eps,
        "block_auto_adjust_ff_dim": False,
        "conv_L_cache": conv.kernel,
        "conv_bias": conv.bias,
        "layer_types": kinds[: parts.layers],
    }


def _smollm3(parts: _Parts) -> dict[str, Any]:
    attentions = parts.architecture.blocks[::2][: parts.layers]
    return {
        **_layers_of_types(parts, "SmolLM3ForCausalLM"),
        "attention_bias": parts.biased,
        "mlp_bias": parts.feed_forward.bias,
        "no_rope_layers": [int(getattr(block, "rope", True)) for block in attentions],
    }


def _olmo2(parts: _Parts) -> dict[str, Any]:
    return {**_rotary(parts, "Olmo2ForCausalLM"), "attention_bias": parts.biased}


def _gemma3(parts: _Parts) -> dict[str, Any]:
    """Local layers are those with a window."""
    architecture = parts.architecture
    config = _layers_of_types(parts, "Gemma3ForCausalLM")
    attentions = [block for block in architecture.blocks if isinstance(block, Attention)]
    local = next((block for block in attentions if block.window is not None), parts.attention)
    positions = architecture.positions
    assert isinstance(positions, RotaryPositions)
    base = float(positions.theta if local.theta is None else local.theta)
    for name in ("hidden_act", "use_sliding_window"):
        del config[name]
    return {
        **config,
        "attention_bias": parts.biased,
        "hidden_activation": WRITTEN[architecture.activation],
        "query_pre_attn_scalar": max(1, round(architecture.attention_scale(parts.attention) ** -2)),
        "rope_local_base_freq": base,
        "rope_parameters": {
            "full_attention": config["rope_parameters"],
            "sliding_attention": {"rope_type": "default", "rope_theta": base},
        },
    }


def _gpt_neox(parts: _Parts) -> dict[str, Any]:
    config = _layer_normed(parts, "GPTNeoXForCausalLM")
    del config["num_key_value_heads"]
    share, base = config.pop("partial_rotary_factor"), config.pop("rope_theta")
    return {
        **config,
        "attention_bias": parts.biased,
        "rotary_emb_base": base,
        "rotary_pct": share,
        "use_parallel_residual": parts.feed_forward.parallel is not None,
    }


def _stablelm(parts: _Parts) -> dict[str, Any]:
    return {
        **_layer_normed(parts, "StableLmForCausalLM"),
        "use_qkv_bias": parts.architecture.attention_bias(parts.attention) != "none",
        "use_parallel_residual": parts.feed_forward.parallel is not None,
    }


def _phi(parts: _Parts) -> dict[str, Any]:
    return _layer_normed(parts, "PhiForCausalLM")


def _layer_normed(parts: _Parts, name: str) -> dict[str, Any]:
    """What the types with rotary positions and layer norms have in common: heads of d_model / n_head features."""
    config, positions = _rotary(parts, name), parts.architecture.positions
    assert isinstance(positions, RotaryPositions)
    share, eps = positions.percent / 100, config.pop("rms_norm_eps")
    del config["head_dim"]
    for field in ("rope_parameters", "rope_scaling"):
        config[field] = config[field] and {**config[field], "partial_rotary_factor": share}
    return {**config, "layer_norm_eps": eps, "partial_rotary_factor": share}


_OF_LEARNED_POSITIONS: Mapping[str, Callable[[_Parts], dict[str, Any]]] = {"gpt2": _gpt2, "opt": _opt}
_OF_ROTARY_POSITIONS: Mapping[str, Callable[[_Parts], dict[str, Any]]] = {
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "smollm3": _smollm3,
    "olmo2": _olmo2,
    "granite": _granite,
    "gemma3_text": _gemma3,
    "gpt_neox": _gpt_neox,
    "stablelm": _stablelm,
    "phi": _phi,
}


def _rotary(parts: _Parts, name: str) -> dict[str, Any]:
    """What the types with rotary positions have in common."""
    architecture, positions = parts.architecture, parts.architecture.positions
    assert isinstance(positions, RotaryPositions)
    theta, scaling = positions.theta, positions.scaling
    # transformers reads rope_parameters from version 5 on, before that rope_theta and rope_scaling.
    stretched = scaling and {
        "rope_type": "llama3",
        "factor": float(scaling.factor),
        "original_max_position_embeddings": scaling.length,
        "low_freq_factor": float(scaling.low),
        "high_freq_factor": float(scaling.high),
    }
    return {
        "architectures": [name],
        "head_dim": architecture.d_head(parts.attention),
        "hidden_act": WRITTEN[architecture.activation],
        "hidden_size": architecture.d_model,
        "intermediate_size": parts.feed_forward.d_inner,
        "max_position_embeddings": architecture.stated_length,
        "num_attention_heads": parts.attention.n_head,
        "num_hidden_layers": parts.layers,
        "num_key_value_heads": parts.attention.kv_heads,
        "rms_norm_eps": float(architecture.norm_eps),
        "rope_parameters": {"rope_theta": float(theta), **(stretched or {"rope_type": "default"})},
        "rope_scaling": stretched and {"rope_theta": float(theta), **stretched},
        "rope_theta": float(theta),
        **_tokens(architecture),
    }


def _tokens(architecture: Architecture) -> dict[str, Any]:
    """No token is special to the model itself; its tokenizer knows them."""
    return {
        "vocab_size": architecture.embedding.vocab_size,
        "tie_word_embeddings": architecture.output.tied,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
