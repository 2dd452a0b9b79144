"""Contiguous text, a part for each row: what models with memory are trained on."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from edgefront.core.data.batches.batch import IGNORED, Batch, Tokens
from edgefront.core.data.prepared.prepared import Split


class Text(Protocol):
    """The tokens of an epoch in the order in which they are read."""

    size: int

    def read(self, epoch: int, start: int, stop: int) -> Tokens:
        """int64 [stop - start], for 0 ≤ start ≤ stop ≤ size."""
        ...


class InOrder:
    """The text as it stands, the same in each epoch."""

    def __init__(self, split: Split) -> None:
        self._tokens = split.tokens
        self.size = len(split.tokens)

    def read(self, epoch: int, start: int, stop: int) -> Tokens:
        return self._tokens[start:stop].astype(np.int64)


class Streams:
    """The text is cut into `rows` contiguous parts whose lengths differ by one at most, and a row reads one of them.

    A step reads the next `segment` tokens of each; the last of an epoch is shorter, so that every token is a target
    exactly once an epoch. What precedes a token is its input, the text being read in a circle. After an epoch each row
    continues with the next part, so that a model's memory always contains the preceding text, through all epochs.

    Args:
        mine: the rows of this rank. Which row reads what does not depend on how many ranks there are.
        resets: clear the memory with each epoch, and not only at step 0.
    """

    def __init__(self, text: Text, rows: int, segment: int, *, mine: range, resets: bool) -> None:
        self._text, self._rows, self._segment, self._mine, self._resets = text, rows, segment, mine, resets
        self._longest = -(-text.size // rows)
        self._steps = -(-self._longest // segment)

    @property
    def steps_per_epoch(self) -> int:
        return self._steps

    def __call__(self, step: int) -> Batch:
        epoch, within = divmod(step, self._steps)
        offset = within * self._segment
        width = min(self._segment, self._longest - offset)
        inputs = np.empty((len(self._mine), width), np.int64)
        targets = np.empty_like(inputs)
        for place, row in enumerate(self._mine):
            start, stop = self._part((row + epoch) % self._rows)
            read = self._around(epoch, start + offset - 1, width + 1)
            inputs[place], targets[place] = read[:-1], read[1:]
            targets[place, stop - start - offset :] = IGNORED  # a part that is shorter by one
        return Batch(inputs, targets, starts=within == 0 and (epoch == 0 or self._resets))

    def _part(self, number: int) -> tuple[int, int]:
        size = self._text.size
        return number * size // self._rows, (number + 1) * size // self._rows

    def _around(self, epoch: int, start: int, count: int) -> Tokens:
        """`count` tokens from `start`, which may lie before the beginning, as their end may lie beyond the end."""
        size, read = self._text.size, self._text.read
        if start >= 0 and start + count <= size:
            return read(epoch, start, start + count)
        pieces = []
        while count:
            start %= size
            taken = min(count, size - start)
            pieces.append(read(epoch, start, start + taken))
            start, count = start + taken, count - taken
        return np.concatenate(pieces)
