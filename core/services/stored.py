"""Reads JSON columns into their models. A model whose form changes comes with a migration of the stored values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from edgefront.core.errors import InvalidInput
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.validation import invalid_input
from edgefront.core.wire.jobs import JobRequest, Limits
from edgefront.core.wire.probes import ProbePlan

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
PROBE_PLAN = Stored("plan", ProbePlan)
LIMITS = Stored("limits", Limits)


@lru_cache(maxsize=1024)
def read_protocol(text: str) -> MeasurementProtocol | None:
    """`PROTOCOL.read` of a stored JSON text, None if it cannot be read. Few differ, and every launch has one."""
    return PROTOCOL.read_or(orjson.loads(text), None)
