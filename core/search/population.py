"""Many genomes at once: matrices of codes, a row a genome, a column a place.

A code is the index of a value among its gene's. Everything random is done as `SearchSpace` does it, for all rows
together: places are settled in the order in which a space draws them, each drawn from what it may hold given the ones
before, kept, or moved to the nearest that is permitted. Every row is thus a genome that its space would make, and
`space.repair` leaves it as it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.cost.shapes import Shapes
from edgefront.core.search.population_layers import LayerRules
from edgefront.core.search.population_rules import DRAW, Codes, Rule, rule
from edgefront.core.search.population_shapes import Layout, layout_of
from edgefront.core.spaces.block_stack import MIN_ATTENTION, MIN_MIXING, StackSpace
from edgefront.core.spaces.gene import Gene, Value
from edgefront.core.spaces.kinds import IDENTITY, Choice, MinimumShare, choices
from edgefront.core.spaces.layers import MAX_MUTATION_RATE, LayeredSpace
from edgefront.core.spaces.space import Genome, SearchSpace

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Population:
    """Genomes of a space as codes. Columns are the genes in their order, those of a gene per layer side by side."""

    space: SearchSpace

    def sample(self, count: int, rng: np.random.Generator) -> Codes:
        """So many genomes, each place uniform over what it may hold; or neighbours of the space's model."""
        if isinstance(self.space, LayeredSpace) and self.space.seed is not None:
            model = np.repeat(self.encode([self.space.seed]), count, axis=0)
            return self.mutate(model, rng, self.probabilities(count, rng, MAX_MUTATION_RATE))
        return self._settled(np.full((count, self.places), DRAW, dtype=np.int16, order="F"), rng)

    def probabilities(self, count: int, rng: np.random.Generator, boldest: float) -> Floats:
        """(count, 1) of mutation, from one place in all to the boldest, uniform in their logarithm."""
        timid = math.log(min(boldest, 1.0 / self.places))
        return np.exp(rng.uniform(timid, math.log(boldest), size=(count, 1)))

    def mutate(self, codes: Codes, rng: np.random.Generator, probability: float | Floats) -> Codes:
        """Copies in which each place is drawn again with this probability; the others stay or are repaired.

        A column of probabilities, (n, 1), gives each row its own; so for `cross`.
        """
        fresh = rng.random(codes.shape) < probability
        return self._settled(np.where(fresh, np.int16(DRAW), codes), rng)

    def cross(self, one: Codes, two: Codes, rng: np.random.Generator, probability: float | Floats = 0.5) -> Codes:
        """Children of the pairs of rows: each place from `two` with this probability, else from `one`, repaired."""
        return self._settled(np.where(rng.random(one.shape) < probability, two, one), rng)

    def encode(self, genomes: Sequence[Genome]) -> Codes:
        """The codes of genomes of this space, or of the nearest that it permits."""
        codes = np.empty((len(genomes), self.places), dtype=np.int16)
        for gene in self.space.gene_list:
            known = {value: code for code, value in enumerate(gene.values)}
            for row, genome in enumerate(genomes):
                value = genome[gene.name]
                codes[row, self._columns[gene.name]] = [known[one] for one in value] if gene.per_layer else known[value]
        return self._settled(codes, None)

    def decode(self, codes: Codes) -> list[Genome]:
        """The genomes that the rows stand for."""
        read = {gene.name: self._values[gene.name][codes[:, self._columns[gene.name]]] for gene in self.space.gene_list}
        return [
            {
                gene.name: read[gene.name][row].tolist() if gene.per_layer else read[gene.name][row, 0]
                for gene in self.space.gene_list
            }
            for row in range(len(codes))
        ]

    def shapes(self, codes: Codes) -> Shapes:
        """The architectures of the rows, as `Shapes.of` gives them."""
        return self._layout.shapes({name: codes[:, columns] for name, columns in self._columns.items()})

    @cached_property
    def places(self) -> int:
        """Columns of the matrix."""
        return sum(self._span(gene) for gene in self.space.gene_list)

    # Settling ----------------------------------------------------------------------------------------------------

    def _settled(self, wanted: Codes, rng: np.random.Generator | None) -> Codes:
        """`wanted` with its places drawn where it says so, and repaired elsewhere."""
        # Column by column in memory, as they are settled.
        draws = np.zeros(wanted.shape) if rng is None else rng.random(wanted.shape[::-1]).T
        codes = np.empty_like(wanted, order="F")
        for gene in self.space.gene_list:
            columns = self._columns[gene.name]
            if isinstance(self.space, StackSpace) and gene.name == "kind":
                self._settle_kinds(codes, wanted, draws)
            elif isinstance(self.space, StackSpace) and gene.name == "attends":
                self._settle_attends(codes, wanted, draws)
            elif self._layers is not None and gene.per_layer:
                self._layers.settle(gene.name, codes, wanted[:, columns], draws[:, columns])
            else:
                one = self._rules[gene.name]
                before = None if one.parent is None else codes[:, self._columns[one.parent]]
                codes[:, columns] = one.settled(before, wanted[:, columns], draws[:, columns])
        return codes

    def _settle_kinds(self, codes: Codes, wanted: Codes, draws: NDArray[np.float64]) -> None:
        """As `StackSpace` draws kinds: from the last block back, each of those with which the floor can be met."""
        start, kinds = self._columns["kind"].start, self._kinds
        depth = self._read(codes, self._stack.depth_gene)
        rows = len(codes)
        blocks, attention_layers, mixing = (np.zeros(rows, dtype=np.int16) for _ in range(3))
        for layer in reversed(range(self.space.depth)):
            visible = layer < depth
            # What the block adds to the length is 0 or 1, so the floor has one of two heights.
            least = [
                [self._least(codes, floor, blocks + np.int16(more + layer)) - layer for more in (0, 1)]
                for floor in (MIN_ATTENTION, MIN_MIXING)
            ]
            allowed = np.empty((len(kinds.block), rows), dtype=bool)
            for code, more in enumerate(kinds.block.astype(int)):
                holds = attention_layers + kinds.attend[code] >= least[0][more]
                holds &= mixing + kinds.mix[code] >= least[1][more]
                if not more and not layer:
                    holds &= blocks > 0
                allowed[code] = holds | ~visible
            chosen = _chosen(allowed, wanted[:, start + layer], draws[:, start + layer])
            codes[:, start + layer] = chosen
            blocks += kinds.block[chosen] & visible
            attention_layers += kinds.attend[chosen] & visible
            mixing += kinds.mix[chosen] & visible

    def _settle_attends(self, codes: Codes, wanted: Codes, draws: NDArray[np.float64]) -> None:
        """As `StackSpace` draws what SRU++ attends to: in order; the last ones attend where the floor needs them."""
        start, kinds = self._columns["attends"].start, self._kinds
        visible = np.arange(self.space.depth) < self._read(codes, self._stack.depth_gene)[:, None]
        kind = codes[:, self._columns["kind"]]
        srupp = visible & kinds.srupp[kind]
        length = (visible & kinds.block[kind]).sum(axis=1)
        attention_layers = (visible & kinds.attention[kind]).sum(axis=1) + srupp.sum(axis=1)
        least = self._least(codes, MIN_ATTENTION, length)
        does = np.array([value != "none" for value in self.space.gene("attends").values])
        for layer in range(self.space.depth):
            here = srupp[:, layer]
            attention_layers -= here
            free = ~here | (attention_layers >= least)
            allowed = np.stack([np.ones_like(free) if attends else free for attends in does])
            chosen = _chosen(allowed, wanted[:, start + layer], draws[:, start + layer])
            codes[:, start + layer] = chosen
            attention_layers += here & does[chosen]

    def _least(self, codes: Codes, gene: str, length: NDArray[Any]) -> NDArray[np.int16]:
        """The floor's number for stacks of so many blocks (`kinds.MinimumShare`)."""
        if gene not in self._columns:
            return np.zeros(len(length), dtype=np.int16)
        numbers: NDArray[np.int16] = self._floors[gene][codes[:, self._columns[gene].start], length]
        return numbers

    @cached_property
    def _floors(self) -> dict[str, NDArray[np.int16]]:
        """For each gene of the floor: least number of blocks by the gene's code and the stack's length."""
        return {
            name: np.array(
                [
                    [MinimumShare(int(percent), 0).attention(length) for length in range(self.space.depth + 1)]
                    for percent in self.space.gene(name).values
                ],
                dtype=np.int16,
            )
            for name in (MIN_ATTENTION, MIN_MIXING)
            if name in self._columns
        }

    def _read(self, codes: Codes, gene: str) -> NDArray[np.int64]:
        """The numbers that a gene of the whole model has."""
        numbers = np.array([int(value) for value in self.space.gene(gene).values], dtype=np.int64)
        return numbers[codes[:, self._columns[gene].start]]

    # What follows from the space -----------------------------------------------------------------------------------

    def _span(self, gene: Gene) -> int:
        return self.space.depth if gene.per_layer else 1

    @cached_property
    def _columns(self) -> dict[str, slice]:
        found, start = {}, 0
        for gene in self.space.gene_list:
            found[gene.name] = slice(start, start + self._span(gene))
            start += self._span(gene)
        return found

    @cached_property
    def _values(self) -> dict[str, NDArray[np.object_]]:
        return {gene.name: np.array(gene.values, dtype=object) for gene in self.space.gene_list}

    @cached_property
    def _rules(self) -> dict[str, Rule]:
        ruled = [gene for gene in self.space.gene_list if self._layers is None or not gene.per_layer]
        return {gene.name: rule(self.space, gene) for gene in ruled}

    @cached_property
    def _layers(self) -> LayerRules | None:
        return LayerRules(self.space, self._columns) if isinstance(self.space, LayeredSpace) else None

    @cached_property
    def _layout(self) -> Layout:
        return layout_of(self.space)

    @property
    def _stack(self) -> StackSpace:
        assert isinstance(self.space, StackSpace)
        return self.space

    @cached_property
    def _kinds(self) -> _Kinds:
        names = [gene.name for gene in self.space.gene_list]
        attends = self.space.gene("attends").values if "attends" in names else ()
        return _Kinds.of(self.space.gene("kind").values, choices(self.space.gene("kind").values, attends))


