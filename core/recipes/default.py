"""The recipe of a training that names none."""

from __future__ import annotations

from collections.abc import Iterable

from edgefront.core.recipes.task import has_memory
from edgefront.core.spaces.architecture import Architecture

MODERN, CONTIGUOUS = "modern", "quick"
DEFAULTS = (MODERN, CONTIGUOUS)
HEALING = "distil"
"""Of a model that begins with a part of another's weights."""


def default_recipe(architectures: Iterable[Architecture]) -> str:
    """`modern`; `quick`, whose text is contiguous, where one of the models has memory.

    Models that are trained together are to be compared, so they have one recipe.
    """
    return CONTIGUOUS if any(has_memory(architecture) for architecture in architectures) else MODERN
