"""Search by prediction over a fixed pool of scored candidates: published models, or the candidates of other targets.

1. Launch three candidates for a first fit of the predictors; with limits the lightest that may be best, one by one.
2. In each later generation, measure the few candidates with the highest expected gain.
3. End the search at the first batch whose expected gain is below `least_gain`.

A job for the best published model has one answer over all its targets, which search one after another. The search of a
target only measures candidates that may beat the incumbent, the best model of the other targets. Candidates that a
lighter one beyond the limits shows to be far beyond them cannot.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.space import SearchSpace
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.number_formats import BITS
from edgefront.core.common.states import CandidateState, Goal
from edgefront.core.measurement.variants import format_of
from edgefront.core.search.forecast import Forecaster, Pool, measured
from edgefront.core.search.interface import (
    SPREAD,
    Answer,
    Context,
    Evaluated,
    Need,
    Predicted,
    Proposal,
    ScoredCandidate,
    Snapshot,
    objectives,
)
from edgefront.core.search.population_shapes import identity
from edgefront.core.search.predictive_search import RISK_LEVEL, Candidates, PredictiveSearch, SurrogateSettings
from edgefront.core.search.problem import Problem, beyond_limits

FAR = 2.0
"""Excess over the limits, as a factor, from which no candidate is measured. A candidate exceeds them at least as many
times more than a lighter one as it is heavier.
"""


class ListedSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    initial: Annotated[int, Field(ge=3, le=1000, description="Spread-out candidates to learn from first.")] = 3
    batch: Annotated[int, Field(ge=1, le=1000, description="Candidates of each later generation.")] = 2
    least_gain: Annotated[
        float,
        Field(ge=0, le=1, description="Ends when the expected relative gain of a generation is below this share."),
    ] = 0.002


class ListedSearch(PredictiveSearch):
    """Search by prediction over a list of published models with scores."""

    baselines_count = False
    exhausted = "No other permitted model of the list can be better."

    def __init__(
        self, settings: ListedSettings, space: SearchSpace, accept: Callable[[Architecture], bool], problem: Problem
    ) -> None:
        scores = space.scores
        if scores is None:
            raise InvalidInput(
                f"the algorithm listed searches lists of published models, not the space {space.name}",
                field="name",
                value="listed",
                allowed="another algorithm, or space.published",
            )
        super().__init__(SurrogateSettings(**settings.model_dump(), audit_share=0.0), problem)
        # A recommended model is always measured. A frontier needs a batch that confirms the predictions.
        self.min_validated_batches = 0 if problem.goal == Goal.BEST_WITHIN_LIMITS else 1
        self._accept = accept
        self._bits = BITS[format_of(problem.protocol)]
        genomes = list(space.enumerate())
        architectures = [space.architecture(genome) for genome in genomes]
        self._models = [
            ScoredCandidate(genome, architecture, scores[architecture.digest])
            for genome, architecture in zip(genomes, architectures, strict=True)
        ]
        shapes = Shapes.of(architectures)
        sizes = np.column_stack([shapes.decoder_parameters, shapes.total_parameters])
        self._sizes = {each.architecture.digest: size for each, size in zip(self._models, sizes, strict=True)}

    def expected_candidates(self, measured: int, most: int) -> int:
        return min(most, max(0, self._settings.initial - measured) + self._settings.batch)

    def needs(self, generation: int) -> frozenset[Need]:
        one_answer = self._problem.goal == Goal.BEST_WITHIN_LIMITS
        return super().needs(generation) | ({Need.INCUMBENT} if one_answer else set())

    def answer(self, context: Context) -> Answer:
        context = _with_results_of(context, self._models)  # models may have been deleted from the catalogue
        snapshot = context.snapshot
        if self._problem.goal != Goal.BEST_WITHIN_LIMITS:
            return super().answer(context)
        candidates = self.candidates(context)
        if not candidates.worthwhile.any():
            best = snapshot.incumbent
            than = "" if best is None else f" than the best of {best.target}"
            return Answer((), 0.0, note=f"No other model of the list can be better here{than}.")
        if len(measured(snapshot)) + len(snapshot.others) < self._settings.initial:
            candidates.propose_lightest()
            return Answer(candidates.made)
        return super().answer(context)

    def candidates(self, context: Context, rng: np.random.Generator | None = None) -> PoolCandidates:
        snapshot, incumbent = context.snapshot, context.snapshot.incumbent
        own = max((result.proxy for result in snapshot.in_bounds()), default=-math.inf)
        beyond = beyond_limits(self._problem, snapshot)
        _, latency_ms, memory_bytes = objectives(beyond).T
        excess = self._problem.violation(latency_ms, memory_bytes, self._problem.times_of(beyond)).tolist()
        lighter = [(self._sizes[result.digest], log) for result, log in zip(beyond, excess, strict=True)]
        infeasible = [result for result in snapshot.results if result.state == CandidateState.INFEASIBLE]
        lighter += [(self._sizes[result.digest], math.inf) for result in infeasible]

        def is_far(size: NDArray[np.float64]) -> bool:
            return any(
                np.all(size >= less) and log + math.log((size / less).min()) > math.log(FAR) for less, log in lighter
            )

        def may_win(model: ScoredCandidate) -> bool:
            """Whether the model may beat the incumbent. The same model and bits may be faster in another runtime."""
            if self._problem.goal != Goal.BEST_WITHIN_LIMITS:
                return True
            digest, rank = model.architecture.digest, (model.proxy, self._bits)
            if model.proxy <= own or is_far(self._sizes[digest]):
                return False
            return incumbent is None or rank > incumbent.rank or (rank, digest) == (incumbent.rank, incumbent.digest)

        return PoolCandidates(self._models, snapshot, self._accept, may_win)

    def end_note(self, gain: float, pool: Pool) -> str:
        if not (pool.forecast.violation(self._problem, RISK_LEVEL) == 0).any():
            return "No other model of the list is predicted to be within the limits."
        return (
            f"The other models of the list are expected to gain {100 * gain:.2g} %, less than "
            f"{100 * self._settings.least_gain:g} %."
        )


class PoolCandidates(Candidates):
    """The permitted candidates of a pool that are not yet proposed. A member is an index into these candidates.

    Args:
        may_win: whether a candidate is worth measuring; None if every candidate is.
    """

    def __init__(
        self,
        pool: Sequence[ScoredCandidate],
        snapshot: Snapshot,
        accept: Callable[[Architecture], bool],
        may_win: Callable[[ScoredCandidate], bool] | None = None,
    ) -> None:
        by_digest = {candidate.architecture.digest: candidate for candidate in pool}
        proposed = {result.digest for result in snapshot.results}
        self._by_digest: dict[str, ScoredCandidate] = dict(sorted(by_digest.items()))
        self._fresh = [
            candidate
            for digest, candidate in self._by_digest.items()
            if digest not in proposed and accept(candidate.architecture)
        ]
        self._shapes = Shapes.of([candidate.architecture for candidate in self._fresh])
        self.worthwhile: NDArray[np.bool_] = np.array(
            [may_win is None or may_win(candidate) for candidate in self._fresh], dtype=np.bool_
        )
        """(n,) mask of the candidates that are worth measuring."""
        self._made: list[Proposal] = []

    def shapes(self, results: Sequence[Evaluated]) -> Shapes:
        return Shapes.of([self._by_digest[result.digest].architecture for result in results])

    def drawn(self) -> tuple[NDArray[Any], Shapes]:
        return np.arange(len(self._fresh)), self._shapes

    def pool(self, forecaster: Forecaster) -> Pool:
        quality = np.array([candidate.proxy for candidate in self._fresh])
        forecast = replace(forecaster.costs(self._shapes), quality=quality)
        pool = Pool(np.arange(len(self._fresh)), identity(self._shapes), forecast)
        return pool.take(np.flatnonzero(self.worthwhile))

    def random_pool(self, forecaster: Forecaster) -> Pool:
        return self.pool(forecaster)

    def propose_lightest(self) -> None:
        """Proposes the lightest candidate that is worth measuring."""
        rows = np.flatnonzero(self.worthwhile)
        self.propose(rows[np.argmin(self._shapes.total_parameters[rows])], SPREAD)

    def propose(self, member: NDArray[Any], operator: str, predicted: Predicted | None = None) -> None:
        candidate = self._fresh[int(member)]
        if all(made.architecture.digest != candidate.architecture.digest for made in self._made):
            self._made.append(Proposal(candidate.genome, candidate.architecture, operator, (), predicted))

    def fill(self, count: int) -> None:
        """Adds nothing, because initial candidates come from `drawn` only."""

    @property
    def made(self) -> tuple[Proposal, ...]:
        return tuple(self._made)


def _with_results_of(context: Context, pool: Sequence[ScoredCandidate]) -> Context:
    digests = {candidate.architecture.digest for candidate in pool}
    results = tuple(result for result in context.snapshot.results if result.digest in digests)
    return replace(context, snapshot=replace(context.snapshot, results=results))


EXTENSION = SurrogateSettings(initial=10, batch=8, audit_share=0.0, least_gain=0.01, iterations=12)


class Extension(PredictiveSearch):
    """Selects the job's candidates that are worth measuring on a device that was added later.

    There are no audits. Candidates need not beat the baselines, because the job compares candidates across devices.
    """

    min_validated_batches = 0
    baselines_count = False
    exhausted = "Every permitted candidate of the job has been measured."

    def __init__(self, accept: Callable[[Architecture], bool], problem: Problem) -> None:
        super().__init__(EXTENSION, problem)
        self._accept = accept

    def needs(self, generation: int) -> frozenset[Need]:
        return super().needs(generation) | {Need.CANDIDATE_POOL}

    def answer(self, context: Context) -> Answer:
        """Computes the proposals of a generation. The proposals do not depend on the order of the pool."""
        answer = super().answer(_with_results_of(context, context.candidate_pool))
        return answer if answer.proposals or answer.note else replace(answer, gain=0.0, note=self.exhausted)

    def candidates(self, context: Context, rng: np.random.Generator) -> PoolCandidates:
        return PoolCandidates(context.candidate_pool, context.snapshot, self._accept)

    def end_note(self, gain: float, pool: Pool) -> str:
        return (
            f"The job's other candidates are predicted to gain {100 * gain:.2g} % within the limits, less than "
            f"{100 * self._settings.least_gain:g} %."
        )
