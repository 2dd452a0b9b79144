"""Which blocks coded genomes stand for, and the `Shapes` of their architectures.

Within a space a block is one of few for each d_model, and everything but the blocks follows from d_model and the
embedding. Both are taken from architectures that the space's frame builds, and looked up.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.cost.shapes import GRIDS, Shapes
from edgefront.core.errors import InvalidInput
from edgefront.core.spaces.base_space import FramedSpace
from edgefront.core.spaces.block import Attention, Block, FeedForward
from edgefront.core.spaces.block_stack import StackSpace
from edgefront.core.spaces.gene import Value
from edgefront.core.spaces.kinds import GENES, IDENTITY, block_of
from edgefront.core.spaces.layers import ATTENTION, SHORT_CONV, LayeredSpace
from edgefront.core.spaces.lts import LtsSpace
from edgefront.core.spaces.pattern import expand, sandwich_pattern
from edgefront.core.spaces.sandwich import SandwichSpace
from edgefront.core.spaces.space import Genome, Locus, SearchSpace

Columns = Mapping[str, NDArray[np.int16]]
"""Gene → (n, layers) or (n, 1) codes of its values."""

_NONE = -1
"""Where there is no block."""


_FACTORS = np.random.Generator(np.random.PCG64(0)).integers(
    1 << 63, size=(2 + len(GRIDS), 1024), dtype=np.uint64
) * np.uint64(2) + np.uint64(1)


def identity(shapes: Shapes) -> NDArray[np.uint64]:
    """(n,) a number for each architecture of a space: equal where the architectures are, else not (to 1 in 10¹²).

    A sum of products with fixed odd numbers, modulo 2⁶⁴: the same on every platform.
    """
    keys = np.zeros(len(shapes), dtype=np.uint64)
    # Embedding parameters tell vocabularies apart, and whether the output is tied.
    columns = (shapes.d_model, shapes.d_embed, shapes.div, shapes.embedding_parameters)
    for factor, column in zip(_FACTORS[0], columns, strict=False):
        keys += column.astype(np.uint64) * factor
    grids = [getattr(shapes, name) for name in GRIDS if name not in ("kind", "parameters")]
    for factors, grid in zip(_FACTORS[1:], [shapes.kind + 1, *grids], strict=False):
        keys += (grid.astype(np.uint64) * factors[: grid.shape[1]]).sum(axis=1, dtype=np.uint64)
    return keys


def layout_of(space: SearchSpace) -> Layout:
    """How this space's genomes are read. `InvalidInput` for a space of no known kind."""
    for kind, layout in _LAYOUTS:
        if isinstance(space, kind):
            made: Layout = layout(space)
            return made
    raise InvalidInput(f"the space {space.name} cannot be searched by prediction", field="name", value=space.name)


