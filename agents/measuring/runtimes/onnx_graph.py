"""What the runtimes that read our ONNX graphs share: the graph of a request, its inputs, a look at its outputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.external_data_helper import ExternalDataInfo

from edgefront.agents.measuring.inputs import Declared, random_indices, random_inputs, random_state
from edgefront.agents.measuring.request import LaunchRequest
from edgefront.core.graph.build import build
from edgefront.core.graph.state import Mode
from edgefront.core.graph.weights import WeightCache
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.spaces.architecture import Architecture


def graph_mode(protocol: MeasurementProtocol) -> Mode:
    """The mode of `core.graph.build` for the passes of this protocol."""
    return "segment" if protocol.mode == "forward" and protocol.memory_length else protocol.mode


def graph(architecture: Architecture, request: LaunchRequest, cache: WeightCache) -> bytes:
    """The architecture as its protocol runs it; its weights are relative to the folder of the cache."""
    protocol = request.protocol
    model = build(
        architecture,
        mode=graph_mode(protocol),
        logits=protocol.logits,
        dtype=protocol.dtype,
        quantisation=protocol.quantisation,
        block_size=protocol.block_size,
        weights=cache,
        seed=request.seed,
    )
    return bytes(model.SerializeToString())


def starts(model: bytes, folder: Path) -> dict[str, int]:
    """Real path of each file of weights below `folder` → bytes of its start that the graph's parameters use."""
    found: dict[str, int] = {}
    for tensor in onnx.ModelProto.FromString(model).graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            place = ExternalDataInfo(tensor)
            path = str((folder / place.location).resolve())
            found[path] = max(found.get(path, 0), (place.offset or 0) + (place.length or 0))
    return found


def inputs(request: LaunchRequest, declared: Sequence[Declared]) -> dict[str, np.ndarray[Any, Any]]:
    """An array for every input of the graph, by name, and maybe for others; floats are float32 unless a file declares
    another type.
    """
    subject, protocol = request.subject, request.protocol
    if isinstance(subject, Architecture):
        state = random_state(subject, protocol, request.seed)
        return {**random_indices(subject, protocol, request.seed), **state}
    return random_inputs(subject, declared, protocol, request.seed)


def is_finite(array: Any) -> bool:
    """Whether an output has neither NaN nor infinities."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fc" or not array.size:
        return True
    # Minimum and maximum show NaN and infinities without a temporary array.
    return bool(np.isfinite(array.min()) and np.isfinite(array.max()))
