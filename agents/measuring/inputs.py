"""Creates random inputs: tokens and state of a language model, or the declared inputs of an ONNX file.

The same seed gives the same input on every platform, because the random bits come from Philox, like those of random
weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import MeasurementError
from edgefront.core.measurement.passes import source_length
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.model_files.state import CacheType, state_specs

_FLOATS = {"float": "float32", "double": "float64"}
"""ONNX type names that differ from numpy's."""
# An axis whose name contains one of these has the protocol's sequence length; `past` etc. its memory length, or 1.
_SEQUENCE_NAMES = ("sequence", "seq", "length", "tokens", "time")
_BATCH_NAMES = ("batch", "n")
_PAST_NAMES = ("past", "total", "cache", "context", "source")
_UNKNOWN_VOCABULARY = 2  # indices 0 and 1, which every useful table has

Declared = tuple[str, str, tuple[Any, ...]]
"""Name, ONNX type and shape of an input; an axis is a number, a name, or None."""


def random_tokens(protocol: MeasurementProtocol, vocabulary: int, seed: int) -> NDArray[np.int64]:
    """Returns uniform random tokens, int64 [batch, sequence]."""
    shape = (protocol.batch, protocol.sequence_length)
    return _generator(seed).integers(0, vocabulary, shape, dtype=np.int64)


def random_indices(
    architecture: Architecture, protocol: MeasurementProtocol, seed: int
) -> dict[str, NDArray[np.int64]]:
    """Returns the index inputs of a forward pass of this protocol, by graph input name; int64 [batch, length] each.

    The inputs are `tokens`; for a model with segments `segments`; and `source_tokens` if the pass encodes a source text
    (in decode mode the state already contains the encoded source).
    """
    batch = protocol.batch
    inputs = {"tokens": random_tokens(protocol, architecture.embedding.vocab_size, seed)}
    generator = _generator(seed + 1)
    if architecture.embedding.segments and protocol.mode == "forward" and not protocol.memory_length:
        shape = (batch, protocol.sequence_length)
        inputs["segments"] = generator.integers(0, architecture.embedding.segments, shape, dtype=np.int64)
    if architecture.source is not None and protocol.mode != "decode":
        shape = (batch, source_length(protocol))
        inputs["source_tokens"] = generator.integers(0, architecture.source.embedding.vocab_size, shape, dtype=np.int64)
    return inputs


def cache_type_of(protocol: MeasurementProtocol) -> CacheType | None:
    """Returns the type of cache (`cache`, `memory`) with which a pass of this protocol starts; None without a cache."""
    if protocol.mode in ("decode", "generate"):
        return "cache"
    return "memory" if protocol.mode == "forward" and protocol.memory_length else None


def state_sizes(architecture: Architecture, protocol: MeasurementProtocol) -> dict[str, tuple[int, ...]]:
    """Returns the shape of each entry of the state with which a pass of this protocol starts; empty without a state."""
    cache_type = cache_type_of(protocol)
    if cache_type is None:
        return {}
    past, source = protocol.memory_length, source_length(protocol)
    return {spec.name: spec.sizes(protocol.batch, past, source) for spec in state_specs(architecture, cache_type)}


def random_state(
    architecture: Architecture, protocol: MeasurementProtocol, seed: int
) -> dict[str, NDArray[np.float32] | NDArray[np.int64]]:
    """Returns a random state, as after `memory_length` tokens, as a mapping with the entry names of
    `core.model_files.state`.

    Keys, values, layer inputs and recurrent cells are float32, uniform in ±1: these values are finite in every number
    format, and avoid zeros because a runtime might special-case zeros. If `memory_length` is 0, all values are zero.
    Counts of tokens (int64 scalars) equal `memory_length`.
    """
    generator = _generator(seed + 2)

    def filled(size: tuple[int, ...]) -> NDArray[np.float32]:
        return _uniform(generator, size) if protocol.memory_length else np.zeros(size, np.float32)

    return {
        name: filled(size) if size else np.full((), protocol.memory_length, np.int64)
        for name, size in state_sizes(architecture, protocol).items()
    }


def random_inputs(
    path: Path, inputs: Sequence[Declared], protocol: MeasurementProtocol, seed: int
) -> dict[str, NDArray[Any]]:
    """Returns an array for every input of an ONNX file.

    A dynamic axis gets the protocol's batch, sequence or memory length by the name of the axis (a first axis of unknown
    name is the batch), else 1. Integers stay below the number of rows of the tensor that they index; masks are ones;
    floats are uniform in ±1.
    """
    generator = _generator(seed)
    tables = lookup_sizes(path)
    return {name: _array(name, kind, shape, protocol, tables.get(name), generator) for name, kind, shape in inputs}


