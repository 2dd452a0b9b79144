"""Σ |W ⊙ ∂R/∂W|, R what comes out where ones go in and all weights are magnitudes (Tanaka et al. 2020, eq. 1 and 2).

As LTS's code has it: the tokens' part of the embedding is ones, positions stay; layer norms stay too, without which the
flow through a deep stack leaves the range of float64; embedding and output layer do not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from edgefront.core.errors import InvalidInput
from edgefront.core.proxies.batch import generator
from edgefront.core.proxies.settings import ProxySettings
from edgefront.core.proxies.untrained import linear_weights, untrained
from edgefront.core.spaces.architecture import Architecture


def score(architecture: Architecture, seed: int, settings: ProxySettings, device: str = "cpu", *_: object) -> float:
    """Higher is better. One sequence, for they are all the same; in float64.

    R is the hidden states' sum along one random direction of positive numbers, which stands for the output layer: the
    plain sum of normed states would be that of the norm's biases, whatever the weights.
    """
    model = untrained(architecture, seed, device, torch.float64)
    weights = [weight for _, weight in linear_weights(model)]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.abs_()
    for part in (model, model.source):
        if part is not None:
            part.embedding.register_forward_hook(_ones)
    tokens = torch.zeros(1, settings.length, dtype=torch.int64, device=device)
    states = model(tokens, "none", source=None if model.source is None else tokens)
    direction = torch.as_tensor(abs(generator(seed).standard_normal(states.shape[-1])), device=device)
    total = sum(flows((states @ direction).sum(), weights))
    if total == 0.0:
        raise InvalidInput(
            "synflow is 0 for this model: its layer norms turn the input of ones into zeros, and it has no positions",
            field="architecture",
            value=architecture.digest,
            allowed="a model with norm post or with positions that are added to the embedding, or another proxy",
        )
    return total


def flows(out: Tensor, weights: Sequence[Tensor]) -> list[float]:
    """Σ |W ⊙ ∂out/∂W| of each weight. In a stack of linear layers it is `out` for each of them (Tanaka et al., §4)."""
    gradients = torch.autograd.grad(out, list(weights), materialize_grads=True)
    return [
        float((weight.detach() * gradient).abs().sum()) for weight, gradient in zip(weights, gradients, strict=True)
    ]


def _ones(_: Any, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
    """Replaces an embedding's output by ones and what was added to it for positions."""
    positions = arguments[2] if len(arguments) > 2 else None
    ones = torch.ones_like(output)
    return ones if positions is None else ones + positions
