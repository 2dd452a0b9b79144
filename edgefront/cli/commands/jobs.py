"""`edgefront job …`: submits, shows and controls search jobs."""

from __future__ import annotations

from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefront.cli import exits
from edgefront.cli.commands.devices import only_device
from edgefront.cli.commands.inherit import parent_training
from edgefront.cli.commands.options import (
    Explain,
    JobId,
    LimitOptions,
    Newest,
    ProtocolFields,
    ProtocolOptions,
    SpaceOptions,
    TrainingBudgetOptions,
    Watch,
)
from edgefront.cli.session import Session, command, group, state_commands
from edgefront.client.show.output import moment, print_event
from edgefront.client.show.table import Table
from edgefront.core.common.errors import EdgefrontError
from edgefront.core.common.states import JobState
from edgefront.core.common.validation import checked

if TYPE_CHECKING:
    from edgefront.core.schemas.jobs import JobView

app = group("Search jobs: estimate, submit, watch, extend, control.")


@command(app, "submit")
def submit(
    session: Session,
    file: Annotated[
        Path | None,
        typer.Argument(help="File with the job as JSON, in the format of POST /v1/jobs; or use the options."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the job. Default: the kind of search and the limits.")
    ] = None,
    space: SpaceOptions = SpaceOptions(),
    target: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DEVICE[:RUNTIME[:THREADS]][,FIELD=VALUE]",
            help="Device, runtime and threads to measure with, and fields of the protocol for it alone, as in "
            "jetson:llamacpp:2,kv_cache=q8_0; class=NAME for a device class. May be repeated. Default: the only active "
            "device.",
        ),
    ] = None,
    limit: LimitOptions = LimitOptions(),
    measurement: ProtocolOptions = ProtocolOptions(),
    preset: Annotated[
        str | None,
        typer.Option(
            help="lts-paper: search by LTS as published: its algorithm, proxy, population, iterations; epsilon 0."
        ),
    ] = None,
    algorithm: Annotated[
        str,
        typer.Option(
            help="surrogate, lts, random or par-supernet. Default: surrogate.",
        ),
    ] = "auto",
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Setting of the algorithm.")
    ] = None,
    proxy: Annotated[
        str,
        typer.Option(
            help="Proxy for quality: quality_law, decoder_parameters or total_parameters. Default: quality_law, where "
            "a law covers the space.",
        ),
    ] = "auto",
    proxy_setting: Annotated[
        list[str] | None,
        typer.Option("--proxy-set", metavar="KEY=VALUE", help="Setting of the proxy: law=NAME."),
    ] = None,
    training: TrainingBudgetOptions = TrainingBudgetOptions(),
    candidates: Annotated[int | None, typer.Option(help="Number of candidates for each target.")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Wall-clock minutes on each device, from the first launch there.")
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Relative differences in quality, latency and memory up to which candidates count as alike. "
            "Default: 0.02."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="The same seed proposes the same candidates.")] = 0,
    watch: Watch = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only estimate the job, and list the reasons for which it would be refused."),
    ] = False,
) -> None:
    """Submit a search job."""
    from edgefront.client import requests
    from edgefront.client.show.progress import show_estimate
    from edgefront.core.schemas.jobs import JobRequest

    if file is not None:
        request = requests.read_request(file, JobRequest)
    else:
        targets = [requests.parse_target(text) for text in target or [only_device(session)]]
        request = checked(
            JobRequest,
            {
                "name": name,
                "space": requests.space_request(
                    space.space, space.narrowed, space.model, parent_training(session, space)
                ),
                "targets": [
                    {**each, "protocol": measurement.fields | each["protocol"], "limits": limit.limits}
                    for each in targets
                ],
                **requests.apply_preset(preset, algorithm, requests.parse_settings(setting or []), proxy),
                **({} if epsilon is None else {"epsilon": epsilon}),
                "proxy_settings": requests.parse_settings(proxy_setting or []),
                **training.fields,
                "budget": {"candidates": candidates, "minutes": minutes},
                "seed": seed,
            },
        )
    if dry_run:
        estimate = session.client.jobs.estimate(request)
        session.put(estimate, lambda: show_estimate(session.out, session.err, estimate))
        if estimate.refusals:
            raise typer.Exit(exits.REFUSED)
        return
    job = session.client.jobs.create(request)
    if watch:
        session.note(f"submitted {job.id}")
        _watch(session, job.id)
        return

    def show() -> None:
        session.out.print(job.id)
        for target in job.targets:
            session.note(f"{target.name}: {target.note or target.state}")
        session.note(f"proxy: {job.proxy_trust.sentence}")
        session.note(f"watch it with `edgefront job watch {job.id}`, or at {session.client.url}/jobs/{job.id}")

    session.put(job, show)


@command(app, "list")
def list_jobs(
    session: Session,
    state: Annotated[str | None, typer.Option(help="List only jobs in this state.")] = None,
    limit: Newest = 50,
) -> None:
    """List jobs, the newest first."""
    jobs = list(islice(session.client.jobs.list(state=state, limit=min(limit, 200)), limit))

    table = Table.of(
        jobs,
        {
            "id": lambda job: job.id,
            "name": lambda job: job.name,
            "state": lambda job: job.state,
            "targets": lambda job: ", ".join(target.name for target in job.targets),
            "measured": lambda job: str(sum(target.settled for target in job.targets)),
            "frontier": lambda job: str(sum(target.frontier_size for target in job.targets)),
            "created": lambda job: moment(job.created_at),
        },
        right=("measured", "frontier"),
        drop_first=("targets", "created", "frontier"),
    )
    session.put(jobs, table)


