"""What the agent's tests measure: small architectures, and ONNX files that behave in a known way."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from edgefront.core.architectures.architecture import Architecture

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def gpt(layers: int = 2, d_model: int = 64, vocabulary: int = 512, length: int = 1024) -> Architecture:
    """A GPT-2 of so many layers, 4·d_model wide inside, with 4 heads."""
    layer = ({"kind": "attention", "n_head": 4}, {"kind": "feed_forward", "d_inner": 4 * d_model})
    return Architecture.parse(
        {
            "version": 1,
            "d_model": d_model,
            "positions": {"kind": "learned", "length": length},
            "embedding": {"vocab_size": vocabulary},
            "blocks": [block for _ in range(layers) for block in layer],
        }
    )


def doubled(path: Path, width: int) -> Path:
    """x [batch, sequence, width] → both halves of y are x: an input and an output of known size, and nothing else."""
    nodes = [helper.make_node("Concat", ["x", "x"], ["y"], axis=2)]
    return _save(path, nodes, [_value("x", FLOAT, ["batch", "sequence", width])], [_value("y", FLOAT, None)])


def endless(path: Path) -> Path:
    """Runs for ever: a loop of 2⁶² steps."""
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go"], ["go_on"]),
            helper.make_node("Add", ["carried", "carried"], ["next"]),
        ],
        "body",
        [_value("step", INT64, []), _value("go", TensorProto.BOOL, []), _value("carried", FLOAT, None)],
        [_value("go_on", TensorProto.BOOL, []), _value("next", FLOAT, None)],
    )
    nodes = [helper.make_node("Loop", ["steps", "", "x"], ["y"], body=body)]
    steps = helper.make_tensor("steps", INT64, [], [1 << 62])
    return _save(path, nodes, [_value("x", FLOAT, ["batch", 4])], [_value("y", FLOAT, None)], [steps])


def not_a_number(path: Path) -> Path:
    """The logarithm of -|x|."""
    nodes = [
        helper.make_node("Abs", ["x"], ["size"]),
        helper.make_node("Neg", ["size"], ["negative"]),
        helper.make_node("Log", ["negative"], ["y"]),
    ]
    return _save(path, nodes, [_value("x", FLOAT, ["batch", 4])], [_value("y", FLOAT, None)])


def mismatched(path: Path) -> Path:
    """A matrix product whose sizes fit for a sequence of 7 only."""
    weight = helper.make_tensor("w", FLOAT, [7, 3], [1.0] * 21)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    return _save(path, nodes, [_value("x", FLOAT, ["batch", "sequence"])], [_value("y", FLOAT, None)], [weight])


def lookup(path: Path, rows: int, *, external: bool = False) -> Path:
    """Token ids [batch, sequence] looked up in a table of so many rows and two columns, times an attention mask."""
    table = numpy_helper.from_array(np.full((rows, 2), 0.5, np.float32), "table")
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["ids"], to=INT64),
        helper.make_node("Gather", ["table", "ids"], ["rows"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["column"]),
        helper.make_node("Mul", ["rows", "column"], ["y"]),
    ]
    inputs = [_value(name, TensorProto.INT32, ["batch", "sequence"]) for name in ("input_ids", "attention_mask")]
    last = helper.make_tensor("last", INT64, [1], [2])
    return _save(path, nodes, inputs, [_value("y", FLOAT, None)], [table, last], external=external)


def _value(name: str, kind: int, shape: list[int | str] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    tensors: list[TensorProto] | None = None,
    *,
    external: bool = False,
) -> Path:
    graph = helper.make_graph(nodes, path.stem, inputs, outputs, tensors or [])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    onnx.save(model, str(path), save_as_external_data=external, location=f"{path.stem}.weights")
    return path
