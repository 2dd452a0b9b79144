"""SRU++ (Lei 2021, §3): the recurrence's input comes from attention over few features, keys and values from queries."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgefront.core.graph.parameter import ParameterSpec, norm
from edgefront.core.graph.recurrence import recurrence_parameters, write_recurrence
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Srupp

if TYPE_CHECKING:
    from edgefront.core.graph.context import GraphContext

NORM_EPS = 1e-5


def parameters(block: Srupp, architecture: Architecture) -> Iterator[ParameterSpec]:
    """4·d·a + 2a + 4d parameters for d = d_model and a = d_attn, and with attention 2a² + 1 more."""
    d, width = architecture.d_model, block.d_attn
    yield ParameterSpec("down.weight", (width, d))
    if block.attends != "none":
        yield ParameterSpec("kv.weight", (2 * width, width))
        yield ParameterSpec("alpha", (1,), "zeros")
    yield from norm("norm", width)
    yield ParameterSpec("up.weight", (3 * d, width))
    yield from recurrence_parameters(d)


def write(context: GraphContext, block: Srupp, prefix: str, hidden: str) -> str:
    """The recurrence over U = Wᵒ·LN(q + α·A) for q = W^q·x; input and result are [batch·sequence, d_model].

    A = softmax(q·kᵀ/√d_head + mask)·v, where keys and values are computed from the queries of all positions that the
    block sees.
    """
    graph = context.graph
    q = graph.linear(hidden, f"{prefix}.down", bias=False)
    z = q
    if block.attends != "none":
        attended = _attended(context, block, prefix, hidden, q)
        z = graph.op("Add", q, graph.op("Mul", attended, f"{prefix}.alpha"))
    inner = graph.layer_norm(z, f"{prefix}.norm", NORM_EPS)
    return write_recurrence(context, prefix, inner, hidden)


def _attended(context: GraphContext, block: Srupp, prefix: str, hidden: str, q: str) -> str:
    """A, [batch·sequence, d_attn]."""
    graph = context.graph
    n_head, d_head = block.n_head, block.d_attn // block.n_head

    def heads(x: str) -> str:
        # [batch·n, d_attn] → [batch, head, n, d_head]; with a single head no data move
        if n_head == 1:
            return graph.op("Unsqueeze", graph.unflatten(x, d_head), graph.integers(1))
        return graph.op("Transpose", graph.unflatten(x, n_head, d_head), perm=[0, 2, 1, 3])

    def keys_values(queries: str) -> tuple[str, str]:
        kv = graph.linear(queries, f"{prefix}.kv", bias=False)
        k, v = graph.ops("Split", kv, outputs=2, axis=-1, num_outputs=2)
        return heads(k), heads(v)

    def project(inputs: str) -> tuple[str, str]:
        return keys_values(graph.linear(inputs, f"{prefix}.down", bias=False))

    own = None if block.attends == "source" else keys_values(q)
    keys, values = context.keys_values(prefix, block.attends, hidden, own, project)
    # Scaled this early, ONNX Runtime does not fold the factor into an attribute, which would be float32 in any type.
    scaled = graph.op("Mul", q, graph.number(1 / math.sqrt(d_head)))
    scores = graph.op("MatMul", heads(scaled), graph.op("Transpose", keys, perm=[0, 1, 3, 2]))
    mask = context.mask(block.attends)
    if mask is not None:
        scores = graph.op("Add", scores, mask)
    mixed = graph.op("MatMul", graph.op("Softmax", scores, axis=-1), values)
    if n_head > 1:
        mixed = graph.op("Transpose", mixed, perm=[0, 2, 1, 3])
    return graph.flatten(mixed, block.d_attn)
