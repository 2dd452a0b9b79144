"""Which machine this is: an agent's data folder that was copied to another one is noticed by it."""

from __future__ import annotations

import hashlib
import os
import platform
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict

from edgefront.agents.device.processor import processor
from edgefront.core.units import GIB

_MACHINE_ID = Path("/etc/machine-id")


class Machine(BaseModel):
    """Two digests: of the id that the system's installation has, if it has one, and of the hardware."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    id: str = ""
    hardware: str

    def is_same(self, other: Machine) -> bool:
        """Whether these may be one machine. A container may get another id at each start, and hardware may be changed;
        who copies a folder to another machine changes both, or neither where one is a clone of the other: then the
        server notices that both are online.
        """
        return self.hardware == other.hardware or (self.id != "" and self.id == other.id)


def this_machine(machine_id: Path = _MACHINE_ID) -> Machine:
    memory_gib = round(psutil.virtual_memory().total / GIB)
    hardware = f"{processor()[0]} {platform.machine()} {os.cpu_count()} {memory_gib}"
    try:
        own = machine_id.read_text().strip()
    except OSError:  # another system, or a container without one
        own = ""
    return Machine(id=_digest(own) if own else "", hardware=_digest(hardware))


def _digest(text: str) -> str:
    # Who reads it learns neither: systemd asks that its id be kept from the network.
    return hashlib.sha256(f"edgefront {text}".encode()).hexdigest()[:16]
