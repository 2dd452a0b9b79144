"""Measures peak memory by one of several methods. Figures of different methods are never compared.

- anonymous (Linux): the high-water mark of anonymous memory over the forward passes, plus the weights mapped from
  files. Anonymous memory cannot be evicted to a file. File pages contain libraries and the mapped weights; mapped
  weights are counted by size, whether resident or not.
- resident: the high-water mark of the resident set, file pages included; available on other systems.
- allocator: PyTorch's own peak on a CUDA device.
- device: used memory of the whole GPU, polled; valid because the host runs only one measurement at a time.

All methods except `allocator` subtract the memory of the process before it built the model.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from edgefront.agents.device import linux
from edgefront.agents.device.nvml import Gpu
from edgefront.core.common.errors import MeasurementError
from edgefront.core.measurement.protocol import MeasurementProtocol, MemoryMethod
from edgefront.core.measurement.provider import Provider
from edgefront.core.measurement.record import PeakMemory

_ON_LINUX = sys.platform.startswith("linux")
_POLL_S = 0.002


class PeakMemoryMeter:
    """Measures a model's peak memory. Call `start`, `built` and `read` in this order, in the process of the model."""

    method: MemoryMethod
    _build_peak = 0

    def start(self) -> None:
        """Starts the measurement; called before the model is built."""
        raise NotImplementedError

    def built(self) -> None:
        """Ends the build phase; called after the model is built and before the forward passes."""
        self._build_peak = max(0, self._peak())
        self._reset()

    def read(self, _starts: Mapping[str, int]) -> PeakMemory:
        """Returns the peak memory; called after the forward passes. An exact figure needs two forward passes (see
        `AnonymousMeter`).

        `starts`: bytes of each mapped file that belong to the model (`runtimes.Model`), for meters that count mapped
        files.
        """
        return self._memory(max(1, self._peak()))

    def _memory(self, forward: int, mapped: int = 0) -> PeakMemory:
        return PeakMemory(
            method=self.method,
            peak_bytes=forward + mapped,
            forward_peak_bytes=forward,
            build_peak_bytes=self._build_peak,
            mapped_weight_bytes=mapped,
        )

    def _peak(self) -> int:
        """Peak memory since the latest `_reset`, in bytes above the memory before the build of the model."""
        raise NotImplementedError

    def _reset(self) -> None: ...


def memory_methods(*, allocator: bool, device: bool) -> tuple[MemoryMethod, ...]:
    """Returns the memory methods that work on this system. `allocator`: the runtime's allocator reports its peak;
    `device`: the used memory of the GPU can be polled.
    """
    host: tuple[MemoryMethod, ...] = ("resident",)
    if _ON_LINUX and linux.reset_high_water():
        host = ("anonymous", "resident")
    return host + (("allocator",) if allocator else ()) + (("device",) if device else ())


def meter_for(protocol: MeasurementProtocol, weight_places: tuple[Path, ...]) -> PeakMemoryMeter:
    """Returns a meter for the protocol's memory method. Raises `MeasurementError` if the method is unsupported here."""
    method = protocol.memory
    if method == "anonymous" and _ON_LINUX:
        return AnonymousMeter(weight_places)
    if method == "resident":
        return ResidentMeter()
    if method == "allocator" and protocol.runtime == "pytorch" and protocol.provider == "cuda":
        return AllocatorMeter()
    provider = Provider(protocol.provider)
    if method == "device" and provider.on_nvidia:
        return DeviceMeter(Gpu.visible(provider.number))
    raise MeasurementError(
        f"memory method {method} does not work with {protocol.runtime} on {protocol.provider} on this device",
        reason="unsupported",
    )


class AnonymousMeter(PeakMemoryMeter):
    """High-water mark of anonymous memory, computed from the high-water mark of all resident memory: the kernel keeps
    only one mark for anonymous pages and file pages together.

    If a forward pass loads no new file page, the file pages are constant, so the mark minus the file pages is exactly
    the anonymous mark. The first pass loads file pages (code, mapped weights). In the second pass all file pages are
    resident, and the mark is at least the first pass's mark, so the figure is exact after two passes.
    """

    method = "anonymous"

    def __init__(self, weight_places: tuple[Path, ...]) -> None:
        self._places = weight_places

    def start(self) -> None:
        if not linux.reset_high_water():
            raise MeasurementError(
                "this kernel does not support resetting the memory high-water mark", reason="unsupported"
            )
        self._base = linux.resident()

    def read(self, starts: Mapping[str, int]) -> PeakMemory:
        now = linux.resident()
        forward = max(1, max(now.high_water - now.file, now.anonymous) - self._base.anonymous)
        return self._memory(forward, linux.mapped_bytes(self._places, starts))

    def _peak(self) -> int:
        return linux.resident().high_water - self._base.total

    def _reset(self) -> None:
        linux.reset_high_water()


class ResidentMeter(PeakMemoryMeter):
    """High-water mark of resident memory; includes the model's build where the mark cannot be reset (macOS)."""

    method = "resident"

    def start(self) -> None:
        self._reset()
        self._base = linux.resident().total if _ON_LINUX else self._high_water()

    def _peak(self) -> int:
        return self._high_water() - self._base

    def _reset(self) -> None:
        if _ON_LINUX:
            linux.reset_high_water()

    def _high_water(self) -> int:
        if _ON_LINUX:
            return linux.resident().high_water
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class AllocatorMeter(PeakMemoryMeter):
    """Measures the peak of PyTorch's CUDA allocator: weights and activations, exact to the byte."""

    method = "allocator"

    def start(self) -> None:
        import torch

        if not torch.cuda.is_available():
            raise MeasurementError("this PyTorch has no CUDA device", reason="unsupported")
        torch.cuda.init()
        self._reset()

    def _peak(self) -> int:
        import torch

        torch.cuda.synchronize()
        return int(torch.cuda.max_memory_allocated())

    def _reset(self) -> None:
        import torch

        torch.cuda.reset_peak_memory_stats()


class DeviceMeter(PeakMemoryMeter):
    """Measures the used memory of the GPU, polled while the model is built and run."""

    method = "device"

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._ended = threading.Event()
        self._failed: Exception | None = None

    def start(self) -> None:
        self._base = self._gpu.used_bytes()
        self._highest = _Peak(self._base)
        threading.Thread(target=self._poll, name="gpu-memory", daemon=True).start()

    def read(self, starts: Mapping[str, int]) -> PeakMemory:
        self._ended.set()
        return super().read(starts)

    def _peak(self) -> int:
        if self._failed is not None:
            raise self._failed
        return max(self._highest.used_bytes, self._gpu.used_bytes()) - self._base

    def _reset(self) -> None:
        self._highest = _Peak(self._gpu.used_bytes())

    def _poll(self) -> None:
        try:
            while not self._ended.wait(_POLL_S):
                # Read before the GPU is queried: if the model is built meanwhile, the reading belongs to the build.
                highest = self._highest
                highest.used_bytes = max(highest.used_bytes, self._gpu.used_bytes())
        except Exception as error:  # without these readings the peak would be too low
            self._failed = error


@dataclass
class _Peak:
    """The highest reading of used memory in one phase (build or forward passes), set only by the polling thread."""

    used_bytes: int
