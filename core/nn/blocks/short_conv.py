"""The gated short convolution of LFM2 (Amini et al. 2025, §2): a few tokens, feature by feature, between two gates."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import ShortConv
from edgefront.core.nn.context import Context
from edgefront.core.nn.layers import Linear, Residual


class DepthwiseConv(nn.Module):
    """The convolution's weight (kernel, d_model), the last row for the token itself, and its bias (d_model,)."""

    def __init__(self, kernel: int, d_model: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(kernel, d_model))
        self.bias = nn.Parameter(torch.empty(d_model)) if bias else None

    def forward(self, inputs: Tensor, sequence: int) -> Tensor:
        """[batch, kernel - 1 + sequence, d_model] → [batch, sequence, d_model].

        Products of shifted rows: `conv1d` of so few tokens takes longer.
        """
        total = inputs[:, :sequence] * self.weight[0]
        for place, tap in enumerate(self.weight[1:], 1):
            total = torch.addcmul(total, inputs[:, place : place + sequence], tap)
        return total if self.bias is None else total + self.bias


class ShortConvBlock(Residual):
    """f(x) = W_out·(c ⊙ Σᵢ wᵢ ⊙ (b ⊙ u)[t - kernel + 1 + i]); `up` makes b, c and u of x, in this order."""

    def __init__(self, block: ShortConv, architecture: Architecture) -> None:
        super().__init__(architecture)
        d = architecture.d_model
        self.kernel = block.kernel
        self.up = Linear(d, 3 * d, bias=block.bias)
        self.conv = DepthwiseConv(block.kernel, d, block.bias)
        self.out = Linear(d, d, bias=block.bias)

    def forward(self, x: Tensor, name: str, context: Context) -> Tensor:
        """[batch, sequence, d_model] → the same."""
        gate_in, gate_out, passed = self.up(self.normed(x)).chunk(3, -1)
        inputs = gate_in * passed
        if context.padding is not None:  # such a token is nothing to the convolution
            inputs = inputs * context.padding.unsqueeze(-1)
        inputs = torch.cat((context.inputs(name, self.kernel - 1, inputs), inputs), 1)
        context.carry(f"{name}.inputs", inputs[:, inputs.shape[1] - self.kernel + 1 :])
        mixed = gate_out * self.conv(inputs, x.shape[1])
        return self.added(x, context.drop_hidden(self.out(mixed)))
