"""The published recipes, one file a family, and one for a laptop."""

from __future__ import annotations

from functools import lru_cache

from edgefront.core.common.errors import NotFound
from edgefront.core.common.validation import existing
from edgefront.core.training.recipes.papers import lts, par, quick, srupp
from edgefront.core.training.recipes.recipe import Recipe

__all__ = ["recipe", "recipes"]

_FAMILIES = (quick, par, srupp, lts)


@lru_cache(maxsize=1)
def _known() -> dict[str, Recipe]:
    return {known.name: known for family in _FAMILIES for known in family.recipes()}


def recipes() -> dict[str, Recipe]:
    """Every recipe by name."""
    return dict(_known())


def recipe(name: str) -> Recipe:
    """The recipe of that name; `NotFound` names the nearest ones."""
    known = _known()
    if name not in known:
        raise NotFound(f"no recipe named {name!r}; {existing(name, known, 'edgefront train recipes')}")
    return known[name]
