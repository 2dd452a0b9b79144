"""The best model within limits, of those that were measured: what it is compared with, and what others trade for it.

Quality is the perplexity that models reached which were trained alike, if the best by prediction is among them; else it
is what the job ranks by. Sentences are made of numbers with their intervals, and claim no more than these support.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from edgefront.core.pareto.ratio import Figure, Ratio
from edgefront.core.units import MIB, plain, rounded_up

RUNNERS_UP = 3
MEMORY_SPREAD = 0.005
"""Half of a 95 % interval of a peak memory, on the logarithm: launches of one model differ by less."""
TRAINING_SPREAD = 0.012
"""The same of a perplexity after one training: models trained alike stray so far from a smooth law of their shapes."""
UNIT_MISTAKEN = 100.0
"""A limit that everything exceeds by this factor may have been given in another unit."""

By = Literal["trained", "predicted", "proxy"]


@dataclass(frozen=True)
class Limits:
    """None: without a limit. Memory in MiB."""

    latency_ms: float | None = None
    memory_mb: float | None = None

    def violation(self, option: Option) -> float:
        """By how much an option is beyond them, as the sum of the logarithms of its shares of them; 0 within."""
        return sum(max(0.0, math.log(share)) for share in self._shares(option))

    def _shares(self, option: Option) -> list[float]:
        pairs = ((option.latency.value, self.latency_ms), (option.memory.value / MIB, self.memory_mb))
        return [value / limit for value, limit in pairs if limit is not None]

    def __str__(self) -> str:
        parts = [f"{plain(self.latency_ms)} ms"] if self.latency_ms is not None else []
        parts += [f"{plain(self.memory_mb)} MiB"] if self.memory_mb is not None else []
        return " and ".join(parts)


@dataclass(frozen=True)
class Option:
    """A measured model that may be chosen."""

    id: str
    stock: bool
    """One of the layer-scaled baselines."""
    name: str
    """In words, as in `4 layers`."""
    parameters: int
    """Of the decoder."""
    score: float
    """By the job's proxy, higher is better."""
    latency: Figure
    """ms"""
    memory: Figure
    """bytes"""
    predicted: Figure | None = None
    """Perplexity."""
    trained: float | None = None
    """Perplexity; only of models that were trained alike."""

    @property
    def perplexity(self) -> Figure | None:
        return self.predicted if self.trained is None else Figure(self.trained, TRAINING_SPREAD)


@dataclass(frozen=True)
class Move:
    """A limit that would have to be moved for `option` to be within."""

    limit: Literal["latency_ms", "memory_mb"]
    to: float
    option: Option


@dataclass(frozen=True)
class Recommendation:
    """The answer; `best` None: nothing that was measured is within the limits."""

    sentence: str
    by: By
    best: Option | None = None
    baseline: Option | None = None
    """The largest stock model within the limits."""
    runners_up: tuple[tuple[Option, str], ...] = ()
    """With what each trades against the best."""
    nearest: Option | None = None
    """What comes nearest to the limits, where nothing is within."""
    moves: tuple[Move, ...] = ()
    """Limits to move, each alone; or both together, where one is not enough."""


def recommend(options: Sequence[Option], limits: Limits, proxy: str) -> Recommendation:
    """The recommendation among measured options under limits; `proxy` is the name of what `score` is."""
    by: By = "predicted" if proxy == "quality_law" else "proxy"
    if not options:
        return Recommendation("Nothing has been measured yet.", by)
    within = sorted((one for one in options if limits.violation(one) == 0), key=_rank)
    if not within:
        return _nothing_fits(options, limits, by)
    if within[0].trained is not None:
        by = "trained"
        within.sort(key=lambda one: (one.trained is None, one.trained or 0.0, *_rank(one)))
    best = within[0]
    baseline = max((one for one in within if one.stock), key=lambda one: (one.parameters, one.id), default=None)
    runners_up = tuple((one, _trade(one, best, proxy)) for one in _runners_up(within))
    return Recommendation(_sentence(best, baseline, limits, proxy), by, best, baseline, runners_up)


def _rank(option: Option) -> tuple[float, float, str]:
    return -option.score, option.latency.value, option.id


def _runners_up(ranked: Sequence[Option]) -> list[Option]:
    """Searched ones by falling quality: those faster or smaller than all better ones beyond doubt, else the next."""
    best, others = ranked[0], [one for one in ranked[1:] if not one.stock]
    traded: list[Option] = []
    for one in others:
        if all(one.latency.over(kept.latency).below or one.memory.over(kept.memory).below for kept in (best, *traded)):
            traded.append(one)
    chosen = traded[:RUNNERS_UP]
    chosen += [one for one in others if one not in chosen][: RUNNERS_UP - len(chosen)]
    return sorted(chosen, key=ranked.index)


# Sentences ------------------------------------------------------------------------------------------------------------


def _trade(option: Option, other: Option, proxy: str) -> str:
    """What one gives and takes against another."""
    parts = [
        option.latency.over(other.latency).in_percent("latency"),
        option.memory.over(other.memory).in_percent("peak memory"),
        _quality(option, other, proxy),
    ]
    return ", ".join(parts)


