"""The search finds attention where the task needs it, resumes, and says when it fails; which step does what."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any

import pytest
import torch
from synthetic_tasks import Synthetic
from tiny_supernets import settings

from edgefront.core.architectures.pattern import contract, expand
from edgefront.core.common.errors import InvalidInput
from edgefront.core.search.supernet_settings import SearchOutcome, SearchSettings, SupernetResult
from edgefront.core.training.parametrisation import initialise
from edgefront.core.training.recipes.recipe import Recipe
from edgefront.core.training.supernet.search import DataParts, Search, SearchSchedule
from edgefront.core.training.supernet.supernet import Supernet

LR = 1e-2
LATENCY = {"attention_ms": 2.0, "feed_forward_ms": 1.0, "weight": 0.05}
EAGER = {"norm": "pre", "architecture_lr": 0.1, "temperature": 2.0, "final_temperature": 0.2, "latency": LATENCY}


def make(
    back: int = 2, *, layers: int = 2, steps: int = 40, memory: int = 0, lr: float = LR, seed: int = 0, **changes: Any
) -> Search:
    """A search over 8 tokens; the target is the token `back` places before."""
    chosen = settings(layers=layers, d_inner=32, records=6, **changes)
    supernet = Supernet(chosen, 8)
    initialise(supernet, "gpt2", seed)
    with torch.no_grad():  # the published scale is that of wide models
        for parameter in supernet.parameters():
            if parameter.ndim == 2:
                parameter.mul_(8)
    recipe = Recipe.parse({"name": "tiny", "steps": steps, "rows": 8, "segment": 16, "memory": memory, "clip": 1.0})
    optimizer = torch.optim.Adam(supernet.parameters(), lr=lr)
    return Search(supernet, Synthetic(8, 8, 16, back), recipe, optimizer, lambda step: lr, seed=seed)


def run(search: Search, until: int | None = None) -> list[float]:
    losses = []
    while not search.finished and search.steps != until:
        losses.append(search.step().loss)
    return losses


@lru_cache
def searched(back: int) -> SearchOutcome:
    search = make(back, steps=200, weight_steps=60, architecture_fraction=0.4, **EAGER)
    run(search)
    return search.outcome()


def test_attention_is_found_where_the_task_needs_it() -> None:
    """A token two places back cannot be known without attention; the one at hand can."""
    copying, local = searched(2), searched(0)
    assert copying.letters[0] == "s"
    assert max(row[0] for row in copying.probabilities) > 0.7
    assert "s" not in local.letters
    assert max(row[0] for row in local.probabilities) < 0.3


def test_the_result_is_reported_in_full() -> None:
    what = searched(2)
    assert what.pattern == contract(what.letters)
    assert expand(what.pattern) == what.letters
    architecture = settings(layers=2, d_inner=32, norm="pre").architecture(what.letters, 8)
    assert (what.architecture, what.digest) == (architecture.canonical, architecture.digest)
    assert what.records[0].step == 40
    assert what.records[0].probabilities == ((0.33333,) * 3,) * 2
    assert what.records[-1].step == what.steps
    assert what.records[-1].probabilities == what.probabilities
    assert what.expected_ms == pytest.approx(
        sum(2.0 * attention + feed_forward for attention, feed_forward, _ in what.probabilities), abs=1e-3
    )
    result = SupernetResult(settings=settings(layers=2), searches=(what,))
    assert SupernetResult.parse(result.model_dump_json()) == result


def test_probabilities_stay_even_while_weights_alone_are_trained() -> None:
    search = make(weight_steps=10)
    before = [parameter.detach().clone() for parameter in search.model.parameters()]
    run(search, 10)
    assert search.probabilities() == ((0.33333,) * 3,) * 2
    assert not search.has_architecture_step
    changed = [not torch.equal(a, b) for a, b in zip(before, search.model.parameters(), strict=True)]
    assert all(changed)


def test_an_architecture_step_leaves_the_weights_alone() -> None:
    search = make(weight_steps=1, cycle_steps=2)
    run(search, 2)
    before = [parameter.detach().clone() for parameter in search.model.parameters()]
    assert search.step().plan.kind == "architecture"
    assert search.has_architecture_step
    assert all(torch.equal(a, b) for a, b in zip(before, search.model.parameters(), strict=True))
    assert search.probabilities() != ((0.33333,) * 3,) * 2


@pytest.mark.parametrize("changes", [{}, {"memory": 12, "hard": True}])
def test_a_search_that_was_interrupted_resumes_as_if_it_had_not_been(changes: dict[str, Any]) -> None:
    whole = make(weight_steps=8, **changes)
    losses = run(whole)
    first = make(weight_steps=8, **changes)
    run(first, 27)
    torch.manual_seed(99)  # another process
    second = make(weight_steps=8, seed=0, **changes)
    second.restore(first.tensors(), first.optimizers(), first.memory(), first.progress())
    assert run(second) == losses[27:]
    assert second.outcome() == whole.outcome()


def test_rows_at_a_time_change_nothing_but_the_memory_needed() -> None:
    whole, parts = make(memory=8, weight_steps=4), make(memory=8, weight_steps=4)
    parts.micro_rows = 3
    assert run(parts, 12) == pytest.approx(run(whole, 12), rel=1e-3)
    assert [[round(p, 2) for p in row] for row in parts.probabilities()] == [
        [round(p, 2) for p in row] for row in whole.probabilities()
    ]


def test_each_part_of_the_data_has_a_memory_of_its_own() -> None:
    search = make(memory=8, weight_steps=4)
    run(search, 20)
    names = {f"{kind}/blocks.{block}.memory" for kind in ("weights", "architecture") for block in (0, 2)}
    assert {name: tuple(kept.shape) for name, kept in search.memory().items()} == dict.fromkeys(names, (8, 8, 16))


def test_it_ends_when_no_layer_changes_its_most_probable_block() -> None:
    search = make(weight_steps=10, steps=100, patience=0.3, cycle_steps=2, architecture_lr=0.3)
    run(search)
    assert search.converged
    assert search.outcome().note == ""
    assert search.outcome().converged
    assert search.steps - search.outcome().changed_at == 27
    assert search.steps < 100


def test_flat_probabilities_do_not_converge_however_long_the_likeliest_block_stays() -> None:
    search = make(weight_steps=10, steps=60, patience=0.3, cycle_steps=2, architecture_lr=1e-6)
    run(search)
    outcome = search.outcome()
    assert (outcome.steps, outcome.converged) == (60, False)
    assert outcome.note == (
        "The search of seed 0 ended before it had converged: 2 of 2 layers have no block that is clearly the likeliest."
    )


def test_weights_come_first_and_then_a_fifth_of_the_steps_is_the_architectures() -> None:
    schedule = SearchSchedule(1000, SearchSettings(), epoch=50)
    moments = [schedule.at(step) for step in range(1000)]
    assert schedule.weight_steps == 200
    assert {moment.kind for moment in moments[:200]} == {"weights"}
    assert not any(moment.tuning for moment in moments[:200])
    assert all(moment.tuning for moment in moments[200:])
    assert [moment.kind for moment in moments[200:250]] == ["weights"] * 40 + ["architecture"] * 10
    assert sum(moment.kind == "architecture" for moment in moments) == 160
    for kind in ("weights", "architecture"):
        numbers = [moment.number for moment in moments if moment.kind == kind]
        assert numbers == list(range(len(numbers)))


def test_the_temperature_falls_exponentially_over_the_second_phase() -> None:
    schedule = SearchSchedule(1000, SearchSettings(weight_steps=100), epoch=20)
    temperatures = [schedule.at(step).temperature for step in range(1000)]
    assert temperatures[:101] == [5.0] * 101
    assert temperatures[-1] == pytest.approx(0.087)
    ratios = {round(after / before, 9) for before, after in pairwise(temperatures[100:])}
    assert len(ratios) == 1


def test_a_long_epoch_is_cut_so_that_the_phases_alternate() -> None:
    schedule = SearchSchedule(1000, SearchSettings(weight_steps=0), epoch=10**6)
    changes = sum(schedule.at(step).kind != schedule.at(step + 1).kind for step in range(999))
    assert changes == 19
    assert SearchSchedule(1000, SearchSettings(weight_steps=0, cycle_steps=2), 10**6).at(1).kind == "architecture"


@pytest.mark.parametrize(("steps", "weight_steps"), [(100, 99), (100, 200), (1, None)])
def test_steps_that_leave_nothing_for_the_architecture_are_refused(steps: int, weight_steps: int | None) -> None:
    with pytest.raises(InvalidInput, match="steps for the architecture"):
        SearchSchedule(steps, SearchSettings(weight_steps=weight_steps), 10)


def test_the_two_parts_of_the_data_never_mix() -> None:
    data = Synthetic(vocabulary=1000, rows=1, length=8, back=0, steps_per_epoch=10)
    parts = DataParts(data, 0.2)
    assert parts.steps == {"weights": 8, "architecture": 2}
    epoch = [data(step).inputs.tolist() for step in range(10)]
    assert [parts.batch("weights", number).inputs.tolist() for number in range(10)] == [*epoch[:8], *epoch[:2]]
    assert [parts.batch("architecture", number).inputs.tolist() for number in range(3)] == [*epoch[8:], epoch[8]]
    assert DataParts(data, 0.001).steps["architecture"] == 1
    assert DataParts(data, 0.999).steps["weights"] == 1


def test_too_little_data_is_refused() -> None:
    with pytest.raises(InvalidInput, match="one epoch of this data has 1 step"):
        DataParts(Synthetic(8, 1, 8, 0, steps_per_epoch=1), 0.2)
