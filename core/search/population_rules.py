"""What a place of a coded genome may hold, as tables that settle many genomes at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgefront.core.spaces.gene import Gene, Value
from edgefront.core.spaces.space import Locus, SearchSpace

Codes = NDArray[np.int16]
"""(n, places) codes."""

DRAW = -1
"""Stands where a value is to be drawn."""


@dataclass(frozen=True)
class Rule:
    """What the places of a gene may hold, by the code of the gene that decides over it (one row without any)."""

    parent: str | None
    count: NDArray[np.int64]
    """(rows,) how many values are permitted."""
    permitted: NDArray[np.int16]
    """(rows, values) their codes, the first `count` of them."""
    nearest: NDArray[np.int16]
    """(rows, values) for every code the nearest that is permitted."""

    def settled(self, parent: Codes | None, wanted: Codes, draws: NDArray[np.float64]) -> Codes:
        rows = np.zeros((1, 1), dtype=np.int16) if parent is None else parent
        drawn = self.permitted[rows, (draws * self.count[rows]).astype(np.int16)]
        return np.where(wanted == DRAW, drawn, self.nearest[rows, wanted])


def rule(space: SearchSpace, gene: Gene) -> Rule:
    """The rule of a gene whose values depend on one gene of the whole model at most."""
    names = [one.name for one in space.gene_list]
    parent = "pairs" if gene.name == "coefficient" else "d_model"
    if names.index(gene.name) <= names.index(parent):
        return table(gene, None, [gene.values])
    locus = Locus(gene)
    return table(gene, parent, [space.permitted(locus, {parent: value}) for value in space.gene(parent).values])


def table(gene: Gene, parent: str | None, rows: Sequence[tuple[Value, ...]]) -> Rule:
    """A rule with these permitted values, a row for each code of the parent."""
    known = {value: code for code, value in enumerate(gene.values)}
    permitted = np.zeros((len(rows), len(gene.values)), dtype=np.int16)
    nearest = np.empty_like(permitted)
    for row, values in enumerate(rows):
        permitted[row, : len(values)] = [known[value] for value in values]
        nearest[row] = [known[_nearest(values, value)] for value in gene.values]
    return Rule(parent, np.array([len(values) for values in rows]), permitted, nearest)


def _nearest(allowed: tuple[Value, ...], value: Value) -> Value:
    """As `SearchSpace.repair` moves a value."""
    numbers = [item for item in allowed if isinstance(item, int)]
    if value in allowed or not isinstance(value, int) or not numbers:
        return value if value in allowed else allowed[0]
    return min(numbers, key=lambda item: (abs(item - value), item))
