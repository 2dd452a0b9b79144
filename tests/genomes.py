"""The places of a genome, one by one: what tests read and write."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgefront.core.architectures.gene import Gene, Value
from edgefront.core.architectures.space import Genome, SearchSpace


@dataclass(frozen=True)
class Place:
    """One place that holds one value: a gene, and the layer (from 0) of one that is per layer."""

    gene: Gene
    layer: int | None = None

    def read(self, genome: Genome) -> Value:
        value: Value = genome[self.gene.name] if self.layer is None else genome[self.gene.name][self.layer]
        return value

    def write(self, genome: Genome, value: Value) -> None:
        if self.layer is None:
            genome[self.gene.name] = value
        else:
            genome[self.gene.name][self.layer] = value


def places(space: SearchSpace) -> list[Place]:
    """Every place in the order in which values are drawn: the kinds of a stack from its last block on."""
    listed = []
    for gene in space.gene_list:
        layers = list(range(space.depth)) if gene.per_layer else [None]
        listed += [Place(gene, layer) for layer in (reversed(layers) if gene.name == "kind" else layers)]
    return listed


def blank(space: SearchSpace) -> Genome:
    """A genome with nothing in its places."""
    return {gene.name: [None] * space.depth if gene.per_layer else None for gene in space.gene_list}


def mutated(space: SearchSpace, genome: Genome, rng: np.random.Generator, probability: float) -> Genome:
    """A copy in which each place is drawn again with this probability; the others stay or are repaired."""
    return space.operators.decode(space.operators.mutate(space.operators.encode([genome]), rng, probability))[0]


def crossed(space: SearchSpace, a: Genome, b: Genome, rng: np.random.Generator, probability: float = 0.5) -> Genome:
    """Each place from `b` with this probability, else from `a`, then repaired."""
    return space.operators.decode(
        space.operators.cross(space.operators.encode([a]), space.operators.encode([b]), rng, probability)
    )[0]
