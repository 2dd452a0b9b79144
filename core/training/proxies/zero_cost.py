"""Zero-cost proxies: scores by an untrained model's gradients or activations on one batch (LTS, 2203.02094, §4.2)."""

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
"""Step of GraSP's finite difference: length of the step along g divided by the norm of the weights."""
K = 1e-5
"""Offset that `jacob_cov` adds to eigenvalues."""
MASKED_FRACTION = 0.15
"""Share of tokens that an encoder predicts (Devlin et al. 2019, §3.1)."""


@dataclass(frozen=True)
class ScoreInput:
    """Arguments of every proxy."""

    architecture: Architecture
    seed: int
    settings: ProxySettings
    device: str = "cpu"
    data: Path | None = None

    def model(self, dtype: torch.dtype = torch.float32) -> LanguageModel:
        """Builds the model in train mode without dropout, with an output over the vocabulary and weights by the seed.

        Weights equal the weights of models that devices measure (`core.model_files.random_values`): standard deviation
        0.02 as in GPT-2 and Transformer-XL, biases 0, norms 1; the same on every platform.
        """
        model: LanguageModel = LanguageModel(scorable(self.architecture)).to(device=self.device, dtype=dtype)
        fill(model, self.seed).train()
        return model

    def batch(self, model: LanguageModel) -> Batch:
        return batch_of(model.architecture, self.settings, self.seed, self.data)


def grad_norm(score_input: ScoreInput) -> float:
    """Sum over linear layers of ‖∂L/∂W‖₂, the Euclidean norm of the gradient (Abdelfattah et al. 2021, §3.2).

    Unit: nats per token and unit of weight. A higher score means faster training.
    """
    model = score_input.model()
    weight_gradients = gradients(model, score_input.batch(model))
    return sum(float(gradient.norm()) for _, _, gradient in weight_gradients)


def snip(score_input: ScoreInput) -> float:
    """SNIP: Σ |W ⊙ ∂L/∂W|, sensitivity of the loss to a mask on the weights (Lee et al. 2019, eq. 6, unnormalised).

    If a mask m of ones multiplies the weights, W ⊙ m, then ∂L/∂m is W ⊙ ∂L/∂W, so the code needs no mask.
    """
    model = score_input.model()
    weight_gradients = gradients(model, score_input.batch(model))
    return sum(float((weight * gradient).abs().sum()) for _, weight, gradient in weight_gradients)


def fisher(score_input: ScoreInput) -> float:
    """Fisher score: Σ over weights of linear layers of Δ = ½·mean over sequences of (Σ over tokens of a·∂L/∂a)².

    Δ estimates the change of the loss if a channel is removed (Theis et al. 2018, eq. 4). A channel with activations a
    is one output of a linear layer at all tokens of a sequence. The sum contains the Δ of a channel once per weight
    of the channel (Abdelfattah et al. 2021). Unit: squared nats. A higher score means that more channels matter.
    """
    model = score_input.model()
    batch = score_input.batch(model)
    with _OutputRecorder([weight for _, weight in linear_weights(model)]) as recorder:
        loss = loss_of(model, batch)
    outputs = [output for _, _, output in recorder.outputs]
    gradients = torch.autograd.grad(loss, outputs, materialize_grads=True)
    effects: dict[int, Tensor] = {}
    for (index, first, output), gradient in zip(recorder.outputs, gradients, strict=True):
        # The projection of relative positions has no batch axis, because all sequences share its outputs.
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
    """Records outputs of linear layers that use `weights` or slices: (index of weight, first row, output)."""

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
    """GraSP: Σ (−W ⊙ H·g), with Hessian H and gradient g of the loss by the linear layers (Wang et al. 2020, eq. 8).

    The score falls as language models get better. Lower is better, as in LTS's study.
    """
    # Computed in float64, because terms of both signs cancel.
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
    """Returns the product H·g of Hessian and gradient for each linear weight, by automatic differentiation."""
    weights = [weight for _, weight in linear_weights(model)]
    with sdpa_kernel(SDPBackend.MATH):  # fused attention cannot be differentiated twice
        first = torch.autograd.grad(loss_of(model, batch), weights, create_graph=True, materialize_grads=True)
        product = sum((gradient * gradient.detach()).sum() for gradient in first)
        return list(torch.autograd.grad(product, weights, materialize_grads=True))


