"""Looks up shipped scaling laws, and an owner's private scaling laws and pruning predictors.

An owner's scaling laws are fitted to trainings of one kind (`quality.learning`). An owner's pruning predictors predict
submodels of an imported model. A job's search uses one version of the scaling law, the version at the start of the
search, so that generations are comparable. The job's answers use the newest version of the scaling law.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from functools import lru_cache
from operator import itemgetter
from typing import TypeVar

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from edgefront.core.architectures.catalogue import spaces
from edgefront.core.architectures.space import SearchSpace
from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.quality.predictor import Pace, PerplexityPredictor, TrainingTime
from edgefront.core.quality.pruning_predictor import PruningPredictor
from edgefront.core.quality.shipped import NAMES, family, law_named, shipped_laws
from edgefront.core.quality.stored import from_json, summary, to_text
from edgefront.core.schemas.jobs import JobRequest, PredictionBudget, SearchLaw
from edgefront.core.schemas.service import QualityLawView
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.spaces import space_of
from edgefront.core.services.stored import RowReader
from edgefront.core.store.database import Database
from edgefront.core.store.sql import Document, any_of
from edgefront.core.store.tables import Job, OwnerLaw
from edgefront.core.training.proxies.score import covers, law_about

Law = TypeVar("Law", bound=PerplexityPredictor)

PRUNING_PREDICTOR = "cuts"
"""Field of a training's result: name of the pruning predictor of the imported model."""
_REFINED: ColumnElement[bool] = OwnerLaw.base != ""


# By name -------------------------------------------------------------------------------------------------------------


def named(session: Session, owner: str, name: str) -> PerplexityPredictor:
    """Returns the shipped or the owner's scaling law of this name. `InvalidInput` lists all names if none exists."""
    if name in NAMES:
        return law_named(name)
    row = session.get(OwnerLaw, (owner, name))
    if row is None:
        allowed = _existing(session, owner)
        raise InvalidInput(
            f"law: no scaling law {name!r} exists; choose one of {allowed}", field="law", value=name, allowed=allowed
        )
    return parsed(row)


def parsed(row: OwnerLaw) -> PerplexityPredictor:
    """Returns the scaling law of a database row; parsed documents are cached."""
    return _parsed(row.document)


@lru_cache(maxsize=64)
def _parsed(document: str) -> PerplexityPredictor:
    return from_json(document)


def _existing(session: Session, owner: str) -> str:
    """Names of the scaling laws that a job may name, joined by commas. Jobs cannot name pruning predictors."""
    own = select(OwnerLaw.name).where(OwnerLaw.owner == owner, _REFINED).order_by(OwnerLaw.name)
    return ", ".join([*NAMES, *session.scalars(own)])


def views(database: Database, principal: Principal) -> list[QualityLawView]:
    """Returns the shipped scaling laws and the caller's own laws."""
    with database.read() as session:
        query = select(OwnerLaw.name, OwnerLaw.summary).where(OwnerLaw.owner == principal.owner)
        own = [_view(row.name, row.summary) for row in session.execute(query.order_by(OwnerLaw.name))]
    return [*(QualityLawView.model_validate(summary(law)) for law in shipped_laws().values()), *own]


def _view(name: str, stored: Document) -> QualityLawView:
    """View of an owner's scaling law. If the stored document is unreadable: only the name, with the reason as title."""
    reader = RowReader()
    view = reader.read(lambda: QualityLawView.model_validate(stored))
    unknown = dict.fromkeys(("family", "data", "split", "tokens", "trained", "source", "licence"), "")
    return view or QualityLawView(
        name=name,
        title=reader.note() or "",
        **unknown,
        table_models=0,
        blocks=(),
        features=(),
        widening=1.0,
        prior=None,
    )


def law_view(database: Database, principal: Principal, name: str) -> QualityLawView:
    """Returns the view of a scaling law by name. `NotFound` lists all names if none exists."""
    if name in NAMES:
        return QualityLawView.model_validate(summary(law_named(name)))
    with database.read() as session:
        own = session.get(OwnerLaw, (principal.owner, name))
        if own is None:
            raise NotFound(f"no scaling law {name!r} exists; choose one of {_existing(session, principal.owner)}")
        return _view(own.name, own.summary)


# Of jobs -------------------------------------------------------------------------------------------------------------


def check_covers(law: PerplexityPredictor, space: SearchSpace) -> None:
    """Raises `InvalidInput` unless the scaling law is of the space's family. Also refuses pruning predictors, because
    only jobs with `space.inherit` use them.
    """
    if isinstance(law, PruningPredictor):
        raise InvalidInput(
            f"law: {law.origin.name} predicts submodels of one model; only jobs with space.inherit use it",
            field="law",
            value=law.origin.name,
            allowed="a scaling law, or space.inherit",
        )
    own = family(space.example)
    if own is None:
        law_about(space)  # raises the reason
    if own != law.origin.family:
        raise InvalidInput(
            f"law: {law.origin.name} predicts {law.origin.family or 'no known'} models, but the space {space.name} has "
            f"{own} models",
            field="law",
            value=law.origin.name,
            allowed=f"a scaling law of the family {own}",
        )


def check_named(database: Database, owner: str, request: JobRequest) -> JobRequest:
    """Returns the request. Raises `InvalidInput` if a named scaling law is missing or does not cover the space."""
    name = request.proxy_settings.law
    if name is None or name in NAMES:
        return request
    try:
        with database.read() as session:
            law = named(session, owner, name)
        space = spaces().get(request.space.name)
        if request.space.inherit is None and (space is not None or isinstance(law, PruningPredictor)):
            check_covers(law, space or space_of(request.space))
    except InvalidInput as error:
        raise error if error.field == "proxy" else error.under("proxy_settings") from None
    return request


