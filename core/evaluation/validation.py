"""The validation during a training, for any task."""

from __future__ import annotations

import torch

from edgefront.core.data.batches.batch import IGNORED
from edgefront.core.data.batches.batches import make_batches
from edgefront.core.data.prepared.prepared import Prepared
from edgefront.core.evaluation.perplexity import (
    Perplexity,
    Reading,
    evaluating,
    first_token,
    perplexity,
    perplexity_of,
)
from edgefront.core.evaluation.rows import rows_of
from edgefront.core.nn.model import LanguageModel
from edgefront.core.recipes.recipe import Recipe


class Validation:
    """Called with a model: its perplexity on a split, evaluated as in the recipe."""

    def __init__(self, data: Prepared, recipe: Recipe, device: torch.device) -> None:
        self._data, self._recipe, self._device = data, recipe, device

    def __call__(self, model: LanguageModel, split: str = "valid", *, whole: bool = False) -> Perplexity:
        """On all of the split if `whole`, else on the part that the recipe looks at during training.

        Raises `Diverged` for a loss that is not a number.
        """
        recipe = self._recipe
        limit = None if whole else recipe.evaluation.tokens
        if recipe.task == "masked":
            return self._masked(model, split, limit)
        validated: Perplexity = perplexity(
            model,
            self._data.split(split),
            recipe.evaluation,
            device=self._device,
            precision=recipe.precision,
            reading=Reading(limit, recipe.task == "sentences", first_token(self._data.tokenizer(), recipe.task)),
        )
        return validated

    def _masked(self, model: LanguageModel, split: str, limit: int | None) -> Perplexity:
        """Perplexity of the masked tokens alone; the masks are the same at each evaluation."""
        recipe = self._recipe
        batches, at_once = make_batches(self._data, recipe, split=split, seed=0), recipe.evaluation.rows
        total, count = 0.0, 0
        with evaluating(model, self._device, recipe.precision):
            for step in range(batches.steps_per_epoch):
                batch = batches(step)
                for start in range(0, len(batch.inputs), at_once):
                    part = batch.rows(start, start + at_once)
                    counted = int((part.targets != IGNORED).sum())
                    if not counted:
                        continue
                    rows = rows_of(part, self._device)
                    hidden = model(rows.inputs, "none", mask=rows.mask, segments=rows.segments)
                    total += float(model.token_losses(hidden, rows.targets).sum(dtype=torch.float64))
                    count += counted
                    if limit is not None and count >= limit:
                        return perplexity_of(total, count, None)
        return perplexity_of(total, count, None)
