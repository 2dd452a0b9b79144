"""Hugging Face's `config.json` as a description, and a description as `config.json`.

What transformers can express is what comes back: a description has a configuration if reading that configuration gives
the same description. So one table of fields, the readers, decides both.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from edgefront.core.errors import ArchitectureError, InvalidInput, NotFound
from edgefront.core.spaces.architecture import Activation, Architecture
from edgefront.core.spaces.block import Attention, FeedForward, ShortConv
from edgefront.core.spaces.ends import RotaryPositions
from edgefront.core.validation import short

CONFIG = "config.json"
MAX_CONFIG_BYTES = 1 << 20
_MAX_ERRORS = 20
"""So many fields are listed."""
_REQUIRED: Any = object()
_Value = TypeVar("_Value")

_ACTIVATIONS: Mapping[str, Activation] = {
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}
"""Ours by the names of transformers; the first of each is the one that is written."""
_WRITTEN = {_ACTIVATIONS[theirs]: theirs for theirs in reversed(list(_ACTIVATIONS))}
_ROTARY_LENGTH = 4096
"""`max_position_embeddings` of a model with rotary positions, which have no end: what is written for those that read
it."""


def parse_config(text: str | bytes) -> dict[str, Any]:
    """The object of a `config.json`; `InvalidInput` where it is none."""
    try:
        config = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"config.json is not JSON: {error}", allowed="a JSON object") from None
    if not isinstance(config, dict):
        raise InvalidInput(f"config.json is {short(config)}, not a JSON object", allowed="a JSON object")
    return config


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is no number")


def read_config(path: Path) -> Architecture:
    """The description of a `config.json`, or of the folder that has one. Errors as in `from_config`; `NotFound`."""
    path = path / CONFIG if path.is_dir() else path
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise InvalidInput(f"{path} has more than {MAX_CONFIG_BYTES} bytes: that is no {CONFIG}", field="path")
        return from_config(parse_config(path.read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"there is no {path}; a Hugging Face folder has a {CONFIG}") from None


def from_config(config: Mapping[str, Any]) -> Architecture:
    """The description of a causal language model of transformers.

    Raises `InvalidInput` that names every field which is missing, wrong or not expressible: `errors` has one mapping
    each with field, value, allowed and detail.
    """
    fields = _Fields(config)
    kind = fields.one_of("model_type", tuple(_READERS))
    if "auto_map" in config:
        fields.fault("auto_map", config["auto_map"], "it brings code of its own, which a description cannot", "omit it")
    description = _READERS[kind](fields) if kind in _READERS else {}
    fields.finish()
    try:
        return Architecture.parse(description)
    except ArchitectureError as error:
        raise InvalidInput(
            f"config.json describes no model: {error.detail}", value=error.value, allowed=error.allowed
        ) from None


def to_config(architecture: Architecture) -> dict[str, Any]:
    """The `config.json` with which transformers makes this model.

    Raises `InvalidInput` naming the fields by which the model differs from the nearest that transformers has.
    """
    nearest: tuple[str, list[tuple[str, Any, Any]]] | None = None
    for kind, write in _WRITERS.items():
        config = write(architecture)
        if config is None:
            continue
        try:
            found = from_config({"model_type": kind, **config})
        except InvalidInput:  # its first layer is none of this type
            continue
        if found == architecture:
            return {"model_type": kind, **config}
        differences = list(_differences(architecture.canonical, found.canonical))
        if nearest is None or len(differences) < len(nearest[1]):
            nearest = kind, differences
    if nearest is None:
        fault = "blocks: its models have an attention (in lfm2 also a short_conv) and a feed_forward in turns"
    else:
        kind, differences = nearest
        fault = "; ".join(
            f"{path} {_shown(ours)}, which is {_shown(theirs)} in its nearest, {kind}"
            for path, ours, theirs in differences[:3]
        ) + (f" (and {len(differences) - 3} more)" if len(differences) > 3 else "")
    raise InvalidInput(
        f"transformers cannot express {fault}", field="architecture", value=architecture.digest, allowed=_EXPRESSIBLE
    )


_EXPRESSIBLE = (
    "the same layer throughout and an embedding without cutoffs: gpt2 and opt with learned positions; llama, mistral, "
    "qwen2, qwen3 with rotary positions, RMS norms and gated feed_forward; lfm2, which mixes in short_conv. In a "
    "search: the space lts-opt, narrowed to one n_head and one d_inner"
)


class _Fields:
    """Reads a configuration and collects what is wrong with it, so that one error has it all."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.config = config
        self._errors: list[dict[str, Any]] = []

    def fault(self, field: str, value: Any, reason: str, allowed: str) -> None:
        shown = field if value is None else f"{field} {short(value)}"
        detail = f"{shown}: {reason}"
        self._errors.append({"field": field, "value": value, "allowed": allowed, "detail": detail})

    def finish(self) -> None:
        """Raises what was collected."""
        if not self._errors:
            return
        first, count = self._errors[0], len(self._errors)
        raise InvalidInput(
            f"config.json has {count} field{'s' * (count > 1)} that cannot be expressed: "
            + "; ".join(error["detail"] for error in self._errors[:_MAX_ERRORS]),
            field=first["field"],
            value=first["value"],
            allowed=first["allowed"],
            errors=self._errors[:_MAX_ERRORS],
        )

    def get(self, field: str, kinds: tuple[type, ...], allowed: str, default: _Value) -> _Value:
        """The value of one of these types, a null or a missing one being the default."""
        value = self.config.get(field)
        if value is None:
            if default is _REQUIRED:
                self.fault(field, value, "it is missing", allowed)
            return default
        if type(value) not in kinds:
            self.fault(field, value, f"must be {allowed}", allowed)
            return default
        return value  # type: ignore[no-any-return]

    def count(self, field: str, default: int = _REQUIRED) -> int:
        """A positive integer; 1 where it is wrong."""
        value = self.get(field, (int,), "a positive integer", default)
        if value is not _REQUIRED and value is not None and value < 1:
            self.fault(field, value, "must be a positive integer", "a positive integer")
        return 1 if value is _REQUIRED else value

    def flag(self, field: str, default: bool) -> bool:
        return self.get(field, (bool,), "true or false", default)

    def fixed(self, field: str, wanted: Any) -> None:
        """A field of which only one value can be expressed."""
        value = self.config.get(field)
        if value is not None and value != wanted:
            self.fault(field, value, f"only {json.dumps(wanted)} can be expressed", json.dumps(wanted))

    def one_of(self, field: str, allowed: tuple[str, ...], default: str = _REQUIRED) -> str:
        words = " or ".join((", ".join(allowed[:-1]), allowed[-1]))
        value = self.get(field, (str,), words, default)
        if value is not _REQUIRED and value not in allowed:
            self.fault(field, value, f"there are {words}", words)
        return value

    def activation(self, field: str, default: str) -> Activation:
        return _ACTIVATIONS.get(self.one_of(field, tuple(_ACTIVATIONS), default), "gelu")

    def epsilon(self, field: str, default: float) -> str:
        value = self.get(field, (float, int), "a power of ten", default)
        for digits in range(1, 13):
            if value == float(f"1e-{digits}"):
                return f"1e-{digits}"
        self.fault(field, value, "must be a power of ten", "1e-1 to 1e-12")
        return "1e-5"

    def layer_types(self, allowed: tuple[str, str], layers: int, default: list[str]) -> list[str]:
        """One of two kinds for each layer."""
        value = self.get("layer_types", (list,), "a list", default)
        if len(value) != layers:
            self.fault("layer_types", value, f"must have {layers} entries, as num_hidden_layers", f"{layers} entries")
            return default
        for index, kind in enumerate(value):
            if kind not in allowed:
                self.fault(f"layer_types.{index}", kind, f"there are {' and '.join(allowed)}", " or ".join(allowed))
        return value

    def rotary(self, theta: int) -> dict[str, Any]:
        """Rotary positions; of the ways to stretch them that of Llama 3."""
        name = next((name for name in ("rope_parameters", "rope_scaling") if self.config.get(name)), "rope_scaling")
        given: Any = self.get(name, (dict,), "an object", {})
        base = given.get("rope_theta") or self.config.get("rope_theta") or theta
        positions: dict[str, Any] = {"kind": "rotary", "theta": self._whole("rope_theta", base)}
        share = given.get("partial_rotary_factor", self.config.get("partial_rotary_factor"))
        if share not in (None, 1):
            self.fault("partial_rotary_factor", share, "models of this type turn whole heads", "1")
        kind = given.get("rope_type") or given.get("type") or "default"
        if kind == "llama3":
            positions["scaling"] = {
                ours: self._whole(f"{name}.{theirs}", given.get(theirs))
                for ours, theirs in (
                    ("factor", "factor"),
                    ("length", "original_max_position_embeddings"),
                    ("low", "low_freq_factor"),
                    ("high", "high_freq_factor"),
                )
            }
        elif kind != "default":
            self.fault(f"{name}.rope_type", kind, "only default and llama3 can be expressed", "default or llama3")
        return positions

    def _whole(self, field: str, value: Any) -> int:
        """A whole number, also one that is written as 10000.0."""
        if type(value) in (int, float) and math.isfinite(value) and value >= 1 and value == int(value):
            return int(value)
        self.fault(field, value, "must be a whole number", "a whole number")
        return 2


