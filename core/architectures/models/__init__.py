"""Named models: models of the papers and alternatives to these models, one file per family; and published models, by id
on the Hugging Face Hub.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from edgefront.core.architectures.models import bert, decoders, srupp, transformer_xl, translation
from edgefront.core.architectures.models.published import NamedModel, published_architecture
from edgefront.core.architectures.published import published_models
from edgefront.core.common.errors import NotFound
from edgefront.core.common.validation import existing, short

__all__ = ["NamedModel", "named_model", "named_models", "nearest_models"]

_LIST = "edgefront model list"

_FAMILIES = (decoders, transformer_xl, srupp, translation, bert)


@lru_cache(maxsize=1)
def named_models() -> Mapping[str, NamedModel]:
    """Name → named model, without the published models of the Hugging Face Hub."""
    return {model.name: model for family in _FAMILIES for model in family.models()}


def named_model(name: str) -> NamedModel:
    """Returns the model of this name, or the published model of this Hub id.

    Raises `NotFound` that names the nearest models, and `InvalidInput` for a published model without a description.
    """
    if (model := named_models().get(name)) is not None:
        return model
    if (row := published_models().get(name)) is not None:
        return NamedModel(name, row.sources.get("config", "Hugging Face Hub"), published_architecture(row))
    raise NotFound(f"no model named {short(name)}; {nearest_models(name)}")


def nearest_models(name: str) -> str:
    """Suggestions for an unknown model name, as the end of a message after `no model named 'gtp2'; `."""
    if "/" in name:
        return existing(name, published_models(), f"{_LIST} --published")
    return existing(name, named_models(), _LIST)
