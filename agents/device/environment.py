"""Environment of the processes that measure models or examine the device."""

from __future__ import annotations

import os
from pathlib import Path

_ROOT = Path(__file__).absolute().parents[3]
"""The folder that contains the package `edgefront`. Links are not resolved, because in a source tree the subpackages
are links.
"""


def child_environment(temporary: Path) -> dict[str, str]:
    """Returns the environment variables of measuring processes: this process's variables, the project's packages on the
    path, and `temporary` as the folder of temporary files. This process cleans that folder, because a killed child
    cannot remove its files.
    """
    settings = {
        "TMPDIR": str(temporary),
        # Libraries must not start threads when they are loaded in a process that forks. A child sets its number of
        # threads through the runtime.
        "OPENBLAS_NUM_THREADS": "1",
        # ONNX Runtime's official builds (1.29 and later) upload telemetry in a thread that starts on import. A device
        # should contact only its server.
        "ORT_DISABLE_TELEMETRY": "1",
        # llama.cpp would start a debugger to print a trace when it aborts.
        "GGML_NO_BACKTRACE": "1",
    }
    # With this CUDA numbers GPUs as NVML does, which reports memory and clock rates.
    settings["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    path = os.pathsep.join(part for part in (str(_ROOT), os.environ.get("PYTHONPATH", "")) if part)
    return {**os.environ, **settings, "PYTHONPATH": path}
