"""A request for trainings from the flags of `edgefront train submit`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from edgefront.core.errors import InvalidInput
from edgefront.core.validation import checked
from edgefront.core.wire.trainings import TrainingRequest, TrainingView


def read_request(path: Path) -> TrainingRequest:
    """A request from a JSON file; `InvalidInput` names the field."""
    try:
        value = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"{path} is not JSON: {error}", field="file", allowed="a JSON file") from None
    if not isinstance(value, dict):
        raise InvalidInput(f"{path} holds {type(value).__name__}, not a request", field="file", allowed="a JSON object")
    return make(value)


def make(value: Mapping[str, Any]) -> TrainingRequest:
    return checked(TrainingRequest, value)


def subject(
    architecture: str | None, candidate: str | None, frontier: str | None, pick: Mapping[str, Any], *, starts: bool
) -> dict[str, Any]:
    """The subject of the request, given in one of three ways. `pick` is only for a frontier. Empty where none is given
    and the training `starts` from another, whose model it then trains (`model_of`).
    """
    given = {"architecture": architecture, "candidate": candidate, "frontier": frontier}
    named = [f"--{name}" for name, value in given.items() if value is not None]
    if len(named) > 1 or not (named or starts):
        what = " and ".join(named) or "none"
        allowed = "--frontier JOB, --candidate CANDIDATE or --architecture MODEL, or --start alone"
        raise InvalidInput(
            f"choose what to train by exactly one of {allowed}; given: {what}", field="architecture", allowed=allowed
        )
    beside = [f"--{name.replace('_', '-')}" for name, value in pick.items() if value is not None]
    if beside and frontier is None:
        raise InvalidInput(
            f"{beside[0]} selects points of a frontier: use it with --frontier JOB",
            field=beside[0].removeprefix("--"),
            allowed="with --frontier",
        )
    if frontier is not None:
        return {"frontier": {"job": frontier, **pick}}
    if candidate is not None:
        return {"candidate": candidate}
    if architecture is None:
        return {}
    from edgefront.core.evaluation.given_model import architecture_of
    from edgefront.core.spaces.models import named_models

    if architecture in named_models():
        return {"model": architecture}
    return {"architecture": architecture_of(architecture).canonical}


def model_of(start: TrainingView) -> dict[str, Any]:
    """The subject of a request that trains the model of `start` itself. `InvalidInput` where it has none yet."""
    if start.trained is None:
        raise InvalidInput(
            f"start: training {start.id} has no model yet that could be trained further ({start.kind}, {start.state})",
            field="start",
            value=start.id,
            allowed="a training that is done, or an imported model",
        )
    return {"architecture": start.trained}


def overrides(given: Iterable[str]) -> dict[str, Any]:
    """`steps=500 optimizer.lr=0.001` → {"steps": 500, "optimizer": {"lr": 0.001}}."""
    changes: dict[str, Any] = {}
    for text in given:
        for part in text.split():
            path, equals, value = part.partition("=")
            names = path.split(".")
            if not (equals and value and all(names)):
                allowed = "FIELD=VALUE such as steps=500 or optimizer.lr=0.001"
                raise InvalidInput(
                    f"--set {part!r} cannot be read: give {allowed}", field="set", value=part, allowed=allowed
                )
            place = changes
            for name in names[:-1]:
                place = place.setdefault(name, {})
                if not isinstance(place, dict):
                    raise InvalidInput(f"--set {part!r}: {name} has a value already", field="set", value=part)
            place[names[-1]] = _scalar(value)
    return changes


def _scalar(text: str) -> Any:
    """The JSON value of the text if it is valid JSON, else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text
