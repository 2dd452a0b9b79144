"""Perplexity and bits per character as in the papers.

A text is read `segment` tokens at a time after `memory` tokens of the past (Dai et al. 2019, §4.1; Lei 2021, §4): by
models that can carry the past, in one pass over the text. Models whose positions are absolute, such as GPT-2, cannot;
they read each segment together with the `memory` tokens before it, which do not count: a sliding window with stride
`segment`. Sentences (LM1B) and translations are read each from its own beginning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgefront.core.data.tokenizers.tokenizers import BOS, Tokenizer
from edgefront.core.errors import Diverged, InvalidInput
from edgefront.core.evaluation.windows import Passage, batched, documents, streams, windows
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.positions import RelativePositions
from edgefront.core.recipes.precision import autocast
from edgefront.core.recipes.recipe import Evaluation, Precision, Task
from edgefront.core.recipes.task import reads_on
from edgefront.core.spaces.architecture import Architecture

Progress = Callable[[int, int], None]
"""Called with the tokens counted so far and with all there will be; what it raises ends the evaluation."""

MAX_DEFAULT_SEGMENT = 1024
"""Tokens of a segment at most where neither a recipe nor a person says how many."""


class Text(Protocol):
    """What is evaluated on: a split of prepared data."""

    @property
    def tokens(self) -> NDArray[Any]:
        """All tokens, one after the other: integers [n]."""
        ...

    @property
    def starts(self) -> NDArray[Any]:
        """Places where documents or sentences begin, and n: int64 [documents + 1]."""
        ...

    @property
    def characters(self) -> int:
        """Characters of the text that was tokenised; 0 where unknown."""
        ...

    @property
    def words(self) -> int:
        """Words of the text, as its data set counts them; 0 where unknown."""
        ...


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


@dataclass(frozen=True)
class Reading:
    """How much of a split is read, and whether as running text or by the sentence."""

    max_tokens: int | None = None
    """Predictions at most, from the beginning of the split on; of sentences as many whole ones."""
    sentences: bool = False
    """Each document of `split.starts` is read by itself."""
    begin: int | None = None
    """Token that stands before a sentence, by which its first token is predicted too."""


def perplexity(
    model: LanguageModel,
    split: Text,
    evaluation: Evaluation,
    *,
    device: torch.device | str,
    precision: Precision = "float32",
    reading: Reading = Reading(),
    progress: Progress | None = None,
) -> Perplexity:
    """The model's perplexity on a split. The model is on `device`, and left in the mode that it was in.

    A text of n tokens has n - 1 predictions, the first token following nothing. They are cut into `evaluation.rows`
    streams of equal length, read side by side; none is left out. A stream begins without memory, so one row gives the
    exact number, and each further row costs its first tokens some context. Sliding windows and sentences are the same
    with any rows.

    `evaluation.same_length` lets every token see `memory` + 1 keys, itself included; `clamp` replaces the
    architecture's own for relative positions. Both are without effect where there is no such attention.

    `precision` is that of the passes (autocast); losses are added up in float64.

    Parallel text (a split with `source`) is read as sentences, each after its source. Raises `InvalidInput` for a model
    that does not predict the next token, a text without a prediction, and windows longer than the model's positions;
    `Diverged` for a loss that is not a number.
    """
    source: Text | None = getattr(split, "source", None)
    _check(model, evaluation, source)
    one_by_one = reading.sentences or source is not None
    text = (
        documents(split.tokens, split.starts, reading.begin, reading.max_tokens)
        if one_by_one
        else streams(split.tokens, evaluation.rows if reads_on(model.architecture) else 1, reading.max_tokens)
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
        elif reads_on(model.architecture):
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
        state = self.model.start(passage.rows, "memory")
        for start in range(0, passage.length, self.evaluation.segment):
            inputs, targets = passage.cut(start, min(start + self.evaluation.segment, passage.length))
            hidden, state = self.model.step(self._tensor(inputs), state, "none", window=self.window)
            state = state.keep(self.evaluation.memory)
            self._add(hidden, targets)

    def read_whole(self, passage: Passage) -> None:
        inputs, targets = passage.cut(0, passage.length)
        self._add(self.model(self._tensor(inputs), "none", window=self.window), targets)

    def translate(self, passage: Passage, source: Text) -> None:
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
    before = None if relative is None else relative.clamp
    model.eval()
    if relative is not None:
        relative.clamp = clamp
    try:
        with torch.no_grad(), autocast(device, precision):
            yield
    finally:
        model.train(trained)
        if relative is not None:
            relative.clamp = before


def _check(model: LanguageModel, evaluation: Evaluation, source: Text | None) -> None:
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


def perplexity_of(total: float, count: int, split: Text | None) -> Perplexity:
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
