"""Collects the nodes of one ONNX graph. Values are strings; parameters have their own names.

The graph contains only standard operators up to opset 21, so that any execution provider can run it. Exceptions are
int4 and fused attention, which need operators of ONNX Runtime.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from edgefront.core.architectures.architecture import NormKind
from edgefront.core.common.number_formats import BLOCK_SIZE, Quantisation
from edgefront.core.model_files.formats import is_linear_map
from edgefront.core.model_files.state import Dtype

OPSET = 21
IR_VERSION = 10
CONTRIBUTED = "com.microsoft"
"""Domain of ONNX Runtime's own operators."""
_INT8_INPUTS = 4
"""`accuracy_level` of MatMulNBits for inputs quantised to eight bits with one scale per block, the usual setting."""


class GraphWriter:
    """An ONNX graph under construction over the int64 input `tokens` [batch, sequence].

    The residual stream between blocks is two-dimensional, [batch·sequence, features], so that each linear layer is one
    Gemm with its bias, whose weight is (out, in) as in torch.
    """

    tokens = "tokens"

    def __init__(
        self,
        dtype: Dtype = "float32",
        epsilon: float = 1e-5,
        quantisation: Quantisation = "full",
        block_size: int = BLOCK_SIZE,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        *,
        norm_kind: NormKind = "layer",
    ) -> None:
        self.dtype = np.dtype(dtype)
        self.epsilon = epsilon
        self.norm_kind = norm_kind
        self.quantisation = quantisation
        self._block_size = block_size
        self._shapes = shapes or {}
        """Shapes of the parameters, needed for int4."""
        self._nodes: list[NodeProto] = []
        self._constants: dict[Any, TensorProto] = {}
        self._inputs: list[ValueInfoProto] = []
        self._outputs: list[ValueInfoProto] = []
        self._renamed: dict[str, str] = {}
        self._shared: dict[Any, str] = {}
        self._quantised: dict[str, list[str]] = {}
        self._made: set[str] = set()
        self._root = self._scope = ""

    def child(self, tokens: str, epsilon: float, norm_kind: NormKind) -> GraphWriter:
        """Writer into the same graph for the encoder's sequence; memoizes token-dependent values separately."""
        other = GraphWriter(
            self.dtype.name, epsilon, self.quantisation, self._block_size, self._shapes, norm_kind=norm_kind
        )
        other.tokens = tokens
        other._nodes, other._constants = self._nodes, self._constants
        other._inputs, other._outputs, other._renamed = self._inputs, self._outputs, self._renamed
        other._made = self._made
        other._root = other._scope = f"{tokens}/"
        return other

    def op(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Adds a node with one output; returns the output's name."""
        return self.ops(operator, *inputs, outputs=1, **attributes)[0]

    def ops(self, operator: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """Adds a node with several outputs; returns their names."""
        name = f"{self._scope}{operator}_{len(self._nodes)}"
        names = [name] if outputs == 1 else [f"{name}:{index}" for index in range(outputs)]
        self._nodes.append(helper.make_node(operator, inputs, names, name, **attributes))
        self._made.update(names)
        return names

    @contextmanager
    def within(self, scope: str) -> Iterator[None]:
        """Adds `scope` to the names of nodes written inside the context, for profilers."""
        outer, self._scope = self._scope, f"{self._scope}{scope}/"
        yield
        self._scope = outer

    def memoized(self, key: str, make: Callable[[], str]) -> str:
        """Value that `make` writes at the first call with this key; later calls with the key reuse the value."""
        if key not in self._shared:
            scope, self._scope = self._scope, f"{self._root}shared/"
            self._shared[key] = make()
            self._scope = scope
        return self._shared[key]

    def integers(self, *values: int) -> str:
        """Constant vector of int64."""
        return self.constant(np.array(values, np.int64))

    def integer(self, value: int) -> str:
        """Constant scalar of int64."""
        return self.constant(np.array(value, np.int64))

    def number(self, value: float) -> str:
        """Constant scalar of the graph's floating-point type."""
        return self.constant(np.array(value, self.dtype))

    def numbers(self, values: np.ndarray[Any, Any]) -> str:
        """Constant array of the graph's floating-point type."""
        return self.constant(values.astype(self.dtype))

    def constant(self, value: np.ndarray[Any, Any]) -> str:
        """Constant with the type of the array; equal constants are stored once."""
        key = (value.dtype, value.shape, value.tobytes())
        if key not in self._constants:
            self._constants[key] = numpy_helper.from_array(value, f"constant_{len(self._constants)}")
        return str(self._constants[key].name)

    def linear(self, x: str, name: str, *, bias: bool = True, rows: tuple[int, int] | None = None) -> str:
        """Linear layer x·Wᵀ + b, [rows, in] → [rows, out], with `{name}.weight` (out, in) and `{name}.bias`.

        `rows` selects only the rows `start` to `stop` - 1 of the parameters.
        """
        if self.quantisation != "full" and is_linear_map(f"{name}.weight"):
            write = self._int8_linear if self.quantisation == "int8" else self._int4_linear
            return write(x, name, bias, rows)
        parameters = [f"{name}.weight", f"{name}.bias"] if bias else [f"{name}.weight"]
        return self.op("Gemm", x, *(self._rows(part, rows) for part in parameters), transB=1)

    def _rows(self, parameter: str, rows: tuple[int, int] | None) -> str:
        if rows is None:
            return parameter
        start, stop = rows
        ends = (self.integers(start), self.integers(stop), self.integers(0))
        return self.memoized(f"{parameter} {start}:{stop}", lambda: self.op("Slice", parameter, *ends))

    def _int8_linear(self, x: str, name: str, bias: bool, rows: tuple[int, int] | None) -> str:
        """Linear layer in int8 as defined in `core.model_files.formats`, with the scale in `{name}.weight.scale`.

        ONNX Runtime fuses these nodes into one kernel, and packs the transposed weight once.
        """
        if x not in self._quantised:
            self._quantised[x] = self.ops("DynamicQuantizeLinear", x, outputs=3)
        quantised, scale, zero = self._quantised[x]
        weight = self._rows(f"{name}.weight", rows)
        weight = self.memoized(f"{weight} transposed", lambda: self.op("Transpose", weight, perm=[1, 0]))
        total = self.op("Cast", self.op("MatMulInteger", quantised, weight, zero), to=TensorProto.FLOAT)
        scaled = self.op("Mul", total, self.op("Mul", scale, f"{name}.weight.scale"))
        return self.op("Add", scaled, self._rows(f"{name}.bias", rows)) if bias else scaled

    def _int4_linear(self, x: str, name: str, bias: bool, rows: tuple[int, int] | None) -> str:
        """Linear layer in int4 as defined in `core.model_files.formats`, with the scales in `{name}.weight.scale`."""
        weight, (out, width) = f"{name}.weight", self._shapes[f"{name}.weight"]
        product = self.op(
            "MatMulNBits",
            x,
            self._rows(weight, rows),
            self._rows(f"{weight}.scale", rows),
            domain=CONTRIBUTED,
            K=width,
            N=out if rows is None else rows[1] - rows[0],
            bits=4,
            block_size=self._block_size,
            accuracy_level=_INT8_INPUTS,
        )
        return self.op("Add", product, self._rows(f"{name}.bias", rows)) if bias else product

    def norm(self, x: str, name: str) -> str:
        """Norm of the model's kind over the last axis, with the model's epsilon."""
        if self.norm_kind == "rms":
            return self.rms_norm(x, name)
        return self.layer_norm(x, name, self.epsilon)

    def rms_norm(self, x: str, name: str, factor: float | None = None) -> str:
        """RMS norm times a factor, x/√(mean(x²) + ε)·weight·factor, over the last axis (Zhang & Sennrich 2019).

        float16 and bfloat16 are squared and summed in float32. ONNX Runtime fuses these nodes into one kernel.
        """
        # ONNX Runtime computes this product of constants when the session is created.
        gain = f"{name}.weight" if factor is None else self.op("Mul", f"{name}.weight", self.number(factor))
        if self.dtype == np.float64:
            # ONNX Runtime does not fuse these nodes, because its fused kernel rounds epsilon to float32.
            square = self.op("ReduceMean", self.op("Mul", x, x), self.integers(-1))
            scale = self.op("Reciprocal", self.op("Sqrt", self.op("Add", square, self.number(self.epsilon))))
            return self.op("Mul", self.op("Mul", x, scale), gain)
        half = self.dtype != np.float32
        wide = self.op("Cast", x, to=TensorProto.FLOAT) if half else x
        square = self.op("ReduceMean", self.op("Pow", wide, self.constant(np.array(2, np.float32))), self.integers(-1))
        root = self.op("Sqrt", self.op("Add", square, self.constant(np.array(self.epsilon, np.float32))))
        scaled = self.op("Div", wide, root)
        return self.op("Mul", self.op("Cast", scaled, to=self._element(None)) if half else scaled, gain)

    def layer_norm(self, x: str, name: str, epsilon: float) -> str:
        """Layer norm over the last axis (Ba et al. 2016)."""
        if self.dtype != np.float64:
            return self.op("LayerNormalization", x, f"{name}.weight", f"{name}.bias", axis=-1, epsilon=epsilon)
        # LayerNormalization rounds epsilon to float32, which is too coarse for float64.
        centred = self.op("Sub", x, self.op("ReduceMean", x, self.integers(-1)))
        variance = self.op("ReduceMean", self.op("Mul", centred, centred), self.integers(-1))
        scale = self.op("Reciprocal", self.op("Sqrt", self.op("Add", variance, self.number(epsilon))))
        gain = self.op("Mul", self.op("Mul", centred, scale), f"{name}.weight")
        return self.op("Add", gain, f"{name}.bias")

    def activate(self, activation: str, x: str) -> str:
        """ReLU, x·σ(x) ("silu"), x·Φ(x) ("gelu"), or gelu by tanh ("gelu_tanh"; Hendrycks & Gimpel 2016, §2)."""
        if activation == "relu":
            return self.op("Relu", x)
        if activation == "silu":
            return self.op("Mul", x, self.op("Sigmoid", x))
        if self.dtype == "float32":
            return self.op("Gelu", x, approximate="tanh" if activation == "gelu_tanh" else "none")
        # Runtimes without a Gelu in this type would expand ONNX's own definition, whose constants are float32.
        if activation == "gelu_tanh":
            cube = self.op("Mul", self.op("Mul", self.op("Mul", x, x), x), self.number(0.044715))
            bent = self.op("Tanh", self.op("Mul", self.op("Add", x, cube), self.number(math.sqrt(2 / math.pi))))
        else:
            scaled = self.op("Mul", x, self.number(math.sqrt(0.5)))
            bent = self._erf(scaled) if self.dtype == "float64" else self.op("Erf", scaled)
        return self.op("Mul", self.op("Mul", x, self.number(0.5)), self.op("Add", bent, self.number(1.0)))

    def _erf(self, x: str) -> str:
        """erf(x) = 2x/√π · ∫₀¹ exp(-x²t²) dt by Gauss–Legendre quadrature, because ONNX Runtime has no Erf in float64.

        40 nodes leave an error below 1e-14 up to |x| = 6. For larger |x| erf is 1 to the final bit.
        """
        points, weights = np.polynomial.legendre.leggauss(40)  # on [-1, 1], an interval twice as long
        x = self.op("Clip", x, self.number(-6.0), self.number(6.0))
        scaled = self.op("Mul", self.op("Unsqueeze", x, self.integers(-1)), self.numbers((points + 1) / 2))
        bell = self.op("Exp", self.op("Neg", self.op("Mul", scaled, scaled)))
        mean = self.op("MatMul", bell, self.numbers(weights / math.sqrt(math.pi)))
        return self.op("Mul", x, mean)

    def batch(self) -> str:
        """Batch size, a vector of one element."""
        return self.memoized("batch", lambda: self.op("Shape", self.tokens, start=0, end=1))

    def sequence(self) -> str:
        """Sequence length, a vector of one element."""
        return self.memoized("sequence", lambda: self.op("Shape", self.tokens, start=1, end=2))

    def steps(self) -> str:
        """Indices 0, 1, …, sequence - 1 of the segment's tokens."""
        return self.memoized("steps", lambda: self.range(self.sequence()))

    def range(self, count: str) -> str:
        """Indices 0, 1, …, count - 1; `count` is a vector of one element."""
        return self.op("Range", self.integer(0), self.op("Squeeze", count), self.integer(1))

    def unflatten(self, x: str, *tail: int) -> str:
        """Restores the batch axis: [batch·n, features] → [batch, n, *tail], for any n."""

        def make() -> str:
            return self.op("Concat", self.batch(), self.integers(-1, *tail), axis=0)

        return self.op("Reshape", x, self.memoized(f"shape {tail}", make))

    def flatten(self, x: str, width: int) -> str:
        """Merges the batch and token axes: [batch, n, …] → [batch·n, width]."""
        return self.op("Reshape", x, self.integers(-1, width))

    def input(self, name: str, shape: Sequence[int | str], element: int | None = None) -> str:
        """Declares an input of the graph, of the graph's type unless `element` is given; returns the name."""
        self._inputs.append(helper.make_tensor_value_info(name, self._element(element), shape))
        return name

    def output(self, value: str, name: str, shape: Sequence[int | str], element: int | None = None) -> None:
        """Declares `value` an output of the graph, under the name `name`."""
        if value in self._renamed or value not in self._made:
            value = self.op("Identity", value)  # for a value that is an input, a parameter or another output
        self._renamed[value] = name
        self._outputs.append(helper.make_tensor_value_info(name, self._element(element), shape))

    def graph(self) -> GraphProto:
        """Returns the finished graph."""
        for node in self._nodes:
            for names in (node.input, node.output):
                for index, value in enumerate(names):
                    if value in self._renamed:
                        names[index] = self._renamed[value]
        constants = list(self._constants.values())
        return helper.make_graph(self._nodes, "edgefront", self._inputs, self._outputs, constants)

    def _element(self, element: int | None) -> int:
        return helper.np_dtype_to_tensor_dtype(self.dtype) if element is None else element
