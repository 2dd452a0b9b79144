"""par-supernet proposes what a supernet found, within its space, and asks for the supernet that fits it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from cost_model import measured

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention
from edgefront.core.architectures.catalogue import PAR_32, spaces
from edgefront.core.architectures.pattern import expand, par_pattern
from edgefront.core.architectures.space import SearchSpace
from edgefront.core.common.errors import InvalidInput
from edgefront.core.search.interface import Context, Need, Probabilities, Proposal, Snapshot
from edgefront.core.search.par_supernet import ParSupernet, ParSupernetSettings, block_latencies
from edgefront.core.search.supernet_settings import BLOCK_TYPES, SupernetSettings

EIGHT = PAR_32.narrow({"n_block": {"min": 2, "max": 8}, "d_model": 128, "n_head": 4, "d_inner": 512})


def algorithm(space: SearchSpace = EIGHT, accept: Any = lambda _: True, **settings: Any) -> ParSupernet:
    return ParSupernet(ParSupernetSettings.model_validate(settings), space, accept)


def rows(letters: str, sure: float = 0.9) -> list[list[float]]:
    rest = (1 - sure) / 2
    return [[sure if letter == mine else rest for mine in "sfi"] for letter in letters]


def letters(architecture: Architecture) -> str:
    return "".join("s" if isinstance(block, Attention) else "f" for block in architecture.blocks)


def ask(
    search: ParSupernet, probabilities: Sequence[Probabilities], seed: int, generation: int = 0
) -> tuple[Proposal, ...]:
    return search.answer(Context(seed, generation, supernet=probabilities)).proposals


def test_it_proposes_the_result_of_each_seed_then_the_rule_then_samples() -> None:
    probabilities = [rows("sffisffi"), rows("ssffffff")]
    search = algorithm(seeds=2, samples=5)
    proposals = ask(search, probabilities, 3)
    assert search.generations == 1
    assert ask(search, probabilities, 3, 1) == ()
    assert [letters(proposal.architecture) for proposal in proposals[:2]] == ["sffsff", "ssffffff"]
    assert [proposal.operator for proposal in proposals] == ["supernet"] * 2 + ["par_rule"] + ["supernet_sample"] * 5
    assert letters(proposals[2].architecture) == expand(par_pattern(8))
    assert len({proposal.architecture.digest for proposal in proposals}) == 8
    for proposal in proposals:
        assert EIGHT.contains(proposal.architecture)
        assert EIGHT.architecture(proposal.genome) == proposal.architecture
        assert EIGHT.architecture(EIGHT.repair(proposal.genome)) == proposal.architecture


def test_too_little_attention_is_made_up_where_it_costs_the_least() -> None:
    """par-32 asks for a fifth of attention, 2 of 8; the search found none."""
    probabilities = rows("ffffffff")
    probabilities[2], probabilities[5] = [0.3, 0.4, 0.3], [0.2, 0.5, 0.3]
    (proposal,) = ask(algorithm(samples=0, rule_p=None), [probabilities], 0)
    assert letters(proposal.architecture) == "ffsffsff"
    (nothing,) = ask(algorithm(samples=0, rule_p=None), [rows("iiiiiiii")], 0)
    assert letters(nothing.architecture) == "s"


def test_the_supernet_has_the_shape_of_the_space() -> None:
    settings = algorithm(seeds=3, hard=True, weight_steps=7).supernet(Snapshot())
    assert isinstance(settings, SupernetSettings)
    assert (settings.layers, settings.d_model, settings.n_head, settings.d_inner) == (8, 128, 4, 512)
    assert (settings.seeds, settings.hard, settings.weight_steps, settings.latency) == (3, True, 7, None)
    stack = EIGHT.architecture(ask(algorithm(), [rows("ssffffff")], 0)[0].genome)
    vocab_size = stack.embedding.vocab_size
    assert settings.architecture("ssffffff", vocab_size) == stack
    assert (
        algorithm(EIGHT.narrow({"kind": ["attention", "feed_forward"]})).supernet(Snapshot()).choices == BLOCK_TYPES[:2]
    )
    published = algorithm(PAR_32).supernet(Snapshot())
    assert (published.layers, published.d_model, published.n_head, published.d_inner) == (32, 512, 8, 2048)


def test_a_latency_term_comes_from_probes_on_the_target() -> None:
    search = algorithm(latency_weight=0.2, latency_target_ms=20.0, samples=2)
    assert search.generations == 2
    assert not search.needs(0)
    assert search.needs(1) == {Need.SUPERNET}
    probes = search.ask(5, 0, Snapshot())
    assert [proposal.operator for proposal in probes] == ["probe"] * 4
    assert len(probes) == search.generation_size(0)
    snapshot = Snapshot(
        tuple(
            replace(measured(proposal, index, 0), latency_ms=7.0 + 3.0 * text.count("s") + 0.5 * text.count("f"))
            for index, proposal in enumerate(probes)
            for text in [letters(proposal.architecture)]
        )
    )
    term = search.supernet(snapshot).latency
    assert term is not None
    assert (term.attention_ms, term.feed_forward_ms, term.identity_ms) == (pytest.approx(3), pytest.approx(0.5), 0)
    assert (term.weight, term.target_ms) == (0.2, 20.0)
    proposals = search.answer(Context(5, 1, snapshot, supernet=[rows("sffisffi")])).proposals
    assert proposals[0].operator == "supernet"
    assert not {proposal.architecture.digest for proposal in proposals} & {r.digest for r in snapshot.results}
    with pytest.raises(InvalidInput, match="do not determine the latency of a block"):
        block_latencies(snapshot.results[:2])
    noisy = [replace(result, latency_ms=10.0 + 5 * index) for index, result in enumerate(snapshot.results)]
    with pytest.raises(InvalidInput, match="hides the latency of blocks"):
        block_latencies(noisy)


@pytest.mark.parametrize("name", sorted(set(spaces()) - {"par-32"}))
def test_other_spaces_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match=f"which {name} does not permit"):
        algorithm(spaces()[name])


def test_a_space_without_a_choice_is_refused() -> None:
    with pytest.raises(InvalidInput, match="chooses between attention and other blocks"):
        algorithm(PAR_32.narrow({"kind": ["attention"]}))


def test_it_does_not_guess() -> None:
    with pytest.raises(ValueError, match="lacks the supernet"):
        algorithm().ask(0, 0, Snapshot())
    with pytest.raises(InvalidInput, match="must have 8 rows of 3 numbers"):
        algorithm().check([rows("sf")])
