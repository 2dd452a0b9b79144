"""Measures peak memory, by method. Figures of different methods are never compared.

- anonymous (Linux): the high-water mark of anonymous memory over the forward passes, plus the weights mapped from
  files. Anonymous memory cannot be evicted to a file; file pages are libraries and the mapped weights, and the latter
  are counted by size rather than by the part that happened to be resident.
- resident: the high-water mark of the resident set, file pages included; available on other systems.
- allocator: PyTorch's own peak on a CUDA device.
- device: used memory of the whole GPU, polled; valid because nothing else is measured at that time. All except
  `allocator` are minus what the process held before it built the model.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from edgefront.agents.device import linux
from edgefront.core.errors import MeasurementError
from edgefront.core.measurement.protocol import MeasurementProtocol, MemoryMethod
from edgefront.core.measurement.provider import Provider
from edgefront.core.measurement.record import PeakMemory

_ON_LINUX = sys.platform.startswith("linux")
_POLL_S = 0.002


class PeakMemoryMeter(Protocol):
    """Called in the order start, built, read, in the process that builds and runs the model."""

    def start(self) -> None:
        """Called before the model is built."""

    def built(self) -> None:
        """Called when the model is built, before the passes. May be called again: the passes since the last call
        count.
        """

    def read(self, starts: Mapping[str, int]) -> PeakMemory:
        """Called after the passes. Two passes are needed for an exact figure (see `AnonymousMeter`).

        `starts`: those of the model (`runtimes.Model`), for meters that count mapped files.
        """


def memory_methods(*, allocator: bool, device: bool) -> tuple[MemoryMethod, ...]:
    """Methods that work on this system, for a runtime with an allocator that reports its peak, or with a GPU to
    poll.
    """
    host: tuple[MemoryMethod, ...] = ("resident",)
    if _ON_LINUX and linux.reset_high_water():
        host = ("anonymous", "resident")
    return host + (("allocator",) if allocator else ()) + (("device",) if device else ())


def meter_for(protocol: MeasurementProtocol, weight_places: tuple[Path, ...]) -> PeakMemoryMeter:
    """Raises `MeasurementError` with reason `unsupported` for a method that this system lacks."""
    method = protocol.memory
    if method == "anonymous" and _ON_LINUX:
        return AnonymousMeter(weight_places)
    if method == "resident":
        return ResidentMeter() if _ON_LINUX else LifetimeMeter()
    if method == "allocator" and protocol.runtime == "pytorch" and protocol.provider == "cuda":
        return AllocatorMeter()
    provider = Provider(protocol.provider)
    if method == "device" and provider.on_nvidia:
        from edgefront.agents.device.nvml import Gpu

        return DeviceMeter(Gpu.visible(provider.number))
    raise MeasurementError(
        f"memory method {method} does not work with {protocol.runtime} on {protocol.provider} on this device",
        reason="unsupported",
    )


class AnonymousMeter:
    """Anonymous high-water mark, from the resident one: the kernel keeps one mark for both kinds of pages together.

    During a pass that faults in no new file page, file pages are a constant, and mark - file pages is the anonymous
    mark exactly. The first pass faults some in (code, mapped weights); the mark of a second pass is at least as high
    as the first's, since the file pages are then all there, so after two passes the figure is exact.
    """

    def __init__(self, weight_places: tuple[Path, ...]) -> None:
        self._places = weight_places
        self._build_peak: int | None = None

    def start(self) -> None:
        if not linux.reset_high_water():
            raise MeasurementError(
                "this kernel does not support resetting the memory high-water mark", reason="unsupported"
            )
        self._base = linux.resident()

    def built(self) -> None:
        if self._build_peak is None:
            self._build_peak = max(0, linux.resident().high_water - self._base.total)
        linux.reset_high_water()

    def read(self, starts: Mapping[str, int]) -> PeakMemory:
        now = linux.resident()
        mapped = linux.mapped_bytes(self._places, starts)
        forward = max(1, max(now.high_water - now.file, now.anonymous) - self._base.anonymous)
        return PeakMemory(
            method="anonymous",
            peak_bytes=forward + mapped,
            forward_peak_bytes=forward,
            build_peak_bytes=self._build_peak or 0,
            mapped_weight_bytes=mapped,
        )


class ResidentMeter:
    """Resident high-water mark of Linux, reset between build and passes."""

    _build_peak: int | None = None

    def start(self) -> None:
        linux.reset_high_water()
        self._base = linux.resident().total

    def built(self) -> None:
        if self._build_peak is None:
            self._build_peak = max(0, linux.resident().high_water - self._base)
        linux.reset_high_water()

    def read(self, _starts: Mapping[str, int]) -> PeakMemory:
        forward = max(1, linux.resident().high_water - self._base)
        return PeakMemory(
            method="resident", peak_bytes=forward, forward_peak_bytes=forward, build_peak_bytes=self._build_peak or 0
        )


class LifetimeMeter:
    """Resident high-water mark where it cannot be reset: the forward peak is then at least the build's."""

    _build_peak: int | None = None

    def start(self) -> None:
        self._base = _lifetime_peak()

    def built(self) -> None:
        if self._build_peak is None:
            self._build_peak = max(0, _lifetime_peak() - self._base)

    def read(self, _starts: Mapping[str, int]) -> PeakMemory:
        forward = max(1, _lifetime_peak() - self._base)
        return PeakMemory(
            method="resident", peak_bytes=forward, forward_peak_bytes=forward, build_peak_bytes=self._build_peak or 0
        )


