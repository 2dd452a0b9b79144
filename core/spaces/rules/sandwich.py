"""The rules of Sandwich Transformers (`core.spaces.sandwich`): the coefficient is below the number of pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgefront.core.spaces.gene import Gene, Value
from edgefront.core.spaces.pattern import expand, sandwich_pattern
from edgefront.core.spaces.rules.base import NO_BLOCK, Genes, NumberedBlock, Rules
from edgefront.core.spaces.rules.table import Codes, Floats, Mask, Table


class SandwichGenes(Genes, Protocol):
    def coefficients(self, pairs: int) -> tuple[int, ...]: ...


class SandwichRules(Rules):
    """Attention first, feed-forward last, pairs between, all of one width."""

    def __init__(self, space: SandwichGenes, foreign: Mapping[str, Sequence[Value]] | None = None) -> None:
        super().__init__(space, foreign)
        self._sandwich = space

    def assign(self, gene: Gene, codes: Codes, proposed: Codes, draws: Floats) -> None:
        if gene.name != "coefficient":
            return super().assign(gene, codes, proposed, draws)
        pairs = codes[:, self.columns["pairs"]]
        codes[:, self.columns["coefficient"]] = self._coefficients.assigned(pairs, proposed, draws)
        return None

    @cached_property
    def _coefficients(self) -> Table:
        """Permitted coefficients by the code of pairs."""
        pairs = map(int, self.genes["pairs"].values)
        return self.table("coefficient", [self._sandwich.coefficients(number) for number in pairs])

    @cached_property
    def blocks(self) -> list[NumberedBlock]:
        return self.of_kinds(("attention", "feed_forward"))

    def block_numbers(self, codes: Codes) -> NDArray[np.int64]:
        is_attention, is_block = self._patterns
        pairs, coefficient, n_head, d_inner = (
            codes[:, self.columns[name]].astype(np.int64) for name in ("pairs", "coefficient", "n_head", "d_inner")
        )
        rows = (pairs * len(self.genes["coefficient"].values) + coefficient)[:, 0]
        d_inner += len(self.genes["n_head"].values)
        return np.where(is_block[rows], np.where(is_attention[rows], n_head, d_inner), NO_BLOCK)

    @cached_property
    def _patterns(self) -> tuple[Mask, Mask]:
        """For each pairs and coefficient which places hold attention, and which hold a block."""
        every = list(product(self.genes["pairs"].values, self.genes["coefficient"].values))
        longest = 2 * max(int(pairs) for pairs, _ in every)
        letters = [
            list(expand(sandwich_pattern(int(pairs), int(k))) if int(k) < int(pairs) else "") for pairs, k in every
        ]
        padded = np.array([row + [""] * (longest - len(row)) for row in letters])
        return padded == "s", padded != ""
