"""Segments of a text in an order that is reshuffled for each epoch: what models without memory are trained on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgefront.core.data.batches.batch import IGNORED, Batch
from edgefront.core.data.batches.order import key, shuffled
from edgefront.core.data.prepared.prepared import Split

_BLOCK = 4096
"""Places of the order that are computed at once: for one step alone they would take longer than its batch."""


class Segments:
    """The text is cut into segments of equal length, and each is a row once an epoch.

    What precedes a token is its input, the text being read in a circle, so that every token is a target exactly once an
    epoch; rows of the last segment that it does not fill have no target. The rows of all steps follow each other, and
    an epoch's last batch is filled up with the next one's first segments. The order is a function of (seed, epoch).

    Args:
        mine: the rows of this rank. Which row reads what does not depend on how many ranks there are.
    """

    def __init__(self, split: Split, rows: int, segment: int, seed: int, *, mine: range) -> None:
        self._tokens, self._rows, self._seed, self._mine = split.tokens, rows, seed, mine
        self._count = -(-len(split.tokens) // segment)
        self._places = np.arange(-1, segment)
        self._segment = segment
        self._block, self._order = -1, np.empty(0, np.int64)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self._count // self._rows)

    def __call__(self, step: int) -> Batch:
        first = step * self._rows
        numbers = [self._number(first + row) for row in self._mine]
        places = np.array(numbers)[:, None] * self._segment + self._places
        read = self._tokens.take(places, mode="wrap").astype(np.int64)
        targets = read[:, 1:]
        if places[:, -1].max() >= len(self._tokens):
            targets = np.where(places[:, 1:] < len(self._tokens), targets, IGNORED)
        return Batch(read[:, :-1], targets, starts=True)

    def _number(self, row: int) -> int:
        """Number of the segment that a row reads, counted over all steps."""
        block, place = divmod(row, _BLOCK)
        if block != self._block:
            self._block, self._order = block, self._numbers(np.arange(block * _BLOCK, (block + 1) * _BLOCK))
        return int(self._order[place])

    def _numbers(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        epochs, places = np.divmod(rows, self._count)
        numbers = np.empty_like(rows)
        for epoch in np.unique(epochs):
            inside = epochs == epoch
            numbers[inside] = shuffled(key("segments", self._seed, int(epoch)), self._count, places[inside])
        return numbers
