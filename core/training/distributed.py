"""Ranks of a training over torch.distributed: a single process, or the processes that `torchrun` started."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from edgefront.core.common.errors import InvalidInput

_TIMEOUT = timedelta(hours=2)  # while one rank evaluates, the other ranks wait


@dataclass(frozen=True)
class Ranks:
    """Rank of this process in a training, number of ranks, and device of this process."""

    rank: int
    ranks: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, the rank that writes files."""
        return self.rank == 0

    def sums(self, *values: float) -> list[float]:
        """Sums each value over the ranks with one all-reduce. Every rank must call this method."""
        if self.ranks == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor)
        return [float(total) for total in tensor]

    def wait(self) -> None:
        """Waits until every rank has called this method."""
        if self.ranks > 1:
            dist.barrier()


@contextmanager
def joined(kind: Literal["cpu", "cuda"], threads: int | None = None) -> Iterator[Ranks]:
    """Joins the ranks of `torchrun`; without torchrun this process is the only rank.

    Raises `InvalidInput` if CUDA is missing, or this machine has fewer GPUs than ranks.
    """
    rank, ranks, local = (
        int(os.environ.get(name, value)) for name, value in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0))
    )
    if threads is not None:
        torch.set_num_threads(threads)
    if kind == "cuda":
        count = torch.cuda.device_count()
        if local >= count:
            raise InvalidInput(
                f"rank {local} of this machine has no GPU: torch sees {count}",
                field="device",
                value=kind,
                allowed="cpu, or as many ranks as there are GPUs",
            )
        torch.cuda.set_device(local)
        # The published recipes were trained with TensorFloat-32 for float32 matrix products.
        torch.set_float32_matmul_precision("high")
    device = torch.device(kind, local) if kind == "cuda" else torch.device("cpu")
    if ranks > 1:
        backend = "nccl" if kind == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=_TIMEOUT, device_id=device if kind == "cuda" else None)
    try:
        yield Ranks(rank, ranks, device)
    finally:
        if ranks > 1:
            dist.destroy_process_group()


class Reading(NamedTuple):
    """Values measured since the previous reading: `losses`, means over all ranks, and the latest gradient `norm`.

    `losses` is [cross-entropy], or with a teacher [cross-entropy, divergence from the teacher].
    """

    losses: list[float]
    norm: float
    seconds: float
    seconds_per_step: float


class Meter:
    """Measures losses and time of training steps; the time of evaluations is left out."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._losses: list[Tensor] = []
        self._norm: Tensor | None = None
        self.restart(0)

    def restart(self, step: int) -> None:
        """Restarts the clock at step `step`: the time since the previous reading is left out."""
        self._since, self._step = time.monotonic(), step

    def add(self, loss: Tensor, norm: Tensor) -> None:
        """Adds one step's mean losses, [1] (with a teacher [2]), and gradient norm; both are on the device."""
        self._losses.append(loss)
        self._norm = norm

    @property
    def pending(self) -> Tensor | None:
        """Losses of this rank in the n steps since the previous reading, [n, 1 or 2]; None if n is 0."""
        return torch.stack(self._losses) if self._losses else None

    @property
    def seconds(self) -> float:
        """Seconds since the previous reading."""
        return time.monotonic() - self._since

    def resume(self, losses: Tensor) -> None:
        """Restores the `pending` losses of a checkpoint."""
        self._losses = list(losses.to(self._ranks.device).unbind())

    def is_finite(self, *, norm: bool) -> bool:
        """Whether every loss since the previous reading, and with `norm` the gradient norm, is finite on every rank."""
        values = [*self._losses, *([self._norm.view(1)] if norm and self._norm is not None else [])]
        is_wrong = bool(values) and not bool(torch.cat([value.float() for value in values]).isfinite().all())
        return self._ranks.sums(is_wrong) == [0.0]

    def read(self, step: int) -> Reading:
        """Returns the reading after `step` steps and resets the meter. Every rank must call this method."""
        assert self._norm is not None
        means = [float(losses.mean()) for losses in torch.stack(self._losses).unbind(1)]
        losses, norm = self._ranks.sums(*means), float(self._norm)
        seconds, steps = self.seconds, step - self._step
        self._losses = []
        self.restart(step)
        return Reading(losses, norm, seconds, max(seconds / max(1, steps), 1e-9))
