"""Resolves a request for trainings: architectures, recipe, data set, and requirements on the worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

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
from edgefront.core.services.settings import Settings
from edgefront.core.services.stored import JOB_REQUEST
from edgefront.core.services.trainings.datasets import check_dataset, find_dataset
from edgefront.core.services.trainings.files.folder import training_folder
from edgefront.core.services.trainings.machine import cannot_train, machine_of, served_queues
from edgefront.core.services.trainings.queries import trainings as rows
from edgefront.core.services.trainings.views import licence_of
from edgefront.core.store.sql import Document
from edgefront.core.store.tables import Candidate, Training
from edgefront.core.training.evaluation.model_card import forbids_derivatives
from edgefront.core.training.recipes.catalogue import recipe as named_recipe
from edgefront.core.training.recipes.recipe import RECOVERY, Recipe, check_task, default_recipe
from edgefront.core.training.run_folder import RESULT, with_vocabulary

Item = TypeVar("Item")

_PREPARED_WITH = {"bpe": " --vocabulary FOLDER/tokenizer.json", "words": " --vocabulary FOLDER/vocabulary.txt"}


@dataclass(frozen=True)
class Subject:
    """One architecture to train, and its origin."""

    name: str
    architecture: Architecture
    decoder_parameters: int
    candidate: Candidate | None = None


class Placement(NamedTuple):
    """What a training needs of its worker, and the queue of the workers that have it."""

    device: str
    gpus: int
    """0 on a CPU."""
    memory_bytes: int | None
    queue: str


@dataclass(frozen=True)
class TrainingPlan:
    """A resolved request: each subject becomes one training."""

    subjects: tuple[Subject, ...]
    recipe: Recipe
    dataset: str
    dataset_digest: str | None
    place: Placement


@dataclass(frozen=True)
class Chosen:
    """The rows that a request for trainings refers to, detached from their session."""

    candidates: tuple[tuple[str, Candidate], ...] = ()
    """Candidates with the name of their future training."""
    start: Training | None = None
    """The training whose weights initialise the new one."""


def chosen_for(session: Session, principal: Principal, request: TrainingRequest) -> Chosen:
    """Reads the rows that the request names. Raises `NotFound` for missing ones, `InvalidInput` for an empty choice, or
    where the model that the job's models inherit from was deleted.
    """
    if request.start is not None:
        start: Training | None = training_of(session, principal, request.start)
    else:
        start = _parent(session, principal, request)
    if request.candidate is not None:
        candidate, job = candidate_of(session, principal, request.candidate)
        return Chosen(((request.name or f"{job.name} {candidate.number}", candidate),), start)
    if request.frontier is not None:
        return Chosen(tuple(_picked(session, principal, request.frontier, request.name)), start)
    return Chosen(start=start)


def _parent(session: Session, principal: Principal, request: TrainingRequest) -> Training | None:
    """The model whose weights the models of the request's job inherit, where the request asks for them."""
    if not request.inherit:
        return None
    if request.candidate is not None:
        _, job = candidate_of(session, principal, request.candidate)
    elif request.frontier is not None:
        job = job_of(session, principal, request.frontier.job)
    else:
        return None
    asked = JOB_REQUEST.read_or(job.request, None)
    if asked is None or asked.space.inherit is None:
        return None
    try:
        return training_of(session, principal, asked.space.inherit)
    except NotFound:
        raise InvalidInput(
            f"start is missing: {asked.space.inherit}, whose weights the models of job {job.id} inherit, was deleted",
            field="start",
            allowed="the id of the same model, imported again",
        ) from None


def plan_for(request: TrainingRequest, chosen: Chosen, settings: Settings) -> TrainingPlan:
    """Reads the data's manifest and takes no session. Raises `InvalidInput` with the field's path within the request;
    `NotFound` for an unknown model.
    """
    subjects = _subjects(request, chosen)
    recovery = RECOVERY if request.inherit else None
    name = request.recipe or recovery or default_recipe(subject.architecture for subject in subjects)
    recipe = resolved_recipe(name, request.overrides)
    dataset = request.dataset or recipe.dataset
    if dataset is None:
        raise InvalidInput(
            f"dataset is missing: the recipe {recipe.name} has no default data set",
            field="dataset",
            allowed="the name of a data set",
        )
    level = None if request.dataset else recipe.level
    digest = check_dataset(dataset, settings.data_folder, recipe.task, level, elsewhere=not settings.embedded)
    for subject in subjects:
        try:
            check_task(subject.architecture, recipe)
        except InvalidInput as error:
            raise (error if error.field == "recipe" else error.under("overrides")) from None
    _check_parent(request, recipe, chosen.start)
    if chosen.start is not None:
        pairs = [(subject.name, subject.architecture) for subject in subjects]
        _check_weights(chosen.start, pairs, is_part=request.inherit)
        if digest is not None:
            _check_tokens(chosen.start, dataset, level, digest, settings)
    place = placed(request.requires, settings)
    check_served(place.device, place.queue, settings)
    return TrainingPlan(tuple(subjects), recipe, dataset, digest, place)


def check_chosen(session: Session, chosen: Chosen) -> None:
    """Raises `NotFound` if a candidate, or the training to start from, was deleted since it was read."""
    if chosen.start is not None and rows.find(session, chosen.start.id) is None:
        raise NotFound(f"no training {chosen.start.id!r}")
    ids = [candidate.id for _, candidate in chosen.candidates]
    gone = set(ids) - rows.candidates_there(session, ids)
    if gone:
        raise NotFound(f"no candidate {min(gone)!r}")


