"""Each proxy against its definition, computed slowly and without autograd: one weight at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scored_models import MODELS, SMALL, model
from torch.overrides import TorchFunctionMode

from edgefront.core.data.batches.batch import IGNORED
from edgefront.core.nn.context import Context
from edgefront.core.training.proxies.score import score
from edgefront.core.training.proxies.zero_cost import (
    ScoreInput,
    add_patterns,
    flows,
    from_kernel,
    generator,
    linear_weights,
)

SEED = 3
STEP = 1e-5


class Subject:
    """An untrained model in float64 with its loss as the mean of −log softmax, by whole vocabularies."""

    def __init__(self, name: str) -> None:
        score_input = ScoreInput(MODELS[name], SEED, SMALL)
        self.model = score_input.model(torch.float64).requires_grad_(False)
        self.batch = score_input.batch(self.model)
        self.tokens = torch.as_tensor(self.batch.inputs)
        self.source = None if self.batch.source is None else torch.as_tensor(self.batch.source)
        self.weights = [weight for _, weight in linear_weights(self.model)]

    def states(self) -> torch.Tensor:
        return self.model(self.tokens, "none", source=self.source)

    def loss(self) -> float:
        targets = torch.as_tensor(self.batch.targets)
        chances = torch.log_softmax(self.model(self.tokens, "all", source=self.source), -1)
        wanted = targets != IGNORED
        return -float(chances[wanted].gather(1, targets[wanted].unsqueeze(1)).mean())

    def entries(self) -> Iterator[tuple[torch.Tensor, int]]:
        """Every entry of every linear layer."""
        for weight in self.weights:
            for index in range(weight.numel()):
                yield weight.view(-1), index

    def slopes(self) -> list[np.ndarray[Any, Any]]:
        """∂L/∂W of each linear layer, by differences."""
        return [self._slopes(weight) for weight in self.weights]

    def _slopes(self, weight: torch.Tensor) -> np.ndarray[Any, Any]:
        flat = weight.view(-1)
        return np.array([slope(self.loss, flat, index) for index in range(flat.numel())])


def slope(function: Callable[[], float], flat: torch.Tensor, index: int, step: float = STEP) -> float:
    before = float(flat[index])
    flat[index] = before + step
    above = function()
    flat[index] = before - step
    below = function()
    flat[index] = before
    return (above - below) / (2 * step)


DIFFERENTIATED = ["gpt", "transformer-xl", "srupp", "encoder", "translation"]


@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_grad_norm_sums_the_norms_of_the_slopes(name: str) -> None:
    naive = sum(float(np.linalg.norm(slopes)) for slopes in Subject(name).slopes())
    assert score(MODELS[name], "grad_norm", SEED, SMALL) == pytest.approx(naive, rel=1e-4)


@pytest.mark.parametrize("name", ["gpt", "srupp"])
def test_snip_sums_the_slopes_of_a_mask(name: str) -> None:
    subject, total = Subject(name), 0.0
    for flat, index in subject.entries():
        whole, mask = float(flat[index]), torch.ones(1, dtype=torch.float64)

        def masked(flat: Any = flat, index: int = index, whole: float = whole, mask: Any = mask) -> float:
            flat[index] = whole * mask
            return subject.loss()

        total += abs(slope(masked, mask, 0))
        flat[index] = whole
    assert score(MODELS[name], "snip", SEED, SMALL) == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize("name", ["gpt", "transformer-xl", "srupp", "decoder"])
def test_grasp_is_minus_the_weights_times_hessian_times_gradient(name: str) -> None:
    """H·g·W = Σ over weights of W·∂(½‖g‖²)/∂W: the gradient's squared norm, at each weight a step to either side."""
    subject = Subject(name)
    live = [weight.requires_grad_() for weight in subject.weights]

    def half_squared_norm() -> float:
        states = subject.states()
        loss = subject.model.token_losses(states, torch.as_tensor(subject.batch.targets)).mean()
        return sum(float(one.square().sum()) for one in torch.autograd.grad(loss, live)) / 2

    naive = 0.0
    for weight in live:
        flat = weight.detach().view(-1)
        naive -= sum(float(flat[i]) * slope(half_squared_norm, flat, i, 1e-6) for i in range(flat.numel()))
    assert score(MODELS[name], "grasp", SEED, SMALL) == pytest.approx(naive, rel=2e-3)


class Scaled(TorchFunctionMode):
    """Multiplies one channel of a linear layer, for one sequence, by a factor."""

    def __init__(self, weight: torch.Tensor, channel: int, sequence: int, factor: torch.Tensor) -> None:
        super().__init__()
        self.weight, self.channel, self.sequence, self.factor = weight, channel, sequence, factor

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = function(*args, **(kwargs or {}))
        if function is F.linear and args[1].untyped_storage().data_ptr() == self.weight.untyped_storage().data_ptr():
            channel = self.channel - args[1].storage_offset() // args[1].shape[1]
            if 0 <= channel < output.shape[-1]:
                output = output.clone()
                part = output[self.sequence] if output.ndim > 2 else output
                part[..., channel] *= self.factor
        return output


@pytest.mark.parametrize("name", ["gpt", "transformer-xl", "translation"])
def test_fisher_is_half_the_squared_slope_of_each_channels_factor(name: str) -> None:
    subject, total = Subject(name), 0.0
    for name_, weight in linear_weights(subject.model):
        rows = 1 if name_.endswith("relative.weight") else SMALL.rows
        for channel in range(weight.shape[0]):
            effects = []
            for sequence in range(rows):
                factor = torch.ones(1, dtype=torch.float64)
                with Scaled(weight, channel, sequence, factor):
                    effects.append(slope(subject.loss, factor, 0))
            total += weight.shape[1] * float(np.mean(np.square(effects))) / 2
    assert score(MODELS[name], "fisher", SEED, SMALL) == pytest.approx(total, rel=1e-3)


