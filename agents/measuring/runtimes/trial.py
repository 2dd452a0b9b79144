"""Tests the number formats of a runtime's providers by passes of tiny models with all kinds of blocks."""

from __future__ import annotations

import tempfile
from pathlib import Path

from pydantic import ValidationError

from edgefront.agents.measuring.request import LaunchRequest
from edgefront.agents.measuring.runtimes import library
from edgefront.core.measurement.passes import runtime_fault
from edgefront.core.measurement.protocol import MeasurementProtocol, Runtime
from edgefront.core.number_formats import QUANTISED, NumberFormat
from edgefront.core.processes.folders import CHILD
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
            "blocks": [{"kind": "attention", "n_head": 2}, _FEED_FORWARD],
        },
        {
            "positions": {"kind": "none"},
            "embedding": {"vocab_size": 96},
            "blocks": [{"kind": "srupp", "d_attn": 16}, {"kind": "sru"}],
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


def computes_in(number_format: NumberFormat, runtime: Runtime, provider: str) -> bool:
    """Whether this provider computes in this number format. The provider stays loaded."""
    choice = {"weights" if number_format in QUANTISED else "dtype": number_format}
    try:
        protocol = MeasurementProtocol(
            runtime=runtime, provider=provider, sequence_length=8, memory="resident", **choice
        )
    except ValidationError:  # not a format of this runtime
        return False
    with tempfile.TemporaryDirectory(prefix=CHILD) as folder:
        return all(
            library(runtime).computes_in(
                number_format,
                LaunchRequest(architecture=model.canonical, protocol=protocol, seed=0, cache=Path(folder)),
            )
            for model in _MODELS
            if runtime_fault(model, protocol) is None
        )