def _check_weights(
    start: Training, architectures: Sequence[tuple[str, Architecture]], *, is_part: bool = False
) -> None:
    """Checks that there are weights, and of the architectures to train, which come with their names.

    `is_part`: these are to be parts of that model, which the run checks.
    """
    if start.kind == TrainingKind.SUPERNET or start.state != TrainingState.DONE or start.trained is None:
        what = "of a supernet" if start.kind == TrainingKind.SUPERNET else start.state
        raise InvalidInput(
            f"start: training {start.id} is {what} and has no weights to start from",
            field="start",
            value=start.id,
            allowed="a training that is done, or an imported model",
        )
    if is_part:
        return
    trained = Architecture.parse(start.trained)
    source = None if trained.source is None else trained.source.embedding.vocab_size
    for name, architecture in architectures:
        own = with_vocabulary(architecture, trained.embedding.vocab_size, source)
        if own.digest != trained.digest:
            raise InvalidInput(
                f"start: training {start.id} has a different architecture from {name}",
                field="start",
                value=start.id,
                allowed="a training of the same architecture, or inherit for a part of its model",
            )


def _check_tokens(start: Training, dataset: str, level: str | None, digest: str, settings: Settings) -> None:
    """Checks that the weights were trained on the tokens of a data set that is prepared here, as the run will again.

    Raises `InvalidInput` that says which command prepares the data with their tokenizer.
    """
    data = find_dataset(dataset, settings.data_folder, digest, level)
    folder = training_folder(settings, start.id) / RESULT
    if same_tokens(folder, data):
        return
    own = load_tokenizer(folder).level
    options = f"--level {own}{_PREPARED_WITH.get(own, '')}"
    first = f"`edgefront train download {start.id} -o FOLDER`, then " if "FOLDER" in options else ""
    raise InvalidInput(
        f"start: training {start.id} was trained on other tokens than those of the data set {dataset}: prepare the "
        f"data with its tokenizer ({first}`edgefront data prepare NAME {options}`)",
        field="start",
        value=start.id,
        allowed="a data set of the same tokens",
    )


def resolved_recipe(name: str, overrides: Document) -> Recipe:
    """The named recipe with some fields replaced; errors name `recipe` or `overrides.<field>`."""
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


def placed(requires: Requirements, settings: Settings) -> Placement:
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
        return Placement(device, 0, memory_bytes, "cpu")
    return Placement(device, requires.gpus, memory_bytes, "gpu" if requires.gpus == 1 else "gpus")


def check_served(device: str, queue: str, settings: Settings) -> None:
    """Raises `InvalidInput` if the service's only worker, that of its own process, can never train on such a device.

    Workers of their own may come later: for those a training waits.
    """
    if not settings.embedded or queue in served_queues(settings):
        return
    reason = cannot_train(settings)
    if reason is not None:
        raise InvalidInput(f"this service cannot train: {reason}", allowed="a service that can train")
    if device == "cpu":
        return  # it has no slot now: the training waits until the settings give it one
    gpus = len(machine_of(settings).gpus)
    needs, has = ("one", "several")[queue == "gpus"], "one" if gpus else "none"
    raise InvalidInput(
        f"requires.device: a training on {device} needs {needs} of its GPUs, and this service's worker has {has}",
        field="requires.device",
        value=device,
        allowed=", ".join(["cpu"] if not gpus else ["cpu", "cuda with one GPU"]),
    )


def evenly(items: Sequence[Item], count: int) -> list[Item]:
    """`count` of the items, spread evenly over their order, including both ends; for a count of 1 the last item."""
    if count >= len(items):
        return list(items)
    if count == 1:
        return [items[-1]]
    return [items[round(index * (len(items) - 1) / (count - 1))] for index in range(count)]


def _subjects(request: TrainingRequest, chosen: Chosen) -> list[Subject]:
    if request.architecture is not None:
        with within("architecture"):
            architecture = Architecture.parse(request.architecture)
        return [_subject(request.name or f"model {architecture.digest[:8]}", architecture)]
    if request.model is not None:
        model = named_model(request.model)
        return [_subject(request.name or model.name, model.architecture)]
    return [
        Subject(name[:100], Architecture.parse(candidate.architecture), candidate.decoder_parameters, candidate)
        for name, candidate in chosen.candidates
    ]


def _picked(
    session: Session, principal: Principal, pick: FrontierPick, name: str | None
) -> list[tuple[str, Candidate]]:
    job = job_of(session, principal, pick.job)
    target = target_of(session, job, pick.target)
    members = rows.frontier(session, target.id)
    within = [member for member in members if _is_within(member, pick)]
    if not within:
        what = "its frontier is empty" if not members else f"none of the {len(members)} points is within the limits"
        raise InvalidInput(
            f"frontier: there is no model to train on target {target.name!r}: {what}",
            field="frontier",
            allowed="bounds that a point of the frontier meets",
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
    # Parameter counts do not depend on the sequence length, and the position embedding may be shorter than the default
    # length.
    return Subject(name, architecture, costs(architecture, CostOptions(sequence_length=1)).decoder_parameters)


def _check_parent(request: TrainingRequest, recipe: Recipe, start: Training | None) -> None:
    """Checks that a part has its whole, a student its teacher, and that the licence of either allows it."""
    if not request.inherit and recipe.distil is None:
        return
    if start is None:
        why = "inherit takes a part of its model" if request.inherit else f"recipe {recipe.name}: its model teaches"
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
