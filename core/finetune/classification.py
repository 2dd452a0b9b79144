"""Tasks of GLUE's form on local files: a table of sentences, or pairs of them, with a class or a number each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from edgefront.core.data.tokenizers.tokenizers import Tokenizer
from edgefront.core.errors import InvalidInput
from edgefront.core.finetune.finetune import (
    OF_CLASSES,
    OF_NUMBERS,
    FineTuning,
    Progress,
    Row,
    Specials,
    Tuned,
    fine_tune,
    scores_of,
    with_head,
)
from edgefront.core.nn.model import LanguageModel

_TEXTS = (("sentence1", "sentence2"), ("question1", "question2"), ("question", "sentence"), ("premise", "hypothesis"))
_LABELS = ("label", "gold_label", "is_duplicate", "score", "Quality")
_SINGLE = ("sentence", "text")


@dataclass(frozen=True)
class Examples:
    """A table's rows. `labels` are numbers where all of them are and one is no whole number, else words."""

    first: list[str]
    second: list[str] | None
    labels: list[str] | list[float]

    @property
    def is_regression(self) -> bool:
        return isinstance(self.labels[0], float)

    @property
    def kind(self) -> str:
        """Kind of its targets and texts, in words."""
        return (
            f"{'numbers' if self.is_regression else 'classes'} of {'single texts' if self.second is None else 'pairs'}"
        )

    def __len__(self) -> int:
        return len(self.first)


def read_table(path: Path, *, text: str | None = None, pair: str | None = None, label: str | None = None) -> Examples:
    """A file of tab-separated values with a header, quotes being characters like others, as GLUE's are.

    Args:
        text, pair, label: names of columns; what GLUE calls them where none is given.

    Raises `InvalidInput` for a file without such columns, and names the line that has fewer fields or no label.
    """
    try:
        lines = path.read_bytes().decode().split("\n")
    except UnicodeDecodeError as error:
        raise _wrong(path, f"is not UTF-8 at byte {error.start}") from None
    head = lines[0].removeprefix("\ufeff").rstrip("\r").split("\t")
    if text is None:
        text, pair = _guessed(path, head, pair)
    label = label or next((name for name in _LABELS if name in head), "label")
    columns = [name for name in (text, pair, label) if name is not None]
    missing = [name for name in columns if name not in head]
    if missing:
        raise _wrong(path, f"has no column {', '.join(missing)}; it has {', '.join(head)}")
    places = [head.index(name) for name in columns]
    rows: list[list[str]] = []
    for number, line in enumerate(lines[1:], 2):
        fields = line.rstrip("\r").split("\t")
        if not line.strip():
            continue
        if len(fields) <= max(places) or not fields[places[-1]]:
            raise _wrong(path, f"line {number} has {len(fields)} of {len(head)} fields, or no label")
        rows.append([fields[place] for place in places])
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
    """Fine-tunes the encoder on `train`, and scores it on `test`: classes by accuracy, F1 and Matthews' correlation,
    numbers by Pearson's and Spearman's.

    Raises `InvalidInput` for a class that `train` does not have, and as `with_head`, `Specials.of` and `fine_tune` do.
    """
    if train.is_regression != test.is_regression or (train.second is None) != (test.second is None):
        raise InvalidInput(
            f"training has {train.kind}, and the test {test.kind}",
            field="test",
            allowed="the same columns in both",
        )
    classes = () if train.is_regression else tuple(sorted({str(label) for label in train.labels}))
    numbers = {name: number for number, name in enumerate(classes)}
    unknown = sorted({str(label) for label in test.labels} - set(classes)) if classes else []
    if unknown:
        raise InvalidInput(
            f"the test rows have class {unknown[0]!r}, which no row of training has",
            field="test",
            value=unknown[0],
            allowed=", ".join(classes),
        )
    tuned = with_head(model, "classes", len(classes) or 1, settings.seed)
    longest = min(settings.max_length, tuned.architecture.max_length or settings.max_length)
    train_rows, test_rows = (_rows(tuned, tokenizer, table, numbers, longest) for table in (train, test))
    losses = fine_tune(tuned, train_rows, settings, device=device, progress=progress)
    scores = np.stack(scores_of(tuned, test_rows, device=device, batch=settings.rows, precision=settings.precision))
    if not classes:
        predicted, actual = scores[:, 0].astype(np.float64), np.array(test.labels, np.float64)
        found = {name: metric(predicted, actual) for name, metric in OF_NUMBERS.items()}
        return Tuned(found, predicted.tolist(), losses, tuned)
    best, right = scores.argmax(1), np.array([row.target for row in test_rows])
    found = {name: metric(best, right) for name, metric in OF_CLASSES.items()}
    return Tuned(found, [classes[i] for i in best], losses, tuned)


def _rows(
    model: LanguageModel, tokenizer: Tokenizer, examples: Examples, numbers: dict[str, int], longest: int
) -> list[Row]:
    specials, kinds = Specials.of(tokenizer), model.architecture.embedding.segments
    firsts = [ids.tolist() for ids in tokenizer.encode_many(examples.first)]
    seconds: Sequence[list[int] | None] = [None] * len(firsts)
    if examples.second is not None:
        seconds = [ids.tolist() for ids in tokenizer.encode_many(examples.second)]
    made = []
    for first, second, label in zip(firsts, seconds, examples.labels, strict=True):
        target = label if isinstance(label, float) else numbers[str(label)]
        if second is None:
            tokens = [specials.cls, *first[: longest - 2], specials.sep]
            made.append(Row(tokens, [0] * len(tokens), target))
            continue
        own, other = list(first), list(second)
        while len(own) + len(other) > longest - 3:  # tokens are taken off the longer one (BERT's `_truncate_seq_pair`)
            (own if len(own) > len(other) else other).pop()
        tokens = [specials.cls, *own, specials.sep, *other, specials.sep]
        segments = [0] * (len(own) + 2) + [1 if kinds > 1 else 0] * (len(other) + 1)
        made.append(Row(tokens, segments, target))
    return made


def _guessed(path: Path, head: list[str], pair: str | None) -> tuple[str, str | None]:
    for first, other in _TEXTS:
        if first in head and other in head:
            return first, other
    single = next((name for name in _SINGLE if name in head), None)
    if single is None:
        raise _wrong(path, f"has no column with a known name for the text; it has {', '.join(head)}: name one of them")
    return single, pair


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
