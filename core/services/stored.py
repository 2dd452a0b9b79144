"""Reads JSON columns into their models. A change of a model requires a migration of the stored values."""

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
    """Kind of value that a JSON column stores: its name in errors, and its pydantic model."""

    name: str
    model: type[Model]

    def read(self, stored: Mapping[str, object]) -> Model:
        """Returns the stored value. Raises `InvalidInput` that names an unreadable field."""
        try:
            return self.model.model_validate(stored)
        except ValidationError as error:
            raise invalid_input(error, InvalidInput).under(self.name) from None

    def read_or(self, stored: Mapping[str, object], default: Other) -> Model | Other:
        """Returns the stored value, or `default` if the value is unreadable, so views can show the rest of the row."""
        try:
            return self.read(stored)
        except InvalidInput:
            return default


JOB_REQUEST = Stored("request", JobRequest)
PROTOCOL = Stored("protocol", MeasurementProtocol)
"""Reader of the measurement protocols of targets and measurements."""
LIMITS = Stored("limits", Limits)
REFERENCE: TypeAdapter[dict[str, float] | None] = TypeAdapter(dict[str, float] | None)
"""Reader of the targets' reference points for the hypervolume."""


@lru_cache(maxsize=1024)
def read_protocol(text: str) -> MeasurementProtocol | None:
    """Reads a protocol from JSON text; None if it is unreadable. Cached, because many launches share few protocols."""
    return PROTOCOL.read_or(orjson.loads(text), None)


def described(stored: Document) -> Document:
    """Returns a stored architecture. Raises `InvalidInput` if it has no list of blocks."""
    if not isinstance(stored.get("blocks"), list):
        raise InvalidInput("architecture must have a list of blocks", field="architecture")
    return stored


UNREADABLE = (InvalidInput, NotFound, ValidationError, LookupError, TypeError, ValueError, AttributeError)
"""Errors raised by a stored document that has another form, or a name unknown to this release."""


class RowReader:
    """Reads the JSON documents of one row for a view. Unreadable documents, for example of another release, raise no
    error.

    `note` names the unreadable documents, with the reasons.
    """

    def __init__(self) -> None:
        self._errors: dict[str, None] = {}

    def read(self, do: Callable[[], Other]) -> Other | None:
        """Returns the result of `do`; None if `do` meets an unreadable document."""
        try:
            return do()
        except UNREADABLE as error:
            self._errors[_message(error)] = None
            return None

    def note(self, note: str | None = None) -> str | None:
        """Returns `note`, preceded by `cannot be read: …` for errors that `note` does not already contain."""
        if not (errors := [error for error in self._errors if error not in (note or "")]):
            return note
        return f"cannot be read: {'; '.join(errors)}" + (f". {note}" if note else "")


def _message(error: Exception) -> str:
    if isinstance(error, ValidationError):
        error = invalid_input(error, InvalidInput)
    if isinstance(error, EdgefrontError):
        return error.detail
    return f"the stored form is of another release ({type(error).__name__}: {error})"
