"""Samples, repairs, mutates and crosses genomes of a search space; each row of a matrix of codes is one genome.

Columns are assigned in the order of the genes; earlier columns decide which values are permitted. Each value is
sampled, kept, or moved to the nearest permitted value. So every row is a genome of the space, and repair does not
change the row.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.block import Block
from edgefront.core.architectures.gene import GENES, WIDTHS, Gene, Value, block_of

NO_BLOCK = -1
"""Number of an absent block."""
NumberedBlock = tuple[str, dict[str, Value]]
"""Kind of a block, and the values of its genes."""
_WIDTHS = frozenset(name for names in WIDTHS.values() for name in names)

Codes = NDArray[np.int16]
"""Array (n, n_columns) with one genome in each row; a code is the index of a value in its gene."""
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

RESAMPLE = -1
"""Code of a value to be sampled."""


class Table:
    """Sets of permitted values of one gene; the values of earlier columns decide which set applies.

    Args:
        values: values of the gene.
        sets: alternative sets of permitted values; no set is empty.
    """

    def __init__(self, values: Sequence[Value], sets: Sequence[Sequence[Value]]) -> None:
        code_of = {value: code for code, value in enumerate(values)}
        self._count = np.array([len(permitted) for permitted in sets])
        self._permitted = np.zeros((len(sets), len(values)), dtype=np.int16)
        self._nearest = np.empty((len(sets), len(values)), dtype=np.int16)
        for row, permitted in enumerate(sets):
            self._permitted[row, : len(permitted)] = [code_of[value] for value in permitted]
            self._nearest[row] = [code_of[_nearest(permitted, value)] for value in values]

    def assigned(self, sets: NDArray[np.integer[Any]] | int, proposed: Codes, draws: Floats) -> Codes:
        """Permitted codes nearest to the proposed codes, or uniformly sampled for `RESAMPLE`: n genomes, m columns.

        Args:
            sets: index of the set that applies: one for all, one per genome (n, 1), or one per code (n, m).
            draws: (n, m) uniform numbers from [0, 1).
        """
        sampled = self._permitted[sets, (draws * self._count[sets]).astype(np.int16)]
        codes: Codes = np.where(proposed == RESAMPLE, sampled, self._nearest[sets, proposed])
        return codes


def _nearest(permitted: Sequence[Value], value: Value) -> Value:
    """Nearest permitted value (the smaller of two); the first permitted value if `value` is not a number."""
    if value in permitted:
        return value
    numbers = [item for item in permitted if isinstance(item, int)]
    if not isinstance(value, int) or not numbers:
        return permitted[0]
    return min(numbers, key=lambda item: (abs(item - value), item))


class Genes(Protocol):
    """Properties of a search space that the operators read."""

    @property
    def gene_list(self) -> tuple[Gene, ...]: ...
    @property
    def depth(self) -> int: ...
    def values_with(self, name: str, d_model: int) -> tuple[Value, ...]:
        """Values of a gene that fit this d_model."""
        ...


class GenomeOperators(ABC):
    """Operators on the genomes of one space. A gene has one column, or one per layer if its values are per layer.

    The permitted values of a gene depend only on d_model unless a subclass overrides `assign`.
    """

    def __init__(self, space: Genes) -> None:
        self._space = space
        self.genes = {gene.name: gene for gene in space.gene_list}
        self.depth = space.depth
        self.columns: dict[str, slice] = {}
        self.n_columns = 0
        for gene in space.gene_list:
            span = self.depth if gene.per_layer else 1
            self.columns[gene.name] = slice(self.n_columns, self.n_columns + span)
            self.n_columns += span

    # Operators ---------------------------------------------------------------------------------------------------

    def sample(self, count: int, rng: np.random.Generator) -> Codes:
        """Samples `count` genomes, each value uniform over the values permitted given earlier values (LTS §3)."""
        return self._assigned(np.full((count, self.n_columns), RESAMPLE, dtype=np.int16, order="F"), rng)

    def mutate(self, codes: Codes, rng: np.random.Generator, probability: float | Floats) -> Codes:
        """Copies of `codes`; samples each value again with this probability, and keeps or repairs all other values.

        An array (n, 1) of probabilities has one probability for each row of `codes`.
        """
        resampled = rng.random(codes.shape) < probability
        return self._assigned(np.where(resampled, np.int16(RESAMPLE), codes), rng)

    def cross(self, first: Codes, second: Codes, rng: np.random.Generator, probability: float | Floats = 0.5) -> Codes:
        """Crosses each row of `first` with the same row of `second` and repairs the results: each value is from
        `second` with this probability, else from `first`.
        """
        return self._assigned(np.where(rng.random(first.shape) < probability, second, first), rng)

    def repair(self, codes: Codes) -> Codes:
        """Genomes of the space nearest to `codes`: each forbidden value moves to the nearest permitted value."""
        return self._assigned(codes, None)

    def probabilities(self, count: int, rng: np.random.Generator, largest: float) -> Floats:
        """Random mutation probabilities (count, 1) from 1 / n_columns to `largest`, log-uniformly distributed."""
        smallest = math.log(min(largest, 1.0 / self.n_columns))
        return np.exp(rng.uniform(smallest, math.log(largest), size=(count, 1)))

    # Genomes -----------------------------------------------------------------------------------------------------

    def encode(self, genomes: Sequence[Mapping[str, Any]]) -> Codes:
        """Codes of these genomes, one per row; a value that the space lacks becomes the gene's nearest value."""
        codes = np.empty((len(genomes), self.n_columns), dtype=np.int16)
        for name, columns in self.columns.items():
            values = self.genes[name].values
            code_of = {value: code for code, value in enumerate(values)}
            for row, genome in enumerate(genomes):
                read = self._read(genome, name)
                code_of |= {value: code_of[_nearest(values, value)] for value in read if value not in code_of}
                codes[row, columns] = [code_of[value] for value in read]
        return self.repair(codes)

    def decode(self, codes: Codes) -> list[dict[str, Any]]:
        """Genomes that the rows of `codes` encode."""
        read = {name: self._values[name][codes[:, columns]].tolist() for name, columns in self.columns.items()}
        per_layer = [(name, gene.per_layer) for name, gene in self.genes.items()]
        return [
            {name: read[name][row] if layered else read[name][row][0] for name, layered in per_layer}
            for row in range(len(codes))
        ]

    def _read(self, genome: Mapping[str, Any], name: str) -> Sequence[Value]:
        """Values of a gene, one per column; drops values of layers beyond this space's depth."""
        values: Sequence[Value] = genome[name][: self.depth] if self.genes[name].per_layer else (genome[name],)
        return values

    # Assigning ----------------------------------------------------------------------------------------------------

    def assign(self, gene: Gene, codes: Codes, proposed: Codes, draws: Floats) -> None:
        """Fills the columns of a gene in `codes`, after the columns of all earlier genes.

        Args:
            proposed: (n, columns of the gene) codes to use or to move to the nearest permitted code, or `RESAMPLE`.
            draws: (n, columns of the gene) uniform numbers from [0, 1).
        """
        by_width = gene.name in self._by_width
        sets = codes[:, self.columns["d_model"]] if by_width else 0
        codes[:, self.columns[gene.name]] = self._tables[gene.name].assigned(sets, proposed, draws)

    def table(self, name: str, sets: Iterable[Sequence[Value]]) -> Table:
        """Creates the `Table` of the gene `name` with these sets of permitted values."""
        return Table(self.genes[name].values, list(sets))

    def numbers(self, name: str, codes: Codes) -> NDArray[np.int64]:
        """Values of a gene's codes, (n, columns of the gene)."""
        return self._numbers[name][codes[:, self.columns[name]]]

    def _assigned(self, proposed: Codes, rng: np.random.Generator | None) -> Codes:
        """Returns `proposed` with forbidden codes replaced by the nearest permitted, and `RESAMPLE` by samples."""
        # Column-major, because values are assigned by column.
        draws = np.zeros(proposed.shape) if rng is None else rng.random(proposed.shape[::-1]).T
        codes = np.empty_like(proposed, order="F")
        for name, columns in self.columns.items():
            self.assign(self.genes[name], codes, proposed[:, columns], draws[:, columns])
        return codes

    @cached_property
    def _by_width(self) -> frozenset[str]:
        """Names of the genes whose permitted values depend on d_model."""
        names = list(self.genes)
        after = names[names.index("d_model") + 1 :]
        return frozenset(name for name in after if len({tuple(values) for values in self._with_widths(name)}) > 1)

    @cached_property
    def _tables(self) -> dict[str, Table]:
        return {
            name: self.table(name, self._with_widths(name) if name in self._by_width else [gene.values])
            for name, gene in self.genes.items()
        }

    def _with_widths(self, name: str) -> list[tuple[Value, ...]]:
        return [self._space.values_with(name, int(width)) for width in self.genes["d_model"].values]

    @cached_property
    def _values(self) -> dict[str, NDArray[np.object_]]:
        return {name: np.array(gene.values, dtype=object) for name, gene in self.genes.items()}

    @cached_property
    def _numbers(self) -> dict[str, NDArray[np.int64]]:
        return {
            name: np.array(gene.values, dtype=np.int64)
            for name, gene in self.genes.items()
            if all(isinstance(value, int) for value in gene.values)
        }

    # Blocks ------------------------------------------------------------------------------------------------------

    @property
    def embedding_genes(self) -> tuple[str, ...]:
        """Names of the genes of embedding and output layer, except d_model."""
        return tuple(name for name in ("d_embed", "div", "vocab_size", "output") if name in self.genes)

    @property
    @abstractmethod
    def blocks(self) -> list[NumberedBlock]:
        """Every block that an architecture of the space may have; the index in this list is the block's number."""

    @abstractmethod
    def block_numbers(self, codes: Codes) -> NDArray[np.int64]:
        """Block numbers of each architecture, in order, (architectures, most blocks); padded with `NO_BLOCK`."""

    def block(self, kind: str, d_model: int, values: Mapping[str, Any]) -> Block | None:
        """Builds a block in a model of this d_model; None if a value does not fit d_model."""
        fits = all(value in self._space.values_with(name, d_model) for name, value in values.items() if name in _WIDTHS)
        return block_of(kind, d_model, values) if fits else None

    def of_kinds(self, kinds: Iterable[str]) -> list[NumberedBlock]:
        """Every block of these kinds, one for each combination of gene values, in the order of the values."""
        return [
            (kind, dict(zip(GENES[kind], values, strict=True)))
            for kind in kinds
            for values in product(*(self.genes[name].values for name in GENES[kind]))
        ]


