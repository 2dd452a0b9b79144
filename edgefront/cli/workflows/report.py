"""A job's answer as a folder that one attaches to a ticket: what it rests on, and the commands to do it again."""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from html import escape
from pathlib import Path
from typing import Any

from edgefront import __version__
from edgefront.cli.extras import need
from edgefront.cli.show import published, recommendation
from edgefront.cli.show.frontier_table import frontier_label
from edgefront.cli.show.output import NONE, gigabytes, moment
from edgefront.cli.show.table import table_html
from edgefront.client.client import Client
from edgefront.client.resources.jobs import Job
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
    devices = []
    for device_id in dict.fromkeys(
        launch.device_id for each in launches.values() for launch in each if launch.device_id
    ):
        with suppress(NotFound):  # it was deleted, or is another owner's
            devices.append(client.devices.get(device_id))
    report = report.model_copy(update={"launches": launches, "devices": tuple(devices)})
    return report.model_copy(update={"commands": tuple(_commands(report))})


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


def draw_pictures(report: Report, job: Job, note: Callable[[str], None]) -> dict[str, str]:
    """The frontier of each target as SVG, by the target's id; none of a job among published models. Without matplotlib
    none, with a note that says what to install.
    """
    try:
        need("a report with pictures", "demo", install="notebook")
    except EdgefrontError as error:
        note(f"without pictures: {error.detail}")
        return {}
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


_HEAD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
"""
_STYLE = """
:root { color-scheme: light; }
body { margin: 0 auto; max-width: 88rem; padding: 1rem; font: 16px/1.5 system-ui, sans-serif; color: #17212b; background: #fff; }
h1 { font-size: 1.5rem; line-height: 1.25; } h2 { font-size: 1.2rem; margin-top: 2rem; } h3 { font-size: 1rem; margin: 1.2rem 0 .3rem; }
h1, h2, h3, p, td, summary { overflow-wrap: anywhere; }
p { margin: .4rem 0; } .soft { color: #56636f; font-size: .9rem; }
.answer { font-weight: 600; padding: .6rem .8rem; background: #e3f4e9; border-radius: 7px; }
.notice { padding: .6rem .8rem; background: #fff3d9; color: #7a4b00; border-radius: 7px; }
.wide { overflow-x: auto; } table { border-collapse: collapse; font-size: .9rem; margin: .5rem 0; }
caption { text-align: left; font-weight: 600; padding: .2rem 0; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid #d9dfe4; vertical-align: top; }
td { overflow-wrap: normal; font-variant-numeric: tabular-nums; min-width: 3rem; } th { font-weight: 600; }
td[style*="right"] { white-space: nowrap; } .models td:nth-child(3) { min-width: 15rem; }
figure { margin: 1rem 0; } figure svg { width: 100%; max-width: 46rem; height: auto; }
pre { padding: .6rem .8rem; background: #f0f4f6; border-radius: 6px; overflow-x: auto; font: .9em ui-monospace, monospace; }
details { margin: .5rem 0; border: 1px solid #d9dfe4; border-radius: 7px; padding: .4rem .8rem; } summary { cursor: pointer; }
@media (max-width: 40rem) {
  th, td { padding: .25rem .35rem; }
  .models td:nth-child(2) { overflow-wrap: anywhere; min-width: 5.5rem; } .models td:nth-child(3) { min-width: 9rem; }
}
@media print { .wide { overflow: visible; } table { font-size: .75rem; } }
"""  # noqa: E501


def page(report: Report, pictures: Mapping[str, str]) -> str:
    """The whole page. `pictures` are SVG elements, by the id of a target."""
    return _HEAD + "\n".join(
        [
            f"<title>{escape(report.job.name)}: report</title>",
            f"<style>{_STYLE}</style>",
            *_top(report),
            *_answers(report, pictures),
            *_device_facts(report.devices),
            *_again(report),
            "</html>\n",
        ]
    )


def _top(report: Report) -> Iterator[str]:
    job = report.job
    yield f"<h1>{escape(job.name)}</h1>"
    yield _soft(
        f"Job {job.id}, {job.state}, begun {moment(job.created_at)}"
        + ("" if job.finished_at is None else f", finished {moment(job.finished_at)}")
        + f". This report was made {moment(report.made_at)} by edgefront {report.client}, from a service of version "
        f"{report.service}. report.json has the same facts, with all raw samples."
    )
    if job.state not in ENDED_JOBS:
        text = f"The job is {job.state}, not ended: this is what was known when the report was made."
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
        yield _wide(published.choices_table(rows, view.score.partition(":")[2])._repr_html_())
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
        yield _wide(recommendation.recommendation_table(view, target.protocol)._repr_html_(), "models")
    yield from map(_soft, recommendation.notes(view))
    if frontier.points or frontier.baseline:
        yield "<h3>Pareto frontier</h3>"
        yield _soft(f"{frontier.summary} {frontier.note}".strip())
        if picture is not None:
            label = escape(f"Quality against latency of what was measured on {target.name}")
            yield f'<figure role="img" aria-label="{label}">{picture}</figure>'
        trained = {candidate.candidate_id: candidate.perplexity for candidate in frontier.trained}
        baseline = "my model" if frontier.own_model else "baseline"
        best = view.recommended.id if view.recommended is not None else None
        rows = [("recommended" if point.id == best else "", point) for point in frontier.points]
        rows += [(baseline, point) for point in frontier.baseline]
        shown = recommendation.models_table(rows, view.proxy, trained, target.protocol)
        yield _wide(shown._repr_html_(), "models")
        if said := frontier_label(frontier):
            yield _soft(said)


def _setup(target: TargetView) -> str:
    """What was measured on which device, and within which limits it was looked for."""
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
    facts = [_facts(device) for device in devices]
    names = dict.fromkeys(name for each in facts for name in each)
    rows = [(name, *(each.get(name, NONE) for each in facts)) for name in names]
    yield _wide(table_html(None, ["", *(device.name for device in devices)], rows))


def _facts(device: DeviceView) -> dict[str, str]:
    facts = device.facts
    said: dict[str, Any] = {
        "class": device.device_class,
        "processor": f"{facts.cpu}, {facts.architecture}",
        "cores that measure": facts.cores,
        "memory": gigabytes(facts.memory_bytes),
        "GPU": ", ".join(str(gpu.get("name", NONE)) for gpu in facts.gpus) or None,
        "system": facts.system,
        **{each.runtime: each.version for each in facts.runtimes},
        **facts.extra,
    }
    return {name: NONE if value is None else str(value) for name, value in said.items()}


def _again(report: Report) -> Iterator[str]:
    yield "<h2>Do it again</h2>"
    yield _soft("In this folder, where edgefront is installed. The files that commands read lie beside this page.")
    for each in report.commands:
        yield f"<h3>{escape(each.title[:1].upper() + each.title[1:])}</h3><pre>{escape(each.command)}</pre>"


def _wide(html: str, kind: str = "") -> str:
    """What may be wider than the page, and then scrolls."""
    return f'<div class="wide {kind}" tabindex="0">{html}</div>'


def _paragraph(text: str, kind: str) -> str:
    return f'<p class="{kind}">{escape(text)}</p>'


def _soft(text: str) -> str:
    return _paragraph(text, "soft")
