"""What holds for every space and every narrowing of it: nothing leaves it, and its size is exact."""

from __future__ import annotations

import json
from itertools import product
from math import prod

import numpy as np
import pytest
from every_space import FREED, SPACES, narrowed_spaces, narrowings, respects_genes, seeds, tiny_spaces
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgefront.core.errors import SpaceError
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.catalogue import space, spaces
from edgefront.core.spaces.space import Genome, Locus, SearchSpace

many = settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])


@given(narrowed_spaces(), seeds, st.floats(0, 1))
@many
def test_nothing_leaves_the_space(narrowed: SearchSpace, seed: int, probability: float) -> None:
    rng = np.random.default_rng(seed)
    a, b = narrowed.sample(rng), narrowed.sample(rng)
    mutant = narrowed.mutate(a, rng, probability)
    for genome in (a, b, mutant, narrowed.crossover(mutant, b, rng, probability), narrowed.repair(b)):
        assert respects_genes(narrowed, genome)
        architecture = narrowed.architecture(genome)
        assert narrowed.contains(architecture)
        assert Architecture.parse(architecture.canonical_json) == architecture
        assert "identity" not in {block.kind for block in architecture.blocks}
        assert json.loads(json.dumps(genome)) == genome


@given(narrowed_spaces(), seeds)
@many
def test_a_narrowed_space_is_part_of_the_whole(narrowed: SearchSpace, seed: int) -> None:
    whole = FREED[narrowed.name]
    assert whole.contains(narrowed.architecture(narrowed.sample(np.random.default_rng(seed))))
    assert 1 <= narrowed.size() <= whole.size()
    assert narrowed.name == whole.name
    assert narrowed.caveat == whole.caveat


@given(st.data(), seeds)
@many
def test_repair_brings_strangers_in_and_leaves_members_alone(data: st.DataObject, seed: int) -> None:
    """A genome of one narrowing is repaired into another: what a job's stored genomes never need, but mutants do."""
    whole = FREED[data.draw(st.sampled_from(SPACES)).name]
    home, away = data.draw(narrowings(whole)), data.draw(narrowings(whole))
    rng = np.random.default_rng(seed)
    member, stranger = home.sample(rng), away.sample(rng)
    assert home.repair(member) == member
    for locus in home.loci():
        if locus.layer is not None and locus.layer >= away.depth:
            stranger[locus.gene.name] = (stranger[locus.gene.name] * home.depth)[: home.depth]
    repaired = home.repair(stranger)
    assert respects_genes(home, repaired)
    assert home.contains(home.architecture(repaired))


@pytest.mark.slow
@given(tiny_spaces(most=300), seeds)
@many
def test_counting_agrees_with_walking_through(tiny: SearchSpace, seed: int) -> None:
    genomes = list(tiny.enumerate())
    architectures = [tiny.architecture(genome) for genome in genomes]
    walked = {architecture.digest for architecture in architectures}
    assert len(walked) == len(architectures) == tiny.size()
    assert all(tiny.contains(architecture) for architecture in architectures)
    assert all(respects_genes(tiny, genome) for genome in genomes)
    rng = np.random.default_rng(seed)
    assert {tiny.architecture(tiny.sample(rng)).digest for _ in range(20)} <= walked


@given(tiny_spaces(most=60))
@settings(parent=many, max_examples=60)
def test_walking_through_finds_whatever_a_genome_can_say(tiny: SearchSpace) -> None:
    """Against every genome there is: each place with each of its gene's values, those kept that the space permits."""
    loci = tiny.loci()
    if prod(len(locus.gene.values) for locus in loci) > 4096:
        return
    said = set()
    for values in product(*(locus.gene.values for locus in loci)):
        genome = blank(tiny)
        for locus, value in zip(loci, values, strict=True):
            locus.write(genome, value)
        if respects_genes(tiny, genome):
            said.add(tiny.architecture(genome).digest)
    assert said == {tiny.architecture(genome).digest for genome in tiny.enumerate()}


def blank(space: SearchSpace) -> Genome:
    return {gene.name: [None] * space.depth if gene.per_layer else None for gene in space.gene_list}


