"""Proxies from an untrained model's gradients and activations on one batch (LTS, arXiv 2203.02094, §4.2)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Sru, Srupp
from edgefront.core.common.errors import InvalidInput
from edgefront.core.data.batches.batch import IGNORED, Batch, Tokens
from edgefront.core.data.prepared.prepared import open_prepared
from edgefront.core.nn.blocks import FeedForwardBlock
from edgefront.core.nn.layers import Linear
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import fill
from edgefront.core.training.batches import make_batches
from edgefront.core.training.proxies.registry import ProxySettings, scorable
from edgefront.core.training.recipes.recipe import Recipe, Task
from edgefront.core.training.step import hidden_of, rows_of

STEP = 1e-4
"""GraSP's finite difference: length of the step along g over that of the weights."""
K = 1e-5
"""Offset of eigenvalues in `jacob_cov`."""
MASKED_FRACTION = 0.15
"""Share of an encoder's tokens that are predicted (Devlin et al. 2019, §3.1)."""


@dataclass(frozen=True)
class ScoreInput:
    """Arguments of every proxy."""

    architecture: Architecture
    seed: int
    settings: ProxySettings
    device: str = "cpu"
    data: Path | None = None

    def model(self, dtype: torch.dtype = torch.float32) -> LanguageModel:
        """The model with an output over its vocabulary, in train mode (without dropout), with the seed's weights.

        These are the weights that devices measure (`core.model_files.random_values`): standard deviation 0.02 as of
        GPT-2 and Transformer-XL, biases 0, norms 1; the same on every platform.
        """
        model: LanguageModel = LanguageModel(scorable(self.architecture)).to(device=self.device, dtype=dtype)
        fill(model, self.seed).train()
        return model

    def batch(self, model: LanguageModel) -> Batch:
        return batch_of(model.architecture, self.settings, self.seed, self.data)


def grad_norm(score_input: ScoreInput) -> float:
    """Σ over linear layers of ‖∂L/∂W‖₂, the Euclidean norm of the gradient matrix (Abdelfattah et al. 2021, §3.2).

    Nats a token for a change of the weights by one; higher where training moves faster.
    """
    model = score_input.model()
    weight_gradients = gradients(model, score_input.batch(model))
    return sum(float(gradient.norm()) for _, _, gradient in weight_gradients)


def snip(score_input: ScoreInput) -> float:
    """Σ |W ⊙ ∂L/∂W|: how much the loss depends on a mask over each weight (Lee et al. 2019, eq. 6, before normalising).

    The derivative of the loss by a mask m of ones in W ⊙ m is W ⊙ ∂L/∂W, so no mask is needed.
    """
    model = score_input.model()
    weight_gradients = gradients(model, score_input.batch(model))
    return sum(float((weight * gradient).abs().sum()) for _, weight, gradient in weight_gradients)


def fisher(score_input: ScoreInput) -> float:
    """Σ over the weights of linear layers of their channel's Δ = ½·mean over sequences of (Σ over tokens of a·∂L/∂a)².

    Δ estimates the change of the loss without the channel (Theis et al. 2018, eq. 4), a being its activations: one
    output of a linear layer at all tokens of a sequence. Each weight counts its channel's Δ (Abdelfattah et al. 2021).

    Squared nats; higher where more channels matter.
    """
    model = score_input.model()
    batch = score_input.batch(model)
    with _OutputRecorder([weight for _, weight in linear_weights(model)]) as recorder:
        loss = loss_of(model, batch)
    outputs = [output for _, _, output in recorder.outputs]
    gradients = torch.autograd.grad(loss, outputs, materialize_grads=True)
    effects: dict[int, Tensor] = {}
    for (index, first, output), gradient in zip(recorder.outputs, gradients, strict=True):
        # The projection of relative positions has no batch axis: all sequences share its outputs.
        by_sequence = (output.detach() * gradient).reshape(
            output.shape[0] if output.ndim > 2 else 1, -1, output.shape[-1]
        )
        effect = by_sequence.sum(1)
        weight = recorder.weights[index]
        summed = effects.setdefault(index, effect.new_zeros(effect.shape[0], weight.shape[0]))
        summed[:, first : first + effect.shape[1]] += effect
    total = 0.0
    for index, effect in effects.items():
        total += recorder.weights[index].shape[1] * float(effect.square().mean(0).sum()) / 2
    return total


