"""The supernet of a target's search: the pool trains it, and its result is passed to the algorithm."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.errors import InvalidInput
from edgefront.core.search.interface import Snapshot
from edgefront.core.search.par_supernet import ParSupernet
from edgefront.core.services.jobs.closing import change_state, end_target
from edgefront.core.services.jobs.supernet_plan import dataset_of, recipe_of, requirements_of
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.datasets import check_dataset
from edgefront.core.services.trainings.lifecycle import create_supernet
from edgefront.core.services.trainings.queries import trainings as rows
from edgefront.core.store.tables import Job, Target, Training
from edgefront.core.supernet.result import SupernetResult


def told(
    session: Session,
    job: Job,
    target: Target,
    algorithm: ParSupernet,
    snapshot: Snapshot,
    settings: Settings | None,
    now: datetime,
) -> ParSupernet | None:
    """The algorithm with the result of the target's supernet.

    None while there is no result: the training is requested, running, or has failed, which ends the target. When a
    training ends, its target is advanced.
    """
    training = rows.supernet_of(session, target.id)
    if training is None:
        training = _ask_for(session, job, target, algorithm, snapshot, settings or Settings(), now)
        note = " ".join(text for text in (target.note, _waiting(training)) if text)
        change_state(session, target, target.state, note, now)
        return None
    if training.state in ("failed", "cancelled"):
        reason = f": {training.reason}" if training.reason else ""
        end_target(session, target, "failed", f"Its supernet, training {training.id}, {training.state}{reason}.", now)
        return None
    if training.state != "done":
        return None
    try:
        result = SupernetResult.parse(training.result or {})
        knowing = algorithm.given([search.probabilities for search in result.searches])
    except InvalidInput as error:
        note = f"Its supernet, training {training.id}, left no readable result: {error.detail}"
        end_target(session, target, "failed", note, now)
        return None
    rest = target.note.replace(_waiting(training), "").strip()
    if rest != target.note:
        change_state(session, target, target.state, rest, now)
    return knowing


def _ask_for(
    session: Session,
    job: Job,
    target: Target,
    algorithm: ParSupernet,
    snapshot: Snapshot,
    settings: Settings,
    now: datetime,
) -> Training:
    asked = algorithm.settings
    recipe = recipe_of(asked)
    dataset = dataset_of(asked, recipe)
    limits = {"steps": asked.steps, "hours": asked.hours}
    training = create_supernet(
        session,
        owner=job.owner,
        name=f"{job.name[:60]} {target.name[:20]} supernet",
        dataset=dataset,
        recipe=asked.recipe,
        overrides=asked.overrides,
        supernet=algorithm.supernet(snapshot).model_dump(mode="json"),
        budget={name: limit for name, limit in limits.items() if limit is not None},
        seed=target.seed >> 43,  # 20 bits, to be readable; the seeds of the searches count up from it
        settings=settings,
        now=now,
        job_id=job.id,
        target_id=target.id,
        requires=requirements_of(asked),
    )
    training.dataset_digest = check_dataset(dataset, settings.data_folder, recipe.task)
    return training


def _waiting(training: Training) -> str:
    return f"Its supernet is trained first: {training.id}."
