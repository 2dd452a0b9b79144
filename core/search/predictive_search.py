"""Search by prediction: learn a device from a few launches, predict its candidates, measure those that matter.

- First spread-out candidates, until about ten models are known, of other jobs too: the predictors learn from them.
  Where the best model within limits is looked for, the baselines, which close in on the limits, are among the ten.
- Every later generation fits the predictors to all that is known of the device (`forecast`), and proposes the batch
  with the highest expected gain within the limits (`expected_gain`). A share of them are audits, drawn at random among
  those that should be within the limits, so that they check the predictions.
- It ends by itself when a batch can be expected to gain less than `least_gain`, once predictions have been checked.

Where the candidates come from is a subclass's affair: a whole space (`surrogate`), or a list (`extension`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.states import CandidateState, Goal
from edgefront.core.measurement.prediction.features import FEATURES, descriptors, farthest, features
from edgefront.core.search import expected_gain
from edgefront.core.search.expected_gain import Choice
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
"""Samples among which the spread-out candidates and the audits are chosen."""
LATENCY_BAND = (0.15, 1.25)
"""Shares of the latency limit between which spread-out candidates are predicted to lie, where there are predictions;
with limits of several times, of the one that is nearest."""
_KINDS = [
    column for column, feature in enumerate(FEATURES) if feature.belongs_to == "blocks" and feature.unit == "calls"
]
"""Columns of `features` that count blocks by their kind."""
RISK_LEVEL = 0.0
"""Standard deviations: a candidate should be within the limits if it is so at its mean."""


MAX_PREDICTED = 1_000_000
"""Predictions of one generation: about a minute, for which a worker's other searches wait."""


