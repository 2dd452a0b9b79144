"""Σ (−W ⊙ H·g), H the Hessian of the loss and g its gradient by the linear layers (Wang et al. 2020, eq. 8)."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from torch import Tensor

from edgefront.core.data.batches.batch import Batch
from edgefront.core.nn.model import LanguageModel
from edgefront.core.proxies.settings import ProxySettings
from edgefront.core.proxies.untrained import (
    batch_for,
    gradients,
    linear_weights,
    loss_of,
    plain_attention,
    untrained,
)
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Sru, Srupp

STEP = 1e-4
"""Length of the step along g, relative to the weights', where H·g is a difference of gradients."""


def score(
    architecture: Architecture, seed: int, settings: ProxySettings, device: str = "cpu", data: Path | None = None
) -> float:
    """GraSP of a model. It falls as language models get better, so lower is better, as LTS's own study has it."""
    # The sum is in float64: its terms are of both signs and cancel.
    model = untrained(architecture, seed, device, torch.float64)
    batch = batch_for(model, settings, seed, data)
    if _differentiable_once(architecture):
        products = _by_difference(model, batch)
    else:
        with plain_attention():
            products = _exact(model, batch)
    weights = [weight.detach() for _, weight in linear_weights(model)]
    return -sum(float((weight * product).sum()) for weight, product in zip(weights, products, strict=True))


def _differentiable_once(architecture: Architecture) -> bool:
    """The compiled recurrence has no second derivative."""
    models = [architecture, *([architecture.source] if architecture.source is not None else [])]
    return any(isinstance(block, Sru | Srupp) for model in models for block in model.blocks)


def _exact(model: LanguageModel, batch: Batch) -> list[Tensor]:
    """H·g for each of the linear weights, by differentiating the product of g with the gradient."""
    weights = [weight for _, weight in linear_weights(model)]
    first = torch.autograd.grad(loss_of(model, batch), weights, create_graph=True, materialize_grads=True)
    product = sum((gradient * gradient.detach()).sum() for gradient in first)
    return list(torch.autograd.grad(product, weights, materialize_grads=True))


def _by_difference(model: LanguageModel, batch: Batch) -> list[Tensor]:
    """H·g as the central difference of the gradients a small step along g to either side."""
    weights = [weight for _, weight in linear_weights(model)]
    direction = [gradient for _, _, gradient in gradients(model, batch)]
    length = _norm(direction)
    if length == 0.0:
        return direction
    step = STEP * _norm([weight.detach() for weight in weights]) / length
    ends = []
    for sign in (1.0, -2.0):  # from the middle to one side, from there to the other
        with torch.no_grad():
            for weight, along in zip(weights, direction, strict=True):
                weight.add_(along, alpha=sign * step)
        ends.append([gradient for _, _, gradient in gradients(model, batch)])
    with torch.no_grad():
        for weight, along in zip(weights, direction, strict=True):
            weight.add_(along, alpha=step)
    return [(after - before) / (2 * step) for after, before in zip(*ends, strict=True)]


def _norm(tensors: list[Tensor]) -> float:
    return math.sqrt(sum(float(tensor.square().sum()) for tensor in tensors))
