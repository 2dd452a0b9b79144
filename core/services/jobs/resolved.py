"""Resolved jobs, the search plans of their targets, and the checks of a plan."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.costs import Costs
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.published_space import PublishedSpace
from edgefront.core.architectures.space import SearchSpace
from edgefront.core.common.errors import InvalidInput, within
from edgefront.core.common.states import Goal
from edgefront.core.common.units import MB
from edgefront.core.measurement.passes import protocol_costs, runtime_fault
from edgefront.core.measurement.prediction.memory import weight_bytes
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.quality.predictor import PerplexityPredictor
from edgefront.core.quality.pruning_predictor import PruningPredictor
from edgefront.core.schemas.jobs import JobRequest, Limits, SpaceRequest, TargetRequest
from edgefront.core.search.depths import MAX_DEPTHS
from edgefront.core.search.interface import Algorithm, Snapshot
from edgefront.core.search.listed import Extension
from edgefront.core.search.problem import Problem
from edgefront.core.search.proposals import DRAWS, MAX_ENUMERATED, smallest
from edgefront.core.search.registry import make
from edgefront.core.services.jobs.queries.candidates import MAX_BASELINES
from edgefront.core.services.quality import laws
from edgefront.core.services.quality.expected import perplexities
from edgefront.core.services.spaces import space_of
from edgefront.core.store.sql import Document


@dataclass(frozen=True)
class ResolvedJob:
    """A job's request with its search space and scaling law, used by submission, estimates, workers and views."""

    request: JobRequest
    """The request as it is stored, with all defaults filled in."""
    space: SearchSpace
    law: PerplexityPredictor | None
    """The scaling law that ranks candidates or predicts their perplexity; None if no scaling law covers the space."""

    @classmethod
    def of(cls, request: JobRequest, law: PerplexityPredictor | None) -> ResolvedJob:
        """Returns the resolved job of a stored request. Raises `InvalidInput` if this release cannot run the job."""
        if law is None:
            laws.check_no_budget(request, f"the models of {request.space.name}")
        return cls(request, space_of(request.space), law)

    def plan(self, protocol: MeasurementProtocol, limits: Limits, *, added: bool = False) -> SearchPlan:
        """Returns the search plan of a target. For a target that was `added` later, the plan chooses among the job's
        existing candidates. Raises `InvalidInput` with the field's path within the request.
        """
        accept, problem = _acceptance(self, protocol, limits), _problem(self, protocol, limits)
        if added:
            return SearchPlan(self, protocol, limits, Extension(accept, problem), problem)
        with within("algorithm"):
            algorithm = make(self.request.algorithm.name, self.request.algorithm.settings, self.space, accept, problem)
        return SearchPlan(self, protocol, limits, algorithm, problem)

    def can_inherit(self, shapes: Shapes) -> NDArray[np.bool_] | bool:
        """Whether each shape is a submodel of the parent model; True if the job's models inherit no weights."""
        return self.law.table.align(shapes).is_part if isinstance(self.law, PruningPredictor) else True

    def perplexities(self, architectures: Sequence[Architecture]) -> list[Document]:
        """Returns predictions of the scaling law as fields of `PredictedView`; empty fields without a scaling law."""
        return perplexities(self.law, architectures)


@dataclass(frozen=True)
class SearchPlan:
    """Search plan of one target: search algorithm and problem, computed only from job, protocol and limits."""

    job: ResolvedJob
    protocol: MeasurementProtocol
    limits: Limits
    algorithm: Algorithm
    problem: Problem

    def baselines(self) -> tuple[Architecture, ...]:
        """Returns the baselines of the search: the stock model at the requested depths, or the user's model."""
        return self.job.space.baselines(self.job.request.baseline_layers)

    def costs(self, architecture: Architecture) -> Costs:
        return protocol_costs(architecture, self.protocol)

    def score(self, architecture: Architecture) -> float:
        """Returns the architecture's score by the job's proxy; higher is better."""
        if isinstance(self.job.space, PublishedSpace):
            return self.job.space.scores[architecture.digest]
        return float(self.problem.score_function()(Shapes.of([architecture]))[0])

    def permitted(self) -> bool:
        """Whether the search can find any architecture within the limits."""
        return bool(self.examples(1))

    def examples(self, count: int) -> list[Architecture]:
        """Returns up to `count` permitted architectures, sampled with the job's seed."""
        accept = _acceptance(self.job, self.protocol, self.limits)
        drawn = make("random", {"population": count}, self.job.space, accept)
        return [proposal.architecture for proposal in drawn.ask(self.job.request.seed, 0, Snapshot())]

    def exhausted(self) -> str:
        """Returns a sentence that says why the search has no further architecture to propose."""
        if self.job.space.size() <= MAX_ENUMERATED:
            return "Every permitted architecture has been proposed."
        return f"No other permitted architecture was found in {DRAWS:,} draws."

    def has_generation(self, number: int) -> bool:
        generations = self.algorithm.generations
        return generations is None or number < generations


