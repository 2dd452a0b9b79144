"""Multi-head attention (Vaswani et al. 2017, eq. 1) as a torch module: with grouped queries (Ainslie et al. 2023) and
rotary positions (Su et al. 2021), or with the relative positions of Transformer-XL (Dai et al. 2019).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention
from edgefront.core.architectures.embeddings_and_head import RelativePositions
from edgefront.core.nn.context import Context
from edgefront.core.nn.layers import Linear, Residual, RmsNorm


class AttentionBlock(Residual):
    """Attention block, f(x) = W·(softmax(scores + mask)·v) + b. The scores are q·kᵀ·scale (by default 1/√d_head), or
    those of `_relative`.
    """

    def __init__(self, block: Attention, architecture: Architecture) -> None:
        super().__init__(architecture)
        d, positions, bias = architecture.d_model, architecture.positions, architecture.attention_bias(block)
        self.attends, self.window = block.attends, block.window
        self.n_head, self.kv_heads, self.d_head = block.n_head, block.kv_heads, architecture.d_head(block)
        self.width, self.kv_width = self.n_head * self.d_head, self.kv_heads * self.d_head
        self.rotary, self.scale = architecture.rotary(block), architecture.attention_scale(block)
        self.is_relative = isinstance(positions, RelativePositions)
        self.qkv = Linear(d, self.width + 2 * self.kv_width, bias=bias != "none")
        self.out = Linear(self.width, d, bias=bias == "all")
        eps = float(architecture.norm_eps)
        self.norms_whole = block.qk_norm == "whole"
        widths = (self.width, self.kv_width) if self.norms_whole else (self.d_head, self.d_head)
        self.q_norm, self.k_norm = (RmsNorm(width, eps) if block.qk_norm else None for width in widths)
        self.u = self.v = None
        if isinstance(positions, RelativePositions):
            self.relative = Linear(d, self.width, bias=False)
            if not positions.shared:
                self.u = nn.Parameter(torch.empty(self.n_head, self.d_head))
                self.v = nn.Parameter(torch.empty(self.n_head, self.d_head))

    def forward(self, x: Tensor, name: str, context: Context) -> Tensor:
        """Output of the block, [batch, sequence, d_model], for an input of the same shape."""
        read, past, own = self.normed(x), context.past(name), None
        context.keep_for_parallel(x, read)
        if self.attends == "source":
            q = self._heads(self.qkv.rows(read, 0, self.width))
        else:
            # Split by head, so that one copy instead of four joins the gradients of queries, keys and values.
            q, k, v = self._heads(self.qkv(read)).split((self.n_head, self.kv_heads, self.kv_heads), 2)
            own = self._keys(k, past, context), v.transpose(1, 2)

        def project(inputs: Tensor) -> tuple[Tensor, Tensor]:
            """Projects the encoder's output or a memory to keys and values at the positions from 0 on."""
            kv = self.qkv.rows(self.normed(inputs), self.width, self.width + 2 * self.kv_width)
            k, v = self._heads(kv).chunk(2, 2)
            return self._keys(k, 0, context), v.transpose(1, 2)

        keys, values = context.keys_values(name, self.attends, x, own, project, self.window)
        q = context.apply_rotary(self._normed(q, self.q_norm), past, self.rotary)
        mixed = self._relative(q, keys, values, context) if self.is_relative else self._plain(q, keys, values, context)
        return self.added(x, context.drop_hidden(self.out(mixed.transpose(1, 2).flatten(2))))

    def _heads(self, x: Tensor) -> Tensor:
        """Splits features by head: [batch, n, heads·d_head] → [batch, n, head, d_head]."""
        return x.unflatten(2, (-1, self.d_head))

    def _normed(self, x: Tensor, norm: RmsNorm | None) -> Tensor:
        """Norms queries or keys per head or over all heads: [batch, n, head, d_head] → [batch, head, n, d_head]."""
        if norm is not None:
            x = self._heads(norm(x.flatten(2))) if self.norms_whole else norm(x)
        return x.transpose(1, 2)

    def _keys(self, k: Tensor, start: int, context: Context) -> Tensor:
        """Norms and rotates keys of positions from `start` on: [batch, n, head, d_head] → [batch, head, n, d_head]."""
        return context.apply_rotary(self._normed(k, self.k_norm), start, self.rotary)

    def _plain(self, q: Tensor, keys: Tensor, values: Tensor, context: Context) -> Tensor:
        """Computes attention with absolute or rotary positions; returns [batch, head, sequence, d_head]."""
        count, mask = keys.shape[2], None
        plain = context.is_plain_causal(count, self.attends, self.window)
        if not plain:
            mask = context.visible(count, self.attends, self.window)
        return F.scaled_dot_product_attention(
            q,
            keys,
            values,
            attn_mask=mask,
            is_causal=plain,
            dropout_p=context.attention_dropout,
            scale=self.scale,
            enable_gqa=self.kv_heads != self.n_head,
        )

    def _relative(self, q: Tensor, keys: Tensor, values: Tensor, context: Context) -> Tensor:
        """Computes attention with relative positions; returns [batch, head, sequence, d_head].

        The score of query i and key j is ((q_i + u)·k_j + (q_i + v)·r_{i-j})/√d_head (Dai et al. 2019, §3.3). The
        second term enters the attention as its additive mask.
        """
        assert context.relative is not None
        u, v = (context.relative.u, context.relative.v) if self.u is None else (self.u, self.v)
        assert u is not None
        assert v is not None
        by_distance = self._position_scores((q + v.unsqueeze(1)) / math.sqrt(self.d_head), keys.shape[2], context)
        by_key = shifted(by_distance)
        visible = context.visible(keys.shape[2], self.attends, self.window)
        if visible is not None:
            by_key = torch.where(visible, by_key, -math.inf)
        rate = context.attention_dropout
        return F.scaled_dot_product_attention(q + u.unsqueeze(1), keys, values, attn_mask=by_key, dropout_p=rate)

    def _position_scores(self, q: Tensor, keys: int, context: Context) -> Tensor:
        """Scores q·r_n with r_n = W·sinusoid(n), for distances n = keys, …, 0: [batch, head, sequence, keys + 1].

        For few queries, as in decoding, projecting the queries is less work: q·(W·s) = (q·W)·s.
        """
        sinusoids, distances = context.sinusoids(keys, q), context.distances(keys)
        if q.shape[0] * q.shape[2] < self.d_head:
            by_head = self.relative.weight.unflatten(0, (self.n_head, self.d_head))
            return (q @ by_head @ sinusoids.T)[..., distances]
        r = self.relative(sinusoids)[distances].unflatten(1, (self.n_head, self.d_head))
        return q @ r.permute(1, 2, 0)


def shifted(scores: Tensor) -> Tensor:
    """Shifts scores per distance, [batch, head, sequence, keys + 1], farthest first, to scores per key, [..., keys],
    without a copy.
    """
    sequence, distances = scores.shape[2:]
    return scores.flatten(2)[..., sequence:].unflatten(2, (sequence, distances - 1))
