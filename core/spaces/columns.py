"""Turns genomes into columns of numbers, by which a person compares candidates gene by gene."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from edgefront.core.spaces.gene import Gene
from edgefront.core.spaces.kinds import GENES, MIN_ATTENTION, MIN_MIXING
from edgefront.core.spaces.space import Genome, SearchSpace

FLOORS = (MIN_ATTENTION, MIN_MIXING)
"""Genes that no architecture shows: they limit others."""
DEPTHS = ("n_layer", "n_block")
OF_ATTENTION = ("n_kv_head", "window")


@dataclass(frozen=True)
class Column:
    """One number for each genome."""

    name: str
    """The gene's name, or `gene=word` for a gene per layer whose values are words."""
    title: str
    values: tuple[float, ...]
    words: tuple[str, ...] = ()
    """The words that 0, 1, … stand for, if the gene's values are words."""


def gene_columns(space: SearchSpace, genomes: Sequence[Genome]) -> list[Column]:
    """The columns in which the genomes differ, each once (`d_embed` may follow `d_model` in all of them).

    A gene per layer counts in the layers that an architecture shows: as its mean, or, if its values are words, as one
    column for each word with the percentage of layers that have it.
    """
    by_values: dict[tuple[float, ...], Column] = {}
    for gene in space.gene_list:
        for column in _columns(gene, genomes) if gene.name not in FLOORS else ():
            by_values.setdefault(column.values, column)
    return [column for values, column in by_values.items() if len(set(values)) > 1]


def _columns(gene: Gene, genomes: Sequence[Genome]) -> Iterator[Column]:
    words = tuple(str(value) for value in gene.values if isinstance(value, str))
    if not gene.per_layer:
        read = [_whole(genome, gene.name) for genome in genomes]
        if all(isinstance(value, int) for value in read):
            yield Column(gene.name, gene.name, tuple(map(float, read)))
        else:
            categories = tuple(sorted({*words, *map(str, read)}))
            yield Column(gene.name, gene.name, tuple(float(categories.index(str(value))) for value in read), categories)
        return
    shown = [_shown(genome, gene.name) for genome in genomes]
    if not words:
        yield Column(gene.name, f"{gene.name} (mean)", tuple(_mean(values) for values in shown))
        return
    # The share of the last word follows from those of the others.
    for word in words[:-1] if len(words) == len(gene.values) else words:
        shares = tuple(_mean([100.0 * (value == word) for value in values]) for values in shown)
        yield Column(f"{gene.name}={word}", f"{gene.name} {word} (% of layers)", shares)


def _whole(genome: Genome, name: str) -> Any:
    """The value of a gene of the whole model. If it names another gene, whose value it takes, that gene's value."""
    value = genome[name]
    return genome[value] if isinstance(value, str) and value in genome else value


def _shown(genome: Genome, name: str) -> list[Any]:
    """The values in the layers whose block has them."""
    depth = next((genome[gene] for gene in DEPTHS if gene in genome), None)
    values: list[Any] = genome[name][:depth]
    kinds, mixers, heads = (genome.get(gene) for gene in ("kind", "mixer", "n_head"))
    if kinds is not None and name != "kind":
        return [value for value, kind in zip(values, kinds, strict=False) if name in GENES.get(kind, ())]
    if name in OF_ATTENTION and mixers is not None:
        return [value for value, mixer in zip(values, mixers, strict=False) if mixer == "attention"]
    if name in OF_ATTENTION and isinstance(heads, list):
        return [value for value, head in zip(values, heads, strict=False) if head]
    return values


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
