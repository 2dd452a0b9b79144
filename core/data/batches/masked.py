"""BERT's task: find the words that were hidden (Devlin et al. 2019, §3.1 and appendix A.1)."""

from __future__ import annotations

import numpy as np

from edgefront.core.data.batches.batch import IGNORED, Batch
from edgefront.core.data.batches.order import bits, key, shuffled
from edgefront.core.data.prepared.prepared import Split
from edgefront.core.data.tokenizers.tokenizers import CLS, MASK, SEP, Tokenizer
from edgefront.core.errors import InvalidInput

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
