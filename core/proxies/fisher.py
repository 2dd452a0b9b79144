"""Σ over the weights of linear layers of their channel's Δ = ½·mean over sequences of (Σ over tokens of a·∂L/∂a)².

Δ is what the loss loses if the channel is taken away (Theis et al. 2018, eq. 4), a being its activations: an output of
a linear layer at all tokens of a sequence. Each weight counts its channel's Δ, as in Abdelfattah et al. 2021.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from edgefront.core.proxies.settings import ProxySettings
from edgefront.core.proxies.untrained import batch_for, linear_weights, loss_of, untrained
from edgefront.core.spaces.architecture import Architecture


def score(
    architecture: Architecture, seed: int, settings: ProxySettings, device: str = "cpu", data: Path | None = None
) -> float:
    """Squared nats; higher where more of the channels matter."""
    model = untrained(architecture, seed, device)
    batch = batch_for(model, settings, seed, data)
    with _Watch([weight for _, weight in linear_weights(model)]) as watch:
        loss = loss_of(model, batch)
    outputs = [output for _, _, output in watch.seen]
    gradients = torch.autograd.grad(loss, outputs, materialize_grads=True)
    effects: dict[int, Tensor] = {}
    for (place, first, output), gradient in zip(watch.seen, gradients, strict=True):
        # The projection of relative attention's distances has no batch axis: all sequences share its outputs.
        by_sequence = (output.detach() * gradient).reshape(
            output.shape[0] if output.ndim > 2 else 1, -1, output.shape[-1]
        )
        effect = by_sequence.sum(1)
        weight = watch.weights[place]
        summed = effects.setdefault(place, effect.new_zeros(effect.shape[0], weight.shape[0]))
        summed[:, first : first + effect.shape[1]] += effect
    total = 0.0
    for place, effect in effects.items():
        total += watch.weights[place].shape[1] * float(effect.square().mean(0).sum()) / 2
    return total


class _Watch(TorchFunctionMode):  # type: ignore[misc]
    """Keeps what each of these weights, or some of its rows, puts out: (which weight, first row, output)."""

    def __init__(self, weights: list[Tensor]) -> None:
        super().__init__()
        self.weights = weights
        self.seen: list[tuple[int, int, Tensor]] = []
        self._place = {id(weight): place for place, weight in enumerate(weights)}

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        output = function(*args, **(kwargs or {}))
        if function is F.linear:
            weight = args[1]
            place = self._place.get(id(weight), self._place.get(id(weight._base)))
            if place is not None:
                self.seen.append((place, weight.storage_offset() // weight.shape[1], output))
        return output
