"""Prunes a model: copies the weights of a submodel, and measures what pruning costs.

A submodel (child) has some of the rows and columns of the larger model's (parent's) tensors. `PruningTable.align` maps
the child's blocks to blocks of the parent; importance decides which heads, inner units and channels are kept. A child
with the parent's architecture has the parent's weights. A norm over fewer channels divides by the root mean square of
these channels; the norm's gain compensates, so channels that were 0 can be removed without effect.

`PruningTable` has the loss added by single cuts, as in Puzzle (Bercovich et al. 2024, arXiv 2411.19146, §4): one block
at a time is dropped, or loses some of its heads or inner units, while the rest of the model stays whole. The loss is
the divergence from the parent's distribution of the next token, which is the expected loss if the parent is calibrated.
With SmolLM2-135M it scatters between texts of 256 tokens as the difference of the losses does between 2,048.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, Block, FeedForward, ShortConv
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.parameters import count, parameters
from edgefront.core.nn.blocks import FeedForwardBlock
from edgefront.core.nn.blocks.attention import AttentionBlock
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import load
from edgefront.core.quality.pruning_table import WHOLE, BlockPruning, Cut, PruningTable, no_part
from edgefront.core.training.evaluation.perplexity import evaluating
from edgefront.core.training.pruning.importance import Importance
from edgefront.core.training.pruning.submodel import (
    explicit_blocks,
    narrow_block,
    random_submodel,
    rounded_width,
    submodel,
)

Indices = tuple[Tensor | None, ...]
"""Kept indices along each axis of a tensor, int64; None keeps the whole axis."""


def prune_weights(
    weights: Mapping[str, Tensor], child: Architecture, table: PruningTable, importance: Importance
) -> dict[str, Tensor]:
    """Returns the child's tensors by name, copied from the parent's tensors.

    Raises `InvalidInput` if the child is not a submodel; the error names the first wrong field or tensor.
    """
    parent = table.parent
    block_indices = [int(index) for index in table.align_part(child).blocks[0]]
    channels = _most_important(importance.channels, child.d_model)
    sources = dict(_outer_indices(parent, child, channels))
    for index, parent_index in enumerate(block_indices):
        block, whole = child.blocks[index], parent.blocks[parent_index]
        units = kept_units(block, whole, importance.units[parent_index], child.d_model)
        for name, indices in _block_indices(parent, block, whole, units, channels):
            sources[f"blocks.{index}.{name}"] = (f"blocks.{parent_index}.{name}", indices)
    tensors = {}
    for spec in parameters(child):
        if spec.name not in sources:
            raise no_part(f"{spec.name} has no corresponding tensor of the parent", spec.name, list(spec.shape))
        name, indices = sources[spec.name]
        if name not in weights:
            raise no_part(f"{spec.name} is missing from the parent", spec.name, name)
        tensor = weights[name]
        for axis, kept in enumerate(indices):
            if kept is not None:
                tensor = tensor.index_select(axis, kept)
        tensor = tensor.clone()
        energy = importance.energies.get(name.removesuffix(".weight"))
        if energy is not None and energy.any():
            # Mean square of the norm's input over the kept channels, divided by the mean square over all channels.
            ratio = energy[channels].double().mean() / energy.double().mean()
            tensor = tensor * float(ratio.sqrt())
        if tuple(tensor.shape) != spec.shape:
            what = f"{spec.name} of {list(spec.shape)} is not a part of the parent's {list(weights[name].shape)}"
            raise no_part(what, spec.name, list(spec.shape))
        tensors[spec.name] = tensor
    return tensors


def _most_important(importance: Tensor, count: int) -> Tensor:
    """Returns the indices of the `count` most important units, ascending; lower indices win ties."""
    order = torch.argsort(importance, descending=True, stable=True)
    return order[:count].sort().values


def kept_units(block: Block, whole: Block, importance: Tensor, d_model: int) -> Tensor:
    """Indices of the heads, inner units or features of `whole` that the pruned `block` keeps, int64, ascending."""
    if isinstance(block, ShortConv):
        return _most_important(importance, d_model)
    if isinstance(block, FeedForward):
        return _most_important(importance, block.d_inner)
    if not isinstance(block, Attention) or not isinstance(whole, Attention):
        return torch.empty(0, dtype=torch.int64)
    # Keeps the best query heads of each key/value group, then the groups whose kept heads are best.
    kept_of_group, group_size = block.n_head // block.kv_heads, whole.n_head // whole.kv_heads
    grouped = importance.view(whole.kv_heads, group_size)
    heads = torch.stack([_most_important(group, kept_of_group) for group in grouped])  # indices within each group
    groups = _most_important(grouped.gather(1, heads).square().sum(1), block.kv_heads)
    return (groups[:, None] * group_size + heads[groups]).flatten()


# Indices of each tensor -------------------------------------------------------------------------------------------


def _outer_indices(
    parent: Architecture, child: Architecture, channels: Tensor
) -> Iterator[tuple[str, tuple[str, Indices]]]:
    """Yields each tensor outside the blocks: name in the child, name in the parent, and kept indices."""
    tokens = torch.arange(child.embedding.vocab_size)
    columns = None if parent.d_embed != parent.d_model else channels
    positions = torch.arange(next((spec.shape[0] for spec in parameters(child) if spec.name == "positions.weight"), 0))
    by_name: dict[str, Indices] = {
        "embedding.tables.0": (tokens, columns),
        "embedding.projections.0": (channels, None),
        "embedding.segments": (None, channels),
        "positions.weight": (positions, channels),
        "output.tables.0": (tokens, columns),
        "output.projections.0": (None, channels),
        "output.bias": (tokens,),
        **{f"{norm}.{what}": (channels,) for norm in ("embedding.norm", "final_norm") for what in ("weight", "bias")},
    }
    for name, indices in by_name.items():
        # If the parent's output is tied but the child's is not, the child's output is copied from the embedding.
        source = name.replace("output.tables", "embedding.tables") if parent.output.tied else name
        yield name, (source, indices)


def _block_indices(
    parent: Architecture, block: Block, whole: Block, units: Tensor, channels: Tensor
) -> Iterator[tuple[str, Indices]]:
    for norm in ("norm", "after_norm"):
        yield f"{norm}.weight", (channels,)
        yield f"{norm}.bias", (channels,)
    if isinstance(block, Attention) and isinstance(whole, Attention):
        # `qkv` has the rows of queries, then of keys, then of values.
        d_head = parent.d_head(whole)
        groups = torch.unique(units // (whole.n_head // whole.kv_heads))
        queries, keys = _head_rows(units, d_head), _head_rows(groups, d_head)
        first_key, width = whole.n_head * d_head, whole.kv_heads * d_head
        rows = torch.cat([queries, first_key + keys, first_key + width + keys])
        yield "qkv.weight", (rows, channels)
        yield "qkv.bias", (rows,)
        yield "out.weight", (channels, queries)
        yield "out.bias", (channels,)
        is_whole = whole.qk_norm == "whole"
        yield "q_norm.weight", (queries if is_whole else None,)
        yield "k_norm.weight", (keys if is_whole else None,)
    elif isinstance(whole, FeedForward):
        # With a gate, `up` has the rows of the gate, then the rows that the gate multiplies.
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


def _head_rows(heads: Tensor, d_head: int) -> Tensor:
    return (heads[:, None] * d_head + torch.arange(d_head)).flatten()


# Evaluation -------------------------------------------------------------------------------------------------------

SHARES = (0.25, 0.5, 0.75)
"""Kept shares of heads or inner units that are evaluated, rounded to whole units."""
WIDTHS = (0.625, 0.75, 0.875)
"""Kept shares of the channels that are evaluated."""
BEST_OF = 40
"""Number of random submodels, of which the submodel with the least expected loss is evaluated."""
MIN_SIZE = 0.3
"""Minimum share of the blocks' parameters of the best submodels that are evaluated."""
CUTS_EVERY = 4
"""Single cuts are evaluated on every fourth row of the text."""
Recorded = Callable[[float, Callable[[], list[float]]], list[float]]
"""Function that returns the results of an evaluation, computed now or recorded before; the first argument is the work
(`pass_work`)."""


