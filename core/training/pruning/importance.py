"""Computes the importance of a trained model's units from activations on a calibration text and from weights.

The method follows Minitron (Muralidharan et al. 2024, arXiv 2407.14679, §2.1, and 2408.11796). The importance of an
inner unit or head is the root mean square of its update of the residual stream. The importance of a channel is the
root mean square of its share in the outputs of the linear layers, where the shares in one layer add up to 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from edgefront.core.nn.blocks import FeedForwardBlock, ShortConvBlock
from edgefront.core.nn.blocks.attention import AttentionBlock
from edgefront.core.nn.layers import LayerNorm
from edgefront.core.nn.model import LanguageModel
from edgefront.core.training.evaluation.perplexity import evaluating
from edgefront.core.training.pruning.study_file import ENERGY

Hook = Callable[[nn.Module, tuple[Tensor, ...]], None]


@dataclass(frozen=True, eq=False)
class Importance:
    """Importance of each unit (channel, head, inner unit) that pruning can remove, float32; higher: more important."""

    channels: Tensor
    """Importance of each channel of the residual stream, (d_model,)."""
    units: tuple[Tensor, ...]
    """Importance of each block's units: heads of attention (n_head,), inner units of a feed-forward block (d_inner,),
    features of a short convolution (d_model,); empty for other blocks."""
    energies: Mapping[str, Tensor]
    """Mean square of each norm's input by channel, (d_model,), without the mean for a layer norm. From `energies`
    the root mean square over fewer channels is computed."""
    influence: tuple[float, ...]
    """Influence of each block: 1 - mean cosine of the residual stream before and after the block (ShortGPT; Men et al.
    2024, arXiv 2403.03853, eq. 1)."""

    def tensors(self) -> dict[str, Tensor]:
        """Returns all tensors except the influence, by name in the pruning study's file."""
        blocks = {f"blocks.{index}": units for index, units in enumerate(self.units)}
        energies = {f"{ENERGY}{name}": energy for name, energy in self.energies.items()}
        return {"channels": self.channels, **blocks, **energies}

    @classmethod
    def of_tensors(cls, tensors: Mapping[str, Tensor], influence: Sequence[float]) -> Importance:
        """Creates the importance from the tensors of a pruning study's file."""
        return cls(
            channels=tensors["channels"],
            units=tuple(tensors[f"blocks.{index}"] for index in range(len(influence))),
            energies={name.removeprefix(ENERGY): tensors[name] for name in tensors if name.startswith(ENERGY)},
            influence=tuple(influence),
        )


class _Sums:
    """Running sums over tokens, in float64, of the squares and cosines from which importance is computed."""

    def __init__(self, model: LanguageModel) -> None:
        blocks = len(model.architecture.blocks)
        self.channels = torch.zeros(model.architecture.d_model, dtype=torch.float64)
        self.units: list[Tensor] = [torch.zeros(0, dtype=torch.float64) for _ in range(blocks)]
        self.energies = {name: torch.zeros_like(self.channels) for name, _ in norms_of(model)}
        self.cosines = [0.0] * blocks
        self.tokens = 0


def importance_of(model: LanguageModel, rows: Iterable[Tensor], device: torch.device) -> Importance:
    """Computes the importance of the model's units on batches of tokens, int64 [batch, sequence] each.

    The model must be on `device`; its mode is restored.
    """
    sums = _Sums(model)
    handles: list[RemovableHandle] = [
        handle for index in range(len(model.blocks)) for handle in _register_hooks(model, index, sums)
    ]
    handles += [norm.register_forward_pre_hook(_energy_hook(name, norm, sums)) for name, norm in norms_of(model)]
    head = _head_weights(model)
    try:
        with evaluating(model, device, "float32"):
            for batch in rows:
                hidden = model(batch.to(device), "none").flatten(0, 1)
                sums.tokens += len(hidden)
                _add_channels(sums, hidden, head)
    finally:
        for handle in handles:
            handle.remove()
    return Importance(
        channels=sums.channels.sqrt().float(),
        units=tuple((units / max(1, sums.tokens)).sqrt().float() for units in sums.units),
        energies={name: (energy / max(1, sums.tokens)).float() for name, energy in sums.energies.items()},
        influence=tuple(1 - cosine / max(1, sums.tokens) for cosine in sums.cosines),
    )


