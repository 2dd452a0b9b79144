"""Losses by the token are the negative logarithms of the probabilities that the model gives, with their gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.nn.model import LanguageModel
from edgefront.core.training.parametrisation import initialise

VOCABULARY = 60
BLOCKS = [{"kind": "attention", "n_head": 2}, {"kind": "feed_forward", "d_inner": 24}]
CUT = {"vocab_size": VOCABULARY, "cutoffs": [20, 40]}
OUTPUTS: dict[str, dict[str, Any]] = {
    "plain": {"embedding": {"vocab_size": VOCABULARY}},
    "biased and untied": {"embedding": {"vocab_size": VOCABULARY}, "output": {"tied": False, "bias": True}},
    "projected": {"embedding": {"vocab_size": VOCABULARY, "d_embed": 8}},
    "clusters of one width": {"embedding": CUT},
    "clusters of one width, projected": {"embedding": {**CUT, "d_embed": 8}},
    "narrowing clusters": {"embedding": {**CUT, "div": 2}},
    "projections of its own": {"embedding": {**CUT, "div": 2}, "output": {"tied_projections": "none"}},
    "projections all tied": {"embedding": {**CUT, "div": 2}, "output": {"tied_projections": "all"}},
    "untied clusters": {"embedding": {**CUT, "div": 2}, "output": {"tied": False}},
    "masked tokens": {
        "causal": False,
        "embedding": {"vocab_size": VOCABULARY, "segments": 2},
        "output": {"kind": "masked_tokens"},
    },
}
every_output = pytest.mark.parametrize("name", OUTPUTS)


def model(description: dict[str, Any], dtype: torch.dtype = torch.float32) -> LanguageModel:
    """With lively weights, biases too, so that no part of the output goes unseen."""
    made = initialise(LanguageModel(Architecture.parse({"d_model": 16, "blocks": BLOCKS, **description})), "bert", 0)
    rng = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=rng) * 0.2)
    return made.to(dtype)


def some_tokens(batch: int = 3, sequence: int = 8, seed: int = 0) -> Tensor:
    return torch.randint(VOCABULARY, (batch, sequence), generator=torch.Generator().manual_seed(seed))


def some_targets() -> Tensor:
    """Of every cluster, a fourth of them ignored."""
    targets = some_tokens(seed=2)
    targets[torch.rand(targets.shape, generator=torch.Generator().manual_seed(3)) < 0.25] = -100
    return targets


def expected_losses(subject: LanguageModel, targets: Tensor, smoothing: float = 0.0) -> Tensor:
    """From the whole distribution."""
    log_p = F.log_softmax(subject(some_tokens()).double(), -1)
    likelihood = log_p.gather(2, targets.clamp(min=0)[..., None])[..., 0]
    losses = -(1 - smoothing) * likelihood - smoothing * log_p.mean(2)
    return torch.where(targets == -100, 0.0, losses)


def gradients(subject: LanguageModel, loss: Tensor) -> dict[str, Tensor]:
    subject.zero_grad()
    loss.backward()
    return {
        name: parameter.grad.clone() for name, parameter in subject.named_parameters() if parameter.grad is not None
    }


@every_output
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_they_are_those_of_the_whole_distribution(name: str, smoothing: float) -> None:
    subject, targets = model(OUTPUTS[name], torch.float64), some_targets()
    found = subject.token_losses(subject(some_tokens(), "none"), targets, smoothing)
    expected = expected_losses(subject, targets, smoothing)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    assert bool((found[targets == -100] == 0).all())
    weights = torch.rand(targets.shape, dtype=torch.float64)
    wanted = gradients(subject, (expected * weights).sum())
    for key, gradient in gradients(subject, (found * weights).sum()).items():
        torch.testing.assert_close(gradient, wanted.pop(key), rtol=1e-8, atol=1e-10, msg=key)
    assert not wanted


@every_output
def test_half_types_give_float32(name: str) -> None:
    subject, targets = model(OUTPUTS[name]), some_targets()
    expected = subject.token_losses(subject(some_tokens(), "none"), targets)
    assert expected.dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        found = subject.token_losses(subject(some_tokens(), "none"), targets)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, rtol=0.05, atol=0.05)
    halved = subject.bfloat16()
    assert halved.token_losses(halved(some_tokens(), "none"), targets).dtype == torch.float32


@pytest.mark.parametrize("name", ["narrowing clusters", "clusters of one width", "untied clusters"])
def test_only_clusters_that_occur_are_computed(name: str) -> None:
    """What is not a number in another cluster's weights spoils nothing; yet every parameter has a gradient."""
    subject = model(OUTPUTS[name], torch.float64)
    hidden, targets = subject(some_tokens(), "none").detach(), some_targets() % 40
    clean = subject.token_losses(hidden, targets)
    with torch.no_grad():
        tables = subject.embedding.tables if subject.architecture.output.tied else subject.output.tables
        rows = tables[-1]
        (rows if len(tables) > 1 else rows[40:]).fill_(torch.nan)
    assert torch.equal(subject.token_losses(hidden, targets), clean)
    found = gradients(subject, subject.token_losses(hidden, targets).sum())
    for key, parameter in subject.named_parameters():
        if key.startswith("output.") or parameter is rows:
            assert key in found
            assert not found[key].isnan().any(), key


def test_nothing_to_predict() -> None:
    for description in OUTPUTS.values():
        subject = model(description)
        targets = torch.full((3, 8), -100)
        found = subject.token_losses(subject(some_tokens(), "none"), targets)
        assert torch.equal(found, torch.zeros(3, 8))
        found.sum().backward()
        assert all(not p.grad.any() for p in subject.parameters() if p.grad is not None)


def test_classes() -> None:
    subject = model({"causal": False, "embedding": {"vocab_size": 60}, "output": {"kind": "classes", "classes": 4}})
    targets = torch.tensor([3, -100, 0])
    found = subject.token_losses(subject(some_tokens(), "none"), targets)
    log_p = F.log_softmax(subject(some_tokens()), -1)
    torch.testing.assert_close(found, torch.stack([-log_p[0, 3], torch.tensor(0.0), -log_p[2, 0]]))
    smoothed = subject.token_losses(subject(some_tokens(), "none"), targets, 0.2)
    torch.testing.assert_close(smoothed[0], -0.8 * log_p[0, 3] - 0.2 * log_p[0].mean())


def test_spans() -> None:
    subject = model({"causal": False, "embedding": {"vocab_size": 60}, "output": {"kind": "spans"}})
    targets = torch.tensor([[1, 4], [0, 0], [7, -100]])
    found = subject.token_losses(subject(some_tokens(), "none"), targets)
    log_p = F.log_softmax(subject(some_tokens()), 1)
    ends = [(log_p[row, first, 0] + log_p[row, last, 1]) / -2 for row, (first, last) in enumerate(targets[:2].tolist())]
    torch.testing.assert_close(found, torch.stack([*ends, log_p[2, 7, 0] / -2]))


@pytest.mark.parametrize("target", [VOCABULARY, -1])
@every_output
def test_a_target_outside_the_vocabulary(name: str, target: int) -> None:
    subject, targets = model(OUTPUTS[name]), some_targets()
    targets[1, 1] = target
    with pytest.raises(IndexError):
        subject.token_losses(subject(some_tokens(), "none"), targets)
