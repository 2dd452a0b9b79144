"""`edgefront report`"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from edgefront.commands.base import Session, command
from edgefront.commands.options import Force, JobId, LimitOptions


def add_to(app: typer.Typer) -> None:
    command(app, "report")(report_job)


def report_job(
    session: Session,
    job: JobId,
    target: Annotated[str | None, typer.Option(help="Id or name of a target. Default: all of the job's.")] = None,
    limit: LimitOptions = LimitOptions(),
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the report.")] = Path("report"),
    force: Force = False,
) -> None:
    """Write what a job found into a folder: a page that needs no server, report.json with the raw samples, device
    facts, and the commands to do it again.

    Also while the job runs: the page then says so. Limits that are not given are the job's own.
    """
    from edgefront.core.files import check_empty
    from edgefront.core.states import ENDED_JOBS
    from edgefront.workflows import report as reporting

    check_empty(output, force=force)
    client = session.client
    with session.err.status("reading the measurements …"):
        report = reporting.gather(client, job, target, asdict(limit))
        drawn = reporting.pictures(report, client.jobs.get(job), session.note)
    files = reporting.write(report, drawn, output)
    if report.job.state not in ENDED_JOBS:
        session.note(f"the job is {report.job.state}: this is what is known by now")
    result = {
        "job": job,
        "state": report.job.state,
        "folder": str(output),
        "files": [str(file) for file in files],
        "candidates": len(report.shown),
        "launches": sum(map(len, report.launches.values())),
    }
    session.put(result, lambda: session.out.print(str(output / reporting.PAGE), markup=False, soft_wrap=True))
