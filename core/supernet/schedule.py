"""Which step of a search does what, on which of the data: all of it a function of the step's number."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from edgefront.core.data.batches.batch import Batch, Batches
from edgefront.core.errors import InvalidInput
from edgefront.core.supernet.settings import SearchSettings

Kind = Literal["weights", "architecture"]


class Parts:
    """The data in two parts that never mix: the first steps of an epoch for weights, the others for the architecture.

    Of contiguous text that is the first part of each row, and the rest of it. Every pass over a part has the batches
    of the first one; memory is cleared with each.
    """

    def __init__(self, batches: Batches, architecture_fraction: float) -> None:
        self._batches = batches
        epoch = batches.steps_per_epoch
        if epoch < 2:
            raise InvalidInput(
                f"one pass over this data is {epoch} step: a search needs one for the weights and one for the "
                "architecture at least",
                field="recipe.rows",
                allowed="more data, fewer rows or a shorter segment",
            )
        architecture = min(epoch - 1, max(1, round(epoch * architecture_fraction)))
        self.steps: dict[Kind, int] = {"weights": epoch - architecture, "architecture": architecture}

    def batch(self, kind: Kind, number: int) -> Batch:
        """The rows of the `number`-th step of this kind, from 0."""
        within = number % self.steps[kind]
        batch = self._batches(within if kind == "weights" else self.steps["weights"] + within)
        return batch if within else replace(batch, starts=True)


@dataclass(frozen=True)
class Moment:
    """What one step is."""

    kind: Kind
    number: int
    """How many steps of this kind went before it."""
    temperature: float
    tuning: bool
    """Whether the first phase, of weights alone, is over."""


class Schedule:
    """`steps` steps: first weights alone, then cycles of weights and architecture (PAR §2.2)."""

    def __init__(self, steps: int, settings: SearchSettings, epoch: int) -> None:
        """`epoch`: steps of one pass over all the data. Raises `InvalidInput` where no step is left for phase 2."""
        self.steps, self._settings = steps, settings
        self.weight_steps = steps // 5 if settings.weight_steps is None else settings.weight_steps
        self.tuning_steps = steps - self.weight_steps
        if self.tuning_steps < 2:
            raise InvalidInput(
                f"weight_steps of {self.weight_steps} leave {max(0, self.tuning_steps)} of {steps} steps for the "
                "architecture",
                field="supernet.weight_steps",
                value=self.weight_steps,
                allowed=f"at most {max(0, steps - 2)}, or more steps",
            )
        least = math.ceil(1 / min(settings.architecture_fraction, 1 - settings.architecture_fraction))
        length = settings.cycle_steps or max(least, min(epoch, self.tuning_steps // 10))
        self._cycle = min(length, self.tuning_steps)
        share = round(self._cycle * settings.architecture_fraction)
        self._architecture = min(self._cycle - 1, max(1, share))

    def at(self, step: int) -> Moment:
        """What holds at step `step`, counted from 0."""
        into = step - self.weight_steps
        settings = self._settings
        if into < 0:
            return Moment("weights", step, settings.temperature, False)
        progress = into / max(1, self.tuning_steps - 1)
        temperature = settings.temperature * (settings.final_temperature / settings.temperature) ** progress
        cycles, place = divmod(into, self._cycle)
        weights = self._cycle - self._architecture
        if place < weights:
            return Moment("weights", self.weight_steps + cycles * weights + place, temperature, True)
        return Moment("architecture", cycles * self._architecture + place - weights, temperature, True)

    def patience(self) -> int:
        """So many steps without a change of the likeliest blocks end the search."""
        return max(1, math.ceil(self.tuning_steps * self._settings.patience))
