"""A device that a search by prediction has to learn: additive costs, off by a little for each architecture and launch.

Latency is that of `cost_model`, 2 % off for each architecture, always alike, as real devices are off a sum of costs.
Peak memory is exact weights, activations and what a runtime needs. A jumping device is slow by a factor for half of
the architectures, as a library is that changes its kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cost_model
import numpy as np

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.catalogue import LTS_GPT2
from edgefront.core.architectures.cost.costs import costs
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.space import SearchSpace
from edgefront.core.quality.shipped import law_named
from edgefront.core.search.interface import Answer, Context, Evaluated, Observation, Probabilities, Proposal, Snapshot
from edgefront.core.search.problem import Problem
from edgefront.core.search.registry import make

SPACE = LTS_GPT2.narrow({"n_layer": {"max": 8}, "d_model": {"max": 768}, "d_embed": ["d_model", 128, 256]})
QUICK: dict[str, Any] = {"population": 300, "steps": 8}
"""Few predictions, so that tests are fast."""


def perplexity(shapes: Shapes) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The shipped law's prediction, its sign flipped."""
    return -np.exp(law_named("lts-gpt2-wikitext103").expected(shapes))


def deviate(architecture: Architecture, salt: int) -> float:
    """A standard normal number, always the same for this architecture."""
    return float(np.random.default_rng([int(architecture.digest[:12], 16), salt]).standard_normal())


@dataclass(frozen=True)
class Device:
    """Measures, within limits or not."""

    problem: Problem
    jump: float = 1.0
    """Factor by which the slow half is slower."""
    refused_bytes: float = math.inf
    """What weighs more cannot be run."""
    space: SearchSpace = field(default=SPACE)

    def latency_ms(self, architecture: Architecture) -> float:
        slow = self.jump if int(architecture.digest[:8], 16) % 2 else 1.0
        return cost_model.latency_ms(architecture) * slow * math.exp(0.02 * deviate(architecture, 0))

    def memory_bytes(self, architecture: Architecture) -> int:
        floats = 192 * 4 * architecture.d_model + 8e6 / 4
        return int(costs(architecture).weight_bytes + 4 * floats * math.exp(0.01 * deviate(architecture, 1)))

    def baselines(self) -> tuple[Observation, ...]:
        return tuple(
            Observation(baseline, self.latency_ms(baseline), self.memory_bytes(baseline))
            for baseline in self.space.baselines((1, 4, 8))
        )

    def measured(self, proposal: Proposal, number: int, generation: int) -> Evaluated:
        built = proposal.architecture
        latency, memory = self.latency_ms(built), self.memory_bytes(built)
        refused = memory > self.refused_bytes
        inside = self.problem.violation(np.array([latency]), np.array([memory]))[0] == 0
        return Evaluated(
            id=f"cnd_{number:05d}",
            genome=proposal.genome,
            digest=built.digest,
            state="infeasible" if refused else "measured" if inside else "out_of_bounds",
            proxy=float(self.problem.score_function()(Shapes.of([built]))[0]),
            latency_ms=None if refused else latency,
            memory_bytes=None if refused else memory,
            generation=generation,
            parents=proposal.parents,
            operator=proposal.operator,
            predicted=proposal.predicted,
        )


@dataclass(frozen=True)
class Run:
    """A search to its end, or to its budget."""

    snapshot: Snapshot
    answers: tuple[Answer, ...] = ()

    @property
    def best(self) -> float:
        return max((result.proxy for result in self.snapshot.in_bounds()), default=-math.inf)


def search(
    device: Device,
    name: str = "surrogate",
    settings: Mapping[str, Any] = QUICK,
    *,
    seed: int = 0,
    candidates: int = 60,
    others: tuple[Observation, ...] = (),
    accept: Callable[[Architecture], bool] | None = None,
    supernet: Sequence[Probabilities] = (),
) -> Run:
    """Asks and measures until the algorithm ends or so many candidates are known."""
    algorithm = make(name, settings, device.space, accept, device.problem)
    snapshot, answers = Snapshot((), device.baselines(), others), list[Answer]()
    for generation in range(50):
        answers.append(algorithm.answer(Context(seed, generation, snapshot, supernet=supernet)))
        start = len(snapshot.results)
        proposals = answers[-1].proposals[: candidates - start]
        if not proposals:
            break
        made = [device.measured(proposal, start + index, generation) for index, proposal in enumerate(proposals)]
        snapshot = Snapshot((*snapshot.results, *made), snapshot.baselines, others)
    return Run(snapshot, tuple(answers))