class SurrogateSettings(BaseModel):
    """Settings of the search by prediction."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    initial: Annotated[
        int, Field(ge=3, le=1000, description="Models to learn from first: known ones, then spread-out candidates.")
    ] = 10
    batch: Annotated[int, Field(ge=1, le=1000, description="Candidates of each later generation, audits included.")] = 5
    audit_share: Annotated[
        float, Field(ge=0, le=1, description="Share of the later candidates drawn at random, to check predictions.")
    ] = 0.1
    least_gain: Annotated[
        float,
        Field(ge=0, le=1, description="Ends when a generation can be expected to gain less, as a share of the whole."),
    ] = 0.01
    iterations: Annotated[int, Field(ge=1, le=100_000, description="Generations at most, the first included.")] = 100
    population: Annotated[int, Field(ge=16, le=100_000, description="Predicted in each step of the evolution.")] = 4000
    steps: Annotated[int, Field(ge=1, le=1000, description="Of the evolution over predictions.")] = 30

    def check_predictions(self) -> None:
        """Refuses what would take too long; not part of reading them, since stored jobs may hold more."""
        predicted = self.population * self.steps
        if predicted > MAX_PREDICTED:
            raise InvalidInput(
                f"steps {self.steps} times population {self.population} are {predicted:,} predictions for each "
                f"generation, and at most {MAX_PREDICTED:,} are made",
                field="steps",
                value=self.steps,
                allowed=f"at most {MAX_PREDICTED // self.population}, or a smaller population",
            )


class Candidates(ABC):
    """What one generation may propose, and what it does propose.

    A member identifies one candidate: a coded genome, or its place in a list.
    """

    @abstractmethod
    def shapes(self, results: Sequence[Evaluated]) -> Shapes:
        """The architectures of results of this search."""

    @abstractmethod
    def drawn(self) -> tuple[NDArray[Any], Shapes]:
        """Members and shapes among which the spread-out candidates are."""

    @abstractmethod
    def pool(self, forecaster: Forecaster) -> Pool:
        """The candidates among which the worthwhile ones are, predicted."""

    @abstractmethod
    def random_pool(self, forecaster: Forecaster) -> Pool:
        """The candidates among which the audits are, predicted."""

    @abstractmethod
    def propose(self, member: NDArray[Any], operator: str, predicted: Predicted | None = None) -> None:
        """Adds a member to the proposals, unless it is known or refused."""

    @abstractmethod
    def fill(self, count: int) -> None:
        """Adds spread-out candidates until there are so many proposals, as far as there are any."""

    @property
    @abstractmethod
    def made(self) -> tuple[Proposal, ...]:
        """The proposals so far, in order."""


class PredictiveSearch(Algorithm):
    """The search by prediction of one problem."""

    min_validated_batches = 2
    """Batches of predictions that are measured at least before the search ends."""
    baselines_count = True
    """Whether the best model must be better than the baselines."""
    exhausted = "Every permitted architecture that was found has been proposed."
    """The note where nothing is left to propose."""

    def __init__(self, settings: SurrogateSettings, problem: Problem) -> None:
        self._settings, self._problem = settings, problem

    @abstractmethod
    def candidates(self, context: Context, rng: np.random.Generator) -> Candidates:
        """What this generation may propose."""

    @abstractmethod
    def why(self, gain: float, pool: Pool) -> str:
        """Why the search ends where so little gain is expected of the best batch of the pool."""

    @property
    def generations(self) -> int | None:
        return self._settings.iterations

    def generation_size(self, generation: int) -> int:
        return self._settings.initial if generation == 0 else self._settings.batch

    def needs(self, generation: int) -> frozenset[Need]:
        return frozenset({Need.DEVICE_DATA})

    def answer(self, context: Context) -> Answer:
        """Spread-out candidates first, then what predictions recommend; none when little can be gained. Takes
        seconds.
        """
        generation, snapshot = context.generation, context.snapshot
        rng = generator(context.seed, generation, "surrogate")
        candidates = self.candidates(context, rng)
        observations = Observations.of(candidates.shapes, snapshot, self._problem)
        missing = self._settings.initial - len(measured(snapshot))
        if missing > 0:
            missing -= self._teaching(candidates, [*snapshot.others, *self._rivals(snapshot)])
        # Where half of the spread-out ones could not be measured, the rest is made up for.
        if missing > (0 if generation == 0 else self._settings.initial // 2):
            self._spread(candidates, missing, observations, snapshot)
            return Answer(candidates.made)
        try:
            forecaster = Forecaster(self._problem, observations, snapshot)
        except InvalidInput as error:
            return Answer((), note=f"Nothing can be predicted from what was measured: {error.detail}.")
        return self._predicted(candidates, forecaster, observations, snapshot, rng)

    # Learning ----------------------------------------------------------------------------------------------------

    def _teaching(self, candidates: Candidates, observed: Sequence[Observation]) -> int:
        """How many of these have every kind of block that most candidates have: without short convolutions a model says
        nothing of theirs.
        """
        if not observed:
            return 0
        shapes = candidates.drawn()[1], Shapes.of([model.architecture for model in observed])
        own, known = (features(some, self._problem.protocol)[:, _KINDS] > 0 for some in shapes)
        usual = own.mean(axis=0) > 0.5 if len(own) else np.zeros(len(_KINDS), dtype=np.bool_)
        return int(known[:, usual].all(axis=1).sum())

    def _spread(self, candidates: Candidates, count: int, observations: Observations, snapshot: Snapshot) -> None:
        """Candidates far from each other and from known ones, of those that are predicted to be within the limits."""
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
        """Rows that may be within the limits, and not far below all of those of times; the nearest ones if there are
        few.
        """
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

    def _predicted(
        self,
        candidates: Candidates,
        forecaster: Forecaster,
        observations: Observations,
        snapshot: Snapshot,
        rng: np.random.Generator,
    ) -> Answer:
        settings = self._settings
        pool = self._fresh(candidates.pool(forecaster), forecaster, candidates, snapshot)
        if not len(pool):
            return Answer((), 0.0, forecaster.widening, self.exhausted)
        audits = self._audits_due(snapshot)
        choice = self._chosen(pool, forecaster, observations, candidates, snapshot, rng)
        worth = choice.gain >= settings.least_gain and bool(choice.rows)
        checked = sum(result.operator in (PREDICTED, AUDIT) for result in measured(snapshot))
        if not worth and checked >= self.min_validated_batches * settings.batch:
            return Answer((), choice.gain, forecaster.widening, self.why(choice.gain, pool))
        for row in choice.rows[: settings.batch - audits]:
            candidates.propose(pool.members[row], PREDICTED, pool.forecast.predicted(row, forecaster.widening))
        if choice.rows and not candidates.made:
            return Answer((), choice.gain, forecaster.widening, "What predictions recommend is not permitted.")
        # What is not worth measuring leaves room for audits: the search should end on predictions that were checked.
        size = len(candidates.made) + audits if worth else settings.batch
        if size > len(candidates.made):
            random = self._fresh(candidates.random_pool(forecaster), forecaster, candidates, snapshot)
            self._audit(candidates, random, forecaster, rng, size)
        note = "" if candidates.made else self.exhausted
        return Answer(candidates.made, choice.gain, forecaster.widening, note)

    def _fresh(
        self,
        pool: Pool,
        forecaster: Forecaster,
        candidates: Candidates,
        snapshot: Snapshot,
    ) -> Pool:
        """Without what the search has proposed, and what is no lighter than an architecture that the device refused."""
        new = ~np.isin(pool.keys, identity(candidates.shapes(snapshot.results)))
        refused = [result for result in snapshot.results if result.state == CandidateState.INFEASIBLE]
        if refused:
            heavy = forecaster.costs(candidates.shapes(refused))
            for latency, memory in zip(heavy.latency_ms, heavy.memory_bytes, strict=True):
                new &= (pool.forecast.latency_ms < latency) | (pool.forecast.memory_bytes < memory)
        return pool.take(np.flatnonzero(new))

    def _chosen(
        self,
        pool: Pool,
        forecaster: Forecaster,
        observations: Observations,
        candidates: Candidates,
        snapshot: Snapshot,
        rng: np.random.Generator,
    ) -> Choice:
        """The rows worth measuring, best first, more than are needed in case some are refused."""
        problem, count = self._problem, self._settings.batch
        violation = problem.violation(observations.latency_ms, observations.memory_bytes, observations.times_ms)
        # What was measured within the bounds, and the baselines that count as well.
        in_bounds, rivals = snapshot.in_bounds(), self._rivals(snapshot)
        points = np.concatenate([objectives(in_bounds), self._points_of(rivals)])
        times = problem.times_of([*in_bounds, *rivals])
        within: Floats = points[problem.violation(points[:, 1], points[:, 2], times) == 0]
        corner = self._reference(snapshot, observations, pool)
        if problem.goal == Goal.BEST_WITHIN_LIMITS:
            shapes = [candidates.shapes(in_bounds), Shapes.of([rival.architecture for rival in rivals])]
            launches = [*(result.launches for result in in_bounds), *(rival.launches for rival in rivals)]
            choice = expected_gain.best_within_limits(
                pool,
                problem,
                forecaster.posterior(Shapes.concatenate(shapes), points, times, np.array(launches, dtype=np.int64)),
                corner["proxy"],
                forecaster.error_quantiles(expected_gain.CASES),
                count,
                rng,
            )
        else:
            choice = expected_gain.frontier(
                pool,
                problem,
                within,
                corner,
                forecaster.error_quantiles(expected_gain.FRONTIER_CASES),
                count,
                rng,
            )
        if len(within) or choice.rows:
            return choice
        return expected_gain.nearest(pool, problem, float(violation.min()), count)

    def _rivals(self, snapshot: Snapshot) -> Sequence[Observation]:
        """The baselines, where the best model is looked for: nothing is gained by what is worse than they are."""
        return snapshot.baselines if self.baselines_count and self._problem.goal == Goal.BEST_WITHIN_LIMITS else ()

    def _points_of(self, observed: Sequence[Observation]) -> Floats:
        """(n, 3) quality, latency and memory."""
        if not observed:
            return np.zeros((0, 3))
        scores = self._problem.score()(Shapes.of([model.architecture for model in observed]))
        return np.column_stack([rounded(scores), [(model.latency_ms, model.memory_bytes) for model in observed]])

    def _reference(self, snapshot: Snapshot, observations: Observations, pool: Pool) -> dict[str, float]:
        """The point against which hypervolume is taken: the baselines', or of all that is known without any.

        Where the proxy of no architecture but the candidates is known, it is theirs.
        """
        if self._problem.ranks and snapshot.baselines:
            return reference(self._points_of(snapshot.baselines))
        if self._problem.ranks:
            scores = self._problem.score()(observations.shapes)
            return reference(np.column_stack([scores, observations.latency_ms, observations.memory_bytes]))
        return reference(np.concatenate([objectives(measured(snapshot)), pool.forecast.points()]))

    # Audits ------------------------------------------------------------------------------------------------------

    def _audits_due(self, snapshot: Snapshot) -> int:
        """How many of this batch are audits, so that their share of all predicted candidates is what it should be."""
        audits = sum(result.operator == AUDIT for result in snapshot.results)
        predicted = sum(result.operator in (PREDICTED, AUDIT) for result in snapshot.results)
        due = math.ceil(self._settings.audit_share * (predicted + self._settings.batch) - 1e-9) - audits
        return max(0, min(due, self._settings.batch))

    def _audit(
        self, candidates: Candidates, pool: Pool, forecaster: Forecaster, rng: np.random.Generator, size: int
    ) -> None:
        """Fills up to `size` with random candidates that should be within the limits, or with the nearest to them."""
        violation = np.round(pool.forecast.violation(self._problem, RISK_LEVEL), 9)
        for row in map(int, np.lexsort((rng.permutation(len(pool)), violation))):
            if len(candidates.made) >= size:
                return
            candidates.propose(pool.members[row], AUDIT, pool.forecast.predicted(row, forecaster.widening))
