"""Losses and speed between two reports. The device is waited for at reports only."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from edgefront.core.training.distributed import Ranks


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
