"""Search by prediction: Bayesian optimisation on one device, in batches.

1. Propose space-filling candidates until the device has measured about ten models. Models of other jobs count, and the
   baselines count if the goal is the best model within limits.
2. Fit the predictors to all measurements of the device (`forecast`).
3. Propose the batch with the highest expected gain within the limits (`expected_gain`). A share of the batch is
   audits, drawn at random among the candidates predicted to be within the limits, to check the predictions.
4. Repeat from 2. Stop when the expected gain is below `least_gain` and enough predictions were checked.

Subclasses supply the candidates, from a space (`surrogate`) or from a fixed pool (`listed`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.states import CandidateState, Goal
from edgefront.core.measurement.prediction.features import FEATURES, descriptors, farthest, features
from edgefront.core.search import expected_gain
from edgefront.core.search.expected_gain import Batch
from edgefront.core.search.forecast import Forecast, Forecaster, Observations, Pool, measured, rounded
from edgefront.core.search.interface import (
    AUDIT,
    PREDICTED,
    SPREAD,
    Algorithm,
    Answer,
    Context,
    Evaluated,
    Need,
    Observation,
    Predicted,
    Proposal,
    Snapshot,
    generator,
    objectives,
)
from edgefront.core.search.pareto.baseline import reference
from edgefront.core.search.population_shapes import identity
from edgefront.core.search.problem import Floats, Problem

POOL_SIZE = 4096
"""Number of uniform samples to select the initial candidates and the audits from."""
LATENCY_BAND = (0.15, 1.25)
"""Range of the predicted latencies of initial candidates, as shares of the limit. If several times are limited, the
nearest limit counts."""
_KINDS = [
    column for column, feature in enumerate(FEATURES) if feature.belongs_to == "blocks" and feature.unit == "calls"
]
"""Columns of `features` that count blocks by their kind."""
RISK_LEVEL = 0.0
"""Number of standard deviations above the median at which a candidate must be within the limits; 0 is the median."""

TIE = 0.01
"""Gain in quality, relative, that stands for more bits or more speed at the incumbent's quality."""
MAX_PREDICTED = 1_000_000
"""Maximum number of predictions in one generation; a worker takes about a minute."""


