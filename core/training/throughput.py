"""Losses and speed between two reports. The device is waited for at reports only."""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from edgefront.core.cost.costs import CostOptions, costs
from edgefront.core.recipes.recipe import Precision, Recipe
from edgefront.core.spaces.architecture import Architecture
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
    mfu: float | None
    """Model FLOPs a second over what the devices can do (Chowdhery et al. 2022, appendix B)."""


class Meter:
    """Measures the training steps alone."""

    def __init__(
        self,
        architecture: Architecture,
        recipe: Recipe,
        memory: int,
        ranks: Ranks,
        teacher: Architecture | None = None,
    ) -> None:
        self._ranks = ranks
        self._losses: list[Tensor] = []
        self._norm: Tensor | None = None
        forward = costs(architecture, CostOptions(sequence_length=recipe.segment, memory_length=memory)).flops
        flops = 3 * forward  # the backward pass has two products for each of the forward one
        if teacher is not None:  # which has no backward pass
            flops += costs(teacher, CostOptions(sequence_length=recipe.segment)).flops
        self._flops = flops * recipe.rows
        peak = peak_flops(ranks.device, recipe.precision)
        self._peak = None if peak is None else peak * ranks.ranks
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
        losses = losses.view(len(losses), -1)  # earlier versions kept one a step, [n]
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
        mfu = None if self._peak is None else round(self._flops / step_s / self._peak, 4)
        return Reading(losses, norm, seconds, step_s, mfu)


# Dense FLOP/s of the data sheets: (16 bit, TensorFloat-32).
_GPUS = {
    "H200": (989e12, 495e12),
    "H100 PCIe": (756e12, 378e12),
    "H100": (989e12, 495e12),
    "A100": (312e12, 156e12),
    "L40S": (362e12, 183e12),
    "L40": (181e12, 90e12),
    "L4": (121e12, 60e12),
    "A10G": (70e12, 35e12),
    "RTX 4090": (165e12, 83e12),
    "RTX 3090": (71e12, 36e12),
}
_SIZE, _ROUNDS = 1024, 10


def peak_flops(device: torch.device, precision: Precision) -> float | None:
    """FLOP/s of one device in this precision: a GPU's by its data sheet, a CPU's by large matrix products now.

    None for a GPU that is not listed.
    """
    if device.type != "cuda":
        return _measured(device)
    name = torch.cuda.get_device_name(device)
    for known, (half, single) in _GPUS.items():
        if all(word in name for word in known.split()):
            return single if precision == "float32" else half
    return None


def _measured(device: torch.device) -> float:
    matrix = torch.ones(_SIZE, _SIZE, device=device)
    times = []
    for _ in range(_ROUNDS):
        begun = time.perf_counter()
        matrix @ matrix
        times.append(time.perf_counter() - begun)
    return 2 * _SIZE**3 / min(times)  # what else the machine does only ever slows one down