@dataclass(frozen=True)
class _Kinds:
    """What a block of each kind counts as, by its code."""

    block: NDArray[np.bool_]
    attend: NDArray[np.bool_]
    """Whether it can attend to other tokens."""
    mix: NDArray[np.bool_]
    """Whether it sees other tokens."""
    attention: NDArray[np.bool_]
    srupp: NDArray[np.bool_]

    @classmethod
    def of(cls, kinds: Sequence[Value], every: Sequence[Choice]) -> _Kinds:
        able = {choice.kind for choice in every if choice.sees == "attention"}
        seeing = {choice.kind for choice in every if choice.sees != "pointwise"}
        return cls(
            *(
                np.array([kind in some for kind in kinds])
                for some in (set(kinds) - {IDENTITY}, able, seeing, {"attention"}, {"srupp"})
            )
        )


def _chosen(allowed: NDArray[np.bool_], wanted: Codes, draws: NDArray[np.float64]) -> NDArray[np.int16]:
    """Of (values, n): for each column the wanted code, or the first allowed one; a uniform one where it is drawn."""
    rank = np.where(wanted == DRAW, (draws * allowed.sum(axis=0)).astype(np.int16), 0)
    chosen = np.full(len(wanted), len(allowed) - 1, dtype=np.int16)
    kept = np.zeros(len(wanted), dtype=bool)
    seen = np.zeros(len(wanted), dtype=np.int16)
    for code, here in enumerate(allowed):
        chosen[here & (seen == rank)] = code
        kept |= here & (wanted == code)
        seen += here
    return np.where(kept, wanted, chosen)
