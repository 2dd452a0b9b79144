"""Calls NVIDIA's management library (NVML) directly, without a Python package: the driver contains NVML, and only a few
values are read.

Names and constants are those of nvml.h.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass

from edgefront.core.common.errors import MeasurementError
from edgefront.core.measurement.record import Fact

_CLOCK_SM, _CLOCK_MEM, _TEMPERATURE_GPU = 1, 2, 0


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


@dataclass
class Gpu:
    """A GPU, accessed by its NVML handle."""

    library: ctypes.CDLL
    handle: ctypes.c_void_p

    @classmethod
    def visible(cls, number: int = 0) -> Gpu:
        """Returns the GPU that CUDA programs see under `number`. Raises `MeasurementError` (unsupported) without a
        driver or GPU.

        The numbers of NVML and CUDA agree only if CUDA orders GPUs by PCI bus; `child_environment`
        (`agents.measuring.forkserver`) sets that order.
        """
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError as error:
            raise MeasurementError(f"no NVIDIA driver here: {error}", reason="unsupported") from None
        _check(library.nvmlInit_v2(), "nvmlInit")
        handle = ctypes.c_void_p()
        visible = _visible(number)
        if not visible.isdigit():
            _check(library.nvmlDeviceGetHandleByUUID(visible.encode(), ctypes.byref(handle)), visible)
        else:
            index = ctypes.c_uint(int(visible))
            _check(library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)), f"GPU {visible}")
        return cls(library, handle)

    def used_bytes(self) -> int:
        memory = _Memory()
        _check(self.library.nvmlDeviceGetMemoryInfo(self.handle, ctypes.byref(memory)), "nvmlDeviceGetMemoryInfo")
        return int(memory.used)

    def name(self) -> str:
        """Name of the GPU."""
        answer = ctypes.create_string_buffer(96)
        _check(self.library.nvmlDeviceGetName(self.handle, answer, len(answer)), "nvmlDeviceGetName")
        return answer.value.decode()

    def facts(self) -> dict[str, Fact]:
        """Reads the GPU's clock rates, temperature, power and throttling reasons; unavailable values are left out.

        `gpu_throttled` is the bit mask of nvmlClocksThrottleReasons: 0x1 idle, 0x4 power cap, 0x8 hardware slowdown,
        0x20 and 0x40 too hot.
        """
        facts: dict[str, Fact | None] = {
            "gpu_clock_mhz": self._number("nvmlDeviceGetClockInfo", _CLOCK_SM),
            "gpu_memory_clock_mhz": self._number("nvmlDeviceGetClockInfo", _CLOCK_MEM),
            "gpu_temperature_c": self._number("nvmlDeviceGetTemperature", _TEMPERATURE_GPU),
        }
        milliwatts = self._number("nvmlDeviceGetPowerUsage")
        facts["gpu_power_w"] = None if milliwatts is None else milliwatts / 1000
        reasons = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", size=ctypes.c_ulonglong)
        facts["gpu_throttled"] = None if reasons is None else hex(reasons)
        return {name: fact for name, fact in facts.items() if fact is not None}

    def energy_joules(self) -> float | None:
        """Energy used since the driver was loaded, J; None if the GPU (before Volta) or the driver cannot count it."""
        millijoules = self._number("nvmlDeviceGetTotalEnergyConsumption", size=ctypes.c_ulonglong)
        return None if millijoules is None else millijoules / 1000

    def _number(
        self, function: str, *which: int, size: type[ctypes.c_uint | ctypes.c_ulonglong] = ctypes.c_uint
    ) -> int | None:
        """Returns the number that this NVML function reports; None if the driver or the GPU (a MIG slice, for instance)
        does not support the function.
        """
        answer = size()
        try:
            code = getattr(self.library, function)(self.handle, *which, ctypes.byref(answer))
        except AttributeError:
            return None
        return None if code else int(answer.value)


def _visible(number: int) -> str:
    """Returns the number in the driver, or the UUID, of the GPU that CUDA programs see under `number`."""
    restricted = os.environ.get("CUDA_VISIBLE_DEVICES", "").strip()
    if not restricted:
        return str(number)
    named = [name.strip() for name in restricted.split(",")]
    if number >= len(named):
        raise MeasurementError(f"CUDA_VISIBLE_DEVICES={restricted} hides GPU {number}", reason="unsupported")
    return named[number]


def _check(code: int, what: str) -> None:
    if code:
        raise MeasurementError(f"the NVIDIA driver refused {what} (NVML error {code})", reason="unsupported")
