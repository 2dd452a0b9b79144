"""Learning rates against torch's schedulers and the recursions of the papers' code."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch.optim.lr_scheduler import CosineAnnealingLR

from edgefront.core.errors import InvalidInput
from edgefront.core.recipes.papers import recipe
from edgefront.core.recipes.recipe import Schedule
from edgefront.core.training.optimizers import learning_rate


def course(schedule: Schedule, steps: int, lr: float = 0.01) -> list[float]:
    return [learning_rate(schedule, lr, step, steps) for step in range(steps)]


@pytest.mark.parametrize("decay", ["cosine", "cosine_whole", "power", "inverse_sqrt", "constant"])
def test_warm_up_rises_in_equal_steps_to_the_rate(decay: str) -> None:
    rates = course(Schedule(decay=decay, warmup=8, min_lr=0.001), 40)  # type: ignore[arg-type]
    rising = 7 if decay == "power" else 8  # it replaces the last step
    assert rates[:rising] == pytest.approx([0.01 * (step + 1) / 8 for step in range(rising)])
    assert max(rates) == pytest.approx(0.01 * rising / 8)
    assert all(before >= after for before, after in pairwise(rates[rising:]))
    assert min(rates[rising:]) >= 0.001


def test_cosine_is_torch_s_over_the_steps_after_the_warm_up() -> None:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.01)
    scheduler = CosineAnnealingLR(optimizer, 30, eta_min=0.001)
    expected = []
    for _ in range(30):
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert course(Schedule(decay="cosine", warmup=10, min_lr=0.001), 40)[10:] == pytest.approx(expected)


@pytest.mark.parametrize("warmup", [0, 1, 7])
def test_cosine_whole_is_srupp_s_scheduler_beside_its_warm_up(warmup: int) -> None:
    """Its code overwrites the rate in the warm-up, and has torch's recursive scheduler go on from what it finds."""
    steps, lr = 50, 3e-4
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    scheduler = CosineAnnealingLR(optimizer, steps)
    expected = []
    for step in range(steps):
        if step < warmup:
            optimizer.param_groups[0]["lr"] = lr * (step + 1) / warmup
        expected.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    assert course(Schedule(decay="cosine_whole", warmup=warmup), steps, lr) == pytest.approx(expected, abs=1e-12)


def poly_warm_up_scheduler(warmup: float, steps: int, degree: float, lr: float = 0.01) -> list[float]:
    """NVIDIA DeepLearningExamples, BERT/schedulers.py: its step, counted from 1, is set before the optimiser's."""
    shares = [last_epoch / steps for last_epoch in range(1, steps + 1)]
    return [lr * share / warmup if share < warmup else lr * (1 - share) ** degree for share in shares]


@pytest.mark.parametrize(("warmup", "steps", "degree"), [(20, 100, 0.5), (0, 10, 0.5), (1, 10, 1.0), (10, 10, 0.5)])
def test_power_is_bert_s(warmup: int, steps: int, degree: float) -> None:
    rates = course(Schedule(decay="power", power=degree, warmup=warmup), steps)
    assert rates == pytest.approx(poly_warm_up_scheduler(warmup / steps, steps, degree))


@pytest.mark.parametrize(("name", "warmup"), [("par-bert-phase1", 0.2843), ("par-bert-phase2", 0.128)])
def test_bert_s_recipes_have_its_rates(name: str, warmup: float) -> None:
    """Warm-up within what a whole number of steps allows, and no step of the decay is another."""
    found = recipe(name)
    rates = course(found.schedule, found.steps, found.optimizer.lr)
    expected = poly_warm_up_scheduler(warmup, found.steps, 0.5, found.optimizer.lr)
    assert rates == pytest.approx(expected, rel=5e-3)
    assert rates[found.schedule.warmup - 1 :] == pytest.approx(expected[found.schedule.warmup - 1 :], rel=1e-9)


def test_power_ends_at_the_lowest_rate() -> None:
    assert course(Schedule(decay="power", min_lr=0.002), 4) == pytest.approx([0.008, 0.006, 0.004, 0.002])


def test_inverse_sqrt_is_noam_s() -> None:
    """0.1·min(n^-½, n·W^-1½) of step n = 1, 2, …, which imitkd has, for a rate of 0.1·W^-½ at its highest."""
    warmup = 16
    rates = course(Schedule(decay="inverse_sqrt", warmup=warmup), 100, lr=0.1 * warmup**-0.5)
    assert rates == pytest.approx([0.1 * min(n**-0.5, n * warmup**-1.5) for n in range(1, 101)])


def test_constant_and_a_warm_up_of_all_steps() -> None:
    assert course(Schedule(decay="constant"), 3) == [0.01] * 3
    assert course(Schedule(decay="cosine", warmup=4), 4)[-1] == 0.01


@pytest.mark.parametrize("step", [-1, 10])
def test_a_step_that_there_is_not(step: int) -> None:
    with pytest.raises(InvalidInput, match="is not one of 10"):
        learning_rate(Schedule(), 0.1, step, 10)
