"""`edgefront frontier` (the best models of a job) and `edgefront compare` (models on several targets)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, get_args
from urllib.parse import urlencode

import typer

from edgefront.cli.commands.options import JobId, LimitOptions
from edgefront.cli.session import Session
from edgefront.client.show.output import MARKED, NONE, change, megabytes, millions, milliseconds, times
from edgefront.client.show.table import Table
from edgefront.core.common.errors import NotFound
from edgefront.core.common.validation import one_of


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
        bool, typer.Option("--everywhere", help="Only architectures that were measured on every target.")
    ] = False,
) -> None:
    """Compare targets of one or several jobs: latency and memory of the models on their frontiers, on each target.

    Differences are relative to the first target. The page /compare shows the same.
    """
    from edgefront.client.show.frontier_table import label_line, median_quality, quality_header, quality_label

    client = session.client
    comparison = client.compare([target_id for text in targets for target_id in _target_ids(session, text)])
    if everywhere:
        measured = tuple(
            model
            for model in comparison.architectures
            if all(entry is not None and not entry.predicted for entry in model.entries)
        )
        comparison = comparison.model_copy(update={"architectures": measured})

    def show() -> None:
        summary = Table(
            "", "target", "job", "device", "shared", "latency", "memory", right=("shared", "latency", "memory")
        )
        for number, compared in enumerate(comparison.targets, 1):
            ratios = "first", ""
            if number > 1:
                latency = times(compared.latency_ratio, compared.latency_ratio_low, compared.latency_ratio_high)
                ratios = latency, times(compared.memory_ratio)
            summary.add_row(
                str(number), compared.target, compared.job_name, compared.device, str(compared.shared), *ratios
            )
        session.out.print(summary)
        if comparison.note:
            session.note(comparison.note)
        columns = [
            name for number in range(1, len(comparison.targets) + 1) for name in (f"{number}: ms", f"{number}: MB")
        ]
        header = quality_header(comparison.architectures).removeprefix("predicted ")
        table = Table("digest", "parameters", header, *columns, right=("parameters", header, *columns))
        for model in comparison.architectures:
            cells: list[str] = []
            for index, entry in enumerate(model.entries):
                if entry is None:
                    cells += [NONE, NONE]
                    continue
                first = model.entries[0] if index else None
                latency = milliseconds(entry.latency_ms, entry.latency_half_width_ms)
                latency += "" if first is None else f" ({change(entry.latency_ms / first.latency_ms)})"
                memory = megabytes(entry.memory_bytes)
                memory += "" if first is None else f" ({change(entry.memory_bytes / first.memory_bytes)})"
                cells += [f"≈ {latency}" if entry.predicted else latency, memory]
            table.add_row(model.digest[:10], millions(model.decoder_parameters), median_quality(model), *cells)
        session.out.print(table)
        if label := label_line(quality_label(comparison.architectures)):
            session.say(label)
        if comparison.perplexity_of:
            session.note(f"predicted perplexity: {comparison.perplexity_of}")
        query = urlencode([("target", target.target_id) for target in comparison.targets])
        session.note(f"page: {client.url}/compare?{query}")

    session.put(comparison, show)


def _target_ids(session: Session, text: str) -> list[str]:
    """Returns the ids of targets (device and runtime of a job): all of `JOB`, or only the target of `JOB/TARGET`."""
    job_id, _, name = text.partition("/")
    job = session.client.jobs.get(session.identifier("job", job_id))
    ids = [target.id for target in job.targets if not name or name in (target.id, target.name)]
    if not ids:
        names = ", ".join(repr(target.name) for target in job.targets)
        raise NotFound(f"job {job.id} has no target {name!r}; it has {names}")
    return ids


def frontier(
    session: Session,
    job: JobId,
    target: Annotated[str | None, typer.Option(help="Id or name of a target. Default: all of the job's.")] = None,
    limit: LimitOptions = LimitOptions(),
    by: Annotated[
        str, typer.Option(help="Quality axis: proxy, or perplexity, which includes trained candidates only.")
    ] = "proxy",
    data: Annotated[
        str | None,
        typer.Option(
            help="Only candidates trained on this data set. Default: the one with the most trained candidates."
        ),
    ] = None,
) -> None:
    """Show the Pareto frontier of a job: models that no other beats in quality, latency and memory at once.

    Differences up to the job's epsilon, the measurement error, are ignored.
    """
    from edgefront.client.show.frontier_table import frontier_label, frontier_table
    from edgefront.core.schemas.jobs import Quality

    client = session.client
    names = [target] if target else [item.id for item in client.jobs.get(job).targets]
    quality = one_of("by", by, get_args(Quality))
    views = [client.frontier(job, target=name, **asdict(limit), by=quality, dataset=data) for name in names]

    def show() -> None:
        for view in views:
            session.out.print(frontier_table(view))
            if label := frontier_label(view):
                session.say(label)
            if any(point.marked for point in (*view.points, *view.baseline)):
                session.say(f"{MARKED}: its page shows the launches")
            if view.summary:
                session.say(view.summary)
                session.out.print()
            if view.perplexity_of:
                session.note(f"predicted perplexity: {view.perplexity_of}")
            if view.note:
                session.note(view.note)
            if view.by == "perplexity" and not view.trained:
                session.note(f"no candidate is trained yet: edgefront train submit --frontier {view.job_id}")
            elif view.by == "proxy":
                session.note(f"proxy: {view.proxy_trust.sentence}")

    session.put(views[0] if target else views, show)
