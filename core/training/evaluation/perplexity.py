"""Computes perplexity and bits per character as in the papers.

Models with memory read a text in one pass, `segment` tokens at a time after `memory` past tokens (Dai et al. 2019,
§4.1; Lei 2021, §4). Models with absolute positions, such as GPT-2, read a sliding window with stride `segment`: each
segment is read after `memory` preceding tokens, and only the segment's predictions count. Sentences (LM1B) and
translations are read separately, each from its beginning.
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
from edgefront.core.nn.embedding import RelativePositionEmbedding
from edgefront.core.nn.model import LanguageModel
from edgefront.core.training.recipes.recipe import EvaluationSettings, Precision, Task, can_carry_past

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Passage:
    """Parts of a text, called rows. Row r predicts `sizes[r]` tokens, starting at index `first[r]` of `tokens`.

    The first `skips[r]` predictions only serve as context: they are left out of the loss. The token before the first
    prediction of a row is `begin`, or if `begin` is None the preceding token of the text. `documents[r]` is the index
    of the sentence of row r.
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
        """Number of predictions of the longest row."""
        return int(self.sizes.max())

    @property
    def count(self) -> int:
        """Number of predictions whose loss is summed."""
        return int((self.sizes - self.skips).sum())

    def columns(self, start: int, stop: int) -> tuple[Tokens, Tokens]:
        """Returns inputs and targets of columns `start` to `stop` (exclusive), int64 [rows, stop - start] each.

        Targets of skipped predictions and after the end of a row are `IGNORED`; inputs after the end are arbitrary.
        """
        columns = np.arange(start, stop)
        indices = np.minimum(self.first[:, None] + columns, len(self.tokens) - 1)
        counts = (columns >= self.skips[:, None]) & (columns < self.sizes[:, None])
        targets = np.where(counts, self.tokens[indices].astype(np.int64), IGNORED)
        inputs = self.tokens[np.maximum(indices - 1, 0)].astype(np.int64)
        if self.begin is not None and start == 0:
            inputs[:, 0] = self.begin
        return inputs, targets

    def take(self, rows: Integers) -> Passage:
        """Returns a passage of only these rows."""
        documents = None if self.documents is None else self.documents[rows]
        return Passage(self.tokens, self.first[rows], self.sizes[rows], self.skips[rows], self.begin, documents)


