"""Sentences that explain recommendations. A sentence claims only differences that the intervals of ratios support."""

from __future__ import annotations

from collections.abc import Sequence

from edgefront.core.common.units import plain, rounded
from edgefront.core.search.pareto.options import (
    NAMES,
    TIMES,
    UNITS,
    Estimate,
    Move,
    Option,
    OptionLimits,
    QualityRatio,
    Ratio,
    difference,
)

MISTAKEN_UNIT_FACTOR = 100.0
"""Factor by which every option exceeds a limit that was probably given in another unit."""


def trade(option: Option, other: Option, limits: OptionLimits, proxy: str, ratio: QualityRatio) -> str:
    """Describes the differences of `option` from `other` in time, peak memory and quality."""
    return f"{_costs(option, other, limits)}, {_quality(option, other, proxy, ratio)}"


def published_trade(option: Option, best: Option, limits: OptionLimits, benchmark: str) -> str:
    """Describes the differences of a published model from the best published model."""
    difference = option.score - best.score
    if option.digest == best.digest:
        quality = "the same model"
        if option.bits != best.bits:
            quality += f" in {option.bits} bits a weight, whose loss of quality is not known"
    elif not difference:
        quality = f"equal in {benchmark}"
    else:
        quality = f"{benchmark} {abs(difference):.1f} {'higher' if difference > 0 else 'lower'}"
    return f"{quality}, {_costs(option, best, limits)}"


def _costs(option: Option, other: Option, limits: OptionLimits) -> str:
    name, time = pace(option, other, limits)
    return f"{time.in_percent(name)}, {option.memory.over(other.memory).in_percent('peak memory')}"


def pace(option: Option, other: Option, limits: OptionLimits) -> tuple[str, Ratio]:
    """Name and ratio of the limited times of two options; of their latencies if no other time is limited."""
    name = limits.pace
    own, others = option.figure(name), other.figure(name)
    if own is None or others is None:
        return TIMES["latency_ms"], option.latency.over(other.latency)
    return TIMES[name], own.over(others)


def measured(best: Option, limits: OptionLimits) -> str:
    """The limited figures with their intervals, and how they stand: `19.8 ± 1.1 ms a further token, within`; without
    limits the latency and the peak memory.
    """
    stands = limits.standings(best)
    figures = [f"{best.figure(name)} {UNITS[name]}, {stand}" for name, stand in stands.items()]
    return "; ".join(figures) or f"{best.latency} ms; {best.figure('memory_mb')} MB"


def short(best: Option, baseline: Option | None, own: bool, ratio: QualityRatio) -> str:
    """The answer in a few words: `5 layers × 320, 29 ms, perplexity 32: 15 % better than stock`."""
    time = best.latency if best.token is None else best.token
    parts = [best.name, f"{time} ms{'' if best.token is None else ' a token'}"]
    if best.stock:
        return f"{', '.join(parts)}: {'my model' if own else 'the baseline'}, nothing is better for sure"
    if best.perplexity is not None and (best.trained is not None or not best.relative):
        parts.append(f"perplexity {rounded(best.perplexity.value, 3)}")
    change = None if baseline is None else difference(best, baseline, ratio)
    if change is None:
        return ", ".join(parts)
    percent = 100 * (change.value - 1)
    end = f"{abs(percent):.2g} % {'worse' if percent > 0 else 'better'} than {'my model' if own else 'the baseline'}"
    return f"{', '.join(parts)}: {end}" if len(parts) > 2 else f"{', '.join(parts)}: perplexity {end}"


def nothing_short(limits: OptionLimits, models: int | None = None) -> str:
    """Says that all models, or a target's `models`, are not within the limits."""
    what = "all that was measured" if models is None else f"{models} model{'' if models == 1 else 's'}"
    return f"not within {limits}: {what}"


