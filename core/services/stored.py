"""What is stored as JSON and was once sent: read into the models of today.

Rows outlive the release that wrote them. Whoever reads one reads it here, so a model that changes its form gets a step
that upgrades what is stored, and no row has to be rewritten. A field that is only added needs a default and no step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from edgefront.core.errors import InvalidInput
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.validation import invalid_input, short
from edgefront.core.wire.jobs import JobRequest, Limits
from edgefront.core.wire.trainings import TrainingRequest

VERSION = "stored_version"
"""The key of the version in what is stored. Version 1 has none."""

Model = TypeVar("Model", bound=BaseModel)
Other = TypeVar("Other")
Step = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Stored(Generic[Model]):
    """One kind of what is stored: its name in errors, its model, and how older forms become that of today."""

    name: str
    model: type[Model]
    steps: tuple[Step, ...] = ()
    """The first makes version 2 of version 1, and so on. Each gets a copy, and copies what it changes inside."""

    @property
    def version(self) -> int:
        """The version that is written."""
        return len(self.steps) + 1

    def versioned(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """What to store of a value in today's form, as JSON."""
        return {**value, VERSION: self.version} if self.steps else dict(value)

    def upgraded(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """The JSON in today's form, unchecked. `InvalidInput` where a later release wrote it."""
        value = dict(stored)
        version = value.pop(VERSION, 1)
        if type(version) is not int or not 1 <= version <= self.version:
            allowed = f"1 to {self.version}"
            raise InvalidInput(
                f"{VERSION}: this release reads {allowed}, not {short(version)}",
                field=VERSION,
                value=version,
                allowed=allowed,
            ).under(self.name)
        for step in self.steps[version - 1 :]:
            value = step(value)
        return value

    def read(self, stored: Mapping[str, Any]) -> Model:
        """What is stored; `InvalidInput` names the field that cannot be read."""
        value = self.upgraded(stored)
        try:
            return self.model.model_validate(value)
        except ValidationError as error:
            raise invalid_input(error, InvalidInput).under(self.name) from None

    def read_or(self, stored: Mapping[str, Any], default: Other) -> Model | Other:
        """What is stored, or the default where that cannot be read: for views, which show the rest."""
        try:
            return self.read(stored)
        except InvalidInput:
            return default


JOB_REQUEST = Stored("request", JobRequest)
TRAINING_REQUEST = Stored("request", TrainingRequest)
PROTOCOL = Stored("protocol", MeasurementProtocol)
"""Of targets and measurements. Their digests are stored beside them and do not change with the form."""
LIMITS = Stored("limits", Limits)