class EvaluationText:
    """Text on which losses are computed: rows of tokens, int64 [n, length + 1], each read without earlier context."""

    batch = 4
    """Number of rows of one forward pass."""

    def __init__(self, rows: Tensor, device: torch.device) -> None:
        self.rows, self.device = rows, device

    @property
    def count(self) -> int:
        """Number of predicted tokens."""
        return int(self.rows[:, 1:].numel())

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields batches of inputs and targets, int64 [batch, length] each."""
        for rows in self.rows.split(self.batch):
            on_device = rows.to(self.device)
            yield on_device[:, :-1], on_device[:, 1:]

    def loss(self, model: LanguageModel) -> float:
        """Mean loss of a model on the text, in nats per token."""
        with evaluating(model, self.device, "float32"):
            total = sum(_loss_sum(model, model(inputs, "none"), targets) for inputs, targets in self.batches())
        return total / self.count


def _loss_sum(model: LanguageModel, hidden: Tensor, targets: Tensor) -> float:
    return float(model.token_losses(hidden, targets).sum(dtype=torch.float64))


def pass_work(architecture: Architecture, tokens: int, share: float = 1.0) -> float:
    """Work of a model's loss on a text, in multiply-adds, if `share` of the blocks run."""
    head = architecture.embedding.vocab_size * architecture.d_model
    return tokens * (share * count(architecture).decoder + head)


