"""Quality laws by name: those that come along, and versions that trainings of this service have refined.

A refined law is named `NAME@VERSION`; `NAME` alone is its newest version. What a job stores has the version.
"""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from functools import lru_cache
from typing import TypeVar

from sqlalchemy.orm import Session

from edgefront.core.errors import InvalidInput, NotFound, within
from edgefront.core.proxies.quality_law import covers, law_about
from edgefront.core.proxies.settings import ProxySettings
from edgefront.core.quality.cut_law import CutLaw
from edgefront.core.quality.law import QualityLaw
from edgefront.core.quality.shipped import NAMES, family, law_named, shipped_laws
from edgefront.core.quality.stored import from_json, summary, to_text
from edgefront.core.quality.training_time import Pace, TrainingTime
from edgefront.core.services.quality import law_queries as rows
from edgefront.core.services.spaces import space_of
from edgefront.core.spaces.catalogue import spaces
from edgefront.core.spaces.space import SearchSpace
from edgefront.core.store.database import Database
from edgefront.core.store.sql import lock_name
from edgefront.core.store.tables import LawVersion
from edgefront.core.wire.jobs import JobRequest, TrainingBudget
from edgefront.core.wire.service import QualityLawView

Law = TypeVar("Law", bound=QualityLaw)

FORMER_DEFAULTS = {
    "gpt2": "lts-gpt2-wikitext103",
    "llama": "lts-gpt2-wikitext103",
    "transformer-xl": "lts-transformer-xl-wikitext103",
}
"""Family → the law of earlier jobs that name none."""
CUTS_LAW = "cuts"
"""Field of the result of a training that a study of its cuts came along with: the law of its parts."""
_REFERENCE = re.compile(r"([a-z0-9][a-z0-9.-]{0,63})(?:@([1-9][0-9]{0,5}))?")


def reference(row: LawVersion) -> str:
    """`NAME@VERSION`."""
    return f"{row.name}@{row.version}"


def named(session: Session, name: str) -> QualityLaw:
    """The law of this name or reference; its own name is then the reference. `InvalidInput` lists those that exist."""
    if name in NAMES:
        return law_named(name)
    row = version_row(session, name)
    if row is None:
        allowed = _existing(session)
        raise InvalidInput(f"law: there is no {name!r}; there are {allowed}", field="law", value=name, allowed=allowed)
    return _read(reference(row), row.law)


def store_law_of_cuts(session: Session, law: CutLaw, now: datetime) -> str:
    """Stores the law of a model's cuts, named after what it says, unless it is there. Returns its reference."""
    content = hashlib.sha256(to_text(law.renamed("cuts")).encode()).hexdigest()
    name = f"cuts-{content[:16]}"
    lock_name(session, "law", name)
    row = rows.find(session, name, 1)
    if row is None:
        row = LawVersion(
            name=name,
            version=1,
            base="",
            comparability_key="",
            dataset=law.origin.data[:200],
            recipe="",
            models=law.models,
            rows_digest=content,
            law=to_text(law.renamed(name)),
            created_at=now,
        )
        session.add(row)
        session.flush()
    return reference(row)


def check_covers(law: QualityLaw, space: SearchSpace) -> None:
    """Raises `InvalidInput` unless the law is of the space's family: others rank its models by another scale. A law of
    cuts is about the parts of one model, which no job is moved to.
    """
    if isinstance(law, CutLaw):
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


def with_version(database: Database, request: JobRequest) -> JobRequest:
    """The request with the version of the refined law that it names, if it names one.

    `InvalidInput` names the setting if there is no such law, or it is not about the space's models.
    """
    name = request.proxy_settings.get("law")
    if not isinstance(name, str) or name in NAMES:
        return request
    try:
        with database.read() as session:
            law = named(session, name)
        space = spaces().get(request.space.name)
        if request.space.inherit is None and (space is not None or isinstance(law, CutLaw)):
            check_covers(law, space or space_of(request.space))
    except InvalidInput as error:
        raise error if error.field == "proxy" else error.under("proxy_settings") from None
    return with_law(request, law.origin.name)


def with_law(request: JobRequest, name: str | None) -> JobRequest:
    """The request by another law; None: the one that its space has by default."""
    kept = {key: value for key, value in request.proxy_settings.items() if key != "law"}
    return request.model_copy(update={"proxy_settings": kept if name is None else {**kept, "law": name}})


def law_of(session: Session, request: JobRequest) -> QualityLaw | None:
    """The law by which a job ranks, or that says what perplexity to expect: the one that its request names, or its
    space's. None where none is about the space.

    `InvalidInput` where the space, or the law that is named, does not exist.
    """
    space = space_of(request.space)
    if request.space.inherit is not None:
        return for_budget(_law_of_cuts(session, request), request)
    if request.space.published is not None or not covers(space.example):
        return None  # weights that exist were trained as they were
    with within("proxy_settings"):
        name = ProxySettings.parse(request.proxy_settings).law
    if name is None and request.proxy == "quality_law":
        # Jobs name their law since there is more than one about a family: these began before.
        name = FORMER_DEFAULTS[family(space.example) or ""]
    law = law_about(space) if name is None else named(session, name)
    return for_budget(law, request)


def _law_of_cuts(session: Session, request: JobRequest) -> CutLaw:
    """The law about the parts of the model whose weights a job's models inherit."""
    with within("proxy_settings"):
        name = ProxySettings.parse(request.proxy_settings).law
    law = None if name is None else named(session, name)
    if not isinstance(law, CutLaw):
        raise InvalidInput(
            f"proxy_settings.law: the models of this job are parts of one, and {name} is not about its cuts",
            field="proxy_settings.law",
            value=name,
            allowed="omit it: the law of the model's cuts is taken",
        )
    return law


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


def known_law_of(session: Session, request: JobRequest) -> QualityLaw | None:
    """The law of a request for views: None too where this release has no such space or law."""
    try:
        return law_of(session, request)
    except InvalidInput:
        return None


def version_row(session: Session, name: str) -> LawVersion | None:
    """The row of NAME@VERSION, or of the newest version of NAME."""
    match = _REFERENCE.fullmatch(name)
    if match is None:
        return None
    return rows.find(session, match[1], None if match[2] is None else int(match[2]))


def views(database: Database) -> list[QualityLawView]:
    """The laws that come along, and the newest version of each refined one."""
    with database.read() as session:
        refined = rows.newest(session)
    return [*(view(law) for law in shipped_laws().values()), *(version_view(row) for row in refined)]


def law_view(database: Database, name: str) -> QualityLawView:
    """One law by name or reference. NotFound lists those that exist."""
    if name in NAMES:
        return view(law_named(name))
    with database.read() as session:
        row = version_row(session, name)
        if row is None:
            raise NotFound(f"no quality law {name!r}; there are {_existing(session)}")
    return version_view(row)


def version_view(row: LawVersion) -> QualityLawView:
    return view(_read(reference(row), row.law), row.name, row.version, row.created_at)


def view(
    law: QualityLaw, name: str | None = None, version: int = 0, created_at: datetime | None = None
) -> QualityLawView:
    said = summary(law)
    return QualityLawView.model_validate(
        {**said, "name": name or said["name"], "version": version, "created_at": created_at}
    )


def _existing(session: Session) -> str:
    """Laws that a job may name: those of cuts follow from `space.inherit`."""
    return ", ".join([*NAMES, *(f"{name}@{version}" for name, version in rows.refined(session))])


@lru_cache(maxsize=64)
def _read(name: str, text: str) -> QualityLaw:
    return from_json(text).renamed(name)
