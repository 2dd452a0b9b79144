"""NVIDIA's management library, called directly: it comes with the driver, and one number does not need a package."""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass

from core.errors import MeasurementError


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


@dataclass
class Gpu:
    """A GPU by its NVML handle."""

    library: ctypes.CDLL
    handle: ctypes.c_void_p

    @classmethod
    def first_visible(cls) -> Gpu:
        """The GPU that CUDA programs see as number 0. `MeasurementError` (unsupported) without driver or GPU."""
        try:
            library = ctypes.CDLL("nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1")
        except OSError as error:
            raise MeasurementError(f"no NVIDIA driver here: {error}", reason="unsupported") from None
        _check(library.nvmlInit_v2(), "nvmlInit")
        handle = ctypes.c_void_p()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
        if visible and not visible.isdigit():
            _check(library.nvmlDeviceGetHandleByUUID(visible.encode(), ctypes.byref(handle)), visible)
        else:
            number = ctypes.c_uint(int(visible or 0))
            _check(library.nvmlDeviceGetHandleByIndex_v2(number, ctypes.byref(handle)), f"GPU {visible or 0}")
        return cls(library, handle)

    def used_bytes(self) -> int:
        memory = _Memory()
        _check(self.library.nvmlDeviceGetMemoryInfo(self.handle, ctypes.byref(memory)), "nvmlDeviceGetMemoryInfo")
        return int(memory.used)


def _check(code: int, what: str) -> None:
    if code:
        raise MeasurementError(f"the NVIDIA driver refused {what} (NVML error {code})", reason="unsupported")
