"""Resolves a request for trainings: architectures, recipe, data set, and requirements on the worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from sqlalchemy import select
from sqlalchemy.orm import Session

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.costs import CostOptions, costs
from edgefront.core.architectures.models import named_model
from edgefront.core.common.errors import InvalidInput, NotFound, within
from edgefront.core.common.states import TrainingKind, TrainingState
from edgefront.core.common.units import GIB, MB
from edgefront.core.data.tokenizers.load import load_tokenizer, same_tokens
from edgefront.core.schemas.trainings import MAX_PICKS, FrontierPick, Requirements, TrainingRequest
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import candidate_of, job_of, target_of, training_of
from edgefront.core.services.datasets import check_dataset, find_dataset
from edgefront.core.services.settings import Settings
from edgefront.core.services.stored import JOB_REQUEST
from edgefront.core.services.trainings import queries as training_queries
from edgefront.core.services.trainings.folder import training_folder
from edgefront.core.services.trainings.machine import cannot_train, machine_of, served_queues
from edgefront.core.services.trainings.views import licence_of
from edgefront.core.store.sql import Document, any_of
from edgefront.core.store.tables import Candidate, Training
from edgefront.core.training.evaluation.model_card import forbids_derivatives
from edgefront.core.training.recipes.catalogue import recipe as named_recipe
from edgefront.core.training.recipes.recipe import RECOVERY, Recipe, check_task, default_recipe
from edgefront.core.training.run_folder import RESULT, with_vocabulary

Item = TypeVar("Item")

_PREPARED_WITH = {"bpe": " --vocabulary FOLDER/tokenizer.json", "words": " --vocabulary FOLDER/vocabulary.txt"}


@dataclass(frozen=True)
class Subject:
    """An architecture to train, and the candidate from which the architecture comes, if there is one."""

    name: str
    architecture: Architecture
    decoder_parameters: int
    candidate: Candidate | None = None


class Resources(NamedTuple):
    """Resources that a training requires of its worker, and the queue of workers with such resources."""

    device: str
    gpus: int
    """Number of GPUs; 0 on a CPU."""
    memory_bytes: int | None
    queue: str


@dataclass(frozen=True)
class TrainingPlan:
    """A resolved request for trainings. Each subject becomes one training."""

    subjects: tuple[Subject, ...]
    recipe: Recipe
    dataset: str
    dataset_digest: str | None
    resources: Resources


@dataclass(frozen=True)
class Selection:
    """Database rows that a request for trainings refers to, detached from their session."""

    candidates: tuple[tuple[str, Candidate], ...] = ()
    """Pairs of a training's name and the candidate to train."""
    start: Training | None = None
    """Training whose weights initialise the new trainings."""


def read_selection(session: Session, principal: Principal, request: TrainingRequest) -> Selection:
    """Reads the database rows that the request names.

    Raises `NotFound` for missing rows; `InvalidInput` for an empty frontier, or if the parent model (from which the
    job's models inherit weights) was deleted.
    """
    if request.start is not None:
        start: Training | None = training_of(session, principal, request.start)
    else:
        start = _parent(session, principal, request)
    if request.candidate is not None:
        candidate, job = candidate_of(session, principal, request.candidate)
        return Selection(((request.name or f"{job.name} {candidate.number}", candidate),), start)
    if request.frontier is not None:
        return Selection(tuple(_from_frontier(session, principal, request.frontier, request.name)), start)
    return Selection(start=start)


def _parent(session: Session, principal: Principal, request: TrainingRequest) -> Training | None:
    """Returns the parent model, from which the job's models inherit weights; None if no weights are inherited."""
    if not request.inherit:
        return None
    if request.candidate is not None:
        _, job = candidate_of(session, principal, request.candidate)
    elif request.frontier is not None:
        job = job_of(session, principal, request.frontier.job)
    else:
        return None
    job_request = JOB_REQUEST.read_or(job.request, None)
    parent = None if job_request is None else job_request.space.inherit
    if parent is None:
        return None
    try:
        return training_of(session, principal, parent)
    except NotFound:
        raise InvalidInput(
            f"start is missing: {parent} was deleted, and the models of job {job.id} inherit its weights",
            field="start",
            allowed="the id of the same model, imported again",
        ) from None


