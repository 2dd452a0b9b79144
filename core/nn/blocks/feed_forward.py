"""Position-wise feed-forward block: d_model → d_inner → d_model (Vaswani et al. 2017, eq. 2)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor

from edgefront.core.nn.blocks.residual import Residual
from edgefront.core.nn.context import Context
from edgefront.core.nn.layers import Linear
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import FeedForward

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}


class FeedForwardBlock(Residual):
    """f(x) = W₂·act(W₁·x + b₁) + b₂."""

    def __init__(self, block: FeedForward, architecture: Architecture) -> None:
        super().__init__(architecture)
        self.up = Linear(architecture.d_model, block.d_inner)
        self.down = Linear(block.d_inner, architecture.d_model)
        self.activation = ACTIVATIONS[architecture.activation]

    def forward(self, x: Tensor, name: str, context: Context) -> Tensor:
        """[batch, sequence, d_model] → the same."""
        inner = context.drop_inner(self.activation(self.up(self.normed(x))))
        return self.added(x, context.drop_hidden(self.down(inner)))
