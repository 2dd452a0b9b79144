"""A target's search plan from the job's request: the space, the algorithm, and the limits on proposals."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from edgefront.core.cost.costs import Costs
from edgefront.core.errors import within
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.search.interface import Algorithm, Snapshot
from edgefront.core.search.proposals import DRAWS, WALKABLE
from edgefront.core.search.registry import make
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.catalogue import space as catalogued
from edgefront.core.spaces.space import SearchSpace
from edgefront.core.wire.jobs import JobRequest, Limits, SpaceRequest

MIB = 1 << 20


@dataclass(frozen=True)
class SearchPlan:
    """One target's search: a pure function of request, protocol and limits."""

    request: JobRequest
    protocol: MeasurementProtocol
    limits: Limits
    space: SearchSpace
    algorithm: Algorithm

    def baselines(self) -> tuple[Architecture, ...]:
        """The stock model at the depths asked for; `InvalidInput` if one does not fit the protocol."""
        return self.space.baselines(self.request.baseline_layers)

    def costs(self, architecture: Architecture) -> Costs:
        return protocol_costs(architecture, self.protocol)

    def permitted(self) -> bool:
        """Whether the search can find any architecture within the limits."""
        one = make("random", {"population": 1}, self.space, _acceptance(self.request, self.protocol, self.limits))
        return bool(one.ask(self.request.seed, 0, Snapshot()))

    def exhausted(self) -> str:
        """The reason why nothing is left to propose, as text."""
        if self.space.size() <= WALKABLE:
            return "Every permitted architecture has been proposed."
        return f"No other permitted architecture was found in {DRAWS:,} draws."

    def has_generation(self, number: int) -> bool:
        generations = self.algorithm.generations
        return generations is None or number < generations


def plan_for(request: JobRequest, protocol: MeasurementProtocol, limits: Limits) -> SearchPlan:
    """The plan of a target. Raises `SpaceError` or `InvalidInput` with the field's path within the request."""
    space = space_of(request.space)
    with within("algorithm"):
        accept = _acceptance(request, protocol, limits)
        algorithm = make(request.algorithm.name, request.algorithm.settings, space, accept)
    return SearchPlan(request, protocol, limits, space, algorithm)


def space_of(request: SpaceRequest) -> SearchSpace:
    """The narrowed space of a request; errors name `space.name` or `space.narrow.<gene>`."""
    with within("space"):
        base = catalogued(request.name)
    with within("space", "narrow"):
        return base.narrow(request.narrow) if request.narrow else base


def planned(request: JobRequest) -> tuple[int, int]:
    """How many baselines each target has, and how many candidates its search will have proposed at its end.

    A budget of time may end the search earlier.
    """
    included = {"space", "algorithm", "baseline_layers"}
    text = json.dumps(request.model_dump(mode="json", include=included), sort_keys=True)
    return _planned(text, request.budget.candidates)


@lru_cache(maxsize=512)
def _planned(text: str, budget: int | None) -> tuple[int, int]:
    data = json.loads(text)
    space = space_of(SpaceRequest(**data["space"]))
    algorithm = make(data["algorithm"]["name"], data["algorithm"]["settings"], space)
    most = space.size() if budget is None else min(space.size(), budget)
    total, generation = 0, 0
    while total < most and (algorithm.generations is None or generation < algorithm.generations):
        total += algorithm.generation_size(generation)
        generation += 1
    return len(space.baselines(data["baseline_layers"])), min(total, most)


def _acceptance(request: JobRequest, protocol: MeasurementProtocol, limits: Limits) -> Callable[[Architecture], bool]:
    """Accepts architectures within the limits on parameters whose weights alone fit the memory limit."""
    bounds = request.parameters
    most_bytes = None if limits.memory_mb is None else limits.memory_mb * MIB

    def accept(architecture: Architecture) -> bool:
        found = protocol_costs(architecture, protocol)
        if bounds.min_decoder is not None and found.decoder_parameters < bounds.min_decoder:
            return False
        if bounds.max_decoder is not None and found.decoder_parameters > bounds.max_decoder:
            return False
        if bounds.max_total is not None and found.total_parameters > bounds.max_total:
            return False
        # The peak includes all weights, so a model whose weights exceed the limit is out of bounds without a
        # measurement.
        return most_bytes is None or found.weight_bytes <= most_bytes

    return accept