def _quality(option: Option, other: Option, proxy: str) -> str:
    if option.trained is not None and other.trained is not None:
        return (
            Figure(option.trained, TRAINING_SPREAD)
            .over(Figure(other.trained, TRAINING_SPREAD))
            .in_percent("perplexity after training")
        )
    if option.predicted is not None and other.predicted is not None:
        return option.predicted.over(other.predicted).in_percent("predicted perplexity")
    if option.score == other.score:
        return f"equal by {proxy}"
    if proxy.endswith("_parameters") and option.score > 0 and other.score > 0:
        return Ratio(option.score / other.score, 0.0).in_percent(proxy.replace("_", " "), "more", "less")
    return f"ranked {'higher' if option.score > other.score else 'lower'} by {proxy}"


def _sentence(best: Option, baseline: Option | None, limits: Limits, proxy: str) -> str:
    begin = f"Within {limits}" if str(limits) else "Without limits"
    beyond = limits.latency_ms is not None and best.latency.high > limits.latency_ms
    end = ". The interval of its latency reaches beyond the limit." if beyond else "."
    if best.stock:
        return (
            f"{begin} the stock model with {best.name} is the best that was measured: no searched model is ahead{end}"
        )
    if baseline is None:
        return f"{begin}{_reaches(best)}; no depth of the stock model is within the limits{end}"
    against = f"the largest stock model {'within the limits' if str(limits) else 'measured'} ({baseline.name})"
    return (
        f"{begin}{_reaches(best)}. Against {against}: {_quality(best, baseline, proxy)}, "
        + ", ".join(
            [
                best.latency.over(baseline.latency).in_percent("latency"),
                best.memory.over(baseline.memory).in_percent("peak memory"),
            ]
        )
        + end
    )


def _reaches(best: Option) -> str:
    if best.trained is not None:
        return f" a model reached perplexity {best.trained:.4g} after training"
    if best.predicted is not None:
        return f" a model of predicted perplexity {with_interval(best.predicted)}"
    return f" a model of {best.parameters:,} decoder parameters"


def with_interval(figure: Figure) -> str:
    """`31.2 ± 0.9`; the value alone where no interval is known."""
    if figure.spread is None:
        return f"{figure.value:.4g}"
    return f"{figure.value:.1f} ± {figure.value * math.sinh(figure.spread):.1f}"


# Nothing fits ---------------------------------------------------------------------------------------------------------


def _nothing_fits(options: Sequence[Option], limits: Limits, by: By) -> Recommendation:
    nearest = min(options, key=lambda one: (limits.violation(one), *_rank(one)))
    either = _alone(options, limits)
    moves = either or (_latency_move(nearest), _memory_move(nearest))
    words = (" or " if either else " and ").join(_in_words(move, limits) for move in moves)
    latency, memory = with_interval(nearest.latency), nearest.memory.value / MIB
    sentence = (
        f"Nothing that was measured is within {limits}. The nearest has a latency of {latency} ms and a peak memory "
        f"of {memory:.1f} MiB: {words}.{_unit(options, limits)}"
    )
    return Recommendation(sentence, by, nearest=nearest, moves=moves)


def _alone(options: Sequence[Option], limits: Limits) -> tuple[Move, ...]:
    """For each limit the least that it would have to be if the other stayed; empty where no limit suffices alone."""
    found: list[Move] = []
    if limits.latency_ms is not None:
        others = [one for one in options if Limits(memory_mb=limits.memory_mb).violation(one) == 0]
        found += [_latency_move(one) for one in sorted(others, key=lambda one: (one.latency.value, one.id))[:1]]
    if limits.memory_mb is not None:
        others = [one for one in options if Limits(latency_ms=limits.latency_ms).violation(one) == 0]
        found += [_memory_move(one) for one in sorted(others, key=lambda one: (one.memory.value, one.id))[:1]]
    return tuple(found)


def _latency_move(option: Option) -> Move:
    return Move("latency_ms", rounded_up(option.latency.high), option)


def _memory_move(option: Option) -> Move:
    return Move("memory_mb", rounded_up(option.memory.high / MIB), option)


def _in_words(move: Move, limits: Limits) -> str:
    if move.limit == "latency_ms":
        return f"raise the latency limit from {plain(limits.latency_ms or 0.0)} to {plain(move.to)} ms"
    return f"raise the memory limit from {plain(limits.memory_mb or 0.0)} to {plain(move.to)} MiB"


def _unit(options: Sequence[Option], limits: Limits) -> str:
    """A hint where a limit is so far below everything that it was probably meant in another unit."""
    fastest, smallest = (min(one.latency.value for one in options), min(one.memory.value for one in options) / MIB)
    hints = []
    if limits.latency_ms is not None and limits.latency_ms * UNIT_MISTAKEN <= fastest:
        hints.append(f" If the latency was meant in seconds, it is {plain(limits.latency_ms * 1000)} ms.")
    if limits.memory_mb is not None and limits.memory_mb * UNIT_MISTAKEN <= smallest:
        hints.append(f" If the memory was meant in GiB, it is {plain(limits.memory_mb * 1024)} MiB.")
    return "".join(hints)