@given(st.sampled_from(SPACES), seeds)
@settings(max_examples=30)
def test_the_same_seed_draws_the_same(space: SearchSpace, seed: int) -> None:
    def drawn() -> list[Genome]:
        rng = np.random.default_rng(seed)
        a, b = space.sample(rng), space.sample(rng)
        return [a, b, space.mutate(a, rng, 0.3), space.crossover(a, b, rng)]

    assert drawn() == drawn()


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
def test_mutating_never_and_always(space: SearchSpace) -> None:
    rng = np.random.default_rng(0)
    genome = space.sample(rng)
    before = json.dumps(genome)
    assert space.mutate(genome, rng, 0.0) == genome
    assert space.mutate(genome, rng, 1.0) != genome
    assert json.dumps(genome) == before, "the parent must not change"


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
def test_crossover_takes_each_place_from_either_parent(space: SearchSpace) -> None:
    """Unless the places before leave it no choice."""
    rng = np.random.default_rng(3)
    a, b = space.sample(rng), space.sample(rng)
    assert space.crossover(a, b, rng, 0.0) == a
    assert space.crossover(a, b, rng, 1.0) == b

    def origin(child: Genome, locus: Locus) -> str:
        return "".join(name for name, parent in (("a", a), ("b", b)) if locus.read(parent) == locus.read(child))

    children = [space.crossover(a, b, rng) for _ in range(20)]
    free = [locus for locus in space.loci() if len(locus.gene.values) > 1]
    origins = [origin(child, locus) for child in children for locus in free]
    assert {"a", "b"} <= set(origins)
    assert origins.count("") < len(origins) / 4


@given(narrowed_spaces())
@settings(parent=many, max_examples=60)
def test_every_space_has_baselines_that_are_stock_models(narrowed: SearchSpace) -> None:
    scaled = narrowed.baselines()
    lengths = [len(one.blocks) for one in scaled]
    layer = lengths[0]
    assert lengths == [layer * (index + 1) for index in range(len(scaled))]
    mixed = narrowed.name == "lfm"  # whose layers are of two kinds, the first ones of convolutions
    assert {len(set(one.blocks)) for one in scaled} <= ({2, 3} if mixed else {layer})
    assert {one.d_model for one in scaled} <= set(narrowed.gene("d_model").values)
    assert [len(one.blocks) for one in narrowed.baselines([3, 1, 3])] == [layer, 3 * layer]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
def test_the_deepest_baseline_is_in_the_space(space: SearchSpace) -> None:
    assert space.contains(space.baselines()[-1])


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
def test_strangers_are_not_contained(space: SearchSpace) -> None:
    architecture = space.baselines()[-1]
    described = architecture.canonical
    (_, *others) = described["blocks"]
    # Whatever no gene says: heads of another width, or several heads in SRU++.
    strange = {"attention": {"d_head": 24}, "srupp": {"n_head": 2}, "short_conv": {"kernel": 4}, "feed_forward": {}}
    for change in (
        {"d_model": 2592},
        {"final_norm": not architecture.has_final_norm},
        {"norm_eps": "1e-3"},
        {"embedding": {**described["embedding"], "vocab_size": 250_000}},
        {"positions": {"kind": "sinusoidal"}},
        {"output": {"kind": "none"}},
        {"blocks": [{**block, **strange[block["kind"]]} for block in described["blocks"]]},
        {"blocks": [{"kind": "sru"}, *others]},
        {"blocks": [*described["blocks"], {"kind": "identity"}]},
        {"blocks": described["blocks"] * 2},
    ):
        assert not space.contains(Architecture.parse({**described, **change})), change


def test_the_catalogue_lists_them() -> None:
    names = [
        "lts-gpt2",
        "lts-transformer-xl",
        "lts-opt",
        "par-32",
        "sandwich",
        "srupp",
        "bert",
        "hybrid",
        "llama",
        "lfm",
    ]
    assert list(spaces()) == names
    assert [space(name).name for name in names] == names
    with pytest.raises(SpaceError, match="lts-gpt2, lts-transformer-xl"):
        space("lts-bert")


def test_caveats_stand_where_the_proxy_is_known_to_mislead() -> None:
    assert {space.name for space in SPACES if not space.caveat} == {"lts-gpt2", "lts-transformer-xl", "lts-opt"}
    for one in SPACES:
        assert one.caveat.count(". ") < 4
        assert not one.caveat or one.caveat.endswith(".")
