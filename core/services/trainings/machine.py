"""Resources of this machine for trainings."""

from __future__ import annotations

import importlib.util
import os
import socket
from functools import lru_cache

from edgefront.core.common.processes.gpus import listed_gpus
from edgefront.core.common.processes.limits import total_memory_bytes, usable_cores
from edgefront.core.services.settings import Settings
from edgefront.core.services.tasks import TRAIN_QUEUES
from edgefront.core.services.trainings.claims import Machine


def default_threads(device: str, slots: int) -> int | None:
    """Default number of CPU threads of a training; None selects torch's default."""
    return None if device == "cuda" else max(1, usable_cores() // 2 // max(1, slots))


def machine_of(settings: Settings) -> Machine:
    """Returns the resources of a worker with these settings on this machine."""
    gpus = system_gpus()
    count = settings.training.gpus
    if count is not None:
        gpus = {number: gpus.get(number, 1 << 50) for number in range(count)}
    return Machine(
        worker=settings.training.worker or socket.gethostname(),
        slots=settings.training.slots,
        memory_bytes=total_memory_bytes(),
        gpus=gpus,
    )


def cannot_train(settings: Settings) -> str | None:
    """Returns the reason why this machine can run no training; None if it can run trainings."""
    if settings.training.command is None and importlib.util.find_spec("torch") is None:
        return "a training needs torch, which is not installed: pip install 'edgefront-lm[train]'"
    return None


@lru_cache(maxsize=1)
def system_gpus() -> dict[int, int]:
    """Returns GPU number → bytes of memory of the NVIDIA GPUs that this process may use. The GPUs are numbered by PCI
    bus order, as in `CUDA_VISIBLE_DEVICES`.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    allowed = None if visible is None else {part.strip() for part in visible.split(",")}
    return {
        gpu.number: gpu.memory_bytes or total_memory_bytes()
        for gpu in listed_gpus()
        if allowed is None or str(gpu.number) in allowed or gpu.uuid in allowed
    }


def served_queues(settings: Settings) -> tuple[str, ...]:
    """Returns the queues of trainings that a worker on this machine can serve."""
    if cannot_train(settings) is not None:
        return ()
    machine = machine_of(settings)
    is_served = {"cpu": machine.slots > 0, "gpu": len(machine.gpus) > 0, "gpus": len(machine.gpus) > 1}
    return tuple(queue for queue in TRAIN_QUEUES if is_served[queue])
