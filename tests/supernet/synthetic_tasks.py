"""Endless text made by rule: of a target that stands some tokens back, or that the current token alone decides."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgefront.core.data.batches.batch import IGNORED, Batch


@dataclass(frozen=True)
class Synthetic:
    """Random tokens; the target is the token `back` places before (0: the current one, turned by one)."""

    vocabulary: int
    rows: int
    length: int
    back: int
    steps_per_epoch: int = 40

    def __call__(self, step: int) -> Batch:
        inputs = np.random.default_rng([7, step]).integers(0, self.vocabulary, (self.rows, self.length))
        targets = np.full_like(inputs, IGNORED)
        targets[:, self.back :] = (inputs[:, : self.length - self.back] + 1) % self.vocabulary
        return Batch(inputs, targets)