class SurrogateSettings(BaseModel):
    """Settings of the search by prediction."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    initial: Annotated[
        int, Field(ge=3, le=1000, description="Models to learn from first: measured ones, then spread-out candidates.")
    ] = 10
    batch: Annotated[int, Field(ge=1, le=1000, description="Candidates of each later generation, audits included.")] = 5
    audit_share: Annotated[
        float, Field(ge=0, le=1, description="Share of the later candidates drawn at random, to check predictions.")
    ] = 0.1
    least_gain: Annotated[
        float,
        Field(ge=0, le=1, description="Ends when the expected relative gain of a generation is below this share."),
    ] = 0.01
    iterations: Annotated[int, Field(ge=1, le=100_000, description="Generations at most, the first included.")] = 100
    population: Annotated[int, Field(ge=16, le=100_000, description="Models predicted per step of evolution.")] = 4000
    steps: Annotated[
        int, Field(ge=1, le=1000, description="Steps of the evolution over predictions.", validate_default=True)
    ] = 30

    @field_validator("steps")
    @classmethod
    def _quick_enough(cls, steps: int, info: ValidationInfo) -> int:
        predicted = steps * info.data.get("population", 0)
        if predicted > MAX_PREDICTED:
            raise ValueError(f"steps times population must be at most {MAX_PREDICTED:,} predictions, not {predicted:,}")
        return steps


class Candidates(ABC):
    """The possible candidates of one generation, and the proposals selected so far.

    A member identifies one candidate: a member is a coded genome or an index into a list.
    """

    @abstractmethod
    def shapes(self, results: Sequence[Evaluated]) -> Shapes:
        """Shapes of the architectures of these results."""

    @abstractmethod
    def drawn(self) -> tuple[NDArray[Any], Shapes]:
        """Pair: members to select the initial candidates from, and the shapes of these members."""

    @abstractmethod
    def pool(self, forecaster: Forecaster) -> Pool:
        """Candidates, with forecasts, to select the batch from."""

    @abstractmethod
    def random_pool(self, forecaster: Forecaster) -> Pool:
        """Candidates, with forecasts, to draw the audits from."""

    @abstractmethod
    def propose(self, member: NDArray[Any], operator: str, predicted: Predicted | None = None) -> None:
        """Adds a member to the proposals, unless the candidate was already proposed or is not permitted."""

    @abstractmethod
    def fill(self, count: int) -> None:
        """Adds random candidates until there are `count` proposals or all candidates are proposed."""

    @property
    @abstractmethod
    def made(self) -> tuple[Proposal, ...]:
        """The proposals of this generation so far, in order."""


@dataclass(frozen=True)
class _Round:
    """The inputs of one predicted generation."""

    candidates: Candidates
    snapshot: Snapshot
    observations: Observations
    rng: np.random.Generator


class PredictiveSearch(Algorithm):
    """Base class of searches by prediction for one problem."""

    min_validated_batches = 2
    """Minimum number of predicted batches that must be measured before the search ends."""
    baselines_count = True
    """Whether candidates must beat the baselines."""
    exhausted = "Every permitted architecture that was found has been proposed."
    """Note of the answer when no candidates are left."""

    def __init__(self, settings: SurrogateSettings, problem: Problem) -> None:
        self._settings, self._problem = settings, problem

    @abstractmethod
    def candidates(self, context: Context, rng: np.random.Generator) -> Candidates:
        """The candidates that this generation may propose."""

    @abstractmethod
    def end_note(self, gain: float, pool: Pool) -> str:
        """Note of the final answer, if the search ends because the best batch has only the expected gain `gain`."""

    @property
    def generations(self) -> int | None:
        return self._settings.iterations

    def generation_size(self, generation: int) -> int:
        return self._settings.initial if generation == 0 else self._settings.batch

    def needs(self, generation: int) -> frozenset[Need]:
        return frozenset({Need.DEVICE_DATA})

    def answer(self, context: Context) -> Answer:
        """Proposes initial, in later generations predicted candidates; none if the gain is small. Takes seconds."""
        generation, snapshot = context.generation, context.snapshot
        rng = generator(context.seed, generation, "surrogate")
        candidates = self.candidates(context, rng)
        observations = Observations.of(candidates.shapes, snapshot, self._problem)
        missing = self._settings.initial - len(measured(snapshot))
        if missing > 0:
            missing -= self._count_informative(candidates, [*snapshot.others, *self._baselines_to_beat(snapshot)])
        # Propose a second initial sample if half of the first sample could not be measured.
        if missing > (0 if generation == 0 else self._settings.initial // 2):
            self._spread(candidates, missing, observations, snapshot)
            return Answer(candidates.made)
        try:
            forecaster = Forecaster(self._problem, observations, snapshot)
        except InvalidInput as error:
            return Answer((), note=f"Nothing can be predicted from the measurements: {error.detail}.")
        return self._predicted(_Round(candidates, snapshot, observations, rng), forecaster)

    # Learning ----------------------------------------------------------------------------------------------------

    def _count_informative(self, candidates: Candidates, observed: Sequence[Observation]) -> int:
        """Number of observed models with all kinds of blocks that most candidates have, to learn the kinds' costs."""
        if not observed:
            return 0
        shapes = candidates.drawn()[1], Shapes.of([model.architecture for model in observed])
        own, known = (features(some, self._problem.protocol)[:, _KINDS] > 0 for some in shapes)
        usual = own.mean(axis=0) > 0.5 if len(own) else np.zeros(len(_KINDS), dtype=np.bool_)
        return int(known[:, usual].all(axis=1).sum())

    def _spread(self, candidates: Candidates, count: int, observations: Observations, snapshot: Snapshot) -> None:
        """Proposes a space-filling sample of `count` candidates predicted to be near the limits."""
        members, shapes = candidates.drawn()
        if not len(members):
            candidates.fill(count)
            return
        try:
            forecast = Forecaster(self._problem, observations, snapshot).costs(shapes)
        except InvalidInput:
            forecast = None
        if forecast is not None:
            near = self._near_the_limits(forecast)
            members, shapes = members[near], shapes.take(near)
        counted = features(shapes, self._problem.protocol)
        most = len(members) if len(members) < POOL_SIZE else 4 * count
        for row in farthest(descriptors(shapes, counted), most):
            if len(candidates.made) >= count:
                return
            candidates.propose(members[row], SPREAD)
        candidates.fill(count)

    def _near_the_limits(self, forecast: Forecast) -> NDArray[np.intp]:
        """Rows of the forecasts within `LATENCY_BAND` of the limits, or the nearest rows if there are few."""
        problem = self._problem
        limited = [*zip(problem.times_ms.values(), forecast.times_ms.T, strict=True)]
        if problem.latency_ms is not None:
            limited.append((problem.latency_ms, forecast.latency_ms))
        below = [np.maximum(0.0, np.log(limit * LATENCY_BAND[0] / times)) for limit, times in limited]
        nearest = np.min(below, axis=0) if below else np.zeros(len(forecast))
        away = nearest + problem.violation(
            forecast.latency_ms / LATENCY_BAND[1],
            forecast.memory_bytes / LATENCY_BAND[1],
            forecast.times_ms / LATENCY_BAND[1],
        )
        order = np.lexsort((np.arange(len(forecast)), np.round(away, 9)))
        return np.sort(order[: max(int((away == 0).sum()), min(len(forecast), POOL_SIZE // 16))])

    # Predicting --------------------------------------------------------------------------------------------------

    def _predicted(self, this: _Round, forecaster: Forecaster) -> Answer:
        settings, candidates, snapshot = self._settings, this.candidates, this.snapshot
        pool = self._fresh(candidates.pool(forecaster), forecaster, this)
        if not len(pool):
            return Answer((), 0.0, forecaster.widening, self.exhausted)
        audits = self._missing_audits(snapshot)
        batch = self._best_batch(pool, forecaster, this)
        worth = batch.gain >= settings.least_gain and bool(batch.rows)
        checked = sum(result.operator in (PREDICTED, AUDIT) for result in measured(snapshot))
        if not worth and checked >= self.min_validated_batches * settings.batch:
            return Answer((), batch.gain, forecaster.widening, self.end_note(batch.gain, pool))
        for row in batch.rows[: settings.batch - audits]:
            candidates.propose(pool.members[row], PREDICTED, pool.forecast.predicted(row, forecaster.widening))
        if batch.rows and not candidates.made:
            return Answer((), batch.gain, forecaster.widening, "The models that predictions favour are not permitted.")
        # A batch that is not worth measuring is replaced by audits, so that the search ends on checked predictions.
        size = len(candidates.made) + audits if worth else settings.batch
        if size > len(candidates.made):
            random = self._fresh(candidates.random_pool(forecaster), forecaster, this)
            self._audit(candidates, random, forecaster, this.rng, size)
        note = "" if candidates.made else self.exhausted
        return Answer(candidates.made, batch.gain, forecaster.widening, note)

    def _fresh(self, pool: Pool, forecaster: Forecaster, this: _Round) -> Pool:
        """The pool without proposed architectures and without architectures as heavy as an infeasible candidate."""
        new = ~np.isin(pool.keys, identity(this.candidates.shapes(this.snapshot.results)))
        refused = [result for result in this.snapshot.results if result.state == CandidateState.INFEASIBLE]
        if refused:
            heavy = forecaster.costs(this.candidates.shapes(refused))
            for latency, memory in zip(heavy.latency_ms, heavy.memory_bytes, strict=True):
                new &= (pool.forecast.latency_ms < latency) | (pool.forecast.memory_bytes < memory)
        return pool.take(np.flatnonzero(new))

    def _best_batch(self, pool: Pool, forecaster: Forecaster, this: _Round) -> Batch:
        """Selects the batch with the highest expected gain from the pool."""
        snapshot, observations, incumbent = this.snapshot, this.observations, this.snapshot.incumbent
        problem, count = self._problem, self._settings.batch
        violation = problem.violation(observations.latency_ms, observations.memory_bytes, observations.times_ms)
        in_bounds, baselines = snapshot.in_bounds(), self._baselines_to_beat(snapshot)
        points = np.concatenate([objectives(in_bounds), self._points_of(baselines)])
        times = problem.times_of([*in_bounds, *baselines])
        within: Floats = points[problem.violation(points[:, 1], points[:, 2], times) == 0]
        corner = self._reference(snapshot, observations, pool)
        if problem.goal == Goal.BEST_WITHIN_LIMITS:
            shapes = [this.candidates.shapes(in_bounds), Shapes.of([baseline.architecture for baseline in baselines])]
            launches = [*(result.launches for result in in_bounds), *(baseline.launches for baseline in baselines)]
            batch = expected_gain.expected_improvement(
                pool,
                problem,
                forecaster.posterior(Shapes.concatenate(shapes), points, times, np.array(launches, dtype=np.int64)),
                corner["proxy"],
                forecaster.error_quantiles(expected_gain.SAMPLES),
                count,
                this.rng,
                -math.inf if incumbent is None else incumbent.quality - TIE * abs(incumbent.quality),
            )
        else:
            batch = expected_gain.expected_hypervolume_improvement(
                pool,
                problem,
                within,
                corner,
                forecaster.error_quantiles(expected_gain.HYPERVOLUME_SAMPLES),
                count,
                this.rng,
            )
        if len(within) or batch.rows or incumbent is not None:
            return batch
        return expected_gain.least_violation(pool, problem, float(violation.min()), count)

    def _baselines_to_beat(self, snapshot: Snapshot) -> Sequence[Observation]:
        """The baselines, if candidates must beat the baselines; otherwise empty."""
        return snapshot.baselines if self.baselines_count and self._problem.goal == Goal.BEST_WITHIN_LIMITS else ()

    def _points_of(self, observed: Sequence[Observation]) -> Floats:
        """(n, 3) quality, latency and memory of n observed models."""
        if not observed:
            return np.zeros((0, 3))
        scores = self._problem.score_function()(Shapes.of([model.architecture for model in observed]))
        return np.column_stack([rounded(scores), [(model.latency_ms, model.memory_bytes) for model in observed]])

    def _reference(self, snapshot: Snapshot, observations: Observations, pool: Pool) -> dict[str, float]:
        """The reference point of the hypervolume: computed from the baselines, or from all observations if there are no
        baselines. If the proxy has no score function, computed from the measured and predicted candidates.
        """
        if self._problem.can_score and snapshot.baselines:
            return reference(self._points_of(snapshot.baselines))
        if self._problem.can_score:
            scores = self._problem.score_function()(observations.shapes)
            return reference(np.column_stack([scores, observations.latency_ms, observations.memory_bytes]))
        return reference(np.concatenate([objectives(measured(snapshot)), pool.forecast.points()]))

    # Audits ------------------------------------------------------------------------------------------------------

    def _missing_audits(self, snapshot: Snapshot) -> int:
        """Number of audits to add, so that audits make up `audit_share` of all predicted candidates."""
        audits = sum(result.operator == AUDIT for result in snapshot.results)
        predicted = sum(result.operator in (PREDICTED, AUDIT) for result in snapshot.results)
        missing = math.ceil(self._settings.audit_share * (predicted + self._settings.batch) - 1e-9) - audits
        return max(0, min(missing, self._settings.batch))

    def _audit(
        self, candidates: Candidates, pool: Pool, forecaster: Forecaster, rng: np.random.Generator, size: int
    ) -> None:
        """Fills the proposals up to `size` with random candidates among the candidates of least predicted violation."""
        violation = np.round(pool.forecast.violation(self._problem, RISK_LEVEL), 9)
        for row in map(int, np.lexsort((rng.permutation(len(pool)), violation))):
            if len(candidates.made) >= size:
                return
            candidates.propose(pool.members[row], AUDIT, pool.forecast.predicted(row, forecaster.widening))
