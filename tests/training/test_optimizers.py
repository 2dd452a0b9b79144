"""The optimisers step for step against their equations, and learning rates against the papers' code."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.optim.lr_scheduler import CosineAnnealingLR

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import InvalidInput
from edgefront.core.nn.model import LanguageModel
from edgefront.core.training.optimizers import Lamb, NvLamb, learning_rate, make_optimizer
from edgefront.core.training.parametrisation import initialise
from edgefront.core.training.recipes.catalogue import recipe
from edgefront.core.training.recipes.recipe import Optimizer, Recipe, Schedule

Array = NDArray[np.float64]
SHAPES = [(5, 3), (7,), (2, 2, 4), (3,)]
STEPS = 12


def some_arrays(seed: int, scale: float = 1.0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.normal(0, scale, shape) for shape in SHAPES]


def gradients(step: int) -> list[Array]:
    """Large at first, later small; of the last parameter never any other than zero."""
    *found, last = some_arrays(100 + step, 3.0 / (1 + step))
    return [*found, np.zeros_like(last)]


def numpy_lamb(weights: list[Array], lr: float, b1: float, b2: float, eps: float, decays: list[float]) -> list[Array]:
    """Transformer-XL's: no bias correction, ‖w‖ at most 10."""
    m = [np.zeros_like(w) for w in weights]
    v = [np.zeros_like(w) for w in weights]
    for step in range(STEPS):
        for i, g in enumerate(gradients(step)):
            m[i] = b1 * m[i] + (1 - b1) * g
            v[i] = b2 * v[i] + (1 - b2) * g * g
            u = m[i] / (np.sqrt(v[i]) + eps) + decays[i] * weights[i]
            w_norm, u_norm = min(np.sqrt((weights[i] ** 2).sum()), 10.0), np.sqrt((u**2).sum())
            ratio = 1.0 if w_norm == 0 or u_norm == 0 else w_norm / (u_norm + eps)
            weights[i] = weights[i] - lr * ratio * u
    return weights


def numpy_nvlamb(weights: list[Array], lr: float, b1: float, b2: float, eps: float, decays: list[float]) -> list[Array]:
    """apex's: gradients by their common norm, bias correction, no ratio for what does not decay."""
    m = [np.zeros_like(w) for w in weights]
    v = [np.zeros_like(w) for w in weights]
    for step in range(STEPS):
        all_g = gradients(step)
        norm = np.sqrt(sum((g**2).sum() for g in all_g))
        for i, g in enumerate(all_g):
            g = g / norm if norm > 1 else g
            m[i] = b1 * m[i] + (1 - b1) * g
            v[i] = b2 * v[i] + (1 - b2) * g * g
            m_hat, v_hat = m[i] / (1 - b1 ** (step + 1)), v[i] / (1 - b2 ** (step + 1))
            u = m_hat / (np.sqrt(v_hat) + eps) + decays[i] * weights[i]
            w_norm, u_norm = np.sqrt((weights[i] ** 2).sum()), np.sqrt((u**2).sum())
            scaled = decays[i] != 0 and w_norm != 0 and u_norm != 0
            weights[i] = weights[i] - lr * (w_norm / u_norm if scaled else 1.0) * u
    return weights


def run(make: Callable[[list[dict[str, Any]]], torch.optim.Optimizer], start: list[Array], first_decay: float) -> Any:
    """The parameters after all steps; those at even places are in a group that decays."""
    parameters = [nn.Parameter(torch.from_numpy(array.copy())) for array in start]
    groups = [
        {"params": parameters[::2], "weight_decay": first_decay},
        {"params": parameters[1::2], "weight_decay": 0.0},
    ]
    optimizer = make(groups)
    for step in range(STEPS):
        if step == STEPS // 2:  # as a training that goes on from a checkpoint
            stored = copy.deepcopy(optimizer.state_dict())
            optimizer = make(groups)
            optimizer.load_state_dict(stored)
        for parameter, gradient in zip(parameters, gradients(step), strict=True):
            parameter.grad = torch.from_numpy(gradient)
        optimizer.step()
    return parameters


START = {
    "ordinary": some_arrays(0),
    "large weights": some_arrays(1, 20.0),
    "zeros": [np.zeros(shape) for shape in SHAPES],
}


@pytest.mark.parametrize("start", START.values(), ids=START)
@pytest.mark.parametrize("decay", [0.0, 0.01, 0.1])
@pytest.mark.parametrize(("kind", "expected"), [(Lamb, numpy_lamb), (NvLamb, numpy_nvlamb)])
def test_each_follows_its_equations(kind: Any, expected: Any, start: list[Array], decay: float) -> None:
    found = run(lambda groups: kind(groups, lr=0.01, betas=(0.9, 0.999), eps=1e-6), start, decay)
    arrays = expected([w.copy() for w in start], 0.01, 0.9, 0.999, 1e-6, [decay, 0.0] * 2)
    for parameter, array in zip(found, arrays, strict=True):
        np.testing.assert_allclose(parameter.detach().numpy(), array, rtol=1e-9, atol=1e-12)


def test_a_parameter_without_gradient_stays() -> None:
    for kind in (Lamb, NvLamb):
        used, unused = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))
        optimizer = kind([used, unused], lr=0.1, weight_decay=0.1)
        optimizer.step()  # nothing has one
        used.grad = torch.ones(3)
        optimizer.step()
        assert torch.equal(unused.detach(), torch.ones(3))
        assert not torch.equal(used.detach(), torch.ones(3))
        assert unused not in optimizer.state


