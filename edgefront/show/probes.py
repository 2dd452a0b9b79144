"""A job's probe as people read it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from edgefront.core.states import ProbeState
from edgefront.core.wire.probes import ProbeAnswer, ProbeRatio, ProbeView
from edgefront.show.output import NONE, duration, millions, table

if TYPE_CHECKING:
    from rich.console import Console


def show(view: ProbeView, console: Console) -> None:
    """The trainings, the answer before them, and what is expected or known after them."""

    def line(text: str, style: str | None = None) -> None:
        console.print(text, style=style, markup=False, soft_wrap=True)

    shown = table(
        *("candidate", "model", "parameters", "training", "state", "estimated"),
        right=("parameters", "estimated"),
        less=("candidate", "estimated"),
    )
    for training in view.trainings:
        shown.add_row(
            training.candidate_id,
            f"{training.number}: {training.name}",
            millions(training.decoder_parameters),
            training.training_id or NONE,
            training.state or NONE,
            duration(training.seconds),
        )
    console.print(shown)
    line(
        f"each on {view.tokens:,} tokens of {view.dataset} by recipe {view.recipe}; all together, one after another: "
        f"{'not known yet' if view.seconds is None else duration(view.seconds)}"
    )
    line(f"before:   {_answer(view.before)}")
    line(f"expected: {in_words(view.expected)}")
    if view.after is not None:
        line(f"after:    {_answer(view.after)}", "bold")
    if view.reason:
        line(view.reason, "red" if view.state == ProbeState.FAILED else "yellow")


def in_words(ratio: ProbeRatio) -> str:
    """`predicted perplexity 6.1 ± 11.9 % lower than the stock model's (ratio, own data; law NAME)`."""
    percent = 100 * (ratio.ratio - 1)
    half = 100 * ratio.ratio * math.sinh(math.log(ratio.high / ratio.low) / 2)
    word = "higher" if percent >= 0 else "lower"
    of = f"{ratio.label}; law {ratio.law}" if ratio.label else f"law {ratio.law}"
    return f"predicted perplexity {abs(percent):.1f} ± {half:.1f} % {word} than the stock model's ({of})"


def _answer(answer: ProbeAnswer) -> str:
    return answer.sentence if answer.ratio is None else f"{in_words(answer.ratio)}. {answer.sentence}"
