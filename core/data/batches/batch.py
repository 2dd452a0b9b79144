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
    where a row is padded, None without padding. `starts`: no row continues an earlier one, so memory is cleared.
    `source` [rows, source] and `source_mask` are the text to translate, `segments` BERT's segment ids.
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
    """Batches by number: a pure function of the step, so that a training resumes anywhere with the same data."""

    @property
    def steps_per_epoch(self) -> int:
        """Number of steps of one epoch, in which every token is used once."""
        ...

    def __call__(self, step: int) -> Batch:
        """Returns the batch of step `step`, counted from 0."""
        ...
