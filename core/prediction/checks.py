"""What every predictor refuses to learn from."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from edgefront.core.errors import InvalidInput

Floats = NDArray[np.float64]

MIN_ARCHITECTURES = 3
"""Different ones, below which nothing is predicted."""


def positive(name: str, values: ArrayLike, count: int) -> Floats:
    """(count,) finite numbers above zero; `InvalidInput` names the row that is not."""
    numbers = np.asarray(values, dtype=np.float64)
    if numbers.shape != (count,):
        raise InvalidInput(
            f"{name}: {count} architectures need as many values, not {numbers.shape}",
            field=name,
            value=list(numbers.shape),
            allowed=f"{count} numbers",
        )
    for row in np.flatnonzero(~(np.isfinite(numbers) & (numbers > 0)))[:1]:
        raise InvalidInput(
            f"{name}.{row}: must be a number above zero, not {numbers[row]}",
            field=f"{name}.{row}",
            value=float(numbers[row]),
            allowed="a finite number above zero",
        )
    return numbers


def enough_different(features: Floats) -> None:
    """`InvalidInput` where fewer than three rows differ, naming the last one that repeats another."""
    _, first = np.unique(features, axis=0, return_index=True)
    if len(first) >= MIN_ARCHITECTURES:
        return
    repeated = np.setdiff1d(np.arange(len(features)), first)
    row = int(repeated[-1]) if len(repeated) else max(0, len(features) - 1)
    why = f": row {row} is like one before it" if len(repeated) else ""
    raise InvalidInput(
        f"shapes: at least {MIN_ARCHITECTURES} different architectures are needed, not {len(first)}{why}",
        field=f"shapes.{row}",
        value=len(first),
        allowed=f"{MIN_ARCHITECTURES} or more",
    )
