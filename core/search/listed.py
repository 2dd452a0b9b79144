"""The search by prediction of a list: few architectures, of which each has its quality.

Three launches teach it a device; then it measures what can be the best within the limits, or on the frontier, a few at
a time, and ends with the first batch that is not worth its launches. Within limits the job's targets have one answer
together: what another target has within them need only be beaten, or equalled by the same model.
"""

from __future__ import annotations

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
from edgefront.core.common.states import Goal
from edgefront.core.measurement.variants import format_of
from edgefront.core.search.forecast import Forecaster, Pool
from edgefront.core.search.interface import (
    Answer,
    Context,
    Evaluated,
    Need,
    Offer,
    Predicted,
    Proposal,
    Snapshot,
)
from edgefront.core.search.population_shapes import identity
from edgefront.core.search.predictive_search import RISK_LEVEL, Candidates, PredictiveSearch, SurrogateSettings
from edgefront.core.search.problem import Problem


class ListedSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    initial: Annotated[int, Field(ge=3, le=1000, description="Spread-out candidates to learn from first.")] = 3
    batch: Annotated[int, Field(ge=1, le=1000, description="Candidates of each later generation.")] = 2
    least_gain: Annotated[
        float,
        Field(ge=0, le=1, description="Ends when a generation can be expected to gain less, as a share of the whole."),
    ] = 0.002


class ListedSearch(PredictiveSearch):
    """The search of a list of published models, each with its score."""

    min_validated_batches = 1
    baselines_count = False
    exhausted = "Every permitted model of the list has been measured."

    def __init__(
        self, settings: ListedSettings, space: SearchSpace, accept: Callable[[Architecture], bool], problem: Problem
    ) -> None:
        scores = space.scores
        if scores is None:
            raise InvalidInput(
                f"the algorithm listed is for lists of published models, not for {space.name}",
                field="name",
                value="listed",
                allowed="another algorithm, or space.published",
            )
        super().__init__(SurrogateSettings(**settings.model_dump(), audit_share=0.0), problem)
        self._accept = accept
        self._bits = BITS[format_of(problem.protocol)]
        genomes = list(space.enumerate())
        architectures = [space.architecture(genome) for genome in genomes]
        self._offers = [
            Offer(genome, architecture, scores[architecture.digest])
            for genome, architecture in zip(genomes, architectures, strict=True)
        ]

    def expected_candidates(self, measured: int, most: int) -> int:
        return min(most, max(0, self._settings.initial - measured) + self._settings.batch)

    def needs(self, generation: int) -> frozenset[Need]:
        one_answer = self._problem.goal == Goal.BEST_WITHIN_LIMITS
        return super().needs(generation) | ({Need.RIVAL} if one_answer else set())

    def answer(self, context: Context) -> Answer:
        # Of a model that the catalogue has no more nothing can be learnt.
        known = {offer.architecture.digest for offer in self._offers}
        results = tuple(result for result in context.snapshot.results if result.digest in known)
        context = replace(context, snapshot=replace(context.snapshot, results=results))
        rival = context.snapshot.rival
        if rival is not None and not self._candidates(context.snapshot).worthwhile.any():
            return Answer((), 0.0, note=f"No other model of the list can be better here than what {rival.target} has.")
        return super().answer(context)

    def candidates(self, context: Context, rng: np.random.Generator) -> Listed:
        return self._candidates(context.snapshot)

    def _candidates(self, snapshot: Snapshot) -> LightFirst:
        def may_be_better(offer: Offer) -> bool:
            """Whether it may beat the rival; of the same model in as many bits another runtime may be faster."""
            rival, rank = snapshot.rival, (offer.proxy, self._bits)
            if rival is None:
                return True
            return rank > rival.rank or (rank == rival.rank and offer.architecture.digest == rival.digest)

        return LightFirst(self._offers, snapshot, self._accept, self._settings.initial, may_be_better)

    def why(self, gain: float, pool: Pool) -> str:
        if not (pool.forecast.violation(self._problem, RISK_LEVEL) == 0).any():
            return "No other model of the list is predicted to be within the limits."
        return (
            f"The other models of the list are expected to gain {100 * gain:.2g} %, less than "
            f"{100 * self._settings.least_gain:g} %."
        )


