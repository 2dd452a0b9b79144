"""Writes a model to one ONNX or safetensors file, with untrained weights of a seed or given weights, without torch.

Memory is bounded for any size, because parameters are made (or read) and written in chunks; int4 needs memory for one
linear layer. The same architecture and seed give the same bytes, with any version of numpy and on any platform
(ONNX: with the same version of onnx).
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import MAX_LENGTH
from edgefront.core.architectures.embeddings_and_head import RotaryPositions
from edgefront.core.architectures.parameters import ParameterSpec, parameters
from edgefront.core.common.errors import TooLarge
from edgefront.core.common.files import whole_file
from edgefront.core.common.number_formats import BLOCK_SIZE
from edgefront.core.model_files.build import (
    ELEMENTS,
    int8_scale,
    unfilled_model,
    used_parameters,
)
from edgefront.core.model_files.formats import (
    Format,
    bytes_of,
    encode,
    format_of,
    int4_scales,
    int4_shape,
    quantise_int4,
)
from edgefront.core.model_files.parameter_values import FORMAT, ParameterValues, values_of
from edgefront.core.model_files.state import GraphOptions

ONNX_LIMIT_BYTES = (1 << 31) - 1
"""Maximum size of a protobuf message."""

LONGEST = 1 << 15
"""Maximum number of positions of the rotary tables in a file: 8 MiB for a rotary_dim of 64."""

# Field numbers of onnx.proto, which its compatibility rules keep constant.
_MODEL_GRAPH, _GRAPH_INITIALIZER, _TENSOR_RAW_DATA = 7, 5, 9


def metadata(architecture: Architecture, weights: int | ParameterValues) -> dict[str, str]:
    """Metadata in ONNX and safetensors files: the architecture, and the seed or description of the weights."""
    return {
        "format": FORMAT,
        "digest": architecture.digest,
        **values_of(weights).about,
        "architecture": architecture.canonical_json,
    }


def write_onnx(
    architecture: Architecture,
    weights: int | ParameterValues,
    path: Path | str,
    options: GraphOptions = GraphOptions(),  # noqa: B008  (frozen)
) -> None:
    """Writes one self-contained ONNX file (inputs and outputs in `core.model_files.build`), visible only once complete.

    `weights`: the seed of untrained weights, or given weights. The file contains the parameters that the graph reads;
    its metadata includes mode and number format (dtype, or the quantisation). With `options.in_place` the graph is for
    generation, and its mode in the metadata is `generate`. Such a graph has ONNX Runtime's own attention
    (`options.fused`), and rotary tables of at most `LONGEST` tokens.

    Raises `InvalidInput` for a mode or window that the architecture does not have, `TooLarge` above protobuf's 2 GiB
    (safetensors has no such bound), `Unavailable` if the disk is full.
    """
    path, values = Path(path), values_of(weights)
    dtype, quantisation, in_place = options.dtype, options.quantisation, options.in_place
    model = unfilled_model(architecture, replace(options, fused=longest_generated(architecture) if in_place else None))
    specs = used_parameters(model, architecture)
    kinds = [format_of(spec.name, dtype, quantisation) for spec in specs]
    scales = {spec.name: values.scale(spec) for spec, kind in zip(specs, kinds, strict=True) if kind == "s7"}
    model.graph.initializer.extend(int8_scale(spec, scales[spec.name]) for spec in specs if spec.name in scales)
    numbers = dtype if quantisation == "full" else quantisation
    properties = {
        **metadata(architecture, values),
        "mode": "generate" if in_place else options.mode,
        "numbers": numbers,
    }
    for key, value in properties.items():
        model.metadata_props.add(key=key, value=value)
    graph = model.graph.SerializeToString(deterministic=True)
    model.ClearField("graph")
    head = model.SerializeToString(deterministic=True)
    # A protobuf message is the concatenation of its fields, so the weights can be written after the rest of the graph.
    tensors = [_initializers(spec, kind) for spec, kind in zip(specs, kinds, strict=True)]
    graph_size = len(graph) + sum(len(opening) + size for parts in tensors for opening, size in parts)
    total = len(head) + 6 + graph_size
    if total > ONNX_LIMIT_BYTES:
        raise TooLarge(
            f"the model takes {total / 2**30:.2f} GiB, above the 2 GiB that one ONNX file can hold; "
            "take it as safetensors instead",
        )
    with whole_file(path) as file:
        file.write(head + _opening(_MODEL_GRAPH, graph_size) + graph)
        for spec, kind, parts in zip(specs, kinds, tensors, strict=True):
            if kind == "u4":
                whole = np.concatenate(list(values.chunks(spec))).reshape(spec.shape)
                arrays: tuple[NDArray[Any], ...] = quantise_int4(whole, BLOCK_SIZE, values.int4_scale)
                for (opening, _), array in zip(parts, arrays, strict=True):
                    file.write(opening)
                    file.write(array.data)
                continue
            file.write(parts[0][0])
            _write_values(file, spec, values, kind, scales.get(spec.name, 1.0))


def longest_generated(architecture: Architecture) -> int:
    """Maximum sequence length of an in-place graph, limited by its rotary tables or its learned positions."""
    if isinstance(architecture.positions, RotaryPositions):
        return min(architecture.stated_length, LONGEST)
    return architecture.max_length or MAX_LENGTH


def write_safetensors(architecture: Architecture, weights: int | ParameterValues, path: Path | str) -> None:
    """Writes one safetensors file with the parameters by name and `metadata`, visible only once complete.

    `weights`: the seed of untrained weights, or given weights. Raises `Unavailable` if the disk is full.
    """
    specs, values = parameters(architecture), values_of(weights)
    with whole_file(Path(path)) as file:
        file.write(safetensors_head(metadata(architecture, values), {spec.name: spec.shape for spec in specs}))
        for spec in specs:
            _write_values(file, spec, values, "f32")


def safetensors_head(metadata: Mapping[str, str], shapes: Mapping[str, tuple[int, ...]]) -> bytes:
    """Header of a safetensors file of float32 tensors; the values have to follow in the order of `shapes`."""
    header: dict[str, object] = {"__metadata__": metadata}
    at = 0
    for name, shape in shapes.items():
        end = at + bytes_of(math.prod(shape), "f32")
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)  # the format requires data aligned to 8 bytes
    return len(text).to_bytes(8, "little") + text


def _write_values(
    file: BinaryIO, spec: ParameterSpec, values: ParameterValues, kind: Format, scale: float = 1.0
) -> None:
    for chunk in values.chunks(spec):
        file.write(np.ascontiguousarray(encode(chunk, kind, scale)).data)


def _initializers(spec: ParameterSpec, kind: Format) -> list[tuple[bytes, int]]:
    """Yields a pair per tensor of a parameter: the protobuf bytes before the values, and the values' size in bytes.

    int4 has two tensors, the weight and its scales. The values are raw_data, the final field of GraphProto.initializer.
    """
    if kind != "u4":
        return [_initializer(spec.name, spec.shape, kind, bytes_of(spec.size, kind))]
    shape, scales = int4_shape(spec, BLOCK_SIZE), int4_scales(spec, BLOCK_SIZE)
    weight = _initializer(spec.name, shape, kind, math.prod(shape))
    return [weight, _initializer(scales.name, scales.shape, "f32", bytes_of(scales.size, "f32"))]


def _initializer(name: str, shape: tuple[int, ...], kind: Format, size: int) -> tuple[bytes, int]:
    tensor = TensorProto(name=name, dims=shape, data_type=ELEMENTS[kind])
    fields: bytes = tensor.SerializeToString(deterministic=True)
    fields += _opening(_TENSOR_RAW_DATA, size)
    return _opening(_GRAPH_INITIALIZER, len(fields) + size) + fields, size


def _opening(field: int, size: int) -> bytes:
    """Tag and length at the start of a length-delimited protobuf field."""
    return bytes(_varint(field << 3 | 2)) + bytes(_varint(size))


def _varint(number: int) -> Iterator[int]:
    while number > 0x7F:
        yield number & 0x7F | 0x80
        number >>= 7
    yield number
