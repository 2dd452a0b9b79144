"""Scaling laws by name: the shipped ones, and those of one owner, which nobody else sees.

An owner's law is what the trainings of one kind taught (`quality.learning`), or the law of an imported model's cuts. A
job keeps the law that its search began with, so that its generations are comparable; its answers read the newest.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from functools import lru_cache
from typing import TypeVar

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from edgefront.core.architectures.catalogue import spaces
from edgefront.core.architectures.space import SearchSpace
from edgefront.core.common.errors import InvalidInput, NotFound, within
from edgefront.core.quality.predictor import Pace, PerplexityPredictor, TrainingTime
from edgefront.core.quality.pruning_predictor import PruningPredictor
from edgefront.core.quality.shipped import NAMES, family, law_named, shipped_laws
from edgefront.core.quality.stored import from_json, summary, to_text
from edgefront.core.schemas.jobs import JobRequest, TrainingBudget
from edgefront.core.schemas.service import QualityLawView
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.spaces import space_of
from edgefront.core.services.stored import RowReader
from edgefront.core.store.database import Database
from edgefront.core.store.sql import Document, any_of
from edgefront.core.store.tables import Job, OwnerLaw
from edgefront.core.training.proxies.registry import ProxySettings
from edgefront.core.training.proxies.score import covers, law_about

Law = TypeVar("Law", bound=PerplexityPredictor)

PRUNING_PREDICTOR = "cuts"
"""Field of the result of a training that a study of its cuts came along with: the law of its parts."""
_TAUGHT: ColumnElement[bool] = OwnerLaw.base != ""


# By name -------------------------------------------------------------------------------------------------------------


def named(session: Session, owner: str, name: str) -> PerplexityPredictor:
    """The shipped law of this name, or the owner's. `InvalidInput` lists those that exist."""
    if name in NAMES:
        return law_named(name)
    row = session.get(OwnerLaw, (owner, name))
    if row is None:
        allowed = _existing(session, owner)
        raise InvalidInput(f"law: there is no {name!r}; there are {allowed}", field="law", value=name, allowed=allowed)
    return parsed(row)


def parsed(row: OwnerLaw) -> PerplexityPredictor:
    """The law of a row, parsed once for each document."""
    return _parsed(row.document)


@lru_cache(maxsize=64)
def _parsed(document: str) -> PerplexityPredictor:
    return from_json(document)


def _existing(session: Session, owner: str) -> str:
    """Laws that a job may name: those of cuts follow from `space.inherit`."""
    own = select(OwnerLaw.name).where(OwnerLaw.owner == owner, _TAUGHT).order_by(OwnerLaw.name)
    return ", ".join([*NAMES, *session.scalars(own)])


def views(database: Database, principal: Principal) -> list[QualityLawView]:
    """The shipped laws, and those of the caller."""
    with database.read() as session:
        query = select(OwnerLaw.name, OwnerLaw.summary).where(OwnerLaw.owner == principal.owner)
        own = [_view(row.name, row.summary) for row in session.execute(query.order_by(OwnerLaw.name))]
    return [*(QualityLawView.model_validate(summary(law)) for law in shipped_laws().values()), *own]


def _view(name: str, stored: Document) -> QualityLawView:
    """An owner's law; only its name where the rest cannot be read, which its title says."""
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
    """One law by name. NotFound lists those that exist."""
    if name in NAMES:
        return QualityLawView.model_validate(summary(law_named(name)))
    with database.read() as session:
        own = session.get(OwnerLaw, (principal.owner, name))
        if own is None:
            raise NotFound(f"no quality law {name!r}; there are {_existing(session, principal.owner)}")
        return _view(own.name, own.summary)


# Of jobs -------------------------------------------------------------------------------------------------------------


def check_covers(law: PerplexityPredictor, space: SearchSpace) -> None:
    """Raises `InvalidInput` unless the law is of the space's family: others rank its models by another scale. A law of
    cuts is about the parts of one model, and only jobs that inherit from it have it.
    """
    if isinstance(law, PruningPredictor):
        raise InvalidInput(
            f"law: {law.origin.name} is about parts of one model, and a job takes it with space.inherit alone",
            field="law",
            value=law.origin.name,
            allowed="a law about trained models, or space.inherit",
        )
    own = family(space.example)
    if own is None:
        law_about(space)  # says why there is no law
    if own != law.origin.family:
        raise InvalidInput(
            f"law: {law.origin.name} is about {law.origin.family or 'neither'} models, and the space {space.name} has "
            f"{own} models",
            field="law",
            value=law.origin.name,
            allowed=f"a law of the family {own}",
        )


def check_named(database: Database, owner: str, request: JobRequest) -> JobRequest:
    """The request, if the owner's law that it names exists and is about the space's models.

    `InvalidInput` names the setting otherwise.
    """
    name = request.proxy_settings.get("law")
    if not isinstance(name, str) or name in NAMES:
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
    """The request by another law; None: the one that its space has by default."""
    kept = {key: value for key, value in request.proxy_settings.items() if key != "law"}
    return request.model_copy(update={"proxy_settings": kept if name is None else {**kept, "law": name}})


