"""The optimisers step for step against their equations, written here in numpy and float64."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from edgefront.core.errors import InvalidInput
from edgefront.core.nn.model import LanguageModel
from edgefront.core.recipes.recipe import Optimizer
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.training.initialise import initialise
from edgefront.core.training.optimizers import Lamb, NvLamb, make_optimizer

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
        assert optimizer.step() is None  # nothing has one
        used.grad = torch.ones(3)
        optimizer.step()
        assert torch.equal(unused.detach(), torch.ones(3))
        assert not torch.equal(used.detach(), torch.ones(3))
        assert unused not in optimizer.state


def test_a_closure_is_called_with_gradients_on() -> None:
    parameter = nn.Parameter(torch.ones(3))
    for kind in (Lamb, NvLamb):
        optimizer = kind([parameter], lr=0.1)

        def closure(optimizer: Any = optimizer) -> torch.Tensor:
            optimizer.zero_grad()
            loss = parameter.square().sum()
            loss.backward()
            return loss

        assert optimizer.step(closure).item() > optimizer.step(closure).item()


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


@pytest.mark.parametrize("name", NAMES)
def test_each_trains_and_resumes_from_its_state(name: Any) -> None:
    torch.manual_seed(0)
    settings = Optimizer(name=name, lr=0.01, weight_decay=0.01)
    tokens = torch.randint(60, (2, 9))

    def train(subject: LanguageModel, optimizer: torch.optim.Optimizer, steps: int) -> list[float]:
        losses = []
        for _ in range(steps):
            optimizer.zero_grad()
            loss = subject.token_losses(subject(tokens[:, :-1], "none"), tokens[:, 1:]).mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    subject = model()
    optimizer = make_optimizer(subject, settings)
    assert all(group["lr"] == 0.01 for group in optimizer.param_groups)
    first = train(subject, optimizer, 6)
    assert first[-1] < first[0]
    weights, state = copy.deepcopy(subject.state_dict()), copy.deepcopy(optimizer.state_dict())
    expected = train(subject, optimizer, 3)
    resumed = model()
    resumed.load_state_dict(weights)
    other = make_optimizer(resumed, settings)
    other.load_state_dict(state)
    assert train(resumed, other, 3) == expected


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


def test_parameters_without_gradients_are_left_out() -> None:
    subject = model()
    subject.embedding.requires_grad_(False)
    optimizer = make_optimizer(subject, Optimizer())
    chosen = {id(p) for group in optimizer.param_groups for p in group["params"]}
    assert not chosen & {id(p) for p in subject.embedding.parameters()}


def test_a_wrong_setting_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"optimizer\.betas\.1 must be below 1") as caught:
        make_optimizer(model(), Optimizer(betas=(0.9, 1.0)))
    assert caught.value.field == "optimizer.betas.1"
