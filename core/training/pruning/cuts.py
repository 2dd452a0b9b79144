"""Measures what single cuts of a model cost, block by block, and evaluates random combinations of them.

A sub-block table as Puzzle has (Bercovich et al. 2024, arXiv 2411.19146, §4): each block is left out, or loses some of
its heads or inner units, while all else is whole. What comes before the block is computed once for all of its cuts.

The part of a parent's tensors that a child inherits: rows and columns by index.

Which blocks of the parent the child's blocks are parts of, `CutTable.align` says; which heads, inner units and channels
stay, their importance. What is kept is copied, so a child with nothing cut is the parent. A norm over fewer channels
divides by the root mean square of those: its gain makes up for that, so channels that were 0 can go unnoticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, Block, FeedForward, ShortConv
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.parameters import parameters
from edgefront.core.nn.blocks.attention import AttentionBlock
from edgefront.core.nn.blocks.feed_forward import FeedForwardBlock
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import load
from edgefront.core.quality.cut_table import WHOLE, BlockCuts, Cut, CutTable, no_part
from edgefront.core.training.evaluation.perplexity import evaluating
from edgefront.core.training.pruning.importance import Importance
from edgefront.core.training.pruning.parts import narrowed, part_of, random_part, rounded, stated

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
        # Gated, `up` has the rows of the gate, then those that it multiplies.
        rows = torch.cat([units, whole.d_inner + units]) if whole.gated else units
        yield "up.weight", (rows, channels)
        yield "up.bias", (rows,)
        yield "down.weight", (channels, units)
        yield "down.bias", (channels,)
    elif isinstance(whole, ShortConv):
        rows = torch.cat([start * parent.d_model + units for start in range(3)])
        yield "up.weight", (rows, channels)
        yield "up.bias", (rows,)
        yield "conv.weight", (None, units)
        yield "conv.bias", (units,)
        yield "out.weight", (channels, units)
        yield "out.bias", (channels,)


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


def _rows(heads: Tensor, d_head: int) -> Tensor:
    return (heads[:, None] * d_head + torch.arange(d_head)).flatten()


SHARES = (0.25, 0.5, 0.75)
"""Shares of heads or inner units that are kept, as nearly as their number permits."""
WIDTHS = (0.625, 0.75, 0.875)
"""Shares of the channels that are kept."""
BEST_OF = 40
"""Random parts of which the one that the table expects to be best is evaluated."""
MIN_SIZE = 0.3
"""Least share of the parameters of blocks at which the best parts are looked for."""
Progress = Callable[[str, int, int], None]
"""A function that is called with what is being done, how much of it is done, and how much there is; an error
that it raises ends the study."""


class HeldOut:
    """Text that losses are taken on: rows of tokens, each read from its own beginning.

    Args:
        rows: int64 [n, length + 1].
        batch: rows that are read at once.
    """

    def __init__(self, rows: Tensor, device: torch.device, batch: int = 4) -> None:
        self.rows, self.device, self.batch = rows, device, batch

    @property
    def count(self) -> int:
        """Predictions."""
        return int(self.rows[:, 1:].numel())

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and targets, int64 [batch, length] each."""
        for rows in self.rows.split(self.batch):
            part = rows.to(self.device)
            yield part[:, :-1], part[:, 1:]

    def loss(self, model: LanguageModel) -> float:
        """Mean loss of a model, in nats a token."""
        with evaluating(model, self.device, "float32"):
            total = sum(_total(model, model(inputs, "none"), targets) for inputs, targets in self.batches())
        return total / self.count


def _total(model: LanguageModel, hidden: Tensor, targets: Tensor) -> float:
    return float(model.token_losses(hidden, targets).sum(dtype=torch.float64))


