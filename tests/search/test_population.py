"""Coded genomes are those that a space itself makes, and their shapes those of the architectures."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from edgefront.core.architectures.catalogue import BERT, HYBRID, LFM, LLAMA, LTS_GPT2, PAR_32, SRUPP, spaces
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.models import named_model
from edgefront.core.architectures.neighbourhood import space_around
from edgefront.core.architectures.space import SearchSpace
from edgefront.core.search.population_shapes import PopulationShapes

pytestmark = pytest.mark.slow

FREE: dict[str, Any] = {"div": [1, 2, 4], "d_embed": ["d_model", 128, 512]}
SPACES = [
    *spaces().values(),
    LTS_GPT2.narrow({**FREE, "d_model": [128, 192, 512], "n_layer": [2, 5]}),
    PAR_32.narrow({"n_head": [2, 8], "d_inner": [512, 4096], "d_model": [128, 512], "min_attention_percent": [0, 50]}),
    PAR_32.narrow({"kind": ["attention", "feed_forward"], "n_block": [3, 6]}),
    SRUPP.narrow({**FREE, "n_layer": [2, 3], "min_attention_percent": [0, 10, 60, 100]}),
    BERT.narrow({"kind": ["feed_forward", "identity"], "min_attention_percent": 0}),
    HYBRID.narrow({"kind": ["srupp", "identity"], "min_attention_percent": 40, "attends": ["none", "self"]}),
    HYBRID.narrow({**FREE, "min_mixing_percent": [0, 80], "attends": "none", "n_block": {"max": 8}}),
    LLAMA.narrow({"layers": ["own", "alike"], "min_attention_percent": [0, 40, 100], "d_head": [32, 64]}),
    LLAMA.narrow({"output": ["tied", "untied"], "vocab_size": [8192, 49_152], "n_head": 0, "min_attention_percent": 0}),
    LLAMA.narrow({"d_inner": [0, 256], "n_head": [0, 2, 3], "n_kv_head": [1, 2], "n_layer": [1, 5]}),
    LFM.narrow({"layers": "alike", "min_attention_percent": [0, 60], "n_layer": [1, 3]}),
    space_around(named_model("smollm2-135m").architecture, "llama"),
    space_around(named_model("lfm2-350m").architecture, "lfm").narrow({"n_layer": {"max": 10}}),
]
ENDING = [
    LTS_GPT2.narrow({"n_layer": 2, "d_model": [128, 192], "n_head": 2, "d_inner": [512, 1024]}),
    PAR_32.narrow({"n_block": 4}),
    HYBRID.narrow({"d_model": 128, "n_head": 4, "d_inner": 512, "n_block": 2, "attn_ratio": 4}),
    LLAMA.narrow({"d_model": 128, "n_layer": [1, 2], "n_head": [0, 2], "n_kv_head": [1, 2], "d_inner": [0, 256]}),
    LFM.narrow({"d_model": 128, "n_layer": [2], "n_head": [4], "n_kv_head": [2, 4], "d_inner": [256, 512]}),
]


def same(left: Shapes, right: Shapes) -> bool:
    arrays = [(getattr(left, field.name), getattr(right, field.name)) for field in fields(Shapes)]
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in arrays)


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
def test_every_row_is_a_genome_that_its_space_would_make(space: SearchSpace) -> None:
    rng = np.random.default_rng(5)
    operators = space.operators
    first, second = operators.sample(25, rng), operators.sample(25, rng)
    made = np.concatenate([first, operators.mutate(first, rng, 0.3), operators.cross(first, second, rng), first[::-1]])
    genomes = operators.decode(made)
    architectures = [space.architecture(genome) for genome in genomes]
    assert all(space.repair(genome) == genome for genome in genomes)
    assert all(space.contains(architecture) for architecture in architectures)
    assert same(PopulationShapes(space)(made), Shapes.of(architectures))
    assert np.array_equal(operators.encode(genomes), made)
    assert len(PopulationShapes(space)(made[:0])) == 0


@pytest.mark.parametrize("space", ENDING, ids=lambda space: space.name)
def test_samples_reach_every_architecture(space: SearchSpace) -> None:
    drawn = {space.architecture(genome).digest for genome in space.samples(40 * space.size(), np.random.default_rng(7))}
    assert drawn == {space.architecture(genome).digest for genome in space.enumerate()}


def test_parents_are_kept_and_crossed_place_by_place() -> None:
    rng = np.random.default_rng(8)
    operators = HYBRID.operators
    first, second = operators.sample(50, rng), operators.sample(50, rng)
    assert np.array_equal(operators.mutate(first, rng, 0.0), first)
    assert np.array_equal(operators.cross(first, second, rng, 0.0), first)
    assert np.array_equal(operators.cross(first, second, rng, 1.0), second)
    widths = [gene.name for gene in HYBRID.gene_list].index("d_model")
    child = operators.cross(first, second, rng)
    assert np.all((child[:, widths] == first[:, widths]) | (child[:, widths] == second[:, widths]))
    assert 0.1 < (operators.mutate(first, rng, 0.3) != first).mean() < 0.3
