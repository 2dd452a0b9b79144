"""Position-wise feed-forward block, pre-norm: d_model → d_inner → d_model (Vaswani et al. 2017, eq. 2)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor, nn

from core.nn.layers import LayerNorm, Linear
from core.spaces.architecture import Architecture, FeedForward

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}


class FeedForwardBlock(nn.Module):
    """x + W₂·act(W₁·norm(x) + b₁) + b₂."""

    def __init__(self, block: FeedForward, architecture: Architecture) -> None:
        super().__init__()
        self.norm = LayerNorm(architecture.d_model)
        self.up = Linear(architecture.d_model, block.d_inner)
        self.down = Linear(block.d_inner, architecture.d_model)
        self.activation = ACTIVATIONS[architecture.activation]

    def forward(self, x: Tensor) -> Tensor:
        """[batch, sequence, d_model] → the same."""
        return x + self.down(self.activation(self.up(self.norm(x))))
