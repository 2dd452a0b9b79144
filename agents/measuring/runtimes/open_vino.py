"""OpenVINO: an architecture's ONNX graph with weights from the cache, or any ONNX file."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openvino as ov

from edgefront.agents.measuring.inputs import declared_inputs
from edgefront.agents.measuring.request import LaunchRequest
from edgefront.agents.measuring.rulers import memory_methods
from edgefront.agents.measuring.runtimes.onnx_graph import graph, inputs, is_finite, starts
from edgefront.core.errors import MeasurementError
from edgefront.core.graph.formats import Format, encode
from edgefront.core.graph.weights import WeightCache
from edgefront.core.measurement.protocol import Dtype, MeasurementProtocol
from edgefront.core.number_formats import QUANTISED, KnownFormat

# Devices of no hardware of their own.
_VIRTUAL = {"auto", "batch", "hetero", "multi"}
_PRECISIONS: dict[Dtype, Any] = {"float32": ov.Type.f32, "float16": ov.Type.f16, "bfloat16": ov.Type.bf16}
_FORMATS: dict[str, Format] = {"f32": "f32", "f16": "f16", "bf16": "bf16"}
# Kernels of linear layers, and where a compiled model says in which type each computes.
_PRODUCTS = frozenset({"FullyConnected", "MatMul"})
_LAYER, _COMPUTES_IN = "layerType", "runtimePrecision"
_EXECUTED: dict[str, frozenset[str]] = {
    "float32": frozenset({"f32"}),
    "float16": frozenset({"f16"}),
    "int8": frozenset({"i8", "u8"}),
    "int4": frozenset({"i4", "u4"}),
}
_FLOATS = frozenset({"f32"})
"""Attention's own products beside quantised linear layers."""


def providers() -> dict[str, str]:
    """Devices here: protocol name (`cpu`, `gpu`, `gpu_1`, `npu`) → OpenVINO's name."""
    found = {name.lower().replace(".", "_"): name for name in ov.Core().available_devices}
    return {name: device for name, device in found.items() if name not in _VIRTUAL}


def facts() -> dict[str, Any]:
    """Version, providers and memory methods, as in `core.wire.agent.RuntimeFacts`."""
    return {
        "version": str(ov.__version__),
        "providers": sorted(providers()),
        "memory_methods": memory_methods(allocator=False, device=False),
    }


def build(request: LaunchRequest) -> OpenVinoModel:
    """The model of this request."""
    return OpenVinoModel(request)


def computes_in(number_format: KnownFormat, request: LaunchRequest) -> bool:
    """Whether the request's device computes the linear layers of its model in this number format, tested by a pass.

    OpenVINO accepts graphs in types for which a device has no kernels, and computes in another: the compiled model must
    say that it does not. Graphs in bfloat16 it does not refuse but crashes on (2026.4).
    """
    if number_format == "bfloat16":
        return False
    try:
        model = OpenVinoModel(request)
        model.forward_ms()
    except Exception:  # no kernel, no driver, no memory …: unsupported
        return False
    types = model.types_of_products()
    wanted = _EXECUTED[number_format]
    others = _FLOATS if number_format in QUANTISED else frozenset()
    return model.finite() and bool(types & wanted) and types <= wanted | others


class OpenVinoModel:
    """A compiled model with its inputs set. Every pass reads the same state tensors, and its outputs are not used: each
    pass does the same work.
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

    def let_go(self) -> None:
        """Does nothing: the outputs belong to the request."""

    def finite(self) -> bool:
        return all(is_finite(self._request.get_tensor(item).data) for item in self._compiled.outputs)

    def types_of_products(self) -> frozenset[str]:
        """In which types the kernels of linear layers compute, by OpenVINO's names."""
        facts = [node.get_rt_info() for node in self._compiled.get_runtime_model().get_ops()]
        return frozenset(
            str(fact[_COMPUTES_IN].value) for fact in facts if _LAYER in fact and fact[_LAYER].value in _PRODUCTS
        )


def _device(wanted: str) -> str:
    known = providers()
    if wanted not in known:
        raise MeasurementError(
            f"this OpenVINO has no device {wanted}; it has {', '.join(sorted(known))}", reason="unsupported"
        )
    return known[wanted]


def _settings(protocol: MeasurementProtocol) -> dict[str, Any]:
    """One stream, and the protocol's number format: left alone, OpenVINO computes in halves where that is faster."""
    settings: dict[str, Any] = {
        "NUM_STREAMS": "1",
        "INFERENCE_PRECISION_HINT": _PRECISIONS[protocol.dtype],
    }
    if protocol.provider == "cpu":
        # The process is already pinned to the cores that measure.
        settings |= {"INFERENCE_NUM_THREADS": protocol.threads, "ENABLE_CPU_PINNING": False}
    return settings


def _read(core: Any, request: LaunchRequest) -> tuple[Any, dict[str, int]]:
    """The model, and how much of each file of weights is its own: OpenVINO maps whole files (2026.4)."""
    subject = request.subject
    if isinstance(subject, Path):
        return core.read_model(subject), {}
    cache = WeightCache(request.cache)
    written = graph(subject, request, cache)
    with _working_in(cache.folder):  # which weights of a model in memory are relative to
        return core.read_model(written), starts(written, cache.folder)


@contextmanager
def _working_in(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _encoded(array: np.ndarray[Any, Any], element: Any) -> np.ndarray[Any, Any]:
    """The array in this type, contiguous."""
    if array.dtype == np.float32:
        array = encode(array, _FORMATS.get(element.get_type_name(), "f32"))
    return np.asarray(array, order="C")