class _OutputRecorder(TorchFunctionMode):
    """Records the outputs of linear layers with these weights, or slices of them: (weight, first row, output)."""

    def __init__(self, weights: list[Tensor]) -> None:
        super().__init__()
        self.weights = weights
        self.outputs: list[tuple[int, int, Tensor]] = []
        self._index = {id(weight): index for index, weight in enumerate(weights)}

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        output = function(*args, **(kwargs or {}))
        if function is F.linear:
            weight = args[1]
            index = self._index.get(id(weight), self._index.get(id(weight._base)))
            if index is not None:
                self.outputs.append((index, weight.storage_offset() // weight.shape[1], output))
        return output


def grasp(score_input: ScoreInput) -> float:
    """Σ (−W ⊙ H·g), H the Hessian of the loss and g its gradient by the linear layers (Wang et al. 2020, eq. 8).

    It falls as language models get better, so lower is better, as in LTS's own study.
    """
    # In float64: the terms have both signs and cancel.
    model = score_input.model(torch.float64)
    batch = score_input.batch(model)
    parts = [score_input.architecture, *filter(None, [score_input.architecture.source])]
    if any(isinstance(block, Sru | Srupp) for part in parts for block in part.blocks):
        products = hessian_products_by_difference(model, batch)  # the compiled recurrence has no second derivative
    else:
        products = hessian_products(model, batch)
    weights = [weight.detach() for _, weight in linear_weights(model)]
    return -sum(float((weight * product).sum()) for weight, product in zip(weights, products, strict=True))


def hessian_products(model: LanguageModel, batch: Batch) -> list[Tensor]:
    """H·g of each linear weight, by differentiating the product of g with the gradient."""
    weights = [weight for _, weight in linear_weights(model)]
    with sdpa_kernel(SDPBackend.MATH):  # fused attention cannot be differentiated twice
        first = torch.autograd.grad(loss_of(model, batch), weights, create_graph=True, materialize_grads=True)
        product = sum((gradient * gradient.detach()).sum() for gradient in first)
        return list(torch.autograd.grad(product, weights, materialize_grads=True))


def hessian_products_by_difference(model: LanguageModel, batch: Batch) -> list[Tensor]:
    """H·g as the central difference of the gradients a small step along g to either side."""
    weights = [weight for _, weight in linear_weights(model)]
    direction = [gradient for _, _, gradient in gradients(model, batch)]
    length = _norm(direction)
    if length == 0.0:
        return direction
    step = STEP * _norm([weight.detach() for weight in weights]) / length
    ends = []
    for sign in (1.0, -2.0):  # from the middle to one side, from there to the other
        with torch.no_grad():
            for weight, along in zip(weights, direction, strict=True):
                weight.add_(along, alpha=sign * step)
        ends.append([gradient for _, _, gradient in gradients(model, batch)])
    with torch.no_grad():
        for weight, along in zip(weights, direction, strict=True):
            weight.add_(along, alpha=step)
    return [(after - before) / (2 * step) for after, before in zip(*ends, strict=True)]


def _norm(tensors: list[Tensor]) -> float:
    return math.sqrt(sum(float(tensor.square().sum()) for tensor in tensors))


def synflow(score_input: ScoreInput) -> float:
    """Σ |W ⊙ ∂R/∂W|, R the output for an input of ones and weights of their magnitudes (Tanaka et al. 2020, eq. 1, 2).

    As in LTS's code, the token embedding is ones. Positions stay, and layer norms, without which the flow through a
    deep stack leaves the range of float64. Embedding and output layer do not count. One sequence, since all are equal,
    in float64. Higher is better.

    R is the hidden states' sum along one random direction of positive numbers, in place of the output layer: the plain
    sum of normed states would be that of the norm's biases, whatever the weights.
    """
    model = score_input.model(torch.float64)
    weights = [weight for _, weight in linear_weights(model)]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.abs_()
    for part in (model, model.source):
        if part is not None:
            part.embedding.register_forward_hook(_ones)
    tokens = torch.zeros(1, score_input.settings.length, dtype=torch.int64, device=score_input.device)
    states = model(tokens, "none", source=None if model.source is None else tokens)
    direction = torch.as_tensor(
        abs(generator(score_input.seed).standard_normal(states.shape[-1])), device=score_input.device
    )
    total = sum(flows((states @ direction).sum(), weights))
    if total == 0.0:
        raise InvalidInput(
            "synflow is 0 for this model: its layer norms turn the input of ones into zeros, and it has no positions",
            field="architecture",
            value=score_input.architecture.digest,
            allowed="a model with norm post or with positions that are added to the embedding, or another proxy",
        )
    return total


def flows(out: Tensor, weights: Sequence[Tensor]) -> list[float]:
    """Σ |W ⊙ ∂out/∂W| of each weight. In a stack of linear layers it is `out` for each of them (Tanaka et al., §4)."""
    gradients = torch.autograd.grad(out, list(weights), materialize_grads=True)
    return [
        float((weight.detach() * gradient).abs().sum()) for weight, gradient in zip(weights, gradients, strict=True)
    ]


def _ones(_: Any, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
    """Replaces an embedding's output by ones plus positions."""
    positions = arguments[2] if len(arguments) > 2 else None
    ones = torch.ones_like(output)
    return ones if positions is None else ones + positions


def jacob_cov(score_input: ScoreInput) -> float:
    """−Σ (log(v + k) + 1/(v + k)) over the eigenvalues v of the correlations of the inputs' Jacobians, k = 1e-5.

    Mellor et al. 2020 (version 1, eq. 2): where different inputs act on the output in different ways, the correlations
    are small, all v near 1, and the score near −N, its best. Higher is better.

    A Jacobian is the gradient of a sequence's output by its embedded tokens, length·d_model numbers; the output is the
    hidden states' sum along one random direction. LTS projects the logits to one number: a direction as well, at the
    cost of the whole vocabulary.
    """
    model = score_input.model().requires_grad_(False)
    embedded: list[Tensor] = []

    def hook(_: Any, __: Any, output: Tensor) -> Tensor:
        embedded.append(output.detach().requires_grad_())
        return embedded[0]

    handle = model.embedding.register_forward_hook(hook)
    states = hidden_states(model, score_input.batch(model))
    handle.remove()
    direction = torch.as_tensor(generator(score_input.seed).standard_normal(states.shape[-1])).to(states)
    (jacobian,) = torch.autograd.grad((states @ direction).sum(), embedded)
    return from_jacobians(jacobian.flatten(1).double().cpu().numpy())


def from_jacobians(jacobians: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """The score of Jacobians [inputs, numbers]; NaN where one of them is constant."""
    with np.errstate(invalid="ignore", divide="ignore"):
        correlations = np.atleast_2d(np.corrcoef(jacobians))
    if not np.isfinite(correlations).all():
        return float("nan")
    # Rounding can make an eigenvalue of a singular matrix slightly negative.
    values = np.linalg.eigvalsh(correlations).clip(min=0.0)
    return float(-np.sum(np.log(values + K) + 1.0 / (values + K)))


def relu_log_det(score_input: ScoreInput) -> float:
    """log |Σ over layers of (X·Xᵀ + (1 − X)·(1 − X)ᵀ)|, X the pattern of active units at each token.

    Mellor et al. 2021, eq. 3, with the tokens of the batch as inputs and the inner units of feed-forward blocks as
    rectifiers, as in LTS's code; a GELU, and a gate, is active where its input is above 0. Tokens that no unit
    distinguishes (equal beginnings of two sequences) count once, else the determinant would be 0.

    Higher if the units distinguish more tokens. `InvalidInput` for a model without feed-forward blocks.
    """
    model = score_input.model()
    layers = [block for block in model.blocks if isinstance(block, FeedForwardBlock)]
    if not layers:
        raise InvalidInput(
            "relu_log_det needs feed-forward blocks, and this model has none",
            field="architecture",
            value=score_input.architecture.digest,
            allowed="a model with feed-forward blocks, or another proxy",
        )
    batch = score_input.batch(model)
    kernel = torch.zeros(batch.inputs.size, batch.inputs.size, device=score_input.device)

    def plain(_: Any, __: Any, output: Tensor) -> None:
        add_patterns(kernel, output.flatten(0, -2) > 0)

    def gated(_: Any, __: Any, output: Tensor) -> None:
        add_patterns(kernel, output.flatten(0, -2).chunk(2, -1)[0] > 0)

    for layer in layers:
        layer.up.register_forward_hook(gated if layer.gated else plain)
    with torch.no_grad():
        hidden_states(model, batch)
    return from_kernel(kernel)


def add_patterns(kernel: Tensor, active: Tensor) -> None:
    """Adds to the kernel [tokens, tokens] the number of units, bool [tokens, units], in which two tokens agree."""
    signs = active.to(kernel.dtype).mul_(2).sub_(1)
    # Agreements less disagreements are the product of signs; the two together are all units.
    kernel.add_(signs @ signs.T, alpha=0.5).add_(signs.shape[1] / 2)


def from_kernel(kernel: Tensor) -> float:
    """The log determinant with each pattern once; -inf with fewer units than patterns."""
    same = torch.triu(kernel == kernel.diagonal().unsqueeze(1), diagonal=1)
    kept = ~same.any(0)
    factor, fault = torch.linalg.cholesky_ex(kernel[kept][:, kept].double())
    pivots = factor.diagonal().square()
    # Below this a pivot is rounding: the matrix is singular.
    least = len(pivots) * torch.finfo(torch.float64).eps * float(kernel.max())
    if int(fault) or float(pivots.min()) <= least:
        return float("-inf")
    return float(pivots.log().sum())


def hidden_states(model: LanguageModel, batch: Batch) -> Tensor:
    """Input of the output layer, [rows, length, d_model]."""
    states: Tensor = hidden_of(model, rows_of(batch, next(model.parameters()).device))
    return states


def loss_of(model: LanguageModel, batch: Batch) -> Tensor:
    """Mean negative log likelihood of the batch's targets, nats a token."""
    rows = rows_of(batch, next(model.parameters()).device)
    losses: Tensor = model.token_losses(hidden_of(model, rows), rows.targets)
    return losses.sum() / int((batch.targets != IGNORED).sum())


def linear_weights(model: LanguageModel) -> list[tuple[str, nn.Parameter]]:
    """Weights of the linear layers of all blocks, the encoder's first, by name in the order of the computation.

    Embeddings, projections, norms, biases and the output layer are excluded, as LTS excludes embedding and softmax.
    """
    named = (
        [] if model.source is None else [(f"source.{name}", weight) for name, weight in linear_weights(model.source)]
    )
    for name, module in model.blocks.named_modules(prefix="blocks"):
        if isinstance(module, Linear):
            named.append((f"{name}.weight", module.weight))
    return named


def gradients(model: LanguageModel, batch: Batch) -> list[tuple[str, Tensor, Tensor]]:
    """Name, weight and gradient of the loss for each of `linear_weights`; zeros where it has no effect."""
    named = linear_weights(model)
    weights = [weight for _, weight in named]
    weight_gradients = torch.autograd.grad(loss_of(model, batch), weights, materialize_grads=True)
    return [(name, weight.detach(), gradient) for (name, weight), gradient in zip(named, weight_gradients, strict=True)]


def batch_of(architecture: Architecture, settings: ProxySettings, seed: int, data: Path | None = None) -> Batch:
    """Inputs and targets [rows, length] of random tokens, or the first batch of the prepared data set in `data`.

    A decoder predicts each next token, an encoder 15 % of the tokens. Raises `InvalidInput` for a sequence longer than
    the model's positions, and for data without a batch of the model's task.
    """
    for model in (architecture, architecture.source):
        if model is not None and model.max_length is not None and settings.length > model.max_length:
            raise InvalidInput(
                f"sequences of {settings.length} tokens are longer than the model's {model.max_length} positions",
                field="length",
                value=settings.length,
                allowed=f"at most {model.max_length}",
            )
    if data is not None:
        task: Task = "pairs" if architecture.source is not None else "streams" if architecture.causal else "masked"
        recipe = Recipe(name="scoring", task=task, rows=settings.rows, segment=settings.length)
        return make_batches(open_prepared(data), recipe, seed=seed)(0)
    random = generator(seed)
    tokens = _random_tokens(random, architecture.embedding.vocab_size, settings.rows, settings.length + 1)
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    if not architecture.causal:
        hidden = random.random(inputs.shape).argsort(1) < max(1, round(MASKED_FRACTION * settings.length))
        targets = np.where(hidden, inputs, IGNORED)
    source = None
    if architecture.source is not None:
        source = _random_tokens(random, architecture.source.embedding.vocab_size, settings.rows, settings.length)
    return Batch(inputs, targets, starts=True, source=source)


def generator(seed: int) -> np.random.Generator:
    """PCG64 keyed by the SHA-256 of the seed, so that neighbouring seeds are unrelated."""
    key = hashlib.sha256(f"edgefront/proxy/{seed}".encode("ascii")).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(key, "little")))


def _random_tokens(random: np.random.Generator, vocab_size: int, rows: int, length: int) -> Tokens:
    """Uniform tokens [rows, length]. First tokens differ as far as possible: equal ones would have equal states."""
    tokens: Tokens = random.integers(0, vocab_size, (rows, length))
    tokens[:, 0] = np.resize(random.permutation(vocab_size), rows) if vocab_size <= 1 << 20 else tokens[:, 0]
    return tokens
