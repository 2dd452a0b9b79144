"""Named models: the papers' and those that people would take instead, as data, one file a family."""

from __future__ import annotations

from functools import lru_cache

from edgefront.core.errors import NotFound
from edgefront.core.spaces.models import bert, gpt, llama, srupp, transformer_xl, translation
from edgefront.core.spaces.models.named import NamedModel
from edgefront.core.validation import existing, short

__all__ = ["NamedModel", "named_model", "named_models"]

_LIST = "edgefront model list"

_FAMILIES = (gpt, llama, transformer_xl, srupp, translation, bert)


@lru_cache(maxsize=1)
def _by_name() -> dict[str, NamedModel]:
    return {model.name: model for family in _FAMILIES for model in family.models()}


def named_models() -> dict[str, NamedModel]:
    """Every named model by name."""
    return dict(_by_name())


def named_model(name: str) -> NamedModel:
    """The named model; `NotFound` names the nearest ones."""
    models = _by_name()
    if name not in models:
        raise NotFound(f"no model named {short(name)}; {existing(name, models, _LIST)}")
    return models[name]
