"""The candidates of a job on a device that was added later: which of them are worth measuring there.

A search by prediction (`predictive_search`) whose candidates are a list. It has no audits, and ends with the first
batch that is not worth its launches. The best of the candidates is looked for whether or not a baseline is better: the
job compares its candidates across devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.cost.shapes import Shapes
from edgefront.core.search.evolution import Pool
from edgefront.core.search.forecast import Forecaster
from edgefront.core.search.interface import Answer, Context, Evaluated, Need, Offer, Predicted, Proposal
from edgefront.core.search.population_shapes import identity
from edgefront.core.search.predictive_search import Candidates, PredictiveSearch
from edgefront.core.search.problem import Problem
from edgefront.core.search.surrogate_settings import SurrogateSettings
from edgefront.core.spaces.architecture import Architecture

SETTINGS = SurrogateSettings(initial=10, batch=8, audit_share=0.0, least_gain=0.01, iterations=12)


class Extension(PredictiveSearch):
    """Chooses among a job's candidates for one more device."""

    min_validated_batches = 0
    baselines_count = False
    exhausted = "Every permitted candidate of the job has been measured."

    def __init__(self, accept: Callable[[Architecture], bool], problem: Problem) -> None:
        super().__init__(SETTINGS, problem)
        self._accept = accept

    def needs(self, generation: int) -> frozenset[Need]:
        return super().needs(generation) | {Need.OFFERS}

    def answer(self, context: Context) -> Answer:
        """What to measure of the offers, or why nothing more, whatever their order."""
        offered = {offer.architecture.digest for offer in context.offers}
        results = tuple(result for result in context.snapshot.results if result.digest in offered)
        answer = super().answer(replace(context, snapshot=replace(context.snapshot, results=results)))
        return answer if answer.proposals or answer.note else replace(answer, gain=0.0, note=self.exhausted)

    def candidates(self, context: Context, rng: np.random.Generator) -> Offered:
        return Offered(context, self._accept)

    def why(self, gain: float, pool: Pool) -> str:
        return (
            f"The job's other candidates are predicted to gain {100 * gain:.2g} % within the limits, less than "
            f"{100 * self._settings.least_gain:g} %."
        )


class Offered(Candidates):
    """The permitted offers that have not been proposed; a member is the place of one."""

    def __init__(self, context: Context, accept: Callable[[Architecture], bool]) -> None:
        by_digest = {offer.architecture.digest: offer for offer in context.offers}
        proposed = {result.digest for result in context.snapshot.results}
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
        self._made.append(Proposal(offer.genome, offer.architecture, operator, (), predicted))

    def fill(self, count: int) -> None:
        """Adds nothing: all offers were among those to spread."""

    @property
    def made(self) -> tuple[Proposal, ...]:
        return tuple(self._made)