def streams(tokens: NDArray[Any], rows: int, max_tokens: int | None = None) -> Passage:
    """Splits a text into `rows` rows of equal length; the final row may be shorter. Each row has a target.

    The first input of a row is the last target of the preceding row.
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
    """Returns a row for each document (or sentence) that has a prediction.

    `max_tokens` limits the number of predictions: only the first documents are taken, each whole, at least one.
    """
    edges = np.asarray(starts, np.int64)
    skipped = 0 if begin is not None else 1
    first, sizes = edges[:-1] + skipped, np.diff(edges) - skipped
    rows = np.flatnonzero(sizes > 0)
    if max_tokens is not None and len(rows):
        rows = rows[: max(1, int(np.searchsorted(np.cumsum(sizes[rows]), max_tokens, "right")))]
    return Passage(tokens, first[rows], sizes[rows], np.zeros_like(rows), begin, rows)


def batched(passage: Passage, rows: int) -> Iterator[Passage]:
    """Yields batches of `rows` rows of similar length."""
    order = np.argsort(-passage.sizes, kind="stable")
    for start in range(0, len(order), rows):
        yield passage.take(order[start : start + rows])


def windows(passage: Passage, segment: int, memory: int) -> Iterable[Passage]:
    """Splits rows into sliding windows: `segment` predictions after `memory` predictions as context only.

    Yields at most two passages: the windows at the beginning of a row, which have less context; all other windows.
    """
    counts = -(-passage.sizes // segment)
    row = np.repeat(np.arange(passage.rows), counts)
    start = (np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts)) * segment
    low = np.maximum(0, start - memory)
    high = np.minimum(start + segment, passage.sizes[row])
    for at_beginning in (True, False):
        windows_here = np.flatnonzero((low == 0) == at_beginning)
        if len(windows_here):
            yield Passage(
                passage.tokens,
                passage.first[row[windows_here]] + low[windows_here],
                (high - low)[windows_here],
                (start - low)[windows_here],
                passage.begin if at_beginning else None,
            )


Progress = Callable[[int, int], None]
"""Callback that receives the number of processed tokens and the total. An error of the callback ends the evaluation."""

MAX_DEFAULT_SEGMENT = 1024
"""Maximum default segment of a model without a recipe, in tokens."""


@dataclass(frozen=True)
class Perplexity:
    """Perplexity of a model on a text. `loss` is the mean over `tokens` predictions, in nats; `perplexity` is
    exp(loss).

    `bpc` (bits per character) and `word_perplexity` are loss·n/characters/ln 2 and exp(loss·n/words) for a text of n
    tokens, None if the number of characters or words is unknown. `word_perplexity` is also None if it exceeds the
    range of floats, as in a language without spaces, where a whole line is one word.
    """

    loss: float
    tokens: int
    perplexity: float | None
    bpc: float | None
    word_perplexity: float | None


def perplexity(
    model: LanguageModel,
    split: Split,
    evaluation: EvaluationSettings,
    *,
    device: torch.device | str,
    precision: Precision = "float32",
    max_tokens: int | None = None,
    sentences: bool = False,
    begin: int | None = None,
    progress: Progress | None = None,
) -> Perplexity:
    """Computes the model's perplexity on a split. The model must be on `device`; train or evaluation mode is restored.

    A text of n tokens has n - 1 predictions, in `evaluation.rows` parallel streams of equal length. A stream begins
    without memory, so a single stream is exact, and each additional stream has less context at its beginning. Results
    of sliding windows and sentences do not depend on the number of rows.

    With `evaluation.same_length` every token attends to `memory` + 1 keys, including its own; `clamp` replaces the
    architecture's maximum relative distance. Both settings require Transformer-XL's relative attention.

    Args:
        precision: precision of the forward passes (autocast); losses are summed in float64.
        max_tokens: maximum number of predictions, from the beginning of the split; only whole sentences are read.
        sentences: whether to read each document of `split.starts` separately, instead of running text.
        begin: token before a sentence, from which the sentence's first token is predicted.

    Parallel text (a split with `source`) is read as sentences, each after its source. Raises `InvalidInput` for a model
    that does not predict the next token, a text without a prediction, and windows longer than the model's positions;
    `Diverged` for a loss that is not finite.
    """
    source = split.source
    _check(model, evaluation, source)
    by_sentence = sentences or source is not None
    text = (
        documents(split.tokens, split.starts, begin, max_tokens)
        if by_sentence
        else streams(split.tokens, evaluation.rows if can_carry_past(model.architecture) else 1, max_tokens)
    )
    if text.rows == 0:
        raise InvalidInput(
            f"a text of {len(split.tokens)} tokens has no token to predict",
            field="split",
            value=len(split.tokens),
            allowed="two tokens or more" + (" in one of its sentences" if by_sentence else ""),
        )
    reader = _Reader(model, evaluation, torch.device(device), text.count, progress)
    with evaluating(model, torch.device(device), precision, evaluation.clamp):
        if source is not None:
            for passage in batched(text, evaluation.rows):
                reader.translate(passage, source)
        elif can_carry_past(model.architecture):
            for passage in batched(text, evaluation.rows) if by_sentence else (text,):
                reader.read_segments(passage)
        else:
            for part in windows(text, evaluation.segment, evaluation.memory):
                for passage in batched(part, evaluation.rows):
                    reader.read_whole(passage)
    return perplexity_of(float(reader.total), text.count, split)


def evaluation_without_recipe(architecture: Architecture, memory: int | None = None) -> EvaluationSettings:
    """Returns the evaluation settings of a model without a recipe, such as an imported model.

    Segments have the model's context length, at most 1,024 tokens, after `memory` tokens, in batches of 1,024 tokens.
    """
    past = memory or 0
    segment = max(1, min(MAX_DEFAULT_SEGMENT, architecture.stated_length - past))
    return EvaluationSettings(segment=segment, memory=past, rows=max(1, MAX_DEFAULT_SEGMENT // segment))


def first_token(tokenizer: Tokenizer, task: Task) -> int | None:
    """Token before a sentence in training: the end token of the previous sentence, or a translation's `<bos>`.

    None in running text, and for a tokenizer that lacks this token.
    """
    if task == "pairs":
        return tokenizer.special.get(BOS, tokenizer.eos)
    return tokenizer.eos if task == "sentences" else None


class _Reader:
    """Runs the model on passages and sums the losses."""

    def __init__(
        self,
        model: LanguageModel,
        evaluation: EvaluationSettings,
        device: torch.device,
        count: int,
        progress: Progress | None,
    ) -> None:
        self.model, self.evaluation, self.device = model, evaluation, device
        self.window = evaluation.memory + 1 if evaluation.same_length else None
        self.count, self.done, self.progress = count, 0, progress
        self.total = torch.zeros((), dtype=torch.float64, device=device)

    def read_segments(self, passage: Passage) -> None:
        """Adds the losses of a passage, read segment by segment with past tokens as memory."""
        cache = self.model.init_cache(passage.rows, "memory")
        for start in range(0, passage.length, self.evaluation.segment):
            inputs, targets = passage.columns(start, min(start + self.evaluation.segment, passage.length))
            hidden, cache = self.model(self._tensor(inputs), "none", cache=cache, window=self.window)
            cache = cache.keep(self.evaluation.memory)
            self._add(hidden, targets)

    def read_whole(self, passage: Passage) -> None:
        inputs, targets = passage.columns(0, passage.length)
        self._add(self.model(self._tensor(inputs), "none", window=self.window), targets)

    def translate(self, passage: Passage, source: Split) -> None:
        """Adds the losses of rows that translate sentences of `source` (`passage.documents`: their indices)."""
        inputs, targets = passage.columns(0, passage.length)
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


def check_scores(is_finite: bool) -> None:
    """Raises `Diverged` if a model's scores are not finite."""
    if not is_finite:
        raise Diverged("the model's scores are NaN: its weights are not finite, or its forward pass overflows")


