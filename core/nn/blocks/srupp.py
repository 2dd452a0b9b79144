"""SRU and SRU++ as torch modules: a recurrence, whose input in SRU++ is computed by attention (Lei 2021, §3)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import SRUPP_NORM_EPS, Sru, Srupp
from edgefront.core.nn.context import Context
from edgefront.core.nn.layers import LayerNorm, Linear
from edgefront.core.nn.recurrence import sru_recurrence


class Recurrence(nn.Module):
    """Elementwise recurrence of SRU and SRU++; `weight` and `bias` are [2, d_model]: forget gate, reset gate."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(2, d_model))
        self.bias = nn.Parameter(torch.empty(2, d_model))

    def forward(self, u: Tensor, x: Tensor, name: str, context: Context) -> Tensor:
        """Output h in the shape of x, for u [batch, sequence, 3·d_model] and x [batch, sequence, d_model]."""
        u = u.unflatten(-1, (3, -1))
        if context.padding is not None:
            # Padding leaves the cell unchanged for any weight and bias: the candidate is 0, and the input of the
            # forget gate's sigmoid 10,000 (within float16's range).
            u = torch.where(context.padding[:, :, None, None], u, u.new_tensor([[0.0], [1e4], [0.0]]))
        mask = context.highway_mask(name, x)
        h, last = sru_recurrence(u, x, self.weight, self.bias, context.cell(name, x), mask)
        context.carry(f"{name}.cell", last)
        return h


class SruBlock(nn.Module):
    """SRU block: output h of the recurrence over U = W·x; with d_proj W is a product of two matrices."""

    def __init__(self, block: Sru, architecture: Architecture) -> None:
        super().__init__()
        d = architecture.d_model
        self.down = None if block.d_proj is None else Linear(d, block.d_proj, bias=False)
        self.up = Linear(block.d_proj or d, 3 * d, bias=False)
        self.recurrence = Recurrence(d)

    def forward(self, x: Tensor, name: str, context: Context) -> Tensor:
        """Output of the block, [batch, sequence, d_model], for an input of the same shape."""
        inner = x if self.down is None else self.down(x)
        h: Tensor = self.recurrence(self.up(inner), x, name, context)
        return h


class SruppBlock(nn.Module):
    """SRU++ block: output h of the recurrence over U = Wᵒ·LN(q + α·A), with q = W^q·x and A = softmax(q·kᵀ/√d_head)·v.

    Keys and values are projections of the queries of the encoder, the memory and the segment. Without attention U =
    Wᵒ·LN(q). The layer norm's epsilon is `SRUPP_NORM_EPS` in every architecture.
    """

    def __init__(self, block: Srupp, architecture: Architecture) -> None:
        super().__init__()
        d, width = architecture.d_model, block.d_attn
        self.n_head, self.attends = block.n_head, block.attends
        self.down = Linear(d, width, bias=False)
        if block.attends != "none":
            self.kv = Linear(width, 2 * width, bias=False)
            self.alpha = nn.Parameter(torch.empty(1))
        self.norm = LayerNorm(width, SRUPP_NORM_EPS)
        self.up = Linear(width, 3 * d, bias=False)
        self.recurrence = Recurrence(d)

    def forward(self, x: Tensor, name: str, context: Context) -> Tensor:
        """Output of the block, [batch, sequence, d_model], for an input of the same shape."""
        q = self.down(x)
        z = q if self.attends == "none" else torch.addcmul(q, self.alpha, self._attended(x, q, name, context))
        h: Tensor = self.recurrence(self.up(context.drop_hidden(self.norm(z))), x, name, context)
        return h

    def _attended(self, x: Tensor, q: Tensor, name: str, context: Context) -> Tensor:
        """Attention A of an SRU++ block before its factor α, [batch, sequence, d_attn]."""
        own = None if self.attends == "source" else self._keys_values(q)
        keys, values = context.keys_values(name, self.attends, x, own, self._project)
        plain = context.is_plain_causal(keys.shape[2], self.attends)
        mixed = F.scaled_dot_product_attention(
            q.unflatten(-1, (self.n_head, -1)).transpose(1, 2),
            keys,
            values,
            attn_mask=None if plain else context.visible(keys.shape[2], self.attends),
            is_causal=plain,
            dropout_p=context.attention_dropout,
        )
        return mixed.transpose(1, 2).flatten(2)

    def _project(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Projects layer inputs [batch, n, d_model] to keys and values [batch, head, n, d_head]."""
        return self._keys_values(self.down(inputs))

    def _keys_values(self, q: Tensor) -> tuple[Tensor, Tensor]:
        """Projects queries [batch, n, d_attn] to keys and values [batch, head, n, d_head]."""
        keys, values = self.kv(q).unflatten(-1, (2, self.n_head, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        return keys, values
