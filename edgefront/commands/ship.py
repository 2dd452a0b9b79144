"""`edgefront ship`"""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from edgefront.commands.base import Identifies, Session, command
from edgefront.commands.completion import complete_device, complete_job
from edgefront.commands.default_device import only_device
from edgefront.commands.options import (
    Force,
    PassLimitOptions,
    RecipeOptions,
    SpaceOptions,
)
from edgefront.core.states import JobState

if TYPE_CHECKING:
    from edgefront.core.wire.jobs import JobView
    from edgefront.core.wire.probes import ProbeView
    from edgefront.core.wire.trainings import TrainingView


_PANELS = {
    "Search": "job space narrow target candidates minutes",
    "Limits": "max_latency_ms max_memory_mb",
    "Training": "probes train hours data recipe setting steps licence again",
}


def add_to(app: typer.Typer) -> None:
    command(app, "ship", panels=_PANELS)(ship)


def ship(
    session: Session,
    job: Annotated[
        str | None,
        typer.Option(
            metavar="JOB", help="Use the frontier of this job instead of a new search.", autocompletion=complete_job
        ),
        Identifies("job"),
    ] = None,
    where: SpaceOptions = SpaceOptions(),
    target: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE[:RUNTIME[:THREADS]]",
            help="Device to measure on; with --job, name of its target. Default: the only active device; the job's "
            "first target.",
            autocompletion=complete_device,
        ),
    ] = None,
    limit: PassLimitOptions = PassLimitOptions(),
    candidates: Annotated[
        int | None, typer.Option(help="Number of candidates to measure. Default: the algorithm's.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(help="Wall-clock minutes of the search, from its first launch on.")
    ] = None,
    train: Annotated[
        int, typer.Option(min=1, max=16, help="Number of models to train: the largest of the frontier.")
    ] = 2,
    probes: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=16,
            help="Number of small models to train before the choice, so that the law knows these data; 0: none. "
            "Default: 3, where a law is about the models and --hours allows.",
        ),
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option(min=0, help="Estimated hours for all trainings together: probes take a third at most."),
    ] = None,
    how: RecipeOptions = RecipeOptions(),
    seed: Annotated[int, typer.Option(help="Seed of the search and of the trainings.")] = 0,
    again: Annotated[
        bool, typer.Option("--again", help="Train again, even if the same model was trained in the same way before.")
    ] = False,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the model.")] = Path("shipped"),
    force: Force = False,
) -> None:
    """Search, learn from a few small trainings, train the best models, and download the best one, in one command.

    After an interruption resume with `--job JOB`: finished searches and trainings are not repeated.
    """
    from edgefront.core.files import check_empty
    from edgefront.requests import trainings as training_request
    from edgefront.show.training_tables import watch
    from edgefront.workflows import ship as shipping

    if job is None:
        check_empty(output, force=force)
    asked = {**how.fields, "budget": {"steps": how.steps}, "seed": seed}
    training_request.make({"candidate": "cnd_to_be_found", **asked})  # report its errors before the search
    client = session.watching_client
    shipping.check_recipe(client, how.recipe, asked["overrides"])
    if job is None:
        budget = {"candidates": candidates, "minutes": minutes}
        job, target = _search(session, where, target, limit, budget, seed), None
    given: dict[str, Any] = {
        "--job": job,
        "--target": target,
        "--max-latency-ms": limit.max_latency_ms,
        "--max-memory-mb": limit.max_memory_mb,
        "--probes": probes,
        "--train": train,
        "--hours": hours,
        "--data": how.data,
        "--recipe": how.recipe,
        "--set": " ".join(how.setting or []) or None,
        "--steps": how.steps,
        "--licence": how.licence,
        "--seed": seed,
        "--output": output,
    }
    words = [word for name, value in given.items() if value is not None for word in (name, str(value))]
    session.note(
        f"The service continues without this command. To resume it: {shlex.join(['edgefront', 'ship', *words])}"
    )
    searched = _followed(session, job)
    probe = _probed(session, searched.id, probes, hours, {**asked, "target": target, "limits": _limits(limit)})
    frontier = client.frontier(searched.id, target=target, **asdict(limit))
    session.note(f"proxy: {frontier.proxy_trust.sentence}")
    points = shipping.best_points(frontier, train)
    before = {} if probe is None else shipping.trained_before(client, probe, points, asked)
    trainings = shipping.submit(client, points, asked, again, before)
    session.note("training " + ", ".join(f"{item.id} ({item.name})" for item in trainings))
    ended: list[TrainingView]
    if session.json:
        ended = [client.trainings.wait(item.id) for item in trainings]
    else:
        ended = watch(client, [item.id for item in trainings], session.screen)
    shipped = shipping.chosen(points, ended)
    shipping.fetch(client, shipped, output, session.note, force=force)
    outcome = shipping.outcome(client, searched.id, shipped)

    def show() -> None:
        session.out.print(shipping.shipped_table(shipped))
        session.note(f'generate text: edgefront generate {output} --prompt "import "')
        session.out.print(str(output), markup=False, soft_wrap=True)
        session.out.print(outcome.sentence, markup=False, soft_wrap=True)

    models = [model.to_json() for model in shipped]
    told = {
        "job": searched.id,
        "target": frontier.target,
        "models": models,
        "folder": str(output),
        "predicted": None if outcome.row is None else outcome.row.model_dump(mode="json"),
        "sentence": outcome.sentence,
    }
    session.put(told, show)