class PruningEvaluator:
    """Prunes one model and evaluates submodels on a text. `parent_loss` is the unpruned model's loss on this text."""

    def __init__(
        self,
        model: LanguageModel,
        importance: Importance,
        text: EvaluationText,
        parent_loss: float,
        recorded: Recorded = lambda _work, evaluation: evaluation(),
    ) -> None:
        self.model, self.importance, self.text, self.recorded = model, importance, text, recorded
        self.parent_loss = parent_loss
        self.architecture = model.architecture
        self._weights = {name: tensor.detach() for name, tensor in model.named_parameters()}

    def table(self) -> PruningTable:
        """Evaluates single cuts. Returns a table of the loss that each cut adds, in nats per token."""
        blocks = self._single_cuts()
        return PruningTable(self.architecture, blocks, self._widths(PruningTable(self.architecture, blocks, WHOLE)))

    def combinations(
        self, table: PruningTable, count: int, seed: int
    ) -> tuple[tuple[Architecture, ...], NDArray[np.float64]]:
        """Evaluates random submodels. Returns the submodels and the ln perplexity of each.

        Every second submodel is the best, by `table`, of several random submodels of similar size. A search finds such
        submodels, whose loss is above the prediction of `table`; the scaling law learns this difference.
        """
        rng, children = np.random.default_rng(seed), dict[str, Architecture]()
        for number in range(50 * count):
            drawn = [random_submodel(self.architecture, rng) for _ in range(1 if number % 2 else BEST_OF)]
            child = drawn[0] if len(drawn) == 1 else _cheapest(drawn, table, rng.uniform(MIN_SIZE, 1.0))
            if child != self.architecture and len(children) < count:
                children.setdefault(child.digest, child)
            if len(children) == count:
                break
        return tuple(children.values()), np.array([self.loss(child, table) for child in children.values()])

    def loss(self, child: Architecture, table: PruningTable) -> float:
        """Mean loss of a submodel without further training, in nats per token."""

        def evaluate() -> list[float]:
            pruned = load(LanguageModel(child), prune_weights(self._weights, child, table, self.importance))
            return [self.text.loss(pruned.to(self.text.device))]

        return self.recorded(pass_work(child, self.text.count), evaluate)[0]

    def _widths(self, table: PruningTable) -> Cut:
        """Evaluates the loss that pruning channels adds, by kept share of the channels."""
        parent = self.architecture
        widths = sorted({rounded_width(parent.d_model, share) for share in WIDTHS} - {parent.d_model})
        if parent.scaled_embedding or not widths:  # a narrower model would scale the embedding by another factor
            return WHOLE
        children = [submodel(parent, explicit_blocks(parent), width) for width in widths]
        added = [self.loss(child, table) - self.parent_loss for child in children]
        return _monotone([width / parent.d_model for width in widths], added)

    def _single_cuts(self) -> tuple[BlockPruning, ...]:
        """Evaluates the loss of dropping and of narrowing each block; a block's input is computed once for all cuts."""
        model, blocks = self.model, explicit_blocks(self.architecture)
        text = EvaluationText(self.text.rows[::CUTS_EVERY], self.text.device)
        cuts = [
            _narrower(block, units, self.architecture.d_model)
            for block, units in zip(blocks, self.importance.units, strict=True)
        ]
        totals = [np.zeros(1 + len(of_block)) for of_block in cuts]
        with evaluating(model, text.device, "float32"):
            for inputs, _ in text.batches():
                reference = cache(partial(_Reference, model, inputs))
                for index, of_block in enumerate(cuts):
                    work = pass_work(self.architecture, inputs.numel(), 1 - index / len(blocks)) * len(totals[index])
                    totals[index] += self.recorded(work, partial(self._block_cuts, reference, index, of_block))
        return tuple(
            BlockPruning(
                float(of_block[0]), _monotone([share for share, _ in shares], of_block[1:].tolist()), influence
            )
            for of_block, shares, influence in zip(
                [np.maximum(total / text.count, 0.0) for total in totals], cuts, self.importance.influence, strict=True
            )
        )

    def _block_cuts(
        self, reference: Callable[[], _Reference], index: int, cuts: list[tuple[float, Tensor]]
    ) -> list[float]:
        """Divergences, summed over tokens, after dropping a block and after each of its `cuts`."""
        model, of_parent = self.model, reference()
        stream = of_parent.streams[index]
        divergences = [of_parent.divergence(model, model.run_from(index + 1, stream))]
        for _, units in cuts:
            with _masked(model.blocks[index], units):
                divergences.append(of_parent.divergence(model, model.run_from(index, stream)))
        return divergences


