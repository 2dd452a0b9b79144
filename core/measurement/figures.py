"""The figures of a measurement, each declared once in `Figures`.

`Figures` determines the columns of `Measurement` and `Candidate`, the fields of `CandidateView`, the sort keys of
candidates, the columns of exports with their types, and the columns of charts. A new figure needs a declaration here, a
column in a migration and, if devices measure the figure, a field of `LaunchResult`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import Annotated, NamedTuple, get_args

from pydantic import BaseModel, ConfigDict

from edgefront.core.measurement.protocol import Latency
from edgefront.core.measurement.record import GenerationSamples, LaunchResult
from edgefront.core.measurement.statistics import LogLaunches, p90

Results = Sequence[LaunchResult]
"""Results of the valid launches of one measurement: at least one, oldest first."""


def medians_ms(results: Results) -> list[float]:
    """Median latency of each launch, ms."""
    return [median(result.timed.samples_ms) for result in results]


def _generations(results: Results) -> list[GenerationSamples]:
    return [result.generation for result in results if result.generation is not None]


def launches_of(results: Results) -> LogLaunches:
    """Scatter of the launches; of generations that of the time that scatters most."""
    medians = [medians_ms(results)]
    medians += [[median(each.times(name)) for each in _generations(results)] for name in get_args(Latency)]
    waited = _waited_share(results, 0) or 0.0
    return max((LogLaunches.of(each, waited) for each in medians if each), key=lambda launches: launches.sum_squares)


def _waited_share(results: Results, _batch: int) -> float | None:
    shares = [each for result in results if isinstance(each := result.environment.get("waited_share"), float)]
    return fmean(min(1.0, max(0.0, each)) for each in shares) if shares else None


def _time_ms(results: Results, name: Latency) -> float | None:
    """Median over launches of a launch's median of the generation time `name`, ms; None if no launch generated text."""
    medians = [median(generation.times(name)) for generation in _generations(results)]
    return median(medians) if medians else None


def _tokens_per_s(results: Results, batch: int) -> float | None:
    token_ms = _time_ms(results, "token")
    return 1000 * batch / token_ms if token_ms else None


def _energy_token_mj(results: Results, _batch: int) -> float | None:
    """Median energy per generated token over the launches that report an energy, mJ; None if no launch does."""
    known = [each.energy_token_mj for each in _generations(results) if each.energy_token_mj is not None]
    return median(known) if known else None


class Figure(NamedTuple):
    """Meaning, aggregation and uses of a field of `Figures`."""

    meaning: str
    """Description of the figure, with the unit."""
    aggregate: Callable[[Results, int], float | None] | None
    """Function that computes the figure from the results and from the number of sequences of a pass. None if the figure
    also depends on other measurements of the device, so that only candidates have the figure.
    """
    charted: bool = False
    of_generations: bool = False
    """Whether only launches of mode generate have the figure."""


class Figures(BaseModel):
    """All figures of a measured candidate; a field is None while the figure is unknown."""

    model_config = ConfigDict(frozen=True)

    latency_ms: Annotated[
        float | None,
        Figure(
            "median latency of a pass, or the time of a generation that the protocol names, ms",
            lambda results, _: median(medians_ms(results)),
            charted=True,
        ),
    ]
    latency_half_width_ms: Annotated[
        float | None, Figure("half of its 95 % interval, which holds another launch, ms", None, charted=True)
    ]
    latency_p90_ms: Annotated[
        float | None,
        Figure(
            "90th percentile, ms; empty below 20 samples",
            lambda results, _: p90([sample for result in results for sample in result.timed.samples_ms]),
        ),
    ]
    memory_bytes: Annotated[
        int | None,
        Figure(
            "peak memory of the forward pass with its weights, bytes",
            lambda results, _: round(median([result.peak.peak_bytes for result in results])),
            charted=True,
        ),
    ]
    build_peak_bytes: Annotated[
        int | None,
        Figure(
            "peak memory while the model was built, bytes",
            lambda results, _: round(median([result.peak.build_peak_bytes for result in results])),
        ),
    ]
    build_s: Annotated[
        float | None,
        Figure(
            "median time to build the model, from its description to the first pass, s",
            lambda results, _: median([result.build_s for result in results]),
        ),
    ] = None
    waited_share: Annotated[
        float | None,
        Figure(
            "share of the passes' time in which the model waited for a core that others used; empty where unknown",
            _waited_share,
        ),
    ] = None
    first_token_ms: Annotated[
        float | None,
        Figure(
            "of a generation: median time from the prompt to the first token, ms; else empty",
            lambda results, _: _time_ms(results, "first_token"),
            charted=True,
            of_generations=True,
        ),
    ] = None
    first_token_half_width_ms: Annotated[
        float | None, Figure("half of its 95 % interval, ms", None, charted=True, of_generations=True)
    ] = None
    token_ms: Annotated[
        float | None,
        Figure(
            "median time of each further token, ms",
            lambda results, _: _time_ms(results, "token"),
            charted=True,
            of_generations=True,
        ),
    ] = None
    token_half_width_ms: Annotated[
        float | None, Figure("half of its 95 % interval, ms", None, charted=True, of_generations=True)
    ] = None
    total_ms: Annotated[
        float | None,
        Figure(
            "median time from the prompt to the last token, ms",
            lambda results, _: _time_ms(results, "total"),
            of_generations=True,
        ),
    ] = None
    tokens_per_s: Annotated[
        float | None,
        Figure(
            "further tokens a second, of all sequences, 1/s",
            _tokens_per_s,
            of_generations=True,
        ),
    ] = None
    energy_token_mj: Annotated[
        float | None,
        Figure(
            "energy a generated token, mJ; empty where the device does not let it be read",
            _energy_token_mj,
            of_generations=True,
        ),
    ] = None


FIGURES: dict[str, Figure] = {
    name: next(item for item in field.metadata if isinstance(item, Figure))
    for name, field in Figures.model_fields.items()
}
"""Declaration of each figure by name, in the order of display."""
CHARTED = tuple(name for name, figure in FIGURES.items() if figure.charted)
MEASURED = tuple(name for name, figure in FIGURES.items() if figure.aggregate is not None)
"""Names of the figures that a measurement has; the other figures belong to candidates only."""


def is_whole(name: str) -> bool:
    """Whether the figure with this name is a whole number."""
    return int in get_args(Figures.model_fields[name].annotation)


def aggregate_figures(results: Results, batch: int) -> dict[str, float | None]:
    """Aggregates the results of launches: name → value of each figure in `MEASURED`. `batch` is the number of sequences
    of one pass.
    """
    return {name: each.aggregate(results, batch) for name, each in FIGURES.items() if each.aggregate is not None}
