"""The input of one training step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Tokens = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

IGNORED = -100
"""Target id of a position that the loss ignores, like `ignore_index` of PyTorch's cross-entropy."""


@dataclass(frozen=True)
class Batch:
    """Rows of one optimiser step, as arrays with the same first axis.

    `inputs` and `targets` are [rows, length]; `targets` are `IGNORED` where no token is predicted. `mask` is False
    where a row is padded; `mask` is None without padding. `starts` is True if no row continues the text of an earlier
    step; the model's memory is then cleared. `source` [rows, source length] is the text to translate, `source_mask` its
    mask, and `segments` are BERT's segment ids.
    """

    inputs: Tokens
    targets: Tokens
    starts: bool = False
    mask: Mask | None = None
    source: Tokens | None = None
    source_mask: Mask | None = None
    segments: Tokens | None = None

    def rows(self, start: int, stop: int) -> Batch:
        """Returns the rows `start` to `stop` (exclusive) as a batch."""
        arrays: list[Any] = [self.mask, self.source, self.source_mask, self.segments]
        extras = (None if array is None else array[start:stop] for array in arrays)
        return Batch(self.inputs[start:stop], self.targets[start:stop], self.starts, *extras)


class Batches(Protocol):
    """Batches as a pure function of the step number, so a training can resume at any step with the same data."""

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps per epoch. An epoch uses every token once."""
        ...

    def __call__(self, step: int) -> Batch:
        """Returns the batch of step `step`, counted from 0."""
        ...
