"""Resolves a job's request: names what it leaves open, and checks what needs no device, before any transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from sqlalchemy.orm import Session

from edgefront.core.architectures.published_space import MODEL
from edgefront.core.common.errors import EdgefrontError, ErrorCollector, InvalidInput, NotFound, SpaceError, within
from edgefront.core.common.states import Goal, TrainingState
from edgefront.core.common.units import MB
from edgefront.core.common.validation import short
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.measurement.variants import format_of, variants_of
from edgefront.core.quality.shipped import law_for
from edgefront.core.schemas.jobs import MAX_TARGETS, JobRequest, TargetRequest
from edgefront.core.search.problem import COUNTED
from edgefront.core.search.registry import check_settings
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import training_of
from edgefront.core.services.jobs import supernet_plan
from edgefront.core.services.jobs.resolved import ResolvedJob, check_limited, check_search, resolved
from edgefront.core.services.quality import laws, scoring
from edgefront.core.services.quality.laws import CUTS_LAW, with_law
from edgefront.core.services.settings import Settings
from edgefront.core.services.spaces import space_of
from edgefront.core.services.trainings import paces
from edgefront.core.store.database import Database
from edgefront.core.training.proxies.score import covers

_Result = TypeVar("_Result")


@dataclass(frozen=True)
class Resolution:
    """What a request comes to, and what it would be refused for."""

    request: JobRequest
    """The request with its defaults, as far as they can be named."""
    job: ResolvedJob | None
    """It is None where the request does not even say which models it is about."""
    proxy_data: str | None
    """Digest of the data that its scores use; None if they use none, or only the workers have it."""
    faults: ErrorCollector

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
    errors = ErrorCollector()

    def read(do: Callable[[Session], _Result]) -> _Result | None:
        """What it reads, in a session of its own; None if it raises an error, which is kept."""

        def reading() -> _Result:
            with database.read() as session:
                return do(session)

        return errors.collect(reading)

    if (expanded := errors.collect(lambda: _with_variants(request))) is None:
        alone = [target.model_copy(update={"variants": None}) for target in request.targets]
        expanded = request.model_copy(update={"targets": tuple(alone)})
    of_parent = read(lambda session: _with_parent(session, principal, expanded))
    if of_parent is None and request.space.model is None:
        return Resolution(expanded, None, None, errors)  # no space is known
    without_parent = request.space.model_copy(update={"inherit": None})
    asked = of_parent or expanded.model_copy(update={"space": without_parent})
    asked = errors.collect(lambda: laws.check_named(database, principal.owner, asked)) or with_law(asked, None)
    paced = read(lambda session: paces.with_pace(session, principal.owner, asked))
    asked = paced or asked.model_copy(update={"train_time": None})
    errors.collect(lambda: _check_narrowing(asked))
    named = errors.collect(lambda: with_defaults(asked))
    if named is None:
        return Resolution(asked, None, None, errors)
    job = read(lambda session: resolved(named, laws.law_of_request(session, principal.owner, named)))
    if job is None:
        return Resolution(named, None, None, errors)
    for check in _checks(job, settings):
        errors.collect(check)
    proxy_data = errors.collect(lambda: scoring.check_data(job.request, settings))
    return Resolution(job.request, job, proxy_data, errors)


def _with_variants(request: JobRequest) -> JobRequest:
    """The request with a target for each variant. `InvalidInput` names the field of the target that has none."""
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
    asked = target.variants
    if asked is None:
        yield target
        return
    protocols = variants_of(target.protocol, asked.runtimes, asked.formats, asked.kv_caches)
    caches = {protocol.kv_cache for protocol in protocols} - {None}
    for protocol in protocols:  # `pi llamacpp q8_0`, `pi llamacpp q8_0, cache f16`
        cache = f", cache {protocol.kv_cache}" if len(caches) > 1 and protocol.kv_cache else ""
        device = target.name or target.device or target.device_class or ""
        name = f"{device} {protocol.runtime} {format_of(protocol)}{cache}"
        yield target.model_copy(update={"protocol": protocol, "variants": None, "name": name.strip()})


def _with_parent(session: Session, principal: Principal, request: JobRequest) -> JobRequest:
    """The request with the architecture of the parent and the law of its cuts, if its models inherit.

    `InvalidInput` names `space.inherit` where the caller has no such model, or no study of it came along, and what the
    request says otherwise than the parent.
    """
    if request.space.inherit is None:
        return request
    try:
        parent = training_of(session, principal, request.space.inherit)
        law = (parent.result or {}).get(CUTS_LAW) if parent.state == TrainingState.DONE else None
        if not isinstance(law, str) or parent.trained is None:
            raise NotFound(f"nothing is known of the cuts of {parent.name} ({parent.id})")
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
    named = request.proxy_settings.get("law")
    if named not in (None, law):
        raise InvalidInput(
            f"proxy_settings.law: the parts of {parent.name} are ranked by the law of its cuts, {law}",
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
    yield partial(scoring.proxy_of, request)
    yield partial(_check_algorithm, request)
    for index, target in enumerate(request.targets):
        yield partial(check_limited, request, target, index)
        yield partial(check_search, job, target, index)
    yield partial(supernet_plan.check, job, settings)


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