class Layout(ABC):
    """The blocks of a space's genomes by number: one for each kind and its values."""

    def __init__(self, space: FramedSpace) -> None:
        self.space = space
        self.genes = {gene.name: gene for gene in space.gene_list}

    def shapes(self, codes: Columns) -> Shapes:
        """The architectures of the rows, as `Shapes.of` gives them."""
        blocks = self.numbers(codes)
        longest = int((blocks != _NONE).sum(axis=1).max(initial=0))
        blocks = blocks[:, :longest]
        at = codes["d_model"].astype(np.int64) * (len(self.blocks) + 1) + np.where(
            blocks == _NONE, len(self.blocks), blocks
        )
        table = self._block_table
        grids = {name: getattr(table, name).ravel()[at] for name in GRIDS}
        # Positions that the attention blocks share exist where there is one.
        attended = (grids["kind"] == 0).any(axis=1)
        ends, frames = self._ends_with, self._frames(codes)
        without = self._ends_without
        return Shapes(
            d_model=ends.d_model[frames],
            d_embed=ends.d_embed[frames],
            div=ends.div[frames],
            vocab_size=ends.vocab_size[frames],
            embedding_parameters=ends.embedding_parameters[frames],
            position_parameters=np.where(
                attended, ends.position_parameters[frames], without.position_parameters[frames]
            ),
            decoder_parameters=(ends.decoder_parameters - ends.parameters.sum(axis=1))[frames]
            + grids["parameters"].sum(axis=1),
            output_weights=ends.output_weights[frames],
            **grids,
        )

    @property
    @abstractmethod
    def blocks(self) -> list[tuple[str, dict[str, Value]]]:
        """(kind, values of its genes) of each block, by its number."""

    @abstractmethod
    def numbers(self, codes: Columns) -> NDArray[np.int64]:
        """(n, places) numbers of the blocks in their order, `_NONE` behind them."""

    def block(self, kind: str, width: int, values: Mapping[str, Any]) -> Block:
        """A block of `blocks` at this width."""
        return block_of(kind, width, values)

    def fits(self, width: int, values: Mapping[str, Value]) -> bool:
        """Whether a block of these values goes with this width."""
        return all(
            value in self.space.permitted(Locus(self.genes[name]), {"d_model": width})
            for name, value in values.items()
            if name in ("n_head", "d_inner", "attn_ratio")
        )

    def of_kinds(self, kinds: Iterable[str]) -> list[tuple[str, dict[str, Value]]]:
        """Every block of these kinds, as its genes' values follow each other."""
        return [
            (kind, dict(zip(GENES[kind], values, strict=True)))
            for kind in kinds
            for values in product(*(self.genes[name].values for name in GENES[kind]))
        ]

    @cached_property
    def _block_table(self) -> Shapes:
        """Rows d_model, columns the numbers of blocks and one for none; blocks that do not go with d_model are none."""
        rows = [self._blocks_of(int(width)) for width in self.genes["d_model"].values]
        return Shapes.concatenate(rows)

    def _blocks_of(self, width: int) -> Shapes:
        """One row: every block at this width."""
        alone, number = [], []
        for index, (kind, values) in enumerate(self.blocks):
            if self.fits(width, values):
                alone.append(self.space.build(self._first_ends(width), [self.block(kind, width, values)]))
                number.append(index)
        known = Shapes.of(alone)
        empty = len(self.blocks) + 1

        def row(values: NDArray[Any], padding: int) -> NDArray[Any]:
            filled = np.full((1, empty), padding, dtype=values.dtype)
            filled[0, number] = values[:, 0]
            return filled

        return Shapes(
            **{name: getattr(known, name)[:1] for name in _ENDS},
            **{name: row(getattr(known, name), -1 if name == "kind" else 0) for name in GRIDS},
        )

    # What is no block ---------------------------------------------------------------------------------------------

    def _frames(self, codes: Columns) -> NDArray[np.int64]:
        """The row of `_ends` that each genome has."""
        rows = codes["d_model"][:, 0].astype(np.int64)
        for name in self._end_genes:
            rows = rows * len(self.genes[name].values) + codes[name][:, 0]
        return rows

    @cached_property
    def _end_genes(self) -> tuple[str, ...]:
        """The genes, beside d_model, of what is no block."""
        return tuple(name for name in ("d_embed", "div", "vocab_size", "output") if name in self.genes)

    def _first_ends(self, width: int) -> Genome:
        return {"d_model": width, **{name: self.genes[name].values[0] for name in self._end_genes}}

    @cached_property
    def _ends_with(self) -> Shapes:
        """A model of one attention block for each d_model and its ends."""
        return self._ends(Attention(n_head=1))

    @cached_property
    def _ends_without(self) -> Shapes:
        return self._ends(FeedForward(d_inner=1))

    def _ends(self, block: Block) -> Shapes:
        every = product(*(self.genes[name].values for name in ("d_model", *self._end_genes)))
        genomes = [dict(zip(("d_model", *self._end_genes), values, strict=True)) for values in every]
        return Shapes.of([self.space.build(genome, [block]) for genome in genomes])


_ENDS = (
    *("d_model", "d_embed", "div", "vocab_size", "embedding_parameters", "position_parameters"),
    *("decoder_parameters", "output_weights"),
)


class _Pairs(Layout):
    """An attention and a feed-forward block in each layer."""

    @cached_property
    def blocks(self) -> list[tuple[str, dict[str, Value]]]:
        return self.of_kinds(("attention", "feed_forward"))

    def numbers(self, codes: Columns) -> NDArray[np.int64]:
        layers = np.array(self.genes["n_layer"].values, dtype=np.int64)[codes["n_layer"]]
        found = np.empty((len(layers), self.space.depth, 2), dtype=np.int64)
        found[:, :, 0] = codes["n_head"]
        found[:, :, 1] = codes["d_inner"] + len(self.genes["n_head"].values)
        found[np.arange(self.space.depth) >= layers] = _NONE
        return found.reshape(len(layers), 2 * self.space.depth)


class _Stack(Layout):
    """A block of any kind in each place, or none."""

    @cached_property
    def blocks(self) -> list[tuple[str, dict[str, Value]]]:
        return self.of_kinds(self._kinds)

    @cached_property
    def _kinds(self) -> list[str]:
        return [str(kind) for kind in self.genes["kind"].values if kind != IDENTITY]

    def numbers(self, codes: Columns) -> NDArray[np.int64]:
        assert isinstance(self.space, StackSpace)
        depth = np.array(self.genes[self.space.depth_gene].values, dtype=np.int64)[codes[self.space.depth_gene]]
        kind = codes["kind"]
        found = np.full(kind.shape, _NONE, dtype=np.int64)
        start = 0
        for code, name in enumerate(map(str, self.genes["kind"].values)):
            if name == IDENTITY:
                continue
            number: Any = 0
            size = 1
            for gene in GENES[name]:
                values = len(self.genes[gene].values)
                number, size = number * values + codes[gene].astype(np.int64), size * values
            found = np.where(kind == code, start + number, found)
            start += size
        found[np.arange(kind.shape[1]) >= depth] = _NONE
        return _gathered(found)


