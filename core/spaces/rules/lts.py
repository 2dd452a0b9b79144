"""The rules of spaces of layers that have an attention and a feed-forward block each (`core.spaces.lts`)."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from edgefront.core.spaces.rules.base import NO_BLOCK, NumberedBlock, Rules
from edgefront.core.spaces.rules.table import Codes


class LtsRules(Rules):
    """Rules in which the permitted n_head and d_inner of each layer depend on d_model."""

    @cached_property
    def blocks(self) -> list[NumberedBlock]:
        return self.of_kinds(("attention", "feed_forward"))

    def block_numbers(self, codes: Codes) -> NDArray[np.int64]:
        blocks = np.empty((len(codes), self.depth, 2), dtype=np.int64)
        blocks[:, :, 0] = codes[:, self.columns["n_head"]]
        blocks[:, :, 1] = codes[:, self.columns["d_inner"]] + len(self.genes["n_head"].values)
        blocks[np.arange(self.depth) >= self.numbers("n_layer", codes)] = NO_BLOCK
        return blocks.reshape(len(codes), 2 * self.depth)