class _Reference:
    """The unpruned model's pass over a batch."""

    def __init__(self, model: LanguageModel, inputs: Tensor) -> None:
        self.streams = list[Tensor]()  # the residual stream before each block
        handles = [
            block.register_forward_pre_hook(lambda _, given: self.streams.append(given[0])) for block in model.blocks
        ]
        try:
            scores = model.token_scores(model(inputs, "none")).flatten(0, -2)
        finally:
            for handle in handles:
                handle.remove()
        self._probabilities = scores.softmax(-1)
        self._entropy = torch.logsumexp(scores, -1) - torch.linalg.vecdot(self._probabilities, scores)

    def divergence(self, model: LanguageModel, hidden: Tensor) -> float:
        """Kullback-Leibler divergence of a pruned model's final hidden states, in nats, summed over tokens."""
        scores = model.token_scores(hidden).flatten(0, -2)
        crossed = torch.logsumexp(scores, -1) - torch.linalg.vecdot(self._probabilities, scores)
        return float((crossed - self._entropy).sum(dtype=torch.float64))


def _cheapest(children: list[Architecture], table: PruningTable, size: float) -> Architecture:
    """Returns the child of least expected loss among the quarter with shares of parameters nearest to `size`."""
    shapes = Shapes.of(children)
    shares = shapes.decoder_parameters / Shapes.of([table.parent]).decoder_parameters[0]
    distance = np.abs(shares - size)
    is_near = distance <= np.sort(distance)[len(children) // 4]
    return children[int(np.argmin(np.where(is_near, table.align(shapes).loss, np.inf)))]


def _narrower(block: Block, importance: Tensor, d_model: int) -> list[tuple[float, Tensor]]:
    """Returns pairs, ascending: share of the block's heads or inner units to keep, and indices of these units."""
    by_share = {}
    for share in SHARES:
        units = kept_units(narrow_block(block, share), block, importance, d_model)
        if 0 < len(units) < len(importance):
            by_share[len(units) / len(importance)] = units
    return sorted(by_share.items())


def _monotone(shares: list[float], losses: list[float]) -> Cut:
    """Returns losses by kept share, raised where necessary so that a smaller share never has a smaller loss."""
    if not shares:
        return WHOLE
    rising = np.maximum.accumulate(np.maximum(np.array(losses), 0.0)[::-1])[::-1]
    return Cut((*shares, 1.0), (*rising.tolist(), 0.0))


@contextmanager
def _masked(block: nn.Module, units: Tensor) -> Iterator[None]:
    """Context manager in which all heads or inner units of the block except `units` give 0."""
    assert isinstance(block, AttentionBlock | FeedForwardBlock)
    layer = block.out if isinstance(block, AttentionBlock) else block.down
    unit_size = block.d_head if isinstance(block, AttentionBlock) else 1
    mask = torch.zeros(layer.in_features // unit_size)
    mask[units] = 1
    mask = mask.repeat_interleave(unit_size).to(layer.weight.device)

    def hook(_: nn.Module, given: tuple[Any, ...]) -> tuple[Tensor]:
        return (given[0] * mask,)

    handle = layer.register_forward_pre_hook(hook)
    try:
        yield
    finally:
        handle.remove()
