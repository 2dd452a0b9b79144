"""Converts a table of trained models to the input of a scaling law: shapes and ln perplexity."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.units import MAX_TRAIN_TOKENS, MIN_TRAIN_TOKENS
from edgefront.core.common.validation import short
from edgefront.core.quality.scaling_law import OwnTrainings, ScalingLaw, own_trainings
from edgefront.core.training.proxies.table import TOKENS, Quality, Row, architecture_of, missing_fields, number_in


@dataclass(frozen=True, eq=False)
class TrainedModels:
    architectures: tuple[Architecture, ...]
    shapes: Shapes
    log_perplexity: NDArray[np.float64]
    first: NDArray[np.intp]
    """Indices of the rows that do not repeat a training of an earlier row."""
    log_tokens: NDArray[np.float64] | None
    """ln of each model's training tokens; None if the table has no tokens."""

    def as_own_trainings(self, law: ScalingLaw) -> OwnTrainings:
        """Returns the rows as trainings by which the scaling law `law` can be refined."""
        assert self.log_tokens is not None
        names = [architecture.digest for architecture in self.architectures]
        return own_trainings(law, self.shapes, self.log_tokens, self.log_perplexity, names)

    @property
    def note(self) -> str:
        """Returns a note on rows that repeat a training or a model; empty if there are no such rows."""
        trainings, different = len(self.first), len({architecture.digest for architecture in self.architectures})
        if self.log_tokens is not None:
            points = len({(self.architectures[row].digest, self.log_tokens[row]) for row in self.first})
            curves = (
                f"{points} points of the learning curves of {different} architectures" if points > different else ""
            )
            repeats = repeats_in_words(len(self.architectures) - trainings, trainings, trainings)
            return "; ".join(part for part in (repeats, curves) if part)
        return repeats_in_words(len(self.architectures) - trainings, trainings, different)

    def take(self, indices: Sequence[int] | NDArray[np.intp]) -> TrainedModels:
        """Returns the rows at `indices`; none of them counts as repeated."""
        rows = np.asarray(indices, dtype=np.intp)
        return TrainedModels(
            tuple(self.architectures[row] for row in rows.tolist()),
            self.shapes.take(rows),
            self.log_perplexity[rows],
            np.arange(len(rows)),
            None if self.log_tokens is None else self.log_tokens[rows],
        )


def trained_models(rows: Sequence[Row], quality: Quality) -> TrainedModels:
    """Converts all rows. Raises `InvalidInput`, which names the first row without a valid model or perplexity."""
    architectures, logs = [], []
    first: dict[tuple[str, float | None], int] = {}
    tokens = training_tokens(rows)
    for number, row in enumerate(rows, 1):
        architecture = described_model(number, row)
        if architecture is None:
            missing = missing_fields(row)
            raise InvalidInput(
                f"row {number} does not describe a model: {', '.join(missing)} is missing",
                field=_field(number, missing[0]),
                allowed="an architecture, or the columns of LTS's logs",
            )
        architectures.append(architecture)
        logs.append(_log_perplexity(number, row, quality))
        first.setdefault(training_identity(architecture, row, quality), number - 1)
    first_rows = np.array(list(first.values()), dtype=np.intp)
    log_tokens = None if tokens is None else np.log(tokens)
    return TrainedModels(tuple(architectures), Shapes.of(architectures), np.array(logs), first_rows, log_tokens)


def training_tokens(rows: Sequence[Row]) -> list[float] | None:
    """Returns the training tokens of each row; None if the table has no tokens.

    Raises `InvalidInput`, which names the first row (from 1) with a wrong or missing number.
    """
    if all(row.get(TOKENS) is None for row in rows):
        return None
    tokens = []
    for number, row in enumerate(rows, 1):
        value, count = row.get(TOKENS), number_in(row, TOKENS)
        if count is None or not MIN_TRAIN_TOKENS <= count <= MAX_TRAIN_TOKENS:
            fault = (
                "missing, but other rows have it" if value is None else f"{short(value)}, not a number from 1 to 1e18"
            )
            raise InvalidInput(
                f"row {number}: {TOKENS} is {fault}",
                field=f"rows.{number}.{TOKENS}",
                value=str(value),
                allowed="a number from 1 to 1e18 in each row, such as 10000000000, or in none",
            )
        tokens.append(count)
    return tokens


def after_equal_tokens(rows: Sequence[Row]) -> tuple[list[Row], float | None]:
    """Returns a pair: the rows with the most common number of training tokens (if tied, the largest); this number.

    Returns all rows and None without a column of tokens. Models after unequal tokens cannot be ranked by shape.
    """
    tokens = training_tokens(rows)
    if tokens is None:
        return list(rows), None
    counts = Counter(tokens)
    shared = max(counts, key=lambda count: (counts[count], count))
    return [row for row, count in zip(rows, tokens, strict=True) if count == shared], shared


def training_identity(architecture: Architecture | None, row: Row, quality: Quality) -> tuple[str, float | None]:
    """Returns an identity of the training in a row; repeated rows have equal identities.

    Repeated rows have the same model (or equal columns), quality and tokens. Trainings with different results differ.
    """
    model = json.dumps(row, sort_keys=True) if architecture is None else architecture.digest
    tokens = number_in(row, TOKENS)
    return model if tokens is None else f"{model} after {tokens:.17g}", number_in(row, quality.column)


def repeats_in_words(repeated: int, trainings: int, models: int) -> str:
    """Returns a note on repeated trainings and on several trainings of one model; empty if there are none."""
    rows = "row repeats an earlier one" if repeated == 1 else "rows repeat earlier rows"
    notes = [f"{repeated} {rows} (the same model, the same quality): each counts once"] if repeated else []
    notes += [f"the {trainings} trainings are of {models} architectures"] if trainings != models else []
    return "; ".join(notes)


def described_model(number: int, row: Row) -> Architecture | None:
    """Returns the architecture that the row describes, or None. Raises `InvalidInput`, which names row and field."""
    try:
        return architecture_of(row)
    except InvalidInput as error:
        raise InvalidInput(
            f"row {number}: {error.detail}", field=_field(number, error.field), value=error.value, allowed=error.allowed
        ) from None


def log_perplexity(column: str, value: float) -> float | None:
    """Converts a number in the column `column` to ln perplexity; None if the column has another measure.

    A loss is ln perplexity (nats per token); bpc is bits per character.
    """
    name = column.rpartition(".")[2].lower()
    if name.endswith(("ppl", "perplexity")):
        return math.log(value) if value > 0 else math.nan
    if name.endswith("loss"):
        return value
    return value * math.log(2) if name == "bpc" else None


def _log_perplexity(number: int, row: Row, quality: Quality) -> float:
    column = quality.column
    value = number_in(row, column)
    log = None if value is None else log_perplexity(column, value)
    if value is not None and log is None:
        raise InvalidInput(
            f"a scaling law predicts perplexity, but {column} is another measure",
            field="quality",
            value=column,
            allowed="a column of perplexities (…ppl, …perplexity), losses (…loss) or bpc",
        )
    if log is None or not math.isfinite(log):
        raise InvalidInput(
            f"row {number}: {column} is {row.get(column)!r}, not a finite number above 0",
            field=_field(number, column),
            value=str(row.get(column)),
            allowed="a finite number above 0",
        )
    return log


def _field(number: int, name: str) -> str:
    return f"rows.{number}.{name}" if name else f"rows.{number}"
