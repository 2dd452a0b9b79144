"""Runs models with ONNX Runtime: passes of an architecture's graph with weights from the weight cache, passes of any
ONNX file, or generations of an architecture with the state bound on the provider's device.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import redirect_stdout, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto

from edgefront.agents.measuring.inputs import random_state, random_tokens
from edgefront.agents.measuring.memory_probes import memory_methods
from edgefront.agents.measuring.runtimes import GenerationTimes, LaunchRequest
from edgefront.agents.measuring.runtimes.onnx_graph import generating, graph, inputs, is_finite, likeliest, with_room
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import MeasurementError
from edgefront.core.common.number_formats import NumberFormat
from edgefront.core.common.processes.folders import CHILD
from edgefront.core.measurement.generation import last_length
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.provider import Provider
from edgefront.core.model_files.build import EXTERNAL_FOLDER
from edgefront.core.model_files.context import NEXT
from edgefront.core.model_files.formats import Format, WeightCache, encode

_SUFFIX = "executionprovider"
# The default of ONNX Runtime, set explicitly for a correct record: TF32 products (19 bits) for float32 on GPUs with
# TF32.
_CUDA = {"use_tf32": "1"}
_BFLOAT16 = "tensor(bfloat16)"
_FLOATS: dict[str, Format] = {"tensor(float)": "f32", "tensor(float16)": "f16", _BFLOAT16: "bf16"}
# Providers that do not run operators on this device.
_REMOTE = {"azure"}
# Operators of linear layers, by ONNX Runtime's names, and the input types that profiles show.
_PRODUCTS = frozenset({"Gemm", "FusedGemm", "MatMul", "FusedMatMul"})
_QUANTISED_PRODUCTS: dict[str, frozenset[str]] = {
    "int8": frozenset({"DynamicQuantizeMatMul", "MatMulIntegerToFloat", "MatMulInteger"}),
    "int4": frozenset({"MatMulNBits"}),
}
_ADDITION = '<ir_version: 8, opset_import: ["": 17]> addition (float[1] x) => (float[1] y) { y = Add(x, x) }'
_PROFILED = {"float32": "float", "bfloat16": "bfloat16", "float16": "float16"}


def providers() -> dict[str, str]:
    """Returns this build's execution providers: name in protocols (`cpu`, `cuda` …) → name in ONNX Runtime."""
    return {name.lower().removesuffix(_SUFFIX): name for name in ort.get_available_providers()}


def works(provider: str) -> bool:
    """Tests whether a session on this provider can be created and run. The provider's libraries stay loaded."""
    try:
        _load_libraries(provider)
        addition = onnx.parser.parse_model(_ADDITION).SerializeToString()
        session = ort.InferenceSession(addition, _quiet_options(), providers=[providers()[provider]])
        session.run(None, {"x": np.ones(1, np.float32)})
    except Exception:  # a missing driver or library can raise anything
        return False
    return providers()[provider] in session.get_providers()


def _load_libraries(provider: str) -> None:
    """Loads the CUDA and TensorRT libraries from Python packages, because the system does not search packages."""
    if Provider(provider).on_nvidia and hasattr(ort, "preload_dlls"):
        with redirect_stdout(sys.stderr):  # it prints the names of missing libraries
            ort.preload_dlls()
    if provider == "tensorrt":
        with suppress(ImportError):
            import_module("tensorrt")


def facts() -> dict[str, Any]:
    """Returns ONNX Runtime's version, providers and memory methods: fields of `core.schemas.agent.RuntimeFacts`."""
    # A build lists its compiled providers, whether or not the device has them.
    working = [name for name in providers() if name == "cpu" or (name not in _REMOTE and works(name))]
    return {
        "version": ort.__version__,
        "providers": sorted(working),
        "memory_methods": memory_methods(allocator=False, device=any(Provider(name).on_nvidia for name in working)),
    }