def gathered(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Moves the block numbers of each row to the front, and `NO_BLOCK` to the end."""
    present: Mask = numbers != NO_BLOCK
    packed = np.full_like(numbers, NO_BLOCK)
    row, _ = np.nonzero(present)
    packed[row, (present.cumsum(axis=1) - 1)[present]] = numbers[present]
    return packed


class ListOperators(GenomeOperators):
    """Operators of a space that is a list of unrelated models: the only gene chooses a model."""

    _by_width = frozenset()

    @property
    def blocks(self) -> list[NumberedBlock]:
        return []

    def block_numbers(self, codes: Codes) -> NDArray[np.int64]:
        return np.zeros((len(codes), 0), dtype=np.int64)


class LtsOperators(GenomeOperators):
    """Operators of the LTS spaces, in which the permitted n_head and d_inner of each layer depend on d_model."""

    @cached_property
    def blocks(self) -> list[NumberedBlock]:
        return self.of_kinds(("attention", "feed_forward"))

    def block_numbers(self, codes: Codes) -> NDArray[np.int64]:
        blocks = np.empty((len(codes), self.depth, 2), dtype=np.int64)
        blocks[:, :, 0] = codes[:, self.columns["n_head"]]
        blocks[:, :, 1] = codes[:, self.columns["d_inner"]] + len(self.genes["n_head"].values)
        blocks[np.arange(self.depth) >= self.numbers("n_layer", codes)] = NO_BLOCK
        return blocks.reshape(len(codes), 2 * self.depth)
