"""A target's search plan from the job's request: the space, the algorithm, and the limits on proposals."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.cost.costs import Costs
from edgefront.core.cost.shapes import Shapes
from edgefront.core.errors import within
from edgefront.core.measurement.passes import protocol_costs, runtime_fault
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.prediction.memory import weight_bytes
from edgefront.core.proxies.quality_law import covers, law_about
from edgefront.core.proxies.settings import ProxySettings
from edgefront.core.quality.law import QualityLaw
from edgefront.core.search.extension import Extension
from edgefront.core.search.interface import Algorithm, Snapshot
from edgefront.core.search.problem import Problem
from edgefront.core.search.proposals import DRAWS, WALKABLE
from edgefront.core.search.registry import make
from edgefront.core.services.quality.expected import perplexities
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.catalogue import space as catalogued
from edgefront.core.spaces.neighbourhood import space_around
from edgefront.core.spaces.space import SearchSpace
from edgefront.core.store.sql import Document
from edgefront.core.units import MB
from edgefront.core.wire.jobs import JobRequest, Limits, SpaceRequest


@dataclass(frozen=True)
class SearchPlan:
    """One target's search: a pure function of request, protocol and limits."""

    request: JobRequest
    protocol: MeasurementProtocol
    limits: Limits
    space: SearchSpace
    algorithm: Algorithm
    problem: Problem
    law: QualityLaw | None
    """By which the job ranks, or that says what perplexity to expect; None where none covers its space."""

    def baselines(self) -> tuple[Architecture, ...]:
        """The stock model at the depths asked for, or the model that the job starts from; `InvalidInput` if one does
        not fit the protocol.
        """
        return self.space.baselines(self.request.baseline_layers)

    def costs(self, architecture: Architecture) -> Costs:
        return protocol_costs(architecture, self.protocol)

    def perplexities(self, architectures: Sequence[Architecture]) -> list[Document]:
        """What the job's quality law expects of each: fields of `core.wire.jobs.PredictedView`; empty without one."""
        return perplexities(self.law, architectures)

    def permitted(self) -> bool:
        """Whether the search can find any architecture within the limits."""
        return bool(self.examples(1))

    def examples(self, count: int) -> list[Architecture]:
        """So many permitted architectures, drawn by the job's seed; fewer where hardly any are permitted."""
        one = make("random", {"population": count}, self.space, _acceptance(self.request, self.protocol, self.limits))
        return [proposal.architecture for proposal in one.ask(self.request.seed, 0, Snapshot())]

    def exhausted(self) -> str:
        """The reason why nothing is left to propose, as text."""
        if self.space.size() <= WALKABLE:
            return "Every permitted architecture has been proposed."
        return f"No other permitted architecture was found in {DRAWS:,} draws."

    def has_generation(self, number: int) -> bool:
        generations = self.algorithm.generations
        return generations is None or number < generations


def plan_for(
    request: JobRequest,
    protocol: MeasurementProtocol,
    limits: Limits,
    refined: QualityLaw | None = None,
    *,
    added: bool = False,
) -> SearchPlan:
    """The plan of a target; of one that was added later, which chooses among the job's candidates.

    `refined` is the law that the request names, if trainings have refined it (`quality.laws`).

    Raises `SpaceError` or `InvalidInput` with the field's path within the request.
    """
    space = space_of(request.space)
    accept = _acceptance(request, protocol, limits)
    law = refined or quality_law_of(request, space)
    problem = _problem(request, protocol, limits, law)
    if added:
        return SearchPlan(request, protocol, limits, space, Extension(accept, problem), problem, law)
    with within("algorithm"):
        algorithm = make(request.algorithm.name, request.algorithm.settings, space, accept, problem)
    return SearchPlan(request, protocol, limits, space, algorithm, problem, law)


