"""What holds for every space and every narrowing of it: nothing leaves it, and its size is exact."""

from __future__ import annotations

import json
from collections import Counter
from itertools import islice, product
from math import prod

import numpy as np
import pytest
from every_space import (
    FREED,
    SPACES,
    all_respect_genes,
    narrowed_spaces,
    narrowings,
    respects_genes,
    seeds,
    tiny_spaces,
)
from genomes import Place, blank, crossed, mutated, places
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.catalogue import space, spaces
from edgefront.core.architectures.gene import Value
from edgefront.core.architectures.space import Genome, SearchSpace
from edgefront.core.common.errors import SpaceError

many = settings(suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])


@given(narrowed_spaces(), seeds, st.floats(0, 1))
@many
def test_nothing_leaves_the_space(narrowed: SearchSpace, seed: int, probability: float) -> None:
    rng = np.random.default_rng(seed)
    a, b = narrowed.sample(rng), narrowed.sample(rng)
    mutant = mutated(narrowed, a, rng, probability)
    for genome in (a, b, mutant, crossed(narrowed, mutant, b, rng, probability), narrowed.repair(b)):
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
    for gene in home.gene_list:
        if gene.per_layer and home.depth > away.depth:
            stranger[gene.name] = (stranger[gene.name] * home.depth)[: home.depth]
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
    assert all(all_respect_genes(tiny, genomes))
    rng = np.random.default_rng(seed)
    assert {tiny.architecture(genome).digest for genome in tiny.samples(20, rng)} <= walked


@given(tiny_spaces(most=60))
@many
def test_walking_through_finds_whatever_a_genome_can_say(tiny: SearchSpace) -> None:
    """Against every genome there is: each place with each of its gene's values, those kept that the space permits."""
    if prod(len(place.gene.values) for place in places(tiny)) > 4096:
        return
    genomes = every_genome(tiny)
    said = {
        tiny.architecture(genome).digest
        for genome, stays in zip(genomes, all_respect_genes(tiny, genomes), strict=True)
        if stays
    }
    assert said == {tiny.architecture(genome).digest for genome in tiny.enumerate()}


@pytest.mark.parametrize("whole", FREED.values(), ids=lambda space: space.name)
def test_walking_through_begins_at_once(whole: SearchSpace) -> None:
    """In spaces far too large to end: what loads a space is told by its first architecture."""
    genomes = list(islice(whole.enumerate(), 50))
    assert len({whole.architecture(genome).digest for genome in genomes}) == 50
    assert all(all_respect_genes(whole, genomes))


def every_genome(space: SearchSpace) -> list[Genome]:
    """Each place with each of its gene's values, permitted or not."""
    genomes = []
    for values in product(*(place.gene.values for place in places(space))):
        genome = blank(space)
        for place, value in zip(places(space), values, strict=True):
            place.write(genome, value)
        genomes.append(genome)
    return genomes


SMALL = [
    space("lts-gpt2").narrow({"n_layer": 2, "d_model": [128, 192], "n_head": [2, 4], "d_inner": [256, 384, 512]}),
    space("par-32").narrow({"n_block": [3, 5], "min_attention_percent": [0, 40]}),
    space("par-32").narrow({"n_block": [2, 4], "min_attention_percent": 60, "kind": ["attention", "feed_forward"]}),
    space("srupp").narrow({"d_model": 256, "n_layer": [2, 4], "attn_ratio": [4, 8], "min_attention_percent": [0, 50]}),
    space("hybrid").narrow(
        {"d_model": 128, "n_head": 4, "d_inner": 512, "n_block": [2, 3], "attn_ratio": 4, "min_mixing_percent": 60}
    ),
    space("llama").narrow(
        {"d_model": 128, "n_layer": [1, 2], "n_head": [0, 2], "n_kv_head": [1, 2], "d_inner": [0, 256]}
    ),
    space("llama").narrow(
        {"d_model": 128, "n_layer": 2, "n_head": [0, 2, 3], "n_kv_head": [1, 3], "d_inner": [0, 256], "layers": "alike"}
    ),
    space("llama").narrow(
        {
            "d_model": [128, 192],
            "d_head": [32, 64],
            "n_layer": 2,
            "layers": ["own", "alike"],
            "min_attention_percent": 0,
            "n_head": [0, 2, 4],
            "n_kv_head": [1, 2],
            "d_inner": [0, 512],
        }
    ),
    space("lfm").narrow(
        {"d_model": 128, "n_layer": [1, 3], "n_head": 4, "n_kv_head": [2, 4], "window": 0, "d_inner": 256}
    ),
]


def followers(small: SearchSpace) -> dict[tuple[Value, ...], list[Value]]:
    """Values of the first places → what the next one may hold: with what a permitted genome goes on, in the gene's
    order.
    """
    genomes, order = every_genome(small), places(small)
    follow: dict[tuple[Value, ...], set[Value]] = {}
    for genome, stays in zip(genomes, all_respect_genes(small, genomes), strict=True):
        row = tuple(place.read(genome) for place in order)
        for at, value in enumerate(row if stays else ()):
            follow.setdefault(row[:at], set()).add(value)
    return {row: [value for value in order[len(row)].gene.values if value in held] for row, held in follow.items()}