def declared_inputs(path: Path) -> list[Declared]:
    """Reads the declared inputs of an ONNX file, for runtimes that discard the names of dynamic axes."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    given = {tensor.name for tensor in graph.initializer}
    return [
        (
            item.name,
            f"tensor({onnx.TensorProto.DataType.Name(item.type.tensor_type.elem_type).lower()})",
            tuple(axis.dim_value or axis.dim_param for axis in item.type.tensor_type.shape.dim),
        )
        for item in graph.input
        if item.name not in given
    ]


def computed_by(path: Path) -> str:
    """Describes the first output of an ONNX file as its graph declares it: `logits: all positions`, `logits: one
    position`, or the output's axes if no input is a sequence of integers.
    """
    import onnx

    item = onnx.load(str(path), load_external_data=False).graph.output[0]
    axes = [axis.dim_value or axis.dim_param for axis in item.type.tensor_type.shape.dim]
    lengths = [shape[1] for _, kind, shape in declared_inputs(path) if "int" in kind and len(shape) == 2]
    if not lengths or not axes:
        return f"{item.name} {axes or 'of unknown shape'}"
    return f"{item.name}: {'all positions' if lengths[0] in axes[1:] else 'one position'}"


def lookup_sizes(path: Path) -> dict[str, int]:
    """Returns a mapping from the name of each input that indexes a Gather to the number of rows of the smallest tensor
    that it indexes, as far as the file declares shapes.
    """
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    source = {name: name for name in (item.name for item in graph.input)}
    sizes: dict[str, int] = {}
    for node in graph.node:  # in topological order, as ONNX demands
        if (
            node.op_type in ("Cast", "Reshape", "Unsqueeze", "Squeeze", "Identity", "Flatten")
            and node.input[0] in source
        ):
            source[node.output[0]] = source[node.input[0]]
        if node.op_type == "Gather" and node.input[1] in source and shapes.get(node.input[0]):
            axis = next((item.i for item in node.attribute if item.name == "axis"), 0)
            name, rows = source[node.input[1]], shapes[node.input[0]][axis]
            sizes[name] = min(rows, sizes.get(name, rows))
    return sizes


def external_files(path: Path) -> tuple[Path, ...]:
    """Returns an ONNX file's external weight files; empty if the file contains its weights or is not an ONNX file."""
    import onnx

    try:
        tensors = onnx.load(str(path), load_external_data=False).graph.initializer
    except Exception:  # the runtime will report the error
        return ()
    entries = [entry for tensor in tensors for entry in tensor.external_data if entry.key == "location"]
    return tuple(path.parent / name for name in sorted({entry.value for entry in entries}))


def _generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=seed))


def _uniform(generator: np.random.Generator, size: Sequence[int]) -> NDArray[np.float32]:
    """Returns random float32 values of shape `size`, uniform in ±1."""
    values = generator.random(size, dtype=np.float32)
    values *= np.float32(2)
    values -= np.float32(1)
    return values


def _array(
    name: str,
    kind: str,
    shape: tuple[Any, ...],
    protocol: MeasurementProtocol,
    rows: int | None,
    generator: np.random.Generator,
) -> NDArray[Any]:
    held = kind.removeprefix("tensor(").removesuffix(")")
    try:
        dtype = np.dtype(_FLOATS.get(held, held))
    except TypeError:
        raise MeasurementError(
            f"input {name} is a {kind}, which cannot be filled with random values", reason="unsupported"
        ) from None
    size = tuple(_axis(axis, position, protocol) for position, axis in enumerate(shape))
    if dtype.kind == "f":
        return _uniform(generator, size).astype(dtype, copy=False)
    if dtype.kind == "b" or "mask" in name.lower():
        return np.ones(size, dtype)
    return np.asarray(generator.integers(0, rows or _UNKNOWN_VOCABULARY, size)).astype(dtype)


def _axis(axis: Any, position: int, protocol: MeasurementProtocol) -> int:
    if isinstance(axis, int) and axis > 0:
        return axis
    label = str(axis or "").lower()
    if any(word in label for word in _PAST_NAMES):
        return max(1, protocol.memory_length)
    if any(word in label for word in _SEQUENCE_NAMES):
        return protocol.sequence_length
    named_batch = "batch" in label or label in _BATCH_NAMES
    return protocol.batch if named_batch or position == 0 else 1
