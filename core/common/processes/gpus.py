"""List of this machine's NVIDIA GPUs, from `nvidia-smi`."""

from __future__ import annotations

import csv
import logging
import shutil
import subprocess
from typing import NamedTuple

_FIELDS = ("index", "name", "uuid", "memory.total", "driver_version", "compute_cap")
_ANSWER_S = 30.0

_log = logging.getLogger(__name__)


class ListedGpu(NamedTuple):
    """One GPU from `nvidia-smi`. `number` counts in the order of the PCI bus."""

    number: int
    name: str
    uuid: str
    memory_bytes: int | None
    """Memory of the GPU; None if the GPU shares the machine's memory."""
    driver: str
    compute_capability: str


def listed_gpus() -> tuple[ListedGpu, ...]:
    """The GPUs of this machine; empty if `nvidia-smi` is missing or fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ()
    command = [tool, f"--query-gpu={','.join(_FIELDS)}", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_ANSWER_S).stdout
    except (OSError, subprocess.SubprocessError) as error:
        _log.warning("the GPUs of this machine could not be listed: %s", error)
        return ()
    return parse_gpus(answer)


def parse_gpus(answer: str) -> tuple[ListedGpu, ...]:
    """Parses the output of `nvidia-smi`. Skips lines that do not have the columns `_FIELDS`."""
    gpus: list[ListedGpu] = []
    for row in csv.reader(answer.splitlines(), skipinitialspace=True):
        if len(row) == len(_FIELDS) and row[0].isdigit():
            number, name, uuid, mebibytes, driver, capability = (cell.strip() for cell in row)
            memory = int(mebibytes) << 20 if mebibytes.isdigit() else None
            gpus.append(ListedGpu(int(number), name, uuid, memory, driver, capability))
    return tuple(gpus)