def better(
    best: Option, baseline: Option | None, limits: OptionLimits, proxy: str, own: bool, ratio: QualityRatio
) -> str:
    """The sentence for an answer that is a searched model."""
    begin, end = _begin(best, limits), _end(best, limits)
    if proxy == "published_score":
        return f"{begin}, a published model of score {plain(best.score)} is the best that was measured here{end}"
    if baseline is None and own:
        return f"{begin}: {_reaches(best)}; my model was not measured{end}"
    if baseline is None:
        return f"{begin}: {_reaches(best)}; no depth of the baseline is within the limits{end}"
    whose = f"the baseline's ({baseline.name})"
    if own:
        whose = "my model's" + (", which is beyond the limits" if limits.violation(baseline) else "")
    name, time = pace(best, baseline, limits)
    costs = (
        _in_brief(time, name),
        _in_brief(best.memory.over(baseline.memory), "peak memory"),
    )
    change = difference(best, baseline, ratio)
    if change is None or change.spread is None:
        whom = whose.replace("'s", "", 1)
        quality = _quality(best, baseline, proxy, ratio)
        return f"{begin}: {_reaches(best)}. Against {whom}: {', '.join((quality, *costs))}{end}"
    unsure = "" if change.above or change.below else " (no sure difference)"
    reaches = best.name if best.relative and best.trained is None else _reaches(best)
    return f"{begin}: {reaches}{_by(best, baseline, change)} than {whose}{unsure}; {', '.join(costs)}{end}"


def stock(best: Option, searched: Option, limits: OptionLimits, proxy: str, own: bool, ratio: QualityRatio) -> str:
    """The sentence for an answer that is a stock model; `searched` is the best searched model."""
    begin = _stock(best, limits, own)
    change = difference(searched, best, ratio)
    if change is None or change.spread is None:
        return f"{begin}: the best searched model is {_quality(searched, best, proxy, ratio)}{_end(best, limits)}"
    trained = searched.trained is not None and best.trained is not None
    what = "perplexity after training" if trained else "predicted perplexity"
    label = "" if trained else _of(searched)
    found = f"{begin}: the best searched model's {what} is {_percent(change)}{label}"
    if change.above:
        return f"{found}{_end(best, limits)}"
    missing = [option for option in (searched, best) if option.trained is None and not option.trained_alone]
    whom = "both" if len(missing) > 1 else f"{missing[0].name} too" if missing else ""
    remedy = f" Training {whom} would tell." if whom else ""
    return f"{found}, no sure difference{_end(best, limits)}{remedy}"


def stock_alone(best: Option, limits: OptionLimits, own: bool, tried: bool) -> str:
    """The sentence for a stock model if no searched model is within the limits; `tried`: whether some were measured."""
    why = "no searched model that was measured is within the limits" if tried else "no searched model was measured"
    return f"{_stock(best, limits, own)}: {why}{_end(best, limits)}"


def _stock(best: Option, limits: OptionLimits, own: bool) -> str:
    model = "my model" if own else f"the baseline with {best.name}"
    return f"{_begin(best, limits)}, {model} is the answer"


def surely_within(best: Option, surest: Option | None, limits: OptionLimits, name: str = "") -> str:
    """Names the best option that is within the limits for sure (as `name`, if given); empty if that is `best`."""
    if surest is best:
        return ""
    if surest is None:
        return " No measured model is surely within."
    figures = ", ".join(f"{surest.figure(limit)} {UNITS[limit]}" for limit in limits.given)
    conditions = "" if surest.conditions == best.conditions else f", {surest.conditions.partition(' (')[0]}"
    name = name or f"{'the baseline with ' if surest.stock else ''}{_reaches(surest)}"
    return f" Surely within: {name}, {figures}{conditions}."


def unmeasured(deeper: str) -> str:
    """The sentence that the unmeasured stock model with the name `deeper` is predicted to be within the limits."""
    return f" The baseline with {deeper}, not measured, is predicted to be within them." if deeper else ""


def cut(best: Option, whole: Option, limits: OptionLimits) -> str:
    """The sentence for an answer that is cut from the user's model and not trained since."""
    assert best.predicted is not None
    before = "" if whole.predicted is None else f"{rounded(whole.predicted.value, 4)} → "
    name, time = pace(whole, best, limits)
    return (
        f"{_begin(best, limits)}, a part of my model is "
        f"{Estimate(time.value, time.spread)} × as fast ({name}), perplexity {before}{best.predicted} "
        f"before healing{_of(best)}, {_in_brief(best.memory.over(whole.memory), 'peak memory')}"
        f"{_end(best, limits)}"
        f"{' My model itself is beyond the limits.' if limits.violation(whole) else ''}"
    )


