"""Recommends the best measured model within limits, compares the best with the stock model, and lists alternatives.

1. Rank the options within the limits by quality: by perplexity after training if at least two models have the same
   training and the best by prediction is among these models, otherwise by the job's proxy.
2. The answer is the best searched option on the frontier of these options, if significantly better than the stock
   model, i.e. by more than the interval of the difference. Otherwise the answer is the stock model.
3. If no option is within the limits, the answer is the nearest option and the limits to raise.

Published models are ranked by score, then bits per weight, then latency (`rank_published`). The loss of quality by
quantisation is rarely known, so bits per weight are a separate objective, in which fewer bits are always worse.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from edgefront.core.common.units import rounded_up
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
PUBLISHED_RUNNERS_UP = 5
EVERY_DIFFERENCE = Dominance()


@dataclass(frozen=True)
class Recommendation:
    """The recommended model, a sentence and alternatives. `best` is None if no measured model is within the limits."""

    sentence: str
    by: By
    short: str = ""
    """The recommendation in a few words, for lists; empty if nothing was measured."""
    best: Option | None = None
    baseline: Option | None = None
    """The largest stock model within the limits."""
    surest: Option | None = None
    """The best option that is within the limits for sure; None if there is none."""
    runners_up: tuple[tuple[Option, str], ...] = ()
    """Alternatives, each with a description of the differences from the best model."""
    nearest: Option | None = None
    """The option nearest to the limits, if no option is within the limits."""
    moves: tuple[Move, ...] = ()
    """Limits to raise: any one suffices. If no limit suffices alone, all limits that must be raised together."""


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
    """Recommends one of the measured options within the limits.

    Args:
        proxy: name of the proxy that computed `Option.score`.
        own: whether the stock model is the user's model. The user's model is the baseline even if beyond the limits.
        inherits: whether the other options are cut from the stock model.
        deeper: name of the unmeasured stock model that is predicted to be the deepest within the limits, if any.
        ratio: function that returns the ratio of the predicted perplexities of two options.
        dominance: the job's dominance between points.
    """
    by, searched, best, baseline = _ranked(options, limits, proxy, own, ratio, dominance)
    if not options:
        return Recommendation("Nothing has been measured yet.", by)
    if best is None:
        return _nothing_fits(options, limits, by)
    surely = [option for option in options if limits.surely_met(option)]
    surest = best if limits.surely_met(best) else _ranked(surely, limits, proxy, own, ratio, dominance)[2]
    others = [option for option in searched if option is not best]
    traded = tuple(
        (option, sentences.trade(option, best, limits, proxy, ratio)) for option in runners_up(best, others, RUNNERS_UP)
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
    sentence += sentences.unmeasured(deeper) + sentences.surely_within(best, surest, limits)
    return Recommendation(sentence, by, sentences.short(best, baseline, own, ratio), best, baseline, surest, traded)


def _ranked(
    options: Sequence[Option],
    limits: OptionLimits,
    proxy: str,
    own: bool,
    ratio: QualityRatio,
    dominance: Dominance,
) -> tuple[By, list[Option], Option | None, Option | None]:
    """Returns the kind of ranking, the searched options within the limits (best first), the answer and the baseline."""
    by: By = "predicted" if proxy == "quality_law" else "proxy"
    within = sorted((option for option in options if limits.violation(option) == 0), key=_rank)
    if not within:
        return by, [], None, None
    trained = {option.id for option in within if option.trained is not None}
    if len(trained) == 1:
        within = [replace(option, trained=None, trained_alone=option.id in trained) for option in within]
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
    """Options of `ranked` on the frontier of quality, latency and memory, in the same order."""
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
    """Whether the option's quality is better than the stock model's by more than the interval of the difference. If the
    difference is unknown: whether the option's score is higher.
    """
    change = difference(option, stock, ratio)
    if change is None or change.spread is None:
        return option.score > stock.score
    return change.below


def _rank(option: Option) -> tuple[float, float, bool, str]:
    # The stock model wins a tie.
    return -option.score, option.latency.value, not option.stock, option.id


def runners_up(best: Option, others: Sequence[Option], count: int) -> list[Option]:
    """Returns up to `count` alternatives: first options that are surely faster or smaller than all better options."""
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
    """For each limit that can be raised alone to admit an option: the least value that admits an option."""
    moves: list[Move] = []
    for name in limits.given:
        freed = replace(limits, **{name: None})
        others = [option for option in options if freed.violation(option) == 0]
        moves += [
            _move(name, other) for other in sorted(others, key=lambda option: (option.value(name), option.id))[:1]
        ]
    return tuple(moves)


def _move(limit: LimitName, option: Option) -> Move:
    figure = option.figure(limit)
    return Move(limit, rounded_up(option.value(limit) if figure is None else figure.high), option)


# Published models ----------------------------------------------------------------------------------------------------


def rank_published(options: Sequence[Option]) -> list[Option]:
    """Sorts published models, best first, by highest score, then most bits per weight, then lowest latency."""
    return sorted(options, key=lambda option: (-option.score, -option.bits, option.latency.value, option.id))


def published_frontier(ranked: Sequence[Option], dominance: Dominance) -> list[Option]:
    """Options of `ranked` on the frontier of score, bits per weight, latency and memory, in the same order. Every
    difference of scores or bits counts.
    """
    points = [(0.0, option.latency.value, option.memory.value) for option in ranked]
    exact = [(option.score, float(option.bits)) for option in ranked]
    kept = dominance.frontier(points, [option.digest for option in ranked], exact)
    return [option for option, keep in zip(ranked, kept, strict=True) if keep]
