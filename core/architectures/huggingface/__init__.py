"""Converts Hugging Face's `config.json` to an architecture's description and back.

transformers can express a description if reading the nearest configuration gives the same description. So the readers
of configurations also decide what can be written.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, FeedForward, ShortConv
from edgefront.core.architectures.embeddings_and_head import RotaryPositions
from edgefront.core.architectures.huggingface.fields import WRITTEN, Fields
from edgefront.core.architectures.huggingface.rotary_types import (
    TYPES,
    Config,
    FirstBlocks,
    bounded,
    read_lfm2,
    read_mobilellm,
    tokens,
)
from edgefront.core.common.errors import ArchitectureError, InvalidInput, NotFound
from edgefront.core.common.hugging_face import CONFIG, refuse_pointer
from edgefront.core.common.validation import short

_IGNORED: Mapping[str, list[str]] = json.loads(files(__name__).joinpath("ignored_fields.json").read_text("utf-8"))
"""Fields of a `config.json` that do not change what a model computes: `of all types`, settings `of generation` that
older files store there, and by type. Collected from the configuration classes of transformers 4 and 5 and from
published files. Fields that are neither here nor read are refused by name.
"""


def ignored(model_type: str) -> frozenset[str]:
    """Names of the fields in `config.json` that do not change a model of this type."""
    return frozenset(name for key in ("of all types", "of generation", model_type) for name in _IGNORED.get(key, ()))


__all__ = ["CONFIG", "from_config", "parse_config", "read_config", "to_config"]

MAX_CONFIG_BYTES = 1 << 20
_CLASSES = ("ForCausalLM", "LMHeadModel")
"""Suffixes of the class names that a description can express."""
_BARE = (
    "GPT2", "OPT", "Llama", "Mistral", "Qwen2", "Qwen3", "Lfm2", "GPTNeoX", "StableLm", "Phi", "SmolLM3", "Olmo2",
    "Granite", "Gemma3Text",
)  # fmt: skip
_WITHOUT_OUTPUT = frozenset(f"{name}Model" for name in _BARE)
"""Class names of models that were saved without the output layer."""


def _read_gpt2(fields: Fields) -> Config:
    # transformers also accepts the names of other types.
    width = fields.count(fields.either("n_embd", "hidden_size"))
    fields.fixed("scale_attn_weights", True)
    fields.fixed("scale_attn_by_inverse_layer_idx", False)
    length = fields.count(fields.either("n_positions", "max_position_embeddings"), 1024)
    fields.fixed("n_ctx", length, f"must equal n_positions {length}")
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


def _write_gpt2(parts: FirstBlocks) -> Config:
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


def _write_opt(parts: FirstBlocks) -> Config:
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


_READERS: Mapping[str, Callable[[Fields], Config]] = {
    "gpt2": _read_gpt2,
    "opt": _read_opt,
    **{kind: declared.read for kind, declared in TYPES.items()},
    "mobilellm": read_mobilellm,
    "lfm2": read_lfm2,
}


def _nearest_configurations(architecture: Architecture) -> Iterator[tuple[str, Config]]:
    """Yields pairs of model type and nearest configuration, for each model type of transformers with these blocks."""

    def first(kind: type[Any]) -> Any:
        return next((block for block in architecture.blocks if isinstance(block, kind)), None)

    attention, feed_forward, conv = first(Attention), first(FeedForward), first(ShortConv)
    if feed_forward is None:
        return
    writers: dict[str, Callable[[FirstBlocks], Config]] = {"gpt2": _write_gpt2, "opt": _write_opt}
    if isinstance(architecture.positions, RotaryPositions):
        writers = {kind: declared.write for kind, declared in TYPES.items() if kind != "lfm2" or conv is not None}
    for kind, write in writers.items():
        if attention is not None or kind == "lfm2":  # lfm2 without attention may state any number of heads
            yield kind, write(FirstBlocks(architecture, attention or Attention(n_head=1), feed_forward))


def _unloadable(kind: str, config: Mapping[str, Any]) -> str | None:
    """Reason why transformers (5.23) does not load or run this configuration; None if it does."""
    width, heads = config.get("hidden_size", 0), config.get("num_attention_heads", 1)
    if kind in ("llama", "gemma3_text") and width % heads:  # validate_architecture of their configurations
        return f"a hidden_size {width} that is not a multiple of num_attention_heads {heads}"
    if kind == "lfm2" and "full_attention" not in config["layer_types"]:  # its cache counts the tokens of an attention
        return "no full_attention among its layer_types"
    return None


# Reading and writing --------------------------------------------------------------------------------------------------


def parse_config(text: str | bytes) -> dict[str, Any]:
    """Parses a `config.json` to a mapping; raises `InvalidInput` unless the text is a JSON object."""
    refuse_pointer(text, CONFIG)
    try:
        config = json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"config.json is not JSON: {error}", allowed="a JSON object") from None
    if not isinstance(config, dict):
        raise InvalidInput(f"config.json is {short(config)}, not a JSON object", allowed="a JSON object")
    return config


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not a number")


def read_config(path: Path) -> Architecture:
    """Reads a `config.json`, given as file or folder. Raises `NotFound`, and the errors of `from_config`."""
    path = path / CONFIG if path.is_dir() else path
    try:
        if path.stat().st_size > MAX_CONFIG_BYTES:
            raise InvalidInput(f"{path} has more than {MAX_CONFIG_BYTES} bytes, too many for a {CONFIG}", field="path")
        return from_config(parse_config(path.read_bytes()))
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(f"there is no {path}; a Hugging Face folder must have a {CONFIG}") from None


def from_config(config: Mapping[str, Any]) -> Architecture:
    """Converts the configuration of a causal language model of transformers to a description.

    Raises `InvalidInput` that names every missing, wrong or inexpressible field: `errors` has one mapping for each
    field, with field, value, allowed and detail.
    """
    fields = Fields(config)
    kind = fields.one_of("model_type", tuple(_READERS))
    if "auto_map" in config:
        fields.ignore("auto_map")
    if "auto_map" in config and kind != "mobilellm":
        fields.fault("auto_map", config["auto_map"], "a model with its own code cannot be expressed", "no auto_map")
    if kind not in _READERS:
        fields.ignore(*config)  # the meaning of its fields is unknown
    _check_quantisation(fields)
    # Models that score tokens, with or without their output.
    names: list[Any] = fields.get("architectures", (list,), "a list", [])
    for name in names:
        if not str(name).endswith(_CLASSES) and str(name) not in _WITHOUT_OUTPUT:
            fields.fault("architectures", name, "only language models can be expressed", " or ".join(_CLASSES))
    fields.either("dtype", "torch_dtype")
    fields.fixed("is_encoder_decoder", False)
    fields.fixed("add_cross_attention", False)
    fields.fixed("pruned_heads", {})
    fields.ignore(*ignored(kind))
    description = _READERS[kind](fields) if kind in _READERS else {}
    fields.finish()
    try:
        return Architecture.parse(description)
    except ArchitectureError as error:
        raise InvalidInput(
            f"config.json does not describe a valid model: {error.detail}", value=error.value, allowed=error.allowed
        ) from None


def _check_quantisation(fields: Fields) -> None:
    for field in ("quantization_config", "quantization", "compression_config"):
        given = fields.value(field)
        if given is not None:
            method = given.get("quant_method") if isinstance(given, Mapping) else given
            what = f"its weights are quantised{f' ({short(method)})' if method else ''}"
            allowed = "the model that it was made from, with weights in float32, float16 or bfloat16"
            fields.fault(field, None, f"{what}: take {allowed}", allowed)


def to_config(architecture: Architecture) -> dict[str, Any]:
    """Converts the model to a `config.json` for transformers.

    Raises `InvalidInput` naming the fields in which the model differs from the nearest model of transformers.
    """
    nearest: tuple[str, list[tuple[str, Any, Any]]] | None = None
    refused: list[str] = []
    for kind, config in _nearest_configurations(architecture):
        try:
            restored = from_config({"model_type": kind, **config})
        except InvalidInput:  # the model's first layer is not of this type
            continue
        if restored == architecture:
            if (reason := _unloadable(kind, config)) is None:
                return {"model_type": kind, **config}
            refused.append(f"{reason}, which {kind} does not load")
            continue
        differences = list(_differences(architecture.canonical, restored.canonical))
        if nearest is None or len(differences) < len(nearest[1]):
            nearest = kind, differences
    if refused:
        fault = "; ".join(refused)
    elif nearest is None:
        fault = "blocks: they must be an attention (in lfm2 also a short_conv) and a feed_forward alternately"
    else:
        kind, differences = nearest
        fault = "; ".join(
            f"{path} {_shown(ours)}, which is {_shown(theirs)} in the nearest model, {kind}"
            for path, ours, theirs in differences[:3]
        ) + (f" (and {len(differences) - 3} more)" if len(differences) > 3 else "")
    raise InvalidInput(
        f"transformers cannot express {fault}", field="architecture", value=architecture.digest, allowed=_EXPRESSIBLE
    )


_EXPRESSIBLE = (
    "the same layer throughout and an embedding without cutoffs: gpt2 and opt with learned positions; llama, mistral, "
    "qwen2, qwen3, smollm3, olmo2, granite, gemma3_text with rotary positions, RMS norms and gated feed_forward; "
    "gpt_neox, stablelm, phi with layer norms; lfm2, which mixes in "
    "short_conv. In a search: llama, lfm and lts-opt narrowed to loads_in=transformers"
)


def _differences(ours: Any, theirs: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yields (path, value in `ours`, value in `theirs`) for each difference; None means the default value."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if ours.get("kind") != theirs.get("kind"):
            yield f"{path}.kind".lstrip("."), ours.get("kind"), theirs.get("kind")
            return
        for name in sorted(ours.keys() | theirs.keys()):
            yield from _differences(ours.get(name), theirs.get(name), f"{path}.{name}".lstrip("."))
    elif isinstance(ours, list) and isinstance(theirs, list):
        for index, (own, other) in enumerate(zip(ours, theirs, strict=False)):
            yield from _differences(own, other, f"{path}.{index}")
        if len(ours) != len(theirs):
            yield path, f"{len(ours)} in number", f"{len(theirs)} in number"
    elif ours != theirs:
        yield path, ours, theirs


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("kind", "given"))
    return "the default" if value is None else str(value)