def _problem(job: ResolvedJob, protocol: MeasurementProtocol, limits: Limits) -> Problem:
    request = job.request
    law = job.law if request.proxy == "quality_law" else None

    def permitted(shapes: Shapes) -> NDArray[np.bool_]:
        weights = weight_bytes(shapes, protocol)
        within = _permitted(request, limits, shapes.decoder_parameters, shapes.total_parameters, weights)
        return np.asarray(within & job.can_inherit(shapes))

    times = limits.times
    own = times.pop(protocol.latency, math.inf) if protocol.mode == "generate" else math.inf
    latency = min(limits.latency_ms or math.inf, own)
    return Problem(
        goal=request.goal,
        latency_ms=None if math.isinf(latency) else latency,
        times_ms=times,
        memory_bytes=None if limits.memory_mb is None else limits.memory_mb * MB,
        candidates=request.budget.candidates,
        protocol=protocol,
        proxy=request.proxy,
        custom_score=None if law is None else (lambda shapes: -law.expected(shapes)),
        permitted=permitted,
    )


BASELINE_LAUNCHES = 3
"""Number of launches of each baseline of a frontier. Several are needed because every comparison divides by a baseline,
and because the spread of these launches estimates the device's launch variance.
"""
SHORT_MINUTES = 10
"""Time budget below which a baseline is launched once before the search, as a device may be slow."""


class Sizes(NamedTuple):
    """Maximum numbers of baselines, launches and candidates of one target. A time budget may end the search earlier."""

    baselines: int
    baseline_launches: int
    """Number of launches per baseline before the search; one if baselines only show which depths meet the limits."""
    candidates: int
    """Number of candidates of the whole search."""
    expected: int
    """Number of candidates after which the search is expected to end."""
    generation: int
    """Number of candidates of a generation after the first."""


def sizes_of(request: JobRequest) -> Sizes:
    """Returns the sizes of a job's searches. Raises `InvalidInput` for an unknown space or algorithm."""
    return _sizes(request.model_dump_json(include={"space", "algorithm", "baseline_layers", "budget", "goal"}))


@lru_cache(maxsize=512)
def _sizes(text: str) -> Sizes:
    request = json.loads(text)
    space, budget = space_of(SpaceRequest(**request["space"])), request["budget"]["candidates"]
    algorithm = make(**request["algorithm"], space=space, problem=Problem(candidates=budget))
    most = space.size() if budget is None else min(space.size(), budget)
    total, generation = 0, 0
    while total < most and (algorithm.generations is None or generation < algorithm.generations):
        total, generation = total + algorithm.generation_size(generation), generation + 1
    baselines, launches = len(space.baselines(request["baseline_layers"])), BASELINE_LAUNCHES
    if (request["budget"]["minutes"] or math.inf) < SHORT_MINUTES:
        launches = 1
    if request["goal"] == Goal.BEST_WITHIN_LIMITS:
        baselines, launches = min(baselines, MAX_DEPTHS), 1 if baselines > 1 else launches
    total = min(total, most)
    return Sizes(baselines, launches, total, algorithm.expected_candidates(0, total), algorithm.generation_size(1))


_Counts = int | NDArray[np.int64]
"""A count, such as the number of parameters, for one architecture or for an array of architectures."""