def computes_in(number_format: NumberFormat, request: LaunchRequest) -> bool:
    """Whether the request's provider computes the model's linear layers in this number format, tested by a forward
    pass.

    ONNX Runtime accepts most graphs, because it casts operators without a kernel to float32 or moves them to the CPU.
    Figures of such a graph would be misleading, so the test reads from the profile which kernels ran on which device.
    """
    with tempfile.TemporaryDirectory(prefix=CHILD) as folder:
        options = session_options(request.protocol)
        options.enable_profiling = True
        options.profile_file_prefix = os.path.join(folder, "pass")
        try:
            model = OnnxModel(request, options)
            model.forward_ms()
            ran = json.loads(Path(model.session.end_profiling()).read_text())
        except Exception:  # no kernel, no library, no memory …: unsupported
            return False
        if not model.finite():
            return False
    kernels = [event["args"] for event in ran if event.get("cat") == "Node" and "provider" in event["args"]]
    provider = providers()[request.protocol.provider]
    # A provider that compiles subgraphs shows them as single kernels, without matrix products.
    ran_there = any(kernel["provider"] == provider for kernel in kernels)
    # With int8 and int4 only the quantised products count.
    products = [kernel for kernel in kernels if kernel["op_name"] in _QUANTISED_PRODUCTS.get(number_format, _PRODUCTS)]
    return ran_there and all(
        kernel["provider"] == provider
        and (
            number_format in _QUANTISED_PRODUCTS
            or all(_PROFILED[number_format] in types for types in kernel["input_type_shape"])
        )
        for kernel in products
    )


def session_options(protocol: MeasurementProtocol) -> Any:
    """Returns ONNX Runtime's default options with the protocol's threads and sequential execution."""
    options = _quiet_options()
    options.intra_op_num_threads = protocol.threads
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    return options


class OnnxModel:
    """A session with inputs and outputs bound on the provider's device, so that a pass copies nothing. All passes do
    the same work, because every pass reads the same state tensors and discards the output state.
    """

    def __init__(self, request: LaunchRequest, options: Any = None) -> None:
        protocol = request.protocol
        self.session = session_of(request, options or session_options(protocol))
        self._gpu = Provider(protocol.provider).on_nvidia
        self._place = "cuda" if self._gpu else "cpu"
        self._binding = self.session.io_binding()
        self._values = []
        buffers: dict[str, Any] = {}
        declared = [(item.name, item.type, tuple(item.shape)) for item in self.session.get_inputs()]
        types = {name: kind for name, kind, _ in declared}
        arrays = inputs(request, declared)
        if isinstance(request.subject, Architecture) and in_place(protocol):
            arrays |= (longer := with_room(request.subject, protocol, arrays))
            buffers = dict.fromkeys(longer)
        for name, array in arrays.items():
            if name not in types:
                continue  # nothing in the graph depends on it
            # Counts of tokens are used in shape arithmetic, which runs on the CPU.
            value = value_of(array, types[name], self._place if array.ndim else "cpu")
            self._values.append(value)  # the binding keeps no reference
            self._binding.bind_ortvalue_input(name, value)
            if name in buffers:
                buffers[name] = value
        for output in self.session.get_outputs():
            buffer = buffers.get(output.name.removeprefix(NEXT))
            if buffer is None:
                self._binding.bind_output(output.name, self._place)
            else:
                self._binding.bind_ortvalue_output(output.name, buffer)
        self.starts: dict[str, int] = {}
        self.versions = versions(protocol)

    def forward_ms(self) -> float:
        started = time.perf_counter_ns()
        self.session.run_with_iobinding(self._binding)
        if self._gpu:
            self._binding.synchronize_outputs()
        return (time.perf_counter_ns() - started) / 1e6

    def finite(self) -> bool:
        return all(is_finite(array_of(value)) for value in self._binding.get_outputs())


def versions(protocol: MeasurementProtocol) -> dict[str, str]:
    """Returns the versions of libraries, and the settings, that explain the measured figures."""
    packages = {"onnxruntime": ort.__version__, "onnx": onnx.__version__, "numpy": np.__version__}
    # TensorRT's default is the same.
    return {**packages, "tf32": _CUDA["use_tf32"]} if Provider(protocol.provider).on_nvidia else packages


