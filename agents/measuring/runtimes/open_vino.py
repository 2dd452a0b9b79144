"""Runs models with OpenVINO: an architecture's ONNX graph with weights from the weight cache, or any ONNX file."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openvino as ov

from edgefront.agents.measuring.inputs import declared_inputs, random_state, random_tokens, state_sizes
from edgefront.agents.measuring.memory_probes import memory_methods
from edgefront.agents.measuring.runtimes import GenerationTimes, LaunchRequest
from edgefront.agents.measuring.runtimes.onnx_graph import generating, graph, inputs, is_finite, likeliest, starts
from edgefront.core.common.errors import MeasurementError
from edgefront.core.common.number_formats import QUANTISED, NumberFormat
from edgefront.core.common.processes.folders import working_in
from edgefront.core.measurement.protocol import Dtype, MeasurementProtocol
from edgefront.core.model_files.formats import Format, WeightCache, encode
from edgefront.core.model_files.state import state_specs

# Virtual devices without their own hardware.
_VIRTUAL = {"auto", "batch", "hetero", "multi"}
_PRECISIONS: dict[Dtype, Any] = {"float32": ov.Type.f32, "float16": ov.Type.f16, "bfloat16": ov.Type.bf16}
_FORMATS: dict[str, Format] = {"f32": "f32", "f16": "f16", "bf16": "bf16"}
# Kernels of linear layers, and the field of a compiled model with the type that each kernel computes in.
_PRODUCTS = frozenset({"FullyConnected", "MatMul"})
_NEXT = "next."
_LAYER, _COMPUTES_IN = "layerType", "runtimePrecision"
_EXECUTED: dict[str, frozenset[str]] = {
    "float32": frozenset({"f32"}),
    "float16": frozenset({"f16"}),
    "int8": frozenset({"i8", "u8"}),
    "int4": frozenset({"i4", "u4"}),
}
_FLOATS = frozenset({"f32"})
"""Type of attention's matrix products, which appear beside the quantised linear layers."""


def providers() -> dict[str, str]:
    """Returns the available devices: name in protocols (`cpu`, `gpu`, `gpu_1`, `npu`) → name in OpenVINO."""
    devices = {name.lower().replace(".", "_"): name for name in ov.Core().available_devices}
    return {name: device for name, device in devices.items() if name not in _VIRTUAL}


def facts() -> dict[str, Any]:
    """Returns OpenVINO's version, providers and memory methods: fields of `core.schemas.agent.RuntimeFacts`."""
    return {
        "version": str(ov.__version__),
        "providers": sorted(providers()),
        "memory_methods": memory_methods(allocator=False, device=False),
    }


def computes_in(number_format: NumberFormat, request: LaunchRequest) -> bool:
    """Whether the request's device computes the model's linear layers in this number format, tested by a forward pass.

    OpenVINO accepts graphs in types for which a device has no kernels, and computes in another type. So the test checks
    the types of the compiled model. bfloat16 graphs crash instead of being refused (OpenVINO 2026.4).
    """
    if number_format == "bfloat16":
        return False
    try:
        model = OpenVinoModel(request)
        model.forward_ms()
        types = model.types_of_products()
    except Exception:  # no kernel, no driver, no memory, no word on its kernels …: unsupported
        return False
    executed = _EXECUTED[number_format]
    others = _FLOATS if number_format in QUANTISED else frozenset()
    return model.finite() and bool(types & executed) and types <= executed | others


class OpenVinoModel:
    """A compiled model with the inputs set. All passes do the same work, because every pass reads the same state
    tensors and discards the output state.
    """

    def __init__(self, request: LaunchRequest) -> None:
        subject, protocol = request.subject, request.protocol
        device = _device(protocol.provider)
        core = ov.Core()
        model, self.starts = _read(core, request)
        arrays = inputs(request, declared_inputs(subject) if isinstance(subject, Path) else ())
        # Sizes are fixed, as in a program that compiles for the size that it serves.
        model.reshape({item: list(arrays[item.any_name].shape) for item in model.inputs})
        self._compiled = core.compile_model(model, device, _settings(protocol))
        self._request = self._compiled.create_infer_request()
        # A tensor reads its array's memory, and keeps no reference to it.
        self._arrays = [_encoded(arrays[item.any_name], item.element_type) for item in self._compiled.inputs]
        for item, array in zip(self._compiled.inputs, self._arrays, strict=True):
            self._request.set_tensor(item, ov.Tensor(array, shape=ov.Shape(array.shape), type=item.element_type))
        self.versions = {"openvino": ov.__version__, "onnx": onnx.__version__, "numpy": np.__version__}

    def forward_ms(self) -> float:
        started = time.perf_counter_ns()
        self._request.infer()
        return (time.perf_counter_ns() - started) / 1e6

    def finite(self) -> bool:
        return all(is_finite(self._request.get_tensor(item).data) for item in self._compiled.outputs)

    def types_of_products(self) -> frozenset[str]:
        """Returns OpenVINO's names of the types in which the kernels of linear layers compute."""
        facts = [node.get_rt_info() for node in self._compiled.get_runtime_model().get_ops()]
        return frozenset(
            str(fact[_COMPUTES_IN].value) for fact in facts if _LAYER in fact and fact[_LAYER].value in _PRODUCTS
        )


