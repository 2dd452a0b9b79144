"""Batches that a recipe asks for."""

from __future__ import annotations

from edgefront.core.common.errors import InvalidInput
from edgefront.core.data.batches.batch import Batches
from edgefront.core.data.batches.batches import Masked, Pairs, Segments
from edgefront.core.data.batches.streams import InOrder, Shuffled, Streams, Text
from edgefront.core.data.prepared.prepared import Prepared
from edgefront.core.training.recipes.recipe import Recipe


def make_batches(
    prepared: Prepared, recipe: Recipe, *, split: str = "train", seed: int, rank: int = 0, ranks: int = 1
) -> Batches:
    """The batches of a split, for one rank of several: a pure function of the step.

    Each rank gets `recipe.rows / ranks` of a step's rows, in their order; together they do not depend on the number of
    ranks.

    Raises:
        InvalidInput: no such split; rows that the ranks cannot share equally; fewer tokens to train on than one batch
            needs (of another split, the rows stay shorter or empty); data that was not prepared for the recipe's task.
    """
    if not 0 <= rank < ranks:
        raise InvalidInput(f"rank must be from 0 to {ranks - 1}, not {rank}", field="rank", value=rank)
    if recipe.rows % ranks:
        raise InvalidInput(
            f"{recipe.rows} rows cannot be divided equally among {ranks} GPUs",
            field="rows",
            value=recipe.rows,
            allowed=f"a multiple of {ranks}",
        )
    chosen = prepared.split(split)
    share = recipe.rows // ranks
    mine = range(rank * share, (rank + 1) * share)
    rows, segment = recipe.rows, recipe.segment
    batches: Batches
    if recipe.task == "pairs":
        batches = pairs = Pairs(chosen, prepared.tokenizer(), rows, segment, seed, mine=mine)
        there, needed, what = pairs.count, rows, f"pairs of at most {segment} tokens"
    elif recipe.task == "masked":
        batches = Masked(chosen, prepared.tokenizer(), rows, segment, recipe.masked_fraction, seed, mine=mine)
        there, needed, what = len(chosen.tokens), rows * (segment - 2), "tokens"
    elif recipe.order == "shuffled":
        batches = Segments(chosen, rows, segment, seed, mine=mine)
        there, needed, what = len(chosen.tokens), rows * segment, "tokens"
    else:
        text: Text = InOrder(chosen) if recipe.task == "streams" else Shuffled(chosen, seed)
        batches = Streams(text, rows, segment, mine=mine, resets=recipe.epoch_resets)
        there, needed, what = len(chosen.tokens), rows * segment, "tokens"
    if split == "train" and there < needed:
        raise InvalidInput(
            f"the split {split} of {prepared.name} has {there:,} {what}, and one batch of {rows} rows of "
            f"{segment} tokens needs {needed:,}: take more text, fewer rows or shorter ones",
            field="rows",
            value=rows,
            allowed=f"at most {there:,} {what} a batch",
        )
    return batches
