"""Batches of segments in a shuffled order, of masked text and of pairs of sentences."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgefront.core.common.errors import InvalidInput
from edgefront.core.data.batches.batch import IGNORED, Batch, Mask, Tokens
from edgefront.core.data.batches.order import bits, key, shuffled
from edgefront.core.data.prepared.prepared import Split
from edgefront.core.data.tokenizers.tokenizers import BOS, CLS, MASK, SEP, Tokenizer

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
            rows = np.arange(block * _BLOCK, (block + 1) * _BLOCK)
            epochs, places = np.divmod(rows, self._count)
            self._block, self._order = block, np.empty_like(rows)
            for epoch in np.unique(epochs):
                inside = epochs == epoch
                order = key("segments", self._seed, int(epoch))
                self._order[inside] = shuffled(order, self._count, places[inside])
        return int(self._order[place])


_LAST = np.uint64((1 << 64) - 1)


class Masked:
    """Rows of `<cls>`, up to `segment` - 2 tokens of contiguous text, `<sep>`; in another order each epoch.

    The text continues across the ends of documents, as RoBERTa's FULL-SENTENCES does, and there is one kind of segment.
    Of a row's tokens that are not special, `fraction` are targets, redrawn each epoch: 80 % of these become
    `<mask>`, 10 % another token that is not special, 10 % stay. Rows of the last step that no text is left for have no
    target.

    Raises:
        InvalidInput: the vocabulary has no `<mask>`, `<cls>` or `<sep>`; `segment` is below 3.
    """

    def __init__(
        self,
        split: Split,
        tokenizer: Tokenizer,
        rows: int,
        segment: int,
        fraction: float,
        seed: int,
        *,
        mine: range,
    ) -> None:
        special = tokenizer.special
        missing = [name for name in (MASK, CLS, SEP) if name not in special]
        if missing:
            raise InvalidInput(
                f"the data's vocabulary has no {', '.join(missing)}: prepare them at level bpe",
                field="task",
                value="masked",
                allowed="data with <mask>, <cls> and <sep>",
            )
        if segment < 3:
            raise InvalidInput(
                f"a segment of {segment} has no room for text", field="segment", value=segment, allowed="at least 3"
            )
        self._tokens, self._rows, self._mine = split.tokens, rows, np.array(mine)
        self._fraction, self._seed, self._body = fraction, seed, segment - 2
        self._mask, self._cls, self._sep = (special[name] for name in (MASK, CLS, SEP))
        ordinary = np.ones(tokenizer.vocab_size, np.bool_)
        ordinary[list(special.values())] = False
        self._is_ordinary, self._ordinary = ordinary, np.flatnonzero(ordinary)
        self._chunks = -(-len(split.tokens) // self._body)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self._chunks // self._rows)

    def __call__(self, step: int) -> Batch:
        epoch, within = divmod(step, self.steps_per_epoch)
        numbers = within * self._rows + self._mine
        used = numbers < self._chunks
        chunk = shuffled(key("masked", self._seed, epoch), self._chunks, np.where(used, numbers, 0))
        place = chunk[:, None] * self._body + np.arange(self._body)
        there = used[:, None] & (place < len(self._tokens))
        place[~there] = 0
        text = self._tokens[place].astype(np.int64)
        targets, shown = self._hide(epoch, place, text, there)
        rows, width = len(self._mine), self._body + 2
        lengths = there.sum(1)
        inputs = np.full((rows, width), self._sep, np.int64)
        inputs[:, 0] = self._cls
        inputs[:, 1:-1][there] = shown[there]
        labels = np.full((rows, width), IGNORED, np.int64)
        labels[:, 1:-1] = targets
        return Batch(inputs, labels, starts=True, mask=np.arange(width) < lengths[:, None] + 2)

    def _hide(
        self, epoch: int, place: np.ndarray, text: np.ndarray, there: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The targets, `IGNORED` where none is, and the text that is shown: [rows, segment - 2] each."""
        eligible = there & self._is_ordinary[text]
        counts = eligible.sum(1)
        quotas = np.where(counts > 0, np.maximum(1, np.rint(counts * self._fraction)), 0)
        drawn = np.where(eligible, bits(key("drawn", self._seed, epoch), place), _LAST)
        rank = np.argsort(np.argsort(drawn, 1, kind="stable"), 1, kind="stable")
        chosen = eligible & (rank < quotas[:, None])
        becomes = bits(key("becomes", self._seed, epoch), place) % np.uint64(10)
        other = self._ordinary[bits(key("other", self._seed, epoch), place) % np.uint64(len(self._ordinary))]
        shown = np.where(chosen & (becomes < 8), self._mask, np.where(chosen & (becomes == 8), other, text))
        return np.where(chosen, text, IGNORED), shown


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