def plan_for(request: TrainingRequest, selection: Selection, settings: Settings) -> TrainingPlan:
    """Resolves a request for trainings. Reads the data set's manifest, but not the database.

    Raises `InvalidInput` with the field's path within the request; `NotFound` for an unknown model.
    """
    subjects = _subjects(request, selection)
    recovery = RECOVERY if request.inherit else None
    name = request.recipe or recovery or default_recipe(subject.architecture for subject in subjects)
    recipe = resolved_recipe(name, request.overrides)
    if (request.budget.steps or 0) > recipe.steps:
        raise InvalidInput(
            f"budget.steps {request.budget.steps:,} is above the {recipe.steps:,} steps of the recipe {recipe.name}; "
            f"override those to train longer (--set steps={request.budget.steps})",
            field="budget.steps",
            value=request.budget.steps,
            allowed=f"1 to {recipe.steps}",
        )
    dataset = request.dataset or recipe.dataset
    if dataset is None:
        raise InvalidInput(
            f"dataset is missing: the recipe {recipe.name} has no default data set",
            field="dataset",
            allowed="the name of a data set",
        )
    level = None if request.dataset else recipe.level
    digest = check_dataset(dataset, settings.data_folder, recipe.task, level, allow_remote=not settings.embedded)
    for subject in subjects:
        try:
            check_task(subject.architecture, recipe)
        except InvalidInput as error:
            raise (error if error.field == "recipe" else error.under("overrides")) from None
    _check_parent(request, recipe, selection.start)
    if selection.start is not None:
        _check_weights(selection.start, subjects, are_parts=request.inherit)
        if digest is not None:
            _check_tokens(selection.start, dataset, level, digest, settings)
    resources = resources_for(request.requires, settings)
    check_served(resources.device, resources.queue, settings)
    return TrainingPlan(tuple(subjects), recipe, dataset, digest, resources)


def check_selection(session: Session, selection: Selection) -> None:
    """Raises `NotFound` if a row of the selection was deleted after it was read."""
    if selection.start is not None and training_queries.find(session, selection.start.id) is None:
        raise NotFound(f"training {selection.start.id!r} was deleted meanwhile")
    ids = [candidate.id for _, candidate in selection.candidates]
    deleted = set(ids) - set(session.scalars(select(Candidate.id).where(any_of(Candidate.id, ids))))
    if deleted:
        raise NotFound(f"candidate {min(deleted)!r} was deleted meanwhile")


def _check_weights(start: Training, subjects: Sequence[Subject], *, are_parts: bool) -> None:
    """Checks that the training `start` has weights and the same architecture as all subjects. With `are_parts` the
    subjects are submodels of the trained model, and the run checks this relation.
    """
    if start.kind == TrainingKind.SUPERNET or start.state != TrainingState.DONE or start.trained is None:
        what = "of a supernet" if start.kind == TrainingKind.SUPERNET else start.state
        raise InvalidInput(
            f"start: training {start.id} is {what} and has no weights to start from",
            field="start",
            value=start.id,
            allowed="a training that is done, or an imported model",
        )
    if are_parts:
        return
    trained = Architecture.parse(start.trained)
    source = None if trained.source is None else trained.source.embedding.vocab_size
    for subject in subjects:
        own = with_vocabulary(subject.architecture, trained.embedding.vocab_size, source)
        if own.digest != trained.digest:
            raise InvalidInput(
                f"start: training {start.id} has a different architecture from {subject.name}",
                field="start",
                value=start.id,
                allowed="a training of the same architecture, or inherit for a submodel of its model",
            )


def _check_tokens(start: Training, dataset: str, level: str | None, digest: str, settings: Settings) -> None:
    """Checks that the weights were trained on the tokens of this prepared data set. The run repeats this check.

    `InvalidInput` names the command that prepares the data with the weights' tokenizer.
    """
    data = find_dataset(dataset, settings.data_folder, digest, level)
    folder = training_folder(settings, start.id) / RESULT
    if same_tokens(folder, data):
        return
    own = load_tokenizer(folder).level
    options = f"--level {own}{_PREPARED_WITH.get(own, '')}"
    first = f"`edgefront train download {start.id} -o FOLDER`, then " if "FOLDER" in options else ""
    raise InvalidInput(
        f"start: training {start.id} has another tokenizer than the data set {dataset}: prepare the data with the "
        f"training's tokenizer ({first}`edgefront data prepare NAME {options}`)",
        field="start",
        value=start.id,
        allowed="a data set with the tokenizer of the training",
    )


def resolved_recipe(name: str, overrides: Document) -> Recipe:
    """Returns the named recipe with replaced fields. Errors name `recipe` or `overrides.<field>`."""
    try:
        recipe = named_recipe(name)
    except NotFound as error:
        raise InvalidInput(f"recipe: {error.detail}", field="recipe", value=name, allowed=error.detail) from None
    if "name" in overrides:
        raise InvalidInput(
            "overrides.name: the name of a recipe cannot be changed",
            field="overrides.name",
            value=overrides["name"],
            allowed="omit it",
        )
    with within("overrides"):
        return recipe.overridden(overrides)


def resources_for(requires: Requirements, settings: Settings) -> Resources:
    """Returns resources and queue of a training. Raises `InvalidInput` for requirements that no worker can meet."""
    device = requires.device or settings.training.device
    memory_bytes = None if requires.memory_gb is None else int(requires.memory_gb * GIB)
    if memory_bytes is not None and memory_bytes >= 1 << 62:
        raise InvalidInput(
            f"requires.memory_gb: no machine has {requires.memory_gb:g} GiB",
            field="requires.memory_gb",
            value=requires.memory_gb,
            allowed="at most the memory of a worker",
        )
    if device == "cpu":
        if requires.gpus != 1:
            raise InvalidInput(
                f"requires.gpus: {requires.gpus} GPUs need device cuda, not cpu",
                field="requires.gpus",
                value=requires.gpus,
                allowed="device cuda, or no gpus",
            )
        return Resources(device, 0, memory_bytes, "cpu")
    return Resources(device, requires.gpus, memory_bytes, "gpu" if requires.gpus == 1 else "gpus")