def padded(rows: list[NDArray[Any]]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Pads rows with zeros to int64 [rows, longest]. Returns the array and the mask, which is False where padded."""
    length = max(1, *(len(row) for row in rows))
    tokens, mask = np.zeros((len(rows), length), np.int64), np.zeros((len(rows), length), np.bool_)
    for index, row in enumerate(rows):
        tokens[index, : len(row)], mask[index, : len(row)] = row, True
    return tokens, mask


@contextmanager
def evaluating(
    model: LanguageModel, device: torch.device, precision: Precision, clamp: int | None = None
) -> Iterator[None]:
    """Context manager for evaluation: evaluation mode, no gradients, autocast to `precision`, clamped distances."""
    was_training = model.training
    relative = model.positions if isinstance(model.positions, RelativePositionEmbedding) and clamp is not None else None
    before = None if relative is None else relative.max_relative_distance
    model.eval()
    if relative is not None:
        relative.max_relative_distance = clamp
    try:
        with torch.no_grad(), autocast(device, precision):
            yield
    finally:
        model.train(was_training)
        if relative is not None:
            relative.max_relative_distance = before


def _check(model: LanguageModel, evaluation: EvaluationSettings, source: Split | None) -> None:
    architecture = model.architecture
    if not architecture.causal or architecture.output.kind != "tokens":
        raise InvalidInput(
            "perplexity needs a model that predicts the next token, but this model "
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
    length, max_length = evaluation.segment + evaluation.memory, architecture.max_length
    if source is None and max_length is not None and length > max_length:
        raise InvalidInput(
            f"evaluation segments of {evaluation.segment} tokens after {evaluation.memory} past tokens do not fit into "
            f"the model's {max_length} positions",
            field="evaluation.segment",
            value=length,
            allowed=f"segment and memory of {max_length} tokens together at most",
        )


def perplexity_of(total: float, count: int, split: Split | None) -> Perplexity:
    """Returns the perplexity of `count` predictions with summed loss `total`, nats; `split` has the sizes of the text.

    Raises `Diverged` for a loss that is not finite.
    """
    loss = total / max(1, count)
    if not math.isfinite(loss):
        raise Diverged(
            f"the loss over {count} tokens is {loss}: the model's weights are not finite or its scores overflow. "
            "Use an earlier checkpoint, a lower learning rate or a wider precision"
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
    """Returns autocast of forward passes to this precision; weights and token losses stay float32."""
    half = torch.float16 if precision == "float16" else torch.bfloat16
    return torch.autocast(device.type, half, enabled=precision != "float32")
