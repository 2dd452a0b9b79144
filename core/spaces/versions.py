"""Reads descriptions of earlier versions, and tells which release of the format a description needs.

Fields with defaults are added within a version. Each set of additions has a number, and a reader of descriptions states
the highest number that it understands (`FIELDS`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any


def upgraded(value: Mapping[str, Any]) -> dict[str, Any]:
    """A description of version 0 as one of version 1; errors in it are kept, for the parser to report.

    Version 0 left out the kind of positions, which could only be learned ones, and spelled out three choices that it
    did not have yet.
    """
    new = {**value, "version": 1}
    if isinstance(value.get("positions"), Mapping):
        new["positions"] = {"kind": "learned", **value["positions"]}
    if isinstance(value.get("embedding"), Mapping):
        new["embedding"] = {name: part for name, part in value["embedding"].items() if (name, part) != ("tied", True)}
    return new


FIELDS = 5
"""The highest set of additions to version 1 that this release reads. 1 has none; 2 has the fields and blocks of
Llama-like decoders (grouped queries, windows, query norms, gates and biases by block, rotary positions, RMS norms,
silu, short convolutions); 3 has those of more published decoders (blocks in parallel, and without
positions); 4 those of OLMo 2 (norms within the residual branch, and of whole queries and keys); 5 those of Granite
(multipliers of embedding, attention, residual and logits), of Gemma 3 (rotary bases by block), blocks that share
weights (MobileLLM-LS), and linear biases (BLOOM).
"""
_ADDED = ("n_kv_head", "window", "qk_norm", "bias", "gated")
_ADDED_3 = ("parallel", "rope")
_ADDED_5 = ("scale", "theta", "shares")


def fields_of(description: Mapping[str, Any]) -> int:
    """The set of additions that a reader of this canonical description must understand."""
    models = [description, *([description["source"]] if "source" in description else [])]
    return max(next((number for number, is_in in _ADDITIONS if is_in(model)), 1) for model in models)


def _has_additions_5(model: Mapping[str, Any]) -> bool:
    return (
        "residual_multiplier" in model
        or model.get("positions", {}).get("kind") == "alibi"
        or "multiplier" in model.get("embedding", {})
        or "logits_scaling" in model.get("output", {})
        or any(name in block for name in _ADDED_5 for block in model.get("blocks", ()))
    )


def _has_additions_4(model: Mapping[str, Any]) -> bool:
    return model.get("norm") in ("branch", "both") or any(
        block.get("qk_norm") == "whole" for block in model.get("blocks", ())
    )


def _has_additions_3(model: Mapping[str, Any]) -> bool:
    return any(name in block for block in model.get("blocks", ()) for name in _ADDED_3)


def _has_additions_2(model: Mapping[str, Any]) -> bool:
    return (
        "norm_kind" in model
        or model.get("activation") == "silu"
        or model.get("positions", {}).get("kind") == "rotary"
        or any(
            block.get("kind") == "short_conv" or any(name in block for name in _ADDED)
            for block in model.get("blocks", ())
        )
    )


_ADDITIONS: tuple[tuple[int, Callable[[Mapping[str, Any]], bool]], ...] = (
    (5, _has_additions_5),
    (4, _has_additions_4),
    (3, _has_additions_3),
    (2, _has_additions_2),
)
