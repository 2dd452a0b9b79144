"""Resolves a job's request: names what it leaves open, and checks what needs no device, before any transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from edgefront.core.cost.shapes import Shapes
from edgefront.core.errors import EdgefrontError, InvalidInput, SpaceError, within
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.proxies.score import covers
from edgefront.core.quality.shipped import law_for
from edgefront.core.search.problem import COUNTED
from edgefront.core.search.registry import check_settings
from edgefront.core.search.smallest import smallest
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.jobs import supernet_plan
from edgefront.core.services.jobs.faults import Faults
from edgefront.core.services.jobs.parents import with_parent
from edgefront.core.services.jobs.queries.candidates import MAX_BASELINES
from edgefront.core.services.jobs.resolved import ResolvedJob, SearchPlan, resolved
from edgefront.core.services.jobs.variants import with_variants, without_variants
from edgefront.core.services.quality import laws, scoring
from edgefront.core.services.quality.laws import with_law
from edgefront.core.services.settings import Settings
from edgefront.core.services.spaces import space_of
from edgefront.core.services.trainings import paces
from edgefront.core.spaces.published import MODEL
from edgefront.core.states import Goal
from edgefront.core.store.database import Database
from edgefront.core.units import MB
from edgefront.core.validation import short
from edgefront.core.wire.jobs import JobRequest, TargetRequest

FAR = 2
"""Factor beyond the largest and the smallest model that moving one gene at a time finds."""
EXAMPLES = 200
"""Number of architectures sampled to describe a space in an error message."""


@dataclass(frozen=True)
class Resolution:
    """What a request comes to, and what it would be refused for."""

    request: JobRequest
    """The request with its defaults, as far as they can be named."""
    job: ResolvedJob | None
    """It is None where the request does not even say which models it is about."""
    proxy_data: str | None
    """Digest of the data that its scores use; None if they use none, or only the workers have it."""
    faults: Faults

    def checked(self) -> ResolvedJob:
        """The job; raises the first fault."""
        self.faults.raise_first()
        assert self.job is not None, "a request without faults is a job"
        return self.job


def resolve(
    database: Database, principal: Principal, request: JobRequest, settings: Settings | None = None
) -> Resolution:
    """Names what a request leaves open, and finds everything that is wrong with it and needs no device.

    May take seconds: limits may permit only one architecture in thousands, which is then searched for. `settings`
    locate the data of searches that train or score; by default they are read from the environment. Faults name the
    field's path within the request. What depends on something wrong is not looked at.
    """
    faults = Faults()
    request = faults.attempt(lambda: with_variants(request)) or without_variants(request)
    of_parent = faults.attempt(lambda: _with_parent(database, principal, request))
    if of_parent is None and request.space.model is None:
        return Resolution(request, None, None, faults)  # no space is known
    request = of_parent or _without_parent(request)
    request = faults.attempt(lambda: laws.check_named(database, principal.owner, request)) or laws.with_law(
        request, None
    )
    paced = faults.attempt(lambda: _with_pace(database, principal.owner, request))
    request = paced or request.model_copy(update={"train_time": None})
    faults.attempt(lambda: _check_narrowing(request))
    named = faults.attempt(lambda: with_defaults(request))
    job = None if named is None else faults.attempt(lambda: _resolved(database, principal, named))
    if job is None:
        return Resolution(named or request, None, None, faults)
    for check in _checks(job, settings):
        faults.attempt(check)
    proxy_data = faults.attempt(lambda: scoring.check_data(job.request, settings))
    return Resolution(job.request, job, proxy_data, faults)


def _with_parent(database: Database, principal: Principal, request: JobRequest) -> JobRequest:
    with database.read() as session:
        return with_parent(session, principal, request)


def _without_parent(request: JobRequest) -> JobRequest:
    return request.model_copy(update={"space": request.space.model_copy(update={"inherit": None})})


def _with_pace(database: Database, owner: str, request: JobRequest) -> JobRequest:
    with database.read() as session:
        return paces.with_pace(session, owner, request)


def _resolved(database: Database, principal: Principal, request: JobRequest) -> ResolvedJob:
    with database.read() as session:
        return resolved(request, laws.law_of_request(session, principal.owner, request))


def _checks(job: ResolvedJob, settings: Settings | None) -> Iterator[Callable[[], object]]:
    request = job.request
    yield partial(_check_none_added, request)
    yield partial(_check_model, request)
    yield partial(_check_published, request)
    yield partial(scoring.proxy_of, request)
    yield partial(_check_algorithm, request)
    for index, target in enumerate(request.targets):
        yield partial(_check_limited, request, target, index)
        yield partial(_check_search, job, target, index)
    yield partial(supernet_plan.check, job, settings)


def check_target(job: ResolvedJob, target: TargetRequest, in_reach: Callable[[JobRequest], None] | None = None) -> None:
    """Checks a target that is added to a job; paths of errors are those within the target. `in_reach` as in
    `submit_job`.
    """
    try:
        _check_limited(job.request, target, 0)
        _check_search(job, target, 0)
        if in_reach is not None:
            in_reach(job.request.model_copy(update={"targets": (target,)}))
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
    if request.goal == Goal.BEST_WITHIN_LIMITS and not limits.any:
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
    for gene, choice in request.space.narrow.items():
        seen: set[str] = set()
        for value in choice if isinstance(choice, list) else ():
            if repr(value) in seen:
                raise SpaceError(
                    f"space.narrow.{gene}: {short(value)} occurs more than once in the list",
                    field=f"space.narrow.{gene}",
                    value=value,
                    allowed="each value once",
                )
            seen.add(repr(value))


def _check_published(request: JobRequest) -> None:
    """Refuses what a list of published models does not have, and a score of it elsewhere."""
    if request.space.published is None:
        if request.proxy == "published_score":
            raise InvalidInput(
                f"proxy: the models of {request.space.name} have no published scores",
                field="proxy",
                value=request.proxy,
                allowed="another proxy, or space.published",
            )
        return
    for field, value, allowed in (
        ("proxy", request.proxy, ("published_score",)),
        ("algorithm.name", request.algorithm.name, ("listed", "random")),
        ("baseline_layers", request.baseline_layers, (None,)),
    ):
        if value not in allowed:
            named = ", ".join(map(str, allowed)).replace("None", "no value")
            raise InvalidInput(
                f"{field}: among published models there is {named}", field=field, value=value, allowed=named
            )


def _check_algorithm(request: JobRequest) -> None:
    with within("algorithm"):
        check_settings(request.algorithm.name, request.algorithm.settings)


def _check_search(job: ResolvedJob, target: TargetRequest, index: int) -> None:
    request, plan = job.request, job.plan(target.protocol, target.limits)
    bounds = request.parameters
    if bounds.min_decoder is not None and bounds.max_decoder is not None and bounds.min_decoder > bounds.max_decoder:
        raise InvalidInput(
            f"parameters.min_decoder {bounds.min_decoder} is above max_decoder {bounds.max_decoder}: no model fits",
            field="parameters.min_decoder",
            value=bounds.min_decoder,
            allowed=f"at most {bounds.max_decoder}",
        )
    baselines = plan.baselines()
    if request.space.published is None and not 1 <= len(baselines) <= MAX_BASELINES:
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
    bounds, space = plan.job.request.parameters, plan.job.space
    limits = [limit for limit in (bounds.max_decoder, bounds.max_total) if limit is not None]
    most = min(limits, default=None)
    if bounds.min_decoder is not None:
        largest = smallest(space, lambda every: -Shapes.of(every).decoder_parameters)
        if bounds.min_decoder > FAR * plan.costs(largest).decoder_parameters:
            return True
    if most is not None:
        least = smallest(space, lambda every: Shapes.of(every).decoder_parameters)
        return most < plan.costs(least).decoder_parameters / FAR
    return False


def _check_limits(plan: SearchPlan, target: TargetRequest, index: int) -> None:
    """Raises `InvalidInput` if the runtime runs none, or none is within the limits on parameters and weights."""
    if not _out_of_reach(plan) and plan.permitted():
        return
    space, bounds, memory_mb = plan.job.space, plan.job.request.parameters, target.limits.memory_mb
    rng = np.random.default_rng(0)
    with within("targets", index, "protocol"):
        drawn = [plan.costs(space.architecture(genome)) for genome in space.samples(EXAMPLES, rng)]
    spreads = [
        f"{min(values):,} to {max(values):,} {name}"
        for name, values in (
            ("decoder parameters", [counted.decoder_parameters for counted in drawn]),
            ("parameters in all", [counted.total_parameters for counted in drawn]),
            ("MB of weights", [counted.weight_bytes // MB for counted in drawn]),
        )
    ]
    given = bounds.model_dump(exclude_none=True)
    cause: str = "parameters"
    value: object = given
    allowed = "wider limits, or a space narrowed to models within them"
    if not given:
        least = plan.costs(
            smallest(space, lambda every: [plan.costs(architecture).weight_bytes for architecture in every])
        )
        spreads.append(f"the smallest {least.weight_bytes / MB:.1f} MB of weights")
        allowed = f"more than {least.weight_bytes / MB:.1f} MB, or another space"
        cause, value = f"targets.{index}.limits.memory_mb", memory_mb
    elif len(given) == 1 and memory_mb is None:
        ((name, value),) = given.items()
        cause = f"parameters.{name}"
    raise InvalidInput(
        f"no architecture of {space.name} was found within these limits; most have {'; '.join(spreads)}",
        field=cause,
        value=value,
        allowed=allowed,
    )


def with_defaults(request: JobRequest) -> JobRequest:
    """The request with its proxy, algorithm and baselines named, as far as they do not follow from its space.

    Raises `SpaceError` with the field's path within the request.
    """
    request = _for_llama_cpp(_around_model(request))
    if request.space.published is not None:
        return _among_published(request)
    proxy = request.proxy
    if proxy == "auto":
        proxy = (
            "quality_law"
            if request.space.inherit is not None or covers(space_of(request.space).example)
            else "decoder_parameters"
        )
    if proxy == "quality_law" and request.proxy_settings.get("law") is None:
        law = law_for(space_of(request.space))
        request = request if law is None else with_law(request, law.origin.name)
    algorithm = request.algorithm
    if algorithm.name == "auto":
        predictable = proxy == "quality_law" or proxy in COUNTED
        algorithm = algorithm.model_copy(update={"name": "surrogate" if predictable else "lts"})
    depths = request.baseline_layers
    if depths is None and request.space.model is None and request.goal == Goal.BEST_WITHIN_LIMITS:
        depths = _depths_within_memory(request)
    return request.model_copy(update={"proxy": proxy, "algorithm": algorithm, "baseline_layers": depths})


def _among_published(request: JobRequest) -> JobRequest:
    """Names the models, so that the job stays what it was where the catalogue changes."""
    space = request.space.model_copy(update={"narrow": {MODEL: list(space_of(request.space).gene(MODEL).values)}})
    algorithm = request.algorithm
    if algorithm.name == "auto":
        algorithm = algorithm.model_copy(update={"name": "listed"})
    proxy = "published_score" if request.proxy == "auto" else request.proxy
    return request.model_copy(update={"space": space, "algorithm": algorithm, "proxy": proxy})


def _depths_within_memory(request: JobRequest) -> tuple[int, ...] | None:
    """Depths of the stock model whose weights alone leave it a chance; at least the least one. None: every depth."""
    space, depths = space_of(request.space), {1}
    for target in request.targets:
        if target.limits.memory_mb is None:
            return None
        for depth, architecture in enumerate(space.baselines(), start=1):
            try:
                weights = protocol_costs(architecture, target.protocol).weight_bytes
            except EdgefrontError:
                return None  # `resolve` says why such a model cannot run
            if weights <= target.limits.memory_mb * MB:
                depths.add(depth)
    return tuple(sorted(depths))


def _around_model(request: JobRequest) -> JobRequest:
    """Adds the name of the space that has the request's model, and the model in its canonical form."""
    space = space_of(request.space)
    if space.model is None:
        return request
    named = {"name": space.name, "model": space.model.canonical}
    return request.model_copy(update={"space": request.space.model_copy(update=named)})


def _for_llama_cpp(request: JobRequest) -> JobRequest:
    """Narrows the space to what llama.cpp runs, where a target is measured with it.

    One narrowing for all targets, so that they measure the same candidates. `resolve` refuses spaces of which it runs
    none. Raises `SpaceError` that names the gene of which it runs no value that was asked for.
    """
    space = space_of(request.space)
    if not space.loads_in_part or all(target.protocol.runtime != "llamacpp" for target in request.targets):
        return request
    with within("space", "narrow"):
        limited = space.limited_to("llamacpp")
    narrow = {**request.space.narrow, **{gene: list(values) for gene, values in limited.items()}}
    return request.model_copy(update={"space": request.space.model_copy(update={"narrow": narrow})})
