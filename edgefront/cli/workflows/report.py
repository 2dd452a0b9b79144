"""Writes a job's report into a folder: a page, the data behind it, and the commands that reproduce it."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from edgefront import __version__
from edgefront.client.client import Client
from edgefront.client.extras import need
from edgefront.client.resources.jobs import Job
from edgefront.client.show import published, recommendation
from edgefront.client.show.frontier_table import frontier_label
from edgefront.client.show.output import NONE, gigabytes, moment
from edgefront.client.show.table import table_html
from edgefront.core.common.errors import EdgefrontError, InvalidInput, NotFound
from edgefront.core.common.files import whole_file
from edgefront.core.common.states import ENDED_JOBS
from edgefront.core.measurement.protocol import LATENCY_NAMES
from edgefront.core.measurement.variants import measure_command
from edgefront.core.schemas.jobs import TargetView
from edgefront.core.schemas.reports import Report, ReportedCommand, ReportedTarget
from edgefront.core.schemas.service import DeviceView
from edgefront.core.search.pareto.options import OptionLimits

REPORT, PAGE, COMMANDS, JOB = "report.json", "report.html", "commands.txt", "job.json"


def gather(client: Client, job_id: str, target: str | None, limits: Mapping[str, Any]) -> Report:
    """Reads the report of a job from the service. `limits` are keyword arguments of `Jobs.recommendation`.

    `target`: id or name of a target; None for all targets. Raises `InvalidInput` if a target is given for a job that
    searches published models.
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
        names = [each.id for each in job.targets] if target is None else [target]
        answers["targets"] = tuple(
            ReportedTarget(
                recommendation=client.jobs.recommendation(job_id, target=name, **limits),
                frontier=client.frontier(job_id, target=name, **limits),
            )
            for name in names
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
    devices = []
    for device_id in dict.fromkeys(
        launch.device_id for each in launches.values() for launch in each if launch.device_id
    ):
        with suppress(NotFound):  # the row is deleted, or belongs to another owner
            devices.append(client.devices.get(device_id))
    report = report.model_copy(update={"launches": launches, "devices": tuple(devices)})
    commands = tuple(ReportedCommand(title=title, command=command) for title, command in _commands(report))
    return report.model_copy(update={"commands": commands})


def _commands(report: Report) -> Iterator[tuple[str, str]]:
    """Yields pairs of title and text, one for each command that reproduces the report's result."""
    several = len(report.recommended) > 1
    for target, candidate in report.recommended:
        suffix = f", {target.name}" if several else ""
        verify = ["edgefront", "report", "verify", REPORT, *(["--target", target.name] if several else [])]
        yield f"measure the recommended model again and compare{suffix}", shlex.join(verify)
        alone = measure_command(model_file(candidate.digest), target.protocol)
        yield f"measure it alone{suffix}", f"{alone} --launches {candidate.launches}"
    yield "search again, on devices of the same names", f"edgefront job submit {JOB} --watch"
    for each in report.targets:
        suffix = f", {each.recommendation.target}" if several else ""
        for title, command in recommendation.commands(each.recommendation).items():
            yield f"{title}{suffix}", command
    for choices in () if report.choices is None else report.choices.every:
        if choices.commands:
            suffix = f", {choices.device}" if choices.device else ""
            yield f"get the recommended model{suffix}", "\n".join(choices.commands)


def model_file(digest: str) -> str:
    """Returns the name of the file, in the report's folder, with the description of the model of this digest."""
    return f"model-{digest[:12]}.json"


def draw_pictures(report: Report, job: Job, note: Callable[[str], None]) -> dict[str, str]:
    """Returns pictures of the targets' frontiers as a mapping: target id → SVG element. Empty for a job that searches
    published models, and without matplotlib (calls `note` on how to install it).
    """
    try:
        need("a report with pictures", "demo", install="notebook")
    except EdgefrontError as error:
        note(f"without pictures: {error.detail}")
        return {}
    pictures = {}
    for each in report.targets:
        if each.frontier.points or each.frontier.baseline:
            target_id, file = each.recommendation.target_id, io.StringIO()
            job.plot(target_id).savefig(file, format="svg", facecolor="white", metadata={"Date": None})
            pictures[target_id] = file.getvalue()[file.getvalue().index("<svg") :]
    return pictures


def write(report: Report, pictures: Mapping[str, str], folder: Path) -> list[Path]:
    """Writes the report's page, data and commands, and the files that the commands read, to the folder, created if
    missing. Replaces existing files.
    """
    folder.mkdir(parents=True, exist_ok=True)
    request = report.job.request
    resubmitted = request.model_copy(
        update={"targets": tuple(target.model_copy(update={"added": False}) for target in request.targets)}
    )
    texts = {
        PAGE: page(report, pictures),
        REPORT: report.model_dump_json(indent=1) + "\n",
        COMMANDS: "".join(f"# {each.title}\n{each.command}\n\n" for each in report.commands),
        JOB: resubmitted.model_dump_json(indent=1, exclude_none=True) + "\n",
    }
    for _, candidate in report.recommended:
        texts[model_file(candidate.digest)] = json.dumps(candidate.architecture, indent=1) + "\n"
    for name, text in texts.items():
        with whole_file(folder / name) as file:
            file.write(text.encode())
    return [folder / name for name in texts]


_HEAD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
"""


def page(report: Report, pictures: Mapping[str, str]) -> str:
    """Returns the report as an HTML page. `pictures`: target id → SVG element."""
    return _HEAD + "\n".join(
        [
            f"<title>{escape(report.job.name)}: report</title>",
            f"<style>\n{files(__package__).joinpath('report.css').read_text('utf-8')}</style>",
            *_header(report),
            *_answers(report, pictures),
            *_device_facts(report.devices),
            *_commands_section(report),
            "</html>\n",
        ]
    )


def _header(report: Report) -> Iterator[str]:
    job = report.job
    yield f"<h1>{escape(job.name)}</h1>"
    yield _soft(
        f"Job {job.id}, {job.state}, begun {moment(job.created_at)}"
        + ("" if job.finished_at is None else f", finished {moment(job.finished_at)}")
        + f". This report was made {moment(report.made_at)} by edgefront {report.client}, from a service of version "
        f"{report.service}. report.json has the same facts, with all raw samples."
    )
    if job.state not in ENDED_JOBS:
        text = f"The job is {job.state}, not ended: these are its results at the time of the report."
        yield _paragraph(text, "notice")
    elif job.reason:
        yield _paragraph(job.reason, "notice")


def _answers(report: Report, pictures: Mapping[str, str]) -> Iterator[str]:
    targets = {target.id: target for target in report.job.targets}
    for view in () if report.choices is None else report.choices.every:
        yield f"<h2>{escape(f'Answer for {view.device}' if view.device else 'Answer')}</h2>"
        yield _paragraph(view.sentence, "answer")
        if view.note:
            yield _paragraph(view.note, "notice")
        rows = published.choice_rows(view)
        table = published.choices_table(rows, view.score.partition(":")[2], view.standings)
        yield _scrolling(table._repr_html_())
        yield from map(_soft, published.notes(view))
        if view.own is not None:
            yield _soft(f"{view.own.sentence} {view.own.command}")
        yield "<h3>Measured as</h3>"
        measured = dict.fromkeys(choice.target_id for _, choice in rows)
        yield from (_setup(targets[target_id]) for target_id in measured if target_id in targets)
    for answer in report.targets:
        target = targets.get(answer.recommendation.target_id)
        if target is not None:
            yield from _answer(answer, target, pictures.get(target.id))
    if report.choices is None and report.job.proxy_trust.sentence:
        yield _soft(f"Proxy {report.job.request.proxy}: {report.job.proxy_trust.sentence}")


def _answer(answer: ReportedTarget, target: TargetView, picture: str | None) -> Iterator[str]:
    view, frontier = answer.recommendation, answer.frontier
    yield f"<h2>{escape(target.name)}</h2>"
    yield _setup(target)
    yield _paragraph(view.sentence, "answer")
    for text in (view.note, target.note):
        if text:
            yield _paragraph(text, "notice")
    if view.recommended is not None or view.nearest is not None:
        yield _scrolling(recommendation.recommendation_table(view, target.protocol)._repr_html_(), "models")
    yield from map(_soft, recommendation.notes(view))
    if frontier.points or frontier.baseline:
        yield "<h3>Pareto frontier</h3>"
        yield _soft(f"{frontier.summary} {frontier.note}".strip())
        if picture is not None:
            label = escape(f"Quality against latency of what was measured on {target.name}")
            yield f'<figure role="img" aria-label="{label}">{picture}</figure>'
        trained = {score.candidate_id: recommendation.trained_quality(score) for score in frontier.trained}
        baseline = "my model" if frontier.own_model else "baseline"
        best = view.recommended.id if view.recommended is not None else None
        rows = [("recommended" if point.id == best else "", point) for point in frontier.points]
        rows += [(baseline, point) for point in frontier.baseline]
        table = recommendation.models_table(rows, view.proxy, trained, target.protocol)
        yield _scrolling(table._repr_html_(), "models")
        if label := frontier_label(frontier):
            yield _soft(label)


def _setup(target: TargetView) -> str:
    """Describes the device, protocol and limits of a job's target."""
    protocol = target.protocol
    latency = f"; latency is the {LATENCY_NAMES[protocol.latency]}" if protocol.mode == "generate" else ""
    limits = str(OptionLimits(**target.limits.model_dump()))
    within = f" Searched within {limits}." if limits else ""
    return _soft(f"{target.device}: {protocol.setup}{latency}.{within}")


def _device_facts(devices: Sequence[DeviceView]) -> Iterator[str]:
    yield "<h2>Devices</h2>"
    if not devices:
        yield _soft("Nothing was measured, or the devices are deleted.")
        return
    columns = [
        {
            "class": device.device_class,
            "processor": f"{device.facts.cpu}, {device.facts.architecture}",
            "cores that measure": device.facts.cores,
            "memory": gigabytes(device.facts.memory_bytes),
            "GPU": ", ".join(str(gpu.get("name", NONE)) for gpu in device.facts.gpus) or None,
            "system": device.facts.system,
            **{each.runtime: each.version for each in device.facts.runtimes},
            **device.facts.extra,
        }
        for device in devices
    ]
    names = dict.fromkeys(name for column in columns for name in column)
    values = {name: [column.get(name) for column in columns] for name in names}
    rows = [(name, *(NONE if value is None else str(value) for value in row)) for name, row in values.items()]
    yield _scrolling(table_html(None, ["", *(device.name for device in devices)], rows))


def _commands_section(report: Report) -> Iterator[str]:
    yield "<h2>Do it again</h2>"
    yield _soft("Run these commands in this folder, with edgefront installed. The files that they read are in it.")
    for each in report.commands:
        yield f"<h3>{escape(each.title[:1].upper() + each.title[1:])}</h3><pre>{escape(each.command)}</pre>"


def _scrolling(html: str, kind: str = "") -> str:
    """Wraps HTML in a region that scrolls if its content is wider than the page."""
    return f'<div class="wide {kind}" tabindex="0">{html}</div>'


def _paragraph(text: str, kind: str) -> str:
    return f'<p class="{kind}">{escape(text)}</p>'


def _soft(text: str) -> str:
    return _paragraph(text, "soft")
