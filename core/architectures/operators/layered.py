"""Operators of spaces of layers (`core.architectures.layers`). A layer is a mixer, a feed-forward block or both."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from itertools import product
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.block import Block
from edgefront.core.architectures.gene import (
    ATTENTION,
    MIN_ATTENTION,
    SHORT_CONV,
    UNIFORM,
    UNIFORM_GENES,
    Gene,
    MinimumShare,
    Value,
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

MAX_MUTATION_RATE = 0.5
"""Maximum mutation probability of neighbours of a model; the minimum is 1 / n_columns."""


class LayerGenes(Genes, Protocol):
    @property
    def deciding(self) -> str: ...
    @property
    def can_attend(self) -> frozenset[Value]: ...
    @property
    def attending_values(self) -> tuple[Value, ...]: ...
    @property
    def inner_values(self) -> tuple[Value, ...]: ...
    @property
    def seed(self) -> dict[str, Any] | None: ...
    def groups_of(self, n_head: int) -> tuple[int, ...]: ...
    def block(self, kind: str, values: Mapping[str, Any]) -> Block: ...


class LayerOperators(GenomeOperators):
    """Operators of spaces of layers. A layer may lack attention while the minimum share of attention can still be met,
    and may lack feed-forward if this and the next layer have a mixer.
    """

    _space: LayerGenes

    def sample(self, count: int, rng: np.random.Generator) -> Codes:
        """Samples genomes uniformly, or, in a search from a model, neighbours of this model at all distances."""
        if self._space.seed is None:
            return super().sample(count, rng)
        model = np.repeat(self.encode([self._space.seed]), count, axis=0)
        return self.mutate(model, rng, self.probabilities(count, rng, MAX_MUTATION_RATE))

    def assign(self, gene: Gene, codes: Codes, proposed: Codes, draws: Floats) -> None:
        name, columns = gene.name, self.columns[gene.name]
        if not gene.per_layer:
            super().assign(gene, codes, proposed, draws)
            return
        if name == self._space.deciding:
            codes[:, columns] = self._decided(codes, proposed, draws)
        elif name == "n_kv_head":
            codes[:, columns] = self._groups.assigned(codes[:, self.columns["n_head"]], proposed, draws)
        elif name == "d_inner":
            codes[:, columns] = self._inner.assigned(self._may_lack(codes).astype(np.int16), proposed, draws)
        else:
            super().assign(gene, codes, proposed, draws)
        if name in UNIFORM_GENES:
            codes[:, columns] = np.where(self._uniform(codes), codes[:, columns][:, :1], codes[:, columns])

    def _decided(self, codes: Codes, proposed: Codes, draws: Floats) -> Codes:
        """Codes of the gene that decides which layers attend, (n, depth) for n genomes."""
        depth = self.numbers("n_layer", codes)[:, 0]
        room = depth - self._least(codes, depth)
        if self._space.deciding in UNIFORM_GENES:
            room = np.where(self._uniform(codes)[:, 0] & (room < depth), 0, room)
        decided = np.empty_like(proposed)
        for layer in range(self.depth):
            visible = layer < depth
            may_skip = (room > 0) | ~visible
            decided[:, layer] = self._attention.assigned(may_skip.astype(np.int16), proposed[:, layer], draws[:, layer])
            room = room - (visible & ~self._attending[decided[:, layer]])
        return decided

    def _may_lack(self, codes: Codes) -> Mask:
        """Whether each layer may lack feed-forward, (n, depth): if this layer and the next (if any) have a mixer."""
        depth = self.numbers("n_layer", codes)
        layer = np.arange(self.depth)
        deciding = self._space.deciding
        mixed = self._attending[codes[:, self.columns[deciding]]] | (deciding == "mixer")
        following = np.concatenate([mixed[:, 1:], np.ones((len(codes), 1), dtype=bool)], axis=1)
        may_lack: Mask = (layer >= depth) | (mixed & (following | (layer + 1 == depth)))
        return may_lack

    def _least(self, codes: Codes, depth: NDArray[np.int64]) -> NDArray[np.int64]:
        """Minimum number of layers that attend, (n,), for genomes of `depth` layers, (n,)."""
        if MIN_ATTENTION not in self.columns:
            return np.zeros(len(codes), dtype=np.int64)
        least: NDArray[np.int64] = self._shares[codes[:, self.columns[MIN_ATTENTION].start], depth]
        return least

    def _uniform(self, codes: Codes) -> Mask:
        """Whether all layers of each genome must have the widths of its first layer, (n, 1)."""
        if "layers" not in self.columns:
            return np.zeros((len(codes), 1), dtype=bool)
        return np.array([value == UNIFORM for value in self.genes["layers"].values])[codes[:, self.columns["layers"]]]

    @cached_property
    def _shares(self) -> NDArray[np.int64]:
        """Minimum number of layers that attend, as an array [code of the minimum share, number of layers]."""
        percents = [int(percent) for percent in self.genes[MIN_ATTENTION].values]
        return np.array(
            [[MinimumShare(percent, 0).attention(n_layer) for n_layer in range(self.depth + 1)] for percent in percents]
        )

    @cached_property
    def _attending(self) -> Mask:
        """Array over the codes of the gene that decides which layers attend: whether the value means attention."""
        return np.array([value in self._space.can_attend for value in self.genes[self._space.deciding].values])

    @cached_property
    def _attention(self) -> Table:
        """Values of the deciding gene: set 0 for a layer that must attend, set 1 for a layer that need not attend."""
        name = self._space.deciding
        return self.table(name, [self._space.attending_values, self.genes[name].values])

    @cached_property
    def _groups(self) -> Table:
        """Permitted values of n_kv_head; the code of n_head is the index of the set."""
        return self.table("n_kv_head", [self._space.groups_of(int(n)) for n in self.genes["n_head"].values])

    @cached_property
    def _inner(self) -> Table:
        """Values of d_inner: set 0 for a layer that must have feed-forward, set 1 for a layer that may lack it."""
        return self.table("d_inner", [self._space.inner_values, self.genes["d_inner"].values])

    # Blocks ------------------------------------------------------------------------------------------------------

    @cached_property
    def blocks(self) -> list[NumberedBlock]:
        attention = [dict(zip(self._widths, values, strict=True)) for values in product(*self._widths.values())]
        return [
            *((ATTENTION, values) for values in attention),
            *(("feed_forward", {"d_inner": value}) for value in self.genes["d_inner"].values),
            (SHORT_CONV, {}),
        ]

    def block(self, kind: str, d_model: int, values: Mapping[str, Any]) -> Block | None:
        layers = self._space
        if kind == ATTENTION:
            n_head = values["n_head"]
            fits = n_head and n_head in layers.values_with("n_head", d_model)
            return layers.block(kind, values) if fits and values["n_kv_head"] in layers.groups_of(n_head) else None
        return None if values.get("d_inner") == 0 else layers.block(kind, values)

    def block_numbers(self, codes: Codes) -> NDArray[np.int64]:
        attention: Any = 0
        for name, values in self._widths.items():
            attention = attention * len(values) + codes[:, self.columns[name]].astype(np.int64)
        deciding = self._space.deciding
        attends = self._attending[codes[:, self.columns[deciding]]]
        convolution = len(self.blocks) - 1 if deciding == "mixer" else NO_BLOCK
        d_inner = codes[:, self.columns["d_inner"]]
        first = len(self.blocks) - 1 - len(self.genes["d_inner"].values)
        blocks = np.empty((len(codes), self.depth, 2), dtype=np.int64)
        blocks[:, :, 0] = np.where(attends, attention, convolution)
        blocks[:, :, 1] = np.where(self.numbers("d_inner", codes) > 0, first + d_inner, NO_BLOCK)
        blocks[np.arange(self.depth) >= self.numbers("n_layer", codes)] = NO_BLOCK
        return gathered(blocks.reshape(len(codes), 2 * self.depth))

    @cached_property
    def _widths(self) -> dict[str, tuple[Value, ...]]:
        """Gene → values, for the genes of attention that the space has."""
        names = ("d_head", "n_head", "n_kv_head", "window")
        return {name: self.genes[name].values for name in names if name in self.genes}