class OpenVinoGenerator:
    """A compiled model with dynamic lengths, and two inference requests that take turns: each request reads the other
    request's output state, so that no state is copied between passes.
    """

    def __init__(self, request: LaunchRequest) -> None:
        self._architecture = subject = generating(request)
        protocol = request.protocol
        self._protocol, self._seed = protocol, request.seed
        device = _device(protocol.provider)
        core = ov.Core()
        model, self.starts = _read(core, request)
        sizes = state_sizes(subject, protocol)
        growing = {spec.name: spec.growing for spec in state_specs(subject, "cache")}
        shapes: dict[Any, Any] = {}
        for item in model.inputs:
            size = list(sizes.get(item.any_name, (protocol.batch, -1)))
            axis = growing.get(item.any_name)
            if axis is not None:
                size[axis] = -1
            shapes[item] = ov.PartialShape(size)
        model.reshape(shapes)
        self._compiled = core.compile_model(model, device, _settings(protocol))
        self._requests = [self._compiled.create_infer_request() for _ in range(2)]
        self._inputs = {item.any_name: item for item in self._compiled.inputs}
        self._outputs = {item.any_name: item for item in self._compiled.outputs}
        self._scores = next(item for name, item in self._outputs.items() if not name.startswith(_NEXT))
        self._prompt = random_tokens(protocol, subject.embedding.vocab_size, request.seed)
        self._last: Any = self._requests[0]
        self._state: dict[str, Any] = {}
        self.tokens = np.zeros((protocol.batch, protocol.new_tokens), np.int64)
        self.versions = {"openvino": ov.__version__, "onnx": onnx.__version__, "numpy": np.__version__}

    def prepare(self) -> None:
        arrays = random_state(self._architecture, self._protocol, self._seed)
        self._state = {
            name: _tensor(_encoded(array, self._inputs[name].element_type), self._inputs[name])
            for name, array in arrays.items()
            if name in self._inputs
        }

    def generate(self) -> GenerationTimes:
        started = time.perf_counter_ns()
        chosen = self._pass(0, self._prompt, self._state)
        first = time.perf_counter_ns()
        for index in range(1, self._protocol.new_tokens):
            chosen = self._pass(index, chosen, self._after())
        return GenerationTimes((first - started) / 1e6, (time.perf_counter_ns() - first) / 1e6)

    def finite(self) -> bool:
        return is_finite(self._last.get_tensor(self._scores).data)

    def _after(self) -> dict[str, Any]:
        """Returns the output state of the previous pass, by the names of the next pass's inputs."""
        names = [name for name in self._inputs if _NEXT + name in self._outputs]
        return {name: self._last.get_tensor(self._outputs[_NEXT + name]) for name in names}

    def _pass(self, index: int, tokens: np.ndarray[Any, Any], state: Mapping[str, Any]) -> np.ndarray[Any, Any]:
        request = self._requests[index % 2]
        request.set_tensor(self._inputs["tokens"], ov.Tensor(tokens))
        for name, tensor in state.items():
            request.set_tensor(self._inputs[name], tensor)
        request.infer()
        self._last = request
        chosen = likeliest(request.get_tensor(self._scores).data)
        self.tokens[:, index] = chosen[:, 0]
        return chosen


def _tensor(array: np.ndarray[Any, Any], item: Any) -> Any:
    """Returns a tensor with a copy of the array; a tensor over an array would not keep the array alive."""
    tensor = ov.Tensor(item.element_type, ov.Shape(array.shape))
    if array.size:
        tensor.data[...] = array.view(tensor.data.dtype)
    return tensor


def _device(name: str) -> str:
    available = providers()
    if name not in available:
        raise MeasurementError(
            f"this OpenVINO has no device {name}; it has {', '.join(sorted(available))}", reason="unsupported"
        )
    return available[name]


def _settings(protocol: MeasurementProtocol) -> dict[str, Any]:
    """Returns settings for one stream in the protocol's number format (OpenVINO may choose float16 by default)."""
    settings: dict[str, Any] = {
        "NUM_STREAMS": "1",
        "INFERENCE_PRECISION_HINT": _PRECISIONS[protocol.dtype],
    }
    if protocol.provider == "cpu":
        # The process is already pinned to the cores that measure.
        settings |= {"INFERENCE_NUM_THREADS": protocol.threads, "ENABLE_CPU_PINNING": False}
    return settings


def _read(core: Any, request: LaunchRequest) -> tuple[Any, dict[str, int]]:
    """Returns the model, and the used bytes of each weight file, because OpenVINO 2026.4 maps whole files."""
    subject = request.subject
    if isinstance(subject, Path):
        return core.read_model(subject), {}
    cache = WeightCache(request.cache)
    written = graph(subject, request, cache)
    with working_in(cache.folder):  # the weight paths of a model in memory are relative to it
        return core.read_model(written), starts(written, cache.folder)


def _encoded(array: np.ndarray[Any, Any], element: Any) -> np.ndarray[Any, Any]:
    """Returns the array as a contiguous array of OpenVINO's type `element`."""
    if array.dtype == np.float32:
        array = encode(array, _FORMATS.get(element.get_type_name(), "f32"))
    return np.asarray(array, order="C")


build, generator = OpenVinoModel, OpenVinoGenerator
