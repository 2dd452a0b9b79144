"""Functions shared by the runtimes of edgefront's ONNX graphs: build the graph, create inputs, check outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.external_data_helper import ExternalDataInfo

from edgefront.agents.measuring.inputs import Declared, random_indices, random_inputs, random_state
from edgefront.agents.measuring.runtimes import LaunchRequest
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import MeasurementError
from edgefront.core.measurement.generation import last_length
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.model_files.build import build
from edgefront.core.model_files.formats import WeightCache
from edgefront.core.model_files.state import GraphOptions, Mode, state_specs, writes_in_place


def graph_mode(protocol: MeasurementProtocol) -> Mode:
    """Returns the mode in which `core.model_files.build` builds the graph for this protocol.

    A generation uses only the decode graph, which accepts any number of tokens after any number of earlier tokens. With
    a second graph for the prompt, a runtime would hold the weights of linear layers twice.
    """
    if protocol.mode == "generate":
        return "decode"
    return "segment" if protocol.mode == "forward" and protocol.memory_length else protocol.mode


def generating(request: LaunchRequest) -> Architecture:
    """Returns the request's architecture. Raises `MeasurementError` if the request has a file instead."""
    if isinstance(request.subject, Path):
        raise MeasurementError("an ONNX file cannot generate, because it is run unchanged", reason="unsupported")
    return request.subject


def graph(
    architecture: Architecture,
    request: LaunchRequest,
    cache: WeightCache,
    *,
    in_place: bool = False,
    fused: int | None = None,
) -> bytes:
    """Returns the architecture's ONNX graph for the request's protocol; weight paths are relative to the cache folder.
    `in_place` and `fused` are fields of `GraphOptions`.
    """
    protocol = request.protocol
    options = GraphOptions(
        mode=graph_mode(protocol),
        logits=protocol.logits,
        dtype=protocol.dtype,
        quantisation=protocol.weights,
        block_size=protocol.block_size,
        in_place=in_place,
        fused=fused,
    )
    model = build(architecture, options, weights=cache, seed=request.seed)
    return bytes(model.SerializeToString())


def starts(model: bytes, folder: Path) -> dict[str, int]:
    """Returns real path → bytes from the file's start that the graph uses, for each weight file below `folder`."""
    ends: dict[str, int] = {}
    for tensor in onnx.ModelProto.FromString(model).graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            place = ExternalDataInfo(tensor)
            path = str((folder / place.location).resolve())
            ends[path] = max(ends.get(path, 0), (place.offset or 0) + (place.length or 0))
    return ends


def inputs(request: LaunchRequest, declared: Sequence[Declared]) -> dict[str, np.ndarray[Any, Any]]:
    """Returns a mapping from input names to arrays, for every input of the graph; further names may be included. Floats
    are float32 unless an ONNX file declares another type.
    """
    subject, protocol = request.subject, request.protocol
    if isinstance(subject, Architecture):
        state = random_state(subject, protocol, request.seed)
        return {**random_indices(subject, protocol, request.seed), **state}
    return random_inputs(subject, declared, protocol, request.seed)


def with_room(
    architecture: Architecture, protocol: MeasurementProtocol, state: Mapping[str, np.ndarray[Any, Any]]
) -> dict[str, np.ndarray[Any, Any]]:
    """Returns the state's entries that a graph writes in place, padded with zeros to the final length in tokens."""
    padded = {}
    for spec in state_specs(architecture, "cache"):
        if writes_in_place(architecture, spec):
            padded[spec.name] = np.zeros(spec.sizes(protocol.batch, last_length(protocol)), np.float32)
            padded[spec.name][:, :, : protocol.memory_length] = state[spec.name]
    return padded


def likeliest(scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Returns the tokens with the highest scores, int64 [batch, 1], from scores [batch, …, vocabulary]."""
    return np.asarray(scores.reshape(len(scores), -1).argmax(axis=1).reshape(-1, 1), dtype=np.int64)


def is_finite(array: Any) -> bool:
    """Whether an array is free of NaN and infinities."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fc" or not array.size:
        return True
    # Minimum and maximum show NaN and infinities without a temporary array.
    return bool(np.isfinite(array.min()) and np.isfinite(array.max()))
