"""Perplexity and bits per character as in the papers.

A text is read `segment` tokens at a time after `memory` tokens of the past (Dai et al. 2019, §4.1; Lei 2021, §4): by
models that can carry the past, in one pass over the text. Models whose positions are absolute, such as GPT-2, cannot;
they read each segment together with the `memory` tokens before it, which do not count: a sliding window with stride
`segment`. Sentences (LM1B) and translations are read each from its own beginning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import Diverged, InvalidInput
from edgefront.core.data.batches.batch import IGNORED, Tokens
from edgefront.core.data.prepared.prepared import Split
from edgefront.core.data.tokenizers.tokenizers import BOS, Tokenizer
from edgefront.core.nn.embedding import RelativePositions
from edgefront.core.nn.model import LanguageModel
from edgefront.core.training.recipes.recipe import Evaluation, Precision, Task, can_carry_past

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


Progress = Callable[[int, int], None]
"""Called with the tokens counted so far and with all there will be; what it raises ends the evaluation."""

MAX_DEFAULT_SEGMENT = 1024
"""Tokens of a segment at most where neither a recipe nor a person says how many."""


@dataclass(frozen=True)
class Perplexity:
    """`loss` is the mean over `tokens` predictions, in nats, and `perplexity` exp(loss).

    `bpc` and `word_perplexity` spread it over characters and words: loss·n/characters/ln 2 and exp(loss·n/words) for a
    text of n tokens; None where its characters or words are not known. A perplexity that no float can hold is None
    too: in a language without spaces a line is one word.
    """

    loss: float
    tokens: int
    perplexity: float | None
    bpc: float | None
    word_perplexity: float | None


def perplexity(
    model: LanguageModel,
    split: Split,
    evaluation: Evaluation,
    *,
    device: torch.device | str,
    precision: Precision = "float32",
    max_tokens: int | None = None,
    sentences: bool = False,
    begin: int | None = None,
    progress: Progress | None = None,
) -> Perplexity:
    """The model's perplexity on a split. The model is on `device`, and left in the mode that it was in.

    A text of n tokens has n - 1 predictions, the first token following nothing. They are cut into `evaluation.rows`
    streams of equal length, read side by side; none is left out. A stream begins without memory, so one row gives the
    exact number, and each further row costs its first tokens some context. Sliding windows and sentences are the same
    with any rows.

    `evaluation.same_length` lets every token see `memory` + 1 keys, itself included; `clamp` replaces the
    architecture's own for relative positions. Both are without effect where there is no such attention.

    Args:
        precision: of the passes (autocast); losses are added up in float64.
        max_tokens: predictions at most, from the beginning of the split on; of sentences as many whole ones.
        sentences: read each document of `split.starts` by itself, instead of running text.
        begin: token that stands before a sentence, by which its first token is predicted too.

    Parallel text (a split with `source`) is read as sentences, each after its source. Raises `InvalidInput` for a model
    that does not predict the next token, a text without a prediction, and windows longer than the model's positions;
    `Diverged` for a loss that is not a number.
    """
    source = split.source
    _check(model, evaluation, source)
    one_by_one = sentences or source is not None
    text = (
        documents(split.tokens, split.starts, begin, max_tokens)
        if one_by_one
        else streams(split.tokens, evaluation.rows if can_carry_past(model.architecture) else 1, max_tokens)
    )
    if text.rows == 0:
        raise InvalidInput(
            f"nothing to predict in a text of {len(split.tokens)} tokens",
            field="split",
            value=len(split.tokens),
            allowed="two tokens or more" + (" in one of its sentences" if one_by_one else ""),
        )
    reader = _Reader(model, evaluation, torch.device(device), text.count, progress)
    with evaluating(model, torch.device(device), precision, evaluation.clamp):
        if source is not None:
            for passage in batched(text, evaluation.rows):
                reader.translate(passage, source)
        elif can_carry_past(model.architecture):
            for passage in batched(text, evaluation.rows) if one_by_one else (text,):
                reader.read_on(passage)
        else:
            for some in windows(text, evaluation.segment, evaluation.memory):
                for passage in batched(some, evaluation.rows):
                    reader.read_whole(passage)
    return perplexity_of(float(reader.total), text.count, split)


def evaluation_without_recipe(architecture: Architecture, memory: int | None = None) -> Evaluation:
    """How a model is evaluated that no recipe trained here, such as an imported one: its context at a time, 1,024
    tokens at most, behind `memory` others, and as many of such segments at once as have 1,024 tokens.
    """
    behind = memory or 0
    segment = max(1, min(MAX_DEFAULT_SEGMENT, architecture.stated_length - behind))
    return Evaluation(segment=segment, memory=behind, rows=max(1, MAX_DEFAULT_SEGMENT // segment))


def first_token(tokenizer: Tokenizer, task: Task) -> int | None:
    """What stands before a sentence in training: the end of the one before, or a translation's `<bos>` if there is one.

    None in running text, and where the tokenizer has no such token.
    """
    if task == "pairs":
        return tokenizer.special.get(BOS, tokenizer.eos)
    return tokenizer.eos if task == "sentences" else None


class _Reader:
    """Adds up the losses of what it reads."""

    def __init__(
        self, model: LanguageModel, evaluation: Evaluation, device: torch.device, count: int, progress: Progress | None
    ) -> None:
        self.model, self.evaluation, self.device = model, evaluation, device
        self.window = evaluation.memory + 1 if evaluation.same_length else None
        self.count, self.done, self.progress = count, 0, progress
        self.total = torch.zeros((), dtype=torch.float64, device=device)

    def read_on(self, passage: Passage) -> None:
        """Segment after segment, with the past as the model's memory."""
        state = self.model.init_cache(passage.rows, "memory")
        for start in range(0, passage.length, self.evaluation.segment):
            inputs, targets = passage.cut(start, min(start + self.evaluation.segment, passage.length))
            hidden, state = self.model(self._tensor(inputs), "none", cache=state, window=self.window)
            state = state.keep(self.evaluation.memory)
            self._add(hidden, targets)

    def read_whole(self, passage: Passage) -> None:
        inputs, targets = passage.cut(0, passage.length)
        self._add(self.model(self._tensor(inputs), "none", window=self.window), targets)

    def translate(self, passage: Passage, source: Split) -> None:
        """Each row after the source's document of the same number."""
        inputs, targets = passage.cut(0, passage.length)
        assert passage.documents is not None
        tokens, mask = padded([source.tokens[source.starts[i] : source.starts[i + 1]] for i in passage.documents])
        hidden = self.model(
            self._tensor(inputs),
            "none",
            source=self._tensor(tokens),
            source_mask=torch.from_numpy(mask).to(self.device),
        )
        self._add(hidden, targets)

    def _tensor(self, array: NDArray[np.int64]) -> Tensor:
        return torch.from_numpy(array).to(self.device)

    def _add(self, hidden: Tensor, targets: NDArray[np.int64]) -> None:
        self.total += self.model.token_losses(hidden, self._tensor(targets)).sum(dtype=torch.float64)
        if self.progress is not None:
            self.done += int((targets >= 0).sum())
            self.progress(self.done, self.count)


