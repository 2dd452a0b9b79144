"""Settles the layers of coded genomes of a `LayeredSpace`, many genomes at once, as the space settles each."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from edgefront.core.search.population_rules import Codes, Rule, table
from edgefront.core.spaces.block_stack import MIN_ATTENTION
from edgefront.core.spaces.layers import UNIFORM, UNIFORM_GENES, LayeredSpace

Mask = NDArray[np.bool_]


class LayerRules:
    """The rules of the genes that are per layer; `columns` says where the codes of each gene are."""

    def __init__(self, space: LayeredSpace, columns: Mapping[str, slice]) -> None:
        self._space, self._columns = space, columns

    def settle(self, name: str, codes: Codes, wanted: Codes, draws: NDArray[np.float64]) -> None:
        """Settles the columns of a gene, those before it being settled."""
        space, alike = self._space, self._alike(codes)
        columns = self._columns[name]
        if name == space.deciding:
            codes[:, columns] = self._decided(codes, wanted, draws)
        elif name == "n_kv_head":
            heads = codes[:, self._columns["n_head"]]
            codes[:, columns] = self._groups.settled(heads, wanted, draws)
        elif name == "d_inner":
            codes[:, columns] = self._inner.settled(self._may_lack(codes).astype(np.int16), wanted, draws)
        else:
            codes[:, columns] = self._free(name).settled(None, wanted, draws)
        if name in UNIFORM_GENES:
            codes[:, columns] = np.where(alike, codes[:, columns][:, :1], codes[:, columns])

    def _decided(self, codes: Codes, wanted: Codes, draws: NDArray[np.float64]) -> Codes:
        """Whether layers attend, in their order: one may do without as long as the floor can still be met."""
        depth = self._numbers("n_layer", codes)
        room = depth - self._least(codes, depth)
        if self._space.deciding in UNIFORM_GENES:
            room = np.where(self._alike(codes)[:, 0] & (room < depth), 0, room)
        found = np.empty_like(wanted)
        for layer in range(self._space.depth):
            visible = layer < depth
            may_skip = (room > 0) | ~visible
            found[:, layer] = self._attention.settled(may_skip.astype(np.int16), wanted[:, layer], draws[:, layer])
            room = room - (visible & ~self._attending[found[:, layer]])
        return found

    def _may_lack(self, codes: Codes) -> Mask:
        """(n, depth) whether a layer may have no feed-forward: it has a mixer, as has the next, if there is one."""
        depth = self._numbers("n_layer", codes)[:, None]
        layer = np.arange(self._space.depth)
        mixed = self._attending[codes[:, self._columns[self._space.deciding]]] | (self._space.deciding == "mixer")
        following = np.concatenate([mixed[:, 1:], np.ones((len(codes), 1), dtype=bool)], axis=1)
        found: Mask = (layer >= depth) | (mixed & (following | (layer + 1 == depth)))
        return found

    def _least(self, codes: Codes, depth: NDArray[np.int64]) -> NDArray[np.int64]:
        """(n,) how many layers attend at least."""
        if MIN_ATTENTION not in self._columns:
            return np.zeros(len(codes), dtype=np.int64)
        percents = [int(one) for one in self._space.gene(MIN_ATTENTION).values]
        known = np.array([[self._space.floor(n, one) for n in range(self._space.depth + 1)] for one in percents])
        found: NDArray[np.int64] = known[codes[:, self._columns[MIN_ATTENTION].start], depth]
        return found

    def _alike(self, codes: Codes) -> Mask:
        """(n, 1) whether all layers have the widths of the first."""
        if "layers" not in self._columns:
            return np.zeros((len(codes), 1), dtype=bool)
        is_alike = np.array([value == UNIFORM for value in self._space.gene("layers").values])
        return is_alike[codes[:, self._columns["layers"]]]

    def _numbers(self, name: str, codes: Codes) -> NDArray[np.int64]:
        values = np.array([int(value) for value in self._space.gene(name).values], dtype=np.int64)
        return values[codes[:, self._columns[name].start]]

    def _free(self, name: str) -> Rule:
        gene = self._space.gene(name)
        return table(gene, None, [gene.values])

    @cached_property
    def _attending(self) -> Mask:
        """Whether a value of the deciding gene means attention, by its code."""
        gene, able = self._space.gene(self._space.deciding), self._space.can_attend
        return np.array([value in able for value in gene.values])

    @cached_property
    def _attention(self) -> Rule:
        gene = self._space.gene(self._space.deciding)
        return table(gene, None, [self._space.attending_values, gene.values])

    @cached_property
    def _groups(self) -> Rule:
        heads = self._space.gene("n_head").values
        return table(self._space.gene("n_kv_head"), None, [self._space.groups_of(int(number)) for number in heads])

    @cached_property
    def _inner(self) -> Rule:
        gene = self._space.gene("d_inner")
        return table(gene, None, [self._space.inner_values, gene.values])
