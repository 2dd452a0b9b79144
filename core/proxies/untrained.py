"""An untrained model, its loss on the batch, and the weights that proxies sum over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from edgefront.core.data.batches.batch import IGNORED, Batch
from edgefront.core.nn.layers import Linear
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import fill
from edgefront.core.proxies.batch import batch_of
from edgefront.core.proxies.scorable import scorable
from edgefront.core.proxies.settings import ProxySettings
from edgefront.core.spaces.architecture import Architecture


def untrained(
    architecture: Architecture, seed: int, device: str = "cpu", dtype: torch.dtype | None = None
) -> LanguageModel:
    """The model over its vocabulary, in train mode (without dropout), with the seed's weights.

    They are those that devices measure (`core.graph.random_values`): standard deviation 0.02 as in the initialisation
    of GPT-2 and Transformer-XL, biases 0, norms 1; the same on every platform.
    """
    model = fill(LanguageModel(scorable(architecture)).to(device=device, dtype=dtype or torch.float32), seed)
    model.train()
    return model


def batch_for(model: LanguageModel, settings: ProxySettings, seed: int, data: Path | None = None) -> Batch:
    return batch_of(model.architecture, settings, seed, data)


def hidden_states(model: LanguageModel, batch: Batch) -> Tensor:
    """What the output layer reads, [rows, length, d_model]."""
    states: Tensor = model(
        _tensor(model, batch.inputs),
        "none",
        segments=None if batch.segments is None else _tensor(model, batch.segments),
        mask=None if batch.mask is None else _tensor(model, batch.mask),
        source=None if batch.source is None else _tensor(model, batch.source),
        source_mask=None if batch.source_mask is None else _tensor(model, batch.source_mask),
    )
    return states


def loss_of(model: LanguageModel, batch: Batch) -> Tensor:
    """Mean negative log likelihood of the batch's targets, nats a token."""
    losses: Tensor = model.token_losses(hidden_states(model, batch), _tensor(model, batch.targets))
    return losses.sum() / int((batch.targets != IGNORED).sum())


def linear_weights(model: LanguageModel) -> list[tuple[str, nn.Parameter]]:
    """Weights of the linear layers of all blocks, the source's first, by name in the order of the computation.

    Embeddings, projections, norms, biases and the output layer are left out, as LTS leaves out embedding and softmax.
    """
    named = (
        [] if model.source is None else [(f"source.{name}", weight) for name, weight in linear_weights(model.source)]
    )
    for name, module in model.blocks.named_modules(prefix="blocks"):
        if isinstance(module, Linear):
            named.append((f"{name}.weight", module.weight))
    return named


@contextmanager
def plain_attention() -> Iterator[None]:
    """Attention by its definition: the fused kernels cannot be differentiated twice."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


def gradients(model: LanguageModel, batch: Batch) -> list[tuple[str, Tensor, Tensor]]:
    """Name, weight and gradient of the loss for each of `linear_weights`; zeros where the loss depends on none."""
    named = linear_weights(model)
    weights = [weight for _, weight in named]
    weight_gradients = torch.autograd.grad(loss_of(model, batch), weights, materialize_grads=True)
    return [(name, weight.detach(), gradient) for (name, weight), gradient in zip(named, weight_gradients, strict=True)]


def _tensor(model: LanguageModel, array: object) -> Tensor:
    return torch.as_tensor(array, device=next(model.parameters()).device)
