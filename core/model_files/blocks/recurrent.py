"""Writes SRU (Lei et al. 2018; Lei 2021, §2) and SRU++ (Lei 2021, §3) into an ONNX graph.

In SRU++ the recurrence's input is attention over few features; keys and values are computed from the queries. SRU and
SRU++ have this elementwise recurrence (Lei 2021, eqs. 2–5):

  f[t] = σ(u₁[t] + v₀⊙c[t−1] + b₀)        c[t] = f[t]⊙c[t−1] + (1 − f[t])⊙u₀[t]
  r[t] = σ(u₂[t] + v₁⊙c[t−1] + b₁)        h[t] = r[t]⊙c[t] + (1 − r[t])⊙x[t]

Only f and c are computed step by step, in a Scan, so the length stays free; r and h are computed for all steps at once.
"""

from __future__ import annotations

import math

from onnx import GraphProto, NodeProto, helper

from edgefront.core.architectures.block import SRUPP_NORM_EPS, Sru, Srupp
from edgefront.core.model_files.context import GraphContext


def write_sru(context: GraphContext, block: Sru, prefix: str, hidden: str) -> str:
    """SRU block: recurrence over U = W·x, where d_proj splits W into two factors; shapes [batch·sequence, d_model]."""
    inner = hidden if block.d_proj is None else context.graph.linear(hidden, f"{prefix}.down", bias=False)
    return _write_recurrence(context, prefix, inner, hidden)


def write_srupp(context: GraphContext, block: Srupp, prefix: str, hidden: str) -> str:
    """SRU++ block: recurrence over U = Wᵒ·LN(q + α·A) for q = W^q·x; input and result are [batch·sequence, d_model].

    A = softmax(q·kᵀ/√d_head + mask)·v. Keys and values are computed from the queries of all positions that the block
    sees.
    """
    graph = context.graph
    q = graph.linear(hidden, f"{prefix}.down", bias=False)
    z = q
    if block.attends != "none":
        attended = _attended(context, block, prefix, hidden, q)
        z = graph.op("Add", q, graph.op("Mul", attended, f"{prefix}.alpha"))
    inner = graph.layer_norm(z, f"{prefix}.norm", SRUPP_NORM_EPS)
    return _write_recurrence(context, prefix, inner, hidden)


def _attended(context: GraphContext, block: Srupp, prefix: str, hidden: str, q: str) -> str:
    """Attention of an SRU++ block before its factor α, [batch·sequence, d_attn]."""
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


def _write_recurrence(context: GraphContext, prefix: str, inner: str, hidden: str) -> str:
    """Writes the recurrence for u = W·inner, where W is the parameter `{prefix}.up.weight`, and x = hidden; returns h.

    `inner` is [batch·sequence, width]; `hidden` and the result are [batch·sequence, d_model]. The context provides the
    initial cell and stores the final one.
    """
    graph, d = context.graph, context.architecture.d_model
    bias = graph.op("Reshape", f"{prefix}.recurrence.bias", graph.integers(-1))
    bias = graph.op("Pad", bias, graph.integers(d, 0))  # the candidate has no bias
    u = graph.op("Sum", graph.linear(inner, f"{prefix}.up", bias=False), bias)  # ONNX Runtime fuses both into one Gemm
    candidate, forget, reset = graph.ops("Split", u, outputs=3, axis=-1, num_outputs=3)
    v_forget, v_reset = graph.ops("Split", f"{prefix}.recurrence.weight", outputs=2, axis=0, num_outputs=2)
    # [sequence, batch, d_model], which Scan slices without a copy.
    candidate, forget = (
        graph.op("Transpose", graph.unflatten(part, d), perm=[1, 0, 2]) for part in (candidate, forget)
    )
    cell = context.cell(prefix)
    step = _step(prefix, v_forget, helper.np_dtype_to_tensor_dtype(graph.dtype))
    last, cells = graph.ops("Scan", cell, candidate, forget, outputs=2, body=step, num_scan_inputs=2)
    context.carry(f"{prefix}.cell", last)
    cells = graph.op("Transpose", cells, perm=[1, 0, 2])
    all_but_last = graph.op("Slice", cells, graph.integers(0), graph.integers(-1), graph.integers(1))
    before = graph.op("Concat", graph.op("Unsqueeze", cell, graph.integers(1)), all_but_last, axis=1)
    r = graph.op("Sigmoid", graph.op("Add", graph.op("Mul", before, v_reset), graph.unflatten(reset, d)))
    x = graph.unflatten(hidden, d)
    h = graph.op("Add", x, graph.op("Mul", r, graph.op("Sub", cells, x)))
    return graph.flatten(h, d)


def _step(prefix: str, v_forget: str, element: int) -> GraphProto:
    """Body of the Scan: inputs cell, candidate and forget gate's input, [batch, d] each; returns the new cell twice."""
    cell, candidate, forget, new, kept = (
        f"{prefix}/step/{name}" for name in ("cell", "candidate", "forget", "new", "kept")
    )
    nodes: list[NodeProto] = []

    def op(operator: str, *inputs: str, to: str | None = None) -> str:
        name = to or f"{prefix}/step/{operator}_{len(nodes)}"
        nodes.append(helper.make_node(operator, inputs, [name], name))
        return name

    f = op("Sigmoid", op("Add", op("Mul", cell, v_forget), forget))
    op("Add", candidate, op("Mul", f, op("Sub", cell, candidate)), to=new)
    op("Identity", new, to=kept)
    return helper.make_graph(
        nodes,
        f"{prefix}/step",
        [helper.make_tensor_value_info(name, element, None) for name in (cell, candidate, forget)],
        [helper.make_tensor_value_info(name, element, None) for name in (new, kept)],
    )
