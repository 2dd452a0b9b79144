"""Recommends the best measured model within limits, compares it with the stock model, and names alternatives.

It is one of the frontier of those within the limits, by the job's ε. A stock model within the limits is the answer
unless another is better for sure: by more than the interval of their difference.

Quality is the perplexity that models reached which were trained alike, if there are two and the best by prediction is
among them; else it is what the job ranks by: one training alone has nothing to be compared with. Sentences are made of
numbers with their intervals, and claim no more than these support.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from edgefront.core.pareto.dominance import Dominance
from edgefront.core.pareto.ratio import Figure, Ratio
from edgefront.core.units import MB, plain, rounded_up

RUNNERS_UP = 3
MEMORY_SPREAD = 0.005
"""Half-width of the 95 % interval of a peak memory, on the logarithm: launches of one model differ by less."""
TRAINING_SPREAD = 0.012
"""Half-width of the 95 % interval of a perplexity after one training, on the logarithm: by so much do models that were
trained alike scatter around a smooth law of their shapes.
"""
EVERY_DIFFERENCE = Dominance()
MISTAKEN_UNIT_FACTOR = 100.0
"""A limit that everything exceeds by this factor may have been given in another unit."""

By = Literal["trained", "predicted", "proxy"]


LimitName = Literal["latency_ms", "memory_mb", "first_token_ms", "token_ms"]


@dataclass(frozen=True)
class OptionLimits:
    """What an `Option` may take at most; None: without a limit. Memory in MB; the last two: times of a generation."""

    latency_ms: float | None = None
    memory_mb: float | None = None
    first_token_ms: float | None = None
    token_ms: float | None = None

    @property
    def given(self) -> dict[LimitName, float]:
        return {name: limit for name in _UNITS if (limit := getattr(self, name)) is not None}

    def violation(self, option: Option) -> float:
        """How far an option exceeds the limits: the sum of ln(value / limit) over those exceeded; 0 within them."""
        return sum(max(0.0, math.log(option.value(name) / limit)) for name, limit in self.given.items())

    def __str__(self) -> str:
        *first, last = [f"{plain(limit)} {_UNITS[name]}" for name, limit in self.given.items()] or [""]
        return f"{', '.join(first)} and {last}" if first else last


_UNITS: dict[LimitName, str] = {
    "latency_ms": "ms",
    "memory_mb": "MB",
    "first_token_ms": "ms to the first token",
    "token_ms": "ms a further token",
}
_NAMES: dict[LimitName, str] = {
    "latency_ms": "latency",
    "memory_mb": "memory",
    "first_token_ms": "first-token",
    "token_ms": "further-token",
}


@dataclass(frozen=True)
class Option:
    """A measured model that may be chosen."""

    id: str
    digest: str
    """Of its architecture."""
    stock: bool
    """Whether it is one of the layer-scaled baselines."""
    name: str
    """Name for people, such as `4 layers`."""
    parameters: int
    """Parameters of the decoder."""
    score: float
    """Score by the job's proxy; higher is better."""
    latency: Figure
    """Latency in ms."""
    memory: Figure
    """Peak memory in bytes."""
    first_token_ms: float | None = None
    """Time to the first token of a generation; `token_ms` is that of each further one."""
    token_ms: float | None = None
    predicted: Figure | None = None
    """Perplexity, or its ratio to that of a model of the law's choice."""
    relative: bool = False
    """Whether `predicted` is a ratio."""
    label: str = ""
    """What `predicted` is of, in a few words."""
    trained: float | None = None
    """Perplexity after training; only of models that were trained alike."""

    def value(self, limit: LimitName) -> float:
        """The figure that a limit bounds, in the limit's unit; ∞ if it is unknown."""
        if limit == "latency_ms":
            return self.latency.value
        if limit == "memory_mb":
            return self.memory.value / MB
        figure: float | None = getattr(self, limit)
        return math.inf if figure is None else figure

    @property
    def perplexity(self) -> Figure | None:
        return self.predicted if self.trained is None else Figure(self.trained, TRAINING_SPREAD)


@dataclass(frozen=True)
class Move:
    """A limit that would have to be moved for `option` to be within."""

    limit: LimitName
    to: float
    option: Option


@dataclass(frozen=True)
class Recommendation:
    """The answer; `best` is None if nothing that was measured is within the limits."""

    sentence: str
    by: By
    short: str = ""
    """The same in a few words, for a list; empty where nothing is within the limits."""
    best: Option | None = None
    baseline: Option | None = None
    """The largest stock model within the limits."""
    runners_up: tuple[tuple[Option, str], ...] = ()
    """Alternatives, each with what it trades against the best."""
    nearest: Option | None = None
    """The option nearest to the limits, if none is within them."""
    moves: tuple[Move, ...] = ()
    """Limits of which each alone could be moved; or all to move together, if one is not enough."""


