"""A small model of each family that llama.cpp runs, and protocols of generation."""

from __future__ import annotations

from typing import Any

import subjects

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.measurement.protocol import MeasurementProtocol

ROTARY: dict[str, Any] = {"positions": {"kind": "rotary"}, "norm_kind": "rms", "activation": "silu"}
GROUPED: dict[str, Any] = {"kind": "attention", "n_head": 4, "n_kv_head": 2, "bias": "none"}
GATED: dict[str, Any] = {"kind": "feed_forward", "d_inner": 96, "gated": True, "bias": False}
LOCAL: dict[str, Any] = {**GROUPED, "qk_norm": True, "window": 8}
FAMILIES: dict[str, list[dict[str, Any]]] = {
    "llama": [GROUPED, GATED] * 2,
    "deci": [GROUPED, GATED, {**GATED, "d_inner": 160}, GROUPED],
    "qwen2": [{**GROUPED, "bias": "qkv"}, GATED] * 2,
    "qwen3": [{**GROUPED, "qk_norm": True}, GATED] * 2,
    "lfm2": [{"kind": "short_conv"}, GATED, {**GROUPED, "qk_norm": True}, GATED],
    "granite": [{**GROUPED, "scale": "0.1"}, GATED] * 2,
    "gemma3": [*[LOCAL, GATED] * 5, {**GROUPED, "qk_norm": True, "theta": 10_000}, GATED],
}
FRAMES: dict[str, dict[str, Any]] = {
    "granite": {"residual_multiplier": "0.22", "embedding": {"vocab_size": 300, "multiplier": 12}},
    "gemma3": {"norm": "both", "activation": "gelu_tanh", "embedding": {"vocab_size": 300, "scaled": True}},
}
"""What they have beside their blocks."""


def model_of(family: str) -> Architecture:
    if family == "gpt2":
        return subjects.gpt()
    frame = {**ROTARY, "d_model": 64, "embedding": {"vocab_size": 300}, **FRAMES.get(family, {})}
    return Architecture.parse({**frame, "blocks": FAMILIES[family]})


def generation(runtime: str = "llamacpp", **fields: Any) -> MeasurementProtocol:
    short = {"mode": "generate", "sequence_length": 11, "new_tokens": 8}
    return MeasurementProtocol.model_validate({"runtime": runtime, **short, **fields})
