"""The part of a parent's tensors that a child inherits: rows and columns by index, one function for each kind of block.

Which blocks of the parent the child's blocks are parts of, `CutTable.align` says; which heads, inner units and channels
stay, their importance. What is kept is copied, so a child with nothing cut is the parent. A norm over fewer channels
divides by the root mean square of those: its gain makes up for that, so channels that were 0 can go unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from edgefront.core.graph.parameters import parameters
from edgefront.core.inherit.importance import Importance
from edgefront.core.quality.cut_table import CutTable, no_part
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Attention, Block, FeedForward, ShortConv

Weights = Mapping[str, Tensor]
"""Tensors by the parameter's name."""
Places = tuple[Tensor | None, ...]
"""For each axis of a tensor, int64 indices of what is kept; None keeps all."""


def inherited(weights: Weights, child: Architecture, table: CutTable, importance: Importance) -> dict[str, Tensor]:
    """The child's tensors by name, copied from the parent's.

    `InvalidInput` names the first field or tensor in which the child is no part of the parent.
    """
    parent = table.parent
    blocks = [int(place) for place in table.align_part(child).blocks[0]]
    channels = _best(importance.channels, child.d_model)
    places = dict(_ends(parent, child, channels))
    for index, place in enumerate(blocks):
        part, whole = child.blocks[index], parent.blocks[place]
        units = units_of(part, whole, importance.units[place], child.d_model)
        for name, where in _block(parent, part, whole, units, channels):
            places[f"blocks.{index}.{name}"] = (f"blocks.{place}.{name}", where)
    tensors = {}
    for spec in parameters(child):
        if spec.name not in places:
            raise no_part(f"{spec.name} is inherited from no tensor", spec.name, list(spec.shape))
        name, where = places[spec.name]
        if name not in weights:
            raise no_part(f"{spec.name} is of no tensor of the parent", spec.name, name)
        tensor = weights[name]
        for axis, rows in enumerate(where):
            if rows is not None:
                tensor = tensor.index_select(axis, rows)
        tensor = tensor.clone()
        energy = importance.energies.get(name.removesuffix(".weight"))
        if energy is not None and energy.any():
            # Root mean square of the norm's input over the channels that are kept, by that over all of them.
            left, whole = energy[channels].double().mean(), energy.double().mean()
            tensor = tensor * float((left / whole).sqrt())
        if tuple(tensor.shape) != spec.shape:
            what = f"{spec.name} of {list(spec.shape)} is no part of the parent's {list(weights[name].shape)}"
            raise no_part(what, spec.name, list(spec.shape))
        tensors[spec.name] = tensor
    return tensors


def _best(importance: Tensor, count: int) -> Tensor:
    """The indices of the `count` most important, rising; of equal ones the first."""
    order = torch.argsort(importance, descending=True, stable=True)
    return order[:count].sort().values


def units_of(part: Block, whole: Block, importance: Tensor, d_model: int) -> Tensor:
    """The heads, inner units or features of a block that a part of it keeps in a model of this width, int64, rising;
    empty of kinds that have none.
    """
    if isinstance(part, ShortConv):
        return _best(importance, d_model)
    if isinstance(part, FeedForward):
        return _best(importance, part.d_inner)
    if not isinstance(part, Attention) or not isinstance(whole, Attention):
        return torch.empty(0, dtype=torch.int64)
    # Heads of queries: of each key/value head's group the best, of the groups those whose best heads are.
    each, of = part.n_head // part.kv_heads, whole.n_head // whole.kv_heads
    grouped = importance.view(whole.kv_heads, of)
    heads = torch.stack([_best(group, each) for group in grouped])  # within their groups
    worth = grouped.gather(1, heads).square().sum(1)
    groups = _best(worth, part.kv_heads)
    return (groups[:, None] * of + heads[groups]).flatten()


# Indices of each tensor -------------------------------------------------------------------------------------------


def _ends(parent: Architecture, child: Architecture, channels: Tensor) -> Iterator[tuple[str, tuple[str, Places]]]:
    tokens = torch.arange(child.embedding.vocab_size)
    is_projected = parent.d_embed != parent.d_model
    columns = None if is_projected else channels
    positions = torch.arange(next((spec.shape[0] for spec in parameters(child) if spec.name == "positions.weight"), 0))
    same: dict[str, Places] = {
        "embedding.tables.0": (tokens, columns),
        "embedding.projections.0": (channels, None),
        "embedding.segments": (None, channels),
        "positions.weight": (positions, channels),
        "output.tables.0": (tokens, columns),
        "output.projections.0": (None, channels),
        "output.bias": (tokens,),
        **{f"{norm}.{what}": (channels,) for norm in ("embedding.norm", "final_norm") for what in ("weight", "bias")},
    }
    for name, where in same.items():
        # An output of its own, where the parent's is the embedding, begins as that.
        of = name.replace("output.tables", "embedding.tables") if parent.output.tied else name
        yield name, (of, where)


def _block(
    parent: Architecture, part: Block, whole: Block, units: Tensor, channels: Tensor
) -> Iterator[tuple[str, Places]]:
    for norm in ("norm", "after_norm"):
        yield f"{norm}.weight", (channels,)
        yield f"{norm}.bias", (channels,)
    if isinstance(part, Attention) and isinstance(whole, Attention):
        yield from _attention(whole, parent.d_head(whole), units, channels)
    elif isinstance(whole, FeedForward):
        yield from _feed_forward(whole, units, channels)
    elif isinstance(whole, ShortConv):
        yield from _short_conv(parent.d_model, units, channels)


def _attention(whole: Attention, d_head: int, heads: Tensor, channels: Tensor) -> Iterator[tuple[str, Places]]:
    """`qkv` has the rows of queries, then of keys, then of values."""
    groups = torch.unique(heads // (whole.n_head // whole.kv_heads))
    queries, keys = _rows(heads, d_head), _rows(groups, d_head)
    first_key, width = whole.n_head * d_head, whole.kv_heads * d_head
    rows = torch.cat([queries, first_key + keys, first_key + width + keys])
    yield "qkv.weight", (rows, channels)
    yield "qkv.bias", (rows,)
    yield "out.weight", (channels, queries)
    yield "out.bias", (channels,)
    is_whole = whole.qk_norm == "whole"
    yield "q_norm.weight", (queries if is_whole else None,)
    yield "k_norm.weight", (keys if is_whole else None,)


def _feed_forward(whole: FeedForward, inner: Tensor, channels: Tensor) -> Iterator[tuple[str, Places]]:
    """Gated, `up` has the rows of the gate, then those that it multiplies."""
    rows = torch.cat([inner, whole.d_inner + inner]) if whole.gated else inner
    yield "up.weight", (rows, channels)
    yield "up.bias", (rows,)
    yield "down.weight", (channels, inner)
    yield "down.bias", (channels,)


def _short_conv(d_model: int, features: Tensor, channels: Tensor) -> Iterator[tuple[str, Places]]:
    """`up` has three times the features' rows."""
    rows = torch.cat([start * d_model + features for start in range(3)])
    yield "up.weight", (rows, channels)
    yield "up.bias", (rows,)
    yield "conv.weight", (None, features)
    yield "conv.bias", (features,)
    yield "out.weight", (channels, features)
    yield "out.bias", (channels,)


def _rows(heads: Tensor, d_head: int) -> Tensor:
    return (heads[:, None] * d_head + torch.arange(d_head)).flatten()
