"""Reads JSON columns into their models. A model whose form changes comes with a migration of the stored values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

import orjson
from pydantic import BaseModel, TypeAdapter, ValidationError

from edgefront.core.common.errors import EdgefrontError, InvalidInput, NotFound
from edgefront.core.common.validation import invalid_input
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.schemas.jobs import JobRequest, Limits
from edgefront.core.store.sql import Document

Model = TypeVar("Model", bound=BaseModel)
Other = TypeVar("Other")


@dataclass(frozen=True)
class Stored(Generic[Model]):
    """One kind of stored value: its name in errors, and its model."""

    name: str
    model: type[Model]

    def read(self, stored: Mapping[str, object]) -> Model:
        """The stored value; `InvalidInput` names the field that cannot be read."""
        try:
            return self.model.model_validate(stored)
        except ValidationError as error:
            raise invalid_input(error, InvalidInput).under(self.name) from None

    def read_or(self, stored: Mapping[str, object], default: Other) -> Model | Other:
        """The stored value, or the default if it cannot be read: for views, which show the rest."""
        try:
            return self.read(stored)
        except InvalidInput:
            return default


JOB_REQUEST = Stored("request", JobRequest)
PROTOCOL = Stored("protocol", MeasurementProtocol)
"""Protocols of targets and measurements."""
LIMITS = Stored("limits", Limits)
REFERENCE: TypeAdapter[dict[str, float] | None] = TypeAdapter(dict[str, float] | None)
"""Reference points of targets."""


@lru_cache(maxsize=1024)
def read_protocol(text: str) -> MeasurementProtocol | None:
    """`PROTOCOL.read` of a stored JSON text, None if it cannot be read. Few differ, and every launch has one."""
    return PROTOCOL.read_or(orjson.loads(text), None)


def described(stored: Document) -> Document:
    """A stored architecture; `InvalidInput` where it has not even the form of one."""
    if not isinstance(stored.get("blocks"), list):
        raise InvalidInput("architecture has no blocks", field="architecture")
    return stored


UNREADABLE = (InvalidInput, NotFound, ValidationError, LookupError, TypeError, ValueError, AttributeError)
"""What is raised where a stored document has another form, or names what this release does not have."""


class RowReader:
    """Reads the documents of one row for a view, so that a row of another release takes no list down.

    `note` says which documents cannot be read, and why.
    """

    def __init__(self) -> None:
        self._faults: dict[str, None] = {}

    def read(self, do: Callable[[], Other]) -> Other | None:
        """What `do` returns; None where it cannot read a document."""
        try:
            return do()
        except UNREADABLE as error:
            self._faults[in_words(error)] = None
            return None

    def note(self, said: str | None = None) -> str | None:
        """`said`, and before it `cannot be read: …` where something could not be that it does not name."""
        if not (faults := [fault for fault in self._faults if fault not in (said or "")]):
            return said
        return f"cannot be read: {'; '.join(faults)}" + (f". {said}" if said else "")


def in_words(error: Exception) -> str:
    """Why a stored document cannot be read."""
    if isinstance(error, ValidationError):
        error = invalid_input(error, InvalidInput)
    if isinstance(error, EdgefrontError):
        return error.detail
    return f"its form is of another release ({type(error).__name__}: {error})"
