"""Resolves the request of a new job: fills in the defaults, and makes all checks that need no device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from sqlalchemy.orm import Session

from edgefront.core.architectures.published_space import MODEL
from edgefront.core.common.errors import EdgefrontError, ErrorCollector, InvalidInput, NotFound, SpaceError, within
from edgefront.core.common.number_formats import BITS
from edgefront.core.common.states import Goal, TrainingState
from edgefront.core.common.units import MB
from edgefront.core.common.validation import short
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.measurement.variants import format_of, variants_of
from edgefront.core.quality.shipped import law_for
from edgefront.core.schemas.jobs import MAX_TARGETS, JobRequest, TargetRequest
from edgefront.core.search.pareto.options import OptionLimits
from edgefront.core.search.registry import settings_of
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import training_of
from edgefront.core.services.jobs import supernet_plan
from edgefront.core.services.jobs.resolved import ResolvedJob, check_limits_apply, check_search
from edgefront.core.services.quality import laws
from edgefront.core.services.quality.laws import PRUNING_PREDICTOR, with_law
from edgefront.core.services.settings import Settings
from edgefront.core.services.spaces import space_of
from edgefront.core.services.trainings import paces
from edgefront.core.store.database import Database
from edgefront.core.training.proxies.score import covers, law_about

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Resolution:
    """Result of resolving a job's request: the resolved job, or the errors."""

    request: JobRequest
    """The request, with defaults filled in as far as its errors permit."""
    job: ResolvedJob | None
    """The resolved job; None if the request's space is unknown or its scaling law cannot be read."""
    errors: ErrorCollector

    def checked(self) -> ResolvedJob:
        """Returns the job. Raises the first error if there are any."""
        self.errors.raise_first()
        assert self.job is not None, "a request without errors is a job"
        return self.job


def resolve(
    database: Database, principal: Principal, request: JobRequest, settings: Settings | None = None
) -> Resolution:
    """Fills in a request's defaults, and collects all errors that can be found without a device.

    Each step works on a valid request: if a field is wrong, the next step gets the request without this field. Errors
    have the field's path within the request. Resolving may take seconds if the limits permit one architecture in
    thousands. `settings` locate the data for searches that train; by default they are read from the environment.
    """
    errors = ErrorCollector()

    def read(do: Callable[[Session], _Result]) -> _Result | None:
        """Returns the result of `do` in a new session. If `do` raises, collects the error and returns None."""

        def in_session() -> _Result:
            with database.read() as session:
                return do(session)

        return errors.collect(in_session)

    if (expanded := errors.collect(lambda: _with_variants(request))) is None:
        without_variants = [target.model_copy(update={"variants": None}) for target in request.targets]
        expanded = request.model_copy(update={"targets": tuple(without_variants)})
    with_parent = read(lambda session: _with_parent(session, principal, expanded))
    if with_parent is None and request.space.model is None:
        return Resolution(expanded, None, errors)
    without_parent = request.space.model_copy(update={"inherit": None})
    valid = with_parent or expanded.model_copy(update={"space": without_parent})
    valid = errors.collect(lambda: laws.check_named(database, principal.owner, valid)) or with_law(valid, None)
    with_pace = read(lambda session: paces.with_pace(session, principal.owner, valid))
    valid = with_pace or valid.model_copy(update={"train_time": None})
    errors.collect(lambda: _check_narrowing(valid))
    complete = errors.collect(lambda: with_defaults(valid))
    if complete is None:
        return Resolution(valid, None, errors)
    job = read(
        lambda session: ResolvedJob.of(complete, laws.scaling_law_of_request(session, principal.owner, complete))
    )
    if job is None:
        return Resolution(complete, None, errors)
    for check in _checks(job, settings):
        errors.collect(check)
    return Resolution(job.request, job, errors)


def _with_variants(request: JobRequest) -> JobRequest:
    """Returns the request with one target per variant (runtime, format, cache). `InvalidInput` without any variant."""
    if all(target.variants is None for target in request.targets):
        return request
    targets = []
    for index, target in enumerate(request.targets):
        with within("targets", index, "variants"):
            targets += list(_variants(target))
    if len(targets) > MAX_TARGETS:
        raise InvalidInput(
            f"targets: the variants make {len(targets)} targets, and a job has at most {MAX_TARGETS}",
            field="targets",
            value=len(targets),
            allowed=f"at most {MAX_TARGETS}: fewer runtimes, formats or cache formats",
        )
    return request.model_copy(update={"targets": tuple(targets)})