AnyOption = TypeVar("AnyOption", bound=Option)

QualityRatio = Callable[[Option, Option], Ratio]
"""Predicted perplexity of the first by that of the second."""


def independent(option: Option, other: Option) -> Ratio:
    """The ratio if the errors of the two predictions had nothing in common."""
    assert option.predicted is not None
    assert other.predicted is not None
    return option.predicted.over(other.predicted)


def recommend(
    options: Sequence[Option],
    limits: OptionLimits,
    proxy: str,
    *,
    own: bool = False,
    inherits: bool = False,
    ratio: QualityRatio = independent,
    dominance: Dominance = EVERY_DIFFERENCE,
) -> Recommendation:
    """The recommendation among measured options under limits; `proxy` is the name of what `score` is.

    `own`: the stock model is the user's, with which is compared whether or not it is within the limits; `inherits`: the
    others are parts of it. `ratio` is asked for two options with a predicted perplexity. `dominance` is the job's.
    """
    by: By = "predicted" if proxy == "quality_law" else "proxy"
    if not options:
        return Recommendation("Nothing has been measured yet.", by)
    within = sorted((option for option in options if limits.violation(option) == 0), key=_rank)
    if not within:
        return _nothing_fits(options, limits, by)
    trained = {option.id for option in within if option.trained is not None}
    if len(trained) == 1:
        within = [replace(option, trained=None) for option in within]
    elif trained & {within[0].id, _frontier(within, by, dominance)[0].id}:
        by = "trained"
        within.sort(key=lambda option: (option.trained is None, option.trained or 0.0, *_rank(option)))
    stock = [option for option in (options if own else within) if option.stock]
    baseline = max(stock, key=lambda option: (option.parameters, option.id), default=None)
    searched = [option for option in within if not option.stock]
    ahead: Iterable[Option] = _frontier(searched, by, dominance)
    if baseline is not None and limits.violation(baseline) == 0:
        ahead = (option for option in ahead if _surely_better(option, baseline, ratio))
    best = next(iter(ahead), None) or baseline
    assert best is not None
    others = [option for option in searched if option is not best]
    traded = tuple((option, _trade(option, best, proxy, ratio)) for option in runners_up(best, others, RUNNERS_UP))
    if best.stock:
        sentence = _stock_sentence(best, next(iter(searched), None), limits, proxy, own, ratio)
    elif inherits and baseline is not None and best.predicted is not None and best.trained is None:
        sentence = _cut_sentence(best, baseline, limits)
    else:
        sentence = _sentence(best, baseline, limits, proxy, own, ratio)
    return Recommendation(sentence, by, _short(best, baseline, own, ratio), best, baseline, traded)


def _frontier(ranked: Sequence[Option], by: By, dominance: Dominance) -> list[Option]:
    """Those on the frontier by what they are ranked by, in the same order."""
    if by != "trained":
        return _best(ranked, [option.score for option in ranked], dominance)
    trained = {option.id: -math.log(option.trained) for option in ranked if option.trained is not None}
    first, rest = [[option for option in ranked if (option.id in trained) is known] for known in (True, False)]
    return [
        *_best(first, [trained[option.id] for option in first], replace(dominance, logarithmic=True)),
        *_best(rest, [option.score for option in rest], dominance),
    ]


def _best(options: Sequence[Option], qualities: Sequence[float], dominance: Dominance) -> list[Option]:
    points = [
        (quality, option.latency.value, option.memory.value) for option, quality in zip(options, qualities, strict=True)
    ]
    kept = dominance.frontier(points, [option.digest for option in options])
    return [option for option, keep in zip(options, kept, strict=True) if keep]


def _surely_better(option: Option, stock: Option, ratio: QualityRatio) -> bool:
    """Whether its quality is better by more than the interval of the difference, where there is one."""
    difference = _difference(option, stock, ratio)
    if difference is None or difference.spread is None:
        return option.score > stock.score
    return difference.below


def _difference(option: Option, other: Option, ratio: QualityRatio) -> Ratio | None:
    """Perplexity of one by that of the other, after training or as predicted; None where neither is known of both."""
    if option.trained is not None and other.trained is not None:
        return Figure(option.trained, TRAINING_SPREAD).over(Figure(other.trained, TRAINING_SPREAD))
    if option.predicted is not None and other.predicted is not None:
        return ratio(option, other)
    return None


def _rank(option: Option) -> tuple[float, float, bool, str]:
    # The stock model wins a tie, as with a candidate that is the stock model itself.
    return -option.score, option.latency.value, not option.stock, option.id


