"""Chooses among measured models in several formats and runtimes: by score, then by bits of a weight, then by time.

What a format costs in quality is known of few models. So bits count as an objective of their own: fewer are never as
good as more, whatever the score, which is of the weights as they were published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgefront.core.pareto.ratio import Figure

RUNNERS_UP = 5


@dataclass(frozen=True)
class Measured:
    """A model in one format and runtime."""

    id: str
    model: str
    score: float
    bits: int
    latency: Figure
    """In ms."""
    memory: Figure
    """In bytes."""


def ranked(options: Sequence[Measured]) -> list[Measured]:
    """The best first: the highest score; of one score the most bits; of these the fastest."""
    return sorted(options, key=lambda option: (-option.score, -option.bits, option.latency.value, option.id))


def frontier(options: Sequence[Measured], epsilon: float) -> list[Measured]:
    """Those that no other is at least as good as in score, bits, latency and memory, and better in one, in the order of
    `ranked`. Times and memories that differ by no more than `epsilon` (relative) are alike; of options alike in
    everything the first stays.
    """
    kept: list[Measured] = []
    for option in ranked(options):
        dominated = any(_as_good(other, option, epsilon) and _better(other, option, epsilon) for other in options)
        alike = any(_as_good(other, option, epsilon) for other in kept)
        if not dominated and not alike:
            kept.append(option)
    return kept


def runners_up(order: Sequence[Measured]) -> list[Measured]:
    """Of a ranked list those after the first that are certainly faster or smaller than all chosen before, and then the
    next ones.
    """
    traded: list[Measured] = []
    for other in order[1:]:
        if all(
            other.latency.over(kept.latency).below or other.memory.over(kept.memory).below
            for kept in (order[0], *traded)
        ):
            traded.append(other)
    chosen = traded[:RUNNERS_UP]
    chosen += [other for other in order[1:] if other not in chosen][: RUNNERS_UP - len(chosen)]
    return sorted(chosen, key=order.index)


def trade(option: Measured, best: Measured, benchmark: str) -> str:
    """What an option gives and takes against the best."""
    if option.model == best.model:
        quality = "the same model" + (
            "" if option.bits == best.bits else f" in {option.bits} bits a weight, whose loss of quality is not known"
        )
    else:
        difference = option.score - best.score
        quality = (
            f"equal in {benchmark}"
            if not difference
            else f"{benchmark} {abs(difference):.1f} {'higher' if difference > 0 else 'lower'}"
        )
    return ", ".join(
        [
            quality,
            option.latency.over(best.latency).in_percent("latency"),
            option.memory.over(best.memory).in_percent("peak memory"),
        ]
    )


def _as_good(option: Measured, other: Measured, epsilon: float) -> bool:
    return (
        option.score >= other.score
        and option.bits >= other.bits
        and option.latency.value <= other.latency.value * (1 + epsilon)
        and option.memory.value <= other.memory.value * (1 + epsilon)
    )


def _better(option: Measured, other: Measured, epsilon: float) -> bool:
    return (
        option.score > other.score
        or option.bits > other.bits
        or option.latency.value * (1 + epsilon) < other.latency.value
        or option.memory.value * (1 + epsilon) < other.memory.value
    )