@pytest.mark.parametrize("name", ["gpt", "srupp"])
def test_jacob_cov_takes_the_jacobian_of_each_sequence(name: str) -> None:
    subject = Subject(name)
    places = subject.model._positions(subject.tokens, Context(subject.model.architecture, SMALL.length))
    inputs = subject.model.embedding(subject.tokens, None, places).clone()
    handle = subject.model.embedding.register_forward_hook(lambda *_: inputs)
    direction = torch.as_tensor(generator(SEED).standard_normal(4))

    def output() -> float:
        return float((subject.states() @ direction).sum())

    flat = inputs.view(-1)
    jacobian = np.array([slope(output, flat, index) for index in range(flat.numel())]).reshape(SMALL.rows, -1)
    handle.remove()
    values = np.linalg.eig(np.corrcoef(jacobian))[0]
    naive = -sum(math.log(value + 1e-5) + 1 / (value + 1e-5) for value in values)
    assert score(MODELS[name], "jacob_cov", SEED, SMALL) == pytest.approx(naive, rel=1e-3)


def test_relu_log_det_counts_where_patterns_agree() -> None:
    subject = Subject("deeper")
    patterns: list[torch.Tensor] = []
    for block in subject.model.blocks:
        if hasattr(block, "up"):
            block.up.register_forward_hook(lambda _, __, output: patterns.append((output > 0).flatten(0, 1)))
    subject.states()
    tokens = SMALL.rows * SMALL.length
    kernel = np.array(
        [[sum(int((layer[i] == layer[j]).sum()) for layer in patterns) for j in range(tokens)] for i in range(tokens)]
    )
    assert len(patterns) == 2
    assert score(MODELS["deeper"], "relu_log_det", SEED, SMALL) == pytest.approx(np.linalg.slogdet(kernel)[1], rel=1e-4)


def test_relu_log_det_of_gated_blocks_looks_at_the_gates() -> None:
    subject, patterns = Subject("decoder"), []
    subject.model.blocks[2].up.register_forward_hook(lambda _, __, output: patterns.append((output > 0).flatten(0, 1)))
    subject.states()
    kernel = torch.zeros(12, 12)
    add_patterns(kernel, patterns[0][:, :24])
    assert score(MODELS["decoder"], "relu_log_det", SEED, SMALL) == pytest.approx(from_kernel(kernel), rel=1e-6)


def test_tokens_that_no_unit_distinguishes_count_once() -> None:
    active = torch.tensor([[1, 0, 1, 0], [0, 1, 1, 0], [1, 0, 1, 0]], dtype=torch.bool)
    kernel, distinct = torch.zeros(3, 3), torch.zeros(2, 2)
    add_patterns(kernel, active)
    add_patterns(distinct, active[:2])
    assert kernel.tolist() == [[4, 2, 4], [2, 4, 2], [4, 2, 4]]
    assert from_kernel(kernel) == from_kernel(distinct) == pytest.approx(math.log(12))


def test_synflow_is_the_same_through_each_layer_of_a_linear_stack() -> None:
    """Tanaka et al. 2020, theorem 1: what flows through a layer is what flows through the next."""
    stack = [torch.rand(7, 5), torch.rand(3, 7), torch.rand(11, 3), torch.rand(1, 11)]
    weights = [weight.double().requires_grad_() for weight in stack]
    out = torch.ones(5, dtype=torch.float64)
    for weight in weights:
        out = weight @ out
    assert flows(out.sum(), weights) == pytest.approx([float(out.detach())] * 4)


@pytest.mark.parametrize("name", ["gpt", "transformer-xl", "srupp", "translation"])
def test_synflow_sums_the_slopes_of_the_flow(name: str) -> None:
    subject = Subject(name)
    for parameter in subject.model.parameters():
        parameter.abs_()
    for part in (subject.model, subject.model.source):
        if part is not None:
            part.embedding.register_forward_hook(
                lambda _, given, output: torch.ones_like(output) + (0 if given[2] is None else given[2])
            )
    direction = abs(torch.as_tensor(generator(SEED).standard_normal(4)))
    row = torch.zeros(1, SMALL.length, dtype=torch.int64)

    def flow() -> float:
        source = None if subject.source is None else row
        return float((subject.model(row, "none", source=source) @ direction).sum())

    naive = sum(float(flat[i]) * abs(slope(flow, flat, i, 1e-6)) for flat, i in subject.entries())
    assert score(MODELS[name], "synflow", SEED, SMALL) == pytest.approx(naive, rel=1e-4)


def test_only_the_blocks_linear_layers_are_summed() -> None:
    names = [name for name, _ in linear_weights(ScoreInput(MODELS["translation"], 0, SMALL).model())]
    assert names[0] == "source.blocks.0.qkv.weight"
    assert names[4:8] == ["blocks.0.qkv.weight", "blocks.0.out.weight", "blocks.1.qkv.weight", "blocks.1.out.weight"]
    wide = model(embedding={"vocab_size": 23, "d_embed": 16})
    assert [name for name, _ in linear_weights(ScoreInput(wide, 0, SMALL).model())] == [
        f"blocks.{name}.weight" for name in ("0.qkv", "0.out", "1.up", "1.down")
    ]
