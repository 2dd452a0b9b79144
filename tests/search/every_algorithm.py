"""A small search by each algorithm, in a space that the algorithm can search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from replayed_device import QUICK, Device, Run, search

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.catalogue import LTS_GPT2, PAR_32
from edgefront.core.architectures.published_space import published_space
from edgefront.core.architectures.space import SearchSpace
from edgefront.core.search.interface import Context, Probabilities, Snapshot
from edgefront.core.search.problem import Problem
from edgefront.core.search.registry import make

SMALL = LTS_GPT2.narrow({"n_layer": [2, 3, 4], "d_model": [128, 192, 256], "d_inner": {"max": 1024}})
POPULATIONS = ["lts", "random"]
"""The algorithms whose generations have a size, whatever was measured."""


@dataclass(frozen=True)
class Small:
    """Settings with which a search is small, and what it is about."""

    settings: dict[str, Any]
    space: SearchSpace = SMALL
    supernet: Sequence[Probabilities] = ()
    known: int = 30
    """Measured candidates after which the algorithm proposes more."""


SMALL_SEARCHES = {
    **dict.fromkeys(POPULATIONS, Small({"population": 20})),
    "surrogate": Small({**QUICK, "population": 64, "steps": 2, "least_gain": 0.0}),
    "listed": Small(
        {"initial": 10, "batch": 6, "least_gain": 0.0}, published_space("obsscaling_base:HellaSwag"), known=10
    ),
    "par-supernet": Small(
        {},
        PAR_32.narrow({"n_block": {"min": 2, "max": 8}, "d_model": 128, "n_head": 4, "d_inner": 512}),
        [[[0.5, 0.3, 0.2]] * 8],
    ),
}


def small_search(name: str, space: SearchSpace | None = None, candidates: int = 30, **more: Any) -> Run:
    small = SMALL_SEARCHES[name]
    device = Device(Problem(), space=space or small.space)
    return search(device, name, small.settings, candidates=candidates, supernet=small.supernet, **more)


def next_proposals(
    name: str, seed: int, snapshot: Snapshot, accept: Callable[[Architecture], bool] | None = None
) -> list[tuple[str, Any, str, tuple[str, ...]]]:
    """Digest, genome, operator and parents of what the algorithm proposes next."""
    small = SMALL_SEARCHES[name]
    algorithm = make(name, small.settings, small.space, accept)
    generation = min(4, (algorithm.generations or 5) - 1)
    answer = algorithm.answer(Context(seed, generation, snapshot, supernet=small.supernet))
    return [
        (proposal.architecture.digest, dict(proposal.genome), proposal.operator, proposal.parents)
        for proposal in answer.proposals
    ]
