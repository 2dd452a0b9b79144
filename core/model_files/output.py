"""Writes the final norm and the output layer into the ONNX graph.

The head of the adaptive softmax has the entries of the tail clusters in the clusters' order (see `core.nn.output`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.passes import Logits
from edgefront.core.architectures.parameters import own_projection, table_specs

if TYPE_CHECKING:
    from edgefront.core.model_files.writer import GraphWriter


def write_head(
    graph: GraphWriter, architecture: Architecture, hidden: str, logits: Logits
) -> tuple[str, str, list[str | int]]:
    """Writes the output layer for `hidden` [batch·sequence, d_model]; returns (value, name of the output, shape).

    With logits "none" or output kind none the output is `hidden` [batch, sequence, d_model] after the final norm.
    Otherwise the output is `logits` [batch, sequence, scores], or [batch, scores]: of the final position for logits
    "last", of the first position for pooled outputs.
    """
    kind, d_model = architecture.output.kind, architecture.d_model
    scored = logits != "none" and kind != "none"
    first = scored and kind in ("pooled", "classes")
    axes: list[str | int] = ["batch", "sequence"]
    if first or (scored and logits == "last"):
        at = graph.integer(0 if first else -1)
        hidden, axes = graph.op("Gather", graph.unflatten(hidden, d_model), at, axis=1), ["batch"]
    if architecture.has_final_norm:
        hidden = graph.norm(hidden, "final_norm")
    if not scored:
        return graph.unflatten(hidden, d_model), "hidden", [*axes, d_model]
    scores, width = write_output(graph, architecture, hidden)
    return (graph.unflatten(scores, width) if len(axes) > 1 else scores), "logits", [*axes, width]


def write_output(graph: GraphWriter, architecture: Architecture, hidden: str) -> tuple[str, int]:
    """Writes the output layer for rows to score, [rows, d_model] → [rows, width]; returns (value, width).

    tokens: one number per token, in token order: logits, or with cut-offs log-probabilities of the adaptive softmax.
    masked_tokens: the same after BERT's transform. pooled, classes, spans: BERT's heads (Devlin et al. 2019, §4).
    """
    output, d_model = architecture.output, architecture.d_model
    with graph.within("output"):
        if output.kind in ("pooled", "classes"):
            pooled = graph.op("Tanh", graph.linear(hidden, "output.pooler"))
            if output.classes is None:
                return pooled, d_model
            return graph.linear(pooled, "output.classes"), output.classes
        if output.kind == "spans":
            return graph.linear(hidden, "output.spans"), 2
        if output.kind == "masked_tokens":
            active = graph.activate(architecture.activation, graph.linear(hidden, "output.transform"))
            hidden = graph.norm(active, "output.transform_norm")
        if float(output.logits_scaling) != 1:
            hidden = graph.op("Div", hidden, graph.number(float(output.logits_scaling)))
        features = _features(graph, architecture, hidden)
        scores = _token_logits(graph, architecture, features)
        if architecture.embedding.cutoffs:
            scores = [_adaptive(graph, architecture, features[0], *scores)]
        return scores[0], architecture.embedding.vocab_size


def _adaptive(graph: GraphWriter, architecture: Architecture, at_head: str, head: str, *others: str) -> str:
    """Adaptive softmax: log p(token) = log p(token | cluster) + log p(cluster) (Grave et al. 2017).

    The head's softmax runs over its own tokens and one entry per tail cluster, in the clusters' order.
    """
    cluster = graph.op("Gemm", at_head, "output.cluster_weight", "output.cluster_bias", transB=1)
    joint = graph.op("LogSoftmax", graph.op("Concat", head, cluster, axis=1), axis=1)
    sizes = graph.integers(architecture.clusters[0].size, *[1] * len(others))
    head, *entries = graph.ops("Split", joint, sizes, outputs=1 + len(others), axis=1)
    parts = [head]
    for logits, entry in zip(others, entries, strict=True):
        parts.append(graph.op("Add", graph.op("LogSoftmax", logits, axis=1), entry))
    return graph.op("Concat", *parts, axis=1)


def _features(graph: GraphWriter, architecture: Architecture, hidden: str) -> list[str]:
    """Name of the graph value that each cluster's matrix multiplies, [rows, cluster.width]; one per projection."""
    parts = architecture.clusters
    if not architecture.projected:
        return [hidden] * len(parts)
    made: dict[tuple[int, bool], str] = {}
    features = []
    for cluster in parts:
        own = own_projection(architecture, cluster)
        index = min(cluster.index, len(table_specs(architecture)) - 1)
        if (index, own) not in made:
            made[index, own] = (
                graph.op("Gemm", hidden, f"output.projections.{index}", transB=1)
                if own
                else graph.op("Gemm", hidden, f"embedding.projections.{index}")
            )
        features.append(made[index, own])
    return features


def _token_logits(graph: GraphWriter, architecture: Architecture, features: list[str]) -> list[str]:
    """Logits of each cluster before any softmax, [rows, cluster.size] each."""
    parts = architecture.clusters
    if len(set(features)) == 1 and len(table_specs(architecture)) == 1:
        # All clusters have the same features, so that one product with the whole matrix is split afterwards.
        bias = ("output.bias",) if architecture.output_bias else ()
        together = graph.op("Gemm", features[0], _tables(architecture, 0), *bias, transB=1)
        return _split(graph, architecture, together, 1)
    biases = _split(graph, architecture, "output.bias", 0) if architecture.output_bias else []
    logits = []
    for rows, cluster in zip(features, parts, strict=True):
        table = _tables(architecture, cluster.index)
        if len(table_specs(architecture)) == 1:  # the cluster's rows of the shared table
            ends = (graph.integers(cluster.start), graph.integers(cluster.stop), graph.integers(0))
            table = graph.op("Slice", _tables(architecture, 0), *ends)
        logits.append(graph.op("Gemm", rows, table, *biases[cluster.index : cluster.index + 1], transB=1))
    return logits


def _split(graph: GraphWriter, architecture: Architecture, value: str, axis: int) -> list[str]:
    """Splits a value by cluster along an axis of vocab_size."""
    sizes = [cluster.size for cluster in architecture.clusters]
    return graph.ops("Split", value, graph.integers(*sizes), outputs=len(sizes), axis=axis) if sizes[1:] else [value]


def _tables(architecture: Architecture, index: int) -> str:
    return f"{'embedding' if architecture.output.tied else 'output'}.tables.{index}"
