"""Genomes as columns of numbers."""

from __future__ import annotations

import numpy as np
import pytest

from edgefront.core.spaces.catalogue import space, spaces
from edgefront.core.spaces.columns import FLOORS, gene_columns


def test_genes_of_the_model_and_means_over_the_layers_that_are_shown() -> None:
    small = {"n_layer": 1, "d_model": 128, "div": 1, "d_embed": "d_model", "n_head": [2, 8], "d_inner": [256, 999]}
    large = {"n_layer": 2, "d_model": 256, "div": 1, "d_embed": 128, "n_head": [2, 4], "d_inner": [512, 1024]}
    columns = gene_columns(space("lts-gpt2"), [small, large])
    assert {column.name: column.values for column in columns} == {
        "n_layer": (1.0, 2.0),
        "d_model": (128.0, 256.0),
        "n_head": (2.0, 3.0),
        "d_inner": (256.0, 768.0),
    }  # what is alike in all (div, d_embed) is no column
    assert [column.title for column in columns][2] == "n_head (mean)"


def test_words_are_shares_of_the_layers_and_a_gene_counts_where_the_block_has_it() -> None:
    genome = {"n_block": 2, "d_model": 256, "min_attention_percent": 0}
    values = {"n_head": [2, 4, 8], "d_inner": [64, 128, 256]}
    genome_with_values = {**genome, **values, "kind": ["attention", "feed_forward", "attention"]}
    other = {**genome, **values, "kind": ["feed_forward", "identity", "attention"]}
    columns = {column.name: column.values for column in gene_columns(space("bert"), [genome_with_values, other])}
    assert columns == {"kind=attention": (50.0, 0.0), "n_head": (2.0, 0.0), "d_inner": (128.0, 64.0)}


def test_a_word_of_the_whole_model_is_a_place_on_the_axis() -> None:
    llama = space("llama").narrow({"n_layer": [2], "output": ["tied", "untied"]})
    rng = np.random.default_rng(0)
    genomes = [llama.sample(rng) for _ in range(20)]
    (column,) = [gene_column for gene_column in gene_columns(llama, genomes) if gene_column.name == "output"]
    assert [column.words[int(value)] for value in column.values] == [genome["output"] for genome in genomes]


@pytest.mark.parametrize("name", spaces())
def test_every_space_has_columns(name: str) -> None:
    search_space = space(name)
    rng = np.random.default_rng(0)
    genomes = [search_space.sample(rng) for _ in range(30)]
    columns = gene_columns(search_space, genomes)
    assert columns
    assert {column.name.partition("=")[0] for column in columns} <= {gene.name for gene in search_space.gene_list} - {
        *FLOORS
    }
    for column in columns:
        assert len(column.values) == 30
        assert len(set(column.values)) > 1
