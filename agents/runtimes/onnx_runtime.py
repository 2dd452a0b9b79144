"""ONNX Runtime: an architecture's graph over the weight cache, or any ONNX file."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

from agents.inputs import random_inputs, random_tokens
from agents.request import LaunchRequest
from core.errors import MeasurementError
from core.graph.build import EXTERNAL_FOLDER, build
from core.graph.weights import WeightCache
from core.measurement.protocol import MeasurementProtocol
from core.spaces.architecture import Architecture

_SUFFIX = "executionprovider"
ON_NVIDIA = frozenset({"cuda", "tensorrt"})
"""Providers whose inputs and outputs live in a CUDA device's memory."""


def providers() -> dict[str, str]:
    """Execution providers of this build: protocol name (`cpu`, `cuda`, `xnnpack` …) → ONNX Runtime's name."""
    return {name.lower().removesuffix(_SUFFIX): name for name in ort.get_available_providers()}


def works(provider: str) -> bool:
    """Whether a session on this provider can be made and run. Loads what the provider loads for good."""
    try:
        session = ort.InferenceSession(_one_addition(), _quiet_options(), providers=[providers()[provider]])
        session.run(None, {"x": np.ones(1, np.float32)})
    except Exception:  # whatever a missing driver or library makes of itself
        return False
    return providers()[provider] in session.get_providers()


def session_options(protocol: MeasurementProtocol) -> Any:
    """ONNX Runtime's defaults, with the protocol's threads and one graph at a time."""
    options = _quiet_options()
    options.intra_op_num_threads = protocol.threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    return options


class OnnxModel:
    """A session with its input and outputs bound where the provider computes, so that a pass copies nothing."""

    def __init__(self, request: LaunchRequest) -> None:
        protocol = request.protocol
        self._provider = _provider(protocol.provider)
        self._session = _session(request, self._provider)
        self._check_provider(protocol.provider)
        self._gpu = protocol.provider in ON_NVIDIA
        self._place = "cuda" if self._gpu else "cpu"
        self._binding = self._session.io_binding()
        self._values = []
        for name, array in _inputs(request, self._session).items():
            value = ort.OrtValue.ortvalue_from_numpy(array, self._place, 0)
            self._values.append(value)  # the binding keeps no reference of its own
            self._binding.bind_ortvalue_input(name, value)
        for output in self._session.get_outputs():
            self._binding.bind_output(output.name, self._place)
        self.versions = {"onnxruntime": ort.__version__, "onnx": onnx.__version__, "numpy": np.__version__}

    def forward_ms(self) -> float:
        started = time.perf_counter_ns()
        self._session.run_with_iobinding(self._binding)
        if self._gpu:
            self._binding.synchronize_outputs()
        return (time.perf_counter_ns() - started) / 1e6

    def finite(self) -> bool:
        return all(_finite(array) for array in self._binding.copy_outputs_to_cpu())

    def _check_provider(self, wanted: str) -> None:
        if self._provider not in self._session.get_providers():
            raise MeasurementError(
                f"ONNX Runtime has the provider {wanted}, but could not start it", reason="unsupported"
            )


def _quiet_options() -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return options


def _one_addition() -> bytes:
    vector = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, [1])
    ends = [onnx.helper.make_value_info(name, vector) for name in ("x", "y")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Add", ["x", "x"], ["y"])], "addition", ends[:1], ends[1:])
    opset = onnx.helper.make_opsetid("", 17)
    return bytes(onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString())


def _provider(wanted: str) -> str:
    known = providers()
    if wanted not in known:
        raise MeasurementError(
            f"this ONNX Runtime has no provider {wanted}; it has {', '.join(sorted(known))}", reason="unsupported"
        )
    return known[wanted]


def _session(request: LaunchRequest, provider: str) -> Any:
    options = session_options(request.protocol)
    model: str | bytes
    if isinstance(request.subject, Path):
        model = str(request.subject)
    else:
        cache = WeightCache(request.cache)
        logits = request.protocol.logits
        model = build(request.subject, logits=logits, weights=cache, seed=request.seed).SerializeToString()
        options.add_session_config_entry(EXTERNAL_FOLDER, str(cache.folder))
    names = [provider] if provider == "CPUExecutionProvider" else [provider, "CPUExecutionProvider"]
    return ort.InferenceSession(model, options, providers=names)


def _inputs(request: LaunchRequest, session: Any) -> dict[str, np.ndarray[Any, Any]]:
    subject = request.subject
    if isinstance(subject, Architecture):
        return {"tokens": random_tokens(request.protocol, subject.embedding.vocab_size, request.seed)}
    declared = [(item.name, item.type, tuple(item.shape)) for item in session.get_inputs()]
    return random_inputs(subject, declared, request.protocol, request.seed)


def _finite(array: Any) -> bool:
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fc" or not array.size:
        return True
    # The extremes carry NaN and infinities, and need no memory of the array's size.
    return bool(np.isfinite(array.min()) and np.isfinite(array.max()))
