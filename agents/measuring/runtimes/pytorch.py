"""Runs an architecture in PyTorch eager mode, as a torch module with weights mapped from the weight cache."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from edgefront.agents.measuring.inputs import cache_type_of, random_indices, random_state
from edgefront.agents.measuring.memory_probes import memory_methods
from edgefront.agents.measuring.runtimes import GenerationTimes, LaunchRequest
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import MeasurementError
from edgefront.core.common.number_formats import NumberFormat
from edgefront.core.model_files.formats import WeightCache
from edgefront.core.nn.context import Cache
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import fill

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_ARGUMENTS = {"segments": "segments", "source_tokens": "source"}


def facts() -> dict[str, Any]:
    """Returns PyTorch's version, providers and memory methods: fields of `core.schemas.agent.RuntimeFacts`."""
    cuda = torch.cuda.is_available()
    return {
        "version": str(torch.__version__),
        "providers": _devices(),
        "memory_methods": memory_methods(allocator=cuda, device=cuda),
    }


def start_device(provider: str) -> None:
    """Creates the device's context (on a GPU hundreds of megabytes), and loads the linear algebra library."""
    if provider in _devices():
        ones = torch.ones(8, 8, device=provider)
        (ones @ ones).sum().item()


def computes_in(_: NumberFormat, request: LaunchRequest) -> bool:
    """Whether the request's device runs the model in the model's number format, to which PyTorch always keeps."""
    try:
        model = TorchModel(request)
        model.forward_ms()
    except Exception:  # no kernel, no engine for int8, not enough memory …: unsupported
        return False
    return model.finite()


class _Loaded:
    """A module in evaluation mode on the protocol's device, and the tensors of a launch request."""

    def __init__(self, request: LaunchRequest) -> None:
        subject, protocol = request.subject, request.protocol
        if isinstance(subject, Path):
            raise MeasurementError("PyTorch cannot run ONNX files; choose runtime onnxruntime", reason="unsupported")
        self._architecture: Architecture = subject
        self._protocol, self._seed = protocol, request.seed
        self._device = _device(protocol.provider)
        torch.set_num_threads(protocol.threads)
        if torch.get_num_interop_threads() != 1:
            torch.set_num_interop_threads(1)
        module = LanguageModel(subject)
        cache = WeightCache(request.cache)
        fill(
            module,
            request.seed,
            cache,
            dtype=protocol.dtype,
            quantisation=protocol.weights,
            with_memory=cache_type_of(protocol) == "memory",
        )
        self._module = module.to(self._device).eval()
        indices = random_indices(subject, protocol, request.seed)
        tensors = {name: torch.from_numpy(array).to(self._device) for name, array in indices.items()}
        self._tokens = tensors.pop("tokens")
        self._others = {_ARGUMENTS[name]: tensor for name, tensor in tensors.items()}
        self.starts: dict[str, int] = {}
        self.versions = {"torch": str(torch.__version__)}
        if self._device.type == "cuda":
            self.versions["cuda"] = str(torch.version.cuda)
            self.versions["tf32"] = str(int(torch.backends.cuda.matmul.allow_tf32))
            torch.cuda.synchronize(self._device)

    def _state_before(self) -> Cache | None:
        """Returns the state at the start of a pass: random, or empty in mode prefill; None for a pass without state."""
        protocol = self._protocol
        if protocol.mode == "prefill":
            nothing: Cache = self._module.init_cache(protocol.batch, "cache")
            return nothing
        cache_type = cache_type_of(protocol)
        if cache_type is None:
            return None
        state = Cache(self._architecture, cache_type)
        for name, array in random_state(self._architecture, protocol, self._seed).items():
            tensor: Any = torch.from_numpy(array)
            # Counts stay on the CPU, as `core.nn.context` keeps them.
            state[name] = tensor.to(self._device, _DTYPES[protocol.dtype]) if tensor.is_floating_point() else tensor
        return state


class TorchModel(_Loaded):
    """Runs forward passes in inference mode. All passes do the same work, because every pass reads the same state
    tensors and discards the output state.
    """

    def __init__(self, request: LaunchRequest) -> None:
        super().__init__(request)
        self._state = self._state_before()
        self._logits = self._protocol.logits
        self._output: torch.Tensor | None = None
        self._state_after: Cache | None = None

    def forward_ms(self) -> float:
        self._output = self._state_after = None
        if self._device.type == "cuda":
            return self._forward_on_cuda()
        started = time.perf_counter_ns()
        self._forward()
        if self._device.type == "mps":
            torch.mps.synchronize()
        return (time.perf_counter_ns() - started) / 1e6

    def finite(self) -> bool:
        return self._output is not None and bool(torch.isfinite(torch.stack(torch.aminmax(self._output))).all())

    def _forward(self) -> None:
        with torch.inference_mode():
            if self._state is None:
                self._output = self._module(self._tokens, self._logits, **self._others)
            else:
                self._output, self._state_after = self._module(
                    self._tokens, self._logits, cache=self._state, **self._others
                )

    def _forward_on_cuda(self) -> float:
        """Runs one pass and returns the ms between two CUDA events; kernel launches count only if the GPU waits."""
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize(self._device)
        start.record()
        self._forward()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop))


class TorchGenerator(_Loaded):
    """Generates tokens in inference mode; every pass produces the state for the next pass. Times include the device's
    work, because the chosen token is read after each pass.
    """

    def __init__(self, request: LaunchRequest) -> None:
        super().__init__(request)
        protocol = self._protocol
        self.tokens = np.zeros((protocol.batch, protocol.new_tokens), np.int64)
        self._state: Cache | None = None
        self._scores: torch.Tensor | None = None

    def prepare(self) -> None:
        self._scores = None
        with torch.inference_mode():
            self._state = self._state_before()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def generate(self) -> GenerationTimes:
        state, self._state = self._state, None
        with torch.inference_mode():
            started = time.perf_counter_ns()
            chosen, state = self._pass(self._tokens, state, 0)
            first = time.perf_counter_ns()
            for index in range(1, self._protocol.new_tokens):
                chosen, state = self._pass(chosen, state, index)
            return GenerationTimes((first - started) / 1e6, (time.perf_counter_ns() - first) / 1e6)

    def finite(self) -> bool:
        return self._scores is not None and bool(torch.isfinite(self._scores).all())

    def _pass(self, tokens: torch.Tensor, state: Cache | None, index: int) -> tuple[torch.Tensor, Cache]:
        assert state is not None
        self._scores, after = self._module(tokens, "last", cache=state)
        chosen = self._scores.reshape(len(tokens), -1).argmax(dim=1, keepdim=True)
        self.tokens[:, index] = chosen[:, 0].cpu().numpy()
        return chosen, after


def _devices() -> list[str]:
    works = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    return [name for name, present in works.items() if present]


def _device(provider: str) -> torch.device:
    if provider not in _devices():
        available = ", ".join(_devices())
        raise MeasurementError(f"this PyTorch has no device {provider}; it has {available}", reason="unsupported")
    return torch.device(provider)


build, generator = TorchModel, TorchGenerator
