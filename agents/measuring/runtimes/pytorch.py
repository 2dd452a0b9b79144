"""PyTorch eager: the architecture as a torch module with its weights mapped from the cache."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch

from edgefront.agents.measuring.inputs import random_indices, random_state, state_form
from edgefront.agents.measuring.request import LaunchRequest
from edgefront.agents.measuring.rulers import memory_methods
from edgefront.core.errors import MeasurementError
from edgefront.core.graph.weights import WeightCache
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.state import State
from edgefront.core.nn.weights import fill
from edgefront.core.number_formats import KnownFormat
from edgefront.core.spaces.architecture import Architecture

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_ARGUMENTS = {"segments": "segments", "source_tokens": "source"}


def facts() -> dict[str, Any]:
    """Version, providers and memory methods, as in `core.wire.agent.RuntimeFacts`."""
    cuda = torch.cuda.is_available()
    return {
        "version": str(torch.__version__),
        "providers": _devices(),
        "memory_methods": memory_methods(allocator=cuda, device=cuda),
    }


def build(request: LaunchRequest) -> TorchModel:
    """The model of this request."""
    return TorchModel(request)


def computes_in(_: KnownFormat, request: LaunchRequest) -> bool:
    """Whether the request's device runs its model, which computes in this number format: PyTorch casts nothing."""
    try:
        model = TorchModel(request)
        model.forward_ms()
    except Exception:  # no kernel, no engine for int8, not enough memory …: unsupported
        return False
    return model.finite()


class TorchModel:
    """A module in evaluation and inference mode on the protocol's device.

    Every pass reads the same state tensors, and its output state is dropped: each pass does the same work.
    """

    def __init__(self, request: LaunchRequest) -> None:
        subject, protocol = request.subject, request.protocol
        if isinstance(subject, Path):
            raise MeasurementError("PyTorch cannot run ONNX files; choose runtime onnxruntime", reason="unsupported")
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
            quantisation=protocol.quantisation,
            with_memory=state_form(protocol) == "memory",
        )
        self._module = module.to(self._device).eval()
        indices = random_indices(subject, protocol, request.seed)
        tensors = {name: torch.from_numpy(array).to(self._device) for name, array in indices.items()}
        self._tokens = tensors.pop("tokens")
        self._others = {_ARGUMENTS[name]: tensor for name, tensor in tensors.items()}
        self._state = self._state_before(subject, protocol, request.seed)
        self._logits = protocol.logits
        self._output: torch.Tensor | None = None
        self._state_after: State | None = None
        self.starts: dict[str, int] = {}
        self.versions = {"torch": str(torch.__version__)}
        if self._device.type == "cuda":
            self.versions["cuda"] = str(torch.version.cuda)
            self.versions["tf32"] = str(int(torch.backends.cuda.matmul.allow_tf32))
            torch.cuda.synchronize(self._device)

    def let_go(self) -> None:
        self._output = self._state_after = None

    def forward_ms(self) -> float:
        self.let_go()
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
                self._output, self._state_after = self._module.step(
                    self._tokens, self._state, self._logits, **self._others
                )

    def _forward_on_cuda(self) -> float:
        """Measured between two events on the stream, so that kernel-launch time counts only if the GPU waits for it."""
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize(self._device)
        start.record()
        self._forward()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop))

    def _state_before(self, architecture: Architecture, protocol: MeasurementProtocol, seed: int) -> State | None:
        """The state before the tokens: random, or empty for prefill; None for a pass without state."""
        if protocol.mode == "prefill":
            nothing: State = self._module.start(protocol.batch, "cache")
            return nothing
        form = state_form(protocol)
        if form is None:
            return None
        state = State(architecture, form)
        for name, array in random_state(architecture, protocol, seed).items():
            tensor: Any = torch.from_numpy(array)
            # Counts stay on the CPU, as `core.nn.state` keeps them.
            state[name] = tensor.to(self._device, _DTYPES[protocol.dtype]) if tensor.is_floating_point() else tensor
        return state


def _devices() -> list[str]:
    works = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    return [name for name, present in works.items() if present]


def _device(provider: str) -> torch.device:
    if provider not in _devices():
        known = ", ".join(_devices())
        raise MeasurementError(f"this PyTorch has no device {provider}; it has {known}", reason="unsupported")
    return torch.device(provider)
