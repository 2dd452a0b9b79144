"""The elementwise recurrence of SRU and SRU++ as ONNX nodes (Lei 2021, eqs. 2–5).

    f[t] = σ(u₁[t] + v₀⊙c[t−1] + b₀)        c[t] = f[t]⊙c[t−1] + (1 − f[t])⊙u₀[t]
    r[t] = σ(u₂[t] + v₁⊙c[t−1] + b₁)        h[t] = r[t]⊙c[t] + (1 − r[t])⊙x[t]

Only f and c are computed step by step, in a Scan, so that the length stays free; r and h follow for all steps at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from edgefront.core.graph.parameter import ParameterSpec

if TYPE_CHECKING:
    from onnx import GraphProto, NodeProto

    from edgefront.core.graph.context import GraphContext
    from edgefront.core.graph.writer import GraphWriter

STAYS = 1e4
"""Before the forget gate's sigmoid: all of the old cell stays, whatever weight and bias add; float16 holds it."""


def recurrence_parameters(d_model: int) -> Iterator[ParameterSpec]:
    """Weights v of the state and biases b, of the forget and the reset gate."""
    yield ParameterSpec("recurrence.weight", (2, d_model))
    yield ParameterSpec("recurrence.bias", (2, d_model), "zeros")


def write_recurrence(context: GraphContext, prefix: str, inner: str, hidden: str) -> str:
    """h for u = W·inner with the parameter `{prefix}.up.weight`, and x = hidden; cell in and out are the context's.

    `inner` is [batch·sequence, width]; `hidden` and the result are [batch·sequence, d_model].
    """
    from onnx import helper  # here, because who only counts parameters does without

    graph, d = context.graph, context.architecture.d_model
    bias = graph.op("Reshape", f"{prefix}.recurrence.bias", graph.integers(-1))
    bias = graph.op("Pad", bias, graph.integers(d, 0))  # the candidate has none
    u = graph.op("Sum", graph.linear(inner, f"{prefix}.up", bias=False), bias)  # which ONNX Runtime makes one Gemm
    candidate, forget, reset = graph.ops("Split", u, outputs=3, axis=-1, num_outputs=3)
    v_forget, v_reset = graph.ops("Split", f"{prefix}.recurrence.weight", outputs=2, axis=0, num_outputs=2)
    candidate, forget = (_time_first(graph, part, d) for part in (candidate, forget))
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


def _time_first(graph: GraphWriter, x: str, width: int) -> str:
    """[batch·sequence, width] → [sequence, batch, width]: what Scan slices without a copy."""
    return graph.op("Transpose", graph.unflatten(x, width), perm=[1, 0, 2])


def _step(prefix: str, v_forget: str, element: int) -> GraphProto:
    """One step: cell, candidate and forget gate's input [batch, d] → the new cell, twice (carried, and kept)."""
    from onnx import helper

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
