"""Σ |W ⊙ ∂L/∂W|: how much the loss depends on a mask over each weight (Lee et al. 2019, eq. 6, before normalising)."""

from __future__ import annotations

from pathlib import Path

from edgefront.core.proxies.settings import ProxySettings
from edgefront.core.proxies.untrained import batch_for, gradients, untrained
from edgefront.core.spaces.architecture import Architecture


def score(
    architecture: Architecture, seed: int, settings: ProxySettings, device: str = "cpu", data: Path | None = None
) -> float:
    """The derivative of the loss by a mask m of ones in W ⊙ m is W ⊙ ∂L/∂W, so no mask has to be there."""
    model = untrained(architecture, seed, device)
    weight_gradients = gradients(model, batch_for(model, settings, seed, data))
    return sum(float((weight * gradient).abs().sum()) for _, weight, gradient in weight_gradients)