def _quiet_options() -> Any:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    return options


def session_of(request: LaunchRequest, options: Any) -> Any:
    """Creates a session for the request's model. Raises `MeasurementError` (unsupported) if that fails."""
    name = request.protocol.provider
    available = providers()
    if name not in available:
        raise MeasurementError(
            f"this ONNX Runtime has no provider {name}; it has {', '.join(sorted(available))}", reason="unsupported"
        )
    _load_libraries(name)
    model: str | bytes
    if isinstance(request.subject, Path):
        model = str(request.subject)
    else:
        cache = WeightCache(request.cache)
        model = graph(
            request.subject,
            request,
            cache,
            in_place=in_place(request.protocol),
            fused=_fused(request.protocol),
        )
        options.add_session_config_entry(EXTERNAL_FOLDER, str(cache.folder))
    session = ort.InferenceSession(model, options, providers=_chosen(name))
    if available[name] not in session.get_providers():
        raise MeasurementError(f"ONNX Runtime has the provider {name}, but could not start it", reason="unsupported")
    return session


def _chosen(name: str) -> list[Any]:
    """Returns the provider and the fallback providers for unsupported operators (for TensorRT, CUDA comes first)."""
    names = dict.fromkeys((name, *(["cuda"] if name == "tensorrt" and "cuda" in providers() else []), "cpu"))
    return [(providers()[each], _CUDA) if each == "cuda" else providers()[each] for each in names]


def in_place(protocol: MeasurementProtocol) -> bool:
    """Whether graphs write keys and values in place where possible. In decode mode, only graphs on a CPU do."""
    return protocol.mode == "generate" or (protocol.mode == "decode" and protocol.provider == "cpu")


def _fused(protocol: MeasurementProtocol) -> int | None:
    """Returns the maximum number of tokens per pass for which ONNX Runtime's own attention operator is used; None
    disables the operator. After a context, the operator can process a prompt of one sequence only.
    """
    prompt_after_context = protocol.mode == "generate" and protocol.memory_length > 0 and protocol.sequence_length > 1
    if not in_place(protocol) or protocol.provider != "cpu" or (prompt_after_context and protocol.batch > 1):
        return None
    return last_length(protocol)


def value_of(array: np.ndarray[Any, Any], kind: str, place: str) -> Any:
    """Returns the array as an ONNX Runtime value of the ONNX type `kind` on the device `place`."""
    if kind in _FLOATS and array.dtype == np.float32:
        array = encode(array, _FLOATS[kind])
    if kind != _BFLOAT16:
        return ort.OrtValue.ortvalue_from_numpy(array, place, 0)
    here = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(array, TensorProto.BFLOAT16)
    if place == "cpu":
        return here
    there = ort.OrtValue.ortvalue_from_shape_and_type(list(array.shape), TensorProto.BFLOAT16, place, 0)
    there.update_inplace(here)
    return there


def array_of(value: Any) -> Any:
    """Returns an output as a numpy array; bfloat16, which numpy does not support, becomes float32."""
    if value.data_type() != _BFLOAT16:
        return value.numpy()
    if value.device_name().lower() != "cpu":
        here = ort.OrtValue.ortvalue_from_shape_and_type(list(value.shape()), TensorProto.BFLOAT16, "cpu", 0)
        here.update_inplace(value)
        value = here
    size = int(np.prod(value.shape()))
    bits = np.ctypeslib.as_array((ctypes.c_uint16 * size).from_address(value.data_ptr()))
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


