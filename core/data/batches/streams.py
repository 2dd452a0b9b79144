"""Contiguous text, a part for each row: what models with memory are trained on."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgefront.core.data.batches.batch import IGNORED, Batch, Tokens
from edgefront.core.data.batches.order import key, shuffled
from edgefront.core.data.prepared.prepared import Split

_BLOCK = 64
"""Sentences from one known place to the next; those between are counted when they are read."""
_CHUNK = 1 << 16
_KEPT = 1 << 12

Block = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


class Shuffled:
    """A `Text` of whole sentences, one after the other.

    With `Streams` that is Transformer-XL's loader for LM1B: rows are filled to the end, without padding, and a sentence
    that does not fit continues in the same row at the next step, where the memory contains its beginning. The order of
    an epoch is a function of (seed, epoch); a table of one place in 64 is all that is kept (4 MB for LM1B).
    """

    def __init__(self, split: Split, seed: int) -> None:
        self._tokens, self._starts, self._seed = split.tokens, split.starts, seed
        self._count = len(split.starts) - 1
        self.size = len(split.tokens)
        self._epoch, self._table = -1, np.empty(0, np.int64)
        self._read: dict[int, Block] = {}

    def read(self, epoch: int, start: int, stop: int) -> Tokens:
        table = self._places(epoch)
        pieces: list[Tokens] = []
        block = int(np.searchsorted(table, start, "right")) - 1
        while start < stop:
            first, last, place = self._block(epoch, block)
            for number in range(int(np.searchsorted(place, start, "right")) - 1, len(first)):
                if start >= stop:
                    break
                begin = int(first[number]) + start - int(place[number])
                taken = min(int(last[number]) - begin, stop - start)
                pieces.append(self._tokens[begin : begin + taken].astype(np.int64))
                start += taken
            block += 1
        return np.concatenate(pieces) if pieces else np.empty(0, np.int64)

    def _block(self, epoch: int, block: int) -> Block:
        """The places of the sentences of a block: where each begins and ends in the split, and begins in the
        shuffled text.
        """
        if block in self._read:  # a row reads its block for many steps
            return self._read[block]
        if len(self._read) >= _KEPT:
            self._read.clear()
        numbers = np.arange(block * _BLOCK, min((block + 1) * _BLOCK, self._count))
        chosen = shuffled(key("sentences", self._seed, epoch), self._count, numbers)
        first, last = np.asarray(self._starts[chosen]), np.asarray(self._starts[chosen + 1])
        place = self._table[block] + np.concatenate(([0], np.cumsum(last - first)[:-1]))
        self._read[block] = first, last, place
        return first, last, place

    def _places(self, epoch: int) -> NDArray[np.int64]:
        """Where every 64th sentence of the shuffled text begins, and its end: int64 [blocks + 1]."""
        if epoch != self._epoch:
            order = key("sentences", self._seed, epoch)
            sums = []
            for at in range(0, self._count, _CHUNK):
                chosen = shuffled(order, self._count, np.arange(at, min(at + _CHUNK, self._count)))
                lengths = np.asarray(self._starts[chosen + 1]) - np.asarray(self._starts[chosen])
                sums.append(np.add.reduceat(lengths, np.arange(0, len(lengths), _BLOCK)))
            self._table = np.concatenate(([0], np.cumsum(np.concatenate(sums))))
            self._epoch = epoch
            self._read.clear()
        return self._table


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
            part = (row + epoch) % self._rows
            start, stop = (number * self._text.size // self._rows for number in (part, part + 1))
            read = self._around(epoch, start + offset - 1, width + 1)
            inputs[place], targets[place] = read[:-1], read[1:]
            targets[place, stop - start - offset :] = IGNORED  # a part that is shorter by one
        return Batch(inputs, targets, starts=within == 0 and (epoch == 0 or self._resets))

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
