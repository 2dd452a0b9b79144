"""What holds of the torch model and the ONNX graph alike: names, weights, errors (numbers: `test_modes_agree`)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from built_graphs import build
from descriptions import descriptions
from hypothesis import given
from tiny_models import LENGTH, adaptive, architecture, onnx_session, random_tokens, run_onnx

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.parameters import parameters
from edgefront.core.common.errors import InvalidInput
from edgefront.core.model_files.formats import WeightCache
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import fill

EVERY_EMBEDDING = [
    architecture(),
    architecture(embedding={"vocab_size": 97, "d_embed": 8}),
    adaptive(),
    adaptive(d_embed=24),
    adaptive(div=1),
    adaptive(div=1, d_embed=24),
]


@given(descriptions())
def test_names_and_shapes_are_the_same_everywhere(model: Architecture) -> None:
    expected = {spec.name: spec.shape for spec in parameters(model)}
    assert len(expected) == len(parameters(model))
    assert {name: tuple(value.shape) for name, value in LanguageModel(model).state_dict().items()} == expected
    in_onnx = {tensor.name: tuple(tensor.dims) for tensor in build(model).graph.initializer}
    assert {name: shape for name, shape in in_onnx.items() if not name.startswith("constant_")} == expected


@pytest.mark.parametrize("model", EVERY_EMBEDDING, ids=lambda model: model.digest[:6])
def test_one_seed_gives_both_the_same_weights_from_a_cache_or_not(model: Architecture, tmp_path: Path) -> None:
    cache = WeightCache(tmp_path)
    tokens = random_tokens(model, 2, LENGTH)
    cached = run_onnx(onnx_session(build(model, weights=cache, seed=5), cache), tokens)
    inside = run_onnx(onnx_session(build(model, seed=5)), tokens)
    with torch.inference_mode():
        mapped = fill(LanguageModel(model), 5, cache)(torch.from_numpy(tokens)).numpy()
        copied = fill(LanguageModel(model), 5)(torch.from_numpy(tokens)).numpy()
    np.testing.assert_array_equal(cached, inside)
    np.testing.assert_array_equal(mapped, copied)
    np.testing.assert_allclose(cached, mapped, rtol=1e-4, atol=1e-4)
    other = run_onnx(onnx_session(build(model, seed=6)), tokens)
    assert abs(other - cached).max() > 1e-3


def test_more_tokens_than_positions_is_an_error_in_both() -> None:
    model = architecture()
    tokens = random_tokens(model, 1, LENGTH + 1)
    with pytest.raises(InvalidInput, match=f"{LENGTH + 1} tokens is longer than the model's {LENGTH} positions"):
        fill(LanguageModel(model), 0)(torch.from_numpy(tokens))
    with pytest.raises(Exception, match="out of data bounds"):
        run_onnx(onnx_session(build(model)), tokens)


@pytest.mark.parametrize("model", EVERY_EMBEDDING, ids=lambda model: model.digest[:6])
def test_a_token_outside_the_vocabulary_is_an_error_in_both(model: Architecture) -> None:
    tokens = np.array([[3, 97]])
    with pytest.raises(IndexError):
        fill(LanguageModel(model), 0)(torch.from_numpy(tokens))
    with pytest.raises(Exception, match="out of data bounds"):
        run_onnx(onnx_session(build(model)), tokens)
