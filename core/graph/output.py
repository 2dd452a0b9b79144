"""The output layer's part of the ONNX graph: hidden states to one number a token of the vocabulary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.graph.parameters import Cluster, clusters, projected, table_specs
from core.spaces.architecture import Architecture

if TYPE_CHECKING:
    from core.graph.writer import GraphWriter


def write_output(graph: GraphWriter, architecture: Architecture, hidden: str) -> str:
    """[rows, d_model] → [rows, vocab_size] in token order.

    Plain embedding: logits = hidden·tableᵀ, without a bias. With cut-offs: log-probabilities of the adaptive softmax.
    """
    with graph.within("output"):
        if architecture.embedding.cutoffs:
            return _adaptive(graph, architecture, hidden)
        return graph.op("Gemm", _head_hidden(graph, architecture, hidden), "embedding.tables.0", transB=1)


def _adaptive(graph: GraphWriter, architecture: Architecture, hidden: str) -> str:
    """log p(token) = log p(token | cluster) + log p(cluster) (Grave et al. 2017).

    The head's softmax runs over its own tokens and one entry for each tail, in the tails' order.
    """
    tails = len(architecture.embedding.cutoffs)
    head, *others = _token_logits(graph, architecture, hidden)
    at_head = _head_hidden(graph, architecture, hidden)
    cluster = graph.op("Gemm", at_head, "output.cluster_weight", "output.cluster_bias", transB=1)
    joint = graph.op("LogSoftmax", graph.op("Concat", head, cluster, axis=1), axis=1)
    sizes = graph.integers(clusters(architecture)[0].size, *[1] * tails)
    head, *entries = graph.ops("Split", joint, sizes, outputs=1 + tails, axis=1)
    parts = [head]
    for logits, entry in zip(others, entries, strict=True):
        parts.append(graph.op("Add", graph.op("LogSoftmax", logits, axis=1), entry))
    return graph.op("Concat", *parts, axis=1)


def _token_logits(graph: GraphWriter, architecture: Architecture, hidden: str) -> list[str]:
    """Before any softmax, one value a cluster: [rows, cluster.size]."""
    parts = clusters(architecture)
    sizes = graph.integers(*(cluster.size for cluster in parts))
    if not projected(architecture):
        # All clusters see the same features: one product with the whole table, cut afterwards.
        together = graph.op("Gemm", hidden, "embedding.tables.0", "output.bias", transB=1)
        return graph.ops("Split", together, sizes, outputs=len(parts), axis=1)
    biases = graph.ops("Split", "output.bias", sizes, outputs=len(parts), axis=0)
    logits = []
    for cluster, bias in zip(parts, biases, strict=True):
        features, table = _features(graph, architecture, hidden, cluster), _table(graph, architecture, cluster)
        logits.append(graph.op("Gemm", features, table, bias, transB=1))
    return logits


def _features(graph: GraphWriter, architecture: Architecture, hidden: str, cluster: Cluster) -> str:
    """[rows, d_model] → [rows, cluster.width]: the head by its own projection, tails by the embedding's."""
    if cluster.index == 0:
        return _head_hidden(graph, architecture, hidden)
    index = min(cluster.index, len(table_specs(architecture)) - 1)
    return graph.once(f"tail hidden {index}", lambda: graph.op("Gemm", hidden, f"embedding.projections.{index}"))


def _head_hidden(graph: GraphWriter, architecture: Architecture, hidden: str) -> str:
    """[rows, d_model] → [rows, d_embed]."""
    if not projected(architecture):
        return hidden
    return graph.once("head hidden", lambda: graph.op("Gemm", hidden, "output.head_projection", transB=1))


def _table(graph: GraphWriter, architecture: Architecture, cluster: Cluster) -> str:
    """(cluster.size, cluster.width): the cluster's own table, or with div = 1 its rows of the shared one."""
    if len(table_specs(architecture)) > 1:
        return f"embedding.tables.{cluster.index}"
    rows = (graph.integers(cluster.start), graph.integers(cluster.stop), graph.integers(0))
    return graph.op("Slice", "embedding.tables.0", *rows)
