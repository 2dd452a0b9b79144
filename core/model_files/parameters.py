"""Every parameter of an architecture, in one list that both builders, the counts and the files share.

Total = decoder (blocks, final norm) + positions + embedding, where embedding is everything before and after: embedding
matrices, projections, segments and their norm, and all of the output layer. A source's count in the same groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention
from edgefront.core.architectures.embeddings_and_head import Cluster, LearnedPositions, RelativePositions
from edgefront.core.model_files.blocks import block_parameters
from edgefront.core.model_files.parameter import ParameterSpec, linear, norm


def table_specs(architecture: Architecture) -> tuple[ParameterSpec, ...]:
    """The embedding matrices, (tokens, width)."""
    return tuple(
        ParameterSpec(f"embedding.tables.{table.index}", (table.size, table.width)) for table in architecture.tables
    )


def own_projection(architecture: Architecture, cluster: Cluster) -> bool:
    """Whether the output layer has its own projection of the hidden states to this cluster's width.

    Otherwise it uses the embedding's, transposed. Relevant only if the embedding is projected.
    """
    output = architecture.output
    if not output.tied or output.tied_projections == "none":
        return True
    return output.tied_projections == "tails" and cluster.index == 0


def output_table_specs(architecture: Architecture) -> tuple[ParameterSpec, ...]:
    """The output layer's own matrices, in the shapes of the embedding's; none if it is tied or has no vocabulary."""
    if architecture.output.tied or not architecture.scores_tokens:
        return ()
    return tuple(replace(spec, name=f"output.tables.{i}") for i, spec in enumerate(table_specs(architecture)))


def output_projection_specs(architecture: Architecture) -> tuple[ParameterSpec, ...]:
    """The output layer's own projections (width, d_model): one per matrix, the head's alone, or none.

    That depends on `output.tied_projections`. Matrices and projections have the same indices.
    """
    if not architecture.scores_tokens or not architecture.projected:
        return ()
    tables = zip(architecture.clusters, table_specs(architecture), strict=False)
    return tuple(
        ParameterSpec(f"output.projections.{cluster.index}", (table.shape[1], architecture.d_model))
        for cluster, table in tables
        if own_projection(architecture, cluster)
    )


def parameters(architecture: Architecture) -> tuple[ParameterSpec, ...]:
    """All parameters, in the order of the computation. Weights of linear layers are (out, in).

    A tied output layer reads the embedding's matrices, so those appear once. Its projections back from d_model are its
    own, the embedding's or, as in Transformer-XL's adaptive softmax, its own for the head and the embedding's for the
    tails (`output.tied_projections`). With cut-offs it also has a row and a bias for each tail's cluster.

    The parameters of a `source` come first and carry the prefix "source.".
    """
    return tuple(_parameters(architecture))


def _parameters(architecture: Architecture) -> Iterator[ParameterSpec]:
    d_model = architecture.d_model
    if architecture.source is not None:
        for spec in _parameters(architecture.source):
            yield spec.under("source")
    tables = table_specs(architecture)
    yield from tables
    if architecture.projected:
        for table in tables:
            yield ParameterSpec(table.name.replace("tables", "projections"), (d_model, table.shape[1]))
    if architecture.embedding.segments:
        yield ParameterSpec("embedding.segments", (architecture.embedding.segments, d_model))
    yield from _position_parameters(architecture)
    if architecture.embedding.norm:
        yield from norm("embedding.norm", d_model, architecture.norm_kind)
    for index, block in enumerate(architecture.blocks):
        for spec in block_parameters(block, architecture):
            yield spec.under(f"blocks.{index}")
    if architecture.has_final_norm:
        yield from norm("final_norm", d_model, architecture.norm_kind)
    yield from _output_parameters(architecture)


def _position_parameters(architecture: Architecture) -> Iterator[ParameterSpec]:
    """A table of positions, or the biases u and v that all relative attentions share."""
    positions = architecture.positions
    if isinstance(positions, LearnedPositions):
        yield ParameterSpec("positions.weight", (positions.length + positions.offset, architecture.d_model))
    if isinstance(positions, RelativePositions) and positions.shared:
        first = next((block for block in architecture.blocks if isinstance(block, Attention)), None)
        if first is not None:
            shape = (first.n_head, architecture.d_head(first))
            yield ParameterSpec("positions.u", shape)
            yield ParameterSpec("positions.v", shape)


def _output_parameters(architecture: Architecture) -> Iterator[ParameterSpec]:
    d_model, output = architecture.d_model, architecture.output
    if output.kind == "masked_tokens":
        yield from linear("output.transform", d_model, d_model)
        yield from norm("output.transform_norm", d_model, architecture.norm_kind)
    if output.kind in ("pooled", "classes"):
        yield from linear("output.pooler", d_model, d_model)
    if output.classes is not None:
        yield from linear("output.classes", d_model, output.classes)
    if output.kind == "spans":
        yield from linear("output.spans", d_model, 2)
    yield from output_table_specs(architecture)
    yield from output_projection_specs(architecture)
    if architecture.output_bias:
        yield ParameterSpec("output.bias", (architecture.embedding.vocab_size,), "zeros")
    tails = len(architecture.embedding.cutoffs)
    if tails and architecture.scores_tokens:
        yield ParameterSpec("output.cluster_weight", (tails, architecture.d_embed))
        yield ParameterSpec("output.cluster_bias", (tails,), "zeros")
