"""Computes the `Shapes` of coded genomes by table lookup, without building an architecture for each genome.

The first table has the few distinct blocks of the space for each d_model. The second table has the rest of a model for
each combination of d_model and embedding. Both tables are computed once, from architectures that the space builds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.block import Attention, Block, FeedForward
from edgefront.core.architectures.cost.shapes import BLOCK_COLUMNS, DERIVED, Shapes
from edgefront.core.architectures.operators.base import NO_BLOCK, Codes
from edgefront.core.architectures.space import Genome, SearchSpace

_FACTORS = np.random.Generator(np.random.PCG64(0)).integers(
    1 << 63, size=(2 + len(BLOCK_COLUMNS), 1024), dtype=np.uint64
) * np.uint64(2) + np.uint64(1)


def identity(shapes: Shapes) -> NDArray[np.uint64]:
    """(n,) hash of each architecture of a space; a collision has a probability of 10⁻¹².

    The hash is a sum of products with fixed odd numbers modulo 2⁶⁴, so it is the same on every platform.
    """
    keys = np.zeros(len(shapes), dtype=np.uint64)
    # Embedding parameters distinguish vocabularies, and tied from untied heads.
    columns = (shapes.d_model, shapes.d_embed, shapes.div, shapes.embedding_parameters)
    for factor, column in zip(_FACTORS[0], columns, strict=False):
        keys += column.astype(np.uint64) * factor
    grids = [getattr(shapes, name) for name in BLOCK_COLUMNS if name not in ("kind", *DERIVED)]
    for factors, grid in zip(_FACTORS[1:], [shapes.kind + 1, *grids], strict=False):
        keys += (grid.astype(np.uint64) * factors[: grid.shape[1]]).sum(axis=1, dtype=np.uint64)
    return keys


class PopulationShapes:
    """Table of one space that maps coded genomes to `Shapes`."""

    def __init__(self, space: SearchSpace) -> None:
        self._space, self._operators = space, space.operators

    def of_genomes(self, genomes: Sequence[Genome]) -> Shapes:
        """Returns the same as `Shapes.of` of the architectures of these genomes."""
        return self(self._operators.encode(genomes))

    def __call__(self, codes: Codes) -> Shapes:
        """Returns the same as `Shapes.of` of the architectures of these coded genomes."""
        blocks = self._operators.block_numbers(codes)
        longest = int((blocks != NO_BLOCK).sum(axis=1).max(initial=0))
        blocks = blocks[:, :longest]
        none = len(self._operators.blocks)
        at = self._codes("d_model", codes)[:, None] * (none + 1) + np.where(blocks == NO_BLOCK, none, blocks)
        table = self._block_table
        grids = {name: getattr(table, name).ravel()[at] for name in BLOCK_COLUMNS}
        # Position parameters that attention blocks share exist only in models with an attention block.
        attended = (grids["kind"] == 0).any(axis=1)
        ends, frames = self._ends_with, self._codes("d_model", codes)  # each genome's row in `_ends`
        for name in self._operators.embedding_genes:
            frames = frames * len(self._operators.genes[name].values) + self._codes(name, codes)
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
            embedding_weights=ends.embedding_weights[frames],
            source_embedding_weights=ends.source_embedding_weights[frames],
            pooled=ends.pooled[frames],
            causal=ends.causal[frames],
            **grids,
        )

    @cached_property
    def _block_table(self) -> Shapes:
        """Shapes of every block, with a row for each d_model and a column for each block. The final column means no
        block; blocks that do not fit d_model are empty.
        """
        rows = [self._blocks_of(int(width)) for width in self._operators.genes["d_model"].values]
        return Shapes.concatenate(rows)

    def _blocks_of(self, width: int) -> Shapes:
        """The row of `_block_table` for this d_model."""
        first_ends = {name: self._operators.genes[name].values[0] for name in self._operators.embedding_genes}
        alone, number = [], []
        for index, (kind, values) in enumerate(self._operators.blocks):
            block = self._operators.block(kind, width, values)
            if block is not None:
                alone.append(self._space.build({"d_model": width, **first_ends}, [block]))
                number.append(index)
        block_shapes = Shapes.of(alone)
        empty = len(self._operators.blocks) + 1

        def row(values: NDArray[Any], padding: int) -> NDArray[Any]:
            filled = np.full((1, empty), padding, dtype=values.dtype)
            filled[0, number] = values[:, 0]
            return filled

        return Shapes(
            **{name: getattr(block_shapes, name)[:1] for name in _ENDS},
            **{name: row(getattr(block_shapes, name), -1 if name == "kind" else 0) for name in BLOCK_COLUMNS},
        )

    # Embedding and output head ------------------------------------------------------------------------------------

    def _codes(self, name: str, codes: Codes) -> NDArray[np.int64]:
        """(n,) codes of a gene that has one value per model."""
        return codes[:, self._operators.columns[name].start].astype(np.int64)

    @cached_property
    def _ends_with(self) -> Shapes:
        """Shapes of models with one attention block, a row for each combination of d_model, embedding and head."""
        return self._ends(Attention(n_head=1))

    @cached_property
    def _ends_without(self) -> Shapes:
        return self._ends(FeedForward(d_inner=1))

    def _ends(self, block: Block) -> Shapes:
        every = product(*(self._operators.genes[name].values for name in ("d_model", *self._operators.embedding_genes)))
        genomes = [dict(zip(("d_model", *self._operators.embedding_genes), values, strict=True)) for values in every]
        return Shapes.of([self._space.build(genome, [block]) for genome in genomes])


_ENDS = (
    *("d_model", "d_embed", "div", "vocab_size", "embedding_parameters", "position_parameters"),
    *("decoder_parameters", "output_weights", "embedding_weights", "source_embedding_weights", "pooled", "causal"),
)
