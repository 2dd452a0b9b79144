"""Trained models of a table as a quality law reads them: shapes and ln perplexity."""

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
from edgefront.core.common.token_counts import MAX_TRAIN_TOKENS, MIN_TRAIN_TOKENS
from edgefront.core.common.validation import short
from edgefront.core.training.proxies.table import TOKENS, Quality, Row, architecture_of, missing_fields, number_in


@dataclass(frozen=True, eq=False)
class Trained:
    architectures: tuple[Architecture, ...]
    shapes: Shapes
    log_perplexity: NDArray[np.float64]
    first: NDArray[np.intp]
    """Places of those that do not give an earlier training again."""
    log_tokens: NDArray[np.float64] | None
    """ln of the training tokens of each; None where the table does not state them."""

    @property
    def once(self) -> tuple[Shapes, NDArray[np.float64]]:
        """Shapes and ln perplexity with each training once."""
        return self.shapes.take(self.first), self.log_perplexity[self.first]

    @property
    def note(self) -> str:
        """What a person should know of rows about the same model; empty where there are none."""
        trainings, different = len(self.first), len({architecture.digest for architecture in self.architectures})
        if self.log_tokens is not None:
            points = len({(self.architectures[place].digest, self.log_tokens[place]) for place in self.first})
            said = f"{points} points of the learning curves of {different} architectures" if points > different else ""
            again = repeats_in_words(len(self.architectures) - trainings, trainings, trainings)
            return "; ".join(part for part in (again, said) if part)
        return repeats_in_words(len(self.architectures) - trainings, trainings, different)

    def take(self, places: Sequence[int] | NDArray[np.intp]) -> Trained:
        """These rows, each as a training."""
        chosen = np.asarray(places, dtype=np.intp)
        return Trained(
            tuple(self.architectures[place] for place in chosen.tolist()),
            self.shapes.take(chosen),
            self.log_perplexity[chosen],
            np.arange(len(chosen)),
            None if self.log_tokens is None else self.log_tokens[chosen],
        )


def trained_models(rows: Sequence[Row], quality: Quality) -> Trained:
    """All rows. `InvalidInput` names the first row (from 1) and the field that is no model or no perplexity."""
    architectures, logs = [], []
    first: dict[tuple[str, float | None], int] = {}
    tokens = tokens_of(rows)
    for number, row in enumerate(rows, 1):
        architecture = described(number, row)
        if architecture is None:
            missing = missing_fields(row)
            raise InvalidInput(
                f"row {number} does not say what the model is: {', '.join(missing)} is missing",
                field=_field(number, missing[0]),
                allowed="an architecture, the columns of LTS's logs, or those of HW-GPT-Bench",
            )
        architectures.append(architecture)
        logs.append(_log_perplexity(number, row, quality))
        first.setdefault(identity(architecture, row, quality), number - 1)
    places = np.array(list(first.values()), dtype=np.intp)
    log_tokens = None if tokens is None else np.log(tokens)
    return Trained(tuple(architectures), Shapes.of(architectures), np.array(logs), places, log_tokens)


def tokens_of(rows: Sequence[Row]) -> list[float] | None:
    """Training tokens of each row; None where no row states them. `InvalidInput` names the row (from 1) that is wrong,
    or does not state them where others do.
    """
    if all(row.get(TOKENS) is None for row in rows):
        return None
    tokens = []
    for number, row in enumerate(rows, 1):
        value, count = row.get(TOKENS), number_in(row, TOKENS)
        if count is None or not MIN_TRAIN_TOKENS <= count <= MAX_TRAIN_TOKENS:
            said = (
                "missing, though other rows have it" if value is None else f"{short(value)}, no number from 1 to 1e18"
            )
            raise InvalidInput(
                f"row {number}: {TOKENS} is {said}",
                field=f"rows.{number}.{TOKENS}",
                value=str(value),
                allowed="a number from 1 to 1e18 in each row, as 10000000000, or in none",
            )
        tokens.append(count)
    return tokens


def after_equal_tokens(rows: Sequence[Row]) -> tuple[list[Row], float | None]:
    """The rows after the tokens that most of them share (of equally many the most), and these; all rows, and None,
    where the table states no tokens. Models after different tokens have no order by shape.
    """
    tokens = tokens_of(rows)
    if tokens is None:
        return list(rows), None
    counts = Counter(tokens)
    shared = max(counts, key=lambda count: (counts[count], count))
    return [row for row, count in zip(rows, tokens, strict=True) if count == shared], shared


def identity(architecture: Architecture | None, row: Row, quality: Quality) -> tuple[str, float | None]:
    """Rows of equal identity give one training again: the same model (all columns where none is described) with the
    same quality after the same tokens. Trainings of one model that came out differently are several.
    """
    model = json.dumps(row, sort_keys=True) if architecture is None else architecture.digest
    tokens = number_in(row, TOKENS)
    return model if tokens is None else f"{model} after {tokens:.17g}", number_in(row, quality.column)


def repeats_in_words(repeated: int, trainings: int, models: int) -> str:
    """What rows about the same model are: repeats of a training, and other trainings. Empty where there are none."""
    rows = "row repeats an earlier one" if repeated == 1 else "rows repeat earlier ones"
    said = [f"{repeated} {rows} (the same model, the same quality): each counts once"] if repeated else []
    said += [f"the {trainings} trainings are of {models} architectures"] if trainings != models else []
    return "; ".join(said)


def described(number: int, row: Row) -> Architecture | None:
    """What the row of this number says that the model is; `InvalidInput` names the row and the field that is wrong."""
    try:
        return architecture_of(row)
    except InvalidInput as error:
        raise InvalidInput(
            f"row {number}: {error.detail}", field=_field(number, error.field), value=error.value, allowed=error.allowed
        ) from None


def log_perplexity(column: str, value: float) -> float | None:
    """ln perplexity of a number in a column by this name; None where it is no measure of perplexity.

    A loss is ln perplexity (nats a token); bpc is bits a character.
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
            f"a quality law is about perplexity, which {column} is not",
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