class Listed(Candidates):
    """The permitted offers that have not been proposed; a member is the place of one."""

    def __init__(self, offers: Sequence[Offer], snapshot: Snapshot, accept: Callable[[Architecture], bool]) -> None:
        by_digest = {offer.architecture.digest: offer for offer in offers}
        proposed = {result.digest for result in snapshot.results}
        self._offers: dict[str, Offer] = dict(sorted(by_digest.items()))
        self._fresh = [
            offer for digest, offer in self._offers.items() if digest not in proposed and accept(offer.architecture)
        ]
        self._shapes = Shapes.of([offer.architecture for offer in self._fresh])
        self._made: list[Proposal] = []

    def shapes(self, results: Sequence[Evaluated]) -> Shapes:
        return Shapes.of([self._offers[result.digest].architecture for result in results])

    def drawn(self) -> tuple[NDArray[Any], Shapes]:
        return np.arange(len(self._fresh)), self._shapes

    def pool(self, forecaster: Forecaster) -> Pool:
        quality = np.array([offer.proxy for offer in self._fresh])
        forecast = replace(forecaster.costs(self._shapes), quality=quality)
        return Pool(np.arange(len(self._fresh)), identity(self._shapes), forecast)

    def random_pool(self, forecaster: Forecaster) -> Pool:
        return self.pool(forecaster)

    def propose(self, member: NDArray[Any], operator: str, predicted: Predicted | None = None) -> None:
        offer = self._fresh[int(member)]
        if all(made.architecture.digest != offer.architecture.digest for made in self._made):
            self._made.append(Proposal(offer.genome, offer.architecture, operator, (), predicted))

    def fill(self, count: int) -> None:
        """Adds nothing: all offers were among those to spread."""

    @property
    def made(self) -> tuple[Proposal, ...]:
        return tuple(self._made)


class LightFirst(Listed):
    """Learns from the lighter half of the list: a device is known from small models as well, and sooner. Then it offers
    what is worth measuring.
    """

    def __init__(
        self,
        offers: Sequence[Offer],
        snapshot: Snapshot,
        accept: Callable[[Architecture], bool],
        initial: int,
        worthwhile: Callable[[Offer], bool],
    ) -> None:
        super().__init__(offers, snapshot, accept)
        self._initial = initial
        self.worthwhile: NDArray[np.bool_] = np.array([worthwhile(offer) for offer in self._fresh], dtype=np.bool_)
        """(n,) of the offers that have not been proposed."""

    def drawn(self) -> tuple[NDArray[Any], Shapes]:
        members, shapes = super().drawn()
        light = np.argsort(shapes.total_parameters, kind="stable")[: max(self._initial, len(members) // 2)]
        return members[light], shapes.take(light)

    def pool(self, forecaster: Forecaster) -> Pool:
        return super().pool(forecaster).take(np.flatnonzero(self.worthwhile))


EXTENSION = SurrogateSettings(initial=10, batch=8, audit_share=0.0, least_gain=0.01, iterations=12)


class Extension(PredictiveSearch):
    """Chooses among a job's candidates for a device that was added later: which of them are worth measuring there.

    It has no audits, and ends with the first batch that is not worth its launches. The best is looked for whether or
    not a baseline is better: the job compares its candidates across devices.
    """

    min_validated_batches = 0
    baselines_count = False
    exhausted = "Every permitted candidate of the job has been measured."

    def __init__(self, accept: Callable[[Architecture], bool], problem: Problem) -> None:
        super().__init__(EXTENSION, problem)
        self._accept = accept

    def needs(self, generation: int) -> frozenset[Need]:
        return super().needs(generation) | {Need.OFFERS}

    def answer(self, context: Context) -> Answer:
        """What to measure of the offers, or why nothing more, whatever their order."""
        offered = {offer.architecture.digest for offer in context.offers}
        results = tuple(result for result in context.snapshot.results if result.digest in offered)
        answer = super().answer(replace(context, snapshot=replace(context.snapshot, results=results)))
        return answer if answer.proposals or answer.note else replace(answer, gain=0.0, note=self.exhausted)

    def candidates(self, context: Context, rng: np.random.Generator) -> Listed:
        return Listed(context.offers, context.snapshot, self._accept)

    def why(self, gain: float, pool: Pool) -> str:
        return (
            f"The job's other candidates are predicted to gain {100 * gain:.2g} % within the limits, less than "
            f"{100 * self._settings.least_gain:g} %."
        )
