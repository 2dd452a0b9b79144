"""Stretched positions of today's decoders, and what their windows and convolutions keep (numbers: `test_state`)."""

from __future__ import annotations

import math
from typing import Any

import pytest

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.embeddings_and_head import RotaryPositions
from edgefront.core.model_files.positions import rotary_frequencies
from edgefront.core.model_files.state import state_specs


def decoder(**changes: Any) -> Architecture:
    description = {
        "d_model": 12,
        "positions": {"kind": "rotary"},
        "norm_kind": "rms",
        "norm_eps": "1e-3",
        "activation": "silu",
        "embedding": {"vocab_size": 17},
        "blocks": [
            {
                "kind": "attention",
                "n_head": 6,
                "d_head": 4,
                "n_kv_head": 2,
                "qk_norm": True,
                "bias": "qkv",
                "window": 3,
            },
            {"kind": "feed_forward", "d_inner": 10, "gated": True, "bias": False},
            {"kind": "attention", "n_head": 3, "bias": "none"},
        ],
    }
    return Architecture.parse({**description, **changes})


def test_frequencies_are_stretched_as_by_llama() -> None:
    """The formula of Llama 3.1 by wavelengths, as transformers has it, over a width where all its cases occur."""
    positions = RotaryPositions.model_validate({"theta": 500_000, "scaling": {"factor": 32, "length": 8192}})
    plain = rotary_frequencies(RotaryPositions(theta=500_000), 64)
    cases = set()
    for frequency, was in zip(rotary_frequencies(positions, 64), plain, strict=True):
        wave = 2 * math.pi / was
        smooth = (8192 / wave - 1) / (4 - 1)
        case = "long" if wave > 8192 / 1 else "short" if wave < 8192 / 4 else "between"
        expected = {"long": was / 32, "short": was, "between": (1 - smooth) * was / 32 + smooth * was}[case]
        assert frequency == pytest.approx(expected, rel=1e-12)
        cases.add(case)
    assert cases == {"long", "short", "between"}


@pytest.mark.parametrize("form", ["cache", "memory"])
def test_a_window_bounds_what_is_kept(form: Any) -> None:
    sizes = {spec.name: spec.sizes(2, 1000) for spec in state_specs(decoder(), form)}
    if form == "memory":
        assert sizes == {"blocks.0.memory": (2, 2, 12), "blocks.2.memory": (2, 1000, 12)}
    else:
        assert sizes == {
            "position": (),
            **{f"blocks.0.{part}": (2, 2, 2, 4) for part in ("keys", "values")},
            **{f"blocks.2.{part}": (2, 3, 1000, 4) for part in ("keys", "values")},
        }


@pytest.mark.parametrize("form", ["cache", "memory"])
def test_a_convolution_keeps_its_last_inputs(form: Any) -> None:
    model = decoder(blocks=[{"kind": "short_conv", "kernel": 4}, {"kind": "short_conv", "kernel": 2, "bias": True}])
    assert [(spec.name, spec.sizes(2, 1000)) for spec in state_specs(model, form)] == [
        ("blocks.0.inputs", (2, 3, 12)),
        ("blocks.1.inputs", (2, 1, 12)),
    ]