@pytest.mark.parametrize("small", SMALL, ids=lambda space: space.name)
def test_each_place_is_drawn_uniformly_from_what_it_may_hold(small: SearchSpace) -> None:
    order, follow, count = places(small), followers(small), 8_000
    expected = {(): 1.0}
    for _ in order:
        expected = {
            (*row, value): chance / len(follow[row]) for row, chance in expected.items() for value in follow[row]
        }
    drawn = Counter(
        tuple(place.read(sample) for place in order) for sample in small.samples(count, np.random.default_rng(4))
    )
    assert set(drawn) <= set(expected)
    for at, place in enumerate(order):
        for value in place.gene.values:
            likely = sum(chance for row, chance in expected.items() if row[at] == value)
            share = sum(times for row, times in drawn.items() if row[at] == value) / count
            assert share == pytest.approx(likely, abs=5 * max(0.0, likely * (1 - likely) / count) ** 0.5 + 1e-9), place


@pytest.mark.parametrize("small", SMALL, ids=lambda space: space.name)
def test_repair_moves_each_place_to_the_nearest_value_that_it_may_hold(small: SearchSpace) -> None:
    order, follow = places(small), followers(small)
    genomes = every_genome(small)
    strangers = [genomes[index] for index in np.random.default_rng(5).integers(len(genomes), size=300)]
    for stranger, repaired in zip(strangers, small.operators.decode(small.operators.encode(strangers)), strict=True):
        row: tuple[Value, ...] = ()
        for place in order:
            row = (*row, nearest(follow[row], place.read(stranger)))
        assert tuple(place.read(repaired) for place in order) == row


def nearest(allowed: list[Value], value: Value) -> Value:
    if value in allowed or not isinstance(value, int):
        return value if value in allowed else allowed[0]
    return min(
        (number for number in allowed if isinstance(number, int)), key=lambda number: (abs(number - value), number)
    )


def test_repair_moves_a_value_that_no_gene_has_to_the_nearest() -> None:
    small = SMALL[0]
    stranger = {**small.sample(np.random.default_rng(0)), "d_model": 192, "n_head": [3, 64], "d_inner": [1, 449]}
    repaired = small.repair({**stranger, "div": 3, "d_embed": "wide"})
    # d_inner 256 is too narrow for d_model 192; of two that are as near, the smaller.
    assert repaired == {**stranger, "div": 4, "d_embed": "d_model", "n_head": [2, 4], "d_inner": [384, 512]}


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
def test_mutating_never_and_always(space: SearchSpace) -> None:
    rng = np.random.default_rng(0)
    genome = space.sample(rng)
    before = json.dumps(genome)
    assert mutated(space, genome, rng, 0.0) == genome
    assert mutated(space, genome, rng, 1.0) != genome
    assert json.dumps(genome) == before, "the parent must not change"


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
def test_crossover_takes_each_place_from_either_parent(space: SearchSpace) -> None:
    """Unless the places before leave it no choice."""
    rng = np.random.default_rng(3)
    a, b = space.sample(rng), space.sample(rng)
    assert crossed(space, a, b, rng, 0.0) == a
    assert crossed(space, a, b, rng, 1.0) == b

    def origin(child: Genome, place: Place) -> str:
        return "".join(name for name, parent in (("a", a), ("b", b)) if place.read(parent) == place.read(child))

    children = [crossed(space, a, b, rng) for _ in range(20)]
    free = [place for place in places(space) if len(place.gene.values) > 1]
    origins = [origin(child, place) for child in children for place in free]
    assert {"a", "b"} <= set(origins)
    assert origins.count("") < len(origins) / 4


@given(narrowed_spaces())
@many
def test_every_space_has_baselines_that_are_stock_models(narrowed: SearchSpace) -> None:
    scaled = narrowed.baselines()
    lengths = [len(model.blocks) for model in scaled]
    layer = lengths[0]
    assert lengths == [layer * (index + 1) for index in range(len(scaled))]
    mixed = narrowed.name == "lfm"  # whose layers are of two kinds, the first ones of convolutions
    assert {len(set(model.blocks)) for model in scaled} <= ({2, 3} if mixed else {layer})
    assert {model.d_model for model in scaled} <= set(narrowed.gene("d_model").values)
    assert [len(baseline.blocks) for baseline in narrowed.baselines([3, 1, 3])] == [layer, 3 * layer]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
def test_the_deepest_baseline_is_contained_and_strangers_are_not(space: SearchSpace) -> None:
    architecture = space.baselines()[-1]
    assert space.contains(architecture)
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
    names = ["lts-gpt2", "lts-transformer-xl", "lts-opt", "par-32", "srupp", "bert", "hybrid", "llama", "lfm"]
    assert list(spaces()) == names
    assert [space(name).name for name in names] == names
    with pytest.raises(SpaceError, match="lts-gpt2, lts-transformer-xl"):
        space("lts-bert")


def test_caveats_stand_where_the_proxy_is_known_to_mislead() -> None:
    assert {space.name for space in SPACES if not space.caveat} == {"lts-gpt2", "lts-transformer-xl", "lts-opt"}
    for space_ in SPACES:
        assert space_.caveat.count(". ") < 4
        assert not space_.caveat or space_.caveat.endswith(".")