class Cutter:
    """Cuts one model, and evaluates what comes out on one text, on which the model's own loss is `parent_loss`."""

    def __init__(
        self, model: LanguageModel, importance: Importance, text: HeldOut, parent_loss: float, progress: Progress
    ) -> None:
        self.model, self.importance, self.text, self.progress = model, importance, text, progress
        self.parent_loss = parent_loss
        self.architecture = model.architecture
        self._weights = {name: tensor.detach() for name, tensor in model.named_parameters()}

    def table(self) -> CutTable:
        """The losses that single cuts add to the model's, in nats a token."""
        blocks = self._single_cuts()
        return CutTable(self.architecture, blocks, self._widths(CutTable(self.architecture, blocks, WHOLE)))

    def combinations(
        self, table: CutTable, count: int, seed: int
    ) -> tuple[tuple[Architecture, ...], NDArray[np.float64]]:
        """Random parts of the model, and the ln perplexity of each.

        Every other one is the best of some of its size by the table: a search finds such parts, whose single cuts
        happen to look cheap, and the law is to know how much dearer they are.
        """
        rng, parts = np.random.default_rng(seed), dict[str, Architecture]()
        for number in range(50 * count):
            drawn = [random_part(self.architecture, rng) for _ in range(1 if number % 2 else BEST_OF)]
            child = drawn[0] if len(drawn) == 1 else _cheapest(drawn, table, rng.uniform(MIN_SIZE, 1.0))
            if child != self.architecture and len(parts) < count:
                parts.setdefault(child.digest, child)
            if len(parts) == count:
                break
        losses = []
        for child in parts.values():
            losses.append(self.loss(child, table))
            self.progress("combinations", len(losses), len(parts))
        return tuple(parts.values()), np.array(losses)

    def loss(self, child: Architecture, table: CutTable) -> float:
        """Mean loss of a part right after the cut, in nats a token."""
        part = load(LanguageModel(child), inherited(self._weights, child, table, self.importance))
        return self.text.loss(part.to(self.text.device))

    def _widths(self, table: CutTable) -> Cut:
        """The losses that narrower residual streams add, by the share of the channels."""
        parent = self.architecture
        widths = sorted({rounded(parent.d_model, share) for share in WIDTHS} - {parent.d_model})
        if parent.scaled_embedding or not widths:  # a narrower model would scale it by another factor
            return WHOLE
        added = list[float]()
        for width in widths:
            added.append(self.loss(part_of(parent, stated(parent), width), table) - self.parent_loss)
            self.progress("channels", len(added), len(widths))
        return _cut([width / parent.d_model for width in widths], added)

    def _single_cuts(self) -> tuple[BlockCuts, ...]:
        model, text, blocks = self.model, self.text, stated(self.architecture)
        cuts = [
            _narrower(block, units, self.architecture.d_model)
            for block, units in zip(blocks, self.importance.units, strict=True)
        ]
        totals = [np.zeros(1 + len(of_block)) for of_block in cuts]
        done, count = 0, len(blocks) * len(list(text.batches()))
        with evaluating(model, text.device, "float32"):
            for inputs, targets in text.batches():
                streams = _streams(model, inputs)
                for index, of_block in enumerate(cuts):
                    totals[index][0] += _total(model, model.run_from(index + 1, streams[index]), targets)
                    for place, (_, units) in enumerate(of_block, 1):
                        with _only(model.blocks[index], units):
                            totals[index][place] += _total(model, model.run_from(index, streams[index]), targets)
                    done += 1
                    self.progress("single cuts", done, count)
        added = [np.maximum(total / text.count - self.parent_loss, 0.0) for total in totals]
        return tuple(
            BlockCuts(float(of_block[0]), _cut([share for share, _ in shares], of_block[1:].tolist()), influence)
            for of_block, shares, influence in zip(added, cuts, self.importance.influence, strict=True)
        )


def _cheapest(parts: list[Architecture], table: CutTable, size: float) -> Architecture:
    """The least expected loss among the parts that have so large a share of the parameters, or a similar one."""
    shapes = Shapes.of(parts)
    shares = shapes.decoder_parameters / Shapes.of([table.parent]).decoder_parameters[0]
    apart = np.abs(shares - size)
    near = apart <= np.sort(apart)[len(parts) // 4]
    return parts[int(np.argmin(np.where(near, table.align(shapes).loss, np.inf)))]


def _narrower(block: Block, importance: Tensor, d_model: int) -> list[tuple[float, Tensor]]:
    """The shares of a block's heads or inner units to be tried, rising, and the units that each keeps."""
    tried = {}
    for share in SHARES:
        units = units_of(narrowed(block, share), block, importance, d_model)
        if 0 < len(units) < len(importance):
            tried[len(units) / len(importance)] = units
    return sorted(tried.items())


def _cut(shares: list[float], losses: list[float]) -> Cut:
    """Keeping less never costs less."""
    if not shares:
        return WHOLE
    rising = np.maximum.accumulate(np.maximum(np.array(losses), 0.0)[::-1])[::-1]
    return Cut((*shares, 1.0), (*rising.tolist(), 0.0))


def _streams(model: LanguageModel, inputs: Tensor) -> list[Tensor]:
    """The residual stream before each block."""
    streams = list[Tensor]()
    handles = [block.register_forward_pre_hook(lambda _, given: streams.append(given[0])) for block in model.blocks]
    try:
        model(inputs, "none")
        return streams
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _only(block: nn.Module, units: Tensor) -> Iterator[None]:
    """The block with these of its heads or inner units alone: what the others give is 0."""
    assert isinstance(block, AttentionBlock | FeedForwardBlock)
    layer = block.out if isinstance(block, AttentionBlock) else block.down
    each = block.d_head if isinstance(block, AttentionBlock) else 1
    mask = torch.zeros(layer.in_features // each)
    mask[units] = 1
    mask = mask.repeat_interleave(each).to(layer.weight.device)

    def hook(_: nn.Module, given: tuple[Any, ...]) -> tuple[Tensor]:
        return (given[0] * mask,)

    handle = layer.register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()