def nothing_fits(
    options: Sequence[Option], nearest: Option, moves: Sequence[Move], limits: OptionLimits, together: bool
) -> str:
    """The sentence that names the nearest option and the limits to raise: any one limit, or all limits `together`."""
    times = [name for name in limits.given if name.endswith("token_ms")]
    figures = [f"{nearest.latency} ms", *(f"{nearest.figure(name)} {UNITS[name]}" for name in times)]
    units = {"memory_mb": "MB"}  # the others are in ms
    raised = [f"the {NAMES[move.limit]} limit to {plain(move.to)} {units.get(move.limit, 'ms')}" for move in moves]
    words = _listed(raised, "and" if together else "or")
    takes = _listed([*figures, f"{nearest.figure('memory_mb')} MB"], "and")
    named = f"The nearest, {nearest.name}, takes {takes}: raise {words}.{_unit(options, limits)}"
    return f"Nothing that was measured is within {limits}. {named}"


def _listed(words: Sequence[str], last: str) -> str:
    return f" {last} ".join([*([", ".join(words[:-1])] if len(words) > 1 else []), *words[-1:]])


def _quality(option: Option, other: Option, proxy: str, ratio: QualityRatio) -> str:
    change = difference(option, other, ratio)
    if change is not None:
        trained = option.trained is not None and other.trained is not None
        return change.in_percent("perplexity after training") if trained else _predicted(change)
    if option.score == other.score:
        return f"equal by {proxy}"
    if proxy.endswith("_parameters") and option.score > 0 and other.score > 0:
        return Ratio(option.score / other.score, 0.0).in_percent(proxy.replace("_", " "), "more", "less")
    return f"ranked {'higher' if option.score > other.score else 'lower'} by {proxy}"


def _predicted(ratio: Ratio) -> str:
    """The ratio of predicted perplexities in words, including the percentage if the interval contains 1."""
    if ratio.spread is None or ratio.above or ratio.below:
        return ratio.in_percent("predicted perplexity")
    return f"no sure difference in predicted perplexity ({_percent(ratio)})"


def _percent(ratio: Ratio) -> str:
    """The ratio as `1.6 ± 2.8 % lower`, even if the interval contains 1. The spread must be known."""
    return f"{' '.join(ratio.change)} {'higher' if ratio.value >= 1 else 'lower'}"


def _in_brief(ratio: Ratio, name: str) -> str:
    """The ratio as `latency 4.1 ± 1.2 % lower`, or `same latency (± 2.3 %)` if a narrow interval contains 1."""
    is_same = ratio.spread is not None and not (ratio.above or ratio.below or ratio.unsure(name))
    return f"same {name} ({ratio.change[1]})" if is_same else ratio.in_percent(name)


def _by(best: Option, baseline: Option, change: Ratio) -> str:
    """The difference between the perplexities of the best option and the baseline, as text that follows `_reaches`."""
    if best.trained is not None and baseline.trained is not None:
        return f", {_percent(change)}"
    if best.trained is not None or best.relative:
        return f", predicted perplexity {_percent(change)}{_of(best)}"
    return f", {_percent(change)}"


def _begin(best: Option, limits: OptionLimits) -> str:
    return f"{within(limits)}, {best.conditions}"


def within(limits: OptionLimits) -> str:
    return f"Within {limits}" if str(limits) else "Without limits"


def _end(best: Option, limits: OptionLimits) -> str:
    return f". It takes {measured(best, limits)}."


def _reaches(best: Option) -> str:
    if best.trained is not None:
        return f"{best.name}, perplexity {rounded(best.trained, 4)} after training"
    if best.predicted is not None and not best.relative:
        return f"{best.name}, predicted perplexity {best.predicted}{_of(best)}"
    return f"{best.name}, {rounded(best.parameters / 1e6, 3)} M decoder parameters"


def _of(option: Option) -> str:
    return f" ({option.label})" if option.label else ""


def _unit(options: Sequence[Option], limits: OptionLimits) -> str:
    """A hint for each limit that is so far below every option that another unit was probably meant; empty if none."""
    hints = []
    for name, limit in limits.given.items():
        if limit * MISTAKEN_UNIT_FACTOR > min(option.value(name) for option in options):
            continue
        if name == "memory_mb":
            hints.append(f" If the memory was meant in GB, it is {plain(limit * 1000)} MB.")
        else:
            hints.append(f" If the {NAMES[name]} was meant in seconds, it is {plain(limit * 1000)} ms.")
    return "".join(hints)
