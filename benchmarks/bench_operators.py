"""Attention and RMS norm of one layer on ONNX Runtime's CPU, in three ways of writing them as operators.

    .venv/bin/python benchmarks/bench_operators.py [--seconds 2]

`plain`: operators up to opset 21, as our graphs have them; of one token after a context both as downloads of
`onnx-decode` have it (`copied`: the past and the new token are concatenated) and `in place` (two buffers are bound as
input and output, the new token is scattered into them, what lies beyond is masked). `standard`: `Attention`,
`RotaryEmbedding` and `RMSNormalization` of opset 23. `fused`: ONNX Runtime's own `GroupQueryAttention`, in place, and
`SkipSimplifiedLayerNormalization`. Everything between the linear layers of one layer, one thread, the ways in turns;
the fastest pass within `--seconds` a row. All ways have to agree. One that ONNX Runtime does not run is `none`. A JSON
line goes to `results/operators.jsonl`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from record import append, table

ROOM = 64
"""Tokens that buffers have room for beyond the context."""
FORWARD, CONTEXTS = (128, 512, 1024), (128, 2048)


class Shape(NamedTuple):
    heads: int
    kept: int
    """Heads of keys and of values."""
    width: int
    turned: bool
    """Whether positions are rotary."""


SHAPES = {
    "SmolLM2-135M": Shape(9, 3, 64, True),
    "Llama-3.2-1B": Shape(32, 8, 64, True),
    "GPT-2 small": Shape(12, 12, 64, False),
}
TURN = """
  {x}4 = Reshape(x_{x}, shape_{x})
  {x}_a, {x}_b = Split <axis = -1, num_outputs = 2> ({x}4)
  {x}_swapped = Concat <axis = -1> ({x}_b, {x}_a)
  {x}_cos = Mul({x}4, cos)
  {x}_sin = Mul({x}_swapped, sin)
  {x}_turned = Add({x}_cos, {x}_sin)
  {x} = Transpose <perm = [0, 2, 1, 3]> ({x}_turned)"""
STAY = """
  {x}4 = Reshape(x_{x}, shape_{x})
  {x} = Transpose <perm = [0, 2, 1, 3]> ({x}4)"""
ATTEND = """
  scaled = Mul(q, scale)
  grouped = Reshape(scaled, groups)
  flipped = Transpose <perm = [0, 1, 3, 2]> (all_k)
  products = MatMul(grouped, flipped)
  scores = Reshape(products, by_head)
  seen = Add(scores, mask)
  shares = Softmax <axis = -1> (seen)
  regrouped = Reshape(shares, by_group)
  mixed = MatMul(regrouped, all_v)
  apart = Reshape(mixed, heads)
  side_by_side = Transpose <perm = [0, 2, 1, 3]> (apart)
  out = Reshape(side_by_side, flat)"""
KEEP = {
    "alone": "\n  all_k = Identity(k)\n  all_v = Identity(v)",
    "copied": "\n  all_k = Concat <axis = 2> (past_k, k)\n  all_v = Concat <axis = 2> (past_v, v)",
    "in place": "\n  all_k = ScatterElements <axis = 2> (past_k, at, k)"
    "\n  all_v = ScatterElements <axis = 2> (past_v, at, v)",
}
NORMS = {
    "plain": """
  sum = Add(x, skip)
  square = Pow(sum, two)
  mean = ReduceMean <keepdims = 1> (square, last)
  more = Add(mean, epsilon)
  root = Sqrt(more)
  even = Div(sum, root)
  out = Mul(even, gain)""",
    "standard": "\n  sum = Add(x, skip)\n  out = RMSNormalization <axis = -1, epsilon = 0.00001> (sum, gain)",
    "fused": "\n  out, none_1, none_2, sum = com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 0.00001> "
    "(x, skip, gain)",
}


def plain(shape: Shape, keep: str) -> str:
    turn = TURN if shape.turned else STAY
    return turn.format(x="q") + turn.format(x="k") + STAY.format(x="v") + KEEP[keep] + ATTEND


def standard(shape: Shape, context: int) -> str:
    turned = ""
    q, k = "x_q", "x_k"
    if shape.turned:
        q, k = "q", "k"
        turned = "".join(
            f"\n  {x} = RotaryEmbedding <num_heads = {heads}> (x_{x}, cos_table, sin_table, places)"
            for x, heads in (("q", shape.heads), ("k", shape.kept))
        )
    heads = f"q_num_heads = {shape.heads}, kv_num_heads = {shape.kept}"
    past = f"is_causal = 0, {heads}> ({q}, {k}, x_v, , past_k, past_v)"
    alone = f"is_causal = 1, {heads}> ({q}, {k}, x_v)"
    return f"{turned}\n  out, all_k, all_v = Attention <{past if context else alone}"


def fused(shape: Shape, context: int) -> str:
    turned, tables = (", do_rotary = 1", ", cos_table, sin_table") if shape.turned else ("", "")
    past = "past_k, past_v" if context else ", "
    return (
        f"\n  out, all_k, all_v = com.microsoft.GroupQueryAttention <num_heads = {shape.heads}, "
        f"kv_num_heads = {shape.kept}{turned}> (x_q, x_k, x_v, {past}, before, total{tables})"
    )


def values(shape: Shape, tokens: int, context: int, room: int) -> dict[str, NDArray[Any]]:
    """Whatever any way reads, by name. The same numbers in all of them."""
    rng, (heads, kept, width, _) = np.random.default_rng(0), shape
    whole, keys = context + tokens, (room or context) + (0 if room else tokens)
    angles = np.arange(whole)[:, None] * 10000.0 ** (-np.arange(width // 2) / (width // 2))
    places = np.arange(context, whole)
    arrays: dict[str, Any] = {
        "x_q": rng.standard_normal((1, tokens, heads * width)),
        "x_k": rng.standard_normal((1, tokens, kept * width)),
        "x_v": rng.standard_normal((1, tokens, kept * width)),
        "cos_table": np.cos(angles),
        "sin_table": np.sin(angles),
        "cos": np.cos(np.tile(angles[places], 2))[:, None],
        "sin": (np.sin(np.tile(angles[places], 2)) * np.repeat([-1, 1], width // 2))[:, None],
        "scale": width**-0.5,
        "mask": np.where(np.arange(keys) <= places[:, None], 0, -1e30),
    }
    for name in ("past_k", "past_v"):
        arrays[name] = np.zeros((1, kept, room or context, width))
        arrays[name][:, :, :context] = rng.standard_normal((1, kept, context, width))
    found = {name: np.asarray(array, np.float32) for name, array in arrays.items()}
    integers = {
        "places": places[None],
        "at": np.full((1, kept, tokens, width), context),
        "shape_q": [0, 0, heads, width],
        "shape_k": [0, 0, kept, width],
        "shape_v": [0, 0, kept, width],
        "groups": [1, kept, heads // kept * tokens, width],
        "by_head": [1, heads, tokens, keys],
        "by_group": [1, kept, heads // kept * tokens, keys],
        "heads": [1, heads, tokens, width],
        "flat": [1, tokens, heads * width],
    }
    found |= {name: np.asarray(array, np.int64) for name, array in integers.items()}
    return found | {"before": np.array([whole - 1], np.int32), "total": np.array([whole], np.int32)}


class Way:
    """A graph and its inputs, those of shapes and scales as constants; `shared` outputs are bound to their inputs."""

    def __init__(self, nodes: str, arrays: Mapping[str, NDArray[Any]], shared: Mapping[str, str] | None = None) -> None:
        text = f'<ir_version: 10, opset_import: ["": 23, "com.microsoft": 1]>\nlayer () => (float out) {{{nodes}\n}}'
        model = onnx.parser.parse_model(text)
        graph = model.graph
        read = {name for node in graph.node for name in node.input if name in arrays}
        given = sorted(name for name in read if arrays[name].ndim > 1 or name in ("before", "total"))
        graph.initializer.extend(onnx.numpy_helper.from_array(arrays[name], name) for name in read - set(given))
        graph.input.extend(
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(arrays[name].dtype), arrays[name].shape
            )
            for name in given
        )
        made = {name for node in graph.node for name in node.output}
        del graph.output[:]
        names = [name for name in ("out", "all_k", "all_v", "sum") if name in made]
        graph.output.extend(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names)
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        self._values = {name: ort.OrtValue.ortvalue_from_numpy(arrays[name].copy()) for name in given}
        self._names, self._shared = names, shared or {}
        self._binding = self._session.io_binding()
        for name, value in self._values.items():
            self._binding.bind_ortvalue_input(name, value)

    def ms(self) -> float:
        started = time.perf_counter_ns()
        for name in self._names:
            if name in self._shared:
                self._binding.bind_ortvalue_output(name, self._values[self._shared[name]])
            else:
                self._binding.bind_output(name)
        self._session.run_with_iobinding(self._binding)
        return (time.perf_counter_ns() - started) / 1e6

    def out(self) -> NDArray[Any]:
        found: NDArray[Any] = self._binding.get_outputs()[0].numpy().reshape(-1)
        return found


def attention(shape: Shape, tokens: int, context: int) -> dict[str, tuple[str, dict[str, NDArray[Any]], Any]]:
    """What each way is made of."""
    grown = values(shape, tokens, context, 0)
    if not context:
        ways = {"plain": plain(shape, "alone"), "standard": standard(shape, 0), "fused": fused(shape, 0)}
        return {name: (nodes, grown, None) for name, nodes in ways.items()}
    held, shared = values(shape, tokens, context, context + ROOM), {"all_k": "past_k", "all_v": "past_v"}
    return {
        "plain": (plain(shape, "copied"), grown, None),
        "plain, in place": (plain(shape, "in place"), held, shared),
        "standard": (standard(shape, context), grown, None),
        "fused": (fused(shape, context), held, shared),
    }


def norms(width: int, tokens: int) -> dict[str, tuple[str, dict[str, NDArray[Any]], Any]]:
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal((1, tokens, width)).astype(np.float32) for name in ("x", "skip")}
    arrays |= {"gain": rng.standard_normal(width).astype(np.float32), "last": np.array([-1])}
    arrays |= {"epsilon": np.array(1e-5, np.float32), "two": np.array(2, np.float32)}
    return {name: (nodes, arrays, None) for name, nodes in NORMS.items()}


def fastest(parts: Mapping[str, tuple[str, dict[str, NDArray[Any]], Any]], seconds: float) -> dict[str, float | str]:
    """Way → ms of its fastest pass, or `none` where ONNX Runtime does not run it."""
    ways: dict[str, Way] = {}
    for name, made in parts.items():
        try:
            ways[name] = Way(*made)
            ways[name].ms()
        except Exception as error:  # no kernel
            ways.pop(name, None)
            print(f"{name}: {str(error).splitlines()[0]}", flush=True)
    times: dict[str, list[float]] = {name: [] for name in ways}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or min(map(len, times.values())) < 5:
        for name, way in ways.items():
            times[name].append(way.ms())
    first, *others = (way.out() for way in ways.values())
    assert all(np.abs(first - other).max() < 1e-4 for other in others)
    return {name: min(times[name]) if name in ways else "none" for name in parts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="of each row")
    seconds = parser.parse_args().seconds
    attentions: list[dict[str, Any]] = []
    normed: list[dict[str, Any]] = []
    for name, shape in SHAPES.items():
        passes = [*((tokens, 0) for tokens in FORWARD), *((1, context) for context in CONTEXTS)]
        for tokens, context in passes:
            what = f"1 token after {context}" if context else f"{tokens} tokens"
            found = {"plain": "", "plain, in place": "", **fastest(attention(shape, tokens, context), seconds)}
            attentions.append({"heads of": name, "pass": what, **found})
        for tokens in (1, FORWARD[0]):
            what = f"{tokens} token{'s' * (tokens > 1)}"
            width = shape.heads * shape.width
            normed.append({"width": width, "pass": what, **fastest(norms(width, tokens), seconds)})
    table("Attention between the linear layers of one layer, ms", attentions)
    table("Residual sum and RMS norm, ms", normed)
    append("operators", {"onnxruntime": ort.__version__, "attention": attentions, "norms": normed})


if __name__ == "__main__":
    main()
