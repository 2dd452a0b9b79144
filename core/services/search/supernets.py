"""The supernet of a target's search: requests the training, and passes the trained probabilities to the algorithm."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.common.errors import InvalidInput, within
from edgefront.core.common.states import TargetState, TrainingState
from edgefront.core.schemas.trainings import Requirements
from edgefront.core.search.interface import Probabilities, Snapshot
from edgefront.core.search.par_supernet import ParSupernet
from edgefront.core.search.supernet_settings import SupernetResult
from edgefront.core.services.datasets import check_dataset
from edgefront.core.services.jobs.supernet_plan import dataset_of, recipe_of
from edgefront.core.services.jobs.transitions import change_state, end_target
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.lifecycle import SupernetRequest, create_supernet
from edgefront.core.store.tables import Job, Target, Training


def wanted_supernet(search: ParSupernet, snapshot: Snapshot, settings: Settings) -> SupernetRequest:
    """Returns the training request of a search's supernet; `request_training` adds the fields of job and target.

    Reads the data set's manifest, so call this outside transactions. `InvalidInput` if the data set is not prepared.
    """
    asked = search.settings
    recipe = recipe_of(asked)
    dataset = dataset_of(asked, recipe)
    limits = {"steps": asked.steps, "hours": asked.hours}
    with within("algorithm"):
        supernet = search.supernet(snapshot)
    return SupernetRequest(
        owner="",
        name="",
        dataset=dataset,
        recipe=asked.recipe,
        seed=0,
        dataset_digest=check_dataset(dataset, settings.data_folder, recipe.task),
        overrides=asked.overrides,
        supernet=supernet.model_dump(mode="json"),
        budget={name: limit for name, limit in limits.items() if limit is not None},
        requires=Requirements(device=asked.device),  # one GPU, because one process trains the supernet
    )


def request_training(
    session: Session, job: Job, target: Target, asked: SupernetRequest, settings: Settings, now: datetime
) -> None:
    """Creates the supernet's training, and stores in the target's note that the target waits for the training."""
    named = replace(
        asked,
        owner=job.owner,
        name=f"{job.name[:60]} {target.name[:20]} supernet",
        seed=target.seed >> 43,  # 20 bits, to be readable; the seeds of the searches count up from this seed
        job_id=job.id,
        target_id=target.id,
    )
    training = create_supernet(session, named, settings, now)
    change_state(session, target, target.state, f"{target.note} {_waiting(training)}".strip(), now)


def result(
    session: Session, target: Target, search: ParSupernet, training: Training, now: datetime
) -> list[Probabilities] | None:
    """Returns the supernet's probabilities for each seed; None while the training runs, or if the training failed. A
    failed training ends the target. The end of a training advances the target.
    """
    if training.state in (TrainingState.FAILED, TrainingState.CANCELLED):
        reason = f": {training.reason}" if training.reason else ""
        end_target(
            session, target, TargetState.FAILED, f"The supernet, training {training.id}, {training.state}{reason}.", now
        )
        return None
    if training.state != TrainingState.DONE:
        return None
    try:
        probabilities = [trained.probabilities for trained in SupernetResult.parse(training.result or {}).searches]
        search.check(probabilities)
    except InvalidInput as error:
        note = f"The supernet, training {training.id}, left no readable result: {error.detail}"
        end_target(session, target, TargetState.FAILED, note, now)
        return None
    rest = target.note.replace(_waiting(training), "").strip()
    if rest != target.note:
        change_state(session, target, target.state, rest, now)
    return [*probabilities]


def _waiting(training: Training) -> str:
    return f"The supernet is trained first: {training.id}."
