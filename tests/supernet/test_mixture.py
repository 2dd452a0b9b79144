"""Gumbel-softmax over the blocks, and what a latency adds to the loss."""

from __future__ import annotations

import pytest
import torch
from tiny_supernets import one_hot

from edgefront.core.supernet.search import Mixture
from edgefront.core.supernet.settings import LatencyTerm


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_a_search_begins_with_even_odds() -> None:
    torch.testing.assert_close(Mixture(3).probabilities(), torch.full((3, 3), 1 / 3))
    assert Mixture(2, ("feed_forward", "identity")).probabilities().tolist() == [[0, 0.5, 0.5]] * 2


def test_draws_are_mixtures_that_harden_as_it_cools() -> None:
    mixture = Mixture(200)
    hottest = []
    for temperature in (5.0, 1.0, 0.087):
        drawn = mixture.draw(temperature, generator()).detach()
        torch.testing.assert_close(drawn.sum(-1), torch.ones(200))
        hottest.append(drawn.max(-1).values.mean().item())
    assert hottest[0] < 0.5 < hottest[1] < 0.9 < hottest[2]


def test_the_most_frequent_sampled_block_follows_the_probabilities() -> None:
    """The Gumbel-max property (Jang et al. 2017, eq. 1): at any temperature the argmax has the softmax's odds."""
    mixture = Mixture(20_000)
    with torch.no_grad():
        mixture.logits.copy_(torch.tensor([0.2, 1.0, -0.5]))
    counts = torch.bincount(mixture.draw(2.0, generator()).argmax(-1), minlength=3) / 20_000
    torch.testing.assert_close(counts, mixture.probabilities()[0].detach(), atol=0.01, rtol=0)


def test_hard_draws_take_one_block_and_pass_the_soft_gradient() -> None:
    mixture, target = Mixture(5), torch.arange(15.0).reshape(5, 3)
    (mixture.draw(1.0, generator(), hard=False) * target).sum().backward()
    soft, mixture.logits.grad = mixture.logits.grad, None
    hard = mixture.draw(1.0, generator(), hard=True)
    assert sorted(hard.detach().flatten().tolist()) == [0.0] * 10 + [1.0] * 5
    (hard * target).sum().backward()
    torch.testing.assert_close(mixture.logits.grad, soft)


def test_draws_depend_on_the_generator_alone() -> None:
    mixture = Mixture(4)
    torch.testing.assert_close(mixture.draw(1.0, generator(3)), mixture.draw(1.0, generator(3)), rtol=0, atol=0)
    assert not torch.equal(mixture.draw(1.0, generator(3)), mixture.draw(1.0, generator(4)))


def test_a_block_that_is_no_choice_is_never_drawn() -> None:
    mixture = Mixture(50, ("attention", "feed_forward"))
    drawn = mixture.draw(0.5, generator())
    assert drawn[:, 2].abs().max().item() == 0
    drawn[:, 0].sum().backward()
    optimizer = torch.optim.Adam(mixture.parameters(), lr=0.1, weight_decay=5e-4)
    optimizer.step()
    assert bool(torch.isfinite(mixture.logits).all())
    assert set(mixture.letters()) <= {"s", "f"}


def test_latency_adds_up_over_layers_and_blocks() -> None:
    mixture = Mixture(3)
    with torch.no_grad():
        mixture.logits.copy_(100 * one_hot("sfi"))
    term = LatencyTerm(attention_ms=4.0, feed_forward_ms=1.0, identity_ms=0.5, weight=0.3)
    assert mixture.expected_ms(term).item() == pytest.approx(5.5)
    assert mixture.penalty(term).item() == pytest.approx(0.3 * 5.5 / (3 * 5.5 / 3))


@pytest.mark.parametrize("target_ms", [None, 2.0])
def test_the_latency_term_pushes_to_cheaper_blocks(target_ms: float | None) -> None:
    mixture = Mixture(3)
    term = LatencyTerm(attention_ms=4.0, feed_forward_ms=1.0, weight=1.0, target_ms=target_ms)
    mixture.penalty(term).backward()
    gradient = mixture.logits.grad
    # Descent takes from attention and gives to identity most of all.
    assert bool((gradient[:, 0] > 0).all())
    assert bool((gradient[:, 2] < gradient[:, 1]).all())
    assert bool((gradient[:, 2] < 0).all())
    optimizer = torch.optim.SGD(mixture.parameters(), lr=1.0)
    for _ in range(100):
        optimizer.zero_grad()
        mixture.penalty(term).backward()
        optimizer.step()
    if target_ms is None:
        assert mixture.letters() == "iii"
    else:  # no further than the target
        assert 1.0 < mixture.expected_ms(term).item() <= 2.0


def test_a_target_that_is_met_pushes_nowhere() -> None:
    mixture = Mixture(3)
    mixture.penalty(LatencyTerm(attention_ms=4.0, feed_forward_ms=1.0, weight=1.0, target_ms=50.0)).backward()
    assert float(mixture.logits.grad.abs().sum()) == 0
