"""`edgefront frontier`"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, get_args

import typer

from edgefront.commands.base import Session, command
from edgefront.commands.options import JobId, LimitOptions


def add_to(app: typer.Typer) -> None:
    command(app, "frontier")(frontier)


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
    """Show the frontier of a job: models that no other one beats in quality, latency and memory at once.

    Differences up to the job's epsilon, the error of measurement, do not count.
    """
    from edgefront.core.validation import one_of
    from edgefront.core.wire.jobs import Quality
    from edgefront.show.output import MARKED
    from edgefront.show.tables import frontier_label, frontier_table

    client = session.client
    asked = client.jobs.get(job)
    names = [target] if target else [item.id for item in asked.targets]
    views = [
        client.frontier(
            job,
            target=name,
            **asdict(limit),
            by=one_of("by", by, get_args(Quality)),
            dataset=data,
        )
        for name in names
    ]

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
