"""Tests the number formats of a runtime's providers by passes of tiny models with all kinds of blocks."""

from __future__ import annotations

import tempfile
from pathlib import Path

from edgefront.agents.measuring.request import LaunchRequest
from edgefront.agents.measuring.runtimes import build
from edgefront.core.measurement.protocol import MeasurementProtocol, Runtime
from edgefront.core.number_formats import KnownFormat
from edgefront.core.spaces.architecture import Architecture

_FEED_FORWARD = {"kind": "feed_forward", "d_inner": 64}
_MODELS = tuple(
    Architecture.parse({"d_model": 32, **parts})
    for parts in (
        {
            "positions": {"kind": "learned", "length": 64},
            "embedding": {"vocab_size": 96},
            "blocks": [{"kind": "attention", "n_head": 2}, _FEED_FORWARD],
        },
        {
            "positions": {"kind": "relative"},
            "norm": "post",
            "activation": "relu",
            "embedding": {"vocab_size": 96, "cutoffs": [32], "div": 2},
            "blocks": [
                {"kind": "attention", "n_head": 2},
                _FEED_FORWARD,
                {"kind": "srupp", "d_attn": 16},
                {"kind": "sru"},
            ],
        },
        {
            "positions": {"kind": "rotary"},
            "norm_kind": "rms",
            "activation": "silu",
            "embedding": {"vocab_size": 96},
            "blocks": [
                {"kind": "short_conv"},
                {"kind": "attention", "n_head": 2, "n_kv_head": 1, "qk_norm": True, "bias": "none", "window": 4},
                {**_FEED_FORWARD, "gated": True, "bias": False},
            ],
        },
    )
)


def computes_in(number_format: KnownFormat, runtime: Runtime, provider: str) -> bool:
    """Whether this provider computes in this number format. The provider stays loaded."""
    choice = {"weights": "int8"} if number_format == "int8" else {"dtype": number_format}
    protocol = MeasurementProtocol(
        runtime=runtime, provider=provider, sequence_length=8, memory="resident", logits="all", **choice
    )
    with tempfile.TemporaryDirectory(prefix="edgefront-trial-") as folder:
        return all(
            _passes(
                number_format,
                LaunchRequest(architecture=model.canonical, protocol=protocol, seed=0, cache=Path(folder)),
            )
            for model in _MODELS
        )


def _passes(number_format: KnownFormat, request: LaunchRequest) -> bool:
    if request.protocol.runtime == "onnxruntime":
        from edgefront.agents.measuring.runtimes.onnx_runtime import computes_in

        return computes_in(number_format, request)
    try:
        model = build(request)
        model.forward_ms()
    except Exception:  # no kernel, no engine for int8, not enough memory …: unsupported
        return False
    return model.finite()
