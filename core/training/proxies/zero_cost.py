"""Proxies of an untrained model's gradients and activations on one batch (LTS, arXiv 2203.02094, §4.2)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
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
from edgefront.core.data.batches.batch import IGNORED, Batch
from edgefront.core.nn.blocks import FeedForwardBlock
from edgefront.core.nn.layers import Linear
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import fill
from edgefront.core.training.proxies.batch import batch_of, generator
from edgefront.core.training.proxies.registry import ProxySettings, scorable
from edgefront.core.training.step import hidden_of, rows_of

STEP = 1e-4
"""Length of GraSP's step along g, relative to the weights', where H·g is a difference of gradients."""
K = 1e-5


@dataclass(frozen=True)
class ScoreInput:
    """Arguments of every score."""

    architecture: Architecture
    seed: int
    settings: ProxySettings
    device: str = "cpu"
    data: Path | None = None

    def model(self, dtype: torch.dtype = torch.float32) -> LanguageModel:
        """The model over its vocabulary, in train mode (without dropout), with the seed's weights.

        They are those that devices measure (`core.model_files.random_values`): standard deviation 0.02 as in the
        initialisation of GPT-2 and Transformer-XL, biases 0, norms 1; the same on every platform.
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

    The derivative of the loss by a mask m of ones in W ⊙ m is W ⊙ ∂L/∂W, so no mask has to be there.
    """
    model = score_input.model()
    weight_gradients = gradients(model, score_input.batch(model))
    return sum(float((weight * gradient).abs().sum()) for _, weight, gradient in weight_gradients)


def fisher(score_input: ScoreInput) -> float:
    """Σ over the weights of linear layers of their channel's Δ = ½·mean over sequences of (Σ over tokens of a·∂L/∂a)².

    Δ is what the loss loses if the channel is taken away (Theis et al. 2018, eq. 4), a being its activations: an output
    of a linear layer at all tokens of a sequence. Each weight counts its channel's Δ, as in Abdelfattah et al. 2021.

    Squared nats; higher where more of the channels matter.
    """
    model = score_input.model()
    batch = score_input.batch(model)
    with _Watch([weight for _, weight in linear_weights(model)]) as watch:
        loss = loss_of(model, batch)
    outputs = [output for _, _, output in watch.seen]
    gradients = torch.autograd.grad(loss, outputs, materialize_grads=True)
    effects: dict[int, Tensor] = {}
    for (place, first, output), gradient in zip(watch.seen, gradients, strict=True):
        # The projection of relative attention's distances has no batch axis: all sequences share its outputs.
        by_sequence = (output.detach() * gradient).reshape(
            output.shape[0] if output.ndim > 2 else 1, -1, output.shape[-1]
        )
        effect = by_sequence.sum(1)
        weight = watch.weights[place]
        summed = effects.setdefault(place, effect.new_zeros(effect.shape[0], weight.shape[0]))
        summed[:, first : first + effect.shape[1]] += effect
    total = 0.0
    for place, effect in effects.items():
        total += watch.weights[place].shape[1] * float(effect.square().mean(0).sum()) / 2
    return total


class _Watch(TorchFunctionMode):
    """Keeps what each of these weights, or some of its rows, puts out: (which weight, first row, output)."""

    def __init__(self, weights: list[Tensor]) -> None:
        super().__init__()
        self.weights = weights
        self.seen: list[tuple[int, int, Tensor]] = []
        self._place = {id(weight): place for place, weight in enumerate(weights)}

    def __torch_function__(
        self, function: Callable[..., Any], types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        output = function(*args, **(kwargs or {}))
        if function is F.linear:
            weight = args[1]
            place = self._place.get(id(weight), self._place.get(id(weight._base)))
            if place is not None:
                self.seen.append((place, weight.storage_offset() // weight.shape[1], output))
        return output


def grasp(score_input: ScoreInput) -> float:
    """Σ (−W ⊙ H·g), H the Hessian of the loss and g its gradient by the linear layers (Wang et al. 2020, eq. 8).

    GraSP of a model. It falls as language models get better, so lower is better, as LTS's own study has it.
    """
    # The sum is in float64: its terms are of both signs and cancel.
    model = score_input.model(torch.float64)
    batch = score_input.batch(model)
    parts = [score_input.architecture, *filter(None, [score_input.architecture.source])]
    if any(isinstance(block, Sru | Srupp) for part in parts for block in part.blocks):
        products = _by_difference(model, batch)  # the compiled recurrence has no second derivative
    else:
        with plain_attention():
            products = _exact(model, batch)
    weights = [weight.detach() for _, weight in linear_weights(model)]
    return -sum(float((weight * product).sum()) for weight, product in zip(weights, products, strict=True))


def _exact(model: LanguageModel, batch: Batch) -> list[Tensor]:
    """H·g for each of the linear weights, by differentiating the product of g with the gradient."""
    weights = [weight for _, weight in linear_weights(model)]
    first = torch.autograd.grad(loss_of(model, batch), weights, create_graph=True, materialize_grads=True)
    product = sum((gradient * gradient.detach()).sum() for gradient in first)
    return list(torch.autograd.grad(product, weights, materialize_grads=True))


def _by_difference(model: LanguageModel, batch: Batch) -> list[Tensor]:
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
    """Σ |W ⊙ ∂R/∂W|, R what comes out where ones go in and all weights are magnitudes (Tanaka et al. 2020, eq. 1, 2).

    As LTS's code has it: the tokens' part of the embedding is ones, positions stay; layer norms stay too, without which
    the flow through a deep stack leaves the range of float64; embedding and output layer do not count.

    Higher is better. One sequence, for they are all the same; in float64.

    R is the hidden states' sum along one random direction of positive numbers, which stands for the output layer: the
    plain sum of normed states would be that of the norm's biases, whatever the weights.
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
    """Replaces an embedding's output by ones and what was added to it for positions."""
    positions = arguments[2] if len(arguments) > 2 else None
    ones = torch.ones_like(output)
    return ones if positions is None else ones + positions


