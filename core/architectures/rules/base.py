"""The rules of a space: draws, repairs, mutates and crosses coded genomes, a row a genome, a column a place.

Places are settled in the order of the genes: each is drawn from what it may hold given those before it, kept, or moved
to the nearest value that is permitted. So every row is a genome of the space, and repairing it leaves it as it is.
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
"""Number of a block that is not there."""
NumberedBlock = tuple[str, dict[str, Value]]
"""Kind of a block, and the values of its genes."""
_WIDTHS = frozenset(name for names in WIDTHS.values() for name in names)


Codes = NDArray[np.int16]
"""(n, places): a row a genome; a code is the index of a value among its gene's."""
Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

DRAW = -1
"""Stands where a value is to be drawn."""


class Table:
    """Sets of values that the places of a gene may hold; which one applies follows from places settled before.

    Args:
        values: the gene's.
        foreign: values that genomes of elsewhere have, which are moved to the nearest; their codes follow the gene's.
        sets: the permitted values, none of them empty.
    """

    def __init__(self, values: Sequence[Value], foreign: Sequence[Value], sets: Sequence[Sequence[Value]]) -> None:
        code_of = {value: code for code, value in enumerate(values)}
        self._count = np.array([len(permitted) for permitted in sets])
        self._permitted = np.zeros((len(sets), len(values)), dtype=np.int16)
        self._nearest = np.empty((len(sets), len(values) + len(foreign)), dtype=np.int16)
        for row, permitted in enumerate(sets):
            self._permitted[row, : len(permitted)] = [code_of[value] for value in permitted]
            self._nearest[row] = [code_of[_nearest(permitted, value)] for value in (*values, *foreign)]

    def assigned(self, sets: NDArray[np.integer[Any]] | int, proposed: Codes, draws: Floats) -> Codes:
        """(n, m) for each place its wanted code or the nearest permitted one, and a uniform one where it is drawn.

        Args:
            sets: index of the set that applies: for all, for each row, (n, 1), or for each place, (n, m).
            draws: (n, m) uniform numbers from [0, 1).
        """
        drawn = self._permitted[sets, (draws * self._count[sets]).astype(np.int16)]
        codes: Codes = np.where(proposed == DRAW, drawn, self._nearest[sets, proposed])
        return codes


def _nearest(permitted: Sequence[Value], value: Value) -> Value:
    """The permitted value nearest to this one, the smaller of two; the first one if it is no number."""
    if value in permitted:
        return value
    numbers = [item for item in permitted if isinstance(item, int)]
    if not isinstance(value, int) or not numbers:
        return permitted[0]
    return min(numbers, key=lambda item: (abs(item - value), item))


class Genes(Protocol):
    """What rules ask of their space."""

    @property
    def gene_list(self) -> tuple[Gene, ...]: ...
    @property
    def depth(self) -> int: ...
    def values_with(self, name: str, d_model: int) -> tuple[Value, ...]:
        """The values of a gene that go with this d_model."""
        ...