# Readers: the description by the type of the model --------------------------------------------------------------------


def _gpt2(fields: _Fields) -> dict[str, Any]:
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


def _opt(fields: _Fields) -> dict[str, Any]:
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


def _llama(fields: _Fields) -> dict[str, Any]:
    bias = "all" if fields.flag("attention_bias", False) else "none"
    layer = [_attention(fields, bias=bias), _gated(fields, fields.flag("mlp_bias", False))]
    return _rotary_model(fields, layer * _bounded(fields, "num_hidden_layers"), tied=False, eps=1e-6)


def _mistral(fields: _Fields) -> dict[str, Any]:
    # Absent it is 4096, null it is none.
    window = fields.count("sliding_window", 4096) if fields.config.get("sliding_window", 0) is not None else None
    layer = [_attention(fields, bias="none", window=window), _gated(fields)]
    return _rotary_model(fields, layer * _bounded(fields, "num_hidden_layers"), tied=False, eps=1e-6)


def _qwen2(fields: _Fields) -> dict[str, Any]:
    return _qwen(fields, bias="qkv")


def _qwen3(fields: _Fields) -> dict[str, Any]:
    return _qwen(fields, bias="all" if fields.flag("attention_bias", False) else "none", d_head=128, qk_norm=True)


def _qwen(fields: _Fields, d_head: int | None = None, **attention: Any) -> dict[str, Any]:
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


