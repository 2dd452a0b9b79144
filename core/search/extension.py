"""The candidates of a job on a device that was added later: which of them are worth measuring there.

A search by prediction (`predictive_search`) whose candidates are a list. It has no audits, and ends with the first
batch that is not worth its launches. The best of the candidates is looked for whether or not a baseline is better: the
job compares its candidates across devices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from edgefront.core.search.evolution import Pool
from edgefront.core.search.interface import Answer, Context, Need
from edgefront.core.search.listed import Listed
from edgefront.core.search.predictive_search import PredictiveSearch
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

    def candidates(self, context: Context, rng: np.random.Generator) -> Listed:
        return Listed(context.offers, context.snapshot, self._accept)

    def why(self, gain: float, pool: Pool) -> str:
        return (
            f"The job's other candidates are predicted to gain {100 * gain:.2g} % within the limits, less than "
            f"{100 * self._settings.least_gain:g} %."
        )
