"""`edgefront frontier` (the best models of a job) and `edgefront compare` (models on several targets)."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Annotated, get_args
from urllib.parse import urlencode

import typer

from edgefront.cli.commands.options import JobId, LimitOptions
from edgefront.cli.session import Session
from edgefront.client.show.output import MARKED, change, megabytes, milliseconds, standing_in_words, times
from edgefront.client.show.table import Table
from edgefront.core.common.errors import NotFound
from edgefront.core.common.units import plain
from edgefront.core.common.validation import one_of
from edgefront.core.schemas.predictions import ComparedEntry
from edgefront.core.search.pareto.options import ALIKE, Estimate

UNSURE = "not known"


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
        shared = tuple(
            model
            for model in comparison.architectures
            if all(entry is not None and not entry.predicted for entry in model.entries)
        )
        comparison = comparison.model_copy(update={"architectures": shared})

    def show() -> None:
        numbers: tuple[str, ...] = ("shared", "latency", "memory")
        summary = Table("", "target", "job", "device", *numbers, right=numbers, drop_first=("device", "job"))
        for number, compared in enumerate(comparison.targets, 1):
            latency, memory = "first", ""
            if number > 1:
                low, high = compared.latency_ratio_low, compared.latency_ratio_high
                is_open = low and high and low < 1 < high and math.log(high / low) > 2 * ALIKE
                latency = UNSURE if is_open or not compared.latency_ratio else times(compared.latency_ratio, low, high)
                memory = UNSURE if compared.memory_ratio is None else times(compared.memory_ratio)
            names = (compared.target, compared.job_name, compared.device)
            summary.add_row(str(number), *names, str(compared.shared), latency, memory)
        session.out.print(summary)
        if comparison.note:
            session.note(comparison.note)
        quality = comparison.score.partition(":")[2]
        quality = quality or quality_header(comparison.architectures).removeprefix("predicted ")
        limited = any(entry and entry.standings for model in comparison.architectures for entry in model.entries)
        named = dict.fromkeys(target.time.removesuffix("_ms").replace("_", " ") for target in comparison.targets)
        numbers = (quality, f"{' or '.join(named)} ms", "to first", "memory MB")
        columns = ("model", "", "target", *numbers, *(("limits",) if limited else ()))
        table = Table(*columns, right=numbers, wrap=("model",), drop_first=("memory MB",))
        for model in comparison.architectures:
            name, first = model.model or model.digest[:10], model.entries[0]
            score = median_quality(model) if model.score is None else plain(model.score)
            for number, (target, entry) in enumerate(zip(comparison.targets, model.entries, strict=True), 1):
                if entry is None:
                    continue
                time = milliseconds(entry.time_ms, entry.time_half_width_ms)
                table.add_row(
                    *(name, str(number), target.target, score),
                    f"≈ {time}" if entry.predicted and entry.time_ms is not None else time,
                    "" if number == 1 else _to_first(entry, first),
                    megabytes(entry.memory_bytes),
                    *([standing_in_words(entry.standings)] if limited else []),
                )
                name = score = ""
            table.add_section()
        session.out.print(table)
        if label := label_line(quality_label(comparison.architectures)):
            session.say(label)
        if comparison.perplexity_of:
            session.note(f"predicted perplexity: {comparison.perplexity_of}")
        query = urlencode([("target", target.target_id) for target in comparison.targets])
        session.note(f"page: {client.url}/compare?{query}")

    session.put(comparison, show)


def _to_first(entry: ComparedEntry, first: ComparedEntry | None) -> str:
    """Formats the difference of a time from the first target's: -24%; `not known` if their intervals leave it open."""
    if first is None or entry.time_ms is None or first.time_ms is None:
        return UNSURE
    here, there = (Estimate.plus_minus(each.time_ms or 0.0, each.time_half_width_ms) for each in (entry, first))
    ratio = here.over(there)
    return UNSURE if ratio.spread is None or ratio.unsure("time") else change(ratio.value)


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
        shown = [view for view in views if view.points or view.baseline] or views[:1]
        for view in shown:
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
        for sentence in {view.proxy_trust.sentence: None for view in shown if view.by == "proxy"}:
            session.note(f"proxy: {sentence}")
        if empty := [view.target for view in views if view not in shown]:
            session.note(f"on no frontier: {', '.join(empty)}")

    session.put(views[0] if target else views, show)
