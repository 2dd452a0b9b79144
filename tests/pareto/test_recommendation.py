"""The recommendation among measured models, and what its sentences claim."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgefront.core.common.units import MB
from edgefront.core.measurement.statistics import standing
from edgefront.core.search.pareto.frontier import Dominance
from edgefront.core.search.pareto.options import MEMORY_SPREAD, Estimate, Option, OptionLimits
from edgefront.core.search.pareto.recommendation import recommend


def option(
    name: str,
    perplexity: float | None = 30.0,
    latency_ms: float = 40.0,
    memory_mb: float = 200.0,
    *,
    half_width_ms: float | None = 0.4,
    spread: float = 0.02,
    stock: bool = False,
    parameters: int = 10_000_000,
    trained: float | None = None,
    score: float | None = None,
) -> Option:
    return Option(
        id=name,
        digest=name,
        stock=stock,
        name="4 layers" if stock else "5 layers × 320",
        parameters=parameters,
        score=score if score is not None else -math.log(perplexity or 1.0),
        latency=Estimate.plus_minus(latency_ms, half_width_ms),
        memory=Estimate(memory_mb * MB, MEMORY_SPREAD),
        predicted=None if perplexity is None else Estimate(perplexity, spread),
        trained=trained,
        conditions="measured with 1 thread",
    )


LIMITS = OptionLimits(50.0, 300.0)


def test_the_best_within_the_limits_beside_the_largest_stock_model_within_them() -> None:
    options = [
        option("best", 30.0),
        option("better but slow", 20.0, 51.0),
        option("better but large", 20.0, 40.0, 301.0),
        option("stock 2", 40.0, 20.0, stock=True, parameters=2),
        option("stock 4", 34.0, 45.0, stock=True, parameters=4),
        option("stock 8", 25.0, 90.0, stock=True, parameters=8),
    ]
    answer = recommend(options, LIMITS, "quality_law")
    assert answer.by == "predicted"
    assert answer.best is not None
    assert answer.best.id == "best"
    assert answer.baseline is not None
    assert answer.baseline.id == "stock 4"
    assert answer.sentence == (
        "Within 50 ms and 300 MB, measured with 1 thread: 5 layers × 320, predicted perplexity 30.0 ± 0.6, 11.8 ± 2.5 "
        "% lower than the baseline's (4 layers); latency 11.1 ± 1.2 % lower, same peak memory (± 0.7 %). It takes "
        "40.0 ± 0.4 ms, within; 200.0 ± 1.0 MB, within."
    )
    assert answer.nearest is None
    assert answer.moves == ()


def test_the_surest_is_the_answer_among_those_that_are_within_for_sure() -> None:
    stock = option("stock", 34.0, 20.0, stock=True)
    near = option("near", 28.0, 49.0, half_width_ms=2.0)
    sure = replace(option("sure", 30.0), conditions="measured with 2 threads (idle)")
    answer = recommend([near, sure, stock], LIMITS, "quality_law")
    assert (answer.best, answer.surest) == (near, sure)
    surely = "Surely within: 5 layers × 320, predicted perplexity 30.0 ± 0.6, 40.0 ± 0.4 ms, 200.0 ± 1.0 MB"
    assert answer.sentence.endswith(f"{surely}, measured with 2 threads.")
    # One that is not better than the stock model for sure gives way to it here, too.
    alike = recommend([near, option("sure", 33.8), stock], LIMITS, "quality_law")
    assert alike.surest is stock
    assert "Surely within: the baseline with 4 layers, predicted perplexity 34.0 ± 0.7, 20.0" in alike.sentence
    alone = recommend([near], LIMITS, "quality_law")
    assert alone.surest is None
    assert alone.sentence.endswith("No measured model is surely within.")
    assert "urely" not in recommend([near, sure], OptionLimits(), "quality_law").sentence


def test_a_predicted_perplexity_says_once_what_it_is_of() -> None:
    best, stock = option("best", 30.0), option("stock", 34.0, 45.0, stock=True)

    def told(**changes: Any) -> str:
        labelled = [replace(each, label="Dolma, 10B tokens", **changes) for each in (best, stock)]
        return recommend(labelled, LIMITS, "quality_law").sentence

    assert "predicted perplexity 30.0 ± 0.6 (Dolma, 10B tokens), 11.8" in told()
    assert "predicted perplexity 11.8 ± 2.5 % lower (Dolma, 10B tokens) than the baseline's" in told(relative=True)
    assert told().count("Dolma") == told(relative=True).count("Dolma") == 1
    assert "Dolma" not in told(trained=31.0)


def test_what_intervals_do_not_support_is_not_claimed() -> None:
    stock = option("stock", 30.5, 41.0, stock=True, half_width_ms=2.0)
    answer = recommend([option("best", 30.0, half_width_ms=2.0), stock], LIMITS, "quality_law")
    assert answer.best is answer.baseline is stock
    assert answer.sentence == (
        "Within 50 ms and 300 MB, measured with 1 thread, the baseline with 4 layers is the answer: the best "
        "searched model's predicted perplexity is 1.6 ± 2.8 % lower, no sure difference. It takes 41.0 ± 2.0 ms, "
        "within; 200.0 ± 1.0 MB, within. Training both would tell."
    )
    ((runner_up, trade),) = answer.runners_up
    assert runner_up.id == "best"
    assert "no measurable difference in latency (± 7 %)" in trade
    busy = recommend([option("best", 20.0, 40.0, half_width_ms=20.0), stock], LIMITS, "quality_law").sentence
    assert "; difference in latency not known: 0.6 to 1.6 ×, same peak memory" in busy
    slow = recommend([option("best", 20.0, 143.5, half_width_ms=60.0), stock], OptionLimits(), "quality_law").sentence
    assert "; latency 2.3 to 5.3 ×, " in slow


@given(st.floats(0.5, 2), st.floats(0, 0.5), st.floats(0, 0.5))
def test_a_claim_holds_at_both_ends_of_its_interval(ratio: float, spread: float, other_spread: float) -> None:
    quotient = Estimate(ratio, spread).over(Estimate(1.0, other_spread))
    assert quotient.low is not None
    assert quotient.high is not None
    assert quotient.low <= ratio <= quotient.high
    claimed = quotient.in_percent("latency")
    unsure = "no measurable" in claimed or "not known" in claimed
    assert unsure == (quotient.low <= 1 <= quotient.high)
    assert not ("higher" in claimed and quotient.low <= 1)


def test_runners_up_are_the_best_that_trade_something() -> None:
    options = [
        option("best", 30.0, 45.0),
        option("like the best", 30.1, 45.1),
        option("faster", 31.0, 40.0, 210.0),
        option("worse than faster", 31.5, 44.0, 215.0),
        option("smaller", 32.0, 45.0, 150.0),
        option("both", 33.0, 30.0, 120.0),
    ]
    answer = recommend(options, LIMITS, "quality_law")
    assert [runner_up.id for runner_up, _ in answer.runners_up] == ["faster", "smaller", "both"]
    trades = {runner_up.id: trade for runner_up, trade in answer.runners_up}
    assert trades["faster"].startswith(
        "latency 11.1 ± 1.2 % lower, peak memory 5.0 ± 0.7 % higher, predicted perplexity"
    )
    stock = recommend([*options[:3], option("stock", 40.0, stock=True)], LIMITS, "quality_law")
    assert [runner_up.id for runner_up, _ in stock.runners_up] == ["like the best", "faster"]  # it stands beside them
    few = recommend(options[:3], LIMITS, "quality_law")
    assert [runner_up.id for runner_up, _ in few.runners_up] == ["like the best", "faster"]


def test_a_stock_model_that_nothing_beats_is_recommended_as_such() -> None:
    answer = recommend([option("searched", 31.0), option("stock", 30.0, stock=True)], LIMITS, "quality_law")
    assert answer.best is not None
    assert answer.best.stock
    assert (
        "the baseline with 4 layers is the answer: the best searched model's predicted perplexity is 3"
        in answer.sentence
    )
    alone = recommend([option("searched", 20.0, 60.0), option("stock", stock=True)], LIMITS, "quality_law")
    assert "is the answer: no searched model that was measured is within the limits." in alone.sentence
    before = recommend([option("stock", stock=True)], LIMITS, "quality_law")
    assert "is the answer: no searched model was measured." in before.sentence


@pytest.mark.parametrize("trained", [False, True])
def test_the_best_that_is_better_than_the_stock_model_for_sure(trained: bool) -> None:
    """What is ahead by less than the interval of its difference is passed over."""

    def of(name: str, perplexity: float, **more: Any) -> Option:
        return option(name, perplexity, trained=perplexity if trained else None, **more)

    stock = of("stock", 30.0, latency_ms=45.0, stock=True)
    options = [of("unsure", 28.0, spread=0.2), of("sure", 29.0, latency_ms=30.0, spread=0.001), stock]
    answer = recommend(options, LIMITS, "quality_law")
    assert answer.best is not None
    assert answer.best.id == ("unsure" if trained else "sure")  # by training both are
    assert answer.baseline is stock


def test_my_own_model_is_the_answer_only_within_the_limits() -> None:
    mine, other = option("mine", 30.0, 45.0, stock=True), option("other", 31.0, 20.0)
    kept = recommend([mine, other], LIMITS, "quality_law", own=True)
    assert (kept.best, kept.short) == (mine, "4 layers, 45.0 ± 0.4 ms: my model, nothing is better for sure")
    slow = option("mine", 30.0, 55.0, stock=True)
    answer = recommend([slow, other], LIMITS, "quality_law", own=True)
    assert (answer.best, answer.baseline) == (other, slow)
    assert answer.short.endswith("perplexity 31: 3.3 % worse than my model")
    assert "3.3 ± 2.9 % higher than my model's, which is beyond the limits; latency" in answer.sentence


def test_the_answer_is_on_the_frontier_of_those_within_the_limits() -> None:
    options = [option("best", 30.0, 45.0), option("alike", 30.2, 20.0), option("beyond", 25.0, 60.0)]
    every = recommend(options, LIMITS, "quality_law").best
    coarse = recommend(options, LIMITS, "quality_law", dominance=Dominance(0.3, logarithmic=True)).best
    assert (every and every.id, coarse and coarse.id) == ("best", "alike")


def test_trained_perplexity_decides_among_those_trained_alike() -> None:
    options = [option("a", 30.0, trained=41.0), option("b", 30.5, trained=39.0), option("c", 32.0)]
    answer = recommend(options, LIMITS, "quality_law")
    assert answer.by == "trained"
    assert answer.best is not None
    assert answer.best.id == "b"
    assert "5 layers × 320, perplexity 39 after training" in answer.sentence
    assert "perplexity after training 5.1 ± 1.8 % higher" in {
        runner_up.id: trade for runner_up, trade in answer.runners_up
    }["a"]  # fmt: skip
    # One training has nothing to be compared with.
    alone = recommend([options[0], option("c", 32.0)], LIMITS, "quality_law")
    assert (alone.by, "predicted perplexity 30.0" in alone.sentence) == ("predicted", True)
    # Where the best by prediction was not trained, the others' trainings do not speak for it.
    beside = recommend([*options, option("d", 25.0)], LIMITS, "quality_law")
    assert (beside.by, beside.best and beside.best.id) == ("predicted", "d")


def test_other_proxies_are_spoken_of_as_what_they_are() -> None:
    options = [
        option("best", None, score=12e6),
        option("stock", None, 45.0, stock=True, score=10e6),
    ]
    counted = recommend(options, LIMITS, "decoder_parameters")
    assert counted.by == "proxy"
    assert "decoder parameters 20.0 % more" in counted.sentence
    assert "ranked higher by snip" in recommend(options, LIMITS, "snip").sentence


@pytest.mark.parametrize(
    ("limits", "nearest", "moves", "words"),
    [
        (OptionLimits(10.0, 300.0), "fast", [("latency_ms", 20.3)], "raise the latency limit to 20.3 ms."),
        (
            OptionLimits(30.0, 100.0),
            "small",
            [("latency_ms", 40.5), ("memory_mb", 202.0)],
            "raise the latency limit to 40.5 ms or the memory limit to 202 MB.",
        ),
        (
            OptionLimits(10.0, 50.0),
            "small",
            [("latency_ms", 40.5), ("memory_mb", 80.5)],
            "raise the latency limit to 40.5 ms and the memory limit to 80.5 MB.",
        ),
    ],
)
def test_where_nothing_fits_the_nearest_and_the_limits_to_move(
    limits: OptionLimits, nearest: str, moves: list[tuple[str, float]], words: str
) -> None:
    options = [option("fast", 60.0, 20.0, 200.0, half_width_ms=0.2), option("small", 50.0, 40.0, 80.0)]
    answer = recommend(options, limits, "quality_law")
    assert answer.best is None
    assert answer.baseline is None
    assert answer.nearest is not None
    assert answer.nearest.id == nearest
    assert [(move.limit, move.to) for move in answer.moves] == moves
    assert answer.sentence.endswith(words)
    # What is told suffices.
    wide = dict(moves) if " and the" not in words else {}
    for limit, to in wide.items():
        assert recommend(options, OptionLimits(**{**vars(limits), limit: to}), "quality_law").best is not None


def test_of_two_that_are_equally_near_the_stock_model_is_nearest() -> None:
    options = [option("alike", 30.0, 60.0), option("stock", 30.0, 60.0, stock=True)]
    answer = recommend(options, LIMITS, "quality_law")
    assert answer.nearest is not None
    assert answer.nearest.stock


def test_limits_in_other_units_are_recognised_by_what_was_measured() -> None:
    options = [option("only", 30.0, 40.0, 200.0)]
    assert recommend(options, OptionLimits(0.05), "x").sentence.endswith(
        "If the latency was meant in seconds, it is 50 ms."
    )
    assert recommend(options, OptionLimits(None, 0.3), "x").sentence.endswith(
        "If the memory was meant in GB, it is 300 MB."
    )
    assert "meant" not in recommend(options, OptionLimits(5.0), "x").sentence


def test_without_limits_and_beyond_them() -> None:
    stock = option("stock", 34.0, stock=True)
    assert recommend([option("best"), stock], OptionLimits(), "quality_law").sentence.startswith(
        "Without limits, measured with 1 thread: 5 layers × 320, predicted"
    )


@pytest.mark.parametrize(
    ("latency_ms", "stands"),
    [(49.5, "within"), (49.7, "probably within"), (49.9, "at the limit"), (50.3, "at the limit"), (50.5, "beyond")],
)
def test_how_a_figure_stands_to_its_limit_is_part_of_the_answer(latency_ms: float, stands: str) -> None:
    assert standing(latency_ms, math.asinh(0.4 / latency_ms), 50.0) == stands
    if latency_ms <= 50.0:
        assert f"{latency_ms} ± 0.4 ms, {stands}; " in recommend([option("b", 30.0, latency_ms)], LIMITS, "x").sentence


def test_the_limited_time_is_compared() -> None:
    limits = OptionLimits(token_ms=40.0, latency_ms=900.0)
    times = {"first_token": Estimate(20.0, 0.05), "token": Estimate(5.0, 0.05)}
    best = replace(
        option("best"), conditions="measured with 2 threads while other programs took 48 % of its time", **times
    )
    stock = replace(option("stock", 34.0, stock=True), **{**times, "token": Estimate(10.0, 0.05)})
    answer = recommend([best, stock], limits, "quality_law").sentence
    assert answer.startswith(
        "Within 900 ms and 40 ms a further token, measured with 2 threads while other programs took 48 % of its time: "
    )
    assert "time of a further token 50 ± 4 % lower, " in answer
    assert answer.endswith("It takes 40.0 ± 0.4 ms, within; 5.00 ± 0.25 ms a further token, within.")
    mine = recommend([best, stock], limits, "quality_law", own=True, inherits=True).sentence
    assert "a part of my model is 2.00 ± 0.14 × as fast (time of a further token), perplexity 34 → " in mine


def test_a_time_that_was_not_measured_is_within_no_limit() -> None:
    assert OptionLimits(token_ms=1e9).violation(option("best")) == math.inf


def test_large_limits_are_written_out() -> None:
    assert str(OptionLimits(None, 400, 1500, 40)) == "400 MB, 1500 ms to the first and 40 ms a further token"
    assert str(OptionLimits(None, None, 1500)) == "1500 ms to the first token"
    assert str(OptionLimits(0.05, 300e6)) == "0.05 ms and 300000000 MB"
    assert str(OptionLimits(1234.5, 1e30)) == "1234.5 ms and 1e+30 MB"


def test_a_few_words_for_a_list() -> None:
    stock = option("stock", 34.0, 45.0, stock=True)
    better = recommend([option("best", 30.0), stock], LIMITS, "quality_law")
    assert better.short == "5 layers × 320, 40.0 ± 0.4 ms, perplexity 30: 12 % better than the baseline"
    spoken = replace(option("best", 30.0), token=Estimate(12.34, 0.05), first_token=Estimate(1.0), relative=True)
    ratio = recommend([spoken, replace(stock, relative=True)], LIMITS, "quality_law")
    assert ratio.short == "5 layers × 320, 12.3 ± 0.6 ms a token: perplexity 12 % better than the baseline"
    alike = recommend([option("best", 33.9), stock], LIMITS, "quality_law")
    assert alike.short == "4 layers, 45.0 ± 0.4 ms: the baseline, nothing is better for sure"
    assert recommend([option("best", 33.9)], LIMITS, "quality_law").short == (
        "5 layers × 320, 40.0 ± 0.4 ms, perplexity 33.9"
    )
    slow = [option("slow", 30.0, 99.0)]
    assert recommend(slow, LIMITS, "quality_law").short == "not within 50 ms and 300 MB: all that was measured"
    nothing = recommend([], LIMITS, "quality_law")
    assert (nothing.short, nothing.sentence) == ("", "Nothing has been measured yet.")


def test_the_answer_within_epsilon_counts_as_the_best_that_was_trained() -> None:
    """What the frontier keeps of two alike is what a user trains."""
    alike = option("alike", 30.2, 20.0, trained=41.0)
    options = [option("best", 30.0, 45.0), alike, option("other", 33.0, 44.0, trained=39.0)]
    answer = recommend(options, LIMITS, "quality_law", dominance=Dominance(0.3, logarithmic=True))
    assert (answer.by, answer.best and answer.best.id) == ("trained", "other")
