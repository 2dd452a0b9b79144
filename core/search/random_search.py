"""Uniform random search: what any other algorithm has to beat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from edgefront.core.search.interface import Algorithm, Answer, Context, generator
from edgefront.core.search.problem import PLAIN, Problem
from edgefront.core.search.proposals import Proposals
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.space import SearchSpace


class RandomSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    iterations: Annotated[int, Field(ge=1, le=100_000, description="Generations.")] = 30
    population: Annotated[int, Field(ge=1, le=10_000, description="Architectures in each generation.")] = 100


class RandomSearch(Algorithm):
    """Independent uniform samples of the space, without repetition."""

    def __init__(
        self,
        settings: RandomSettings,
        space: SearchSpace,
        accept: Callable[[Architecture], bool],
        problem: Problem = PLAIN,
    ) -> None:
        self._settings, self._space, self._accept = settings, space, accept

    @property
    def generations(self) -> int | None:
        return self._settings.iterations

    def generation_size(self, generation: int) -> int:
        return self._settings.population

    def answer(self, context: Context) -> Answer:
        rng = generator(context.seed, context.generation, "random")
        proposals = Proposals(self._space, self._accept, context.snapshot, rng)
        proposals.fill(self.generation_size(context.generation))
        return Answer(proposals.made)