def runners_up(best: AnyOption, others: Sequence[AnyOption], count: int) -> list[AnyOption]:
    """So many of the others, which are ranked: first those that are faster or smaller than all better ones for sure."""
    traded: list[AnyOption] = []
    for other in others:
        if all(
            other.latency.over(kept.latency).below or other.memory.over(kept.memory).below for kept in (best, *traded)
        ):
            traded.append(other)
    chosen = traded[:count]
    chosen += [other for other in others if other not in chosen][: count - len(chosen)]
    return sorted(chosen, key=others.index)


# Sentences ------------------------------------------------------------------------------------------------------------


def _trade(option: Option, other: Option, proxy: str, ratio: QualityRatio) -> str:
    """What one gives and takes against another."""
    parts = [
        option.latency.over(other.latency).in_percent("latency"),
        option.memory.over(other.memory).in_percent("peak memory"),
        _quality(option, other, proxy, ratio),
    ]
    return ", ".join(parts)


def _quality(option: Option, other: Option, proxy: str, ratio: QualityRatio) -> str:
    difference = _difference(option, other, ratio)
    if difference is not None:
        trained = option.trained is not None and other.trained is not None
        return difference.in_percent("perplexity after training") if trained else _predicted(difference)
    if option.score == other.score:
        return f"equal by {proxy}"
    if proxy.endswith("_parameters") and option.score > 0 and other.score > 0:
        return Ratio(option.score / other.score, 0.0).in_percent(proxy.replace("_", " "), "more", "less")
    return f"ranked {'higher' if option.score > other.score else 'lower'} by {proxy}"


def _predicted(ratio: Ratio) -> str:
    """With its median also where the interval holds 1: what is known of a training that nobody has made."""
    if ratio.spread is None or ratio.above or ratio.below:
        return ratio.in_percent("predicted perplexity")
    return f"no sure difference in predicted perplexity ({_percent(ratio)})"


def _percent(ratio: Ratio) -> str:
    """`1.6 ± 2.8 % lower`, also where the interval holds 1; the spread is known."""
    return f"{' '.join(ratio.change)} {'higher' if ratio.value >= 1 else 'lower'}"


def _sentence(
    best: Option, baseline: Option | None, limits: OptionLimits, proxy: str, own: bool, ratio: QualityRatio
) -> str:
    begin, end = _begin(limits), _end(best, limits)
    if proxy == "published_score":
        return f"{begin} a published model of score {plain(best.score)} is the best that was measured here{end}"
    if baseline is None and own:
        return f"{begin}{_reaches(best)}; my model was not measured{end}"
    if baseline is None:
        return f"{begin}{_reaches(best)}; no depth of the stock model is within the limits{end}"
    against = f"the stock model ({baseline.name})"
    if own:
        against = "my model" + (", which is beyond the limits" if limits.violation(baseline) else "")
    quality = f"{_quality(best, baseline, proxy, ratio)}{_of_ratio(best, baseline)}"
    return (
        f"{begin}{_reaches(best)}. Against {against}: {quality}, "
        + ", ".join(
            [
                best.latency.over(baseline.latency).in_percent("latency"),
                best.memory.over(baseline.memory).in_percent("peak memory"),
            ]
        )
        + end
    )


def _stock_sentence(
    stock: Option, searched: Option | None, limits: OptionLimits, proxy: str, own: bool, ratio: QualityRatio
) -> str:
    """Why a stock model is the answer; `searched` is the best of the others."""
    model = "my model" if own else f"the stock model with {stock.name}"
    begin = f"{_begin(limits)} {model} is the answer"
    if searched is None:
        return f"{begin}: nothing else that was measured is within the limits{_end(stock, limits)}"
    difference = _difference(searched, stock, ratio)
    if difference is None or difference.spread is None:
        return f"{begin}: the best searched model is {_quality(searched, stock, proxy, ratio)}{_end(stock, limits)}"
    trained = searched.trained is not None and stock.trained is not None
    what = "perplexity after training" if trained else "predicted perplexity"
    label = "" if trained else _of(searched)
    found = f"{begin}: the best searched model's {what} is {_percent(difference)}{label}"
    if difference.above:
        return f"{found}{_end(stock, limits)}"
    remedy = "" if trained else " Training both would tell."
    return f"{found}, which is no sure difference{_end(stock, limits)}{remedy}"


def _short(best: Option, baseline: Option | None, own: bool, ratio: QualityRatio) -> str:
    """`5 layers × 320, 29 ms, perplexity 32: 15 % lower than the stock model's`."""
    time = f"{best.latency.value:.3g} ms" if best.token_ms is None else f"{best.token_ms:.3g} ms a token"
    stock = "my model" if own else "the stock model"
    if best.stock:
        return f"{best.name}, {time}: {stock}, as no other is better for sure"
    parts = [best.name, time]
    if best.perplexity is not None and (best.trained is not None or not best.relative):
        parts.append(f"perplexity {best.perplexity.value:.3g}")
    difference = None if baseline is None else _difference(best, baseline, ratio)
    end = ""
    if difference is not None:
        percent = 100 * (difference.value - 1)
        end = f": {abs(percent):.2g} % {'higher' if percent > 0 else 'lower'} perplexity than {stock}"
    return ", ".join(parts) + end


