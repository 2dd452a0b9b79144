"""Token embedding: one matrix, or adaptive clusters of decreasing width; with segments and a norm as in BERT.

The adaptive embedding is from Baevski & Auli (2019), in the layout of Transformer-XL (Dai et al. 2019).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from edgefront.core.architectures import embeddings_and_head
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention
from edgefront.core.architectures.parameters import table_specs
from edgefront.core.common.errors import InvalidInput
from edgefront.core.model_files.positions import Frequencies, frequencies, rotary_frequencies
from edgefront.core.nn.layers import drop, make_norm


class TokenEmbedding(nn.Module):
    """Token embedding: matrices (tokens, width), and projections (d_model, width) if a width differs or div > 1.

    The token embeddings may be multiplied, or scaled by √d_model (Vaswani et al. 2017, §3.4). `segments` (kinds,
    d_model) and `norm` are BERT's (Devlin et al. 2019, figure 2). The output layer may share matrices and projections.
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
        """Embeds tokens and segments, int64 [batch, sequence] → [batch, sequence, d_model].

        Without `segments` all tokens belong to segment 0. `positions`, [sequence, d_model] or [batch, sequence,
        d_model], are added before the norm. `dropout` is the rate for vectors before their projection.

        Raises `InvalidInput` for segments if the model has no segments, `IndexError` for a token or a segment out of
        range.
        """
        if len(self.tables) > 1:
            rows = self._clustered(tokens, dropout)
        else:
            rows = F.embedding(tokens, self.tables[0])
            if len(self.projections):
                rows = F.linear(drop(rows, dropout), self.projections[0])
        if self.factor != 1:
            rows = rows * self.factor
        if self.segments is not None:
            rows = rows + (self.segments[0] if segments is None else F.embedding(segments, self.segments))
        elif segments is not None:
            raise InvalidInput(
                "this model has no segments",
                field="segments",
                value=list(segments.shape),
                allowed="no segments, or a model with embedding.segments",
            )
        if positions is not None:
            rows = rows + positions
        return rows if self.norm is None else self.norm(rows)

    def _clustered(self, tokens: Tensor, dropout: float) -> Tensor:
        """Sum of the clusters' embeddings; every cluster looks up all tokens and zeroes the rows outside the cluster.

        This takes a few more multiplications than gathering each cluster's tokens, but no shape depends on the data.
        """
        total: Tensor | None = None
        last = len(self.clusters) - 1
        for cluster, table, projection in zip(self.clusters, self.tables, self.projections, strict=True):
            # The first and last cluster do not clamp their open ends, so that an unknown token raises IndexError.
            low = 0 if cluster.index else None
            high = cluster.size - 1 if cluster.index < last else None
            rows = F.embedding((tokens - cluster.start).clamp(low, high), table)
            inside = (tokens >= cluster.start) & (tokens < cluster.stop)
            part = F.linear(drop(rows * inside.unsqueeze(-1), dropout), projection)
            total = part if total is None else total + part
        assert total is not None
        return total


class LearnedPositionEmbedding(nn.Embedding):
    """Learned positions with one row of d_model for each position; the first position reads row `offset` (2 in OPT)."""

    def __init__(self, positions: embeddings_and_head.LearnedPositions, d_model: int) -> None:
        super().__init__(positions.length + positions.offset, d_model)
        self.offset = positions.offset
        self.length = positions.length

    def reset_parameters(self) -> None:  # as in `core.nn.layers`
        pass

    def forward(self, start: int, sequence: int) -> Tensor:
        """Rows of positions from `start` on, [sequence, d_model]. Raises `InvalidInput` beyond the last position."""
        if start + sequence > self.length:
            past = f" after {start} earlier tokens" if start else ""
            raise InvalidInput(
                f"a sequence of {sequence} tokens{past} is longer than the model's {self.length} positions",
                field="tokens",
                value=start + sequence,
                allowed=f"at most {self.length} tokens",
            )
        return self.weight[self.offset + start : self.offset + start + sequence]