def jacob_cov(score_input: ScoreInput) -> float:
    """−Σ (log(v + k) + 1/(v + k)) over the eigenvalues v of the correlations of the inputs' Jacobians, k = 1e-5.

    Mellor et al. 2020 (version 1, eq. 2): where different inputs act on the output in different ways, the correlations
    between them are small, all v near 1, and the score near −N, its best.

    Score of at most −rows·1; higher is better.

    A Jacobian is the gradient of a sequence's output by its embedded tokens, length·d_model numbers; the output is the
    hidden states' sum along one random direction. In LTS it goes through the output matrix and a random projection to
    one number: a direction as well, at the cost of the whole vocabulary.
    """
    model = score_input.model().requires_grad_(False)
    read: list[Tensor] = []

    def embedded(_: Any, __: Any, output: Tensor) -> Tensor:
        read.append(output.detach().requires_grad_())
        return read[0]

    handle = model.embedding.register_forward_hook(embedded)
    states = hidden_states(model, score_input.batch(model))
    handle.remove()
    direction = torch.as_tensor(generator(score_input.seed).standard_normal(states.shape[-1])).to(states)
    (jacobian,) = torch.autograd.grad((states @ direction).sum(), read)
    return from_jacobians(jacobian.flatten(1).double().cpu().numpy())


