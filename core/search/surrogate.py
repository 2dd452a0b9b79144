"""Search by prediction: learn the device from a few launches, predict a hundred thousand architectures, measure a few.

- First about ten spread-out candidates, unless other jobs have measured as many: the predictors learn from them.
- Every later generation fits the predictors to all that is known of the device (`forecast`), evolves over predictions
  (`evolution`), and proposes the batch with the highest expected gain within the limits (`expected_gain`). One in ten
  is an audit: drawn at random among those that should be within the limits, so that it checks the predictions.
- It ends by itself when a batch can be expected to gain less than `least_gain`, once predictions have been checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from edgefront.core.cost.shapes import Shapes
from edgefront.core.errors import InvalidInput
from edgefront.core.pareto.baseline import reference
from edgefront.core.prediction.features import descriptors, features
from edgefront.core.prediction.spread import farthest
from edgefront.core.search import expected_gain
from edgefront.core.search.evolution import Evolution, Pool
from edgefront.core.search.expected_gain import Choice
from edgefront.core.search.forecast import Forecast, Forecaster, Known, measured, rounded
from edgefront.core.search.interface import (
    AUDIT,
    PREDICTED,
    SPREAD,
    Algorithm,
    Answer,
    Context,
    Need,
    Snapshot,
    generator,
    objectives,
)
from edgefront.core.search.population_shapes import PopulationShapes, identity
from edgefront.core.search.problem import Floats, Problem
from edgefront.core.search.proposals import WALKABLE, Proposals
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.rules.table import Codes
from edgefront.core.spaces.space import SearchSpace
from edgefront.core.states import CandidateState

POOL_SIZE = 4096
"""Samples among which the spread-out candidates and the audits are chosen."""
LATENCY_BAND = (0.15, 1.25)
"""Shares of the latency limit between which spread-out candidates lie where that can be told."""
MAX_PREDICTED = 1_000_000
"""Predictions of one generation: about a minute, for which a worker's other searches wait."""
USUAL_BATCHES = 4
"""Batches of predictions after which a search typically ends."""
MIN_VALIDATED_BATCHES = 2
"""Batches of predictions that are measured at least before the search ends."""
KNOWN = "Every permitted architecture that was found has been proposed."
RISK_LEVEL = 0.0
"""Standard deviations: a candidate should be within the limits if it is so at its mean."""


class SurrogateSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    initial: Annotated[int, Field(ge=3, le=1000, description="Spread-out candidates to learn from first.")] = 10
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


