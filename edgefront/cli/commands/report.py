"""`edgefront report …`"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from edgefront.cli.commands.base import Session, command, group
from edgefront.cli.commands.options import Force, JobId, LimitOptions

app = group("A job's answer as a folder to pass on, and whether another machine agrees.")


@command(app, "write")
def write(
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
    from edgefront.cli.workflows import report as reporting
    from edgefront.core.common.files import check_empty
    from edgefront.core.common.states import ENDED_JOBS

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
    session.put(result, lambda: session.say(str(output / reporting.PAGE)))


@command(app, "verify", server=False)
def verify(
    session: Session,
    report: Annotated[Path, typer.Argument(metavar="REPORT", help="report.json, or the folder that has it.")],
    target: Annotated[
        str | None,
        typer.Option(help="Id or name of the target whose recommended model is measured. Default: the first."),
    ] = None,
    launches: Annotated[
        int, typer.Option(min=2, max=100, help="Launches (fresh processes); the interval is computed over them.")
    ] = 3,
) -> None:
    """Measure the recommended model of a report on this machine, as it was measured there, and say whether the figures
    agree. Needs no server.

    They agree unless they differ for certain, by the 95 % intervals of both, by more than the job counts as a
    difference (its epsilon). If they do not: exit code 11.
    """
    from edgefront.agents.device.probe import hardware
    from edgefront.cli import exits
    from edgefront.cli.workflows import measure as measuring
    from edgefront.cli.workflows import verify as verifying
    from edgefront.core.common.validation import printable

    read = verifying.read_report(report)
    subject = verifying.subject_of(read, target)
    if target is None and len(read.recommended) > 1:
        names = ", ".join(printable(each.name) for each, _ in read.recommended[1:])
        session.note(f"measuring the model of {printable(subject.target.name)}; by --target that of {names}")
    protocol = subject.target.protocol
    limit_s = measuring.time_limit_s(subject.architecture, protocol)
    protocol = protocol.model_copy(update={"time_limit_s": max(limit_s, protocol.time_limit_s)})
    with session.err.status(f"measuring {subject.candidate.id}: {protocol.setup} …"):
        (measured,) = measuring.run(subject.architecture, [protocol], launches=launches, seed=0)
        where = verifying.place(read, subject, hardware(), measured)
    compared = verifying.compare(subject.figures, measured, read.job.request.epsilon)
    sentence = verifying.verdict(compared, where)
    conditions = verifying.conditions(subject, measured)
    agrees = all(each.agrees for each in compared)

    def show() -> None:
        session.note(f"{subject.candidate.id}: {protocol.setup}, {launches} launches here")
        for each in compared:
            session.say(verifying.in_words(each))
        for title, differences in (("of the class", where.differences), ("else", where.others)):
            for name, (there, here) in differences.items():
                session.note(f"differs {title}: {name}, {there} there, {here} here")
        for said in conditions:
            session.note(f"! {said}")
        session.say(sentence)

    result = {
        "job": read.job.id,
        "target": subject.target.name,
        "candidate": subject.candidate.id,
        "agrees": agrees,
        "same_class": not where.differences if where.known else None,
        "figures": [each.to_json() for each in compared],
        "class_differences": where.differences,
        "other_differences": where.others,
        "conditions": conditions,
        "sentence": sentence,
        "measured": measured.report(),
    }
    session.put(result, show)
    if not agrees:
        raise typer.Exit(exits.DISAGREES)
