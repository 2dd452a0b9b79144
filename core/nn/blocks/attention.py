"""Causal multi-head self-attention, pre-norm (Vaswani et al. 2017, eq. 1; GPT-2)."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from core.nn.layers import LayerNorm, Linear
from core.spaces.architecture import Architecture, Attention


class AttentionBlock(nn.Module):
    """x + W·(softmax(q·kᵀ/√d_head + mask)·v) + b, with q, k, v of norm(x)."""

    def __init__(self, block: Attention, architecture: Architecture) -> None:
        super().__init__()
        d = architecture.d_model
        self.n_head = block.n_head
        self.norm = LayerNorm(d)
        self.qkv = Linear(d, 3 * d)
        self.out = Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, sequence, d_model] → the same."""
        batch, sequence, d = x.shape
        qkv = self.qkv(self.norm(x)).view(batch, sequence, 3, self.n_head, d // self.n_head)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # each [batch, head, sequence, d_head]
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).reshape(batch, sequence, d))
