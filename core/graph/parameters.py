"""Every parameter of an architecture, in one list that both builders, the counts and the files share.

Total = decoder (blocks, final norm) + positions + embedding, where embedding is everything that touches tokens:
tables, projections, output biases and the adaptive softmax's clusters.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from core.graph.blocks import block_graph
from core.graph.parameter import ParameterSpec, norm
from core.spaces.architecture import Architecture

__all__ = ["Cluster", "ParameterSpec", "clusters", "parameters", "projected", "table_specs"]


@dataclass(frozen=True)
class Cluster:
    """Tokens `start` … `stop` - 1, embedded in `width` features. Cluster 0 is the head, the others are the tails."""

    index: int
    start: int
    stop: int
    width: int

    @property
    def size(self) -> int:
        return self.stop - self.start


def clusters(architecture: Architecture) -> tuple[Cluster, ...]:
    """The clusters of the vocabulary: cut-offs between them, widths d_embed // div^i. One without cut-offs."""
    embedding = architecture.embedding
    edges = (0, *embedding.cutoffs, embedding.vocab_size)
    return tuple(
        Cluster(index, start, stop, architecture.d_embed // embedding.div**index)
        for index, (start, stop) in enumerate(pairwise(edges))
    )


def projected(architecture: Architecture) -> bool:
    """Whether maps stand between the tables and d_model: with div > 1 always, else where the widths differ."""
    return architecture.embedding.div > 1 or architecture.d_embed != architecture.d_model


def table_specs(architecture: Architecture) -> tuple[ParameterSpec, ...]:
    """The token tables, (tokens, width): one a cluster with div > 1, else a single one that the clusters slice."""
    if architecture.embedding.div == 1:
        return (ParameterSpec("embedding.tables.0", (architecture.embedding.vocab_size, architecture.d_embed)),)
    return tuple(
        ParameterSpec(f"embedding.tables.{cluster.index}", (cluster.size, cluster.width))
        for cluster in clusters(architecture)
    )


def parameters(architecture: Architecture) -> tuple[ParameterSpec, ...]:
    """All parameters, in the order of the computation. Weights of linear maps are (out, in).

    The output layer is tied: it reads the embedding's tables, and for the tails the embedding's projections, so those
    appear once. Its own are, with cut-offs, one bias a token (`output.bias`), a row and a bias for each tail's cluster
    (`output.cluster_weight`, `output.cluster_bias`), and wherever the embedding is projected the head's own projection
    back to d_embed (`output.head_projection`), as in Transformer-XL's adaptive softmax with tie_projs = [no, yes, …].
    """
    return tuple(_parameters(architecture))


def _parameters(architecture: Architecture) -> Iterator[ParameterSpec]:
    d_model, d_embed = architecture.d_model, architecture.d_embed
    tables = table_specs(architecture)
    yield from tables
    if projected(architecture):
        for table in tables:
            yield ParameterSpec(table.name.replace("tables", "projections"), (d_model, table.shape[1]))
    positions = architecture.positions
    yield ParameterSpec("positions.weight", (positions.length + positions.offset, d_model))
    for index, block in enumerate(architecture.blocks):
        for spec in block_graph(block).parameters(block, architecture):
            yield spec.under(f"blocks.{index}")
    yield from norm("final_norm", d_model)
    if projected(architecture):
        yield ParameterSpec("output.head_projection", (d_embed, d_model))
    tails = len(architecture.embedding.cutoffs)
    if tails:
        yield ParameterSpec("output.bias", (architecture.embedding.vocab_size,), "zeros")
        yield ParameterSpec("output.cluster_weight", (tails, d_embed))
        yield ParameterSpec("output.cluster_bias", (tails,), "zeros")
