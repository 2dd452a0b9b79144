"""The blocks of a model in torch: input and output are [batch, sequence, d_model], residual included.

A new kind of block is a class here, its twin in `core/model_files/blocks`, and one line in the table of each package.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, Block, FeedForward, Identity, ShortConv, Sru, Srupp
from edgefront.core.nn.blocks.attention import AttentionBlock
from edgefront.core.nn.blocks.srupp import SruBlock, SruppBlock
from edgefront.core.nn.context import Context
from edgefront.core.nn.layers import ACTIVATIONS, Linear, Residual


class IdentityBlock(nn.Module):
    """Block that returns its input."""

    def __init__(self, block: Identity, architecture: Architecture) -> None:
        super().__init__()

    def forward(self, x: Tensor, name: str, context: Context) -> Tensor:
        """Returns `x` [batch, sequence, d_model] unchanged."""
        return x


class FeedForwardBlock(Residual):
    """Feed-forward block, f(x) = W₂·act(W₁·x + b₁) + b₂, or gated W₂·(act(W_g·x + b_g) ⊙ (W_u·x + b_u)) + b₂.

    `up` is W₁, or W_g and W_u as one linear layer, in this order. A parallel block reads the input of the preceding
    attention.
    """

    def __init__(self, block: FeedForward, architecture: Architecture) -> None:
        super().__init__(architecture, has_norm=block.parallel != "shared_norm")
        self.parallel = block.parallel
        self.gated = block.gated
        self.up = Linear(architecture.d_model, block.d_inner * (2 if block.gated else 1), bias=block.bias)
        self.down = Linear(block.d_inner, architecture.d_model, bias=block.bias)
        self.activation = ACTIVATIONS[architecture.activation]

    def forward(self, x: Tensor, name: str, context: Context) -> Tensor:
        """Output of the block, [batch, sequence, d_model], for an input of the same shape."""
        inner = self.up(self.normed(x if self.parallel is None else context.parallel_input(self.parallel)))
        if self.gated:
            gate, inner = inner.chunk(2, -1)
            inner = self.activation(gate) * inner
        else:
            inner = self.activation(inner)
        return self.added(x, context.drop_hidden(self.down(context.drop_inner(inner))))


class DepthwiseConv(nn.Module):
    """Depthwise convolution: weight (kernel, d_model), whose final row is for the token itself, and bias (d_model,)."""

    def __init__(self, kernel: int, d_model: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(kernel, d_model))
        self.bias = nn.Parameter(torch.empty(d_model)) if bias else None

    def forward(self, inputs: Tensor, sequence: int) -> Tensor:
        """Convolves over tokens, [batch, kernel - 1 + sequence, d_model] → [batch, sequence, d_model]."""
        total = inputs[:, :sequence] * self.weight[0]
        for offset, tap in enumerate(self.weight[1:], 1):
            total = torch.addcmul(total, inputs[:, offset : offset + sequence], tap)
        return total if self.bias is None else total + self.bias


class ShortConvBlock(Residual):
    """Short convolution, f(x) = W_out·(c ⊙ Σᵢ wᵢ ⊙ (b ⊙ u)[t - kernel + 1 + i]); `up` computes b, c, u from x."""

    def __init__(self, block: ShortConv, architecture: Architecture) -> None:
        super().__init__(architecture)
        d = architecture.d_model
        self.kernel = block.kernel
        self.up = Linear(d, 3 * d, bias=block.bias)
        self.conv = DepthwiseConv(block.kernel, d, block.bias)
        self.out = Linear(d, d, bias=block.bias)

    def forward(self, x: Tensor, name: str, context: Context) -> Tensor:
        """Output of the block, [batch, sequence, d_model], for an input of the same shape."""
        gate_in, gate_out, passed = self.up(self.normed(x)).chunk(3, -1)
        inputs = gate_in * passed
        if context.padding is not None:  # the convolution reads zeros at padding
            inputs = inputs * context.padding.unsqueeze(-1)
        inputs = torch.cat((context.inputs(name, self.kernel - 1, inputs), inputs), 1)
        context.carry(f"{name}.inputs", inputs[:, inputs.shape[1] - self.kernel + 1 :])
        mixed = gate_out * self.conv(inputs, x.shape[1])
        return self.added(x, context.drop_hidden(self.out(mixed)))


_KINDS: dict[type, Any] = {
    Attention: AttentionBlock,
    FeedForward: FeedForwardBlock,
    Sru: SruBlock,
    Srupp: SruppBlock,
    Identity: IdentityBlock,
    ShortConv: ShortConvBlock,
}


def make_block(block: Block, architecture: Architecture) -> nn.Module:
    """Creates the module of one block; its parameters are uninitialised."""
    module: nn.Module = _KINDS[type(block)](block, architecture)
    return module
