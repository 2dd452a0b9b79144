"""The settings by environment variable."""

from __future__ import annotations

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from edgefront.core.services.settings import Settings


def fields(model: type[BaseModel] = Settings, prefix: str = "EDGEFRONT_") -> dict[str, FieldInfo]:
    """Environment variable → field, of all groups."""
    by_variable: dict[str, FieldInfo] = {}
    for name, field in model.model_fields.items():
        variable = prefix + name.upper()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            by_variable |= fields(field.annotation, f"{variable}__")
        else:
            by_variable[variable] = field
    return by_variable
