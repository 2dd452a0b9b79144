"""Operators of stacks of blocks (`core.architectures.block_stack`) with minimum shares of attention and mixing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.gene import (
    GENES,
    IDENTITY,
    MIN_ATTENTION,
    MIN_MIXING,
    Gene,
    MinimumShare,
    Value,
    choices,
)
from edgefront.core.architectures.operators.base import (
    NO_BLOCK,
    Codes,
    Floats,
    Genes,
    GenomeOperators,
    Mask,
    NumberedBlock,
    Table,
    gathered,
)


class StackGenes(Genes, Protocol):
    @property
    def depth_gene(self) -> str: ...


class StackOperators(GenomeOperators):
    """Operators of stacks. A kind of block is permitted if the unassigned blocks can still meet the minimum shares."""

    _space: StackGenes

    def assign(self, gene: Gene, codes: Codes, proposed: Codes, draws: Floats) -> None:
        if gene.name == "kind":
            self._assign_kinds(codes, proposed, draws)
        elif gene.name == "attends":
            self._assign_attends(codes, proposed, draws)
        else:
            super().assign(gene, codes, proposed, draws)

    def _assign_kinds(self, codes: Codes, proposed: Codes, draws: Floats) -> None:
        """Assigns kinds from the final block to the first, so that forced attention comes early (PAR §2.2)."""
        start, kinds = self.columns["kind"].start, self._kinds
        depth = self.numbers(self._space.depth_gene, codes)[:, 0]
        least_attention, least_mixing = (self._least(codes, share) for share in (MIN_ATTENTION, MIN_MIXING))
        rows = np.arange(len(codes))
        # Counts of the blocks after the current one.
        blocks, attention, mixing = (np.zeros(len(codes), dtype=np.int64) for _ in range(3))
        for layer in reversed(range(self.depth)):
            visible = layer < depth
            length = blocks + kinds.block[:, None]  # (kinds, n)
            allowed = attention + kinds.can_attend[:, None] + layer >= least_attention[rows, length + layer]
            allowed &= mixing + kinds.mixes[:, None] + layer >= least_mixing[rows, length + layer]
            if not layer:
                allowed &= length > 0
            allowed |= ~visible
            kind = self._subsets.assigned(self._bits @ allowed, proposed[:, layer], draws[:, layer])
            codes[:, start + layer] = kind
            blocks += kinds.block[kind] & visible
            attention += kinds.can_attend[kind] & visible
            mixing += kinds.mixes[kind] & visible

    def _assign_attends(self, codes: Codes, proposed: Codes, draws: Floats) -> None:
        """Assigns `attends` from the first SRU++ block on, so that forced attention comes late (SRU++ §5)."""
        start, kinds = self.columns["attends"].start, self._kinds
        visible = np.arange(self.depth) < self.numbers(self._space.depth_gene, codes)
        kind = codes[:, self.columns["kind"]]
        srupp = visible & kinds.srupp[kind]
        length = (visible & kinds.block[kind]).sum(axis=1)
        attention = (visible & kinds.attention[kind]).sum(axis=1) + srupp.sum(axis=1)
        least = self._least(codes, MIN_ATTENTION)[np.arange(len(codes)), length]
        attends = np.array([value != "none" for value in self.genes["attends"].values])
        for layer in range(self.depth):
            here = srupp[:, layer]
            attention -= here
            free = ~here | (attention >= least)
            value = self._attending.assigned(free.astype(np.int16), proposed[:, layer], draws[:, layer])
            codes[:, start + layer] = value
            attention += here & attends[value]

    def _least(self, codes: Codes, share: str) -> NDArray[np.int64]:
        """Minimum number of blocks for a `share`, (n, depth + 1): for n genomes and 0 to depth blocks in total."""
        if share not in self.columns:
            return np.zeros((len(codes), self.depth + 1), dtype=np.int64)
        return self._shares[share][codes[:, self.columns[share].start]]

    @cached_property
    def _subsets(self) -> Table:
        """Table with every set of kinds; the index of a set is the sum of 2ᵏ over the codes k of its kinds."""
        kinds = self.genes["kind"].values
        subsets = (
            [kind for kind, bit in zip(kinds, self._bits, strict=True) if index & bit]
            for index in range(1 << len(kinds))
        )
        return self.table("kind", [subset or kinds for subset in subsets])

    @cached_property
    def _bits(self) -> NDArray[np.int64]:
        return 1 << np.arange(len(self.genes["kind"].values))

    @cached_property
    def _attending(self) -> Table:
        """Values of `attends`: set 0 for an SRU++ block that must attend, set 1 for any other SRU++ block."""
        values = self.genes["attends"].values
        return self.table("attends", [[value for value in values if value != "none"] or values, values])

    @cached_property
    def _shares(self) -> dict[str, NDArray[np.int64]]:
        """Minimum-share gene → minimum number of blocks, as an array [code of the gene, length of the stack]."""
        return {
            name: np.array(
                [
                    [MinimumShare(int(percent), 0).attention(length) for length in range(self.depth + 1)]
                    for percent in self.genes[name].values
                ],
                dtype=np.int64,
            )
            for name in (MIN_ATTENTION, MIN_MIXING)
            if name in self.columns
        }

    @cached_property
    def _kinds(self) -> _Kinds:
        attends = self.genes["attends"].values if "attends" in self.genes else ()
        return _Kinds(self.genes["kind"].values, attends)

    # Blocks ------------------------------------------------------------------------------------------------------

    @cached_property
    def blocks(self) -> list[NumberedBlock]:
        return self.of_kinds(str(kind) for kind in self.genes["kind"].values if kind != IDENTITY)

    def block_numbers(self, codes: Codes) -> NDArray[np.int64]:
        kind = codes[:, self.columns["kind"]]
        blocks = np.full(kind.shape, NO_BLOCK, dtype=np.int64)
        start = 0
        for code, name in enumerate(map(str, self.genes["kind"].values)):
            if name == IDENTITY:
                continue
            number: Any = 0
            size = 1
            for gene in GENES[name]:
                values = len(self.genes[gene].values)
                number = number * values + codes[:, self.columns[gene]].astype(np.int64)
                size *= values
            blocks = np.where(kind == code, start + number, blocks)
            start += size
        blocks[np.arange(self.depth) >= self.numbers(self._space.depth_gene, codes)] = NO_BLOCK
        return gathered(blocks)


class _Kinds:
    """Properties of the kinds of blocks; each field is an array over the kinds' codes."""

    def __init__(self, kinds: Sequence[Value], attends: Sequence[Value]) -> None:
        every = choices(kinds, attends)
        self.block = self._among(kinds, set(kinds) - {IDENTITY})
        self.can_attend = self._among(kinds, {choice.kind for choice in every if choice.sees == "attention"})
        """Whether the kind can attend to other tokens."""
        self.mixes = self._among(kinds, {choice.kind for choice in every if choice.sees != "pointwise"})
        """Whether the kind sees other tokens."""
        self.attention, self.srupp = self._among(kinds, {"attention"}), self._among(kinds, {"srupp"})

    @staticmethod
    def _among(kinds: Sequence[Value], some: set[Any]) -> Mask:
        return np.array([kind in some for kind in kinds])
