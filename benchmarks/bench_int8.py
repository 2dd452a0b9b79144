"""Error and speed of the ways to keep the weights of a linear layer in int8, each in both runtimes.

Ways: signed weights of eight and of seven bits, with one scale a tensor and one a row, and unsigned weights with a zero
point. Inputs are quantised to unsigned bytes by their own extremes, as `core.graph.formats` says. The error is the
norm of the difference from the product in float64, relative to that product.

    python benchmarks/bench_int8.py [--rows 192] [--inputs 512] [--outputs 2048] [--rounds 25]

`--rounds 0` takes errors alone, for processors that are emulated: x86-64 without VNNI is

    qemu-x86_64 -cpu Haswell .venv/bin/python benchmarks/bench_int8.py --rows 16 --inputs 256 --outputs 256 --rounds 0
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import onnxruntime as ort
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from record import append, table

EIGHT, SEVEN = 127, 64
Product = Callable[[NDArray[np.float32]], NDArray[np.float32]]


def session(nodes: list[Any], tensors: dict[str, NDArray[Any]], inputs: int) -> Product:
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", inputs])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in tensors.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    made = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return lambda x: made.run(None, {"x": x})[0]


def in_float(weight: NDArray[np.float32]) -> Product:
    return session([helper.make_node("MatMul", ["x", "w"], ["y"])], {"w": weight.T.copy()}, weight.shape[1])


def in_int8(weight: NDArray[np.float32], largest: int, *, by_row: bool = False, unsigned: bool = False) -> Product:
    magnitudes = np.abs(weight).max(axis=1, keepdims=True) if by_row else np.abs(weight).max()
    scale = np.asarray(magnitudes / largest, np.float32)
    quantised = np.rint(weight / scale).astype(np.int8)
    tensors: dict[str, NDArray[Any]] = {"w": quantised.T.copy(), "scale": scale.reshape(-1) if by_row else scale}
    if unsigned:
        tensors |= {"w": (tensors["w"].astype(np.int16) + 128).astype(np.uint8), "zero": np.array(128, np.uint8)}
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("MatMulInteger", ["q", "w", "z", *(["zero"] if unsigned else [])], ["sum"]),
        helper.make_node("Cast", ["sum"], ["float"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["s", "scale"], ["both"]),
        helper.make_node("Mul", ["float", "both"], ["y"]),
    ]
    return session(nodes, tensors, weight.shape[1])


def in_torch(weight: NDArray[np.float32], largest: int, *, reduce_range: bool) -> Product:
    scale = float(np.float32(np.abs(weight).max() / largest))
    quantised = torch.from_numpy(np.rint(weight / np.float32(scale)).astype(np.int8))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=UserWarning)
        packed = torch.ops.quantized.linear_prepack(torch._make_per_tensor_quantized_tensor(quantised, scale, 0), None)
    product = partial(torch.ops.quantized.linear_dynamic, W_prepack=packed, reduce_range=reduce_range)
    return lambda x: product(torch.from_numpy(x)).numpy()


def ways(weight: NDArray[np.float32]) -> dict[str, Product]:
    return {
        "ONNX Runtime, float32": in_float(weight),
        "ONNX Runtime, 8 bits": in_int8(weight, EIGHT),
        "ONNX Runtime, 8 bits by row": in_int8(weight, EIGHT, by_row=True),
        "ONNX Runtime, 8 bits unsigned": in_int8(weight, EIGHT, unsigned=True),
        "ONNX Runtime, 7 bits": in_int8(weight, SEVEN),
        "ONNX Runtime, 7 bits by row": in_int8(weight, SEVEN, by_row=True),
        "PyTorch, 8 bits": in_torch(weight, EIGHT, reduce_range=False),
        "PyTorch, 8 bits, inputs of 7": in_torch(weight, EIGHT, reduce_range=True),
        "PyTorch, 7 bits": in_torch(weight, SEVEN, reduce_range=False),
    }


def apart(found: NDArray[Any], expected: NDArray[Any]) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=192)
    parser.add_argument("--inputs", type=int, default=512)
    parser.add_argument("--outputs", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--seed", type=int, default=0)
    settings = parser.parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(settings.seed)
    shape = (settings.outputs, settings.inputs)
    weights = {"uniform": rng.uniform(-1, 1, shape), "normal": rng.normal(0, 1, shape)}
    given = rng.normal(0, 1, (settings.rows, settings.inputs)).astype(np.float32)
    inputs = {"normal": given, "ReLU's": given.clip(0)}
    found: list[dict[str, Any]] = []
    for kind, wide in weights.items():
        weight = wide.astype(np.float32)
        products = ways(weight)
        times: dict[str, list[float]] = {name: [] for name in products}
        for _ in range(settings.rounds):
            for name, product in products.items():
                started = time.perf_counter()
                product(given)
                times[name].append(1e3 * (time.perf_counter() - started))
        for name, product in products.items():
            row: dict[str, Any] = {"weights": kind, "way": name}
            for of, x in inputs.items():
                exact = x.astype(np.float64) @ weight.T.astype(np.float64)
                row[f"error %, inputs {of}"] = round(100 * apart(product(x), exact), 2)
            if settings.rounds:
                row["median ms"] = round(statistics.median(times[name]), 2)
            found.append(row)
    table(f"A linear layer of {settings.inputs} to {settings.outputs}, {settings.rows} rows, one thread", found)
    append("bench_int8", {**vars(settings), "ways": found})


if __name__ == "__main__":
    main()
