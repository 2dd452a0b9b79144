"""What a decode pass of ONNX Runtime gains by writing its keys and values in place.

    python benchmarks/bench_cache.py

Attention of one layer between its linear layers, one new token after a context. `copied`: as in downloads, the past and
the new token are concatenated into new tensors. `in place`: two buffers of the whole length are bound as input and
output, the new token is scattered into them, and what lies beyond it is masked. `fused`: the same as ONNX Runtime's
`GroupQueryAttention`, as modes decode and generate measure it. Each in turns, one thread; the fastest of `--repeats`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
ROOM = 64
"""Tokens that the buffers have room for beyond the context."""
SHAPES = {"SmolLM2-135M": (9, 3, 64), "Llama-3.2-1B": (32, 8, 64), "GPT-2 small": (12, 12, 64)}
"""Heads, heads of keys and values, features of each."""


def attention(heads: int, kept: int, width: int, *, in_place: bool) -> bytes:
    """The graph, as bytes: queries [1, kept, heads/kept, width], a new key and value, and the past ones."""
    nodes = []
    for name in ("k", "v"):
        if in_place:
            nodes.append(helper.make_node("ScatterElements", [f"past_{name}", "at", name], [f"next_{name}"], axis=2))
        else:
            nodes.append(helper.make_node("Concat", [f"past_{name}", name], [f"next_{name}"], axis=2))
    nodes += [
        helper.make_node("Transpose", ["next_k"], ["turned"], perm=[0, 1, 3, 2]),
        helper.make_node("MatMul", ["q", "turned"], ["products"]),
        helper.make_node("Mul", ["products", "scale"], ["scores"]),
        *([helper.make_node("Add", ["scores", "mask"], ["seen"])] if in_place else []),
        helper.make_node("Softmax", ["seen" if in_place else "scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "next_v"], ["out"]),
    ]
    one, past = [1, kept, 1, width], [1, kept, "past", width]
    inputs = [helper.make_tensor_value_info("q", FLOAT, [1, kept, heads // kept, width])]
    inputs += [helper.make_tensor_value_info(name, FLOAT, one) for name in ("k", "v")]
    inputs += [helper.make_tensor_value_info(f"past_{name}", FLOAT, past) for name in ("k", "v")]
    if in_place:
        inputs += [helper.make_tensor_value_info("at", INT64, one)]
        inputs += [helper.make_tensor_value_info("mask", FLOAT, [1, 1, 1, "past"])]
    outputs = [helper.make_tensor_value_info("out", FLOAT, None)]
    outputs += [helper.make_tensor_value_info(f"next_{name}", FLOAT, None) for name in ("k", "v")]
    scale = numpy_helper.from_array(np.float32(width**-0.5), "scale")
    graph = helper.make_graph(nodes, "attention", inputs, outputs, [scale])
    return bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9).SerializeToString()
    )


def fused(heads: int, kept: int, width: int) -> bytes:
    """The same as one operator: queries, keys and values are [1, 1, features]."""
    taken = ["q", "k", "v", "past_k", "past_v", "before", "total"]
    made = ["out", "next_k", "next_v"]
    node = helper.make_node(
        "GroupQueryAttention", taken, made, domain="com.microsoft", num_heads=heads, kv_num_heads=kept
    )
    sizes = {"q": heads * width, "k": kept * width, "v": kept * width}
    inputs = [helper.make_tensor_value_info(name, FLOAT, [1, 1, size]) for name, size in sizes.items()]
    past = [1, kept, "past", width]
    inputs += [helper.make_tensor_value_info(f"past_{name}", FLOAT, past) for name in ("k", "v")]
    inputs += [helper.make_tensor_value_info(name, TensorProto.INT32, [1]) for name in ("before", "total")]
    outputs = [helper.make_tensor_value_info(name, FLOAT, None) for name in made]
    domains = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "attention", inputs, outputs)
    return bytes(helper.make_model(graph, opset_imports=domains, ir_version=9).SerializeToString())


def passes(shape: tuple[int, int, int], context: int, how: str) -> tuple[Callable[[], float], Any]:
    """One pass in ms, and the binding with its output."""
    in_place = how != "copied"
    heads, kept, width = shape
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    written = fused(*shape) if how == "fused" else attention(*shape, in_place=in_place)
    session = ort.InferenceSession(written, options, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    length = context + ROOM if in_place else context
    arrays: dict[str, Any] = {
        "q": rng.standard_normal((1, kept, heads // kept, width)).astype(np.float32),
        "k": rng.standard_normal((1, kept, 1, width)).astype(np.float32),
        "v": rng.standard_normal((1, kept, 1, width)).astype(np.float32),
    }
    for name in ("past_k", "past_v"):
        arrays[name] = np.zeros((1, kept, length, width), np.float32)
        arrays[name][:, :, :context] = rng.standard_normal((1, kept, context, width))
    if how == "fused":
        arrays |= {name: arrays[name].reshape(1, 1, -1) for name in ("q", "k", "v")}
        arrays |= {"before": np.array([context], np.int32), "total": np.array([context + 1], np.int32)}
    elif in_place:
        arrays["at"] = np.full((1, kept, 1, width), context, np.int64)
        arrays["mask"] = np.where(np.arange(length) <= context, 0, -1e30).astype(np.float32).reshape(1, 1, 1, -1)
    values = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()}
    binding = session.io_binding()
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)

    def one() -> float:
        started = time.perf_counter_ns()
        binding.bind_output("out")
        for name in ("k", "v"):
            if in_place:
                binding.bind_ortvalue_output(f"next_{name}", values[f"past_{name}"])
            else:
                binding.bind_output(f"next_{name}")
        session.run_with_iobinding(binding)
        return (time.perf_counter_ns() - started) / 1e6

    return one, (binding, values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--contexts", type=int, nargs="+", default=[128, 2048])
    parser.add_argument("--repeats", type=int, default=300)
    asked = parser.parse_args()
    print("| heads, keys of | context | copied | in place | fused |\n| --- | --- | --- | --- | --- |")
    for name, shape in SHAPES.items():
        for context in asked.contexts:
            ways = [passes(shape, context, how) for how in ("copied", "in place", "fused")]
            times = [[one() for one, _ in ways] for _ in range(asked.repeats)]
            outputs = [binding.get_outputs()[0].numpy().reshape(-1) for _, (binding, _) in ways]
            assert max(np.abs(outputs[0] - other).max() for other in outputs[1:]) < 1e-5
            fastest = [f"{min(column):.3f} ms" for column in zip(*times, strict=True)]
            print(f"| {name} | {context} | {' | '.join(fastest)} |")


if __name__ == "__main__":
    main()
