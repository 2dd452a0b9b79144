"""Chooses among the values that a place of a coded genome may hold, for many genomes at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.spaces.gene import Value

Codes = NDArray[np.int16]
"""(n, places): a row a genome; a code is the index of a value among its gene's."""
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

DRAW = -1
"""Stands where a value is to be drawn."""


class Table:
    """Sets of values that the places of a gene may hold; which one applies follows from places settled before.

    Args:
        values: the gene's.
        foreign: values that genomes of elsewhere have, which are moved to the nearest; their codes follow the gene's.
        sets: the permitted values, none of them empty.
    """

    def __init__(self, values: Sequence[Value], foreign: Sequence[Value], sets: Sequence[Sequence[Value]]) -> None:
        code_of = {value: code for code, value in enumerate(values)}
        self._count = np.array([len(permitted) for permitted in sets])
        self._permitted = np.zeros((len(sets), len(values)), dtype=np.int16)
        self._nearest = np.empty((len(sets), len(values) + len(foreign)), dtype=np.int16)
        for row, permitted in enumerate(sets):
            self._permitted[row, : len(permitted)] = [code_of[value] for value in permitted]
            self._nearest[row] = [code_of[_nearest(permitted, value)] for value in (*values, *foreign)]

    def assigned(self, sets: NDArray[np.integer[Any]] | int, proposed: Codes, draws: Floats) -> Codes:
        """(n, m) for each place its wanted code or the nearest permitted one, and a uniform one where it is drawn.

        Args:
            sets: index of the set that applies: for all, for each row, (n, 1), or for each place, (n, m).
            draws: (n, m) uniform numbers from [0, 1).
        """
        drawn = self._permitted[sets, (draws * self._count[sets]).astype(np.int16)]
        codes: Codes = np.where(proposed == DRAW, drawn, self._nearest[sets, proposed])
        return codes


def _nearest(permitted: Sequence[Value], value: Value) -> Value:
    """The permitted value nearest to this one, the smaller of two; the first one if it is no number."""
    if value in permitted:
        return value
    numbers = [item for item in permitted if isinstance(item, int)]
    if not isinstance(value, int) or not numbers:
        return permitted[0]
    return min(numbers, key=lambda item: (abs(item - value), item))
