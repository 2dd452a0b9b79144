"""The ranks of a training: one process, or as many as `torchrun` started. The engine is torch.distributed's."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from edgefront.core.common.errors import InvalidInput

_TIMEOUT = timedelta(hours=2)  # an evaluation of one rank, for which the others wait


@dataclass(frozen=True)
class Ranks:
    """This process among the others, and the device that it trains on."""

    rank: int
    ranks: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether it writes files."""
        return self.rank == 0

    def total(self, value: float) -> float:
        """The sum of every rank's value; all ranks call it."""
        return self.totals(value)[0]

    def totals(self, *values: float) -> list[float]:
        """Of each value the sum over the ranks, in one message; all ranks call it."""
        if self.ranks == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor)
        return [float(total) for total in tensor]

    def any(self, flag: bool) -> bool:
        """Whether the value is true on any rank; all ranks call it."""
        return self.total(float(flag)) > 0

    def wait(self) -> None:
        """Until every rank is here."""
        if self.ranks > 1:
            dist.barrier()


@contextmanager
def joined(kind: Literal["cpu", "cuda"], threads: int | None = None) -> Iterator[Ranks]:
    """Joins the ranks that `torchrun` has started, or stands alone.

    Raises `InvalidInput` where CUDA is asked for and not there, or there are fewer GPUs than ranks on this machine.
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
        # Matrix products of float32 in TensorFloat-32, as the published recipes ran them.
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


def share(module: nn.Module, ranks: Ranks) -> nn.Module:
    """The module with its gradients averaged over the ranks (DDP): what is returned is called as `module` was."""
    return module if ranks.ranks == 1 else nn.parallel.DistributedDataParallel(module, gradient_as_bucket_view=True)


@contextmanager
def gradients_kept(module: nn.Module, last: bool) -> Iterator[None]:
    """Within it a backward pass of any but the last micro-batch leaves gradients on this rank alone."""
    if isinstance(module, nn.parallel.DistributedDataParallel) and not last:
        with module.no_sync():
            yield
    else:
        yield


@dataclass(frozen=True)
class Reading:
    """Of the steps since the last one. `losses` are their means over all ranks, `norm` the last gradient's.

    The first loss is the cross-entropy; with a teacher a second is the divergence from it.
    """

    losses: list[float]
    norm: float
    seconds: float
    step_s: float


class Meter:
    """Measures the training steps alone."""

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._losses: list[Tensor] = []
        self._norm: Tensor | None = None
        self.restart(0)

    def restart(self, step: int) -> None:
        """From here on it is training again: what was done since the last reading counts nowhere."""
        self._since, self._step = time.monotonic(), step

    def add(self, loss: Tensor, norm: Tensor) -> None:
        """Of one step, on the device: its mean losses [kinds] and the gradient's norm."""
        self._losses.append(loss)
        self._norm = norm

    @property
    def pending(self) -> Tensor | None:
        """This rank's losses that are not reported yet, [n, kinds]; None if there are none."""
        return torch.stack(self._losses) if self._losses else None

    @property
    def seconds(self) -> float:
        """Since the last reading."""
        return time.monotonic() - self._since

    def resume(self, losses: Tensor) -> None:
        """With what was `pending` when a checkpoint was written."""
        self._losses = list(losses.to(self._ranks.device).unbind())

    def is_finite(self, *, norm: bool) -> bool:
        """Whether every loss since the last reading is a number on every rank, and with `norm` the gradient's too."""
        values = [*self._losses, *([self._norm.view(1)] if norm and self._norm is not None else [])]
        wrong = bool(values) and not bool(torch.cat([value.float() for value in values]).isfinite().all())
        return not self._ranks.any(wrong)

    def read(self, step: int) -> Reading:
        """The report after `step` steps; resets the meter. All ranks call it."""
        assert self._norm is not None
        means = [float(losses.mean()) for losses in torch.stack(self._losses).unbind(1)]
        losses, norm = self._ranks.totals(*means), float(self._norm)
        seconds, steps = self.seconds, step - self._step
        step_s = max(seconds / max(1, steps), 1e-9)
        self._losses = []
        self.restart(step)
        return Reading(losses, norm, seconds, step_s)
