"""−Σ (log(v + k) + 1/(v + k)) over the eigenvalues v of the correlations of the inputs' Jacobians, k = 1e-5.

Mellor et al. 2020 (version 1, eq. 2): where different inputs act on the output in different ways, the correlations
between them are small, all v near 1, and the score near −N, its best.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgefront.core.proxies.batch import generator
from edgefront.core.proxies.settings import ProxySettings
from edgefront.core.proxies.untrained import batch_for, hidden_states, untrained
from edgefront.core.spaces.architecture import Architecture

K = 1e-5


def score(
    architecture: Architecture, seed: int, settings: ProxySettings, device: str = "cpu", data: Path | None = None
) -> float:
    """Score of at most −rows·1; higher is better.

    A Jacobian is the gradient of a sequence's output by its embedded tokens, length·d_model numbers; the output is the
    hidden states' sum along one random direction. In LTS it goes through the output matrix and a random projection to
    one number: a direction as well, at the cost of the whole vocabulary.
    """
    model = untrained(architecture, seed, device).requires_grad_(False)
    read: list[Tensor] = []

    def embedded(_: Any, __: Any, output: Tensor) -> Tensor:
        read.append(output.detach().requires_grad_())
        return read[0]

    handle = model.embedding.register_forward_hook(embedded)
    states = hidden_states(model, batch_for(model, settings, seed, data))
    handle.remove()
    direction = torch.as_tensor(generator(seed).standard_normal(states.shape[-1]), dtype=states.dtype, device=device)
    (jacobian,) = torch.autograd.grad((states @ direction).sum(), read)
    return from_jacobians(jacobian.flatten(1).double().cpu().numpy())


def from_jacobians(jacobians: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """The score of Jacobians [inputs, numbers]; NaN where one of them is constant."""
    with np.errstate(invalid="ignore", divide="ignore"):
        correlations = np.atleast_2d(np.corrcoef(jacobians))
    if not np.isfinite(correlations).all():
        return float("nan")
    # Rounding can leave an eigenvalue of a singular matrix a little below 0.
    values = np.linalg.eigvalsh(correlations).clip(min=0.0)
    return float(-np.sum(np.log(values + K) + 1.0 / (values + K)))