def with_law(request: JobRequest, name: str | None) -> JobRequest:
    """Returns the request with another scaling law; None selects the default scaling law of the request's space."""
    return request.model_copy(update={"proxy_settings": SearchLaw(law=name)})


def scaling_law_of_request(session: Session, owner: str, request: JobRequest) -> PerplexityPredictor | None:
    """Returns the predictor of a job with this request: the named predictor, or else the default of the space. None if
    no predictor covers the space. Raises `InvalidInput` if the space or the named scaling law does not exist.
    """
    return _law_of(request, lambda name: named(session, owner, name))


def law_of(session: Session, job: Job, request: JobRequest) -> PerplexityPredictor | None:
    """Returns a job's predictor as of the start of the search. Raises the same errors as `scaling_law_of_request`."""

    def kept(name: str) -> PerplexityPredictor:
        if name in NAMES or job.law is None:
            return named(session, job.owner, name)
        return _parsed(job.law)

    return _law_of(request, kept)


def document_to_keep(law: PerplexityPredictor | None) -> str | None:
    """Returns the column `Job.law` of a new job: the JSON of an owner's predictor; None for a shipped one or none."""
    return None if law is None or law.origin.name in NAMES else to_text(law)


def readable_law_of(session: Session, job: Job, request: JobRequest | None) -> PerplexityPredictor | None:
    """Returns the predictor of a job's search; None if there is none, or if this release cannot read the job's."""
    try:
        return None if request is None else law_of(session, job, request)
    except InvalidInput:
        return None


def law_of_answers(
    session: Session, job: Job, request: JobRequest | None, trainings: Collection[str | None] = ()
) -> tuple[PerplexityPredictor | None, OwnerLaw | None]:
    """Returns the pair of the predictor of a job's answers and the predictor's database row (None if shipped).

    This predictor is the owner's newest refined law (`learning`) if the search uses a refined law, or if a refinement
    of the search's law was fitted to trainings of the job (`trainings`). Else this predictor is the search's predictor.
    """
    law = readable_law_of(session, job, request)
    if request is None or law is None or isinstance(law, PruningPredictor):
        return law, None
    row = refined_row(session, job.owner, law.origin.name, trainings)
    return (law, None) if row is None else (for_budget(parsed(row), request), row)


def refined_row(session: Session, owner: str, name: str, trainings: Collection[str | None]) -> OwnerLaw | None:
    """Returns the owner's scaling law of this name. For a shipped name: the refinement of the shipped law that was
    fitted to most of these trainings, of several the newest; None if there is none.
    """
    if name not in NAMES:
        return session.get(OwnerLaw, (owner, name))
    if not trainings:
        return None
    query = select(OwnerLaw).where(OwnerLaw.owner == owner, OwnerLaw.base == name)
    training_ids = set(trainings)
    rows = session.scalars(query.order_by(OwnerLaw.updated_at.desc(), OwnerLaw.name))
    taught = [(len(training_ids.intersection(each["training_id"] for each in row.left_out)), row) for row in rows]
    most, row = max(taught, key=itemgetter(0), default=(0, None))
    return row if most else None


def names_refined_law(request: JobRequest | None) -> bool:
    """Whether a request names a refined law of the owner. If so, the answers use the newest version of this law."""
    name = None if request is None or request.space.inherit is not None else request.proxy_settings.law
    return name is not None and name not in NAMES


def last_refined(session: Session, owners: Collection[str]) -> dict[str, datetime]:
    """Returns owner → time of the latest refined law. Owners without a refined law are left out."""
    query = select(OwnerLaw.owner, func.max(OwnerLaw.updated_at)).where(any_of(OwnerLaw.owner, owners), _REFINED)
    return {row[0]: row[1] for row in session.execute(query.group_by(OwnerLaw.owner))}


def _law_of(request: JobRequest, find: Callable[[str], PerplexityPredictor]) -> PerplexityPredictor | None:
    space = space_of(request.space)
    if request.space.inherit is None and (request.space.published is not None or not covers(space.example)):
        return None  # existing weights have a fixed training
    name = request.proxy_settings.law
    law = None if name is None else find(name)
    if request.space.inherit is not None and not isinstance(law, PruningPredictor):
        raise InvalidInput(
            f"proxy_settings.law: the models of this job are submodels of one model, and {name} is not its predictor",
            field="proxy_settings.law",
            value=name,
            allowed="omit it: the predictor of the model's submodels is used",
        )
    return for_budget(law or law_about(space), request)


# For a budget --------------------------------------------------------------------------------------------------------


def for_budget(law: Law, budget: PredictionBudget) -> Law:
    """Returns the predictor for this training budget; a training time needs the speed of training (`Pace`).
    `InvalidInput` names the field if the predictor has only one budget.
    """
    if budget.train_tokens is not None:
        return law.at_tokens(float(budget.train_tokens))
    time = budget.train_time
    if time is None:
        return law
    assert time.pace is not None, "the caller must set the trainer's pace"
    pace = Pace(time.pace.seconds_per_token, time.pace.seconds_per_flop, time.pace.segment)
    return law.in_time(TrainingTime(time.hours, time.trainer, pace))


def check_no_budget(budget: PredictionBudget, models: str) -> None:
    """Raises `InvalidInput` if a training budget is given for `models` (words for models without a scaling law)."""
    for field, value in (("train_tokens", budget.train_tokens), ("train_time", budget.train_time)):
        if value is not None:
            raise InvalidInput(
                f"{field}: no scaling law covers {models}, so a training budget has no effect; omit it",
                field=field,
                value=str(value),
                allowed="none",
            )