def hessian_products_by_difference(model: LanguageModel, batch: Batch) -> list[Tensor]:
    """Returns the product H·g of Hessian and gradient, a central difference of gradients at steps along ±g."""
    weights = [weight for _, weight in linear_weights(model)]
    direction = [gradient for _, _, gradient in gradients(model, batch)]
    length = _norm(direction)
    if length == 0.0:
        return direction
    step = STEP * _norm([weight.detach() for weight in weights]) / length
    ends = []
    for sign in (1.0, -2.0):  # from the middle to one side, then to the other side
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
    """SynFlow: Σ |W ⊙ ∂R/∂W| of the output R for inputs of ones and weights |W| (Tanaka et al. 2020, eq. 1, 2).

    As in LTS's code, the token embedding is ones. Positions and layer norms stay; without norms the flow through a
    deep stack exceeds the range of float64. Weights of embedding and output layer are left out. One sequence suffices,
    because all sequences are equal. The score is computed in float64. Higher is better.

    R is the sum of hidden states along one random direction of positive numbers, which replaces the output layer. The
    plain sum of normalised states would equal the sum of the norm's biases for all weights.
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
    """Returns the flow Σ |W ⊙ ∂out/∂W| of each weight; in linear stacks each flow is `out` (Tanaka et al. 2020, §4)."""
    gradients = torch.autograd.grad(out, list(weights), materialize_grads=True)
    return [
        float((weight.detach() * gradient).abs().sum()) for weight, gradient in zip(weights, gradients, strict=True)
    ]


def _ones(_: Any, arguments: tuple[Any, ...], output: Tensor) -> Tensor:
    """Forward hook that replaces an embedding's output by ones plus positions."""
    positions = arguments[2] if len(arguments) > 2 else None
    ones = torch.ones_like(output)
    return ones if positions is None else ones + positions


def jacob_cov(score_input: ScoreInput) -> float:
    """−Σ (log(v + k) + 1/(v + k)), k = 1e-5, over the eigenvalues v of the correlation matrix of N inputs' Jacobians.

    Mellor et al. 2020 (version 1, eq. 2): if different inputs act on the output in different ways, correlations are
    small, every v is near 1, and the score is near its maximum −N. Higher is better.

    A Jacobian is the gradient of a sequence's output by the embedded tokens, length·d_model numbers. The output is the
    sum of hidden states along one random direction. LTS also projects to one number, but after computing
    the logits of the whole vocabulary.
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
    """Computes the score `jacob_cov` from flattened Jacobians [inputs, length·d_model]; NaN if one is constant."""
    with np.errstate(invalid="ignore", divide="ignore"):
        correlations = np.atleast_2d(np.corrcoef(jacobians))
    if not np.isfinite(correlations).all():
        return float("nan")
    # Rounding can make an eigenvalue of a singular matrix slightly negative.
    values = np.linalg.eigvalsh(correlations).clip(min=0.0)
    return float(-np.sum(np.log(values + K) + 1.0 / (values + K)))


def relu_log_det(score_input: ScoreInput) -> float:
    """Log determinant of Σ over layers of (X·Xᵀ + (1 − X)·(1 − X)ᵀ), where X [tokens, units] is 1 for active units.

    Mellor et al. 2021, eq. 3, with the tokens of the batch as inputs and the inner units of feed-forward blocks as
    rectifiers, as in LTS's code; a GELU or gate is active if its input is above 0. Tokens with equal patterns (equal
    beginnings of two sequences) count once, because the determinant would otherwise be 0.

    The score is higher if units distinguish more tokens. Raises `InvalidInput` for a model without feed-forward blocks.
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
    """Adds to `kernel` [tokens, tokens] the number of units of `active` [tokens, units] in which two tokens agree."""
    signs = active.to(kernel.dtype).mul_(2).sub_(1)
    # The product of signs is agreements - disagreements, and agreements + disagreements is the number of units.
    kernel.add_(signs @ signs.T, alpha=0.5).add_(signs.shape[1] / 2)


