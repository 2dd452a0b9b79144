"""`edgefront compare`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from edgefront.commands.base import Session, command

if TYPE_CHECKING:
    from edgefront.core.wire.comparisons import ComparedArchitecture, ComparisonView

_SEPARATOR = "/"


def add_to(app: typer.Typer) -> None:
    command(app, "compare")(compare)


def compare(
    session: Session,
    targets: Annotated[
        list[str],
        typer.Argument(
            metavar="JOB[/TARGET]...",
            help="Jobs (all of their targets), or one target of a job by its name or id.",
        ),
    ],
    everywhere: Annotated[
        bool, typer.Option("--everywhere", help="Only architectures that are measured on every target.")
    ] = False,
) -> None:
    """Compare targets, of one job or of several: what the models on their frontiers take on each.

    Differences are against the first target. The page /compare draws the same.
    """
    client = session.client
    comparison = client.compare([target_id for given in targets for target_id in _ids(session, given)])
    if everywhere:
        kept = tuple(architecture for architecture in comparison.architectures if _is_measured(architecture))
        comparison = comparison.model_copy(update={"architectures": kept})

    def show() -> None:
        from urllib.parse import urlencode

        _show(session, comparison)
        query = urlencode([("target", target.target_id) for target in comparison.targets])
        session.note(f"page: {client.url}/compare?{query}")

    session.put(comparison, show)


def _is_measured(model: ComparedArchitecture) -> bool:
    return all(here is not None and not here.predicted for here in model.entries)


def _ids(session: Session, given: str) -> list[str]:
    """Ids of the targets that `JOB` or `JOB/TARGET` names."""
    from edgefront.core.errors import NotFound

    job_id, _, name = given.partition(_SEPARATOR)
    job = session.client.jobs.get(session.identifier("job", job_id))
    named = [target.id for target in job.targets if not name or name in (target.id, target.name)]
    if not named:
        names = ", ".join(repr(target.name) for target in job.targets)
        raise NotFound(f"job {job.id} has no target {name!r}; it has {names}")
    return named


def _show(session: Session, comparison: ComparisonView) -> None:
    from edgefront.core.wire.predictions import PredictedView
    from edgefront.show.output import NONE, megabytes, millions, milliseconds, table, times
    from edgefront.show.quality import header_of, labels_of, median_quality, of_label

    summary = table("", "target", "job", "device", "shared", "latency", "memory", right=("shared", "latency", "memory"))
    for number, compared in enumerate(comparison.targets, 1):
        ratios = "first", ""
        if number > 1:
            latency = times(compared.latency_ratio, compared.latency_ratio_low, compared.latency_ratio_high)
            ratios = latency, times(compared.memory_ratio)
        summary.add_row(str(number), compared.target, compared.job_name, compared.device, str(compared.shared), *ratios)
    session.out.print(summary)
    if comparison.note:
        session.note(comparison.note)
    columns = [name for number in range(1, len(comparison.targets) + 1) for name in (f"{number}: ms", f"{number}: MB")]
    header = header_of(model.relative_to for model in comparison.architectures).removeprefix("predicted ")
    shown = table("digest", "parameters", header, *columns, right=("parameters", header, *columns))
    for model in comparison.architectures:
        cells: list[str] = []
        first = model.entries[0]
        for index, here in enumerate(model.entries):
            if here is None:
                cells += [NONE, NONE]
                continue
            other = first if index else None
            cells.append(
                ("≈ " if here.predicted else "")
                + milliseconds(here.latency_ms, here.latency_half_width_ms)
                + _difference(here.latency_ms, None if other is None else other.latency_ms)
            )
            cells.append(
                megabytes(here.memory_bytes)
                + _difference(here.memory_bytes, None if other is None else other.memory_bytes)
            )
        quality = median_quality(PredictedView(perplexity=model.perplexity, relative_to=model.relative_to))
        shown.add_row(model.digest[:10], millions(model.decoder_parameters), quality, *cells)
    session.out.print(shown)
    if label := of_label(labels_of(model.label for model in comparison.architectures)):
        session.say(label)
    if comparison.perplexity_of:
        session.note(f"predicted perplexity: {comparison.perplexity_of}")


def _difference(value: float, reference: float | None) -> str:
    return "" if reference is None else f" ({value / reference - 1:+.0%})"
