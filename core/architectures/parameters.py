"""Every parameter of an architecture, in one list that the torch and ONNX builders, the counts and the files share.

D is d_model, A = n_head·d_head, K = n_kv_head·d_head (A unless queries are grouped), f = d_inner, p = d_proj or d_attn.
A layer norm over w features has 2·w parameters, an RMS norm w. By block:

- attention: 2·A·D + 2·K·D, biases of A + 2·K for "qkv" and D more for "all", and a norm over D; with qk_norm 2·d_head,
  or A + K if qk_norm is "whole". With relative positions A·D more, no biases, and 2·A for u and v unless shared
- feed-forward: 2·D·f, biases of f + D, and a norm over D unless it shares the attention's; gated D·f more, and f of
  biases. With norm "both" attention, feed-forward and short convolutions have another norm over D
- SRU: 3·D² + 4·D, or 4·D·p + 4·D through a projection
- SRU++: 4·D·p + 2·p + 4·D, and 2·p² + 1 with attention
- short convolution: 4·D² + kernel·D, biases of 5·D, and a norm over D

Decoder parameters are the parameters of the blocks and the final norm: the proxy of LTS (arXiv 2203.02094). They are
Σ(4·D² + 9·D + 2·D·f + f) + 2·D for GPT-2 (Tables 6 and 7), and Σ(5·D² + 7·D + 2·D·f + f) for LTS's Transformer-XL
(Tables 4 and 5: u and v in each layer, no final norm). Position parameters are the table of learned positions, or u and
v if all blocks share them. Embedding parameters are all others: embedding matrices, projections, segments and their
norm, and the whole output layer. The parameters of an encoder (`source`) count in the same groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal, NamedTuple

from edgefront.core.architectures.architecture import Architecture, NormKind
from edgefront.core.architectures.block import Attention, Block, FeedForward, ShortConv, Sru, Srupp
from edgefront.core.architectures.embeddings_and_head import Cluster, LearnedPositions, RelativePositions

Fill = Literal["random", "ones", "zeros", "int4_scale"]
Group = Literal["decoder", "position", "embedding"]


class ParameterSpec(NamedTuple):
    """Name, shape and initial values of one parameter tensor.

    The name is the same in torch (state_dict), in ONNX (initializer) and in safetensors. `fill` initialises an
    untrained model: "random" is uniform with standard deviation 0.02, "int4_scale" the scale of random int4 weights
    (`core.model_files.random_values`).
    """

    name: str
    shape: tuple[int, ...]
    fill: Fill = "random"

    @property
    def size(self) -> int:
        """Number of elements of the tensor."""
        return math.prod(self.shape)

    @property
    def group(self) -> Group:
        """Group in which the parameter is counted (a field of `Parameters`), the same in an encoder and a decoder."""
        part = self.name.removeprefix("source.").partition(".")[0]
        if part in ("blocks", "final_norm"):
            return "decoder"
        return "position" if part == "positions" else "embedding"

    def under(self, prefix: str) -> ParameterSpec:
        """Specification of the same parameter in the submodule `prefix`."""
        return self._replace(name=f"{prefix}.{self.name}")


class Parameters(NamedTuple):
    """Numbers of parameters of a model, by group."""

    decoder: int
    position: int
    embedding: int

    @property
    def total(self) -> int:
        return self.decoder + self.position + self.embedding


def parameters(architecture: Architecture) -> tuple[ParameterSpec, ...]:
    """All parameters, in the order of the computation. Weights of linear layers are (out, in).

    A tied output layer reads the embedding's matrices, which therefore appear once. `output.tied_projections` decides
    whether the projections back from d_model are the output's own or the embedding's. In Transformer-XL's adaptive
    softmax the head's projection is the output's own, and the tails' are the embedding's. With cut-offs the output also
    has a row and a bias for each tail cluster. The parameters of an encoder come first, with the prefix "source.".
    """
    encoder = () if architecture.source is None else parameters(architecture.source)
    return (
        *(spec.under("source") for spec in encoder),
        *embedding_parameters(architecture),
        *(
            spec.under(f"blocks.{index}")
            for index, block in enumerate(architecture.blocks)
            for spec in block_parameters(block, architecture)
        ),
        *head_parameters(architecture),
    )


def count(architecture: Architecture) -> Parameters:
    """Number of parameters of the model, including its encoder's."""
    sizes: dict[Group, int] = {"decoder": 0, "position": 0, "embedding": 0}
    for spec in parameters(architecture):
        sizes[spec.group] += spec.size
    return Parameters(sizes["decoder"], sizes["position"], sizes["embedding"])


