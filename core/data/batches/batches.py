"""Batches of every task: shuffled segments, contiguous streams, masked text and pairs of sentences."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgefront.core.common.errors import InvalidInput
from edgefront.core.data.batches.batch import IGNORED, Batch, Mask, Tokens
from edgefront.core.data.batches.order import random_bits, random_key, shuffled
from edgefront.core.data.prepared.prepared import Split
from edgefront.core.data.tokenizers.tokenizers import BOS, CLS, MASK, SEP, Tokenizer

_ORDER_BLOCK = 4096
"""Number of entries of the shuffled order that are computed together, because one step at a time would be slow."""


class Segments:
    """Batches of text segments of equal length, in an order that is reshuffled each epoch.

    Each token is predicted from the token before it; the text wraps around, so every token is a target exactly once per
    epoch. Positions after the end of the text in the last segment have no target. The last batch of an epoch is filled
    up with the first segments of the next epoch. The order is a function of (seed, epoch).

    Args:
        rank_rows: rows of this rank. The content of a row does not depend on the number of ranks.
    """

    def __init__(self, split: Split, rows: int, segment: int, seed: int, *, rank_rows: range) -> None:
        self._tokens, self._rows, self._seed, self._rank_rows = split.tokens, rows, seed, rank_rows
        self._count = -(-len(split.tokens) // segment)
        self._offsets = np.arange(-1, segment)
        self._segment = segment
        self._block, self._order = -1, np.empty(0, np.int64)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self._count // self._rows)

    def __call__(self, step: int) -> Batch:
        first = step * self._rows
        segments = [self._segment_of(first + row) for row in self._rank_rows]
        positions = np.array(segments)[:, None] * self._segment + self._offsets
        tokens = self._tokens.take(positions, mode="wrap").astype(np.int64)
        targets = tokens[:, 1:]
        if positions[:, -1].max() >= len(self._tokens):
            targets = np.where(positions[:, 1:] < len(self._tokens), targets, IGNORED)
        return Batch(tokens[:, :-1], targets, starts=True)

    def _segment_of(self, row: int) -> int:
        """Index of the segment in this row; rows are counted over all steps."""
        block, index = divmod(row, _ORDER_BLOCK)
        if block != self._block:
            rows = np.arange(block * _ORDER_BLOCK, (block + 1) * _ORDER_BLOCK)
            epochs, indices = np.divmod(rows, self._count)
            keys = [random_key("segments", self._seed, epoch) for epoch in range(epochs[0], epochs[-1] + 1)]
            self._order = shuffled(np.array(keys, np.uint64)[epochs - epochs[0]], self._count, indices)
            self._block = block
        return int(self._order[index])


_MAX_BITS = np.uint64((1 << 64) - 1)


class Masked:
    """Batches of masked text: rows of `<cls>`, at most `segment` - 2 contiguous tokens, `<sep>`; shuffled each epoch.

    The text continues across the ends of documents, as in RoBERTa's FULL-SENTENCES, and rows have no segment ids.
    A `fraction` of a row's ordinary tokens are targets, redrawn each epoch: 80 % of the targets become `<mask>`, 10 %
    become another ordinary token, 10 % stay. In the last step of an epoch, rows without text have no target.

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
        rank_rows: range,
    ) -> None:
        special = tokenizer.special
        missing = [name for name in (MASK, CLS, SEP) if name not in special]
        if missing:
            raise InvalidInput(
                f"the data's vocabulary has no {', '.join(missing)}. Prepare the data at level bpe",
                field="task",
                value="masked",
                allowed="data with <mask>, <cls> and <sep>",
            )
        if segment < 3:
            raise InvalidInput(
                f"a segment of {segment} tokens has no room for text",
                field="segment",
                value=segment,
                allowed="at least 3",
            )
        self._tokens, self._rows, self._rank_rows = split.tokens, rows, np.array(rank_rows)
        self._fraction, self._seed, self._body = fraction, seed, segment - 2
        self._mask, self._cls, self._sep = (special[name] for name in (MASK, CLS, SEP))
        self._is_ordinary = np.ones(tokenizer.vocab_size, np.bool_)
        self._is_ordinary[list(special.values())] = False
        self._ordinary = np.flatnonzero(self._is_ordinary)
        self._chunks = -(-len(split.tokens) // self._body)

    @property
    def steps_per_epoch(self) -> int:
        return -(-self._chunks // self._rows)

    def __call__(self, step: int) -> Batch:
        epoch, within = divmod(step, self.steps_per_epoch)
        indices = within * self._rows + self._rank_rows
        has_chunk = indices < self._chunks
        chunk = shuffled(random_key("masked", self._seed, epoch), self._chunks, np.where(has_chunk, indices, 0))
        positions = chunk[:, None] * self._body + np.arange(self._body)
        is_text = has_chunk[:, None] & (positions < len(self._tokens))
        positions[~is_text] = 0
        text = self._tokens[positions].astype(np.int64)
        targets, corrupted = self._corrupt(epoch, positions, text, is_text)
        rows, width = len(self._rank_rows), self._body + 2
        inputs = np.full((rows, width), self._sep, np.int64)
        inputs[:, 0] = self._cls
        inputs[:, 1:-1][is_text] = corrupted[is_text]
        labels = np.full((rows, width), IGNORED, np.int64)
        labels[:, 1:-1] = targets
        return Batch(inputs, labels, starts=True, mask=np.arange(width) < is_text.sum(1)[:, None] + 2)

    def _corrupt(
        self, epoch: int, positions: np.ndarray, text: np.ndarray, is_text: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns the targets (`IGNORED` elsewhere) and the corrupted text, each [rows, segment - 2]."""
        eligible = is_text & self._is_ordinary[text]
        counts = eligible.sum(1)
        quotas = np.where(counts > 0, np.maximum(1, np.rint(counts * self._fraction)), 0)
        drawn = np.where(eligible, random_bits(random_key("drawn", self._seed, epoch), positions), _MAX_BITS)
        rank = np.argsort(np.argsort(drawn, 1, kind="stable"), 1, kind="stable")
        is_target = eligible & (rank < quotas[:, None])
        becomes = random_bits(random_key("becomes", self._seed, epoch), positions) % np.uint64(10)
        replacement = random_bits(random_key("other", self._seed, epoch), positions) % np.uint64(len(self._ordinary))
        corrupted = np.where(is_target & (becomes == 8), self._ordinary[replacement], text)
        return np.where(is_target, text, IGNORED), np.where(is_target & (becomes < 8), self._mask, corrupted)


_WINDOW = 64
"""Number of batches in a window; `Pairs` sorts sentences by length within each window."""


class Pairs:
    """Batches of `rows` sentence pairs for translation, shuffled each epoch.

    The epoch's shuffled pairs are sorted by length within windows of 64 batches, and the batches are shuffled again.
    `inputs` are `<bos>` (without `<bos>`: `<eos>`) and the translation, `targets` the translation and `<eos>`, `source`
    the sentence and `<eos>`. Each is padded to the longest row of the batch, with `mask` and `source_mask`. In the last
    batch, rows without a pair have no target. Pairs with more than `max_length` tokens on either side are left out;
    `left_out` is the number of these pairs.

    Raises:
        InvalidInput: the data is not parallel text; every pair is too long.
    """

    def __init__(
        self, split: Split, tokenizer: Tokenizer, rows: int, max_length: int, seed: int, *, rank_rows: range
    ) -> None:
        if split.source is None or tokenizer.eos is None:
            raise InvalidInput(
                "the data is not parallel text, which translation needs",
                field="task",
                value="pairs",
                allowed="data prepared from two files whose lines correspond",
            )
        self._source, self._target, self._rows, self._seed, self._rank_rows = split.source, split, rows, seed, rank_rows
        self._eos = tokenizer.eos
        self._bos = tokenizer.special.get(BOS, tokenizer.eos)
        lengths = np.maximum(np.diff(split.starts), np.diff(split.source.starts))
        self._short = np.flatnonzero(lengths <= max_length)
        self.left_out = len(lengths) - len(self._short)
        self.count = len(self._short)
        if not self.count:
            shortest = int(lengths.min())
            raise InvalidInput(
                f"no pair has at most {max_length} tokens on both sides",
                field="segment",
                value=max_length,
                allowed=f"at least {shortest}",
            )
        self._epoch, self._order = -1, self._short

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.count // self._rows)

    def __call__(self, step: int) -> Batch:
        epoch, within = divmod(step, self.steps_per_epoch)
        order = self._ordered(epoch)
        batch = shuffled(random_key("batches", self._seed, epoch), self.steps_per_epoch, np.array([within]))
        first = int(batch[0]) * self._rows
        pairs = order[first : first + self._rows]
        rank_rows = slice(self._rank_rows.start, self._rank_rows.stop)
        targets, mask = _padded(self._target, pairs, self._rows, IGNORED, rank_rows)
        inputs = np.full_like(targets, self._eos)
        inputs[:, 0] = self._bos
        inputs[:, 1:] = np.where(targets[:, :-1] == IGNORED, self._eos, targets[:, :-1])
        end = int(self._source.tokens[-1])  # the <eos> of the source's own vocabulary
        source, source_mask = _padded(self._source, pairs, self._rows, end, rank_rows)
        return Batch(inputs, targets, starts=True, mask=mask, source=source, source_mask=source_mask)

    def _ordered(self, epoch: int) -> NDArray[np.int64]:
        """Returns the indices of the epoch's pairs in the order of training."""
        if epoch != self._epoch:
            indices = np.arange(self.count)
            pairs = self._short[shuffled(random_key("pairs", self._seed, epoch), self.count, indices)]
            window = indices // (self._rows * _WINDOW)
            self._order = pairs[np.lexsort((_lengths(self._source, pairs), _lengths(self._target, pairs), window))]
            self._epoch = epoch
        return self._order


def _lengths(split: Split, units: NDArray[np.int64]) -> NDArray[np.int64]:
    lengths: NDArray[np.int64] = np.asarray(split.starts[units + 1]) - np.asarray(split.starts[units])
    return lengths


def _padded(split: Split, pairs: NDArray[np.int64], rows: int, fill: int, rank_rows: slice) -> tuple[Tokens, Mask]:
    """Returns this rank's rows, padded to the batch's longest sentence. A row without a pair is one padding token."""
    lengths = np.zeros(rows, np.int64)
    lengths[: len(pairs)] = _lengths(split, pairs)
    positions = np.arange(int(lengths.max()))
    starts = np.zeros(rows, np.int64)
    starts[: len(pairs)] = split.starts[pairs]
    is_text = positions < lengths[rank_rows, None]
    index = np.where(is_text, starts[rank_rows, None] + positions, 0)
    tokens = np.where(is_text, split.tokens[index].astype(np.int64), fill)
    # The mask keeps at least one key per row, because attention over no key is undefined.
    return tokens, positions < np.maximum(lengths[rank_rows, None], 1)


_SENTENCE_BLOCK = 64
"""Number of sentences between two stored offsets. The other offsets are computed when their sentences are read."""
_CHUNK = 1 << 16
_MAX_CACHED_BLOCKS = 1 << 12

Block = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


class Shuffled:
    """Text of all sentences of a split, in shuffled order.

    With `Streams`, this class does the same as Transformer-XL's loader for LM1B: rows are filled to the end, without
    padding, and a sentence that does not fit continues in the same row at the next step, where the memory contains the
    sentence's beginning. The order of an epoch is a function of (seed, epoch); only every 64th offset is stored (4 MB
    for LM1B).
    """

    def __init__(self, split: Split, seed: int) -> None:
        self._split, self._tokens, self._starts, self._seed = split, split.tokens, split.starts, seed
        self._count = len(split.starts) - 1
        self.size = len(split.tokens)
        self._epoch, self._offsets = -1, np.empty(0, np.int64)
        self._cache: dict[int, Block] = {}

    def read(self, epoch: int, start: int, stop: int) -> Tokens:
        self._begin_epoch(epoch)
        pieces: list[Tokens] = []
        block = int(np.searchsorted(self._offsets, start, "right")) - 1
        while start < stop:
            first, last, offset = self._block(epoch, block)
            for index in range(int(np.searchsorted(offset, start, "right")) - 1, len(first)):
                if start >= stop:
                    break
                begin = int(first[index]) + start - int(offset[index])
                taken = min(int(last[index]) - begin, stop - start)
                pieces.append(self._tokens[begin : begin + taken].astype(np.int64))
                start += taken
            block += 1
        return np.concatenate(pieces) if pieces else np.empty(0, np.int64)

    def _block(self, epoch: int, block: int) -> Block:
        """Returns, for each sentence of a block: start in the split, end in the split, start in the shuffled text."""
        if block in self._cache:  # a row reads its block for many steps
            return self._cache[block]
        if len(self._cache) >= _MAX_CACHED_BLOCKS:
            self._cache.clear()
        indices = np.arange(block * _SENTENCE_BLOCK, min((block + 1) * _SENTENCE_BLOCK, self._count))
        sentences = shuffled(random_key("sentences", self._seed, epoch), self._count, indices)
        first, last = np.asarray(self._starts[sentences]), np.asarray(self._starts[sentences + 1])
        offset = self._offsets[block] + np.concatenate(([0], np.cumsum(last - first)[:-1]))
        self._cache[block] = first, last, offset
        return first, last, offset

    def _begin_epoch(self, epoch: int) -> None:
        """Computes the offsets, in the shuffled text, of every 64th sentence and of the end: int64 [blocks + 1]."""
        if epoch != self._epoch:
            key = random_key("sentences", self._seed, epoch)
            sums = []
            for start in range(0, self._count, _CHUNK):
                sentences = shuffled(key, self._count, np.arange(start, min(start + _CHUNK, self._count)))
                lengths = _lengths(self._split, sentences)
                sums.append(np.add.reduceat(lengths, np.arange(0, len(lengths), _SENTENCE_BLOCK)))
            self._offsets = np.concatenate(([0], np.cumsum(np.concatenate(sums))))
            self._epoch = epoch
            self._cache.clear()


class Text(Protocol):
    """Tokens of an epoch in reading order."""

    size: int

    def read(self, epoch: int, start: int, stop: int) -> Tokens:
        """Returns the tokens from `start` to `stop` (exclusive): int64 [stop - start], 0 ≤ start ≤ stop ≤ size."""
        ...


class InOrder:
    """Text of a split in its original order, the same in each epoch."""

    def __init__(self, split: Split) -> None:
        self._tokens = split.tokens
        self.size = len(split.tokens)

    def read(self, epoch: int, start: int, stop: int) -> Tokens:
        return self._tokens[start:stop].astype(np.int64)


class Streams:
    """Batches for models with memory, from `rows` contiguous parts of the text with equal lengths (± 1 token).

    A step reads the next `segment` tokens of each part; the last step of an epoch is shorter, so every token is a
    target exactly once per epoch. Each token is predicted from the token before it; the text wraps around. After an
    epoch each row continues with the next part, so a model's memory always contains the preceding text.

    Args:
        rank_rows: rows of this rank. The content of a row does not depend on the number of ranks.
        resets: whether memory is cleared at the start of every epoch, or only at step 0.
    """

    def __init__(self, text: Text, rows: int, segment: int, *, rank_rows: range, resets: bool) -> None:
        self._text, self._rows, self._segment = text, rows, segment
        self._rank_rows, self._resets = rank_rows, resets
        self._longest = -(-text.size // rows)
        self._steps = -(-self._longest // segment)

    @property
    def steps_per_epoch(self) -> int:
        return self._steps

    def __call__(self, step: int) -> Batch:
        epoch, within = divmod(step, self._steps)
        offset = within * self._segment
        width = min(self._segment, self._longest - offset)
        inputs = np.empty((len(self._rank_rows), width), np.int64)
        targets = np.empty_like(inputs)
        for index, row in enumerate(self._rank_rows):
            part = (row + epoch) % self._rows
            start, stop = (edge * self._text.size // self._rows for edge in (part, part + 1))
            tokens = self._read_around(epoch, start + offset - 1, width + 1)
            inputs[index], targets[index] = tokens[:-1], tokens[1:]
            targets[index, stop - start - offset :] = IGNORED  # a part that is shorter by one
        return Batch(inputs, targets, starts=within == 0 and (epoch == 0 or self._resets))

    def _read_around(self, epoch: int, start: int, count: int) -> Tokens:
        """Returns `count` tokens from `start`; indices wrap around at both ends of the text."""
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
