"""Keeps what an earlier start found out about the runtimes, so that the next start need not load them."""

from __future__ import annotations

import glob
import inspect
import logging
import os
import platform
import sys
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from pydantic import BaseModel, ValidationError

from edgefront.agents.device.processor import processor
from edgefront.agents.measuring.memory_probes import memory_methods
from edgefront.core.canonical import digest
from edgefront.core.errors import Unavailable
from edgefront.core.files import whole_file
from edgefront.core.measurement.provider import Provider
from edgefront.core.measurement.runtimes import Runtime
from edgefront.core.wire.agent import RuntimeFacts

_ACCELERATORS = ("/dev/accel/*", "/dev/dri/*", "/dev/kfd", "/dev/nvidia*", "/etc/OpenCL/vendors/*")
_SETTINGS = (
    *("ATEN_", "CUDA_", "DNNL_", "GGML_", "KMP_", "LD_", "MKL_", "OMP_", "ONEDNN_", "OPENBLAS_", "OPENVINO_", "ORT_"),
    *("OV_", "PYTHON", "TORCH"),
)
"""Prefixes of environment variables that runtimes read."""

_log = logging.getLogger(__name__)


class _StoredFacts(BaseModel):
    fingerprint: str
    runtimes: tuple[RuntimeFacts, ...]


class RuntimesFile:
    """`runtimes.json` in the agent's data folder. A file that cannot be read or written only means that the runtimes
    are tested again.

    With `again` the facts in it are ignored and replaced.
    """

    def __init__(self, folder: Path, *, again: bool = False) -> None:
        self.path = folder / "runtimes.json"
        self._again = again

    def read(self) -> dict[Runtime, RuntimeFacts]:
        """The facts that still hold; empty if anything has changed on which a test depends."""
        if self._again:
            return {}
        try:
            stored = _StoredFacts.model_validate_json(self.path.read_bytes())
            holds = stored.fingerprint == self.fingerprint
        except (OSError, ValidationError):
            return {}
        return {facts.runtime: facts for facts in stored.runtimes} if holds else {}

    def write(self, tested: Iterable[RuntimeFacts]) -> None:
        """Keeps the facts of runtimes that use the processor alone. What a GPU can do is tested at every start: that
        depends on its driver, and on the memory that others leave.
        """
        runtimes = tuple(facts for facts in tested if all(Provider(name).on_processor for name in facts.providers))
        try:
            with whole_file(self.path) as file:
                file.write(
                    _StoredFacts(fingerprint=self.fingerprint, runtimes=runtimes).model_dump_json(indent=1).encode()
                )
        except (OSError, Unavailable) as error:
            _log.warning("the next start tests the runtimes again: %s", error)

    @cached_property
    def fingerprint(self) -> str:
        """Digest of what the tests depend on, as far as it shows without loading a runtime."""
        return digest(
            {
                "processor": processor(),
                "system": [platform.system(), platform.release(), platform.machine(), *platform.libc_ver()],
                "python": [sys.executable, sys.version],
                "packages": _packages(),
                "code": _code(),
                "accelerators": sorted(path for pattern in _ACCELERATORS for path in glob.glob(pattern)),
                "memory_methods": memory_methods(allocator=False, device=False),
                "settings": {name: value for name, value in os.environ.items() if name.startswith(_SETTINGS)},
            }
        )


def _packages() -> list[str]:
    """Name, version and time of installation of every package: one may be built again with the same version."""
    places = dict.fromkeys(Path(place) for place in sys.path)
    paths = [path for place in places for path in (*place.glob("*.dist-info"), *place.glob("*.egg-info"))]
    return sorted(f"{path.name} {path.stat().st_mtime_ns}" for path in paths)


def _code() -> list[int]:
    """Number of this project's modules that a test may run, and when the last of them changed: a source tree changes
    without a new version.
    """
    agents, core = Path(__file__).parents[1], Path(inspect.getfile(digest)).parent
    files = [path for folder in (agents, core) for path in folder.rglob("*.py")]
    return [len(files), max(path.stat().st_mtime_ns for path in files)]
