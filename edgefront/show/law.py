"""A job's quality law as people read it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from edgefront.core.errors import EdgefrontError
from edgefront.core.wire.laws import JobLawView, LawAgreement, LawChoice
from edgefront.show.output import NONE, table

if TYPE_CHECKING:
    from rich.console import Console

    from edgefront.client import Client

PATIENCE_S = 60.0
"""How long the command waits for a worker to move a job."""


def moved(client: Client, job_id: str, view: JobLawView) -> JobLawView:
    """The job's law once it has been moved; as it is then, if no worker does it in time.

    `EdgefrontError` if a worker could not do it.
    """
    target_law, end = view.moving_to, time.monotonic() + PATIENCE_S
    while view.moving_to is not None and time.monotonic() < end:
        time.sleep(0.3)
        view = client.jobs.law(job_id)
    if target_law is not None and view.moving_to is None and (view.law is None or view.law.law != target_law):
        raise EdgefrontError(f"job {job_id} was not moved to {target_law}: its last `law` event says why")
    return view


def show(view: JobLawView, console: Console) -> None:
    """The law, how far it agrees, and what else there is."""

    def line(text: str, style: str | None = None) -> None:
        console.print(text, style=style, markup=False, soft_wrap=True)

    if view.law is None:
        line("No quality law is about the models of this job's space.")
        return
    line(f"law {view.law.law}: {_about(view.law)}")
    if view.agreement is not None:
        _show_agreement(view.agreement, console)
        line(in_words(view.agreement))
    else:
        line("None of the job's candidates has been trained to a perplexity.", "dim")
    if view.moving_to is not None:
        line(f"being moved to {view.moving_to}: a worker predicts the candidates again", "yellow")
    if view.note:
        line(view.note, "yellow")
    for newer in view.newer:
        line(f"newer: {newer.law}: {_about(newer)}")
    if view.newer:
        line(f"move to it: edgefront job law {view.job_id} --move-to {view.newer[0].law}", "dim")


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
