"""Which candidates of a job a further device measures: the same whatever their order, and within its limits."""

from __future__ import annotations

import numpy as np
import pytest

from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.search.extension import BATCH, INITIAL, Extension
from edgefront.core.search.interface import Context, Evaluated, Observation, Offer, Snapshot
from edgefront.core.search.problem import Problem
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.catalogue import space

PROTOCOL = MeasurementProtocol()
SPACE = space("lts-gpt2").narrow({"n_layer": {"max": 4}, "d_model": {"max": 256}, "d_inner": {"max": 1024}})


def figures(architecture: Architecture) -> tuple[float, int]:
    found = protocol_costs(architecture, PROTOCOL)
    return 1.0 + found.flops / 1e8, found.weight_bytes + (1 << 20)


@pytest.fixture(scope="module")
def offers() -> list[Offer]:
    rng, found = np.random.default_rng(3), {}
    while len(found) < 60:
        genome = SPACE.sample(rng)
        architecture = SPACE.architecture(genome)
        proxy = float(protocol_costs(architecture, PROTOCOL).decoder_parameters)
        found[architecture.digest] = Offer(genome, architecture, proxy)
    return list(found.values())


def snapshot(measured: list[Offer], limit_ms: float = np.inf) -> Snapshot:
    baselines = tuple(Observation(one, *figures(one), 3) for one in SPACE.baselines([2, 3, 4]))
    results = []
    for index, one in enumerate(measured):
        latency, memory = figures(one.architecture)
        state = "measured" if latency <= limit_ms else "out_of_bounds"
        digest = one.architecture.digest
        results.append(Evaluated(f"c{index}", one.genome, digest, state, one.proxy, latency, memory, 0))
    return Snapshot(tuple(results), baselines)


def chosen(extension: Extension, generation: int, known: Snapshot, offers: list[Offer]) -> list[str]:
    return [one.architecture.digest for one in extension.answer(Context(0, generation, known, offers)).proposals]


def test_spread_out_ones_first_and_then_what_is_predicted(offers: list[Offer]) -> None:
    extension = Extension(lambda _: True, Problem(protocol=PROTOCOL))
    first = chosen(extension, 0, snapshot([]), offers)
    assert len(first) == len(set(first)) == INITIAL
    assert chosen(extension, 0, snapshot([]), offers[::-1]) == first
    by_digest = {one.architecture.digest: one for one in offers}
    known = [by_digest[digest] for digest in first]
    second = extension.answer(Context(0, 1, snapshot(known), offers))
    assert 0 < len(second.proposals) <= BATCH
    assert chosen(extension, 1, snapshot(known[::-1]), offers[::-1]) == [
        one.architecture.digest for one in second.proposals
    ]
    for one in second.proposals:
        assert one.architecture.digest not in first
        assert one.predicted is not None
        assert one.predicted.latency_low_ms < one.predicted.latency_ms < one.predicted.latency_high_ms
    every = extension.answer(Context(0, 2, snapshot(offers), offers))
    assert (every.proposals, every.note) == ((), "Every permitted candidate of the job has been measured.")


def test_the_best_within_limits_is_measured(offers: list[Offer]) -> None:
    limit = float(np.median([figures(one.architecture)[0] for one in offers]))
    problem = Problem(goal="best_within_limits", latency_ms=limit, protocol=PROTOCOL)
    extension = Extension(lambda _: True, problem)
    by_digest = {one.architecture.digest: one for one in offers}
    known: list[Offer] = []
    for generation in range(6):
        proposed = chosen(extension, generation, snapshot(known, limit), offers)
        known += [by_digest[digest] for digest in proposed]
        if not proposed:
            break
    best = max(one.proxy for one in offers if figures(one.architecture)[0] <= limit)
    assert max(one.proxy for one in known if figures(one.architecture)[0] <= limit) == best
    assert len(known) < len(offers) / 2


def test_what_is_refused_is_not_offered(offers: list[Offer]) -> None:
    refused = {one.architecture.digest for one in offers[:30]}
    extension = Extension(lambda one: one.digest not in refused, Problem(protocol=PROTOCOL))
    assert not set(chosen(extension, 0, snapshot([]), offers)) & refused