def padded(rows: list[NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Rows of unequal length as int64 [rows, longest], zeros at their ends, and the mask: False where padded."""
    length = max(1, *(len(row) for row in rows))
    tokens, mask = np.zeros((len(rows), length), np.int64), np.zeros((len(rows), length), np.bool_)
    for index, row in enumerate(rows):
        tokens[index, : len(row)], mask[index, : len(row)] = row, True
    return tokens, mask


@contextmanager
def evaluating(
    model: LanguageModel, device: torch.device, precision: Precision, clamp: int | None = None
) -> Iterator[None]:
    """Evaluation mode, no gradients, passes in `precision`, distances clamped; afterwards all is as it was."""
    trained = model.training
    relative = model.positions if isinstance(model.positions, RelativePositions) and clamp is not None else None
    before = None if relative is None else relative.max_relative_distance
    model.eval()
    if relative is not None:
        relative.max_relative_distance = clamp
    try:
        with torch.no_grad(), autocast(device, precision):
            yield
    finally:
        model.train(trained)
        if relative is not None:
            relative.max_relative_distance = before


def _check(model: LanguageModel, evaluation: Evaluation, source: Split | None) -> None:
    architecture = model.architecture
    if not architecture.causal or architecture.output.kind != "tokens":
        raise InvalidInput(
            "perplexity needs a model that predicts the next token: this one "
            + ("has output " + architecture.output.kind if architecture.causal else "sees the tokens that follow"),
            field="model",
            value=architecture.output.kind,
            allowed="causal true and output tokens",
        )
    if (source is None) != (architecture.source is None):
        raise InvalidInput(
            "this model translates, and the split has no source"
            if source is None
            else "the split is parallel text, and this model has no source",
            field="split",
            allowed="parallel text for a model with a source, and plain text for one without",
        )
    length, longest = evaluation.segment + evaluation.memory, architecture.max_length
    if source is None and longest is not None and length > longest:
        raise InvalidInput(
            f"evaluation segments of {evaluation.segment} tokens after {evaluation.memory} others do not fit into the "
            f"model's {longest} positions",
            field="evaluation.segment",
            value=length,
            allowed=f"segment and memory of {longest} tokens together at most",
        )


def perplexity_of(total: float, count: int, split: Split | None) -> Perplexity:
    """Perplexity of `count` predictions whose losses add up to `total` nats, on a split whose characters and words are
    known.

    Raises `Diverged` for a loss that is not a number.
    """
    loss = total / max(1, count)
    if not math.isfinite(loss):
        raise Diverged(
            f"the loss over {count} tokens is {loss}, not a number: the model's weights are not finite or its scores "
            "overflow; an earlier checkpoint, a lower learning rate or a wider precision would help"
        )
    n, characters, words = (0, 0, 0) if split is None else (len(split.tokens), split.characters, split.words)
    return Perplexity(
        loss,
        count,
        _exp(loss),
        loss * n / characters / math.log(2) if characters else None,
        _exp(loss * n / words) if words else None,
    )


def _exp(nats: float) -> float | None:
    try:
        return math.exp(nats)
    except OverflowError:
        return None


def autocast(device: torch.device, precision: Precision) -> torch.autocast:
    """Passes in this precision within it; weights, and the losses of tokens, stay float32."""
    half = torch.float16 if precision == "float16" else torch.bfloat16
    return torch.autocast(device.type, half, enabled=precision != "float32")
