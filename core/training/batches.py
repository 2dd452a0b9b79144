"""Makes the batches of a recipe's task from a prepared data set."""

from __future__ import annotations

from edgefront.core.common.errors import InvalidInput
from edgefront.core.data.batches.batch import Batches
from edgefront.core.data.batches.batches import InOrder, Masked, Pairs, Segments, Shuffled, Streams, Text
from edgefront.core.data.prepared.prepared import Prepared
from edgefront.core.training.recipes.recipe import Recipe


def make_batches(
    prepared: Prepared, recipe: Recipe, *, split: str = "train", seed: int, rank: int = 0, ranks: int = 1
) -> Batches:
    """Returns one rank's batches of a split, as a pure function from the step to its batch.

    Each rank gets `recipe.rows / ranks` consecutive rows of a step; a step's rows do not depend on the number of ranks.

    Raises:
        InvalidInput: the split is unknown; the ranks cannot share the rows equally; the training split has too few
            tokens for one batch (in other splits rows stay shorter or empty); the data does not suit the recipe's task.
    """
    if recipe.rows % ranks:
        raise InvalidInput(
            f"{recipe.rows} rows cannot be divided equally among {ranks} GPUs",
            field="rows",
            value=recipe.rows,
            allowed=f"a multiple of {ranks}",
        )
    text, rows, segment, share = prepared.split(split), recipe.rows, recipe.segment, recipe.rows // ranks
    rank_rows = range(rank * share, (rank + 1) * share)
    available, needed, unit = len(text.tokens), rows * segment, "tokens"
    batches: Batches
    if recipe.task == "pairs":
        batches = pairs = Pairs(text, prepared.tokenizer(), rows, segment, seed, rank_rows=rank_rows)
        available, needed, unit = pairs.count, rows, f"pairs of at most {segment} tokens"
    elif recipe.task == "masked":
        batches = Masked(text, prepared.tokenizer(), rows, segment, recipe.masked_fraction, seed, rank_rows=rank_rows)
        needed = rows * (segment - 2)
    elif recipe.order == "shuffled":
        batches = Segments(text, rows, segment, seed, rank_rows=rank_rows)
    else:
        stream: Text = InOrder(text) if recipe.task == "streams" else Shuffled(text, seed)
        batches = Streams(stream, rows, segment, rank_rows=rank_rows, resets=recipe.epoch_resets)
    if split == "train" and available < needed:
        raise InvalidInput(
            f"the split {split} of {prepared.name} has {available:,} {unit}, but one batch of {rows} rows of "
            f"{segment} tokens needs {needed:,}. Use more text, fewer rows or shorter rows",
            field="rows",
            value=rows,
            allowed=f"at most {available:,} {unit} a batch",
        )
    return batches