class OnnxGenerator:
    """A session of the decode graph. Each pass reads the output state of the previous pass without a copy. Buffers for
    keys and values have room for the whole generation and are bound as input and as output; the graph writes into the
    buffers (`core.model_files.state.writes_in_place`). A graph that cannot write in place copies keys and values into
    longer buffers.
    """

    def __init__(self, request: LaunchRequest) -> None:
        self._architecture = generating(request)
        protocol = request.protocol
        self._protocol, self._seed = protocol, request.seed
        self._session = session_of(request, session_options(protocol))
        self._place = "cuda" if Provider(protocol.provider).on_nvidia else "cpu"
        self._binding = self._session.io_binding()
        self._types = {item.name: item.type for item in self._session.get_inputs()}
        outputs = self._session.get_outputs()
        self._outputs = [item.name for item in outputs]
        # Counts of tokens, which have no axes, are used in shape arithmetic, which runs on the CPU.
        self._places = [self._place if item.shape else "cpu" for item in outputs]
        self._scores = next(index for index, name in enumerate(self._outputs) if not name.startswith(NEXT))
        self._prompt = self._tokens(random_tokens(protocol, self._architecture.embedding.vocab_size, request.seed))
        self._buffers, self._kept = self._in_place()
        self._state: dict[str, Any] = {}
        self._after: list[Any] = []
        self.tokens = np.zeros((protocol.batch, protocol.new_tokens), np.int64)
        self.starts: dict[str, int] = {}
        self.versions = versions(protocol)

    def prepare(self) -> None:
        self._binding.clear_binding_inputs()
        self._binding.clear_binding_outputs()
        self._after = []
        self._state = (
            dict(self._kept)
            if self._buffers
            else self._values(dict(random_state(self._architecture, self._protocol, self._seed)))
        )

    def generate(self) -> GenerationTimes:
        state = self._state
        started = time.perf_counter_ns()
        self._pass(self._prompt, state)
        chosen = self._chosen(0)
        first = time.perf_counter_ns()
        state.clear()
        for index in range(1, self._protocol.new_tokens):
            self._pass(self._tokens(chosen), self._next())
            chosen = self._chosen(index)
        return GenerationTimes((first - started) / 1e6, (time.perf_counter_ns() - first) / 1e6)

    def finite(self) -> bool:
        return is_finite(array_of(self._after[self._scores]))

    def _values(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
        return {
            name: value_of(array, self._types[name], self._place if array.ndim else "cpu")
            for name, array in arrays.items()
            if name in self._types
        }

    def _in_place(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Returns a pair of mappings: the buffers for keys and values (they begin with the context, which is never
        overwritten), and the whole initial state including these buffers. Both are empty if the graph copies keys and
        values.
        """
        state = dict(random_state(self._architecture, self._protocol, self._seed))
        longer = with_room(self._architecture, self._protocol, state)
        if not longer:
            return {}, {}
        kept = self._values({**state, **longer})
        return {name: kept[name] for name in longer}, kept

    def _next(self) -> dict[str, Any]:
        """Returns the output state of the previous pass, keyed by the input names of the next one."""
        state = {name.removeprefix(NEXT): value for name, value in zip(self._outputs, self._after, strict=True)}
        return {name: value for name, value in state.items() if name in self._types}

    def _tokens(self, tokens: np.ndarray[Any, Any]) -> Any:
        return ort.OrtValue.ortvalue_from_numpy(tokens, self._place, 0)

    def _pass(self, tokens: Any, state: Mapping[str, Any]) -> None:
        self._binding.bind_ortvalue_input("tokens", tokens)
        for name, value in state.items():
            self._binding.bind_ortvalue_input(name, value)
        for name, place in zip(self._outputs, self._places, strict=True):
            buffer = self._buffers.get(name.removeprefix(NEXT))
            if buffer is not None:
                self._binding.bind_ortvalue_output(name, buffer)
            else:
                self._binding.bind_output(name, place)  # bound again because the previous outputs are now inputs
        self._session.run_with_iobinding(self._binding)
        self._after = self._binding.get_outputs()

    def _chosen(self, index: int) -> np.ndarray[Any, Any]:
        tokens = likeliest(array_of(self._after[self._scores]))
        self.tokens[:, index] = tokens[:, 0]
        return tokens


build, generator = OnnxModel, OnnxGenerator
