"""A request for trainings from the flags of `edgefront train submit`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from edgefront.client.requests.jobs import assignments, scalar, unreadable
from edgefront.core.common.errors import InvalidInput
from edgefront.core.schemas.trainings import TrainingView


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
    from edgefront.core.architectures.models import named_models
    from edgefront.core.training.evaluation.given_model import architecture_of

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
    allowed = "FIELD=VALUE such as steps=500 or optimizer.lr=0.001"
    changes: dict[str, Any] = {}
    for path, value in assignments(given, "set", allowed):
        *names, last = path.split(".")
        part, place = f"{path}={value}", changes
        if not all((*names, last)):
            raise unreadable("set", part, allowed)
        for name in names:
            place = place.setdefault(name, {})
            if not isinstance(place, dict):
                raise InvalidInput(f"--set {part!r}: {name} has a value already", field="set", value=part)
        place[last] = scalar(value)
    return changes