def from_jacobians(jacobians: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """The score of Jacobians [inputs, numbers]; NaN where one of them is constant."""
    with np.errstate(invalid="ignore", divide="ignore"):
        correlations = np.atleast_2d(np.corrcoef(jacobians))
    if not np.isfinite(correlations).all():
        return float("nan")
    # Rounding can leave an eigenvalue of a singular matrix a little below 0.
    values = np.linalg.eigvalsh(correlations).clip(min=0.0)
    return float(-np.sum(np.log(values + K) + 1.0 / (values + K)))


def relu_log_det(score_input: ScoreInput) -> float:
    """log |Σ over layers of (X·Xᵀ + (1 − X)·(1 − X)ᵀ)|, X the pattern of active units at each token.

    Mellor et al. 2021, eq. 3, with the tokens of the batch as inputs, and the inner units of feed-forward blocks as the
    rectifiers, as LTS's code has it; a GELU counts as active where its input is above 0, and so does a gate.

    Higher if the units distinguish more tokens. `InvalidInput` for a model without feed-forward blocks.

    Tokens that no unit distinguishes (the same beginnings of two sequences) count once, for the determinant would be 0.
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

    def active(_: Any, __: Any, output: Tensor) -> None:
        add_patterns(kernel, output.flatten(0, -2) > 0)

    def open_(_: Any, __: Any, output: Tensor) -> None:
        add_patterns(kernel, output.flatten(0, -2).chunk(2, -1)[0] > 0)

    for layer in layers:
        layer.up.register_forward_hook(open_ if layer.gated else active)
    with torch.no_grad():
        hidden_states(model, batch)
    return from_kernel(kernel)


def add_patterns(kernel: Tensor, active: Tensor) -> None:
    """Adds to the kernel [tokens, tokens] in how many of the units, bool [tokens, units], each two tokens agree."""
    signs = active.to(kernel.dtype).mul_(2).sub_(1)
    # Agreements less disagreements are the product of signs; the two together are all units.
    kernel.add_(signs @ signs.T, alpha=0.5).add_(signs.shape[1] / 2)


def from_kernel(kernel: Tensor) -> float:
    """The logarithm of its determinant, each pattern once; -inf where there are fewer units than patterns."""
    same = torch.triu(kernel == kernel.diagonal().unsqueeze(1), diagonal=1)
    kept = ~same.any(0)
    factor, fault = torch.linalg.cholesky_ex(kernel[kept][:, kept].double())
    pivots = factor.diagonal().square()
    # Below this a pivot is rounding: the matrix is singular.
    least = len(pivots) * torch.finfo(torch.float64).eps * float(kernel.max())
    if int(fault) or float(pivots.min()) <= least:
        return float("-inf")
    return float(pivots.log().sum())


# Parts -------------------------------------------------------------------------------------------------------------


def hidden_states(model: LanguageModel, batch: Batch) -> Tensor:
    """What the output layer reads, [rows, length, d_model]."""
    states: Tensor = hidden_of(model, rows_of(batch, next(model.parameters()).device))
    return states


def loss_of(model: LanguageModel, batch: Batch) -> Tensor:
    """Mean negative log likelihood of the batch's targets, nats a token."""
    rows = rows_of(batch, next(model.parameters()).device)
    losses: Tensor = model.token_losses(hidden_of(model, rows), rows.targets)
    return losses.sum() / int((batch.targets != IGNORED).sum())


def linear_weights(model: LanguageModel) -> list[tuple[str, nn.Parameter]]:
    """Weights of the linear layers of all blocks, the source's first, by name in the order of the computation.

    Embeddings, projections, norms, biases and the output layer are left out, as LTS leaves out embedding and softmax.
    """
    named = (
        [] if model.source is None else [(f"source.{name}", weight) for name, weight in linear_weights(model.source)]
    )
    for name, module in model.blocks.named_modules(prefix="blocks"):
        if isinstance(module, Linear):
            named.append((f"{name}.weight", module.weight))
    return named


@contextmanager
def plain_attention() -> Iterator[None]:
    """Attention by its definition: the fused kernels cannot be differentiated twice."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


def gradients(model: LanguageModel, batch: Batch) -> list[tuple[str, Tensor, Tensor]]:
    """Name, weight and gradient of the loss for each of `linear_weights`; zeros where the loss depends on none."""
    named = linear_weights(model)
    weights = [weight for _, weight in named]
    weight_gradients = torch.autograd.grad(loss_of(model, batch), weights, materialize_grads=True)
    return [(name, weight.detach(), gradient) for (name, weight), gradient in zip(named, weight_gradients, strict=True)]