# Embedding and head ---------------------------------------------------------------------------------------------------


def embedding_parameters(architecture: Architecture) -> Iterator[ParameterSpec]:
    """Parameters before the blocks: embedding and positions."""
    d_model, embedding, positions = architecture.d_model, architecture.embedding, architecture.positions
    tables = table_specs(architecture)
    yield from tables
    if architecture.projected:
        for table in tables:
            yield ParameterSpec(table.name.replace("tables", "projections"), (d_model, table.shape[1]))
    if embedding.segments:
        yield ParameterSpec("embedding.segments", (embedding.segments, d_model))
    if isinstance(positions, LearnedPositions):
        yield ParameterSpec("positions.weight", (positions.length + positions.offset, d_model))
    if isinstance(positions, RelativePositions) and positions.shared:
        first = next((block for block in architecture.blocks if isinstance(block, Attention)), None)
        if first is not None:
            shape = (first.n_head, architecture.d_head(first))
            yield ParameterSpec("positions.u", shape)
            yield ParameterSpec("positions.v", shape)
    if embedding.norm:
        yield from _norm("embedding.norm", d_model, architecture.norm_kind)


def head_parameters(architecture: Architecture) -> Iterator[ParameterSpec]:
    """Parameters after the blocks: final norm and output layer."""
    d_model, output = architecture.d_model, architecture.output
    if architecture.has_final_norm:
        yield from _norm("final_norm", d_model, architecture.norm_kind)
    if output.kind == "masked_tokens":
        yield from _linear("output.transform", d_model, d_model)
        yield from _norm("output.transform_norm", d_model, architecture.norm_kind)
    if output.kind in ("pooled", "classes"):
        yield from _linear("output.pooler", d_model, d_model)
    if output.classes is not None:
        yield from _linear("output.classes", d_model, output.classes)
    if output.kind == "spans":
        yield from _linear("output.spans", d_model, 2)
    yield from output_table_specs(architecture)
    yield from output_projection_specs(architecture)
    if architecture.output_bias:
        yield ParameterSpec("output.bias", (architecture.embedding.vocab_size,), "zeros")
    tails = len(architecture.embedding.cutoffs)
    if tails and architecture.scores_tokens:
        yield ParameterSpec("output.cluster_weight", (tails, architecture.d_embed))
        yield ParameterSpec("output.cluster_bias", (tails,), "zeros")


def table_specs(architecture: Architecture) -> tuple[ParameterSpec, ...]:
    """Specifications of the embedding matrices, (tokens, width)."""
    return tuple(
        ParameterSpec(f"embedding.tables.{table.index}", (table.size, table.width)) for table in architecture.tables
    )


def own_projection(architecture: Architecture, cluster: Cluster) -> bool:
    """Whether the output layer has a separate projection of the hidden states to this cluster's width.

    Otherwise the output layer uses the embedding's projection, transposed. For a projected embedding only.
    """
    output = architecture.output
    if not output.tied or output.tied_projections == "none":
        return True
    return output.tied_projections == "tails" and cluster.index == 0


def output_table_specs(architecture: Architecture) -> tuple[ParameterSpec, ...]:
    """Output matrices, in the shapes of the embedding's matrices; none if the output is tied or scores no tokens."""
    if architecture.output.tied or not architecture.scores_tokens:
        return ()
    return tuple(spec._replace(name=f"output.tables.{i}") for i, spec in enumerate(table_specs(architecture)))


def output_projection_specs(architecture: Architecture) -> tuple[ParameterSpec, ...]:
    """Projections (width, d_model) of the output layer: one per output matrix, one for the head cluster only, or none.

    The field `output.tied_projections` decides. A projection has the index of its output matrix.
    """
    if not architecture.scores_tokens or not architecture.projected:
        return ()
    tables = zip(architecture.clusters, table_specs(architecture), strict=False)
    return tuple(
        ParameterSpec(f"output.projections.{cluster.index}", (table.shape[1], architecture.d_model))
        for cluster, table in tables
        if own_projection(architecture, cluster)
    )


