"""Registry of the search algorithms by name, and checks of the algorithms' settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.space import SearchSpace
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.validation import invalid_input
from edgefront.core.search.evolution import LightweightTransformerSearch, LtsSettings
from edgefront.core.search.interface import Algorithm, Answer, Context, generator
from edgefront.core.search.listed import ListedSearch, ListedSettings
from edgefront.core.search.par_supernet import ParSupernet, ParSupernetSettings
from edgefront.core.search.predictive_search import SurrogateSettings
from edgefront.core.search.problem import DEFAULT_PROBLEM, Problem
from edgefront.core.search.proposals import PopulationSearch, Proposals
from edgefront.core.search.surrogate import Surrogate


class RandomSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    iterations: Annotated[int, Field(ge=1, le=100_000, description="Generations.")] = 30
    population: Annotated[int, Field(ge=1, le=10_000, description="Architectures in each generation.")] = 100


class RandomSearch(PopulationSearch):
    """Random search: independent uniform samples of the space, without repetition."""

    note = ""

    def answer(self, context: Context) -> Answer:
        rng = generator(context.seed, context.generation, "random")
        proposals = Proposals(self._space, self._accept, context.snapshot, rng)
        proposals.fill(self.generation_size(context.generation))
        return Answer(proposals.made)


Accept = Callable[[Architecture], bool]


@dataclass(frozen=True)
class AlgorithmInfo:
    """Description, settings class and constructor of an algorithm."""

    title: str
    source: str
    settings: type[BaseModel]
    build: Callable[[Any, SearchSpace, Accept, Problem], Algorithm]


ALGORITHMS = {
    "surrogate": AlgorithmInfo(
        "Search by prediction: learns the device from a few launches and measures what can matter",
        "expected improvement within limits over predictions; docs/decisions/0017-search-by-prediction.md",
        SurrogateSettings,
        Surrogate,
    ),
    "listed": AlgorithmInfo(
        "Search by prediction among the published models of a list",
        "as surrogate; docs/decisions/0023-published-models.md",
        ListedSettings,
        ListedSearch,
    ),
    "lts": AlgorithmInfo(
        "Lightweight Transformer Search: evolution from the measured frontier",
        "LTS (arXiv 2203.02094) Algorithm 1 and Appendix B",
        LtsSettings,
        LightweightTransformerSearch,
    ),
    "random": AlgorithmInfo("Uniform random search", "the control of LTS §4", RandomSettings, RandomSearch),
    "par-supernet": AlgorithmInfo(
        "PAR's differentiable search: what a supernet chose, trained by the pool",
        "PAR (arXiv 2009.04534) §2; FBNet (arXiv 1812.03443)",
        ParSupernetSettings,
        ParSupernet,
    ),
}


def make(
    name: str,
    settings: Mapping[str, Any],
    space: SearchSpace,
    accept: Accept | None = None,
    problem: Problem = DEFAULT_PROBLEM,
) -> Algorithm:
    """Creates an algorithm for a space.

    Args:
        name: `surrogate`, `listed`, `lts`, `random` or `par-supernet`.
        settings: settings that differ from the defaults.
        space: the space, already narrowed.
        accept: whether an architecture may be proposed, by checks that need no device (parameters, weight bytes).
            Must be a pure function of the architecture. None accepts every architecture.
        problem: goal, limits, budget and proxy; each algorithm uses only some of the fields.

    Raises:
        InvalidInput: the algorithm does not exist, or a setting is wrong.
    """
    parsed = settings_of(name, settings)
    return ALGORITHMS[name].build(parsed, space, accept or (lambda _: True), problem)


def settings_of(name: str, settings: Mapping[str, Any]) -> BaseModel:
    """Parses the settings of an algorithm and adds the algorithm's defaults.

    Raises:
        InvalidInput: the algorithm does not exist, or a setting is wrong (field `settings.population`).
    """
    if name not in ALGORITHMS:
        allowed = ", ".join(ALGORITHMS)
        raise InvalidInput(f"no algorithm {name!r}; there are {allowed}", field="name", value=name, allowed=allowed)
    model = ALGORITHMS[name].settings
    try:
        return model.model_validate(dict(settings))
    except ValidationError as error:
        raise invalid_input(error, InvalidInput, model=model).under("settings") from None
