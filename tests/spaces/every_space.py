"""What the tests of every space share: random narrowings, and what they check of a genome."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import reject
from hypothesis import strategies as st

from edgefront.core.architectures.catalogue import spaces
from edgefront.core.architectures.gene import VOCABULARY_GENES
from edgefront.core.architectures.layers import LayeredSpace
from edgefront.core.architectures.space import Genome, SearchSpace
from edgefront.core.common.errors import SpaceError

SPACES = tuple(spaces().values())
seeds = st.integers(0, 2**32 - 1)


def freed(space: SearchSpace) -> SearchSpace:
    """The space with every value that a job may ask for."""
    return space.narrow({gene.name: list(gene.options) for gene in space.gene_list})


FREED = {space.name: freed(space) for space in SPACES}


@st.composite
def narrowings(draw: st.DrawFn, space: SearchSpace) -> SearchSpace:
    """This space, some of its genes narrowed at random to something that leaves an architecture."""
    genes = draw(st.lists(st.sampled_from([gene.name for gene in space.gene_list]), unique=True))
    changes = {
        name: draw(st.lists(st.sampled_from(space.gene(name).options), min_size=1, max_size=6, unique=True))
        for name in genes
    }
    return narrowed_or_rejected(space, changes)


@st.composite
def narrowed_spaces(draw: st.DrawFn) -> SearchSpace:
    """Any space, narrowed at random; every second one of them with every value that there is to begin with."""
    space = draw(st.sampled_from(SPACES))
    return draw(narrowings(draw(st.sampled_from([space, FREED[space.name]]))))


SHORT = {"n_layer", "n_block"}


@st.composite
def tiny_spaces(draw: st.DrawFn, most: int) -> SearchSpace:
    """A space narrowed so far that it holds at most so many architectures."""
    space = draw(st.sampled_from(SPACES))
    changes = {}
    for gene in space.gene_list:
        values = gene.options[:3] if gene.name in SHORT else gene.options
        if isinstance(space, LayeredSpace):
            # They have more genes than others: else hardly any part of them would be tiny.
            values = gene.options[:2] if gene.name in VOCABULARY_GENES or gene.name == "n_layer" else gene.options[:5]
        size = 3 if gene.name == "kind" else 2
        changes[gene.name] = draw(st.lists(st.sampled_from(values), min_size=1, max_size=size, unique=True))
    tiny = narrowed_or_rejected(space, changes)
    return tiny if tiny.size() <= most else reject()


def narrowed_or_rejected(space: SearchSpace, changes: dict[str, Any]) -> SearchSpace:
    try:
        return space.narrow(changes)
    except SpaceError:
        reject()


def respects_genes(space: SearchSpace, genome: Genome) -> bool:
    """Whether every place of the genome, those of hidden layers too, holds a value that it may hold."""
    return set(genome) == {gene.name for gene in space.gene_list} and space.repair(genome) == genome


def all_respect_genes(space: SearchSpace, genomes: Sequence[Genome]) -> list[bool]:
    """The same for many genomes at once."""
    repaired = space.operators.decode(space.operators.encode(genomes))
    return [genome == nearest for genome, nearest in zip(genomes, repaired, strict=True)]