def _variants(target: TargetRequest) -> Iterator[TargetRequest]:
    variants = target.variants
    if variants is None:
        yield target
        return
    protocols = variants_of(target.protocol, variants.runtimes, variants.formats, variants.kv_caches)
    caches = {protocol.kv_cache for protocol in protocols} - {None}
    # Targets search in this order: after fewer bits, few models of more bits can be better.
    for protocol in sorted(protocols, key=lambda protocol: BITS[format_of(protocol)]):
        # named like `pi llamacpp q8_0` or `pi llamacpp q8_0, cache f16`
        cache = f", cache {protocol.kv_cache}" if len(caches) > 1 and protocol.kv_cache else ""
        device = target.name or target.device or target.device_class or ""
        threads = f", {protocol.threads} threads" if protocol.threads > 1 else ""
        name = f"{device} {protocol.runtime} {format_of(protocol)}{cache}{threads}"
        yield target.model_copy(update={"protocol": protocol, "variants": None, "name": name.strip()})


def _with_parent(session: Session, principal: Principal, request: JobRequest) -> JobRequest:
    """Returns the request with architecture and pruning predictor of the parent model, if the job's models inherit
    weights; else the request unchanged.

    Raises `InvalidInput` for `space.inherit` if the caller has no model with this id and an importance study, and for a
    field that contradicts the parent.
    """
    if request.space.inherit is None:
        return request
    try:
        parent = training_of(session, principal, request.space.inherit)
        law = (parent.result or {}).get(PRUNING_PREDICTOR) if parent.state == TrainingState.DONE else None
        if not isinstance(law, str) or parent.trained is None:
            raise NotFound(f"{parent.name} ({parent.id}) has no study of its cuts")
    except NotFound as error:
        raise InvalidInput(
            f"space.inherit: {error}",
            field="space.inherit",
            value=request.space.inherit,
            allowed="a model imported with a study of its cuts (edgefront inherit study, edgefront train import)",
        ) from None
    if request.space.model is not None and request.space.model != parent.trained:
        raise InvalidInput(
            f"space.model is not the architecture of {parent.name} ({parent.id}), whose weights are inherited",
            field="space.model",
            value="an architecture",
            allowed="omit it",
        )
    named = request.proxy_settings.law
    if named not in (None, law):
        raise InvalidInput(
            f"proxy_settings.law must be {law}, the scaling law of its cuts, if models inherit from {parent.name}",
            field="proxy_settings.law",
            value=named,
            allowed="omit it",
        )
    space = request.space.model_copy(update={"model": parent.trained})
    return with_law(request.model_copy(update={"space": space}), law)


def _checks(job: ResolvedJob, settings: Settings | None) -> Iterator[Callable[[], object]]:
    request = job.request
    yield partial(_check_none_added, request)
    yield partial(_check_model, request)
    yield partial(_check_published, request)
    yield partial(_check_law, job)
    yield partial(_check_algorithm, request)
    for index, target in enumerate(request.targets):
        yield partial(check_limits_apply, request, target, index)
        yield partial(check_search, job, target, index)
    yield partial(supernet_plan.check, job, settings)


def _check_none_added(request: JobRequest) -> None:
    for index, target in enumerate(request.targets):
        if target.added:
            raise InvalidInput(
                f"targets.{index}.added must be false; POST /v1/jobs/{{id}}/targets adds a target to a stored job",
                field=f"targets.{index}.added",
                value=True,
                allowed="false",
            )


def _check_model(request: JobRequest) -> None:
    if request.space.model is not None and request.baseline_layers is not None:
        raise InvalidInput(
            "baseline_layers must be omitted with space.model, because the baseline is this model at its own depth",
            field="baseline_layers",
            value=request.baseline_layers,
            allowed="omit it, or space.model",
        )


def _check_narrowing(request: JobRequest) -> None:
    """Raises `SpaceError` if a gene has repeated values, which bloat stored requests."""
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
    """Raises `InvalidInput` for settings unsupported by published models, and for published scores in other spaces."""
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
            named = " or ".join(map(str, allowed)).replace("None", "no value")
            raise InvalidInput(f"{field}: published models need {named}", field=field, value=value, allowed=named)