def _lfm2(fields: _Fields) -> dict[str, Any]:
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
        inner = -(-int(factor * (2 * inner // 3)) // multiple) * multiple
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


_READERS: Mapping[str, Callable[[_Fields], dict[str, Any]]] = {
    "gpt2": _gpt2,
    "opt": _opt,
    "llama": _llama,
    "mistral": _mistral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "lfm2": _lfm2,
}


def _bounded(fields: _Fields, field: str) -> int:
    """Number of layers; of one that no description can have, 1."""
    layers = fields.count(field)
    if layers > 512:
        fields.fault(field, layers, "a description has at most 512 layers", "1 to 512")
        return 1
    return max(layers, 1)


def _attention(fields: _Fields, d_head: int | None = None, **values: Any) -> dict[str, Any]:
    heads = fields.count("num_attention_heads")
    width = fields.count("head_dim", d_head)  # type: ignore[arg-type]
    return {
        "kind": "attention",
        "n_head": heads,
        "n_kv_head": fields.count("num_key_value_heads", heads),
        **({} if width is None else {"d_head": width}),
        **values,
    }


def _gated(fields: _Fields, bias: bool = False) -> dict[str, Any]:
    return {"kind": "feed_forward", "d_inner": fields.count("intermediate_size"), "gated": True, "bias": bias}


def _rotary_model(
    fields: _Fields,
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


# Writers: the configuration that comes nearest, None where the model has no such parts --------------------------------


def _write_gpt2(architecture: Architecture) -> dict[str, Any] | None:
    attention, feed_forward, _ = _first_of_each(architecture)
    if attention is None or feed_forward is None or isinstance(architecture.positions, RotaryPositions):
        return None
    return {
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": architecture.d_model,
        "n_head": attention.n_head,
        "n_inner": feed_forward.d_inner,
        "n_layer": _layers(architecture),
        "n_positions": architecture.max_length or 1024,
        "activation_function": _WRITTEN[architecture.activation],
        "layer_norm_epsilon": float(architecture.norm_eps),
        **_tokens(architecture),
    }


def _write_opt(architecture: Architecture) -> dict[str, Any] | None:
    attention, feed_forward, _ = _first_of_each(architecture)
    if attention is None or feed_forward is None or isinstance(architecture.positions, RotaryPositions):
        return None
    return {
        "architectures": ["OPTForCausalLM"],
        "hidden_size": architecture.d_model,
        "num_attention_heads": attention.n_head,
        "ffn_dim": feed_forward.d_inner,
        "num_hidden_layers": _layers(architecture),
        "max_position_embeddings": architecture.max_length or 2048,
        "do_layer_norm_before": architecture.norm == "pre",
        "word_embed_proj_dim": architecture.d_embed,
        "activation_function": _WRITTEN[architecture.activation],
        **_tokens(architecture),
    }


def _write_llama(architecture: Architecture) -> dict[str, Any] | None:
    attention, feed_forward, _ = _first_of_each(architecture)
    if attention is None or feed_forward is None or not isinstance(architecture.positions, RotaryPositions):
        return None
    return {
        **_write_rotary(architecture, "LlamaForCausalLM", attention, feed_forward),
        "attention_bias": architecture.attention_bias(attention) == "all",
        "mlp_bias": feed_forward.bias,
    }


def _write_mistral(architecture: Architecture) -> dict[str, Any] | None:
    attention, feed_forward, _ = _first_of_each(architecture)
    if attention is None or feed_forward is None or not isinstance(architecture.positions, RotaryPositions):
        return None
    rotary = _write_rotary(architecture, "MistralForCausalLM", attention, feed_forward)
    return {**rotary, "sliding_window": attention.window}


def _write_qwen2(architecture: Architecture) -> dict[str, Any] | None:
    return _write_qwen(architecture, "Qwen2ForCausalLM")


def _write_qwen3(architecture: Architecture) -> dict[str, Any] | None:
    config, attention = _write_qwen(architecture, "Qwen3ForCausalLM"), _first_of_each(architecture)[0]
    if config is None or attention is None:
        return None
    return {**config, "attention_bias": architecture.attention_bias(attention) == "all"}


def _write_qwen(architecture: Architecture, name: str) -> dict[str, Any] | None:
    attention, feed_forward, _ = _first_of_each(architecture)
    if attention is None or feed_forward is None or not isinstance(architecture.positions, RotaryPositions):
        return None
    windows = [getattr(block, "window", None) for block in architecture.blocks[::2]][: _layers(architecture)]
    window = next((window for window in windows if window is not None), None)
    return {
        **_write_rotary(architecture, name, attention, feed_forward),
        "layer_types": ["full_attention" if window is None else "sliding_attention" for window in windows],
        "max_window_layers": 0,
        "sliding_window": window,
        "use_sliding_window": window is not None,
    }


def _write_lfm2(architecture: Architecture) -> dict[str, Any] | None:
    attention, feed_forward, conv = _first_of_each(architecture)
    if feed_forward is None or conv is None or not isinstance(architecture.positions, RotaryPositions):
        return None
    # Without attention no heads are made.
    rotary = _write_rotary(architecture, "Lfm2ForCausalLM", attention or Attention(n_head=1), feed_forward)
    del rotary["hidden_act"]
    kinds = ["conv" if isinstance(block, ShortConv) else "full_attention" for block in architecture.blocks[::2]]
    return {
        **rotary,
        "norm_eps": rotary.pop("rms_norm_eps"),
        "block_auto_adjust_ff_dim": False,
        "conv_L_cache": conv.kernel,
        "conv_bias": conv.bias,
        "layer_types": kinds[: _layers(architecture)],
    }


_WRITERS: Mapping[str, Callable[[Architecture], dict[str, Any] | None]] = {
    "gpt2": _write_gpt2,
    "opt": _write_opt,
    "llama": _write_llama,
    "mistral": _write_mistral,
    "qwen2": _write_qwen2,
    "qwen3": _write_qwen3,
    "lfm2": _write_lfm2,
}


def _write_rotary(
    architecture: Architecture, name: str, attention: Attention, feed_forward: FeedForward
) -> dict[str, Any]:
    positions = architecture.positions
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
        "head_dim": architecture.d_head(attention),
        "hidden_act": _WRITTEN[architecture.activation],
        "hidden_size": architecture.d_model,
        "intermediate_size": feed_forward.d_inner,
        "max_position_embeddings": scaling.factor * scaling.length if scaling else _ROTARY_LENGTH,
        "num_attention_heads": attention.n_head,
        "num_hidden_layers": _layers(architecture),
        "num_key_value_heads": attention.kv_heads,
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


def _layers(architecture: Architecture) -> int:
    return max(1, len(architecture.blocks) // 2)


def _first_of_each(architecture: Architecture) -> tuple[Attention | None, FeedForward | None, ShortConv | None]:
    def first(kind: type[_Value]) -> _Value | None:
        return next((block for block in architecture.blocks if isinstance(block, kind)), None)

    return first(Attention), first(FeedForward), first(ShortConv)


def _differences(ours: Any, theirs: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Path, our value and theirs of everything that differs between two canonical descriptions; None: the default."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if ours.get("kind") != theirs.get("kind"):
            yield f"{path}.kind".lstrip("."), ours.get("kind"), theirs.get("kind")
            return
        for name in sorted(ours.keys() | theirs.keys()):
            yield from _differences(ours.get(name), theirs.get(name), f"{path}.{name}".lstrip("."))
    elif isinstance(ours, list) and isinstance(theirs, list):
        for index, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            yield from _differences(one, other, f"{path}.{index}")
        if len(ours) != len(theirs):
            yield path, f"{len(ours)} in number", f"{len(theirs)} in number"
    elif ours != theirs:
        yield path, ours, theirs


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("kind", "given"))
    return "the default" if value is None else str(value)
