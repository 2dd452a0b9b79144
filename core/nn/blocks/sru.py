"""Simple Recurrent Unit with highway output (Lei et al. 2018; Lei 2021, §2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from edgefront.core.graph.recurrence import STAYS
from edgefront.core.nn.context import Context
from edgefront.core.nn.layers import Linear
from edgefront.core.nn.recurrence import sru_recurrence
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Sru


class Recurrence(nn.Module):
    """The elementwise part; `weight` and `bias` are [2, d_model], of the forget and the reset gate."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(2, d_model))
        self.bias = nn.Parameter(torch.empty(2, d_model))

    def forward(self, u: Tensor, x: Tensor, name: str, context: Context) -> Tensor:
        """u [batch, sequence, 3·d_model] and x [batch, sequence, d_model] → h like x; the cell is the context's."""
        u = u.unflatten(-1, (3, -1))
        if context.padding is not None:
            # A padded place leaves the cell as it was: candidate 0, forget gate 1.
            u = torch.where(context.padding[:, :, None, None], u, u.new_tensor([[0.0], [STAYS], [0.0]]))
        mask = context.highway_mask(name, x)
        h, last = sru_recurrence(u, x, self.weight, self.bias, context.cell(name, x), mask)
        context.carry(f"{name}.cell", last)
        return h


class SruBlock(nn.Module):
    """h of the recurrence over U = W·x, with W of two factors where there is a d_proj."""

    def __init__(self, block: Sru, architecture: Architecture) -> None:
        super().__init__()
        d = architecture.d_model
        self.down = None if block.d_proj is None else Linear(d, block.d_proj, bias=False)
        self.up = Linear(block.d_proj or d, 3 * d, bias=False)
        self.recurrence = Recurrence(d)

    def forward(self, x: Tensor, name: str, context: Context) -> Tensor:
        """[batch, sequence, d_model] → the same."""
        inner = x if self.down is None else self.down(x)
        h: Tensor = self.recurrence(self.up(inner), x, name, context)
        return h
