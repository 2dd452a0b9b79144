"""Token embedding: one table, or adaptive clusters of narrowing width.

The adaptive one is Baevski & Auli's (2019), laid out as in Transformer-XL (Dai et al. 2019).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from core.graph.parameters import clusters, projected, table_specs
from core.spaces.architecture import Architecture


class TokenEmbedding(nn.Module):
    """Tables (tokens, width) and, where a width differs from d_model or div > 1, projections (d_model, width).

    With cut-offs the result is multiplied by √d_model (Vaswani et al. 2017, §3.4). The output layer reads the same
    tables and, for the tails, the same projections.
    """

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        specs = table_specs(architecture)
        self.clusters = clusters(architecture)
        self.tables = nn.ParameterList(nn.Parameter(torch.empty(spec.shape)) for spec in specs)
        self.projections = nn.ParameterList(
            nn.Parameter(torch.empty(architecture.d_model, spec.shape[1])) for spec in specs if projected(architecture)
        )
        self.scale = math.sqrt(architecture.d_model) if architecture.embedding.cutoffs else None

    def forward(self, tokens: Tensor) -> Tensor:
        """int64 [batch, sequence] → [batch, sequence, d_model]."""
        rows = self._clustered(tokens) if len(self.tables) > 1 else self._single(tokens)
        return rows if self.scale is None else rows * self.scale

    def _single(self, tokens: Tensor) -> Tensor:
        rows = F.embedding(tokens, self.tables[0])
        return F.linear(rows, self.projections[0]) if len(self.projections) else rows

    def _clustered(self, tokens: Tensor) -> Tensor:
        """Every cluster looks all tokens up, those outside it as a row that is then set to zero, and adds its part.

        A few more multiplications than gathering each cluster's tokens, but no shape depends on the data.
        """
        total: Tensor | None = None
        last = len(self.clusters) - 1
        for cluster, table, projection in zip(self.clusters, self.tables, self.projections, strict=True):
            # The open ends are not clamped, so that a token outside the vocabulary is an IndexError.
            low = 0 if cluster.index else None
            high = cluster.size - 1 if cluster.index < last else None
            rows = F.embedding((tokens - cluster.start).clamp(low, high), table)
            inside = (tokens >= cluster.start) & (tokens < cluster.stop)
            part = F.linear(rows * inside.unsqueeze(-1), projection)
            total = part if total is None else total + part
        assert total is not None
        return total
