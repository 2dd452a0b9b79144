"""Token embedding: one matrix, or adaptive clusters of decreasing width; with segments and a norm as in BERT.

The adaptive one is Baevski & Auli's (2019), laid out as in Transformer-XL (Dai et al. 2019).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgefront.core.errors import InvalidInput
from edgefront.core.graph.parameters import table_specs
from edgefront.core.nn.layers import drop, make_norm
from edgefront.core.spaces.architecture import Architecture


class TokenEmbedding(nn.Module):
    """Embedding matrices (tokens, width) and, if a width differs from d_model or div > 1, projections (d_model, width).

    The tokens' part may be multiplied, scaled by √d_model (Vaswani et al. 2017, §3.4). `segments` (kinds, d_model) and
    `norm` are BERT's (Devlin et al. 2019, figure 2). The output layer may share matrices and projections.
    """

    def __init__(self, architecture: Architecture) -> None:
        super().__init__()
        specs, d_model = table_specs(architecture), architecture.d_model
        self.clusters = architecture.clusters
        self.tables = nn.ParameterList(nn.Parameter(torch.empty(spec.shape)) for spec in specs)
        self.projections = nn.ParameterList(
            nn.Parameter(torch.empty(d_model, spec.shape[1])) for spec in specs if architecture.projected
        )
        self.factor = architecture.embedding_factor
        kinds = architecture.embedding.segments
        self.segments = nn.Parameter(torch.empty(kinds, d_model)) if kinds else None
        self.norm = make_norm(architecture, d_model) if architecture.embedding.norm else None

    def forward(
        self,
        tokens: Tensor,
        segments: Tensor | None = None,
        positions: Tensor | None = None,
        dropout: float = 0.0,
    ) -> Tensor:
        """Tokens and segments, int64 [batch, sequence] → [batch, sequence, d_model].

        Without `segments` all tokens belong to segment 0. `positions` [sequence, d_model], or with a batch before, are
        added ahead of the norm. `dropout` is the rate for vectors that are projected, before they are.

        Raises `InvalidInput` for segments that the model does not have, `IndexError` for a token or a segment out of
        range.
        """
        rows = self._clustered(tokens, dropout) if len(self.tables) > 1 else self._single(tokens, dropout)
        if self.factor != 1:
            rows = rows * self.factor
        if self.segments is not None:
            rows = rows + (self.segments[0] if segments is None else F.embedding(segments, self.segments))
        elif segments is not None:
            raise InvalidInput(
                "this model has no segments",
                field="segments",
                value=list(segments.shape),
                allowed="omit it, or a model with embedding.segments",
            )
        if positions is not None:
            rows = rows + positions
        return rows if self.norm is None else self.norm(rows)

    def _single(self, tokens: Tensor, dropout: float) -> Tensor:
        rows = F.embedding(tokens, self.tables[0])
        return F.linear(drop(rows, dropout), self.projections[0]) if len(self.projections) else rows

    def _clustered(self, tokens: Tensor, dropout: float) -> Tensor:
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
            part = F.linear(drop(rows * inside.unsqueeze(-1), dropout), projection)
            total = part if total is None else total + part
        assert total is not None
        return total
