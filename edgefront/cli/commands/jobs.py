"""`edgefront job …`"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefront.cli.commands.base import Session, command, group, steering
from edgefront.cli.commands.devices import only_device
from edgefront.cli.commands.inherit import parent
from edgefront.cli.commands.options import (
    Explain,
    JobId,
    LimitOptions,
    ModelSpaceOptions,
    Newest,
    ProtocolFields,
    ProtocolOptions,
    TrainingBudgetOptions,
    Watch,
)
from edgefront.core.common.states import JobState

if TYPE_CHECKING:
    from edgefront.core.schemas.jobs import JobRequest, JobView

app = group("Search jobs: estimate, submit, watch, extend, control.")


@command(app, "submit")
def submit(
    session: Session,
    file: Annotated[
        Path | None,
        typer.Argument(help="File with the job as JSON, in the format of POST /v1/jobs; or use the options."),
    ] = None,
    name: Annotated[str, typer.Option(help="Name of the job.")] = "search",
    within: ModelSpaceOptions = ModelSpaceOptions(),
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
    how: ProtocolOptions = ProtocolOptions(),
    preset: Annotated[
        str | None,
        typer.Option(
            help="lts-paper: search by LTS as published: its algorithm, proxy, population, iterations; epsilon 0."
        ),
    ] = None,
    algorithm: Annotated[
        str,
        typer.Option(
            help="surrogate, lts, random, nsga2 or par-supernet. Default: surrogate, where the proxy can be predicted.",
        ),
    ] = "auto",
    setting: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Setting of the algorithm.")
    ] = None,
    proxy: Annotated[
        str,
        typer.Option(
            help="Proxy for quality, a name from `proxy list`. Default: quality_law, where a law covers the space.",
        ),
    ] = "auto",
    proxy_setting: Annotated[
        list[str] | None,
        typer.Option("--proxy-set", metavar="KEY=VALUE", help="Setting of the proxy: rows=16, length=192."),
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
        typer.Option("--dry-run", help="Say what it would take, and what it would be refused for; submit nothing."),
    ] = False,
) -> None:
    """Submit a search job."""
    from edgefront.cli import exits
    from edgefront.cli.show.progress import show_estimate
    from edgefront.client.requests import jobs as submission
    from edgefront.core.common.validation import checked
    from edgefront.core.schemas.jobs import JobRequest

    if file is not None:
        request = submission.read_request(file, JobRequest)
    else:
        targets = [submission.target(given) for given in target or [only_device(session)]]
        for placed in targets:
            placed["protocol"] = how.fields | placed["protocol"]
            placed["limits"] = limit.limits
        chosen = submission.preset(preset, algorithm, submission.settings(setting or []), proxy)
        request = checked(
            JobRequest,
            {
                "name": name,
                "space": submission.space_request(within.space, within.narrowed, within.model, parent(session, within)),
                "targets": targets,
                **chosen,
                **({} if epsilon is None else {"epsilon": epsilon}),
                "proxy_settings": submission.settings(proxy_setting or []),
                **training.fields,
                "budget": {"candidates": candidates, "minutes": minutes},
                "seed": seed,
            },
        )
    if dry_run:
        expected = session.client.jobs.estimate(request)
        session.put(expected, lambda: show_estimate(session.out, session.err, expected))
        if expected.refusals:
            raise typer.Exit(exits.REFUSED)
    else:
        _submit(session, request, watch)


def _submit(session: Session, request: JobRequest, watch: bool) -> None:
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
    from itertools import islice

    from edgefront.cli.show.output import moment, table

    jobs = list(islice(session.client.jobs.list(state=state, limit=min(limit, 200)), limit))

    def show() -> None:
        shown = table(
            *("id", "name", "state", "targets", "measured", "frontier", "created"),
            right=("measured", "frontier"),
            less=("targets", "created", "frontier"),
        )
        for job in jobs:
            shown.add_row(
                job.id,
                job.name,
                job.state,
                ", ".join(target.name for target in job.targets),
                str(sum(target.settled for target in job.targets)),
                str(sum(target.frontier_size for target in job.targets)),
                moment(job.created_at),
            )
        session.out.print(shown)

    session.put(jobs, show)


@command(app, "show")
def show_job(session: Session, job: JobId) -> None:
    """Show a job and its targets."""
    view = session.client.jobs.get(job)
    session.put(view, lambda: _print(session, view))


@command(app, "watch")
def watch_job(session: Session, job: JobId) -> None:
    """Watch a job until it ends. With --json: one event per line. Ctrl-C leaves the job running."""
    _watch(session, job)


def _watch(session: Session, job_id: str, after: int = 0) -> None:
    from edgefront.cli.show import progress
    from edgefront.cli.show.output import print_event

    session.client.jobs.get(job_id)  # report an error of the request at once
    client = session.watching_client
    if session.json:
        for event in client.jobs.events(job_id, after=after):
            print_event(event)
        ended: JobView | None = client.jobs.get(job_id)
    else:
        ended = progress.show(progress.views(client, job_id), session.screen)
        for target in ended.targets if ended else ():
            if target.summary:
                session.say(f"{target.name}: {target.summary}")
        if ended is not None:
            session.note(f"proxy: {ended.proxy_trust.sentence}")
    if ended is not None and ended.state == JobState.FAILED:
        from edgefront.core.common.errors import EdgefrontError

        raise EdgefrontError(f"job {job_id} failed: {ended.reason or 'see its targets'}")


@command(app, "recommend")
def recommend(
    session: Session,
    job: JobId,
    target: Annotated[str | None, typer.Option(help="Id or name of a target. Default: all of the job's.")] = None,
    limit: LimitOptions = LimitOptions(),
    training: TrainingBudgetOptions = TrainingBudgetOptions(),
    explain: Explain = False,
) -> None:
    """Show the best model within limits that a job has measured, and what others trade for it.

    Answered from what is known, also while the job runs. Limits that are not given are the job's own. If nothing fits:
    what comes nearest, and which limit to move by how much (exit code 10).
    """
    from edgefront.cli import exits
    from edgefront.cli.show import published
    from edgefront.cli.show.recommendation import show

    client, budget = session.client, training.given
    searched = client.jobs.get(job)
    if searched.request.space.published is not None:
        choices = client.jobs.choices(job, **asdict(limit))
        session.put(choices, lambda: published.show(choices, session.out, explain=explain))
        if any(each.recommended is None for each in choices.every):
            raise typer.Exit(exits.NOTHING_FITS)
        return
    names = [target] if target else [item.id for item in searched.targets]
    views = [client.jobs.recommendation(job, target=name, **asdict(limit), **budget) for name in names]

    def say() -> None:
        for view in views:
            show(view, session.out, explain=explain)

    session.put(views[0] if target else views, say)
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
    """Add a device to a job: about ten of its candidates are measured there, then only those predicted to matter.

    Protocol and limits are those of the job's first target but for what is given here.
    """
    from edgefront.client.requests import jobs as submission

    place = submission.target(target)
    given = place.pop("protocol") | submission.settings(protocol or [], option="protocol")
    changed = {name: most for name, most in limit.limits.items() if most is not None}
    fields: dict[str, Any] = {}
    if given or changed:
        first = session.client.jobs.get(job).request.targets[0]
        fields["protocol"] = submission.changed_protocol(first.protocol, given)
        fields["limits"] = first.limits.model_dump() | changed
    extended = session.client.jobs.extend(job, **place, **fields)
    if watch:
        _watch(session, extended.id, after=extended.last_event)
        return

    def show() -> None:
        session.out.print(extended.id)
        added = extended.targets[-1]
        session.note(f"{added.name}: {added.note or added.state}")

    session.put(extended, show)


steering(
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


def _print(session: Session, job: JobView) -> None:
    from edgefront.cli.show.output import moment
    from edgefront.cli.show.progress import progress_table

    session.out.print(progress_table(job))
    facts: dict[str, Any] = {
        "space": job.request.space.name,
        "narrowed": job.request.space.narrow or "not at all",
        "algorithm": job.request.algorithm.name,
        "seed": job.request.seed,
        "created": moment(job.created_at),
        "finished": moment(job.finished_at),
    }
    if job.reason:
        facts["reason"] = job.reason
    facts["proxy"] = f"{job.request.proxy}. {job.proxy_trust.sentence}"
    for fact, value in facts.items():
        session.say(f"{fact:10} {value}")
    for target in job.targets:
        session.say(f"{target.name}: {target.protocol.setup}")
        if target.summary:
            session.say(f"{target.name}: {target.summary}")
