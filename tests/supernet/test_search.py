"""The search finds attention where the task needs it, goes on as if never interrupted, and says when it fails."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import pytest
import torch
from synthetic_tasks import Synthetic
from tiny_supernets import settings

from edgefront.core.errors import Diverged
from edgefront.core.recipes.recipe import Recipe
from edgefront.core.spaces.pattern import contract, expand
from edgefront.core.supernet.search import Search
from edgefront.core.supernet.settings import SearchOutcome, SupernetResult
from edgefront.core.supernet.supernet import Supernet
from edgefront.core.training.initialise import initialise

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
    assert search.rows() == ((0.33333,) * 3,) * 2
    assert not search.tuned
    changed = [not torch.equal(a, b) for a, b in zip(before, search.model.parameters(), strict=True)]
    assert all(changed)


def test_an_architecture_step_leaves_the_weights_alone() -> None:
    search = make(weight_steps=1, cycle_steps=2)
    run(search, 2)
    before = [parameter.detach().clone() for parameter in search.model.parameters()]
    assert search.step().moment.kind == "architecture"
    assert search.tuned
    assert all(torch.equal(a, b) for a, b in zip(before, search.model.parameters(), strict=True))
    assert search.rows() != ((0.33333,) * 3,) * 2


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
    assert [[round(p, 2) for p in row] for row in parts.rows()] == [[round(p, 2) for p in row] for row in whole.rows()]


def test_each_part_of_the_data_has_a_memory_of_its_own() -> None:
    search = make(memory=8, weight_steps=4)
    run(search, 20)
    names = {f"{kind}/blocks.{block}.memory" for kind in ("weights", "architecture") for block in (0, 2)}
    assert {name: tuple(kept.shape) for name, kept in search.memory().items()} == dict.fromkeys(names, (8, 8, 16))


def test_it_ends_when_no_layer_changes_its_most_probable_block() -> None:
    search = make(weight_steps=10, steps=100, patience=0.3, cycle_steps=2)
    run(search)
    assert search.converged
    assert search.outcome().converged
    assert search.steps - search.outcome().changed_at == 27
    assert search.steps < 100


def test_a_loss_that_is_no_number_ends_it() -> None:
    search = make()
    run(search, 3)
    with torch.no_grad():
        next(search.model.parameters()).fill_(math.nan)
    with pytest.raises(Diverged, match=r"loss is nan .* at step 3 of seed 0"):
        search.step()


def test_identity_is_left_out_where_it_is_no_choice() -> None:
    search = make(choices=["attention", "feed_forward"], weight_steps=4)
    run(search)
    assert all(row[2] == 0 for row in search.outcome().probabilities)