def _begin(limits: OptionLimits) -> str:
    return f"Within {limits}" if str(limits) else "Without limits"


def _end(best: Option, limits: OptionLimits) -> str:
    beyond = limits.latency_ms is not None and best.latency.high > limits.latency_ms
    return ". The interval of its latency reaches beyond the limit." if beyond else "."


def _cut_sentence(best: Option, whole: Option, limits: OptionLimits) -> str:
    """About a part of a model, which has not been trained since it was cut."""
    assert best.predicted is not None
    before = "" if whole.predicted is None else f"{whole.predicted.value:.4g} → "
    return (
        f"{_begin(limits)} a part of my model is "
        f"{whole.latency.value / best.latency.value:.2g} × as fast, perplexity {before}{best.predicted} "
        f"before healing{_of(best)}, {best.memory.over(whole.memory).in_percent('peak memory')}"
        f"{_end(best, limits)}"
        f"{' My model itself is beyond the limits.' if limits.violation(whole) else ''}"
    )


def _reaches(best: Option) -> str:
    if best.trained is not None:
        return f": {best.name}, perplexity {best.trained:.4g} after training"
    if best.predicted is not None and not best.relative:
        return f": {best.name}, predicted perplexity {best.predicted}{_of(best)}"
    return f": {best.name}, {best.parameters / 1e6:.3g} M decoder parameters"


def _of(option: Option) -> str:
    return f" ({option.label})" if option.label else ""


def _of_ratio(best: Option, baseline: Option) -> str:
    """What a difference in predicted perplexity is of, where `_reaches` has not said it."""
    if best.predicted is None or baseline.predicted is None:
        return ""
    if best.trained is not None and baseline.trained is not None:
        return ""  # the difference is that of the trained ones
    return _of(best) if best.relative or best.trained is not None else ""


# Nothing fits ---------------------------------------------------------------------------------------------------------


def _nothing_fits(options: Sequence[Option], limits: OptionLimits, by: By) -> Recommendation:
    nearest = min(options, key=lambda option: (limits.violation(option), *_rank(option)))
    either = _alone(options, limits)
    exceeded = [name for name, limit in limits.given.items() if nearest.value(name) > limit]
    moves = either or tuple(_move(name, nearest) for name in exceeded)
    words = (" or " if either else " and ").join(_in_words(move, limits) for move in moves)
    figures = [f"a latency of {nearest.latency} ms"]
    figures += [f"{nearest.value(name):.4g} {_UNITS[name]}" for name in limits.given if name in _TIMES]
    figures.append(f"a peak memory of {nearest.memory.value / MB:.1f} MB")
    has = f"{', '.join(figures[:-1])} and {figures[-1]}"
    sentence = f"Nothing that was measured is within {limits}. The nearest has {has}: {words}.{_unit(options, limits)}"
    return Recommendation(sentence, by, nearest=nearest, moves=moves)


_TIMES: tuple[LimitName, ...] = ("first_token_ms", "token_ms")


def _alone(options: Sequence[Option], limits: OptionLimits) -> tuple[Move, ...]:
    """For each limit the least that it would have to be if the others stayed; empty where no limit suffices alone."""
    moves: list[Move] = []
    for name in limits.given:
        freed = replace(limits, **{name: None})
        others = [option for option in options if freed.violation(option) == 0]
        moves += [
            _move(name, other) for other in sorted(others, key=lambda option: (option.value(name), option.id))[:1]
        ]
    return tuple(moves)


def _move(limit: LimitName, option: Option) -> Move:
    high = {"latency_ms": option.latency.high, "memory_mb": option.memory.high / MB}
    return Move(limit, rounded_up(high.get(limit, option.value(limit))), option)


def _in_words(move: Move, limits: OptionLimits) -> str:
    unit = "MB" if move.limit == "memory_mb" else "ms"
    return f"raise the {_NAMES[move.limit]} limit from {plain(limits.given[move.limit])} to {plain(move.to)} {unit}"


def _unit(options: Sequence[Option], limits: OptionLimits) -> str:
    """A hint where a limit is so far below everything that it was probably meant in another unit."""
    hints = []
    for name, limit in limits.given.items():
        if limit * MISTAKEN_UNIT_FACTOR > min(option.value(name) for option in options):
            continue
        if name == "memory_mb":
            hints.append(f" If the memory was meant in GB, it is {plain(limit * 1000)} MB.")
        else:
            hints.append(f" If the {_NAMES[name]} was meant in seconds, it is {plain(limit * 1000)} ms.")
    return "".join(hints)