class Surrogate(Algorithm):
    """The search by prediction of one problem."""

    seconds_per_generation = 10.0

    def __init__(
        self,
        settings: SurrogateSettings,
        space: SearchSpace,
        accept: Callable[[Architecture], bool],
        problem: Problem,
    ) -> None:
        problem.score()  # refuses a proxy that it cannot predict
        self._settings, self._space, self._accept, self._problem = settings, space, accept, problem
        self._rules, self._shapes = space.rules, PopulationShapes(space)

    @property
    def generations(self) -> int | None:
        return self._settings.iterations

    def generation_size(self, generation: int) -> int:
        return self._settings.initial if generation == 0 else self._settings.batch

    def needs(self, generation: int) -> frozenset[Need]:
        return frozenset({Need.DEVICE_DATA})

    def expected_candidates(self, measured: int, most: int) -> int:
        """It ends by itself when little is left to gain, typically after `USUAL_BATCHES` batches of predictions."""
        learning = max(0, self._settings.initial - measured)
        return min(most, learning + USUAL_BATCHES * self._settings.batch)

    def answer(self, context: Context) -> Answer:
        """Spread-out candidates first, then what predictions recommend; none when little can be gained. Takes
        seconds.
        """
        generation, snapshot = context.generation, context.snapshot
        rng = generator(context.seed, generation, "surrogate")
        proposals = Proposals(self._space, self._accept, snapshot, rng)
        known = Known.of(self._shapes, snapshot, self._problem)
        learnt = len(measured(snapshot)) + len(snapshot.others)
        wanted = self._settings.initial - learnt
        # Where half of the spread-out ones could not be measured, the rest is made up for.
        if wanted > (0 if generation == 0 else self._settings.initial // 2):
            self._spread(proposals, wanted, known, snapshot, rng)
            return Answer(proposals.made)
        try:
            forecaster = Forecaster(self._problem, known, snapshot)
        except InvalidInput as error:
            return Answer((), note=f"Nothing can be predicted from what was measured: {error.detail}.")
        return self._predicted(proposals, forecaster, known, snapshot, rng)

    # Learning ----------------------------------------------------------------------------------------------------

    def _spread(
        self, proposals: Proposals, count: int, known: Known, snapshot: Snapshot, rng: np.random.Generator
    ) -> None:
        """Candidates far from each other and from what is known, of those within the limits as far as can be told."""
        codes = self._drawn(rng)
        shapes = self._shapes(codes)
        if self._problem.permitted is not None:
            allowed = self._problem.permitted(shapes)
            codes, shapes = codes[allowed], shapes.take(allowed)
        try:
            forecast = Forecaster(self._problem, known, snapshot)(shapes)
        except InvalidInput:
            forecast = None
        if forecast is not None:
            near = self._near_the_limits(forecast)
            codes, shapes = codes[near], shapes.take(near)
        counted = features(shapes, self._problem.protocol)
        for row in farthest(descriptors(shapes, counted), len(codes) if len(codes) < POOL_SIZE else 4 * count):
            if len(proposals) >= count:
                return
            proposals.offer(self._rules.decode(codes[row : row + 1])[0], SPREAD)
        proposals.fill(count)

    def _near_the_limits(self, forecast: Forecast) -> np.ndarray[tuple[int], np.dtype[np.intp]]:
        """Rows that may be within the limits, and not far below the latency's; the nearest ones if there are few."""
        problem = self._problem
        below = np.zeros(len(forecast))
        if problem.latency_ms is not None:
            below = np.maximum(0.0, np.log(problem.latency_ms * LATENCY_BAND[0] / forecast.latency_ms))
        away = below + problem.violation(
            forecast.latency_ms / LATENCY_BAND[1],
            forecast.memory_bytes / LATENCY_BAND[1],
            forecast.times_ms / LATENCY_BAND[1],
        )
        order = np.lexsort((np.arange(len(forecast)), np.round(away, 9)))
        return np.sort(order[: max(int((away == 0).sum()), min(len(forecast), POOL_SIZE // 16))])

    # Predicting --------------------------------------------------------------------------------------------------

    def _predicted(
        self,
        proposals: Proposals,
        forecaster: Forecaster,
        known: Known,
        snapshot: Snapshot,
        rng: np.random.Generator,
    ) -> Answer:
        settings, problem = self._settings, self._problem
        evolution = Evolution(self._rules, self._shapes, forecaster, problem, rng)
        pool = self._fresh(self._searched(evolution, snapshot), forecaster, snapshot)
        if not len(pool):
            return Answer((), 0.0, forecaster.widening, KNOWN)
        audits = self._audits_due(snapshot)
        choice = self._chosen(pool, forecaster, known, snapshot, settings.batch, rng)
        worth = choice.gain >= settings.least_gain and bool(choice.rows)
        checked = sum(one.operator in (PREDICTED, AUDIT) for one in measured(snapshot))
        if not worth and checked >= MIN_VALIDATED_BATCHES * settings.batch:
            return Answer((), choice.gain, forecaster.widening, self._why(choice.gain, pool))
        for row in choice.rows[: settings.batch - audits]:
            self._offer(proposals, pool, row, PREDICTED, forecaster)
        if choice.rows and not proposals.made:
            return Answer((), choice.gain, forecaster.widening, "What predictions recommend is not permitted.")
        # What is not worth measuring leaves room for audits: the search should end on predictions that were checked.
        size = len(proposals) + audits if worth else settings.batch
        self._audit(proposals, evolution, forecaster, snapshot, size)
        note = "" if proposals.made else KNOWN
        return Answer(proposals.made, choice.gain, forecaster.widening, note)

    def _searched(self, evolution: Evolution, snapshot: Snapshot) -> Pool:
        """The architectures of a small space, or what evolution over predictions finds in a large one."""
        if self._space.size() <= WALKABLE:
            return evolution.pool(self._rules.encode(list(self._space.enumerate())))
        genomes = [one.genome for one in measured(snapshot)]
        return evolution.run(self._rules.encode(genomes), self._settings.population, self._settings.steps)

    def _fresh(self, pool: Pool, forecaster: Forecaster, snapshot: Snapshot) -> Pool:
        """Without what the search has proposed, and what is no lighter than an architecture that the device refused."""
        proposed = self._shapes.of_genomes([one.genome for one in snapshot.results])
        new = ~np.isin(pool.keys, identity(proposed))
        refused = [one.genome for one in snapshot.results if one.state == CandidateState.INFEASIBLE]
        if refused:
            heavy = forecaster(self._shapes.of_genomes(refused))
            for latency, memory in zip(heavy.latency_ms, heavy.memory_bytes, strict=True):
                new &= (pool.forecast.latency_ms < latency) | (pool.forecast.memory_bytes < memory)
        return pool.take(np.flatnonzero(new))

    def _chosen(
        self, pool: Pool, forecaster: Forecaster, known: Known, snapshot: Snapshot, count: int, rng: np.random.Generator
    ) -> Choice:
        """The rows worth measuring, best first, more than are needed in case some are refused."""
        problem = self._problem
        violation = problem.violation(known.latency_ms, known.memory_bytes, known.times_ms)
        within, corner = self._within(snapshot), self._reference(snapshot, known)
        if problem.goal == "best_within_limits":
            choice = expected_gain.best_within_limits(
                pool,
                problem,
                self._believed(forecaster, snapshot),
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

    def _within(self, snapshot: Snapshot) -> Floats:
        """(n, 3) quality, latency and memory of what was measured within the limits.

        For the best model the baselines count as well: nothing is gained by what is worse than they are.
        """
        found = snapshot.in_bounds()
        points, times = objectives(found), self._problem.times_of(found)
        if self._problem.goal == "best_within_limits":
            points = np.concatenate([points, self._baseline_points(snapshot)])
            times = np.concatenate([times, self._problem.times_of(snapshot.baselines)])
        inside: Floats = points[self._problem.violation(points[:, 1], points[:, 2], times) == 0]
        return inside

    def _believed(self, forecaster: Forecaster, snapshot: Snapshot) -> Forecast:
        """What was measured within the limits, and the baselines."""
        found = snapshot.in_bounds()
        shapes = [
            self._shapes.of_genomes([one.genome for one in found]),
            Shapes.of([one.architecture for one in snapshot.baselines]),
        ]
        points = np.concatenate([objectives(found), self._baseline_points(snapshot)])
        launches = [*(one.launches for one in found), *(one.launches for one in snapshot.baselines)]
        times = self._problem.times_of([*found, *snapshot.baselines])
        return forecaster.posterior(Shapes.concatenate(shapes), points, times, np.array(launches, dtype=np.int64))

    def _baseline_points(self, snapshot: Snapshot) -> Floats:
        """(n, 3) quality, latency and memory of the baselines."""
        if not snapshot.baselines:
            return np.zeros((0, 3))
        scores = self._problem.score()(Shapes.of([one.architecture for one in snapshot.baselines]))
        return np.column_stack([rounded(scores), [(one.latency_ms, one.memory_bytes) for one in snapshot.baselines]])

    def _reference(self, snapshot: Snapshot, known: Known) -> dict[str, float]:
        """The point against which hypervolume is taken: the baselines', or of all that is known without any."""
        if snapshot.baselines:
            return reference(self._baseline_points(snapshot))
        return reference(np.column_stack([self._problem.score()(known.shapes), known.latency_ms, known.memory_bytes]))

    # Audits ------------------------------------------------------------------------------------------------------

    def _audits_due(self, snapshot: Snapshot) -> int:
        """How many of this batch are audits, so that their share of all predicted candidates is what it should be."""
        audits = sum(one.operator == AUDIT for one in snapshot.results)
        predicted = sum(one.operator in (PREDICTED, AUDIT) for one in snapshot.results)
        due = math.ceil(self._settings.audit_share * (predicted + self._settings.batch) - 1e-9) - audits
        return max(0, min(due, self._settings.batch))

    def _audit(
        self, proposals: Proposals, evolution: Evolution, forecaster: Forecaster, snapshot: Snapshot, size: int
    ) -> None:
        """Fills up to `size` with random candidates that should be within the limits, or with the nearest to them."""
        pool = self._fresh(evolution.pool(self._drawn(evolution.rng)), forecaster, snapshot)
        violation = np.round(pool.forecast.violation(self._problem, RISK_LEVEL), 9)
        for row in np.lexsort((evolution.rng.permutation(len(pool)), violation)):
            if len(proposals) >= size:
                return
            self._offer(proposals, pool, int(row), AUDIT, forecaster)

    def _drawn(self, rng: np.random.Generator) -> Codes:
        return self._rules.sample(POOL_SIZE, rng)

    def _offer(self, proposals: Proposals, pool: Pool, row: int, operator: str, forecaster: Forecaster) -> None:
        genome = self._rules.decode(pool.codes[row : row + 1])[0]
        proposals.offer(genome, operator, predicted=pool.forecast.predicted(row, forecaster.widening))

    def _why(self, gain: float, pool: Pool) -> str:
        """Why the search ends."""
        least = f"{100 * self._settings.least_gain:g} %"
        if not (pool.forecast.violation(self._problem, RISK_LEVEL) == 0).any():
            return "No architecture is predicted to be within the limits; what comes nearest has been measured."
        return f"The next launches were expected to gain {100 * gain:.3g} %, less than {least}."
