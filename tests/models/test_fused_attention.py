"""Decode graphs that write in place, with ONNX Runtime's own attention and without: the numbers of one full pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from built_graphs import build
from numpy.typing import NDArray
from passes import Arrays, empty_state, in_torch, inputs, lively_model
from tiny_models import lively_weights, onnx_session

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.model_files.state import GraphOptions, state_specs, writes_in_place

LENGTH = 11
GATED = {"kind": "feed_forward", "d_inner": 40, "gated": True, "bias": False}
GROUPED = {"kind": "attention", "n_head": 4, "n_kv_head": 2, "bias": "none"}
ROTARY: dict[str, Any] = {
    "positions": {"kind": "rotary"},
    "norm_kind": "rms",
    "activation": "silu",
    "blocks": [{**GROUPED, "d_head": 16}, GATED, {**GROUPED, "n_kv_head": 1, "d_head": 32}],
}
SCALING = {"factor": 8, "low": 1, "high": 4, "length": 16}
MODELS: dict[str, dict[str, Any]] = {
    "gpt": {
        "positions": {"kind": "learned", "length": 24},
        "blocks": [{"kind": "attention", "n_head": 4}, {"kind": "feed_forward", "d_inner": 40}],
    },
    "sinusoidal": {"positions": {"kind": "sinusoidal"}, "blocks": [{"kind": "attention", "n_head": 2}]},
    "llama": ROTARY,
    "stretched": {**ROTARY, "positions": {"kind": "rotary", "theta": 500, "scaling": SCALING}},
    "part of a head turns": {
        **ROTARY,
        "positions": {"kind": "rotary", "percent": 50},
        "blocks": [{**GROUPED, "d_head": 32}],
    },
    "norms of queries and keys": {**ROTARY, "blocks": [{**GROUPED, "d_head": 16, "qk_norm": True}, GATED]},
    "biases": {**ROTARY, "blocks": [{**GROUPED, "d_head": 16, "bias": "qkv"}, GATED]},
    "a scale of its own": {
        **ROTARY,
        "residual_multiplier": "0.5",
        "blocks": [{**GROUPED, "d_head": 16, "scale": "0.7"}, GATED, {**GROUPED, "d_head": 16}],
    },
    "two rotary bases": {
        **ROTARY,
        "norm": "both",
        "blocks": [
            {**GROUPED, "d_head": 16, "theta": 50, "window": 4},
            {**GROUPED, "d_head": 16, "theta": 9},
            {**GROUPED, "d_head": 16, "qk_norm": True, "scale": "0.7"},
        ],
    },
    "convolution and window": {
        **ROTARY,
        "blocks": [{"kind": "short_conv"}, {**GROUPED, "d_head": 16}, {**GROUPED, "d_head": 16, "window": 4}],
    },
}
PLAIN: dict[str, dict[str, Any]] = {
    "narrow heads": {**ROTARY, "blocks": [{**GROUPED, "d_head": 8}]},
    "odd heads": {"positions": {"kind": "sinusoidal"}, "blocks": [{"kind": "attention", "n_head": 4, "d_head": 6}]},
    "only a window": {**ROTARY, "blocks": [{**GROUPED, "d_head": 16, "window": 4}]},
    "no positions": {"positions": {"kind": "none"}, "blocks": [{"kind": "attention", "n_head": 4, "d_head": 16}]},
}


def model_of(parts: dict[str, Any]) -> Architecture:
    return Architecture.parse({"d_model": 32, "embedding": {"vocab_size": 97}, **parts})


def graph_of(model: Architecture, fused: int | None = LENGTH) -> Any:
    return build(model, GraphOptions(mode="decode", in_place=True, fused=fused), weights=lively_weights(model, 1))


def pieces(session: ort.InferenceSession, model: Architecture, tokens: NDArray[np.int64], cuts: list[int]) -> Any:
    """The scores of the tokens in pieces that end at `cuts`, with buffers bound as input and output."""
    batch = len(tokens)
    state: dict[str, Any] = dict(empty_state(model, "cache", batch, "float32"))
    buffers = {
        spec.name: np.zeros(spec.sizes(batch, LENGTH), np.float32)
        for spec in state_specs(model, "cache")
        if writes_in_place(model, spec)
    }
    state = {name: ort.OrtValue.ortvalue_from_numpy(value) for name, value in {**state, **buffers}.items()}
    names, parts, at = [output.name for output in session.get_outputs()], [], 0
    for cut in cuts:
        binding = session.io_binding()
        binding.bind_cpu_input("tokens", np.ascontiguousarray(tokens[:, at:cut]))
        for name, value in state.items():
            binding.bind_ortvalue_input(name, value)
        for name in names:
            entry = name.removeprefix("next.")
            if entry in buffers:
                binding.bind_ortvalue_output(name, state[entry])
            else:
                binding.bind_output(name)
        session.run_with_iobinding(binding)
        left = dict(zip(names, binding.get_outputs(), strict=True))
        parts.append(left.pop(names[0]).numpy())
        state = {name.removeprefix("next."): value for name, value in left.items()}
        at = cut
    return np.concatenate(parts, 1)


def operators(graph: Any) -> list[str]:
    return [node.op_type for node in graph.graph.node]


@pytest.mark.parametrize(
    ("batch", "cuts"),
    [(1, [3, *range(4, LENGTH + 1)]), (2, [3, *range(4, LENGTH + 1)]), (1, [3, 8, 9, LENGTH]), (2, [LENGTH])],
)
@pytest.mark.parametrize("name", MODELS)
def test_it_gives_the_scores_of_one_full_pass(name: str, batch: int, cuts: list[int]) -> None:
    model = model_of(MODELS[name])
    given: Arrays = inputs(model, batch, LENGTH)
    graph = graph_of(model)
    assert "GroupQueryAttention" in operators(graph)
    scores = pieces(onnx_session(graph), model, given["tokens"], cuts)
    expected = in_torch(lively_model(model), given)
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4 * max(1, abs(expected).max()))


@pytest.mark.parametrize("name", [*MODELS, *PLAIN])
def test_operators_of_the_standard_give_them_too(name: str) -> None:
    model = model_of({**MODELS, **PLAIN}[name])
    given = inputs(model, 2, LENGTH)
    graph = graph_of(model, LENGTH if name in PLAIN else None)
    assert "GroupQueryAttention" not in operators(graph)
    scores = pieces(onnx_session(graph), model, given["tokens"], [3, 4, 9, LENGTH])
    expected = in_torch(lively_model(model), given)
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-4 * max(1, abs(expected).max()))