def _acceptance(job: ResolvedJob, protocol: MeasurementProtocol, limits: Limits) -> Callable[[Architecture], bool]:
    """Returns a predicate for architectures. An architecture is accepted if the runtime can run it, its number of
    parameters is within the request's bounds, its weights are within the memory limit, and, if weights are inherited,
    it is a submodel of the parent.
    """
    request = job.request

    def accept(architecture: Architecture) -> bool:
        if runtime_fault(architecture, protocol) is not None:
            return False
        counted = protocol_costs(architecture, protocol)
        if job.request.space.inherit is not None and not np.all(job.can_inherit(Shapes.of([architecture]))):
            return False
        return bool(
            _permitted(request, limits, counted.decoder_parameters, counted.total_parameters, counted.weight_bytes)
        )

    return accept


def _permitted(
    request: JobRequest, limits: Limits, decoder: _Counts, total: _Counts, weights: _Counts
) -> bool | NDArray[np.bool_]:
    """Whether numbers of parameters and bytes of weights are within the bounds and the limit (for arrays elementwise).

    Peak memory includes all weights, so a model with weights beyond the limit needs no measurement.
    """
    bounds = request.parameters
    return (
        (decoder >= (bounds.min_decoder or 0))
        & (decoder <= (bounds.max_decoder or math.inf))
        & (total <= (bounds.max_total or math.inf))
        & (weights <= (math.inf if limits.memory_mb is None else limits.memory_mb * MB))
    )


FAR = 2
"""Factor by which a bound must lie outside the estimated sizes of a space's models to be refused without sampling."""
EXAMPLES = 200
"""Number of architectures that are sampled to describe a space in an error message."""


def check_target(job: ResolvedJob, target: TargetRequest, validate_limits: Callable[[JobRequest], None]) -> None:
    """Checks a target that is added to an existing job. Raises errors with paths within the target."""
    try:
        check_limits_apply(job.request, target, 0)
        check_search(job, target, 0)
        validate_limits(job.request.model_copy(update={"targets": (target,)}))
    except InvalidInput as error:
        if error.path[:2] == ("targets", "0"):
            raise error.at(*error.path[2:]) from None
        raise


def check_limits_apply(request: JobRequest, target: TargetRequest, index: int) -> None:
    """Raises `InvalidInput` for a limit that the target's mode does not measure, and if the goal lacks a limit."""
    limits = target.limits
    if limits.times and target.protocol.mode != "generate":
        name = f"{next(iter(limits.times))}_ms"
        raise InvalidInput(
            f"targets.{index}.limits.{name}: mode {target.protocol.mode} generates no tokens; limit latency_ms instead",
            field=f"targets.{index}.limits.{name}",
            value=getattr(limits, name),
            allowed="no value, or mode generate",
        )
    if request.goal == Goal.BEST_WITHIN_LIMITS and not limits.any:
        field = f"targets.{index}.limits"
        raise InvalidInput(
            f"{field}: without a limit the best model is the largest, so give latency_ms, memory_mb or both"
            + (", or first_token_ms or token_ms" if target.protocol.mode == "generate" else ""),
            field=field,
            value=limits.model_dump(),
            allowed="at least one limit, or the goal frontier",
        )


def check_search(job: ResolvedJob, target: TargetRequest, index: int) -> None:
    """Raises `InvalidInput` unless the target's baselines can run and the target's search can find a model."""
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
            f"baseline_layers: the number of depths must be 1 to {MAX_BASELINES}, not {len(baselines)}",
            field="baseline_layers",
            value=request.baseline_layers,
            allowed="depths of the baseline; absent: every depth of the space",
        )
    with within("targets", index, "protocol"):
        for baseline in baselines:
            plan.costs(baseline)
    _check_limits(plan, target, index)


def _out_of_reach(plan: SearchPlan) -> bool:
    """Whether the bounds on parameters are so far beyond the largest or smallest model that sampling is futile."""
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
    """Raises `InvalidInput` if the runtime can run no model of the space, or if no model is within the bounds."""
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
            ("total parameters", [counted.total_parameters for counted in drawn]),
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
        f"no architecture of {space.name} was found within these limits; typical ones have {'; '.join(spreads)}",
        field=cause,
        value=value,
        allowed=allowed,
    )
