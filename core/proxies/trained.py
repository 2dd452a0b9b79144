"""Trained models of a table as a quality law reads them: shapes and ln perplexity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgefront.core.cost.shapes import Shapes
from edgefront.core.errors import InvalidInput
from edgefront.core.proxies.table import Quality, Row, architecture_of, missing_fields, number_in
from edgefront.core.spaces.architecture import Architecture


@dataclass(frozen=True, eq=False)
class Trained:
    architectures: tuple[Architecture, ...]
    shapes: Shapes
    log_perplexity: NDArray[np.float64]


def trained_models(rows: Sequence[Row], quality: Quality) -> Trained:
    """All rows. `InvalidInput` names the first row (from 1) and the field that tells no model or no perplexity."""
    architectures, logs = [], []
    for number, row in enumerate(rows, 1):
        found = described(number, row)
        if found is None:
            missing = missing_fields(row)
            raise InvalidInput(
                f"row {number} does not say what the model is: {', '.join(missing)} is missing",
                field=_field(number, missing[0]),
                allowed="an architecture, the columns of LTS's logs, or those of HW-GPT-Bench",
            )
        architectures.append(found)
        logs.append(_log_perplexity(number, row, quality))
    return Trained(tuple(architectures), Shapes.of(architectures), np.array(logs))


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
    found = None if value is None else log_perplexity(column, value)
    if value is not None and found is None:
        raise InvalidInput(
            f"a quality law is about perplexity, which {column} is not",
            field="quality",
            value=column,
            allowed="a column of perplexities (…ppl, …perplexity), losses (…loss) or bpc",
        )
    if found is None or not math.isfinite(found):
        raise InvalidInput(
            f"row {number}: {column} is {row.get(column)!r}, not a finite number above 0",
            field=_field(number, column),
            value=str(row.get(column)),
            allowed="a finite number above 0",
        )
    return found


def _field(number: int, name: str) -> str:
    return f"rows.{number}.{name}" if name else f"rows.{number}"
