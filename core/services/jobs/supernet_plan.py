"""Training of a search's supernet: checked at submission, paused and resumed with the job, cancelled at the end."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.common.errors import InvalidInput, within
from edgefront.core.common.states import LIVE_TRAININGS, JobState, TrainingCommand, TrainingState
from edgefront.core.schemas.trainings import Requirements
from edgefront.core.search.interface import Snapshot
from edgefront.core.search.par_supernet import ParSupernet, ParSupernetSettings
from edgefront.core.services.datasets import check_dataset
from edgefront.core.services.jobs.resolved import ResolvedJob
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings import queries as training_queries
from edgefront.core.services.trainings import transitions as training_transitions
from edgefront.core.services.trainings.plan import check_served, resolved_recipe, resources_for
from edgefront.core.services.trainings.transitions import change_state, log_state
from edgefront.core.training.recipes.recipe import Recipe

_TASKS = ("streams", "sentences")
_SETTINGS = ("algorithm", "settings")


def recipe_of(settings: ParSupernetSettings) -> Recipe:
    """Returns the recipe that trains the supernet. `InvalidInput`, with the field's path, for an invalid recipe."""
    with within(*_SETTINGS):
        recipe = resolved_recipe(settings.recipe, dict(settings.overrides))
        what = None
        if recipe.task not in _TASKS:
            what = f"trains on {recipe.task}"
        elif recipe.precision == "float16":
            what = "trains in float16"
        elif recipe.distil is not None:
            what = "has a teacher"
        if what is not None:
            raise InvalidInput(
                f"recipe: {recipe.name} {what}; a supernet needs text, no teacher, and float32 or bfloat16",
                field="recipe",
                value=recipe.name,
                allowed=f"a recipe of {' or '.join(_TASKS)} without distil, in float32 or bfloat16",
            )
        return recipe


def dataset_of(settings: ParSupernetSettings, recipe: Recipe) -> str:
    """Returns the name of the supernet's data set. `InvalidInput` if neither search nor recipe names a data set."""
    dataset = settings.dataset or recipe.dataset
    if dataset is None:
        raise InvalidInput(
            f"dataset is missing: the recipe {recipe.name} has no default data set",
            field="dataset",
            allowed="the name of a data set",
        ).under(*_SETTINGS)
    return dataset


def check(job: ResolvedJob, settings: Settings | None) -> None:
    """Raises `InvalidInput`, with a path within the job, if the job has a supernet that no worker can train."""
    first = job.request.targets[0]
    search = job.plan(first.protocol, first.limits).algorithm
    if not isinstance(search, ParSupernet):
        return
    settings = settings or Settings()
    supernet = search.settings
    recipe = recipe_of(supernet)
    dataset = dataset_of(supernet, recipe)
    resources = resources_for(Requirements(device=supernet.device), settings)
    check_served(resources.device, resources.queue, settings)
    with within(*_SETTINGS):
        check_dataset(dataset, settings.data_folder, recipe.task, allow_remote=not settings.embedded)
        steps = min(recipe.steps, supernet.steps or recipe.steps)
        if supernet.weight_steps is not None and steps - supernet.weight_steps < 2:
            raise InvalidInput(
                f"weight_steps: {supernet.weight_steps} of {steps} steps leave fewer than 2 for the architecture",
                field="weight_steps",
                value=supernet.weight_steps,
                allowed=f"at most {max(0, steps - 2)}, or more steps",
            )
        if supernet.latency_weight is None:  # with a weight, the supernet needs latencies of candidates
            search.supernet(Snapshot())


def pause_or_resume(session: Session, target_ids: Collection[str], state: JobState, now: datetime) -> None:
    """Pauses or resumes the trainings of the targets' supernets, after the job was paused or resumed."""
    change = training_transitions.pause if state == JobState.PAUSED else training_transitions.resume
    for training in training_queries.open_supernets(session, target_ids):
        if training.wanted != TrainingCommand.CANCEL:
            change(session, training, now)


def withdraw(session: Session, target_ids: Collection[str], now: datetime) -> None:
    """Cancels the trainings of the targets' supernets."""
    for training in training_queries.open_supernets(session, target_ids):
        training.wanted = TrainingCommand.CANCEL
        if training.state in LIVE_TRAININGS:  # the worker that runs the training ends it
            training.updated_at = now
            log_state(session, training, now)
        else:
            training.finished_at = now
            change_state(session, training, TrainingState.CANCELLED, now)
