"""Hugging Face's `config.json` as a description, and a description as `config.json`.

What transformers can express is what comes back: a description has a configuration if reading that configuration gives
the same description. So one table of fields, the readers, decides both.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from edgefront.core.errors import ArchitectureError, InvalidInput, NotFound
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.huggingface.fields import Fields
from edgefront.core.spaces.huggingface.readers import READERS
from edgefront.core.spaces.huggingface.writers import nearest_configurations
from edgefront.core.validation import short

__all__ = ["CONFIG", "from_config", "parse_config", "read_config", "to_config"]

CONFIG = "config.json"
MAX_CONFIG_BYTES = 1 << 20


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
    fields = Fields(config)
    kind = fields.one_of("model_type", tuple(READERS))
    if "auto_map" in config:
        fields.fault("auto_map", config["auto_map"], "it brings code of its own, which a description cannot", "omit it")
    description = READERS[kind](fields) if kind in READERS else {}
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
    for kind, config in nearest_configurations(architecture):
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
    "search: llama and lfm with layers alike, every part and no window, and lts-opt with one n_head and one d_inner"
)


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
