"""log |Σ over layers of (X·Xᵀ + (1 − X)·(1 − X)ᵀ)|, X the pattern of active units at each token.

Mellor et al. 2021, eq. 3, with the tokens of the batch as inputs, and the inner units of feed-forward blocks as the
rectifiers, as LTS's code has it; a GELU counts as active where its input is above 0, and so does a gate.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgefront.core.errors import InvalidInput
from edgefront.core.nn.blocks.feed_forward import FeedForwardBlock
from edgefront.core.proxies.settings import ProxySettings
from edgefront.core.proxies.untrained import batch_for, hidden_states, untrained
from edgefront.core.spaces.architecture import Architecture


def score(
    architecture: Architecture, seed: int, settings: ProxySettings, device: str = "cpu", data: Path | None = None
) -> float:
    """Higher if the units distinguish more tokens. `InvalidInput` for a model without feed-forward blocks.

    Tokens that no unit distinguishes (the same beginnings of two sequences) count once, for the determinant would be 0.
    """
    model = untrained(architecture, seed, device)
    layers = [block for block in model.blocks if isinstance(block, FeedForwardBlock)]
    if not layers:
        raise InvalidInput(
            "relu_log_det needs feed-forward blocks, and this model has none",
            field="architecture",
            value=architecture.digest,
            allowed="a model with feed-forward blocks, or another proxy",
        )
    batch = batch_for(model, settings, seed, data)
    kernel = torch.zeros(batch.inputs.size, batch.inputs.size, device=device)

    def active(_: Any, __: Any, output: Tensor) -> None:
        add_patterns(kernel, output.flatten(0, -2) > 0)

    def open_(_: Any, __: Any, output: Tensor) -> None:
        add_patterns(kernel, output.flatten(0, -2).chunk(2, -1)[0] > 0)

    for layer in layers:
        layer.up.register_forward_hook(open_ if layer.gated else active)
    with torch.no_grad():
        hidden_states(model, batch)
    return from_kernel(kernel)


def add_patterns(kernel: Tensor, active: Tensor) -> None:
    """Adds to the kernel [tokens, tokens] in how many of the units, bool [tokens, units], each two tokens agree."""
    signs = active.to(kernel.dtype).mul_(2).sub_(1)
    # Agreements less disagreements are the product of signs; the two together are all units.
    kernel.add_(signs @ signs.T, alpha=0.5).add_(signs.shape[1] / 2)


def from_kernel(kernel: Tensor) -> float:
    """The logarithm of its determinant, each pattern once; -inf where there are fewer units than patterns."""
    same = torch.triu(kernel == kernel.diagonal().unsqueeze(1), diagonal=1)
    kept = ~same.any(0)
    factor, fault = torch.linalg.cholesky_ex(kernel[kept][:, kept].double())
    pivots = factor.diagonal().square()
    # Below this a pivot is rounding: the matrix is singular.
    least = len(pivots) * torch.finfo(torch.float64).eps * float(kernel.max())
    if int(fault) or float(pivots.min()) <= least:
        return float("-inf")
    return float(pivots.log().sum())