def norms_of(model: LanguageModel) -> list[tuple[str, nn.Module]]:
    """Returns name and module of the model's norms over the channels."""
    named = [("embedding.norm", model.embedding.norm), ("final_norm", model.final_norm)]
    for index, block in enumerate(model.blocks):
        named += [(f"blocks.{index}.{name}", getattr(block, name)) for name in ("norm", "after_norm")]
    return [(name, norm) for name, norm in named if norm is not None]


def _head_weights(model: LanguageModel) -> Tensor:
    """Sum of squares of each channel's weights in the output layer, [d_model]."""
    tables = model.embedding.tables if model.architecture.output.tied else model.output.tables
    weights = tables[0].detach()
    projections = model.embedding.projections if len(model.embedding.projections) else None
    if projections is not None:  # the table is narrower than the residual stream
        weights = weights @ projections[0].detach().T
    return weights.square().sum(0)


def _register_hooks(model: LanguageModel, index: int, sums: _Sums) -> list[RemovableHandle]:
    block = model.blocks[index]

    def add_cosine(_: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        cosine = torch.nn.functional.cosine_similarity(inputs[0].double(), output.double(), dim=-1)
        sums.cosines[index] += float(cosine.sum())

    handles = [block.register_forward_hook(add_cosine)]
    if isinstance(block, AttentionBlock):
        handles.append(block.qkv.register_forward_pre_hook(_channel_hook(block.qkv.weight, sums)))
        handles.append(block.out.register_forward_pre_hook(_head_hook(block, index, sums)))
    elif isinstance(block, FeedForwardBlock):
        handles.append(block.up.register_forward_pre_hook(_channel_hook(block.up.weight, sums)))
        handles.append(block.down.register_forward_pre_hook(_unit_hook(block.down.weight, index, sums)))
    elif isinstance(block, ShortConvBlock):
        handles.append(block.up.register_forward_pre_hook(_channel_hook(block.up.weight, sums)))
        handles.append(block.out.register_forward_pre_hook(_unit_hook(block.out.weight, index, sums)))
    return handles


def _energy_hook(name: str, norm: nn.Module, sums: _Sums) -> Hook:
    def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        states = inputs[0].flatten(0, -2)
        if isinstance(norm, LayerNorm):
            states = states - states.mean(-1, keepdim=True)
        sums.energies[name] += states.square().sum(0).double().cpu()

    return hook


def _channel_hook(weight: Tensor, sums: _Sums) -> Hook:
    squares = weight.detach().square().sum(0)

    def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        _add_channels(sums, inputs[0].flatten(0, 1), squares)

    return hook


def _add_channels(sums: _Sums, states: Tensor, squares: Tensor) -> None:
    """Adds each channel's share in the outputs of linear layers with inputs `states` [tokens, d_model]."""
    added = states.square().sum(0).double().cpu() * squares.double().cpu()
    sums.channels += added / added.sum().clamp_min(torch.finfo(torch.float64).tiny) * len(states)


def _head_hook(block: AttentionBlock, index: int, sums: _Sums) -> Hook:
    weight = block.out.weight.detach().unflatten(1, (block.n_head, block.d_head))  # d_model, head, d_head
    gram = torch.einsum("mhd,mhe->hde", weight, weight).double().cpu()

    def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        mixed = inputs[0].flatten(0, 1).unflatten(1, (block.n_head, block.d_head))
        moments = torch.einsum("thd,the->hde", mixed, mixed).double().cpu()
        _add_units(sums, index, (moments * gram).sum((1, 2)))

    return hook


def _unit_hook(weight: Tensor, index: int, sums: _Sums) -> Hook:
    squares = weight.detach().square().sum(0).double().cpu()

    def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        _add_units(sums, index, inputs[0].flatten(0, 1).square().sum(0).double().cpu() * squares)

    return hook


def _add_units(sums: _Sums, index: int, added: Tensor) -> None:
    before = sums.units[index]
    sums.units[index] = added if not len(before) else before + added
