"""Translations: sentences of similar length together, with the previous target tokens as the decoder's input."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgefront.core.data.batches.batch import IGNORED, Batch, Mask, Tokens
from edgefront.core.data.batches.order import key, shuffled
from edgefront.core.data.prepared.prepared import Split
from edgefront.core.data.tokenizers.tokenizers import BOS, Tokenizer
from edgefront.core.errors import InvalidInput

_WINDOW = 64
"""Batches among whose sentences those of similar length are put together."""


class Pairs:
    """`rows` pairs a step, in another order each epoch.

    The epoch's shuffled pairs are sorted by length within windows of 64 batches, and the batches are shuffled again.
    `inputs` are `<bos>` (`<eos>` where there is none) and the translation, `targets` the translation and `<eos>`,
    `source` the sentence and its `<eos>`; all are padded to the longest of the batch; see `mask` and `source_mask`.
    Rows of the last batch that no pair is left for have no target. Pairs with a side of more than `longest` tokens are
    left out; `left_out` says how many.

    Raises:
        InvalidInput: the data is no parallel text; no pair is short enough.
    """

    def __init__(self, split: Split, tokenizer: Tokenizer, rows: int, longest: int, seed: int, *, mine: range) -> None:
        if split.source is None or tokenizer.eos is None:
            raise InvalidInput(
                "the data is not parallel text, which translation needs",
                field="task",
                value="pairs",
                allowed="data prepared from two files whose lines correspond",
            )
        self._source, self._target, self._rows, self._seed, self._mine = split.source, split, rows, seed, mine
        self._eos = tokenizer.eos
        self._bos = tokenizer.special.get(BOS, tokenizer.eos)
        lengths = np.maximum(np.diff(split.starts), np.diff(split.source.starts))
        self._kept = np.flatnonzero(lengths <= longest)
        self.left_out = len(lengths) - len(self._kept)
        self.count = len(self._kept)
        if not self.count:
            shortest = int(lengths.min())
            raise InvalidInput(
                f"no pair has at most {longest} tokens on both sides",
                field="segment",
                value=longest,
                allowed=f"at least {shortest}",
            )
        self._epoch, self._order = -1, self._kept

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.count // self._rows)

    def __call__(self, step: int) -> Batch:
        epoch, within = divmod(step, self.steps_per_epoch)
        order = self._ordered(epoch)
        chosen = shuffled(key("batches", self._seed, epoch), self.steps_per_epoch, np.array([within]))
        first = int(chosen[0]) * self._rows
        pairs = order[first : first + self._rows]
        mine = slice(self._mine.start, self._mine.stop)
        targets, mask = _padded(self._target, pairs, self._rows, IGNORED, mine)
        inputs = np.full_like(targets, self._eos)
        inputs[:, 0] = self._bos
        inputs[:, 1:] = np.where(targets[:, :-1] == IGNORED, self._eos, targets[:, :-1])
        end = int(self._source.tokens[-1])  # the <eos> of the source's own vocabulary
        source, source_mask = _padded(self._source, pairs, self._rows, end, mine)
        return Batch(inputs, targets, starts=True, mask=mask, source=source, source_mask=source_mask)

    def _ordered(self, epoch: int) -> NDArray[np.int64]:
        """The epoch's pairs, those of a batch one after the other."""
        if epoch != self._epoch:
            places = np.arange(self.count)
            pairs = self._kept[shuffled(key("pairs", self._seed, epoch), self.count, places)]
            window = places // (self._rows * _WINDOW)
            self._order = pairs[np.lexsort((_lengths(self._source, pairs), _lengths(self._target, pairs), window))]
            self._epoch = epoch
        return self._order


def _lengths(split: Split, chosen: NDArray[np.int64]) -> NDArray[np.int64]:
    lengths: NDArray[np.int64] = np.asarray(split.starts[chosen + 1]) - np.asarray(split.starts[chosen])
    return lengths


def _padded(split: Split, pairs: NDArray[np.int64], rows: int, fill: int, mine: slice) -> tuple[Tokens, Mask]:
    """Some rows of a batch, as wide as its longest sentence; a row without a pair shows one token of padding."""
    lengths = np.zeros(rows, np.int64)
    lengths[: len(pairs)] = _lengths(split, pairs)
    places = np.arange(int(lengths.max()))
    starts = np.zeros(rows, np.int64)
    starts[: len(pairs)] = split.starts[pairs]
    there = places < lengths[mine, None]
    index = np.where(there, starts[mine, None] + places, 0)
    tokens = np.where(there, split.tokens[index].astype(np.int64), fill)
    # Attention over no key at all has no value.
    return tokens, places < np.maximum(lengths[mine, None], 1)
