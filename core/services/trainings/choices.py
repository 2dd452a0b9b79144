"""Lists the recipes and the service's data sets."""

from __future__ import annotations

from pathlib import Path

from edgefront.core.data.prepared.prepared import Manifest, prepared_in
from edgefront.core.data.sources.data_set import data_sets
from edgefront.core.recipes.papers import recipes
from edgefront.core.recipes.recipe import Recipe
from edgefront.core.wire.training_choices import DatasetView, RecipeView


def list_recipes() -> list[RecipeView]:
    """Every recipe, as `core.recipes.papers` has them."""
    return [recipe_view(recipe) for recipe in recipes().values()]


def recipe_view(recipe: Recipe) -> RecipeView:
    return RecipeView(
        name=recipe.name,
        title=recipe.title,
        source=recipe.source,
        task=recipe.task,
        dataset=recipe.dataset,
        steps=recipe.steps,
        tokens=recipe.steps * recipe.rows * recipe.segment,
        recipe=recipe.model_dump(mode="json"),
    )


def list_datasets(data_folder: Path) -> list[DatasetView]:
    """The prepared data sets of the folder, by name and newest first; then the built-in ones that are not prepared yet.

    A damaged one is left out: `edgefront data list` shows what is wrong with it.
    """
    sources = data_sets()
    views = []
    for _, manifest in prepared_in(data_folder):
        if isinstance(manifest, Manifest):
            of_name = sources.get(manifest.name)
            views.append(
                DatasetView(
                    name=manifest.name,
                    title="" if of_name is None else of_name.title,
                    digest=manifest.digest,
                    level=manifest.level,
                    vocab_size=manifest.vocab_size,
                    parallel=manifest.source_vocab_size is not None,
                )
            )
    names = {view.name for view in views}
    views += [
        DatasetView(
            name=data.name,
            title=data.title,
            digest=None,
            level=data.level,
            vocab_size=data.vocab_size,
            parallel=bool(data.sources),
        )
        for data in sources.values()
        if data.built_in and data.name not in names
    ]
    return sorted(views, key=lambda view: view.name)
