"""The rules of a space that is a list: one gene, whose values are its members."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgefront.core.spaces.rules.base import NumberedBlock, Rules
from edgefront.core.spaces.rules.table import Codes


class ListRules(Rules):
    """Every value of the gene is permitted; no two members have blocks in common."""

    _by_width = frozenset()

    @property
    def blocks(self) -> list[NumberedBlock]:
        return []

    def block_numbers(self, codes: Codes) -> NDArray[np.int64]:
        return np.zeros((len(codes), 0), dtype=np.int64)
