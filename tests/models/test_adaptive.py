"""The adaptive embedding and softmax against a reference that handles one token at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from tiny_models import adaptive, as_tensors, lively_weights, onnx_session, random_tokens, run_onnx

from edgefront.core.graph.build import build
from edgefront.core.graph.options import GraphOptions
from edgefront.core.nn.load import load
from edgefront.core.nn.model import LanguageModel
from edgefront.core.spaces.architecture import Architecture

Weights = dict[str, NDArray[Any]]
WIDTHS = [{}, {"d_embed": 24}, {"div": 1}, {"div": 1, "d_embed": 24}, {"div": 2, "d_embed": 9, "scaled": False}]
OUTPUTS = [
    {"kind": "tokens"},
    {"kind": "tokens", "tied_projections": "all"},
    {"kind": "tokens", "tied_projections": "none", "bias": False},
    {"kind": "tokens", "tied": False},
]
MODELS = [adaptive(output=output, **width) for width in WIDTHS for output in OUTPUTS]


def _cluster(model: Architecture, token: int) -> tuple[int, int, int]:
    """(cluster, its first token, the token's row in it)."""
    edges = [0, *model.embedding.cutoffs]
    cluster = max(index for index, edge in enumerate(edges) if token >= edge)
    return cluster, edges[cluster], token - edges[cluster]


def _row(model: Architecture, weights: Weights, token: int, of: str = "embedding") -> NDArray[Any]:
    """The token's row in the tables of the embedding or of the output."""
    cluster, _, row = _cluster(model, token)
    return weights[f"{of}.tables.{cluster}"][row] if model.embedding.div > 1 else weights[f"{of}.tables.0"][token]


def reference_embedding(model: Architecture, weights: Weights, token: int) -> NDArray[Any]:
    cluster = _cluster(model, token)[0] if model.embedding.div > 1 else 0
    row, projection = _row(model, weights, token), weights.get(f"embedding.projections.{cluster}")
    vector = row if projection is None else projection @ row
    return vector if model.embedding.scaled is False else math.sqrt(model.d_model) * vector


def _features(model: Architecture, weights: Weights, hidden: NDArray[Any], cluster: int) -> NDArray[Any]:
    """The hidden state as the cluster's table sees it: tied, a tail uses the embedding's projection backwards."""
    table, output = (cluster if model.embedding.div > 1 else 0), model.output
    if f"embedding.projections.{table}" not in weights:
        return hidden
    ties = {"tails": cluster > 0, "all": True, "none": False}[output.tied_projections] and output.tied
    return (
        hidden @ weights[f"embedding.projections.{table}"] if ties else weights[f"output.projections.{table}"] @ hidden
    )


def reference_log_probability(model: Architecture, weights: Weights, hidden: NDArray[Any], token: int) -> float:
    """log p(token) by the definition: the head's softmax over its tokens and the tails, then the tail's own."""
    edges = [0, *model.embedding.cutoffs, model.embedding.vocab_size]
    features = [_features(model, weights, hidden, cluster) for cluster in range(len(edges) - 1)]
    at_head = features[0]

    def score(other: int) -> float:
        row = _row(model, weights, other, "embedding" if model.output.tied else "output")
        bias = weights["output.bias"][other] if "output.bias" in weights else 0.0
        return float(row @ features[_cluster(model, other)[0]] + bias)

    entries = weights["output.cluster_weight"] @ at_head + weights["output.cluster_bias"]
    head = [score(other) for other in range(edges[1])] + entries.tolist()
    log_head = math.log(sum(math.exp(value) for value in head))
    cluster, _, _ = _cluster(model, token)
    if cluster == 0:
        return head[token] - log_head
    tail = [score(other) for other in range(edges[cluster], edges[cluster + 1])]
    log_tail = math.log(sum(math.exp(value) for value in tail))
    chance = head[edges[1] + cluster - 1] - log_head
    return chance + score(token) - log_tail


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.digest[:6])
def test_embedding_is_the_reference(model: Architecture) -> None:
    weights = lively_weights(model, 1, "float64")
    twin = load(LanguageModel(model), as_tensors(weights))
    tokens = torch.arange(model.embedding.vocab_size)[None]
    expected = [reference_embedding(model, weights, token) for token in range(model.embedding.vocab_size)]
    with torch.inference_mode():
        np.testing.assert_allclose(twin.embedding(tokens)[0].numpy(), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.digest[:6])
def test_log_probabilities_are_the_reference_in_both(model: Architecture) -> None:
    weights = lively_weights(model, 2, "float64")
    twin = load(LanguageModel(model), as_tensors(weights))
    tokens = random_tokens(model, 1, 3)
    with torch.inference_mode():
        hidden = twin(torch.from_numpy(tokens), "none").numpy()[0]
        in_torch = twin(torch.from_numpy(tokens)).numpy()[0]
    in_onnx = run_onnx(onnx_session(build(model, GraphOptions(dtype="float64"), weights=weights)), tokens)[0]
    vocabulary = range(model.embedding.vocab_size)
    expected = [[reference_log_probability(model, weights, state, token) for token in vocabulary] for state in hidden]
    np.testing.assert_allclose(in_torch, expected, rtol=1e-10)
    np.testing.assert_allclose(in_onnx, expected, rtol=1e-10)