class SinusoidalEmbedding(nn.Module):
    """Sinusoidal positions: sines, then cosines, of each position (Vaswani et al. 2017, §3.5)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.table = SinusoidTable(frequencies(d_model))

    def forward(self, start: int, sequence: int, like: Tensor) -> Tensor:
        """Rows of the positions start … start + sequence - 1: [sequence, d_model], type and device of `like`."""
        return self.table.rows(start + sequence, like)[start:]


class RelativePositionEmbedding(nn.Module):
    """Transformer-XL's relative positions (Dai et al. 2019, §3.3): sinusoids of distances, and shared biases u, v."""

    def __init__(self, architecture: Architecture, positions: embeddings_and_head.RelativePositions) -> None:
        super().__init__()
        self.max_relative_distance = positions.clamp
        """Maximum distance, at which larger distances are clamped; None without a maximum."""
        self.table = SinusoidTable(frequencies(architecture.d_model))
        self.u = self.v = None
        first = next((block for block in architecture.blocks if isinstance(block, Attention)), None)
        if positions.shared and first is not None:
            shape = (first.n_head, architecture.d_head(first))
            self.u, self.v = nn.Parameter(torch.empty(shape)), nn.Parameter(torch.empty(shape))

    def sinusoids(self, keys: int, like: Tensor) -> Tensor:
        """Sinusoids of the distances 0, 1, … to `keys` or the maximum: [rows, d_model], type and device of `like`."""
        return self.table.rows(1 + self._largest(keys), like)

    def distances(self, keys: int, device: torch.device) -> Tensor:
        """Row in `sinusoids` of each of the distances keys, keys - 1, …, 0: int64 [keys + 1]."""
        return torch.arange(keys, -1, -1, device=device).clamp(max=self._largest(keys))

    def _largest(self, keys: int) -> int:
        return keys if self.max_relative_distance is None else min(keys, self.max_relative_distance)


class RotaryEmbedding(nn.Module):
    """Rotates queries and keys by their positions (Su et al. 2021, §3.2)."""

    def __init__(self) -> None:
        super().__init__()
        self._tables: dict[tuple[embeddings_and_head.RotaryPositions, int], SinusoidTable] = {}

    def apply_rotary(self, x: Tensor, start: int, rotary: embeddings_and_head.RotaryPositions) -> Tensor:
        """Rotates queries or keys [batch, head, n, d_head] of the positions `start` … `start` + n - 1.

        The first half of the rotated features is paired with the second half. A pair (x₁, x₂) becomes (x₁·cos - x₂·sin,
        x₂·cos + x₁·sin): "rotate_half" of Hugging Face's transformers.
        """
        count, d_head = x.shape[2:]
        if (rotary, d_head) not in self._tables:
            self._tables[rotary, d_head] = SinusoidTable(rotary_frequencies(rotary, d_head))
        sines, cosines = self._tables[rotary, d_head].rows(start + count, x)[start:].chunk(2, -1)
        rotary_dim = rotary.width(d_head)
        rotated, *rest = (x,) if rotary_dim == d_head else x.split((rotary_dim, d_head - rotary_dim), -1)
        first, second = rotated.chunk(2, -1)
        return torch.cat((first * cosines - second * sines, second * cosines + first * sines, *rest), -1)


class SinusoidTable:
    """Table of [sin(n·f), cos(n·f)] for n = 0, 1, … and all frequencies f; cached, and extended as needed."""

    def __init__(self, frequencies: Frequencies) -> None:
        self._frequencies = torch.from_numpy(frequencies)
        self._rows = torch.empty(0, 2 * len(frequencies))

    def rows(self, count: int, like: Tensor) -> Tensor:
        """First `count` rows of the table, [count, 2·frequencies], type and device of `like`."""
        table = self._rows
        if table.shape[0] < count or table.dtype != like.dtype or table.device != like.device:
            # Computed in float64, and outside inference mode, so that training can use the table later.
            with torch.inference_mode(False), torch.no_grad():
                positions = torch.arange(max(count, 2 * table.shape[0]), dtype=torch.float64)
                angles = positions.unsqueeze(1) * self._frequencies
                table = torch.cat((angles.sin(), angles.cos()), 1).to(like.device, like.dtype)
            self._rows = table
        return table[:count]


def make_positions(architecture: Architecture) -> nn.Module:
    """Creates the module for this architecture's positions; its parameters are uninitialised."""
    positions = architecture.positions
    if isinstance(positions, embeddings_and_head.LearnedPositions):
        return LearnedPositionEmbedding(positions, architecture.d_model)
    if isinstance(positions, embeddings_and_head.SinusoidalPositions):
        return SinusoidalEmbedding(architecture.d_model)
    if isinstance(positions, embeddings_and_head.RotaryPositions):
        return RotaryEmbedding()
    if isinstance(positions, embeddings_and_head.RelativePositions):
        return RelativePositionEmbedding(architecture, positions)
    return nn.Module()
