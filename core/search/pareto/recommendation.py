"""Recommends the best measured model within limits, compares it with the stock model, and names alternatives.

It is one of the frontier of those within the limits, by the job's ε. A stock model within the limits is the answer
unless another is better for sure: by more than the interval of their difference.

Quality is the perplexity that models reached which were trained alike, if there are two and the best by prediction is
among them; else it is what the job ranks by: one training alone has nothing to be compared with.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from edgefront.core.common.units import MB, rounded_up
from edgefront.core.search.pareto import sentences
from edgefront.core.search.pareto.frontier import Dominance
from edgefront.core.search.pareto.options import (
    By,
    LimitName,
    Move,
    Option,
    OptionLimits,
    QualityRatio,
    difference,
    independent,
)

RUNNERS_UP = 3
EVERY_DIFFERENCE = Dominance()


@dataclass(frozen=True)
class Recommendation:
    """The answer; `best` is None if nothing that was measured is within the limits."""

    sentence: str
    by: By
    short: str = ""
    """The same in a few words, for a list; empty where nothing was measured."""
    best: Option | None = None
    baseline: Option | None = None
    """The largest stock model within the limits."""
    runners_up: tuple[tuple[Option, str], ...] = ()
    """Alternatives, each with what it trades against the best."""
    nearest: Option | None = None
    """The option nearest to the limits, if none is within them."""
    moves: tuple[Move, ...] = ()
    """Limits of which each alone could be moved; or all to move together, if one is not enough."""


def recommend(
    options: Sequence[Option],
    limits: OptionLimits,
    proxy: str,
    *,
    own: bool = False,
    inherits: bool = False,
    deeper: str = "",
    ratio: QualityRatio = independent,
    dominance: Dominance = EVERY_DIFFERENCE,
) -> Recommendation:
    """The recommendation among measured options under limits; `proxy` is the name of what `score` is.

    `own`: the stock model is the user's, with which is compared whether or not it is within the limits; `inherits`: the
    others are parts of it. `deeper` is the depth of the stock model that is predicted to be the largest within the
    limits, where it was not measured. `ratio` is asked for two options with a predicted perplexity. `dominance` is the
    job's.
    """
    by, searched, best, baseline = _ranked(options, limits, proxy, own, ratio, dominance)
    if not options:
        return Recommendation("Nothing has been measured yet.", by)
    if best is None:
        return _nothing_fits(options, limits, by)
    others = [option for option in searched if option is not best]
    traded = tuple(
        (option, sentences.trade(option, best, proxy, ratio)) for option in runners_up(best, others, RUNNERS_UP)
    )
    if best.stock:
        if not searched:
            sentence = sentences.stock_alone(best, limits, own, tried=not all(option.stock for option in options))
        else:
            sentence = sentences.stock(best, searched[0], limits, proxy, own, ratio)
    elif inherits and baseline is not None and best.predicted is not None and best.trained is None:
        sentence = sentences.cut(best, baseline, limits)
    else:
        sentence = sentences.better(best, baseline, limits, proxy, own, ratio)
    sentence += sentences.unmeasured(deeper)
    return Recommendation(sentence, by, sentences.short(best, baseline, own, ratio), best, baseline, traded)


def _ranked(
    options: Sequence[Option],
    limits: OptionLimits,
    proxy: str,
    own: bool,
    ratio: QualityRatio,
    dominance: Dominance,
) -> tuple[By, list[Option], Option | None, Option | None]:
    """By what models are ranked, the searched ones within the limits, the best first, the answer, and the baseline."""
    by: By = "predicted" if proxy == "quality_law" else "proxy"
    within = sorted((option for option in options if limits.violation(option) == 0), key=_rank)
    if not within:
        return by, [], None, None
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
    return by, searched, next(iter(ahead), None) or baseline, baseline


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
    change = difference(option, stock, ratio)
    if change is None or change.spread is None:
        return option.score > stock.score
    return change.below


def _rank(option: Option) -> tuple[float, float, bool, str]:
    # The stock model wins a tie, as with a candidate that is the stock model itself.
    return -option.score, option.latency.value, not option.stock, option.id


def runners_up(best: Option, others: Sequence[Option], count: int) -> list[Option]:
    """So many of the others, which are ranked: first those that are faster or smaller than all better ones for sure."""
    traded: list[Option] = []
    for other in others:
        if all(
            other.latency.over(kept.latency).below or other.memory.over(kept.memory).below for kept in (best, *traded)
        ):
            traded.append(other)
    chosen = traded[:count]
    chosen += [other for other in others if other not in chosen][: count - len(chosen)]
    return sorted(chosen, key=others.index)


def _nothing_fits(options: Sequence[Option], limits: OptionLimits, by: By) -> Recommendation:
    nearest = min(options, key=lambda option: (limits.violation(option), *_rank(option)))
    either = _alone(options, limits)
    exceeded = [name for name, limit in limits.given.items() if nearest.value(name) > limit]
    moves = either or tuple(_move(name, nearest) for name in exceeded)
    sentence = sentences.nothing_fits(options, nearest, moves, limits, together=not either)
    return Recommendation(sentence, by, sentences.nothing_short(limits), nearest=nearest, moves=moves)


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