def check_served(device: str, queue: str, settings: Settings) -> None:
    """Raises `InvalidInput` if the only worker of an embedded service can never train on this device.

    In other services the training waits, because more workers may start later.
    """
    if not settings.embedded or queue in served_queues(settings):
        return
    reason = cannot_train(settings)
    if reason is not None:
        raise InvalidInput(f"this service cannot train: {reason}", allowed="a service that can train")
    if device == "cpu":
        return  # the training waits until the settings give the worker a slot
    gpus = len(machine_of(settings).gpus)
    needs, has = ("one", "several")[queue == "gpus"], "one" if gpus else "none"
    raise InvalidInput(
        f"requires.device: a training on {device} needs {needs} of its GPUs, and this service's worker has {has}",
        field="requires.device",
        value=device,
        allowed=", ".join(["cpu"] if not gpus else ["cpu", "cuda with one GPU"]),
    )


def evenly(items: Sequence[Item], count: int) -> list[Item]:
    """Returns `count` items, spread evenly from the first to the final item. A count of 1 returns the final item."""
    if count >= len(items):
        return list(items)
    if count == 1:
        return [items[-1]]
    return [items[round(index * (len(items) - 1) / (count - 1))] for index in range(count)]


def _subjects(request: TrainingRequest, selection: Selection) -> list[Subject]:
    if request.architecture is not None:
        with within("architecture"):
            architecture = Architecture.parse(request.architecture)
        return [_subject(request.name or f"model {architecture.digest[:8]}", architecture)]
    if request.model is not None:
        model = named_model(request.model)
        return [_subject(request.name or model.name, model.architecture)]
    return [
        Subject(name[:100], Architecture.parse(candidate.architecture), candidate.decoder_parameters, candidate)
        for name, candidate in selection.candidates
    ]


def _from_frontier(
    session: Session, principal: Principal, pick: FrontierPick, name: str | None
) -> list[tuple[str, Candidate]]:
    """Returns pairs of a training's name and a candidate, for candidates of a target's frontier within the bounds."""
    job = job_of(session, principal, pick.job)
    target = target_of(session, job, pick.target)
    members = training_queries.frontier(session, target.id)
    within = [member for member in members if _is_within(member, pick)]
    if not within:
        what = "its frontier is empty" if not members else f"all {len(members)} points are outside the limits"
        raise InvalidInput(
            f"frontier: target {target.name!r} has no model to train: {what}",
            field="frontier",
            allowed="bounds that contain a point of the frontier",
        )
    if pick.count is None and len(within) > MAX_PICKS:
        raise InvalidInput(
            f"frontier.count: {len(within)} points lie within the bounds, and a request makes at most {MAX_PICKS} "
            "trainings: set frontier.count",
            field="frontier.count",
            allowed=f"1 to {MAX_PICKS}",
        )
    picked = evenly(within, pick.count or len(within))
    return [(f"{(name or job.name)[:80]} {item.number}", item) for item in picked]


def _is_within(candidate: Candidate, pick: FrontierPick) -> bool:
    def between(low: float | None, value: float, high: float | None) -> bool:
        return (low is None or value >= low) and (high is None or value <= high)

    return (
        between(pick.min_latency_ms, candidate.latency_ms or 0.0, pick.max_latency_ms)
        and between(pick.min_memory_mb, (candidate.memory_bytes or 0) / MB, pick.max_memory_mb)
        and between(pick.min_proxy, candidate.proxy, pick.max_proxy)
    )


def _subject(name: str, architecture: Architecture) -> Subject:
    # The count does not depend on the sequence length, but the position embedding limits the sequence length.
    return Subject(name, architecture, costs(architecture, CostOptions(sequence_length=1)).decoder_parameters)


def _check_parent(request: TrainingRequest, recipe: Recipe, start: Training | None) -> None:
    """Checks that a required parent or teacher model exists, and that this model's licence allows derivatives."""
    if not request.inherit and recipe.distil is None:
        return
    if start is None:
        why = "inherit uses a submodel of its model" if request.inherit else f"recipe {recipe.name}: its model teaches"
        raise InvalidInput(
            f"start is missing ({why})",
            field="start",
            allowed="the id of a training that is done",
        )
    licence = licence_of(start)
    if licence is not None and forbids_derivatives(licence):
        raise InvalidInput(
            f"start: the model of {start.name} ({start.id}) is under {licence}, which forbids derivatives",
            field="start",
            value=start.id,
            allowed="a model whose licence allows derivatives",
        )
