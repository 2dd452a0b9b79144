"""Collects the nodes of one ONNX graph. Values are named by strings; parameters by their own names.

Only operators of the standard domain up to opset 21 are used, so that any execution provider can take the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, helper, numpy_helper

OPSET = 21
IR_VERSION = 10

Dtype = Literal["float32", "float64"]


class GraphWriter:
    """A graph under construction over the int64 input `tokens` [batch, sequence].

    The residual stream between the parts is two-dimensional, [batch·sequence, features]: each linear map is then one
    Gemm with its bias, reading the weight as torch keeps it, (out, in).
    """

    tokens = "tokens"

    def __init__(self, dtype: Dtype = "float32") -> None:
        self.dtype = np.dtype(dtype)
        self._nodes: list[NodeProto] = []
        self._constants: list[TensorProto] = []
        self._shared: dict[Any, str] = {}
        self._scope = ""

    def op(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add one node of one output; returns the output's name."""
        return self.ops(operator, *inputs, outputs=1, **attributes)[0]

    def ops(self, operator: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """Add one node; returns the names of its outputs."""
        name = f"{self._scope}{operator}_{len(self._nodes)}"
        names = [name] if outputs == 1 else [f"{name}:{index}" for index in range(outputs)]
        self._nodes.append(helper.make_node(operator, inputs, names, name, **attributes))
        return names

    @contextmanager
    def within(self, scope: str) -> Iterator[None]:
        """Nodes added inside carry `scope` in their names, as profilers show them."""
        outer, self._scope = self._scope, f"{self._scope}{scope}/"
        yield
        self._scope = outer

    def once(self, key: str, make: Callable[[], str]) -> str:
        """The value that `make` writes, written at the first call with this key and shared by later ones."""
        if key not in self._shared:
            scope, self._scope = self._scope, "shared/"
            self._shared[key] = make()
            self._scope = scope
        return self._shared[key]

    def integers(self, *values: int) -> str:
        """A constant vector of int64."""
        return self._constant(np.array(values, np.int64))

    def integer(self, value: int) -> str:
        """A constant scalar of int64."""
        return self._constant(np.array(value, np.int64))

    def number(self, value: float) -> str:
        """A constant scalar of the graph's floating-point type."""
        return self._constant(np.array(value, self.dtype))

    def linear(self, x: str, name: str) -> str:
        """x·Wᵀ + b for [rows, in] → [rows, out], with the parameters `{name}.weight` (out, in) and `{name}.bias`."""
        return self.op("Gemm", x, f"{name}.weight", f"{name}.bias", transB=1)

    def norm(self, x: str, name: str) -> str:
        """Layer norm over the last axis, epsilon 1e-5 (Ba et al. 2016)."""
        return self.op("LayerNormalization", x, f"{name}.weight", f"{name}.bias", axis=-1, epsilon=1e-5)

    def batch(self) -> str:
        """Batch size, a vector of one."""
        return self.once("batch", lambda: self.op("Shape", self.tokens, start=0, end=1))

    def sequence(self) -> str:
        """Sequence length, a vector of one."""
        return self.once("sequence", lambda: self.op("Shape", self.tokens, start=1, end=2))

    def steps(self) -> str:
        """0, 1, …, sequence - 1."""

        def make() -> str:
            return self.op("Range", self.integer(0), self.op("Squeeze", self.sequence()), self.integer(1))

        return self.once("steps", make)

    def unflatten(self, x: str, *tail: int) -> str:
        """[batch·sequence, features] → [batch, sequence, *tail]."""

        def make() -> str:
            return self.op("Concat", self.batch(), self.sequence(), self.integers(*tail), axis=0)

        return self.op("Reshape", x, self.once(f"shape {tail}", make))

    def flatten(self, x: str, width: int) -> str:
        """[batch, sequence, …] → [batch·sequence, width]."""
        return self.op("Reshape", x, self.integers(-1, width))

    def graph(self, output: str, name: str, shape: Sequence[int | str]) -> GraphProto:
        """The finished graph, whose one output is the value `output`, renamed to `name`."""
        for node in self._nodes:
            for names in (node.input, node.output):
                for index, value in enumerate(names):
                    if value == output:
                        names[index] = name
        element = helper.np_dtype_to_tensor_dtype(self.dtype)
        return helper.make_graph(
            self._nodes,
            "edgefront",
            [helper.make_tensor_value_info(self.tokens, TensorProto.INT64, ["batch", "sequence"])],
            [helper.make_tensor_value_info(name, element, shape)],
            self._constants,
        )

    def _constant(self, value: np.ndarray[Any, Any]) -> str:
        def make() -> str:
            name = f"constant_{len(self._constants)}"
            self._constants.append(numpy_helper.from_array(value, name))
            return name

        return self.once(f"constant {value.dtype} {value.tolist()}", make)