def from_kernel(kernel: Tensor) -> float:
    """Returns the log determinant of the kernel without repeats of equal tokens; -inf for a singular kernel."""
    same = torch.triu(kernel == kernel.diagonal().unsqueeze(1), diagonal=1)
    kept = ~same.any(0)
    factor, fault = torch.linalg.cholesky_ex(kernel[kept][:, kept].double())
    pivots = factor.diagonal().square()
    # A pivot below `least` is only rounding error, so that the matrix is singular.
    least = len(pivots) * torch.finfo(torch.float64).eps * float(kernel.max())
    if int(fault) or float(pivots.min()) <= least:
        return float("-inf")
    return float(pivots.log().sum())


def hidden_states(model: LanguageModel, batch: Batch) -> Tensor:
    """Hidden states that the output layer reads, [rows, length, d_model]."""
    states: Tensor = hidden_of(model, rows_of(batch, next(model.parameters()).device))
    return states


def loss_of(model: LanguageModel, batch: Batch) -> Tensor:
    """Mean negative log likelihood of the batch's targets, in nats per token."""
    rows = rows_of(batch, next(model.parameters()).device)
    losses: Tensor = model.token_losses(hidden_of(model, rows), rows.targets)
    return losses.sum() / int((batch.targets != IGNORED).sum())


def linear_weights(model: LanguageModel) -> list[tuple[str, nn.Parameter]]:
    """Weights of the linear layers of all blocks by name, in the order of computation, encoder before decoder.

    Embeddings, projections, norms, biases and the output layer are left out; LTS leaves out embedding and softmax too.
    """
    named = (
        [] if model.source is None else [(f"source.{name}", weight) for name, weight in linear_weights(model.source)]
    )
    for name, module in model.blocks.named_modules(prefix="blocks"):
        if isinstance(module, Linear):
            named.append((f"{name}.weight", module.weight))
    return named


def gradients(model: LanguageModel, batch: Batch) -> list[tuple[str, Tensor, Tensor]]:
    """Returns, for each of `linear_weights`: name, weight, gradient of the loss (zeros if the weight has no effect)."""
    named = linear_weights(model)
    weights = [weight for _, weight in named]
    weight_gradients = torch.autograd.grad(loss_of(model, batch), weights, materialize_grads=True)
    return [(name, weight.detach(), gradient) for (name, weight), gradient in zip(named, weight_gradients, strict=True)]


def batch_of(architecture: Architecture, settings: ProxySettings, seed: int, data: Path | None = None) -> Batch:
    """Returns a batch [rows, length] of random tokens, or the first batch of the prepared data set in `data`.

    A decoder predicts each next token, an encoder 15 % of the tokens. Raises `InvalidInput` for a sequence longer than
    the model's positions, and for data without a batch for the model's task.
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
    """Returns a PCG64 generator keyed by the SHA-256 of the seed, so that neighbouring seeds are unrelated."""
    key = hashlib.sha256(f"edgefront/proxy/{seed}".encode("ascii")).digest()
    return np.random.Generator(np.random.PCG64(int.from_bytes(key, "little")))


def _random_tokens(random: np.random.Generator, vocab_size: int, rows: int, length: int) -> Tokens:
    """Random tokens [rows, length]. First tokens differ if possible, because equal first tokens have equal states."""
    tokens: Tokens = random.integers(0, vocab_size, (rows, length))
    tokens[:, 0] = np.resize(random.permutation(vocab_size), rows) if vocab_size <= 1 << 20 else tokens[:, 0]
    return tokens
