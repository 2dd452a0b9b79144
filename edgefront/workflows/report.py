"""A job's answer as a folder that one attaches to a ticket: what it rests on, and the commands to do it again."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from edgefront import __version__
from edgefront.client import Client
from edgefront.core.errors import EdgefrontError, InvalidInput, NotFound
from edgefront.core.files import whole_file
from edgefront.core.measurement.measure_command import measure_command
from edgefront.core.wire.candidates import LaunchView
from edgefront.core.wire.reports import Report, ReportedCommand, ReportedTarget
from edgefront.core.wire.service import DeviceView
from edgefront.resources.results import Job
from edgefront.show import recommendation
from edgefront.show.report_page import CHOICES, page

REPORT, PAGE, COMMANDS, JOB = "report.json", "report.html", "commands.txt", "job.json"


def gather(client: Client, job_id: str, target: str | None, limits: Mapping[str, Any]) -> Report:
    """All that the service knows of the answer of a job, by the limits (names as in `Jobs.recommendation`).

    `target`: its id or name; None: all of them. `InvalidInput` for one of a job among published models.
    """
    job = client.jobs.get(job_id)
    answers: dict[str, Any] = {}
    if job.request.space.published is not None:
        if target is not None:
            raise InvalidInput(
                "--target: a job among published models has one answer over all its targets",
                field="target",
                value=target,
                allowed="no target",
            )
        answers["choices"] = client.jobs.choices(job_id, **limits)
    else:
        named = [each.id for each in job.targets] if target is None else [target]
        answers["targets"] = tuple(
            ReportedTarget(
                recommendation=client.jobs.recommendation(job_id, target=name, **limits),
                frontier=client.frontier(job_id, target=name, **limits),
            )
            for name in named
        )
    report = Report.model_validate(
        {
            "made_at": datetime.now(timezone.utc),
            "client": __version__,
            "service": client.health().version,
            "job": job,
            "launches": {},
            **answers,
        }
    )
    launches = {candidate.id: client.candidates.launches(candidate.id) for candidate in report.shown}
    report = report.model_copy(update={"launches": launches, "devices": _devices(client, launches.values())})
    return report.model_copy(update={"commands": tuple(_commands(report))})


def _devices(client: Client, launches: Iterable[tuple[LaunchView, ...]]) -> tuple[DeviceView, ...]:
    devices = []
    for device_id in dict.fromkeys(launch.device_id for each in launches for launch in each if launch.device_id):
        with suppress(NotFound):  # it was deleted, or is another owner's
            devices.append(client.devices.get(device_id))
    return tuple(devices)


def _commands(report: Report) -> Iterable[ReportedCommand]:
    several = len(report.recommended) > 1
    for target, candidate in report.recommended:
        named = f", {target.name}" if several else ""
        verify = ["edgefront", "report", "verify", REPORT, *(["--target", target.name] if several else [])]
        again = f"measure the recommended model again and compare{named}"
        yield ReportedCommand(title=again, command=shlex.join(verify))
        measure = measure_command(model_file(candidate.digest), target.protocol)
        yield ReportedCommand(title=f"measure it alone{named}", command=measure)
    search = ["edgefront", "job", "submit", JOB, "--watch"]
    yield ReportedCommand(title="search again, on devices of the same names", command=shlex.join(search))
    for each in report.targets:
        view = each.recommendation
        named = f", {view.target}" if several else ""
        for title, command in recommendation.commands(view).items():
            yield ReportedCommand(title=f"{title}{named}", command=command)
    for choice in () if report.choices is None else report.choices.every:
        named = f", {choice.device}" if choice.device else ""
        if choice.commands:
            yield ReportedCommand(title=f"get the recommended model{named}", command="\n".join(choice.commands))


def model_file(digest: str) -> str:
    """Name of the file with the description of a model, in the folder."""
    return f"model-{digest[:12]}.json"


def pictures(report: Report, job: Job, note: Callable[[str], None]) -> dict[str, str]:
    """The frontier of each target as SVG, by the target's id; of a job among published models one a device, by
    `CHOICES` and its name. Without matplotlib none, with a note that says what to install.
    """
    from edgefront.extras import need

    try:
        need("a report with pictures", "demo", install="notebook")
    except EdgefrontError as error:
        note(f"without pictures: {error.detail}")
        return {}
    from edgefront.show.plot import plot_choices

    if report.choices is not None:
        return {CHOICES + view.device: _svg(plot_choices(view)) for view in report.choices.every}
    return {
        each.recommendation.target_id: _svg(job.plot(each.recommendation.target_id))
        for each in report.targets
        if each.frontier.points or each.frontier.baseline
    }


def _svg(figure: Any) -> str:
    """The figure as an element of a page: without the head of a file."""
    file = io.StringIO()
    figure.savefig(file, format="svg", facecolor="white", metadata={"Date": None})
    text = file.getvalue()
    return text[text.index("<svg") :]


def write(report: Report, drawn: Mapping[str, str], folder: Path) -> list[Path]:
    """Writes the folder, made if missing: page, data, commands, and what the commands read. Files of these names are
    replaced.
    """
    folder.mkdir(parents=True, exist_ok=True)
    request = report.job.request
    again = request.model_copy(
        update={"targets": tuple(target.model_copy(update={"added": False}) for target in request.targets)}
    )
    texts = {
        PAGE: page(report, drawn),
        REPORT: report.model_dump_json(indent=1) + "\n",
        COMMANDS: "".join(f"# {each.title}\n{each.command}\n\n" for each in report.commands),
        JOB: again.model_dump_json(indent=1, exclude_none=True) + "\n",
    }
    for _, candidate in report.recommended:
        texts[model_file(candidate.digest)] = json.dumps(candidate.architecture, indent=1) + "\n"
    for name, text in texts.items():
        with whole_file(folder / name) as file:
            file.write(text.encode())
    return [folder / name for name in texts]
