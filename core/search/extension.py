"""The candidates of a job on a device that was added later: which of them are worth measuring there.

No evolution: what may be proposed is a fixed list. First about ten spread-out candidates, unless the device is known;
then, generation by generation, those that predictions put on the frontier, as long as they add to its hypervolume. For
the best model within limits: those with the highest expected improvement, its neighbours beyond a limit among them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from edgefront.core.cost.shapes import Shapes
from edgefront.core.errors import InvalidInput
from edgefront.core.measurement.generation import with_latency
from edgefront.core.pareto.baseline import reference
from edgefront.core.pareto.frontier import hypervolume
from edgefront.core.prediction.features import descriptors, features
from edgefront.core.prediction.latency import LatencyPredictor, Prediction
from edgefront.core.prediction.memory import MemoryPredictor
from edgefront.core.prediction.spread import farthest
from edgefront.core.search.interface import (
    PREDICTED,
    SPREAD,
    Algorithm,
    Answer,
    Context,
    Need,
    Offer,
    Predicted,
    Proposal,
    Snapshot,
    objectives,
)
from edgefront.core.search.problem import Floats, Problem
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.statistics import Z_95

INITIAL = 10
BATCH = 8
ITERATIONS = 12
"""Generations at most, the first included."""
MIN_GAIN = 0.01
"""Of the hypervolume, or of the range of quality: a generation that is predicted to add less is not measured."""


@dataclass(frozen=True)
class _Forecast:
    """Of n architectures; (n,) each, spreads as standard deviations of the logarithm."""

    latency: Floats
    latency_low: Floats
    latency_high: Floats
    memory: Floats
    memory_low: Floats
    memory_high: Floats
    times: tuple[Prediction, ...] = ()
    """Of the other times that the problem limits."""

    @property
    def spreads(self) -> tuple[Floats, Floats]:
        return (
            np.log(self.latency_high / self.latency_low) / (2 * Z_95),
            np.log(self.memory_high / self.memory_low) / (2 * Z_95),
        )

    def predicted(self, row: int) -> Predicted:
        return Predicted(
            latency_ms=float(self.latency[row]),
            latency_low_ms=float(self.latency_low[row]),
            latency_high_ms=float(self.latency_high[row]),
            memory_bytes=float(self.memory[row]),
            memory_low_bytes=float(self.memory_low[row]),
            memory_high_bytes=float(self.memory_high[row]),
        )


class Extension(Algorithm):
    """Chooses among a job's candidates for one more device."""

    def __init__(self, accept: Callable[[Architecture], bool], problem: Problem) -> None:
        self._accept, self._problem = accept, problem

    @property
    def generations(self) -> int | None:
        return ITERATIONS

    def generation_size(self, generation: int) -> int:
        return INITIAL if generation == 0 else BATCH

    def needs(self, generation: int) -> frozenset[Need]:
        return frozenset({Need.DEVICE_DATA, Need.OFFERS})

    def answer(self, context: Context) -> Answer:
        """What to measure of the offers, or why nothing more: whatever the order of offers, and the seed."""
        snapshot, generation, offers = context.snapshot, context.generation, context.offers
        known = {one.digest for one in snapshot.results}
        every = {one.architecture.digest: one for one in sorted(offers, key=lambda one: one.architecture.digest)}
        fresh = [one for digest, one in every.items() if digest not in known and self._accept(one.architecture)]
        if not fresh:
            return Answer((), 0.0, note="Every permitted candidate of the job has been measured.")
        learnt = sum(one.latency_ms is not None for one in snapshot.results) + len(snapshot.others)
        wanted = INITIAL - learnt
        shapes = Shapes.of([one.architecture for one in fresh])
        if wanted > (0 if generation == 0 else INITIAL // 2):
            counted = features(shapes, self._problem.protocol)
            spread = farthest(descriptors(shapes, counted), min(wanted, len(fresh)))
            return Answer(tuple(_proposal(fresh[row], SPREAD) for row in spread))
        try:
            forecast = self._forecast(shapes, snapshot, every)
        except InvalidInput as error:
            return Answer((), note=f"Nothing can be predicted from what was measured: {error.detail}.")
        quality = np.array([one.proxy for one in fresh])
        best = self._problem.goal == "best_within_limits"
        choose = self._best if best else self._frontier
        rows, gain = choose(quality, forecast, snapshot, every)
        if not rows:
            return Answer((), gain, note=self._why(gain))
        return Answer(tuple(_proposal(fresh[row], PREDICTED, forecast.predicted(row)) for row in rows), gain)

    def _forecast(self, shapes: Shapes, snapshot: Snapshot, every: dict[str, Offer]) -> _Forecast:
        results = [
            one
            for one in sorted(snapshot.results, key=lambda one: one.digest)
            if one.latency_ms is not None and one.memory_bytes is not None and one.digest in every
        ]
        rows: list[tuple[Architecture, Any, Any, int]] = [
            (every[one.digest].architecture, one.latency_ms, one.memory_bytes, one.launches) for one in results
        ]
        observed = (*snapshot.baselines, *snapshot.others)
        rows += [(one.architecture, one.latency_ms, one.memory_bytes, one.launches) for one in observed]
        known, protocol = Shapes.of([row[0] for row in rows]), self._problem.protocol
        latency = LatencyPredictor.fit(
            known,
            protocol,
            [float(row[1]) for row in rows],
            launches=[max(1, row[3]) for row in rows],
            noise=snapshot.launch_noise,
            prior=snapshot.priors,
        ).predict(shapes)
        memory = MemoryPredictor.fit(known, protocol, [float(row[2]) for row in rows]).predict(shapes)
        measured = self._problem.times_of([*results, *observed])
        times = [
            LatencyPredictor.fit(
                known, with_latency(protocol, name), measured[:, column], launches=[max(1, row[3]) for row in rows]
            ).predict(shapes)
            for column, name in enumerate(self._problem.times_ms)
        ]
        return _Forecast(latency.ms, latency.low, latency.high, *memory, tuple(times))

    def _frontier(
        self, quality: Floats, forecast: _Forecast, snapshot: Snapshot, _every: dict[str, Offer]
    ) -> tuple[list[int], float]:
        """The predicted frontier within the limits, what adds most to the hypervolume first."""
        points = np.column_stack([quality, forecast.latency, forecast.memory])
        times = np.column_stack([np.zeros((len(points), 0)), *(one.ms for one in forecast.times)])
        left = np.flatnonzero(self._problem.violation(points[:, 1], points[:, 2], times) == 0).tolist()
        reached = objectives(snapshot.in_bounds())
        corner = reference(np.concatenate([points, reached]))
        before = volume = hypervolume(reached, corner)

        def gain_of(row: int) -> float:
            return round(hypervolume(np.vstack([reached, points[row]]), corner) - volume, 12)

        gains = {row: gain_of(row) for row in left}
        chosen: list[int] = []
        while gains and len(chosen) < BATCH:
            row = max(gains, key=lambda one: (gains[one], -one))
            if gains[row] <= 0:
                break
            now = gain_of(row)  # gains only shrink as others join: what is still the largest is the largest
            if now < max((gains[one] for one in gains if one != row), default=0.0):
                gains[row] = now
                continue
            chosen.append(row)
            del gains[row]
            volume, reached = volume + now, np.vstack([reached, points[row]])
        gain = (volume - before) / max(volume, 1e-12)
        return (chosen if gain >= MIN_GAIN else []), gain

    def _best(
        self, quality: Floats, forecast: _Forecast, snapshot: Snapshot, every: dict[str, Offer]
    ) -> tuple[list[int], float]:
        """Those with the highest expected improvement over the best that was measured within the limits."""
        low = min(one.proxy for one in every.values())
        span = max(one.proxy for one in every.values()) - low or 1.0
        reached = max((one.proxy for one in snapshot.in_bounds()), default=low - MIN_GAIN * span)
        holds = np.ones(len(quality))
        for mean, spread, limit in zip(
            (forecast.latency, forecast.memory, *(one.ms for one in forecast.times)),
            (*forecast.spreads, *(one.deviation for one in forecast.times)),
            (self._problem.latency_ms, self._problem.memory_bytes, *self._problem.times_ms.values()),
            strict=True,
        ):
            if limit is not None:
                holds = holds * ndtr(np.log(limit / mean) / np.maximum(spread, 1e-6))
        gains: NDArray[np.float64] = np.round(np.maximum(quality - reached, 0.0) * holds / span, 9)
        order = np.argsort(-gains, kind="stable")[:BATCH]
        return [int(row) for row in order if gains[row] > MIN_GAIN / 2], float(gains.max(initial=0.0))

    def _why(self, gain: float) -> str:
        return (
            f"The job's other candidates are predicted to gain {100 * gain:.2g} % within the limits, less than "
            f"{100 * MIN_GAIN:g} %."
        )


def _proposal(offer: Offer, operator: str, predicted: Predicted | None = None) -> Proposal:
    return Proposal(offer.genome, offer.architecture, operator, (), predicted)
