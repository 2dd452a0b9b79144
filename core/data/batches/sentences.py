"""Sentences (or documents) in an order that is reshuffled for each epoch, as LM1B is trained on."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgefront.core.data.batches.batch import Tokens
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