@command(app, "show")
def show_job(session: Session, job: JobId) -> None:
    """Show a job and its targets."""
    from edgefront.client.show.progress import progress_table

    view = session.client.jobs.get(job)

    def show() -> None:
        session.out.print(progress_table(view))
        facts: dict[str, Any] = {
            "space": view.request.space.name,
            "narrowed": view.request.space.narrow or "not at all",
            "algorithm": view.request.algorithm.name,
            "seed": view.request.seed,
            "created": moment(view.created_at),
            "finished": moment(view.finished_at),
        }
        if view.reason:
            facts["reason"] = view.reason
        facts["proxy"] = f"{view.request.proxy}. {view.proxy_trust.sentence}"
        for fact, value in facts.items():
            session.say(f"{fact:10} {value}")
        for target in view.targets:
            session.say(f"{target.name}: {target.protocol.setup}")
            if target.summary:
                session.say(f"{target.name}: {target.summary}")

    session.put(view, show)


@command(app, "watch")
def watch_job(session: Session, job: JobId) -> None:
    """Watch a job until it ends. With --json: one event per line. Ctrl-C leaves the job running."""
    _watch(session, job)


def _watch(session: Session, job_id: str, after: int = 0) -> None:
    from edgefront.client.show import progress

    job: JobView = session.client.jobs.get(job_id)  # fails at once if the job does not exist
    client = session.watching_client
    if session.json:
        for event in client.jobs.events(job_id, after=after):
            print_event(event)
        job = client.jobs.get(job_id)
    else:
        job = progress.show(progress.views(lambda: client.jobs.get(job_id)), session.screen) or job
        for target in job.targets:
            if target.summary:
                session.say(f"{target.name}: {target.summary}")
        session.note(f"proxy: {job.proxy_trust.sentence}")
    require_success(job)


def require_success(job: JobView) -> None:
    """Raises `EdgefrontError` if the job failed."""
    if job.state == JobState.FAILED:
        notes = "; ".join(f"{target.name}: {target.note}" for target in job.targets if target.note)
        raise EdgefrontError(f"job {job.id} failed: {job.reason or notes or 'see its targets'}")


@command(app, "recommend")
def recommend(
    session: Session,
    job: JobId,
    target: Annotated[str | None, typer.Option(help="Id or name of a target. Default: all of the job's.")] = None,
    limit: LimitOptions = LimitOptions(),
    training: TrainingBudgetOptions = TrainingBudgetOptions(),
    explain: Explain = False,
) -> None:
    """Show the best measured model of a job within limits, and the alternatives.

    Works while the job runs. Limits that are not given are the job's own. If nothing fits: the nearest model, and which
    limit to move by how much (exit code 10).
    """
    from edgefront.client.show import published
    from edgefront.client.show.recommendation import show

    client, budget = session.client, training.values
    view = client.jobs.get(job)
    if view.request.space.published is not None:
        choices = client.jobs.choices(job, **asdict(limit))
        session.put(choices, lambda: published.show(choices, session.out, explain=explain))
        if any(each.recommended is None for each in choices.every):
            raise typer.Exit(exits.NOTHING_FITS)
        return
    names = [target] if target else [item.id for item in view.targets]
    views = [client.jobs.recommendation(job, target=name, **asdict(limit), **budget) for name in names]

    def show_all() -> None:
        for view in views:
            show(view, session.out, explain=explain)

    session.put(views[0] if target else views, show_all)
    if any(view.recommended is None for view in views):
        raise typer.Exit(exits.NOTHING_FITS)


@command(app, "extend")
def extend(
    session: Session,
    job: JobId,
    target: Annotated[
        str,
        typer.Option(
            metavar="DEVICE[:RUNTIME[:THREADS]]",
            help="Device to add, with runtime and threads; class=NAME for a device class.",
        ),
    ],
    protocol: ProtocolFields = None,
    limit: LimitOptions = LimitOptions(),
    watch: Watch = False,
) -> None:
    """Add a device to a job: about ten of the job's candidates are measured on the device, then only those predicted to
    matter.

    Protocol and limits are those of the job's first target, unless given here.
    """
    from edgefront.client import requests

    added = requests.parse_target(target)
    protocol_changes = added.pop("protocol") | requests.parse_protocol(protocol or [])
    limit_changes = {name: value for name, value in limit.limits.items() if value is not None}
    if protocol_changes or limit_changes:
        first = session.client.jobs.get(job).request.targets[0]
        added["protocol"] = requests.changed_protocol(first.protocol, protocol_changes)
        added["limits"] = first.limits.model_dump() | limit_changes
    extended = session.client.jobs.extend(job, **added)
    if watch:
        _watch(session, extended.id, after=extended.last_event)
        return

    def show() -> None:
        session.out.print(extended.id)
        new_target = extended.targets[-1]
        session.note(f"{new_target.name}: {new_target.note or new_target.state}")

    session.put(extended, show)


state_commands(
    app,
    "jobs",
    JobId,
    {
        "pause": "Pause a job: nothing new is measured until it is resumed. Running measurements still count.",
        "resume": "Resume a paused job.",
        "cancel": "End a job permanently; its results are kept.",
        "delete": "Delete a job with its candidates. Measurements are kept for other jobs.",
    },
)