@pytest.mark.parametrize("kind", [Lamb, NvLamb])
def test_parts_step_as_parameters_of_their_own(kind: Any) -> None:
    """Also after what was stored without parts is loaded: averages are those of the whole parameter."""
    sizes, whole = (2, 4, 1), nn.Parameter(torch.from_numpy(np.random.default_rng(0).normal(0, 1, (7, 3))))
    apart = [nn.Parameter(part.clone()) for part in whole.detach().split(sizes)]
    one, other = kind([whole], lr=0.1, weight_decay=0.01, parts={whole: sizes}), kind(apart, lr=0.1, weight_decay=0.01)
    for step in range(STEPS):
        if step == STEPS // 2:
            without = kind([whole], lr=0.1, weight_decay=0.01)
            without.load_state_dict(one.state_dict())
            one.load_state_dict(without.state_dict())
        whole.grad = torch.from_numpy(np.random.default_rng(step).normal(0, (2.0, 0.1, 30.0), (7, 3)))
        for parameter, gradient in zip(apart, whole.grad.split(sizes), strict=True):
            parameter.grad = gradient.clone()
        one.step()
        other.step()
        torch.testing.assert_close(whole.detach(), torch.cat([part.detach() for part in apart]))
    assert {name: value.shape for name, value in one.state[whole].items()} == {
        "step": torch.Size(()),
        "exp_avg": whole.shape,
        "exp_avg_sq": whole.shape,
    }


DESCRIPTION = {
    "d_model": 16,
    "positions": {"kind": "relative"},
    "embedding": {"vocab_size": 60, "cutoffs": [20, 40], "div": 2},
    "blocks": [
        {"kind": "attention", "n_head": 2},
        {"kind": "feed_forward", "d_inner": 24},
        {"kind": "srupp", "d_attn": 8},
        {"kind": "sru"},
    ],
}
NAMES = ("adam", "adamw", "radam", "lamb", "nvlamb")


def model() -> LanguageModel:
    return initialise(LanguageModel(Architecture.parse(DESCRIPTION)), "srupp", 0)


@pytest.mark.parametrize("decays", ["all", "matrices"])
def test_groups_by_decay(decays: Any) -> None:
    subject = model()
    optimizer = make_optimizer(subject, Optimizer(weight_decay=0.1, decays=decays))
    decaying = {id(p) for group in optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    without = {name for name, parameter in subject.named_parameters() if id(parameter) not in decaying}
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(list(subject.parameters()))
    if decays == "all":
        assert not without
        return
    assert without == {
        *("positions.u", "positions.v", "output.bias", "output.cluster_bias", "final_norm.weight", "final_norm.bias"),
        *(f"blocks.{block}.norm.{part}" for block in (0, 1, 2) for part in ("weight", "bias")),
        *("blocks.1.up.bias", "blocks.1.down.bias", "blocks.2.alpha"),
        *(f"blocks.{block}.recurrence.{part}" for block in (2, 3) for part in ("weight", "bias")),
    }


@pytest.mark.parametrize(
    ("name", "kind", "parameter", "changes", "sizes"),
    [
        ("lamb", Lamb, "output.bias", {}, (20, 20, 20)),
        ("lamb", Lamb, "output.bias", {"embedding": {"vocab_size": 60, "cutoffs": [20, 40]}}, (60,)),  # div 1
        ("lamb", Lamb, "blocks.0.qkv.weight", {}, (48,)),
        ("nvlamb", NvLamb, "blocks.0.qkv.weight", {"positions": {"kind": "learned"}}, (16, 16, 16)),
        ("nvlamb", NvLamb, "blocks.0.out.weight", {"positions": {"kind": "learned"}}, (16,)),
    ],
)
def test_trust_ratios_are_those_of_nvidia_s_parameters(
    name: Any, kind: Any, parameter: str, changes: dict[str, Any], sizes: tuple[int, ...]
) -> None:
    """Its Transformer-XL has a bias a cluster where div is above 1; its BERT has queries, keys and values apart."""
    subject = initialise(LanguageModel(Architecture.parse(DESCRIPTION | changes)), "translation", 0)
    found = subject.get_parameter(parameter)
    rows = torch.arange(1.0, len(found) + 1).view(-1, *[1] * (found.ndim - 1))
    with torch.no_grad():
        found.add_(rows / 10)  # so that the parts have other norms
    apart = [nn.Parameter(part.clone()) for part in found.detach().split(sizes)]
    optimizer = make_optimizer(subject, Optimizer(name=name, lr=0.1, eps=1e-6, weight_decay=0.01, decays="all"))
    expected = kind(apart, lr=0.1, eps=1e-6, weight_decay=0.01)
    found.grad = (rows / 1e4).expand_as(found).clone()
    for part, gradient in zip(apart, found.grad.split(sizes), strict=True):
        part.grad = gradient.clone()
    optimizer.step()
    expected.step()
    torch.testing.assert_close(found.detach(), torch.cat([part.detach() for part in apart]))


def test_radam_decays_apart_from_its_gradient() -> None:
    optimizer = make_optimizer(model(), Optimizer(name="radam", weight_decay=0.1, decays="all"))
    assert optimizer.param_groups[0]["decoupled_weight_decay"] is True


@pytest.mark.parametrize("name", NAMES)
def test_parameters_without_gradients_are_left_out(name: Any) -> None:
    subject = model()
    subject.embedding.requires_grad_(False)
    optimizer = make_optimizer(subject, Optimizer(name=name))
    chosen = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert not chosen & {id(p) for p in subject.embedding.parameters()}


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"optimizer\.betas\.1: must be less than 1") as caught:
        Recipe.parse({"name": "mine", "optimizer": {"betas": [0.9, 1.0]}})
    assert caught.value.field == "recipe.optimizer.betas.1"


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