def scaling_law_of_request(session: Session, owner: str, request: JobRequest) -> PerplexityPredictor | None:
    """The law by which a job of this request would rank, or that says what perplexity to expect: the one that it
    names, or its space's. None where none is about the space.

    `InvalidInput` where the space, or the law that is named, does not exist.
    """
    return _law_of(request, lambda name: named(session, owner, name))


def law_of(session: Session, job: Job, request: JobRequest) -> PerplexityPredictor | None:
    """The law of a job's search, as it was when the search began. `InvalidInput` as `scaling_law_of_request`."""

    def kept(name: str) -> PerplexityPredictor:
        if name in NAMES or job.law is None:
            return named(session, job.owner, name)
        return _parsed(job.law)

    return _law_of(request, kept)


def to_keep(law: PerplexityPredictor | None) -> str | None:
    """`Job.law` of a job that begins to search by this law: an owner's as it is now; None of a shipped one."""
    return None if law is None or law.origin.name in NAMES else to_text(law)


def known_law_of(session: Session, job: Job, request: JobRequest | None) -> PerplexityPredictor | None:
    """The law of a job's search for views: None too where this release has no such space or law."""
    try:
        return None if request is None else law_of(session, job, request)
    except InvalidInput:
        return None


def law_of_answers(
    session: Session, job: Job, request: JobRequest | None, digests: Collection[str] = ()
) -> tuple[PerplexityPredictor | None, OwnerLaw | None]:
    """The law of a job's answers, and the owner's row that it is read from, None of a shipped one.

    It is the newest of what the owner's trainings taught where the job's search has such a law, or has the base of one
    that models of these `digests`, which are the job's, have taught. Else it is the law of the search.
    """
    law = known_law_of(session, job, request)
    if request is None or law is None or isinstance(law, PruningPredictor):
        return law, None
    row = taught_row(session, job.owner, law.origin.name, digests)
    return (law, None) if row is None else (for_budget(parsed(row), request), row)


def taught_row(session: Session, owner: str, name: str, digests: Collection[str]) -> OwnerLaw | None:
    """The owner's law of this name; of a shipped law the newest that has it as its base and learnt from a model of
    these digests.
    """
    if name not in NAMES:
        return session.get(OwnerLaw, (owner, name))
    if not digests:
        return None
    query = select(OwnerLaw).where(OwnerLaw.owner == owner, OwnerLaw.base == name)
    wanted = set(digests)
    rows = session.scalars(query.order_by(OwnerLaw.updated_at.desc(), OwnerLaw.name))
    return next((row for row in rows if wanted.intersection(each["digest"] for each in row.left_out)), None)


def names_owners_law(request: JobRequest | None) -> bool:
    """Whether a request names a law that its owner's trainings taught, whose answers follow the newest."""
    name = None if request is None or request.space.inherit is not None else request.proxy_settings.get("law")
    return name is not None and name not in NAMES


def last_taught(session: Session, owners: Collection[str]) -> dict[str, datetime]:
    """Owner → when trainings taught something last; owners whose trainings taught nothing are left out."""
    query = select(OwnerLaw.owner, func.max(OwnerLaw.updated_at)).where(any_of(OwnerLaw.owner, owners), _TAUGHT)
    return {row[0]: row[1] for row in session.execute(query.group_by(OwnerLaw.owner))}


def _law_of(request: JobRequest, find: Callable[[str], PerplexityPredictor]) -> PerplexityPredictor | None:
    space = space_of(request.space)
    if request.space.inherit is None and (request.space.published is not None or not covers(space.example)):
        return None  # weights that exist were trained as they were
    with within("proxy_settings"):
        name = ProxySettings.parse(request.proxy_settings).law
    law = None if name is None else find(name)
    if request.space.inherit is not None and not isinstance(law, PruningPredictor):
        raise InvalidInput(
            f"proxy_settings.law: the models of this job are parts of one, and {name} is not about its cuts",
            field="proxy_settings.law",
            value=name,
            allowed="omit it: the law of the model's cuts is taken",
        )
    return for_budget(law or law_about(space), request)


# For a budget --------------------------------------------------------------------------------------------------------


def for_budget(law: Law, budget: TrainingBudget) -> Law:
    """The law for models that are trained so long; a time's pace is named. `InvalidInput` names the field where the
    law knows one budget alone.
    """
    if budget.train_tokens is not None:
        return law.at_tokens(float(budget.train_tokens))
    time = budget.train_time
    if time is None:
        return law
    assert time.pace is not None, "who asks names the pace of the trainer"
    pace = Pace(time.pace.seconds_per_token, time.pace.seconds_per_flop, time.pace.segment)
    return law.in_time(TrainingTime(time.hours, time.trainer, pace))


def check_no_budget(budget: TrainingBudget, models: str) -> None:
    """`InvalidInput` where a training budget is asked for `models`, which no quality law is about."""
    for field, value in (("train_tokens", budget.train_tokens), ("train_time", budget.train_time)):
        if value is not None:
            raise InvalidInput(
                f"{field}: no quality law is about {models}, so no training budget changes what is predicted of them",
                field=field,
                value=str(value),
                allowed="none",
            )
