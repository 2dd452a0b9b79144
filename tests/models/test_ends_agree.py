"""Every embedding and every output of the descriptions: the torch model and the ONNX graph are the same function."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from built_graphs import build
from passes import in_torch, inputs
from tiny_models import LENGTH, adaptive, architecture, as_tensors, lively_weights, onnx_session, random_tokens

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import InvalidInput
from edgefront.core.model_files.state import GraphOptions
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import load


def plain(output: dict[str, Any] | None = None, **embedding: Any) -> Architecture:
    return architecture(embedding={"vocab_size": 97, **embedding}, output=output or {"kind": "tokens"})


def bert(**output: Any) -> Architecture:
    return architecture(
        causal=False, norm="post", norm_eps="1e-12", activation="gelu", output=output,
        embedding={"vocab_size": 97, "segments": 2, "norm": True},
    )  # fmt: skip


def tokens(**output: Any) -> dict[str, Any]:
    return {"kind": "tokens", **output}


TRANSLATION = architecture(
    embedding={"vocab_size": 97, "d_embed": 8, "scaled": True},
    blocks=[{"kind": "attention", "n_head": 4, "attends": "both"}, {"kind": "feed_forward", "d_inner": 24}],
    output=tokens(tied_projections="all"),
    source={
        "d_model": 16,
        "causal": False,
        "norm": "post",
        "embedding": {"vocab_size": 89, "cutoffs": [30], "div": 2, "segments": 3, "norm": True},
        "blocks": [{"kind": "attention", "n_head": 2}, {"kind": "feed_forward", "d_inner": 20}],
        "output": {"kind": "none"},
    },
)

MODELS = {
    "plain": plain(),
    "plain, bias": plain(tokens(bias=True)),
    "plain, untied": plain(tokens(tied=False)),
    "plain, scaled": plain(scaled=True),
    "plain, segments, norm": plain(segments=3, norm=True),
    "projected": plain(d_embed=8),
    "projected, all tied": plain(tokens(tied_projections="all", bias=True), d_embed=24),
    "projected, none tied": plain(tokens(tied_projections="none"), d_embed=8),
    "projected, untied": plain(tokens(tied=False, bias=True), d_embed=24),
    "adaptive": adaptive(),
    "adaptive, all tied": adaptive(tokens(tied_projections="all"), scaled=False),
    "adaptive, none tied": adaptive(tokens(tied_projections="none")),
    "adaptive, untied": adaptive(tokens(tied=False), d_embed=24),
    "adaptive, no bias": adaptive(tokens(bias=False), segments=2, norm=True),
    "one table": adaptive(div=1),
    "one table, projected": adaptive(div=1, d_embed=24),
    "one table, all tied": adaptive(tokens(tied_projections="all"), div=1, d_embed=8),
    "one table, none tied": adaptive(tokens(tied_projections="none", bias=False), div=1, d_embed=24),
    "one table, untied": adaptive(tokens(tied=False), div=1, d_embed=8),
    "masked tokens": bert(kind="masked_tokens"),
    "masked tokens, untied": bert(kind="masked_tokens", tied=False, bias=False),
    "masked tokens, projected": architecture(
        causal=False, activation="relu", embedding={"vocab_size": 97, "d_embed": 8}, output={"kind": "masked_tokens"}
    ),
    "pooled": bert(kind="pooled"),
    "classes": bert(kind="classes", classes=3),
    "one class": bert(kind="classes", classes=1),
    "spans": bert(kind="spans"),
    "none": bert(kind="none"),
    "final norm after post-norm": architecture(norm="post", final_norm=True),
    "no final norm after pre-norm": architecture(final_norm=False),
    "translation": TRANSLATION,
}
SHAPES = [(1, LENGTH), (3, 7)]


def expected_shape(model: Architecture, logits: str, batch: int, sequence: int) -> tuple[int, ...]:
    kind = model.output.kind
    if kind == "none" or logits == "none":
        return batch, sequence, model.d_model
    if kind in ("pooled", "classes"):
        return batch, model.output.classes or model.d_model
    width = 2 if kind == "spans" else model.embedding.vocab_size
    return (batch, sequence, width) if logits == "all" else (batch, width)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("logits", ["all", "last", "none"])
@pytest.mark.parametrize(("dtype", "within"), [("float64", 1e-9), ("float32", 1e-4)])
def test_torch_and_onnx_agree_at_two_shapes(name: str, logits: str, dtype: str, within: float) -> None:
    model = MODELS[name]
    weights = lively_weights(model, seed=1, dtype=dtype)
    twin = load(LanguageModel(model), as_tensors(weights))
    session = onnx_session(build(model, GraphOptions(logits=logits, dtype=dtype), weights=weights))
    for batch, sequence in SHAPES:
        given = inputs(model, batch, sequence, source=sequence + 2)
        expected = in_torch(twin, given, logits=logits)
        (outputs,) = session.run(None, given)
        assert outputs.dtype == expected.dtype == np.dtype(dtype)
        assert outputs.shape == expected.shape == expected_shape(model, logits, batch, sequence)
        assert abs(expected).max() > 0.01
        np.testing.assert_allclose(outputs, expected, rtol=within, atol=within)


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_matters(name: str) -> None:
    model = MODELS[name]
    twin = load(LanguageModel(model), as_tensors(lively_weights(model, 4, "float64")))
    given = {key.removesuffix("_tokens"): torch.from_numpy(value) for key, value in inputs(model, 8, LENGTH).items()}
    out = twin(**given)
    (out * torch.randn(out.shape, generator=torch.Generator().manual_seed(0), dtype=out.dtype)).sum().backward()
    assert [key for key, value in twin.named_parameters() if value.grad is None or not value.grad.abs().max() > 0] == []


def test_absent_segments_are_the_first_kind() -> None:
    model = MODELS["plain, segments, norm"]
    twin = load(LanguageModel(model), as_tensors(lively_weights(model, 3)))
    given = {"tokens": random_tokens(model, 2, 9)}
    zeros = {**given, "segments": np.zeros((2, 9), np.int64)}
    np.testing.assert_allclose(in_torch(twin, given), in_torch(twin, zeros), rtol=1e-6, atol=1e-6)


def test_segments_that_the_model_has_not_are_named() -> None:
    twin = LanguageModel(plain())
    given = torch.zeros((1, 3), dtype=torch.int64)
    with pytest.raises(InvalidInput, match="this model has no segments") as raised:
        twin(given, segments=given)
    assert raised.value.field == "segments"
