"""What a training is fed with, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

Tokens = np.ndarray[Any, np.dtype[np.int64]]
Mask = np.ndarray[Any, np.dtype[np.bool_]]

IGNORED = -100
"""A target that counts in no loss."""


@dataclass(frozen=True)
class Batch:
    """The rows of one optimiser step; all arrays have the same first axis.

    `inputs` and `targets` are [rows, length]; `targets` are `IGNORED` where nothing is to be predicted. `mask` is False
    where a row is padded, None where none is. `starts`: no row continues an earlier one, so memory is cleared.
    `source` [rows, source] and `source_mask` are the text to translate, `segments` BERT's kinds of segments.
    """

    inputs: Tokens
    targets: Tokens
    starts: bool = False
    mask: Mask | None = None
    source: Tokens | None = None
    source_mask: Mask | None = None
    segments: Tokens | None = None

    def rows(self, start: int, stop: int) -> Batch:
        """Some of the rows."""

        def cut(array: Any) -> Any:
            return None if array is None else array[start:stop]

        return Batch(
            self.inputs[start:stop],
            self.targets[start:stop],
            self.starts,
            cut(self.mask),
            cut(self.source),
            cut(self.source_mask),
            cut(self.segments),
        )


class Batches(Protocol):
    """Batches by number: a pure function of the step, so that a training resumes anywhere with the same data."""

    @property
    def steps_per_epoch(self) -> int:
        """Steps after which every token was seen once."""
        ...

    def __call__(self, step: int) -> Batch:
        """The rows of step `step`, counted from 0."""
        ...
