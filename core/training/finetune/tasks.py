"""Fine-tuning tasks on local files: GLUE's tab-separated tables, and questions in SQuAD's format.

A row of a table has a sentence or a pair of sentences, and a class or a number. The answer to a question is a span of a
text. Sources: Rajpurkar et al. 2016, 2018.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
import torch

from edgefront.core.common.errors import InvalidInput
from edgefront.core.data.tokenizers.tokenizers import Tokenizer
from edgefront.core.nn.model import LanguageModel
from edgefront.core.training.finetune.finetune import (
    CLASS_METRICS,
    NUMBER_METRICS,
    FineTuning,
    Progress,
    Row,
    Scores,
    SpecialTokens,
    Tuned,
    fine_tune,
    scores_of,
    squad_scores,
    with_head,
)

_TEXTS = (("sentence1", "sentence2"), ("question1", "question2"), ("question", "sentence"), ("premise", "hypothesis"))
_LABELS = ("label", "gold_label", "is_duplicate", "score", "Quality")
_SINGLE = ("sentence", "text")


@dataclass(frozen=True)
class Examples:
    """Rows of a GLUE table. `labels` are numbers if every label is a number and some are fractional, else classes."""

    first: list[str]
    second: list[str] | None
    labels: list[str] | list[float]

    @property
    def is_regression(self) -> bool:
        return isinstance(self.labels[0], float)

    @property
    def kind(self) -> str:
        """Description of the table in words: kind of labels, and single texts or pairs."""
        texts = "single texts" if self.second is None else "pairs"
        return f"{'numbers' if self.is_regression else 'classes'} of {texts}"

    def __len__(self) -> int:
        return len(self.first)


def read_table(path: Path, *, text: str | None = None, pair: str | None = None, label: str | None = None) -> Examples:
    """Reads a file of tab-separated values with a header and without quoting, like GLUE's files.

    Args:
        text, pair, label: names of the columns of first text, second text and label; None: GLUE's names.

    Raises `InvalidInput` for missing columns, and for a line (named by number) with missing fields or label.
    """
    try:
        lines = path.read_bytes().decode().split("\n")
    except UnicodeDecodeError as error:
        raise _wrong(path, f"is not UTF-8 at byte {error.start}") from None
    head = lines[0].removeprefix("\ufeff").rstrip("\r").split("\t")
    if text is None:
        text, pair = next(
            (names for names in _TEXTS if set(names) <= set(head)),
            (next((name for name in _SINGLE if name in head), None), pair),
        )
        if text is None:
            names = ", ".join(head)
            raise _wrong(path, f"has no column with a known name for the text; it has {names}: name one of them")
    label = label or next((name for name in _LABELS if name in head), "label")
    columns = [name for name in (text, pair, label) if name is not None]
    missing = [name for name in columns if name not in head]
    if missing:
        raise _wrong(path, f"has no column {', '.join(missing)}; it has {', '.join(head)}")
    indices = [head.index(name) for name in columns]
    rows: list[list[str]] = []
    for number, line in enumerate(lines[1:], 2):
        fields = line.rstrip("\r").split("\t")
        if not line.strip():
            continue
        if len(fields) <= max(indices) or not fields[indices[-1]]:
            raise _wrong(path, f"line {number} has {len(fields)} of {len(head)} fields, or no label")
        rows.append([fields[index] for index in indices])
    if not rows:
        raise _wrong(path, "has no rows")
    labels = [row[-1] for row in rows]
    numbers = _numbers(labels)
    return Examples([row[0] for row in rows], [row[1] for row in rows] if pair else None, numbers or labels)


def classify(
    model: LanguageModel,
    tokenizer: Tokenizer,
    train: Examples,
    test: Examples,
    settings: FineTuning,
    *,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> Tuned:
    """Fine-tunes the encoder on `train` and evaluates it on `test`.

    Scores are accuracy, F1 and Matthews' correlation for classes, Pearson's and Spearman's correlation for numbers.
    Raises `InvalidInput` for a class that `train` lacks, and errors of `with_head`, `SpecialTokens.of`, `fine_tune`.
    """
    if train.is_regression != test.is_regression or (train.second is None) != (test.second is None):
        raise InvalidInput(
            f"the training table has {train.kind}, but the test table has {test.kind}",
            field="test",
            allowed="the same columns in both",
        )
    classes = () if train.is_regression else tuple(sorted({str(label) for label in train.labels}))
    numbers = {name: number for number, name in enumerate(classes)}
    unknown = sorted({str(label) for label in test.labels} - set(classes)) if classes else []
    if unknown:
        raise InvalidInput(
            f"the test rows have class {unknown[0]!r}, which no row of the training table has",
            field="test",
            value=unknown[0],
            allowed=", ".join(classes),
        )
    tuned = with_head(model, "classes", len(classes) or 1, settings.seed)
    max_length = min(settings.max_length, tuned.architecture.max_length or settings.max_length)
    train_rows, test_rows = (_rows(tuned, tokenizer, table, numbers, max_length) for table in (train, test))
    losses = fine_tune(tuned, train_rows, settings, device=device, progress=progress)
    scores = np.stack(scores_of(tuned, test_rows, device=device, batch=settings.rows, precision=settings.precision))
    if not classes:
        predicted, actual = scores[:, 0].astype(np.float64), np.array(test.labels, np.float64)
        metrics = {name: metric(predicted, actual) for name, metric in NUMBER_METRICS.items()}
        return Tuned(metrics, predicted.tolist(), losses, tuned)
    best, right = scores.argmax(1), np.array([row.target for row in test_rows])
    metrics = {name: metric(best, right) for name, metric in CLASS_METRICS.items()}
    return Tuned(metrics, [classes[i] for i in best], losses, tuned)


def _rows(
    model: LanguageModel, tokenizer: Tokenizer, examples: Examples, numbers: dict[str, int], max_length: int
) -> list[Row]:
    specials, kinds = SpecialTokens.of(tokenizer), model.architecture.embedding.segments
    firsts = [ids.tolist() for ids in tokenizer.encode_many(examples.first)]
    seconds: Sequence[list[int] | None] = [None] * len(firsts)
    if examples.second is not None:
        seconds = [ids.tolist() for ids in tokenizer.encode_many(examples.second)]
    rows = []
    for first, second, label in zip(firsts, seconds, examples.labels, strict=True):
        target = label if isinstance(label, float) else numbers[str(label)]
        if second is None:
            tokens = [specials.cls, *first[: max_length - 2], specials.sep]
            rows.append(Row(tokens, [0] * len(tokens), target))
            continue
        while len(first) + len(second) > max_length - 3:  # truncates the longer text (BERT's `_truncate_seq_pair`)
            (first if len(first) > len(second) else second).pop()
        tokens = [specials.cls, *first, specials.sep, *second, specials.sep]
        segments = [0] * (len(first) + 2) + [1 if kinds > 1 else 0] * (len(second) + 1)
        rows.append(Row(tokens, segments, target))
    return rows


def _numbers(labels: Sequence[str]) -> list[float] | None:
    try:
        numbers = [float(label) for label in labels]
    except ValueError:
        return None
    whole = all(label.lstrip("+-").isdigit() for label in labels)
    return None if whole or not np.isfinite(numbers).all() else numbers


def _wrong(path: Path, what: str) -> InvalidInput:
    return InvalidInput(
        f"{path} {what}", field="table", value=str(path), allowed="tab-separated values in UTF-8, with a header"
    )


_WORD = re.compile(r"\S+")
_CANDIDATES = 20  # number of starts, and of ends, that are considered in each window
_MAX_QUESTION = 64  # tokens
_STRIDE = 128  # tokens from one window to the next, or the length of a shorter window
_MAX_ANSWER = 30  # words


@dataclass(frozen=True)
class Question:
    """A question about a text `context`. `answers` are pairs: answer and index in the context; may be empty."""

    id: str
    text: str
    context: str
    answers: tuple[tuple[str, int], ...]


def read_questions(path: Path) -> list[Question]:
    """Reads a file of SQuAD 1.1 or 2.0. Raises `InvalidInput` if the file has another format."""
    try:
        data = json.loads(path.read_bytes())["data"]
        questions = [
            Question(
                str(entry["id"]),
                str(entry["question"]),
                str(paragraph["context"]),
                tuple((str(answer["text"]), int(answer["answer_start"])) for answer in entry.get("answers", ())),
            )
            for article in data
            for paragraph in article["paragraphs"]
            for entry in paragraph["qas"]
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise _not_squad(path, f"{type(error).__name__}: {error}") from None
    for question in questions:
        for text, start in question.answers:
            if not text or question.context[start : start + len(text)] != text:
                raise _not_squad(path, f"the answer {text!r} of question {question.id} is not at character {start}")
    if not questions:
        raise _not_squad(path, "it has no questions")
    return questions


def answer_questions(
    model: LanguageModel,
    tokenizer: Tokenizer,
    train: Sequence[Question],
    test: Sequence[Question],
    settings: FineTuning,
    *,
    device: torch.device | str = "cpu",
    progress: Progress | None = None,
) -> Tuned:
    """Fine-tunes the encoder to find the first and last word of each answer, and evaluates it on `test`.

    A long text is read in windows with a stride of 128 tokens. The target is the first token if a window does not
    contain the answer, or the question has no answer. Answers are whole words between spaces.
    """
    tuned = with_head(model, "spans", seed=settings.seed)
    max_length = min(settings.max_length, tuned.architecture.max_length or settings.max_length)
    room = max_length - min(_MAX_QUESTION, max_length // 2) - 3
    stride = _STRIDE if room >= _STRIDE else max(1, room // 2)
    layout = _Layout(tokenizer, max_length, stride, tuned.architecture.embedding.segments > 1)
    windows = [window for question in train for window in layout.windows(question)]
    losses = fine_tune(tuned, [window.row for window in windows], settings, device=device, progress=progress)
    test_windows = [layout.windows(question) for question in test]
    flat = scores_of(
        tuned,
        [window.row for of_question in test_windows for window in of_question],
        device=device,
        batch=settings.rows,
        precision=settings.precision,
    )
    predictions, at = {}, 0
    for question, of_question in zip(test, test_windows, strict=True):
        predictions[question.id] = _best(
            question, of_question, flat[at : at + len(of_question)], any(not other.answers for other in train)
        )
        at += len(of_question)
    scores = squad_scores(
        [predictions[question.id] for question in test], [[text for text, _ in question.answers] for question in test]
    )
    return Tuned(scores, predictions, losses, tuned)


@dataclass(frozen=True)
class _Window:
    """A row for the model, and for each token the index of its word in the context (-1 outside the context)."""

    row: Row
    word_at: tuple[int, ...]


@dataclass(frozen=True)
class _Layout:
    tokenizer: Tokenizer
    max_length: int
    stride: int
    has_segments: bool

    def windows(self, question: Question) -> list[_Window]:
        """Splits a question's context into windows: [cls] question [sep] part of the context [sep]."""
        specials = SpecialTokens.of(self.tokenizer)
        query = self.tokenizer.encode(question.text)[: min(_MAX_QUESTION, self.max_length // 2)]
        spans = word_spans(question.context)
        pieces = self.tokenizer.encode_many(
            [(" " if index else "") + question.context[low:high] for index, (low, high) in enumerate(spans)]
        )
        tokens = [int(token) for piece in pieces for token in piece]
        words = [index for index, piece in enumerate(pieces) for _ in piece]
        head = [specials.cls, *query, specials.sep]
        room = self.max_length - len(head) - 1
        answer = _answer_tokens(question, spans, words)
        windows = []
        for start in range(0, max(1, len(tokens)), self.stride):
            part = tokens[start : start + room]
            stop, target = start + len(part), (0, 0)
            if answer is not None and start <= answer[0] and answer[1] < stop:
                target = (len(head) + answer[0] - start, len(head) + answer[1] - start)
            segments = [0] * len(head) + [int(self.has_segments)] * (len(part) + 1)
            word_at = (*[-1] * len(head), *words[start:stop], -1)
            windows.append(_Window(Row([*head, *part, specials.sep], segments, target), word_at))
            if stop >= len(tokens):
                break
        return windows


def word_spans(text: str) -> list[tuple[int, int]]:
    """Returns the start and stop (exclusive) character of each word between white space."""
    return [match.span() for match in _WORD.finditer(text)]


def _answer_tokens(
    question: Question, spans: Sequence[tuple[int, int]], words: Sequence[int]
) -> tuple[int, int] | None:
    """Returns first and last token of the question's first answer; `words` has the index of each token's word."""
    if not question.answers:
        return None
    text, start = question.answers[0]
    touched = [i for i, (low, high) in enumerate(spans) if low < start + len(text) and high > start]
    tokens = [index for index, word in enumerate(words) if touched and touched[0] <= word <= touched[-1]]
    return (tokens[0], tokens[-1]) if tokens else None


def _best(question: Question, windows: Sequence[_Window], scores: Sequence[Scores], may_be_none: bool) -> str:
    """Returns the answer with the best first and last word in all windows; "" if "no answer" scores better."""
    spans, best, answer = word_spans(question.context), -np.inf, ""
    nothing = min(float(window_scores[0].sum()) for window_scores in scores)
    for window, window_scores in zip(windows, scores, strict=True):
        tokens = [index for index, word in enumerate(window.word_at) if word >= 0]
        if not tokens:
            continue
        starts, ends = (
            np.array(tokens)[np.argsort(-window_scores[tokens, k], kind="stable")[:_CANDIDATES]] for k in (0, 1)
        )
        for start, end in product(starts, ends):
            first, last = window.word_at[start], window.word_at[end]
            if (
                start <= end
                and last - first < _MAX_ANSWER
                and (score := float(window_scores[start, 0] + window_scores[end, 1])) > best
            ):
                best, answer = score, question.context[spans[first][0] : spans[last][1]]
    return "" if may_be_none and nothing > best else answer


def _not_squad(path: Path, what: str) -> InvalidInput:
    return InvalidInput(
        f"{path} is not in SQuAD's format: {what}",
        field="questions",
        value=str(path),
        allowed='{"data": [{"paragraphs": [{"context", "qas": [{"id", "question", "answers": [{"text", '
        '"answer_start"}]}]}]}]}',
    )
