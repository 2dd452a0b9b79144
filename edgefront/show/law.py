"""A job's scaling law as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefront.core.wire.laws import JobLawView, LawAgreement, LawChoice
from edgefront.show.output import NONE, table

if TYPE_CHECKING:
    from rich.console import Console


def show(view: JobLawView, console: Console) -> None:
    """The laws of search and answers, and how far the latter agrees."""

    def line(text: str, style: str | None = None) -> None:
        console.print(text, style=style, markup=False, soft_wrap=True)

    if view.law is None or view.answers is None:
        line("No quality law is about the models of this job's space.")
        return
    line(f"law {view.law.law}: {_about(view.law)}")
    if view.answers.law != view.law.law:
        line(f"answers read {view.answers.law}: {_about(view.answers)}")
    if view.agreement is not None:
        _show_agreement(view.agreement, console)
        line(in_words(view.agreement))
    else:
        line("No trained perplexity can be compared with a predicted one yet.", "dim")


def in_words(agreement: LawAgreement) -> str:
    """How far predictions agree, in one sentence."""
    text = (
        f"{agreement.held} of {agreement.models} intervals contain the trained perplexity "
        f"({agreement.dataset}, {agreement.split}, recipe {agreement.recipe})"
    )
    if not agreement.alike:
        text += (
            f". The law's models were trained otherwise: trained is {agreement.ratio:.3g} times predicted "
            f"in the median, and {agreement.held_after_shift} of {agreement.models} intervals hold after that"
        )
    return text + "."


def _about(law: LawChoice) -> str:
    what = "perplexity" if law.relative_to is None else f"perplexity by that of {law.relative_to}"
    label = f"{law.label}; " if law.label else ""
    return f"{label}{law.models} models, {what} on {law.data}, {law.split}; trained {law.trained}"


def _show_agreement(agreement: LawAgreement, console: Console) -> None:
    numbers = ("predicted", "from", "to", "trained")
    shown = table(
        *("candidate", "architecture", *numbers, "holds", ""),
        right=numbers,
        prose=("architecture", ""),
        less=("architecture", "", "from", "to"),
    )
    for row in agreement.rows:
        shown.add_row(
            row.candidate_id,
            row.name,
            *(f"{value:.4g}" for value in (row.predicted, row.low, row.high, row.trained)),
            "yes" if row.held else "no",
            "left out of the law" if row.learnt_from else NONE,
        )
    console.print(shown)