class AllocatorMeter:
    """PyTorch's CUDA allocator: weights and activations, to the byte."""

    _build_peak: int | None = None

    def start(self) -> None:
        import torch

        if not torch.cuda.is_available():
            raise MeasurementError("this PyTorch has no CUDA device", reason="unsupported")
        torch.cuda.init()
        torch.cuda.reset_peak_memory_stats()

    def built(self) -> None:
        import torch

        torch.cuda.synchronize()
        if self._build_peak is None:
            self._build_peak = int(torch.cuda.max_memory_allocated())
        torch.cuda.reset_peak_memory_stats()

    def read(self, _starts: Mapping[str, int]) -> PeakMemory:
        import torch

        torch.cuda.synchronize()
        peak = max(1, int(torch.cuda.max_memory_allocated()))
        return PeakMemory(
            method="allocator", peak_bytes=peak, forward_peak_bytes=peak, build_peak_bytes=self._build_peak or 0
        )


class DeviceMeter:
    """Used memory of the GPU, polled while the model is built and run."""

    _build_peak: int | None = None

    def __init__(self, gpu: UsedMemory) -> None:
        self._gpu = gpu
        self._base = 0
        self._peak = _Peak(0)
        self._ended = threading.Event()

    def start(self) -> None:
        self._base = self._gpu.used_bytes()
        self._peak = _Peak(self._base)
        threading.Thread(target=self._poll, name="gpu-memory", daemon=True).start()

    def built(self) -> None:
        now = self._gpu.used_bytes()
        before, self._peak = self._peak, _Peak(now)
        if self._build_peak is None:
            self._build_peak = max(before.used_bytes, now) - self._base

    def read(self, _starts: Mapping[str, int]) -> PeakMemory:
        self._ended.set()
        peak = max(1, max(self._peak.used_bytes, self._gpu.used_bytes()) - self._base)
        return PeakMemory(
            method="device", peak_bytes=peak, forward_peak_bytes=peak, build_peak_bytes=self._build_peak or 0
        )

    def _poll(self) -> None:
        while not self._ended.wait(_POLL_S):
            # Before the GPU is asked: if the model is built meanwhile, the answer belongs to the build.
            peak = self._peak
            peak.used_bytes = max(peak.used_bytes, self._gpu.used_bytes())


@dataclass
class _Peak:
    """The highest reading of one phase; the polling thread alone changes it."""

    used_bytes: int


class UsedMemory(Protocol):
    """A GPU that reports its used memory, of all processes."""

    def used_bytes(self) -> int: ...


def _lifetime_peak() -> int:
    if sys.platform == "win32":
        import psutil

        return int(psutil.Process().memory_info().peak_wset)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