# Blocks ---------------------------------------------------------------------------------------------------------------


def block_parameters(block: Block, architecture: Architecture) -> Iterator[ParameterSpec]:
    """Parameters of one block, in the order of the computation; names lack the prefix `blocks.{i}.`."""
    d = architecture.d_model
    if isinstance(block, Attention):
        yield from _attention(block, architecture)
    elif isinstance(block, FeedForward):
        # Gate and up projection are one linear layer, in this order.
        yield from _norms(architecture, own_norm=block.parallel != "shared_norm")
        yield from _linear("up", d, block.d_inner * (2 if block.gated else 1), block.bias)
        yield from _linear("down", block.d_inner, d, block.bias)
    elif isinstance(block, ShortConv):
        # `up` makes the gate before the convolution, the gate after it, and its input, in this order. Row i of the
        # convolution's weight belongs to the token kernel - 1 - i positions back.
        yield from _norms(architecture)
        yield from _linear("up", d, 3 * d, block.bias)
        yield ParameterSpec("conv.weight", (block.kernel, d))
        if block.bias:
            yield ParameterSpec("conv.bias", (d,), "zeros")
        yield from _linear("out", d, d, block.bias)
    elif isinstance(block, Sru):
        if block.d_proj is not None:
            yield ParameterSpec("down.weight", (block.d_proj, d))
        yield from _recurrence(block.d_proj or d, d)
    elif isinstance(block, Srupp):
        width = block.d_attn
        yield ParameterSpec("down.weight", (width, d))
        if block.attends != "none":
            yield ParameterSpec("kv.weight", (2 * width, width))
            yield ParameterSpec("alpha", (1,), "zeros")
        yield from _norm("norm", width)
        yield from _recurrence(width, d)


def _attention(block: Attention, architecture: Architecture) -> Iterator[ParameterSpec]:
    """Parameters of an attention block. One linear layer has the rows of queries, then keys, then values."""
    d, d_head, positions = architecture.d_model, architecture.d_head(block), architecture.positions
    width, kv_width, bias = block.n_head * d_head, block.kv_heads * d_head, architecture.attention_bias(block)
    yield from _norms(architecture)
    yield from _linear("qkv", d, width + 2 * kv_width, bias != "none")
    if block.qk_norm:
        whole = block.qk_norm == "whole"
        yield from _norm("q_norm", width if whole else d_head, "rms")
        yield from _norm("k_norm", kv_width if whole else d_head, "rms")
    if isinstance(positions, RelativePositions):
        yield ParameterSpec("relative.weight", (width, d))
        if not positions.shared:
            yield ParameterSpec("u", (block.n_head, d_head))
            yield ParameterSpec("v", (block.n_head, d_head))
    yield from _linear("out", width, d, bias == "all")


def _recurrence(width: int, d: int) -> Iterator[ParameterSpec]:
    """Parameters of a recurrence: a projection to candidate and gates, and the weights and biases of the gates."""
    yield ParameterSpec("up.weight", (3 * d, width))
    yield ParameterSpec("recurrence.weight", (2, d))
    yield ParameterSpec("recurrence.bias", (2, d), "zeros")


def _linear(name: str, fan_in: int, fan_out: int, bias: bool = True) -> Iterator[ParameterSpec]:
    """Parameters of a linear layer: weight (fan_out, fan_in), and bias (fan_out,) if there is one."""
    yield ParameterSpec(f"{name}.weight", (fan_out, fan_in))
    if bias:
        yield ParameterSpec(f"{name}.bias", (fan_out,), "zeros")


def _norm(name: str, width: int, kind: NormKind = "layer") -> Iterator[ParameterSpec]:
    """Parameters of a norm over `width` features: gain, and the bias of a layer norm."""
    yield ParameterSpec(f"{name}.weight", (width,), "ones")
    if kind == "layer":
        yield ParameterSpec(f"{name}.bias", (width,), "zeros")


def _norms(architecture: Architecture, *, own_norm: bool = True) -> Iterator[ParameterSpec]:
    """Norm of a block's input if `own_norm`, and, if the architecture's norm is "both", norm of the block's update."""
    if own_norm:
        yield from _norm("norm", architecture.d_model, architecture.norm_kind)
    if architecture.norm == "both":
        yield from _norm("after_norm", architecture.d_model, architecture.norm_kind)
