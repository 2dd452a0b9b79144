"""The learning rate of each step."""

from __future__ import annotations

import math

from edgefront.core.errors import InvalidInput
from edgefront.core.recipes.recipe import Schedule


def learning_rate(schedule: Schedule, lr: float, step: int, steps: int) -> float:
    """The rate of step `step`, counted from 0, of a training of `steps` steps whose highest rate is `lr`.

    Warm-up gives lr·(step + 1)/warmup, so that its last step has `lr`. A decay to `min_lr` would be there at step
    `steps`, the first that there is not. `cosine_whole` is the closed form of SRU++'s recursion

        lr(t) = lr(t - 1)·(1 + cos πt/T)/(1 + cos π(t - 1)/T),

    which starts from the last step of the warm-up. `power` counts steps from 1, as NVIDIA's BERT does: it begins with
    the last step of the warm-up, and the last step of all has `min_lr`. Raises `InvalidInput` for a step out of range.
    """
    if not 0 <= step < steps:
        raise InvalidInput(f"step {step} is not one of {steps}", field="step", value=step, allowed=f"0 to {steps - 1}")
    if step < schedule.warmup - (schedule.decay == "power"):
        return lr * (step + 1) / schedule.warmup
    return schedule.min_lr + (lr - schedule.min_lr) * _share(schedule, step, steps)


def _share(schedule: Schedule, step: int, steps: int) -> float:
    """What is left of `lr`, 1 to 0, after the warm-up."""
    warmup = schedule.warmup
    if schedule.decay == "cosine":
        return (1 + math.cos(math.pi * (step - warmup) / (steps - warmup))) / 2
    if schedule.decay == "cosine_whole":
        begun = max(warmup - 1, 0)
        return (1 + math.cos(math.pi * step / steps)) / (1 + math.cos(math.pi * begun / steps))
    if schedule.decay == "power":
        return float((1 - (step + 1) / steps) ** schedule.power)
    if schedule.decay == "inverse_sqrt":
        return math.sqrt(max(warmup, 1) / (step + 1))
    return 1.0
