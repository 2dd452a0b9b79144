"""Chooses among measured models in several formats and runtimes: by score, then by bits of a weight, then by time.

What a format costs in quality is known of few models. So bits count as an objective of their own: fewer are never as
good as more, whatever the score, which is of the weights as they were published.
"""

from __future__ import annotations

from collections.abc import Sequence

from edgefront.core.search.pareto.options import Option

RUNNERS_UP = 5


def ranked(choices: Sequence[Option]) -> list[Option]:
    """The best first: the highest score; of one score the most bits; of these the fastest."""
    return sorted(choices, key=lambda choice: (-choice.score, -choice.bits, choice.latency.value, choice.id))


def frontier(choices: Sequence[Option], epsilon: float) -> list[Option]:
    """Those that no other is at least as good as in score, bits, latency and memory, and better in one, in the order of
    `ranked`. Times and memories that differ by no more than `epsilon` (relative) are alike; of choices alike in
    everything the first stays.
    """
    kept: list[Option] = []
    for choice in ranked(choices):
        as_good = [other for other in choices if _as_good(other, choice, epsilon)]
        dominated = any(not _as_good(choice, other, epsilon) for other in as_good)
        alike = any(_as_good(other, choice, epsilon) for other in kept)
        if not dominated and not alike:
            kept.append(choice)
    return kept


def trade(choice: Option, best: Option, benchmark: str) -> str:
    """What a choice gives and takes against the best."""
    difference = choice.score - best.score
    if choice.name == best.name:
        quality = "the same model"
        if choice.bits != best.bits:
            quality += f" in {choice.bits} bits a weight, whose loss of quality is not known"
    elif not difference:
        quality = f"equal in {benchmark}"
    else:
        quality = f"{benchmark} {abs(difference):.1f} {'higher' if difference > 0 else 'lower'}"
    return ", ".join(
        [
            quality,
            choice.latency.over(best.latency).in_percent("latency"),
            choice.memory.over(best.memory).in_percent("peak memory"),
        ]
    )


def _as_good(choice: Option, other: Option, epsilon: float) -> bool:
    return (
        choice.score >= other.score
        and choice.bits >= other.bits
        and choice.latency.value <= other.latency.value * (1 + epsilon)
        and choice.memory.value <= other.memory.value * (1 + epsilon)
    )