class _Sandwich(Layout):
    """Attention first, feed-forward last, pairs between, all of one width."""

    @cached_property
    def blocks(self) -> list[tuple[str, dict[str, Value]]]:
        return self.of_kinds(("attention", "feed_forward"))

    def numbers(self, codes: Columns) -> NDArray[np.int64]:
        is_attention, is_block = self._patterns
        rows = (codes["pairs"].astype(np.int64) * len(self.genes["coefficient"].values) + codes["coefficient"])[:, 0]
        inner = codes["d_inner"].astype(np.int64) + len(self.genes["n_head"].values)
        return np.where(is_block[rows], np.where(is_attention[rows], codes["n_head"], inner), _NONE)

    @cached_property
    def _patterns(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """For each pairs and coefficient which places hold attention, and which hold a block."""
        every = list(product(self.genes["pairs"].values, self.genes["coefficient"].values))
        longest = 2 * max(int(pairs) for pairs, _ in every)
        letters = [
            list(expand(sandwich_pattern(int(pairs), int(k))) if int(k) < int(pairs) else "") for pairs, k in every
        ]
        padded = np.array([row + [""] * (longest - len(row)) for row in letters])
        return padded == "s", padded != ""


class _Layers(Layout):
    """In each layer a mixer and a feed-forward block, or one of them."""

    @property
    def _space(self) -> LayeredSpace:
        assert isinstance(self.space, LayeredSpace)
        return self.space

    @cached_property
    def blocks(self) -> list[tuple[str, dict[str, Value]]]:
        attention = [dict(zip(self._widths, values, strict=True)) for values in product(*self._widths.values())]
        inner = [{"d_inner": value} for value in self.genes["d_inner"].values]
        return [
            *((ATTENTION, values) for values in attention),
            *(("feed_forward", values) for values in inner),
            (SHORT_CONV, {}),
        ]

    def block(self, kind: str, width: int, values: Mapping[str, Any]) -> Block:
        return self._space.block(kind, values)

    def fits(self, width: int, values: Mapping[str, Value]) -> bool:
        heads = values.get("n_head", 1)
        known = "n_kv_head" not in values or values["n_kv_head"] in self._space.groups_of(int(heads))
        return super().fits(width, values) and known and 0 not in (heads, values.get("d_inner"))

    def numbers(self, codes: Columns) -> NDArray[np.int64]:
        space, shape = self._space, (len(codes["d_model"]), self.space.depth)
        attention: Any = 0
        for name, values in self._widths.items():
            attention = attention * len(values) + codes[name].astype(np.int64)
        deciding = self.genes[space.deciding].values
        attends = np.array([value in space.can_attend for value in deciding])[codes[space.deciding]]
        convolution = len(self.blocks) - 1 if space.deciding == "mixer" else _NONE
        inner = np.array([bool(value) for value in self.genes["d_inner"].values])[codes["d_inner"]]
        first = len(self.blocks) - 1 - len(self.genes["d_inner"].values)
        found = np.empty((*shape, 2), dtype=np.int64)
        found[:, :, 0] = np.where(attends, attention, convolution)
        found[:, :, 1] = np.where(inner, first + codes["d_inner"], _NONE)
        layers = np.array(self.genes["n_layer"].values, dtype=np.int64)[codes["n_layer"]]
        found[np.arange(self.space.depth) >= layers] = _NONE
        return _gathered(found.reshape(shape[0], 2 * self.space.depth))

    @cached_property
    def _widths(self) -> dict[str, tuple[Value, ...]]:
        """The genes that say which attention it is, of those that the space has."""
        names = ("d_head", "n_head", "n_kv_head", "window")
        return {name: self.genes[name].values for name in names if name in self.genes}


_LAYOUTS: tuple[tuple[type[FramedSpace], type[Layout]], ...] = (
    (LtsSpace, _Pairs),
    (StackSpace, _Stack),
    (SandwichSpace, _Sandwich),
    (LayeredSpace, _Layers),
)


def _gathered(found: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows with what is no block behind the blocks."""
    there = found != _NONE
    gathered = np.full_like(found, _NONE)
    row, _ = np.nonzero(there)
    gathered[row, (there.cumsum(axis=1) - 1)[there]] = found[there]
    return gathered
