"""One ONNX file a mode, at any batch, length and past: the same numbers as the torch model's one full pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch
from built_graphs import build
from descriptions import LENGTH, descriptions
from hybrids import ENCODER, READERS, hybrid
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from passes import Arrays, empty_state, in_onnx, in_torch, inputs, lively_model, onnx_pieces
from tiny_models import lively_weights, onnx_session

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import InvalidInput
from edgefront.core.model_files.state import GraphOptions, Mode, state_specs

SHAPES = [(1, 9), (3, 6)]
WITHIN = {"float64": 1e-9, "float32": 1e-4}
DTYPES = st.sampled_from(["float64", "float32"])


def session(model: Architecture, dtype: Any, mode: Mode = "forward", **settings: Any) -> Any:
    return onnx_session(
        build(model, GraphOptions(mode=mode, dtype=dtype, **settings), weights=lively_weights(model, 1, dtype))
    )


def assert_equal(actual: NDArray[Any], expected: NDArray[Any], dtype: str) -> None:
    assert actual.dtype == dtype
    np.testing.assert_allclose(actual, expected, rtol=WITHIN[dtype], atol=WITHIN[dtype] * max(1, abs(expected).max()))


def windows(model: Architecture) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(1, 10) if model.causal and model.source is None else st.none()


@given(descriptions(), DTYPES, st.sampled_from(["all", "last", "none"]), st.data())
def test_forward(model: Architecture, dtype: str, logits: Any, data: st.DataObject) -> None:
    window = data.draw(windows(model))
    twin, graph = lively_model(model), session(model, dtype, logits=logits, window=window)
    for batch, sequence in SHAPES:
        given = inputs(model, batch, sequence)
        assert_equal(in_onnx(graph, given)[0], in_torch(twin, given, logits=logits, window=window), dtype)


@given(descriptions(causal=True, over_vocabulary=True), DTYPES, st.data())
def test_prefill_and_decode(model: Architecture, dtype: str, data: st.DataObject) -> None:
    window, twin = data.draw(windows(model)), lively_model(model)
    prefill, decode = (session(model, dtype, mode, window=window) for mode in ("prefill", "decode"))
    for batch, sequence in SHAPES:
        given = inputs(model, batch, sequence, segments=False)
        expected = in_torch(twin, given, window=window)
        first, state = in_onnx(prefill, {**given, "tokens": given["tokens"][:, :3]})
        assert list(state) == [spec.name for spec in state_specs(model, "cache")]
        tokens: Arrays = {"tokens": given["tokens"]}
        places = data.draw(st.sampled_from([[4, 5], [5], []]))  # one token at a time, several, all
        rest = onnx_pieces(decode, tokens, state, places, at=3)
        assert_equal(np.concatenate((first, rest), 1), expected, dtype)


@given(descriptions(causal=True, source=False, over_vocabulary=True), DTYPES, st.data())
@pytest.mark.parametrize(("mode", "form"), [("segment", "memory"), ("decode", "cache")])
def test_from_an_empty_state(mode: Mode, form: Any, model: Architecture, dtype: str, data: st.DataObject) -> None:
    window = data.draw(windows(model))
    twin, graph = lively_model(model), session(model, dtype, mode, window=window)
    for batch, sequence in SHAPES:
        given = inputs(model, batch, sequence, segments=False)
        places = data.draw(st.sampled_from([[1, 2, 3], [3], [2, 5]]))
        pieces = onnx_pieces(graph, given, empty_state(model, form, batch, dtype), places)
        assert_equal(pieces, in_torch(twin, given, window=window), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sines_of_far_places_are_as_good_as_of_near_ones(dtype: str) -> None:
    model = hybrid(positions={"kind": "sinusoidal"}, blocks=[{"kind": "feed_forward", "d_inner": 12}])
    far, tokens = 1_000_000, np.array([[1, 2, 3]])
    twin = lively_model(model)
    state = twin.init_cache(1)
    state["position"] = torch.tensor(far)
    with torch.inference_mode():
        expected, _ = twin(torch.from_numpy(tokens), cache=state)
    sines, left = in_onnx(session(model, dtype, "decode"), {"tokens": tokens, "position": np.array(far)})
    assert left["position"] == far + 3
    np.testing.assert_allclose(sines, expected.numpy(), rtol=0, atol={"float32": 3e-6, "float64": 1e-9}[dtype])


@pytest.mark.parametrize("positions", ["learned", "relative", "sinusoidal", "none"])
@pytest.mark.parametrize("mode", ["forward", "segment", "prefill", "decode"])
def test_graphs_are_valid_standard_onnx_with_declared_state(mode: Mode, positions: str) -> None:
    model = hybrid(positions={"kind": positions})
    built = build(model, GraphOptions(mode=mode))
    onnx.checker.check_model(built, full_check=True)
    assert [node.domain for node in built.graph.node if node.domain] == []
    names = [node.name for node in built.graph.node]
    assert len(set(names)) == len(names)
    form: Any = "memory" if mode == "segment" else "cache"
    specs = [] if mode == "forward" else state_specs(model, form)
    comes_in = specs if mode in ("segment", "decode") else []
    assert [item.name for item in built.graph.input] == ["tokens", *(spec.name for spec in comes_in)]
    assert [item.name for item in built.graph.output] == ["logits", *(f"next.{spec.name}" for spec in specs)]


def test_a_translation_decodes_without_its_source() -> None:
    model = hybrid(blocks=READERS, source=ENCODER)
    prefill, decode = (build(model, GraphOptions(mode=mode)).graph for mode in ("prefill", "decode"))
    assert {item.name for item in prefill.input} == {"tokens", "source_tokens"}
    assert "source_tokens" not in {item.name for item in decode.input}
    assert [tensor.name for tensor in decode.initializer if tensor.name.startswith("source.")] == []
    assert [tensor.name for tensor in prefill.initializer if tensor.name.startswith("source.")]


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("clamp", [None, 2])
def test_a_source_has_relative_positions_of_its_own(shared: bool, clamp: int | None) -> None:
    positions = {"kind": "relative", "shared": shared, "clamp": clamp}
    model = hybrid(blocks=READERS, source={**ENCODER, "causal": True, "positions": positions})
    given = inputs(model, 2, 6)
    assert_equal(in_onnx(session(model, "float64"), given)[0], in_torch(lively_model(model), given), "float64")


def test_a_sequence_beyond_the_positions_is_an_error_when_decoding() -> None:
    model = hybrid()
    decode = session(model, "float32", "decode")
    state = empty_state(model, "cache", 1, "float32")
    _, state = in_onnx(decode, {"tokens": np.zeros((1, LENGTH), np.int64), **state})
    with pytest.raises(Exception, match="out of data bounds"):
        in_onnx(decode, {"tokens": np.zeros((1, 1), np.int64), **state})


@pytest.mark.parametrize(
    ("model", "settings", "field", "message"),
    [
        (hybrid(causal=False), {"mode": "decode"}, "mode", "mode decode needs a causal model"),
        (hybrid(causal=False), {"window": 3}, "window", "a window needs a causal model without a source"),
        (hybrid(), {"window": 0}, "window", "at least 1, not 0"),
        (hybrid(blocks=READERS, source=ENCODER), {"mode": "segment"}, "mode", "needs a model without a source"),
    ],
)
def test_a_graph_that_makes_no_sense_is_refused(model: Any, settings: Any, field: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message) as raised:
        build(model, GraphOptions(**settings))
    assert raised.value.field == field
