"""How a text is cut into rows that a model reads side by side. Every prediction is in exactly one row, once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.data.batches.batch import IGNORED, Tokens

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Passage:
    """Rows of a text: row r predicts `tokens` from `first[r]` on, `sizes[r]` of them, each from those before it.

    Of these the first `skips[r]` are context alone and count nowhere. With a `begin` that token stands before each
    row's first prediction; without one it is the text's own. `documents[r]` is the sentence that the row is.
    """

    tokens: NDArray[Any]
    first: Integers
    sizes: Integers
    skips: Integers
    begin: int | None = None
    documents: Integers | None = None

    @property
    def rows(self) -> int:
        return len(self.first)

    @property
    def length(self) -> int:
        """Length of the longest row."""
        return int(self.sizes.max())

    @property
    def count(self) -> int:
        """Predictions that count."""
        return int((self.sizes - self.skips).sum())

    def cut(self, start: int, stop: int) -> tuple[Tokens, Tokens]:
        """Inputs and targets of the places `start` … `stop` - 1 of all rows, int64 [rows, stop - start] each.

        Targets are `IGNORED` where they do not count and after the end of a row, inputs any token there.
        """
        places = np.arange(start, stop)
        at = np.minimum(self.first[:, None] + places, len(self.tokens) - 1)
        counts = (places >= self.skips[:, None]) & (places < self.sizes[:, None])
        targets = np.where(counts, self.tokens[at].astype(np.int64), IGNORED)
        inputs = self.tokens[np.maximum(at - 1, 0)].astype(np.int64)
        if self.begin is not None and start == 0:
            inputs[:, 0] = self.begin
        return inputs, targets

    def some(self, rows: Integers) -> Passage:
        """These of the rows."""
        documents = None if self.documents is None else self.documents[rows]
        return Passage(self.tokens, self.first[rows], self.sizes[rows], self.skips[rows], self.begin, documents)


def streams(tokens: NDArray[Any], rows: int, max_tokens: int | None = None) -> Passage:
    """The text cut into `rows` of equal length, the last one being shorter; at most as many as there are predictions.

    A row's first input is the last target of the row before.
    """
    total = max(0, len(tokens) - 1)
    if max_tokens is not None:
        total = min(total, max_tokens)
    length = -(-total // max(1, min(rows, total)))
    first = np.arange(1, 1 + total, max(1, length), dtype=np.int64)
    sizes = np.minimum(length, 1 + total - first)
    return Passage(tokens, first, sizes, np.zeros_like(first))


def documents(
    tokens: NDArray[Any], starts: NDArray[Any], begin: int | None = None, max_tokens: int | None = None
) -> Passage:
    """A row a document (a sentence), those without a prediction left out.

    `max_tokens`: the documents from the first on that make no more predictions than these, but one at least.
    """
    edges = np.asarray(starts, np.int64)
    skipped = 0 if begin is not None else 1
    first, sizes = edges[:-1] + skipped, np.diff(edges) - skipped
    chosen = np.flatnonzero(sizes > 0)
    if max_tokens is not None and len(chosen):
        chosen = chosen[: max(1, int(np.searchsorted(np.cumsum(sizes[chosen]), max_tokens, "right")))]
    return Passage(tokens, first[chosen], sizes[chosen], np.zeros_like(chosen), begin, chosen)


def batched(passage: Passage, rows: int) -> Iterator[Passage]:
    """The rows, so many at a time, those of like length together."""
    order = np.argsort(-passage.sizes, kind="stable")
    for start in range(0, len(order), rows):
        yield passage.some(order[start : start + rows])


def windows(passage: Passage, segment: int, memory: int) -> Iterable[Passage]:
    """Every row cut into `segment` predictions at a time, each behind `memory` others that do not count.

    Two passages at most: the windows at a row's beginning, which may have less before them, and the others.
    """
    counts = -(-passage.sizes // segment)
    row = np.repeat(np.arange(passage.rows), counts)
    start = (np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)) * segment
    low = np.maximum(0, start - memory)
    high = np.minimum(start + segment, passage.sizes[row])
    for at_beginning in (True, False):
        chosen = np.flatnonzero((low == 0) == at_beginning)
        if len(chosen):
            yield Passage(
                passage.tokens,
                passage.first[row[chosen]] + low[chosen],
                (high - low)[chosen],
                (start - low)[chosen],
                passage.begin if at_beginning else None,
            )
