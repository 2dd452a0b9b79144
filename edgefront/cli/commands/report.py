"""`edgefront report …`: writes and verifies reports of jobs."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from edgefront.cli import exits
from edgefront.cli.commands.options import Force, JobId, LimitOptions
from edgefront.cli.session import Session, command, group
from edgefront.core.common.files import check_empty
from edgefront.core.common.states import ENDED_JOBS
from edgefront.core.common.validation import printable

app = group("Write a job's answer into a folder, and verify it on another machine.")


@command(app, "write")
def write_report(
    session: Session,
    job: JobId,
    target: Annotated[str | None, typer.Option(help="Id or name of a target. Default: all of the job's.")] = None,
    limit: LimitOptions = LimitOptions(),
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the report.")] = Path("report"),
    force: Force = False,
) -> None:
    """Write a job's answer into a folder: a page that needs no server, report.json with the raw samples, the devices'
    facts, and the commands that reproduce it.

    Works while the job runs; the page then says so. Limits that are not given are the job's own.
    """
    from edgefront.cli.workflows import report as report_folder

    check_empty(output, force=force)
    client = session.client
    with session.err.status("reading the measurements …"):
        report = report_folder.gather(client, job, target, asdict(limit))
        pictures = report_folder.draw_pictures(report, client.jobs.get(job), session.note)
    files = report_folder.write(report, pictures, output)
    if report.job.state not in ENDED_JOBS:
        session.note(f"the job is {report.job.state}: the report has its results so far")
    result = {
        "job": job,
        "state": report.job.state,
        "folder": str(output),
        "files": [str(file) for file in files],
        "candidates": len(report.shown),
        "launches": sum(map(len, report.launches.values())),
    }
    session.put(result, lambda: session.say(str(output / report_folder.PAGE)))


@command(app, "verify", server=False)
def verify_report(
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
    """Measure the recommended model of a report on this machine by the same protocol, and compare the figures. Needs no
    server.

    Figures agree unless their 95 % intervals show a difference above the job's epsilon. If any differs: exit code 11.
    """
    from edgefront.agents.device.probe import hardware
    from edgefront.cli.workflows import measure, verify

    read = verify.read_report(report)
    subject = verify.subject_of(read, target)
    if target is None and len(read.recommended) > 1:
        names = ", ".join(printable(other.name) for other, _ in read.recommended[1:])
        session.note(f"measuring the model of {printable(subject.target.name)}; --target selects that of {names}")
    protocol = subject.target.protocol
    limit_s = measure.time_limit_s(subject.architecture, protocol)
    protocol = protocol.model_copy(update={"time_limit_s": max(limit_s, protocol.time_limit_s)})
    with session.err.status(f"measuring {subject.candidate.id}: {protocol.setup} …"):
        (measured,) = measure.run(subject.architecture, [protocol], launches=launches, seed=0, note=session.note)
        machines = verify.compare_machines(read, subject, hardware(), measured)
    figures = verify.compare(subject.figures, measured, read.job.request.epsilon)
    standings = verify.standings_in_words(figures, subject.limits)
    sentence = verify.verdict(figures, machines, standings)
    conditions = verify.bad_conditions(subject, measured)
    agrees = all(figure.agrees for figure in figures)

    def show() -> None:
        session.note(f"{subject.candidate.id}: {protocol.setup}, {launches} launches here")
        for figure in figures:
            session.say(verify.in_words(figure))
        for title, differences in (("of the class", machines.class_facts), ("else", machines.others)):
            for name, (there, here) in differences.items():
                session.note(f"differs {title}: {name}, {there} in the report, {here} here")
        for condition in conditions:
            session.note(f"! {condition}")
        session.say(sentence)

    result = {
        "job": read.job.id,
        "target": subject.target.name,
        "candidate": subject.candidate.id,
        "agrees": agrees,
        "same_class": not machines.class_facts if machines.known else None,
        "figures": [figure.to_json() for figure in figures],
        "class_differences": machines.class_facts,
        "other_differences": machines.others,
        "conditions": conditions,
        "sentence": sentence,
        "measured": measured.report(),
    }
    session.put(result, show)
    if not agrees:
        raise typer.Exit(exits.DISAGREES)
