"""The supernet is what it contains: each choice is a model of its own, mixtures are sums; and how they are drawn."""

from __future__ import annotations

import pytest
import torch
from tiny_supernets import VOCABULARY, lively, one_hot, settings, tokens

from edgefront.core.common.errors import InvalidInput
from edgefront.core.nn.context import Cache
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import load
from edgefront.core.search.supernet_settings import LETTERS, LatencyTerm
from edgefront.core.training.supernet.supernet import Mixture, Supernet


def stack_of(supernet: Supernet, letters: str) -> LanguageModel:
    """A separate model of these blocks, one letter per layer, with copies of the blocks' weights."""
    model = LanguageModel(supernet.settings.architecture(letters, supernet.architecture.embedding.vocab_size))
    blocks = [2 * layer + LETTERS.index(letter) for layer, letter in enumerate(letters) if letter != "i"]
    parameters, copies = dict(supernet.named_parameters()), {}
    for name, _ in model.named_parameters():
        source = name
        if name.startswith("blocks."):
            _, index, rest = name.split(".", 2)
            source = f"blocks.{blocks[int(index)]}.{rest}"
        copies[name] = parameters[source].detach().clone()
    return load(model, copies)


def stack_state(stack: LanguageModel, letters: str, state: Cache) -> Cache:
    """A state of the supernet as the state of its stack: the memories of its attention blocks."""
    made = Cache(stack.architecture, state.cache_type)
    layers = [layer for layer, letter in enumerate(letters) if letter != "i"]
    for name in stack.init_cache(3, state.cache_type):
        _, index, rest = name.split(".", 2)
        made[name] = state[f"blocks.{2 * layers[int(index)]}.{rest}"]
    return made


@pytest.mark.parametrize("letters", ["sfsf", "ssff", "fffs", "isif", "iiii", "ffff"])
@pytest.mark.parametrize("changes", [{}, {"norm": "pre", "clamp": 5}, {"cutoffs": [9, 15], "div": 2, "d_head": 4}])
def test_a_choice_of_blocks_is_the_standalone_model(letters: str, changes: dict[str, object]) -> None:
    supernet = lively(Supernet(settings(**changes), VOCABULARY)).eval()
    stack = stack_of(supernet, letters).eval()
    assert stack.architecture == settings(**changes).architecture(letters, VOCABULARY)
    with torch.no_grad(), supernet.mixed(one_hot(letters)):
        given = tokens(3, 7)
        torch.testing.assert_close(supernet(given), stack(given))
        # And segment after segment, with memory.
        state, own = supernet.init_cache(3, "memory"), None
        for seed in range(3):
            given = tokens(3, 5, seed)
            own = stack_state(stack, letters, state) if own is None else own
            scores, state = supernet(given, cache=state)
            expected, own = stack(given, cache=own)
            torch.testing.assert_close(scores, expected)
            state, own = state.keep(8).detach(), own.keep(8).detach()
            for name, kept in stack_state(stack, letters, state).items():
                torch.testing.assert_close(kept, own[name])


def test_every_layer_keeps_its_input_whatever_is_chosen() -> None:
    supernet = lively(Supernet(settings(), VOCABULARY)).eval()
    with torch.no_grad(), supernet.mixed(one_hot("ffii")):
        _, state = supernet(tokens(2, 6), cache=supernet.init_cache(2, "memory"))
    assert {name: tuple(kept.shape) for name, kept in state.items()} == {
        f"blocks.{2 * layer}.memory": (2, 6, 16) for layer in range(4)
    }


def test_a_layer_is_the_weighted_sum_of_its_blocks() -> None:
    """Equation 6, layer by layer: with one layer mixed and the others identity."""
    supernet = lively(Supernet(settings(), VOCABULARY)).eval()
    mixture = one_hot("iiii")
    mixture[2] = torch.tensor([0.2, 0.5, 0.3])
    given = tokens(2, 6)

    def hidden(weights: torch.Tensor) -> torch.Tensor:
        with torch.no_grad(), supernet.mixed(weights):
            return supernet(given, "none")

    parts = [hidden(one_hot(f"ii{letter}i")) for letter in "sfi"]
    torch.testing.assert_close(hidden(mixture), 0.2 * parts[0] + 0.5 * parts[1] + 0.3 * parts[2])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layers": 0}, "supernet.layers"),
        ({"n_head": 3}, "n_head must divide d_model 16"),
        ({"choices": ["attention", "attention"]}, "choices must differ"),
        ({"choices": ["attention"]}, "at least 2 items"),
        ({"temperature": 0.05}, "final_temperature 0.087 must be at most the temperature 0.05"),
        ({"latency": {"attention_ms": 1.0}}, "supernet.latency.feed_forward_ms is missing"),
        ({"lattency": {}}, "there is no such field"),
        ({"cutoffs": [5, 3]}, "cutoffs must rise"),
    ],
)
def test_wrong_settings_are_named(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidInput, match=message.replace("[", r"\[")):
        settings(**changes)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


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
