"""PyTorch eager: the architecture as a torch module with its weights mapped from the cache."""

from __future__ import annotations

import time
from pathlib import Path

import torch

from agents.inputs import random_tokens
from agents.request import LaunchRequest
from core.errors import MeasurementError
from core.graph.weights import WeightCache
from core.nn.model import LanguageModel
from core.nn.weights import fill


class TorchModel:
    """A module in evaluation and inference mode on the protocol's device."""

    def __init__(self, request: LaunchRequest) -> None:
        if isinstance(request.subject, Path):
            raise MeasurementError("PyTorch runs no ONNX files; choose onnxruntime", reason="unsupported")
        protocol = request.protocol
        self._device = _device(protocol.provider)
        torch.set_num_threads(protocol.threads)
        torch.set_num_interop_threads(1)
        module = fill(LanguageModel(request.subject), request.seed, WeightCache(request.cache))
        self._module = module.to(self._device).eval()
        tokens = random_tokens(protocol, request.subject.embedding.vocab_size, request.seed)
        self._tokens = torch.from_numpy(tokens).to(self._device)
        self._logits = protocol.logits
        self._output: torch.Tensor | None = None
        self.versions = {"torch": str(torch.__version__)}
        if self._device.type == "cuda":
            self.versions["cuda"] = str(torch.version.cuda)
            torch.cuda.synchronize(self._device)

    def forward_ms(self) -> float:
        self._output = None  # a caller that goes on has let go of the last one
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
            self._output = self._module(self._tokens, self._logits)

    def _forward_on_cuda(self) -> float:
        """Between two events on the stream, so that the launch of kernels counts only where the GPU waits for it."""
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize(self._device)
        start.record()
        self._forward()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop))


def _device(provider: str) -> torch.device:
    works = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not works.get(provider):
        known = ", ".join(name for name, present in works.items() if present)
        raise MeasurementError(f"this PyTorch has no device {provider}; it has {known}", reason="unsupported")
    return torch.device(provider)