def _check_law(job: ResolvedJob) -> None:
    """Raises `InvalidInput` if the job ranks by a scaling law, but no scaling law covers the space."""
    if job.request.proxy == "quality_law" and job.request.space.published is None and job.law is None:
        law_about(job.space)


def _check_algorithm(request: JobRequest) -> None:
    with within("algorithm"):
        settings_of(request.algorithm.name, request.algorithm.settings)


def with_defaults(request: JobRequest) -> JobRequest:
    """Returns the request with default name, proxy, algorithm and baselines. Raises `SpaceError` with the field's
    path.
    """
    request = _for_llama_cpp(_around_model(request))
    request = request.model_copy(update={"name": request.name or _default_name(request)})
    if request.space.published is not None:
        return _among_published(request)
    proxy = request.proxy
    if proxy == "auto":
        proxy = (
            "quality_law"
            if request.space.inherit is not None or covers(space_of(request.space).example)
            else "decoder_parameters"
        )
    if proxy == "quality_law" and request.proxy_settings.law is None:
        law = law_for(space_of(request.space))
        request = request if law is None else with_law(request, law.origin.name)
    algorithm = request.algorithm
    if algorithm.name == "auto":
        algorithm = algorithm.model_copy(update={"name": "surrogate"})
    depths = request.baseline_layers
    if depths is None and request.space.model is None and request.goal == Goal.BEST_WITHIN_LIMITS:
        depths = _depths_within_memory(request)
    return request.model_copy(update={"proxy": proxy, "algorithm": algorithm, "baseline_layers": depths})


def _default_name(request: JobRequest) -> str:
    """Name with the limits, if all targets have the same: `find within 40 ms and 100 MB`."""
    kind = "find" if request.goal == Goal.BEST_WITHIN_LIMITS else "search"
    kind = kind if request.space.published is None else "published models"
    limits = {str(OptionLimits(**target.limits.model_dump())) for target in request.targets}
    return kind if len(limits) > 1 or limits == {""} else f"{kind} within {limits.pop()}"


def _among_published(request: JobRequest) -> JobRequest:
    """Returns the request with the names of all matching models. A later catalogue then does not change the job."""
    space = request.space.model_copy(update={"narrow": {MODEL: list(space_of(request.space).gene(MODEL).values)}})
    algorithm = request.algorithm
    if algorithm.name == "auto":
        algorithm = algorithm.model_copy(update={"name": "listed"})
    proxy = "published_score" if request.proxy == "auto" else request.proxy
    return request.model_copy(update={"space": space, "algorithm": algorithm, "proxy": proxy})


def _depths_within_memory(request: JobRequest) -> tuple[int, ...] | None:
    """Returns 1 and the depths at which the stock model's weights are within a memory limit; None: all depths."""
    space, depths = space_of(request.space), {1}
    for target in request.targets:
        if target.limits.memory_mb is None:
            return None
        for depth, architecture in enumerate(space.baselines(), start=1):
            try:
                weights = protocol_costs(architecture, target.protocol).weight_bytes
            except EdgefrontError:
                return None  # `check_search` raises the reason why this model cannot run
            if weights <= target.limits.memory_mb * MB:
                depths.add(depth)
    return tuple(sorted(depths))


def _around_model(request: JobRequest) -> JobRequest:
    """Returns the request with `space.model` in canonical form, and with the name of this model's search space."""
    space = space_of(request.space)
    if space.model is None:
        return request
    named = {"name": space.name, "model": space.model.canonical}
    return request.model_copy(update={"space": request.space.model_copy(update=named)})


def _for_llama_cpp(request: JobRequest) -> JobRequest:
    """Returns the request narrowed to models that llama.cpp can run, if a target uses llama.cpp.

    All targets get the narrowed space, because all of them measure the same candidates. Raises `SpaceError` for a gene
    whose requested values llama.cpp cannot run.
    """
    space = space_of(request.space)
    if not space.loads_in_part or all(target.protocol.runtime != "llamacpp" for target in request.targets):
        return request
    with within("space", "narrow"):
        limited = space.limited_to("llamacpp")
    narrow = {**request.space.narrow, **{gene: list(values) for gene, values in limited.items()}}
    return request.model_copy(update={"space": request.space.model_copy(update={"narrow": narrow})})
