"""Multi-head attention (Vaswani et al. 2017, eq. 1), or with relative positions Transformer-XL's (Dai et al. 2019)."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgefront.core.nn.blocks.residual import Residual
from edgefront.core.nn.context import Context
from edgefront.core.nn.layers import Linear
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Attention
from edgefront.core.spaces.ends import RelativePositions


class AttentionBlock(Residual):
    """f(x) = W·(softmax(scores + mask)·v) + b, the scores being q·kᵀ/√d_head, or relative attention's.

    `qkv` projects to queries, keys and values of all heads, in this order. Keys and values may also come from the past
    and from a source (`Context.keys_values`).
    """

    def __init__(self, block: Attention, architecture: Architecture) -> None:
        super().__init__(architecture)
        d, positions = architecture.d_model, architecture.positions
        self.attends = block.attends
        self.n_head, self.d_head = block.n_head, architecture.d_head(block)
        self.width = self.n_head * self.d_head
        self.is_relative = isinstance(positions, RelativePositions)
        self.qkv = Linear(d, 3 * self.width, bias=not self.is_relative)
        self.out = Linear(self.width, d, bias=not self.is_relative)
        self.u = self.v = None
        if isinstance(positions, RelativePositions):
            self.relative = Linear(d, self.width, bias=False)
            if not positions.shared:
                self.u = nn.Parameter(torch.empty(self.n_head, self.d_head))
                self.v = nn.Parameter(torch.empty(self.n_head, self.d_head))

    def forward(self, x: Tensor, name: str, context: Context) -> Tensor:
        """[batch, sequence, d_model] → the same."""
        read = self.normed(x)
        if self.attends == "source":
            (q,), own = self._heads(read, 0, 1), None
        else:
            q, *own = self._heads(read, 0, 3)
        keys, values = context.keys_values(name, self.attends, x, tuple(own) if own else None, self._project)
        mixed = self._relative(q, keys, values, context) if self.is_relative else self._plain(q, keys, values, context)
        return self.added(x, context.drop_hidden(self.out(mixed.transpose(1, 2).flatten(2))))

    def _heads(self, read: Tensor, start: int, stop: int) -> list[Tensor]:
        """Of queries (0), keys (1) and values (2) those from start to stop, [batch, head, n, d_head] each."""
        mapped = self.qkv.rows(read, start * self.width, stop * self.width)
        return list(mapped.unflatten(2, (stop - start, self.n_head, self.d_head)).permute(2, 0, 3, 1, 4).unbind(0))

    def _project(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        keys, values = self._heads(self.normed(inputs), 1, 3)
        return keys, values

    def _plain(self, q: Tensor, keys: Tensor, values: Tensor, context: Context) -> Tensor:
        """[batch, head, sequence, d_head]."""
        rate = context.attention_dropout
        if context.is_plain_causal(keys.shape[2], self.attends):
            return F.scaled_dot_product_attention(q, keys, values, is_causal=True, dropout_p=rate)
        visible = context.visible(keys.shape[2], self.attends)
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=visible, dropout_p=rate)

    def _relative(self, q: Tensor, keys: Tensor, values: Tensor, context: Context) -> Tensor:
        """Scores of query i and key j: ((q_i + u)·k_j + (q_i + v)·r_{i-j})/√d_head (Dai et al. 2019, §3.3).

        The second term goes into the attention as its additive mask. [batch, head, sequence, d_head].
        """
        assert context.relative is not None
        u, v = (context.relative.u, context.relative.v) if self.u is None else (self.u, self.v)
        assert u is not None
        assert v is not None
        by_distance = self._position_scores((q + v.unsqueeze(1)) / math.sqrt(self.d_head), keys.shape[2], context)
        by_key = shifted(by_distance)
        visible = context.visible(keys.shape[2], self.attends)
        if visible is not None:
            by_key = torch.where(visible, by_key, -math.inf)
        rate = context.attention_dropout
        return F.scaled_dot_product_attention(q + u.unsqueeze(1), keys, values, attn_mask=by_key, dropout_p=rate)

    def _position_scores(self, q: Tensor, keys: int, context: Context) -> Tensor:
        """q·r_n with r_n = W·sinusoid(n), for n = keys, …, 1, 0: [batch, head, sequence, keys + 1].

        Few queries, such as those of one token, are less work to take through W than all distances: q·(W·s) = (q·W)·s.
        """
        sinusoids, distances = context.sinusoids(keys, q), context.distances(keys)
        if q.shape[0] * q.shape[2] < self.d_head:
            by_head = self.relative.weight.unflatten(0, (self.n_head, self.d_head))
            return (q @ by_head @ sinusoids.T)[..., distances]
        r = self.relative(sinusoids)[distances].unflatten(1, (self.n_head, self.d_head))
        return q @ r.permute(1, 2, 0)


def shifted(scores: Tensor) -> Tensor:
    """Scores by distance [batch, head, sequence, keys + 1], the farthest first, to scores by key, [..., keys]; no copy.

    The place of query i and key j among the distances is j + sequence - i. In one flat row of all queries that is at
    sequence + i·keys + j: leaving out the first `sequence` numbers, and folding the rest into rows of `keys`, aligns
    them. What stands after the diagonal is of the query before, and masked.
    """
    sequence, distances = scores.shape[2:]
    return scores.flatten(2)[..., sequence:].unflatten(2, (sequence, distances - 1))