def _limits(limit: PassLimitOptions) -> dict[str, float | None]:
    return {"latency_ms": limit.max_latency_ms, "memory_mb": limit.max_memory_mb}


def _probed(
    session: Session, job_id: str, count: int | None, hours: float | None, request: dict[str, Any]
) -> ProbeView | None:
    """The job's probe, once the job has moved to the law that it refined; None where none is made."""
    from edgefront.core.errors import Conflict, InvalidInput
    from edgefront.core.states import ProbeState
    from edgefront.show.training_tables import watch
    from edgefront.workflows import ship as shipping

    if count == 0:
        return None
    client = session.watching_client
    seconds = None if hours is None else 3600 * hours
    try:
        probe = shipping.probed(
            client, job_id, {**request, "trainings": count or shipping.PROBES}, seconds, session.note
        )
    except (Conflict, InvalidInput) as error:
        if count is not None:
            raise
        session.note(f"no probes: {error.detail}")
        return None
    ids = [training.training_id for training in probe.trainings if training.training_id is not None]
    session.note(f"probing by {', '.join(ids)}")
    if not session.json and probe.state == ProbeState.TRAINING:
        watch(client, ids, session.screen)
    probe = client.jobs.wait_for_probe(job_id)
    session.note(probe.reason or f"the job has moved to the law {probe.law}")
    return probe


def _search(
    session: Session,
    space: SpaceOptions,
    target: str | None,
    limit: PassLimitOptions,
    budget: dict[str, float | None],
    seed: int,
) -> str:
    """The id of the new job."""
    from edgefront.requests import jobs as submission

    where = submission.target(target or only_device(session))
    where["limits"] = _limits(limit)
    request = submission.parse_request(
        {
            "name": "ship",
            "space": {"name": space.space, "narrow": space.narrowed},
            "targets": [where],
            "budget": budget,
            "seed": seed,
        }
    )
    made = session.client.jobs.create(request)
    session.note(f"searching: {made.id}")
    return made.id


def _followed(session: Session, job_id: str) -> JobView:
    """The job once it has ended."""
    from edgefront import follow
    from edgefront.core.errors import EdgefrontError
    from edgefront.show import progress

    client = session.watching_client
    view: JobView | None = client.jobs.get(job_id)
    if view is not None and view.state == JobState.RUNNING:
        view = client.jobs.wait(job_id) if session.json else progress.show(follow.views(client, job_id), session.screen)
    if view is None or view.state in (JobState.FAILED, JobState.PAUSED):
        state, reason = ("gone", "") if view is None else (view.state, view.reason or "see its targets")
        raise EdgefrontError(f"job {job_id} is {state}: {reason}")
    return view
