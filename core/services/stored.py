"""Reads JSON columns that contain earlier versions of requests into the current models.

Rows outlive the release that wrote them. They are read only here, so a model whose format changes gets a step that
upgrades stored values, and no row has to be rewritten. A new field needs a default and no step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Generic, TypeVar

import orjson
from pydantic import BaseModel, ValidationError

from edgefront.core.errors import InvalidInput
from edgefront.core.measurement.protocol import MeasurementProtocol, former_kv_cache
from edgefront.core.store.sql import Document
from edgefront.core.units import MB, MIB
from edgefront.core.validation import invalid_input, short
from edgefront.core.wire.jobs import JobRequest, Limits
from edgefront.core.wire.probes import ProbePlan
from edgefront.core.wire.trainings import TrainingRequest

VERSION = "stored_version"
"""The key of the version in a stored value. Version 1 has none."""

Model = TypeVar("Model", bound=BaseModel)
Other = TypeVar("Other")
Step = Callable[[Document], Document]


@dataclass(frozen=True)
class Stored(Generic[Model]):
    """One kind of stored value: its name in errors, its model, and the steps that upgrade older versions."""

    name: str
    model: type[Model]
    steps: tuple[Step, ...] = ()
    """The first step upgrades version 1 to version 2, and so on. Each gets a shallow copy, and copies nested values
    that it changes."""

    @property
    def version(self) -> int:
        """The version that is written."""
        return len(self.steps) + 1

    def versioned(self, value: Mapping[str, object]) -> Document:
        """The value as JSON with the current version, to be stored."""
        return {**value, VERSION: self.version} if self.steps else dict(value)

    def upgraded(self, stored: Mapping[str, object]) -> Document:
        """The JSON upgraded to the current version, not validated. `InvalidInput` if a later release wrote it."""
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

    def read(self, stored: Mapping[str, object]) -> Model:
        """The stored value; `InvalidInput` names the field that cannot be read."""
        value = self.upgraded(stored)
        try:
            return self.model.model_validate(value)
        except ValidationError as error:
            raise invalid_input(error, InvalidInput).under(self.name) from None

    def read_or(self, stored: Mapping[str, object], default: Other) -> Model | Other:
        """The stored value, or the default if it cannot be read: for views, which show the rest."""
        try:
            return self.read(stored)
        except InvalidInput:
            return default


def _name_defaults(request: Document) -> Document:
    """Version 1 left proxy and algorithm to their defaults of that time."""
    algorithm = {"name": "lts", **request.get("algorithm", {})}
    return {"proxy": "decoder_parameters", **request, "algorithm": algorithm}


def _count_every_difference(request: Document) -> Document:
    """Version 2 knew no ε: whatever was better, by however little, was better."""
    return {"epsilon": 0.0, **request}


def _in_megabytes(limits: Document) -> Document:
    """Version 1 of limits, and version 3 of requests, had memory in MiB."""
    memory = limits.get("memory_mb")
    return {**limits, "memory_mb": memory * MIB / MB} if isinstance(memory, int | float) else limits


def _with_each_target(request: Document, field: str, upgraded: Callable[[Document], Document]) -> Document:
    """The request with this object of each of its targets upgraded. What has another form is left to the reader."""

    def of_target(target: object) -> object:
        if not isinstance(target, dict) or not isinstance(target.get(field), dict):
            return target
        return {**target, field: upgraded(target[field])}

    targets = request.get("targets")
    return {**request, "targets": list(map(of_target, targets))} if isinstance(targets, list) else request


def _limits_in_megabytes(request: Document) -> Document:
    return _with_each_target(request, "limits", _in_megabytes)


def _name_kv_caches(request: Document) -> Document:
    """Version 4 knew no format of llama.cpp's cache, whose default was another (`MeasurementProtocol.kv_cache`)."""

    def named(protocol: Document) -> Document:
        if protocol.get("runtime") != "llamacpp":
            return protocol
        return {"kv_cache": former_kv_cache(protocol.get("dtype", "float32")), **protocol}

    return _with_each_target(request, "protocol", named)


def _name_recipe(request: Document) -> Document:
    """Version 1 left the recipe to its default of that time, whatever the models."""
    return {"recipe": "quick", **request}


JOB_REQUEST = Stored(
    "request", JobRequest, (_name_defaults, _count_every_difference, _limits_in_megabytes, _name_kv_caches)
)
TRAINING_REQUEST = Stored("request", TrainingRequest, (_name_recipe,))
PROTOCOL = Stored("protocol", MeasurementProtocol)
"""Protocols of targets and measurements. Their digests are stored too, and do not change with the version."""
PROBE_PLAN = Stored("plan", ProbePlan)
LIMITS = Stored("limits", Limits, (_in_megabytes,))


@lru_cache(maxsize=1024)
def read_protocol(text: str) -> MeasurementProtocol | None:
    """`PROTOCOL.read` of a stored JSON text, None if it cannot be read. Few differ, and every launch has one."""
    return PROTOCOL.read_or(orjson.loads(text), None)
