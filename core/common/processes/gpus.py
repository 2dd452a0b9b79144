"""The NVIDIA GPUs of this machine, as their driver's tool lists them."""

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
    """One GPU. `number` is in the order of the PCI bus."""

    number: int
    name: str
    uuid: str
    memory_bytes: int | None
    """None: it shares the machine's."""
    driver: str
    compute_capability: str


def listed_gpus() -> tuple[ListedGpu, ...]:
    """The GPUs; none without the tool, or where it fails."""
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
    """GPUs from the tool's rows of `_FIELDS`; others are left out."""
    gpus: list[ListedGpu] = []
    for row in csv.reader(answer.splitlines(), skipinitialspace=True):
        if len(row) == len(_FIELDS) and row[0].isdigit():
            number, name, uuid, mebibytes, driver, capability = (cell.strip() for cell in row)
            memory = int(mebibytes) << 20 if mebibytes.isdigit() else None
            gpus.append(ListedGpu(int(number), name, uuid, memory, driver, capability))
    return tuple(gpus)
