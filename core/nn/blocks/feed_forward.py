"""Position-wise feed-forward: d_model → d_inner → d_model (Vaswani et al. 2017, eq. 2), or gated (Shazeer 2020)."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch.nn.functional as F
from torch import Tensor

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import FeedForward
from edgefront.core.nn.context import Context
from edgefront.core.nn.layers import Linear, Residual

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


class FeedForwardBlock(Residual):
    """f(x) = W₂·act(W₁·x + b₁) + b₂, or gated W₂·(act(W_g·x + b_g) ⊙ (W_u·x + b_u)) + b₂.

    `up` is W₁, or W_g and W_u as one linear layer, in this order. Parallel, x is what the attention before it read.
    """

    def __init__(self, block: FeedForward, architecture: Architecture) -> None:
        super().__init__(architecture, has_norm=block.parallel != "shared_norm")
        self.parallel = block.parallel
        self.gated = block.gated
        self.up = Linear(architecture.d_model, block.d_inner * (2 if block.gated else 1), bias=block.bias)
        self.down = Linear(block.d_inner, architecture.d_model, bias=block.bias)
        self.activation = ACTIVATIONS[architecture.activation]

    def forward(self, x: Tensor, name: str, context: Context) -> Tensor:
        """[batch, sequence, d_model] → the same."""
        inner = self.up(self.normed(x if self.parallel is None else context.parallel_input(self.parallel)))
        if self.gated:
            gate, inner = inner.chunk(2, -1)
            inner = self.activation(gate) * inner
        else:
            inner = self.activation(inner)
        return self.added(x, context.drop_hidden(self.down(context.drop_inner(inner))))