class Rules(ABC):
    """The rules of one space. Columns are the genes in their order, those of a gene per layer side by side.

    The values of a gene depend on d_model alone unless a subclass says otherwise in `assign`.

    Args:
        foreign: values of genes that the space does not have, for genomes that come from another one.
    """

    def __init__(self, space: Genes, foreign: Mapping[str, Sequence[Value]] | None = None) -> None:
        self._space, self._foreign = space, foreign or {}
        self.genes = {gene.name: gene for gene in space.gene_list}
        self.depth = space.depth
        self.columns: dict[str, slice] = {}
        self.places = 0
        """Columns of the matrix."""
        for gene in space.gene_list:
            span = self.depth if gene.per_layer else 1
            self.columns[gene.name] = slice(self.places, self.places + span)
            self.places += span

    # What a search does ------------------------------------------------------------------------------------------

    def sample(self, count: int, rng: np.random.Generator) -> Codes:
        """So many genomes, each place uniform over what it may hold given those before it (LTS §3)."""
        return self._assigned(np.full((count, self.places), DRAW, dtype=np.int16, order="F"), rng)

    def mutate(self, codes: Codes, rng: np.random.Generator, probability: float | Floats) -> Codes:
        """Copies in which each place is drawn again with this probability; the others stay or are repaired.

        A column of probabilities, (n, 1), gives each row its own; so for `cross`.
        """
        fresh = rng.random(codes.shape) < probability
        return self._assigned(np.where(fresh, np.int16(DRAW), codes), rng)

    def cross(self, first: Codes, second: Codes, rng: np.random.Generator, probability: float | Floats = 0.5) -> Codes:
        """Children of the pairs of rows by uniform crossover, repaired: each place from `second` with this
        probability, else from `first`.
        """
        return self._assigned(np.where(rng.random(first.shape) < probability, second, first), rng)

    def repair(self, codes: Codes) -> Codes:
        """The nearest genomes of the space: each value that is not permitted moves to the nearest that is."""
        return self._assigned(codes, None)

    def probabilities(self, count: int, rng: np.random.Generator, largest: float) -> Floats:
        """(count, 1) of mutation, from one place in all to the largest, uniform in their logarithm."""
        smallest = math.log(min(largest, 1.0 / self.places))
        return np.exp(rng.uniform(smallest, math.log(largest), size=(count, 1)))

    # Genomes -----------------------------------------------------------------------------------------------------

    def encode(self, genomes: Sequence[Mapping[str, Any]]) -> Codes:
        """The codes of these genomes, or of the nearest that the space permits."""
        foreign = self._foreign_values(genomes)
        rules = type(self)(self._space, foreign) if foreign else self
        return rules.repair(rules._coded(genomes))

    def decode(self, codes: Codes) -> list[dict[str, Any]]:
        """The genomes that the rows stand for."""
        read = {name: self._values[name][codes[:, columns]].tolist() for name, columns in self.columns.items()}
        per_layer = [(name, gene.per_layer) for name, gene in self.genes.items()]
        return [
            {name: read[name][row] if layered else read[name][row][0] for name, layered in per_layer}
            for row in range(len(codes))
        ]

    def _coded(self, genomes: Sequence[Mapping[str, Any]]) -> Codes:
        codes = np.empty((len(genomes), self.places), dtype=np.int16)
        for name, columns in self.columns.items():
            code_of = {
                value: code for code, value in enumerate((*self.genes[name].values, *self._foreign.get(name, ())))
            }
            for row, genome in enumerate(genomes):
                codes[row, columns] = [code_of[value] for value in self._read(genome, name)]
        return codes

    def _foreign_values(self, genomes: Sequence[Mapping[str, Any]]) -> dict[str, list[Value]]:
        foreign_values = {}
        for name, gene in self.genes.items():
            held = dict.fromkeys(value for genome in genomes for value in self._read(genome, name))
            if foreign := [value for value in held if value not in gene.values]:
                foreign_values[name] = foreign
        return foreign_values

    def _read(self, genome: Mapping[str, Any], name: str) -> Sequence[Value]:
        """The values of a gene, one a column; a genome of a deeper space has more."""
        values: Sequence[Value] = genome[name][: self.depth] if self.genes[name].per_layer else (genome[name],)
        return values

    # Assigning ----------------------------------------------------------------------------------------------------

    def assign(self, gene: Gene, codes: Codes, proposed: Codes, draws: Floats) -> None:
        """Fills the columns of a gene in `codes`, those of the genes before it being filled.

        Args:
            proposed: (n, columns of the gene) the codes that it should have where they are permitted, or `DRAW`.
            draws: (n, columns of the gene) uniform numbers from [0, 1).
        """
        by_width = gene.name in self._by_width
        sets = codes[:, self.columns["d_model"]] if by_width else 0
        codes[:, self.columns[gene.name]] = self._tables[gene.name].assigned(sets, proposed, draws)

    def table(self, name: str, sets: Iterable[Sequence[Value]]) -> Table:
        """A table of a gene with these sets of permitted values."""
        return Table(self.genes[name].values, self._foreign.get(name, ()), list(sets))

    def numbers(self, name: str, codes: Codes) -> NDArray[np.int64]:
        """(n, columns of the gene) the numbers that its codes stand for."""
        return self._numbers[name][codes[:, self.columns[name]]]

    def _assigned(self, proposed: Codes, rng: np.random.Generator | None) -> Codes:
        """`proposed` with its places drawn where it says `DRAW`, and repaired elsewhere."""
        # Column by column in memory, as they are assigned.
        draws = np.zeros(proposed.shape) if rng is None else rng.random(proposed.shape[::-1]).T
        codes = np.empty_like(proposed, order="F")
        for name, columns in self.columns.items():
            self.assign(self.genes[name], codes, proposed[:, columns], draws[:, columns])
        return codes

    @cached_property
    def _by_width(self) -> frozenset[str]:
        """The genes whose values depend on d_model."""
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
    def ends(self) -> tuple[str, ...]:
        """The genes, beside d_model, of what is no block."""
        return tuple(name for name in ("d_embed", "div", "vocab_size", "output") if name in self.genes)

    @property
    @abstractmethod
    def blocks(self) -> list[NumberedBlock]:
        """Every block that an architecture of the space may have, by its number."""

    @abstractmethod
    def block_numbers(self, codes: Codes) -> NDArray[np.int64]:
        """(n, most blocks) numbers of the blocks of each architecture in their order, `NO_BLOCK` behind them."""

    def block(self, kind: str, d_model: int, values: Mapping[str, Any]) -> Block | None:
        """One of `blocks` in a model of this width; None where it does not go with it."""
        goes_with = all(
            value in self._space.values_with(name, d_model) for name, value in values.items() if name in _WIDTHS
        )
        return block_of(kind, d_model, values) if goes_with else None

    def of_kinds(self, kinds: Iterable[str]) -> list[NumberedBlock]:
        """Every block of these kinds, as its genes' values follow each other."""
        return [
            (kind, dict(zip(GENES[kind], values, strict=True)))
            for kind in kinds
            for values in product(*(self.genes[name].values for name in GENES[kind]))
        ]


def gathered(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows with what is no block behind the blocks."""
    there: Mask = numbers != NO_BLOCK
    packed = np.full_like(numbers, NO_BLOCK)
    row, _ = np.nonzero(there)
    packed[row, (there.cumsum(axis=1) - 1)[there]] = numbers[there]
    return packed


class ListRules(Rules):
    """Every value of the gene is permitted; no two members have blocks in common."""

    _by_width = frozenset()

    @property
    def blocks(self) -> list[NumberedBlock]:
        return []

    def block_numbers(self, codes: Codes) -> NDArray[np.int64]:
        return np.zeros((len(codes), 0), dtype=np.int64)


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
