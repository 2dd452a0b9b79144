"""Which candidates of a job a further device measures: the same whatever their order, and within its limits."""

from __future__ import annotations

import numpy as np
import pytest

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.catalogue import space
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.search.interface import Context, Evaluated, Observation, ScoredCandidate, Snapshot
from edgefront.core.search.listed import EXTENSION, Extension
from edgefront.core.search.pareto.baseline import reference
from edgefront.core.search.pareto.frontier import hypervolume
from edgefront.core.search.problem import Goal, Problem

PROTOCOL = MeasurementProtocol()
SPACE = space("lts-gpt2").narrow({"n_layer": {"max": 4}, "d_model": {"max": 256}, "d_inner": {"max": 1024}})


def figures(architecture: Architecture) -> tuple[float, int]:
    counted = protocol_costs(architecture, PROTOCOL)
    return 1.0 + counted.flops / 1e8, counted.weight_bytes + (1 << 20)


def points(some: list[ScoredCandidate]) -> np.ndarray:
    return np.array([(offer.proxy, *figures(offer.architecture)) for offer in some])


@pytest.fixture(scope="module")
def offers() -> list[ScoredCandidate]:
    rng, by_digest = np.random.default_rng(3), {}
    while len(by_digest) < 60:
        genome = SPACE.sample(rng)
        architecture = SPACE.architecture(genome)
        proxy = float(protocol_costs(architecture, PROTOCOL).decoder_parameters)
        by_digest[architecture.digest] = ScoredCandidate(genome, architecture, proxy)
    return list(by_digest.values())


def snapshot(measured: list[ScoredCandidate], limit_ms: float = np.inf) -> Snapshot:
    baselines = tuple(Observation(baseline, *figures(baseline), 3) for baseline in SPACE.baselines([2, 3, 4]))
    results = []
    for index, offer in enumerate(measured):
        latency, memory = figures(offer.architecture)
        state = "measured" if latency <= limit_ms else "out_of_bounds"
        digest = offer.architecture.digest
        results.append(Evaluated(f"c{index}", offer.genome, digest, state, offer.proxy, latency, memory, 0))
    return Snapshot(tuple(results), baselines)


def chosen(extension: Extension, generation: int, snapshot: Snapshot, offers: list[ScoredCandidate]) -> list[str]:
    return [
        proposal.architecture.digest
        for proposal in extension.answer(Context(0, generation, snapshot, offers)).proposals
    ]


def test_spread_out_ones_first_and_then_what_is_predicted(offers: list[ScoredCandidate]) -> None:
    extension = Extension(lambda _: True, Problem(protocol=PROTOCOL))
    first = chosen(extension, 0, snapshot([]), offers)
    assert len(first) == len(set(first)) == EXTENSION.initial
    assert chosen(extension, 0, snapshot([]), offers[::-1]) == first
    by_digest = {offer.architecture.digest: offer for offer in offers}
    measured = [by_digest[digest] for digest in first]
    second = extension.answer(Context(0, 1, snapshot(measured), offers))
    assert 0 < len(second.proposals) <= EXTENSION.batch
    assert chosen(extension, 1, snapshot(measured[::-1]), offers[::-1]) == [
        proposal.architecture.digest for proposal in second.proposals
    ]
    for proposal in second.proposals:
        assert proposal.architecture.digest not in first
        assert proposal.predicted is not None
        assert proposal.predicted.latency_low_ms < proposal.predicted.latency_ms < proposal.predicted.latency_high_ms
    every = extension.answer(Context(0, 2, snapshot(offers), offers))
    assert (every.proposals, every.note) == ((), "Every permitted candidate of the job has been measured.")


def test_what_is_refused_is_not_offered(offers: list[ScoredCandidate]) -> None:
    refused = {offer.architecture.digest for offer in offers[:30]}
    extension = Extension(lambda architecture: architecture.digest not in refused, Problem(protocol=PROTOCOL))
    assert not set(chosen(extension, 0, snapshot([]), offers)) & refused


@pytest.mark.parametrize("proxy", ["decoder_parameters", "published_score"])
@pytest.mark.parametrize("goal", ["frontier", "best_within_limits"])
def test_it_ends_by_itself_and_says_why(offers: list[ScoredCandidate], goal: Goal, proxy: str) -> None:
    """The offers have their proxy, whether or not it can be predicted from a shape."""
    limit = float(np.quantile([figures(offer.architecture)[0] for offer in offers], 0.7))
    extension = Extension(lambda _: True, Problem(goal=goal, latency_ms=limit, protocol=PROTOCOL, proxy=proxy))
    by_digest = {offer.architecture.digest: offer for offer in offers}
    measured: list[ScoredCandidate] = []
    assert extension.generations is not None
    for generation in range(extension.generations):
        answer = extension.answer(Context(0, generation, snapshot(measured, limit), offers))
        measured += [by_digest[proposal.architecture.digest] for proposal in answer.proposals]
        if not answer.proposals:
            break
    assert EXTENSION.initial < len(measured) < len(offers)
    assert answer.note.startswith("The job's other candidates are predicted to gain ")
    assert answer.note.endswith(" % within the limits, less than 1 %.")
    assert answer.gain is not None
    assert answer.gain < EXTENSION.least_gain
    within = [offer for offer in offers if figures(offer.architecture)[0] <= limit]
    measured_within = [offer for offer in measured if offer in within]
    if goal == "best_within_limits":
        assert max(offer.proxy for offer in measured_within) == max(offer.proxy for offer in within)
    else:
        corner = reference(points(within))
        assert hypervolume(points(measured_within), corner) > 0.95 * hypervolume(points(within), corner)
