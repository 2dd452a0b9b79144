"""Checks of a job's request that need no device: they run before any transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from edgefront.core.cost.shapes import Shapes
from edgefront.core.errors import EdgefrontError, InvalidInput, SpaceError, within
from edgefront.core.quality.law import QualityLaw
from edgefront.core.search.registry import settings_of
from edgefront.core.search.smallest import smallest
from edgefront.core.search.surrogate import SurrogateSettings
from edgefront.core.services.jobs import supernet_plan
from edgefront.core.services.jobs.defaults import with_defaults
from edgefront.core.services.jobs.plan import SearchPlan, plan_for
from edgefront.core.services.jobs.queries.candidates import MAX_BASELINES
from edgefront.core.services.quality import scoring
from edgefront.core.services.settings import Settings
from edgefront.core.units import MB
from edgefront.core.validation import short
from edgefront.core.wire.jobs import JobRequest, TargetRequest

FAR = 2
"""Factor beyond the largest and the smallest model that moving one gene at a time finds."""
EXAMPLES = 200
"""Number of architectures sampled to describe a space in an error message."""


@dataclass(frozen=True)
class CheckedRequest:
    """A request whose searches can be planned, and can propose at least one architecture."""

    request: JobRequest
    proxy_data: str | None
    """Digest of the data that its scores use; None if they use none, or only the workers have it."""


def checked(request: JobRequest, settings: Settings | None = None, refined: QualityLaw | None = None) -> CheckedRequest:
    """May take seconds: limits may permit only one architecture in thousands, which is then searched for. `settings`
    locate the data of searches that train or score; by default they are read from the environment. `refined` as in
    `plan_for`.

    Raises `InvalidInput`, with the field's path within the request, if space, algorithm, baselines, limits or data are
    invalid.
    """
    _check_narrowing(request)
    request = with_defaults(request)
    for check in _checks(request, settings, refined):
        check()
    return CheckedRequest(request, scoring.check_data(request, settings))


def refusals(
    request: JobRequest, settings: Settings | None = None, refined: QualityLaw | None = None
) -> tuple[JobRequest, list[EdgefrontError]]:
    """The request with its defaults, as far as they can be settled, and every error that `checked` could raise.

    What depends on something wrong repeats that error; each is listed once.
    """
    found: dict[tuple[str, str], EdgefrontError] = {}

    def attempt(check: Callable[[], object]) -> None:
        try:
            check()
        except EdgefrontError as error:
            found.setdefault((error.field, error.detail), error)

    attempt(lambda: _check_narrowing(request))
    try:
        settled = with_defaults(request)
    except EdgefrontError as error:
        found.setdefault((error.field, error.detail), error)
        return request, list(found.values())
    for check in (*_checks(settled, settings, refined), lambda: scoring.check_data(settled, settings)):
        attempt(check)
    return settled, list(found.values())


def _checks(
    request: JobRequest, settings: Settings | None, refined: QualityLaw | None
) -> Iterator[Callable[[], object]]:
    yield partial(_check_none_added, request)
    yield partial(_check_model, request)
    yield partial(scoring.proxy_of, request)
    yield partial(_check_predictions, request)
    for index, target in enumerate(request.targets):
        yield partial(_check_limited, request, target, index)
        yield partial(_check_search, request, target, index, refined)
    yield partial(supernet_plan.check, request, settings, refined)


def check_target(
    request: JobRequest,
    target: TargetRequest,
    refined: QualityLaw | None = None,
    in_reach: Callable[[JobRequest], None] | None = None,
) -> None:
    """As `checked`, of one target that is added to a job; paths are those within the target. `in_reach` as in
    `submit_job`."""
    try:
        _check_limited(request, target, 0)
        _check_search(request, target, 0, refined)
        if in_reach is not None:
            in_reach(request.model_copy(update={"targets": (target,)}))
    except InvalidInput as error:
        if error.path[:2] == ("targets", "0"):
            raise error.at(*error.path[2:]) from None
        raise


def _check_none_added(request: JobRequest) -> None:
    for index, target in enumerate(request.targets):
        if target.added:
            raise InvalidInput(
                f"targets.{index}.added: a target is added to a job that there is (POST /v1/jobs/{{id}}/targets)",
                field=f"targets.{index}.added",
                value=True,
                allowed="false",
            )


def _check_model(request: JobRequest) -> None:
    if request.space.model is not None and request.baseline_layers is not None:
        raise InvalidInput(
            "baseline_layers: the baseline is space.model as it is, at no other depth",
            field="baseline_layers",
            value=request.baseline_layers,
            allowed="omit it, or space.model",
        )


def _check_limited(request: JobRequest, target: TargetRequest, index: int) -> None:
    limits = target.limits
    if limits.times and target.protocol.mode != "generate":
        name = f"{next(iter(limits.times))}_ms"
        raise InvalidInput(
            f"targets.{index}.limits.{name}: mode {target.protocol.mode} generates no tokens: limit latency_ms instead",
            field=f"targets.{index}.limits.{name}",
            value=getattr(limits, name),
            allowed="no value, or mode generate",
        )
    if request.goal == "best_within_limits" and not limits.any:
        field = f"targets.{index}.limits"
        raise InvalidInput(
            f"{field}: without a limit the best model is the largest: give latency_ms, memory_mb or both"
            + (", or first_token_ms or token_ms" if target.protocol.mode == "generate" else ""),
            field=field,
            value=limits.model_dump(),
            allowed="at least one limit, or the goal frontier",
        )


def _check_narrowing(request: JobRequest) -> None:
    """Refuses repeated values, which bounds the size of stored requests. The gene accepts them, for jobs of earlier
    releases.
    """
    for gene, wanted in request.space.narrow.items():
        seen: set[str] = set()
        for value in wanted if isinstance(wanted, list) else ():
            if repr(value) in seen:
                raise SpaceError(
                    f"space.narrow.{gene}: {short(value)} occurs more than once in the list",
                    field=f"space.narrow.{gene}",
                    value=value,
                    allowed="each value once",
                )
            seen.add(repr(value))


def _check_predictions(request: JobRequest) -> None:
    with within("algorithm"):
        settings = settings_of(request.algorithm.name, request.algorithm.settings)
        if isinstance(settings, SurrogateSettings):
            with within("settings"):
                settings.check_predictions()


def _check_search(request: JobRequest, target: TargetRequest, index: int, refined: QualityLaw | None) -> None:
    plan = plan_for(request, target.protocol, target.limits, refined)
    bounds = request.parameters
    if bounds.min_decoder is not None and bounds.max_decoder is not None and bounds.min_decoder > bounds.max_decoder:
        raise InvalidInput(
            f"parameters.min_decoder {bounds.min_decoder} is above max_decoder {bounds.max_decoder}: no model fits",
            field="parameters.min_decoder",
            value=bounds.min_decoder,
            allowed=f"at most {bounds.max_decoder}",
        )
    baselines = plan.baselines()
    if not 1 <= len(baselines) <= MAX_BASELINES:
        raise InvalidInput(
            f"baseline_layers: 1 to {MAX_BASELINES} depths are measured, not {len(baselines)}",
            field="baseline_layers",
            value=request.baseline_layers,
            allowed="depths of the stock model; absent: every depth of the space",
        )
    with within("targets", index, "protocol"):
        for baseline in baselines:
            plan.costs(baseline)
    _check_limits(plan, target, index)


def _out_of_reach(plan: SearchPlan) -> bool:
    """Whether limits on parameters are far beyond the largest or the smallest model: thousands need not be drawn."""
    bounds = plan.request.parameters
    most = min((one for one in (bounds.max_decoder, bounds.max_total) if one is not None), default=None)
    if bounds.min_decoder is not None:
        largest = smallest(plan.space, lambda every: -Shapes.of(every).decoder_parameters)
        if bounds.min_decoder > FAR * plan.costs(largest).decoder_parameters:
            return True
    if most is not None:
        least = smallest(plan.space, lambda every: Shapes.of(every).decoder_parameters)
        return most < plan.costs(least).decoder_parameters / FAR
    return False


def _check_limits(plan: SearchPlan, target: TargetRequest, index: int) -> None:
    """Raises `InvalidInput` if the runtime runs none, or none is within the limits on parameters and weights."""
    if not _out_of_reach(plan) and plan.permitted():
        return
    bounds, memory_mb = plan.request.parameters, target.limits.memory_mb
    rng = np.random.default_rng(0)
    with within("targets", index, "protocol"):
        drawn = [plan.costs(plan.space.architecture(plan.space.sample(rng))) for _ in range(EXAMPLES)]
    spreads = [
        f"{min(values):,} to {max(values):,} {name}"
        for name, values in (
            ("decoder parameters", [one.decoder_parameters for one in drawn]),
            ("parameters in all", [one.total_parameters for one in drawn]),
            ("MB of weights", [one.weight_bytes // MB for one in drawn]),
        )
    ]
    given = bounds.model_dump(exclude_none=True)
    cause: str = "parameters"
    value: Any = given
    allowed = "wider limits, or a space narrowed to models within them"
    if not given:
        least = plan.costs(smallest(plan.space, lambda every: [plan.costs(one).weight_bytes for one in every]))
        spreads.append(f"the smallest {least.weight_bytes / MB:.1f} MB of weights")
        allowed = f"more than {least.weight_bytes / MB:.1f} MB, or another space"
        cause, value = f"targets.{index}.limits.memory_mb", memory_mb
    elif len(given) == 1 and memory_mb is None:
        ((name, value),) = given.items()
        cause = f"parameters.{name}"
    raise InvalidInput(
        f"no architecture of {plan.space.name} was found within these limits; most have {'; '.join(spreads)}",
        field=cause,
        value=value,
        allowed=allowed,
    )
