"""Descriptions of earlier versions, read as the same model in the present one; and what a reader has to know.

A version of the description stays while fields with defaults are added: whoever reads descriptions says up to which of
these additions (`FIELDS`) it does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def upgraded(value: Mapping[str, Any]) -> dict[str, Any]:
    """A description of version 0 as one of version 1; what was wrong in it stays wrong, and is named by the parser.

    Version 0 left out the kind of positions, which could only be learned ones, and spelled out three choices that it
    did not have yet.
    """
    new = {**value, "version": 1}
    if isinstance(value.get("positions"), Mapping):
        new["positions"] = {"kind": "learned", **value["positions"]}
    if isinstance(value.get("embedding"), Mapping):
        new["embedding"] = {name: part for name, part in value["embedding"].items() if (name, part) != ("tied", True)}
    return new


FIELDS = 2
"""Additions to version 1 that this release reads. 1: none. 2: the fields and blocks of today's decoders (grouped
queries, windows, query norms, gates and biases by block, rotary positions, RMS norms, silu, short convolutions).
"""
_ADDED = ("n_kv_head", "window", "qk_norm", "bias", "gated")


def fields_of(description: Mapping[str, Any]) -> int:
    """Up to which additions a reader of this canonical description must know them."""
    models = [description, *([description["source"]] if "source" in description else [])]
    return max(2 if _is_of_today(model) else 1 for model in models)


def _is_of_today(model: Mapping[str, Any]) -> bool:
    return (
        "norm_kind" in model
        or model.get("activation") == "silu"
        or model.get("positions", {}).get("kind") == "rotary"
        or any(
            block.get("kind") == "short_conv" or any(name in block for name in _ADDED)
            for block in model.get("blocks", ())
        )
    )
