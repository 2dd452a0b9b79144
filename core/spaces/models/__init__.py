"""Named models: the papers' and those that people would take instead, as data, one file a family."""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path

from edgefront.core.errors import ArchitectureError, NotFound
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.models import bert, gpt, llama, srupp, transformer_xl, translation
from edgefront.core.spaces.models.named import NamedModel
from edgefront.core.validation import existing, short

__all__ = ["MAX_FILE_BYTES", "NamedModel", "named_model", "named_models", "resolve"]

MAX_FILE_BYTES = 1 << 20
_LIST = "edgefront model list"

_FAMILIES = (gpt, llama, transformer_xl, srupp, translation, bert)


@lru_cache(maxsize=1)
def _known() -> dict[str, NamedModel]:
    return {model.name: model for family in _FAMILIES for model in family.models()}


def named_models() -> dict[str, NamedModel]:
    """Every named model by name."""
    return dict(_known())


def named_model(name: str) -> NamedModel:
    """The named model; `NotFound` names the nearest ones."""
    known = _known()
    if name not in known:
        raise NotFound(f"no model named {short(name)}; {existing(name, known, _LIST)}")
    return known[name]


def resolve(file_or_name: str) -> Architecture:
    """An architecture from a JSON file or the name of a catalogued model; a name goes before a file called alike.

    Raises `NotFound` if it is neither, `ArchitectureError` if the file does not describe an architecture.
    """
    known = _known()
    if file_or_name in known:
        return known[file_or_name].architecture
    if not os.path.isfile(file_or_name):  # Path.is_file raises on names that no file can have
        raise NotFound(
            f"{short(file_or_name)} is neither a file nor a named model; {existing(file_or_name, known, _LIST)}"
        )
    path = Path(file_or_name)
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ArchitectureError(
                f"{file_or_name} holds {path.stat().st_size} bytes; a description has at most {MAX_FILE_BYTES}",
                value=path.stat().st_size,
                allowed=f"at most {MAX_FILE_BYTES} bytes",
            )
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ArchitectureError(f"{file_or_name} is not UTF-8 text", allowed="a JSON file") from None
    except OSError as error:
        raise NotFound(f"{file_or_name} cannot be read: {error.strerror}") from None
    try:
        return Architecture.parse(text)
    except ArchitectureError as error:
        if error.field:
            raise
        raise ArchitectureError(f"{file_or_name}: {error.detail}", value=error.value, allowed=error.allowed) from None
