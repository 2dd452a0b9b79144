"""Σ over linear layers of ‖∂L/∂W‖₂, the Euclidean norm of the whole gradient matrix (Abdelfattah et al. 2021, §3.2)."""

from __future__ import annotations

from pathlib import Path

from edgefront.core.proxies.settings import ProxySettings
from edgefront.core.proxies.untrained import batch_for, gradients, untrained
from edgefront.core.spaces.architecture import Architecture


def score(
    architecture: Architecture, seed: int, settings: ProxySettings, device: str = "cpu", data: Path | None = None
) -> float:
    """Nats a token for a change of the weights by one; higher where training moves faster."""
    model = untrained(architecture, seed, device)
    weight_gradients = gradients(model, batch_for(model, settings, seed, data))
    return sum(float(gradient.norm()) for _, _, gradient in weight_gradients)