def quality_law_of(request: JobRequest, space: SearchSpace) -> QualityLaw | None:
    """The law that comes along and that the request names, or its space's; None where none covers the space."""
    if not covers(space.baselines([1])[0]):
        return None
    return law_about(space, ProxySettings.parse(request.proxy_settings).law)


def _problem(
    request: JobRequest, protocol: MeasurementProtocol, limits: Limits, quality_law: QualityLaw | None
) -> Problem:
    """What the search is to find, for the algorithms that can use it."""
    law = quality_law if request.proxy == "quality_law" else None

    def permitted(shapes: Shapes) -> NDArray[np.bool_]:
        weights = weight_bytes(shapes, protocol)
        found: NDArray[np.bool_] = _permitted(
            request, limits, shapes.decoder_parameters, shapes.total_parameters, weights
        )
        return found

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
        scores=None if law is None else (lambda shapes: -law.predict(shapes).log_perplexity),
        permitted=permitted,
    )


def space_of(request: SpaceRequest) -> SearchSpace:
    """The narrowed space of a request; errors name `space.name`, `space.model` or `space.narrow.<gene>`."""
    with within("space"):
        base = catalogued(request.name) if request.model is None else space_around(request.model, request.name)
    with within("space", "narrow"):
        return base.narrow(request.narrow) if request.narrow else base


def baselines_at_most(request: JobRequest) -> int:
    """How many depths of the stock model each target measures at most."""
    return planned(request)[0]


def planned(request: JobRequest) -> tuple[int, int]:
    """How many baselines each target has at most, and how many candidates its search will have proposed at its end.

    A budget of time may end the search earlier.
    """
    baselines, candidates, _ = _planned(_canonical(request), request.budget.candidates)
    return baselines, candidates


def largest_generation(request: JobRequest) -> tuple[int, int]:
    """How many baselines each target has, and how many candidates its search proposes at once at most."""
    baselines, _, largest = _planned(_canonical(request), request.budget.candidates)
    return baselines, largest


def _canonical(request: JobRequest) -> str:
    included = {"space", "algorithm", "baseline_layers"}
    return json.dumps(request.model_dump(mode="json", include=included), sort_keys=True)


@lru_cache(maxsize=512)
def _planned(text: str, budget: int | None) -> tuple[int, int, int]:
    data = json.loads(text)
    space = space_of(SpaceRequest(**data["space"]))
    problem = Problem(candidates=budget)
    algorithm = make(data["algorithm"]["name"], data["algorithm"]["settings"], space, problem=problem)
    most = space.size() if budget is None else min(space.size(), budget)
    total, generation, largest = 0, 0, 0
    while total < most and (algorithm.generations is None or generation < algorithm.generations):
        size = algorithm.generation_size(generation)
        total, largest, generation = total + size, max(largest, size), generation + 1
    return len(space.baselines(data["baseline_layers"])), min(total, most), min(largest, most)


def _acceptance(request: JobRequest, protocol: MeasurementProtocol, limits: Limits) -> Callable[[Architecture], bool]:
    """Accepts architectures that the runtime can run, within the limits on parameters, whose weights alone fit the
    memory limit.
    """

    def accept(architecture: Architecture) -> bool:
        if runtime_fault(architecture, protocol) is not None:
            return False
        found = protocol_costs(architecture, protocol)
        return bool(_permitted(request, limits, found.decoder_parameters, found.total_parameters, found.weight_bytes))

    return accept


def _permitted(request: JobRequest, limits: Limits, decoder: Any, total: Any, weights: Any) -> Any:
    """Whether counts of parameters and bytes of weights are within the limits: of one architecture, or arrays of many.

    The peak includes all weights, so a model whose weights exceed the memory limit is out of bounds without a
    measurement.
    """
    bounds = request.parameters
    return (
        (decoder >= (bounds.min_decoder or 0))
        & (decoder <= (bounds.max_decoder or math.inf))
        & (total <= (bounds.max_total or math.inf))
        & (weights <= (math.inf if limits.memory_mb is None else limits.memory_mb * MB))
    )
