"""The quality law of a job: which one it has, how far that agrees with trainings, and moving the job to another.

A job keeps the law that it began with. Moving it predicts all of its candidates again and recomputes its frontiers;
nothing is measured again. A worker computes the predictions in chunks without a transaction, then writes all of them
with what follows in one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from sqlalchemy.orm import Session

from edgefront.core.cost.shapes import Shapes
from edgefront.core.errors import InvalidInput
from edgefront.core.proxies.law_study import agreement
from edgefront.core.quality.cut_law import CutLaw
from edgefront.core.quality.law import QualityLaw
from edgefront.core.quality.shipped import NAMES
from edgefront.core.services import event_log, tasks
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import job_of
from edgefront.core.services.event_log import Entry
from edgefront.core.services.jobs import frontier
from edgefront.core.services.jobs.queries import candidates as rows
from edgefront.core.services.jobs.queries import jobs as job_rows
from edgefront.core.services.quality import law_queries, laws
from edgefront.core.services.quality import queries as score_rows
from edgefront.core.services.quality.expected import perplexities
from edgefront.core.services.quality.queries import Trained
from edgefront.core.services.spaces import space_of
from edgefront.core.services.stored import JOB_REQUEST
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.formatting import stack_in_words
from edgefront.core.states import JobEventKind, KeyRole
from edgefront.core.store.database import Database
from edgefront.core.store.outbox import enqueue
from edgefront.core.store.sql import Document, update_rows
from edgefront.core.store.tables import Candidate, Job, LawVersion
from edgefront.core.wire.laws import AgreementRow, JobLawView, LawAgreement, LawChoice, LawRequest

CHUNK = 500
"""Candidates that are read, predicted and written at a time."""
ATTEMPTS = 20
"""Attempts of one task: candidates that were proposed meanwhile are predicted too, and it tries again."""


# Reading -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _JobLaw:
    """What was read of a job and its law; the rest is computed without a session."""

    job_id: str
    law: QualityLaw | None
    version: LawVersion | None
    """The row of the law, if trainings have refined it."""
    moving_to: str | None
    move: tuple[QualityLaw, QualityLaw] | None
    """The law before and the law after the move that is under way, or that was the last."""
    newer: tuple[LawVersion, ...]
    trained: tuple[Trained, ...]
    """The largest group that was trained alike, one training an architecture."""
    candidates: Mapping[str, tuple[str, int, Document]]
    """Id → name of the target, number and architecture of the trained candidates."""

    def view(self) -> JobLawView:
        law = self.law
        return JobLawView(
            job_id=self.job_id,
            law=None if law is None else _choice(law) if self.version is None else _version(self.version),
            moving_to=self.moving_to,
            note="" if self.move is None else _other_data(*self.move),
            newer=tuple(_version(row) for row in self.newer),
            # A law of cuts speaks of models before any training.
            agreement=None if law is None or isinstance(law, CutLaw) or not self.trained else self._agreement(law),
        )

    def _agreement(self, law: QualityLaw) -> LawAgreement:
        logs = np.log([model.value for model in self.trained])
        shapes = Shapes.of(
            [Architecture.model_validate(self.candidates[model.candidate_id][2]) for model in self.trained]
        )
        prediction, is_learnt = law.out_of_sample(shapes, logs)
        agreed, first = agreement(logs, prediction), self.trained[0]
        lines = []
        for index, model in enumerate(self.trained):
            target, number, architecture = self.candidates[model.candidate_id]
            low, high = float(prediction.low[index]), float(prediction.high[index])
            lines.append(
                AgreementRow(
                    candidate_id=model.candidate_id,
                    target=target,
                    number=number,
                    name=stack_in_words(architecture["blocks"]),
                    training_id=model.training_id,
                    predicted=float(prediction.perplexity[index]),
                    low=low,
                    high=high,
                    trained=model.value,
                    held=low <= model.value <= high,
                    learnt_from=bool(is_learnt[index]),
                )
            )
        return LawAgreement(
            dataset=first.dataset,
            split=first.split,
            recipe=first.recipe,
            alike=_is_own(self.version, first),
            models=agreed.models,
            held=sum(line.held for line in lines),
            ratio=agreed.ratio,
            held_after_shift=round(agreed.held_after_shift * agreed.models),
            spearman=agreed.spearman,
            rows=tuple(sorted(lines, key=lambda line: (line.trained, line.candidate_id))),
        )


def law_view(database: Database, principal: Principal, job_id: str) -> JobLawView:
    """The job's law. NotFound if there is no such job or it is another owner's."""
    with database.read() as session:
        view = _read(session, job_of(session, principal, job_id))
    return view.view()


def _read(session: Session, job: Job) -> _JobLaw:
    request = JOB_REQUEST.read(job.request)
    law = laws.law_of(session, request)
    version = None if law is None or law.origin.name in NAMES else laws.version_row(session, law.origin.name)
    targets = {target.id: target for target in job_rows.targets(session, [job.id])}
    trained = _alike([score for id_ in targets for score in score_rows.trained(session, id_)], version)
    candidates = rows.by_ids(session, {score.candidate_id for score in trained})
    return _JobLaw(
        job_id=job.id,
        law=law,
        version=version,
        moving_to=job.wanted_law,
        move=_move(session, job, None if law is None else law.origin.name),
        newer=_newer(session, law, version),
        trained=tuple(trained),
        candidates={
            candidate.id: (targets[candidate.target_id].name, candidate.number, candidate.architecture)
            for candidate in candidates
        },
    )


def _move(session: Session, job: Job, own: str | None) -> tuple[QualityLaw, QualityLaw] | None:
    former, now = own, job.wanted_law
    if now is None:
        last = job_rows.last_event_of_kind(session, job.id, JobEventKind.LAW)
        former, now = (None, None) if last is None or last.data["law"] != own else (last.data.get("former"), own)
    if former is None or now is None:
        return None
    return laws.named(session, former), laws.named(session, now)


def _other_data(before: QualityLaw, after: QualityLaw) -> str:
    """A warning that the two speak of models that were trained on other data or otherwise; else empty."""
    then, now = before.origin, after.origin
    if (then.data, then.tokens) != (now.data, now.tokens):
        ours, theirs = f"on {now.data}", f"on {then.data}"
    elif then.trained != now.trained:
        ours, theirs = now.trained, then.trained
    else:
        return ""
    return (
        f"The law {now.name} predicts the perplexity of models trained {ours}, {then.name} that of models trained "
        f"{theirs}: perplexities from before and after the move cannot be compared."
    )


def _alike(trained: Sequence[Trained], version: LawVersion | None) -> list[Trained]:
    """The trainings that the law was fitted to, else the largest group that was trained and evaluated alike; the newest
    of each architecture.
    """
    groups: dict[tuple[str, str, str, str], dict[str, Trained]] = {}
    for score in trained:
        if score.metric == "perplexity" and score.value > 0 and np.isfinite(score.value):
            groups.setdefault((score.dataset, score.recipe, score.split, score.comparability_key), {}).setdefault(
                score.digest, score
            )
    best = max(
        groups.items(),
        key=lambda item: (
            any(_is_own(version, score) for score in item[1].values()),
            len(item[1]),
            item[0][2] == law_queries.SPLIT,
            item[0],
        ),
        default=None,
    )
    return [] if best is None else list(best[1].values())


def _is_own(version: LawVersion | None, score: Trained) -> bool:
    return version is not None and (score.comparability_key, score.split) == (
        version.comparability_key,
        law_queries.SPLIT,
    )


def _newer(session: Session, law: QualityLaw | None, version: LawVersion | None) -> tuple[LawVersion, ...]:
    if version is not None:
        newest = laws.version_row(session, version.name)
        return () if newest is None or newest.version == version.version else (newest,)
    return () if law is None else tuple(law_queries.newest(session, law.origin.name))


def _version(row: LawVersion) -> LawChoice:
    view = laws.version_view(row)
    return LawChoice(
        law=laws.reference(row),
        name=row.name,
        version=row.version,
        models=row.models,
        data=view.data,
        split=view.split,
        trained=view.trained,
        label=view.label,
        relative_to=view.relative_to,
        created_at=row.created_at,
    )


def _choice(law: QualityLaw) -> LawChoice:
    of = law.origin
    return LawChoice(
        law=of.name,
        name=of.name,
        version=0,
        models=law.models,
        data=of.data,
        split=of.split,
        trained=of.trained,
        label=law.label,
        relative_to=law.relative_to,
    )


# Moving --------------------------------------------------------------------------------------------------------------


def move(database: Database, principal: Principal, job_id: str, asked: LawRequest) -> JobLawView:
    """Moves the job to another law, as soon as a worker has computed its predictions. The job's own changes nothing.

    Raises:
        InvalidInput: there is no such law, which lists those that exist, it is not about the space's models, or it
            knows one training budget alone and the job asks for another.
        NotFound: there is no such job, or it is another owner's.
    """
    principal.require(KeyRole.USER)
    with database.read() as session:
        request = JOB_REQUEST.read(job_of(session, principal, job_id).request)
        law = laws.named(session, asked.law if asked.version is None else f"{asked.law}@{asked.version}")
    if request.space.inherit is not None:
        raise InvalidInput(
            "law: the models of this job are parts of one, and only the law of its cuts is about them",
            field="law",
            value=asked.law,
            allowed="none",
        )
    laws.check_covers(law, space_of(request.space))
    laws.for_budget(law, request)  # says where the law knows one budget alone
    with database.write() as session:
        job = job_rows.lock_job(session, job_id)
        if job is None:  # deleted while we waited
            job = job_of(session, principal, job_id)
        request_move(session, job, law.origin.name, database.now(session))
    return law_view(database, principal, job_id)


def request_move(session: Session, job: Job, name: str, now: datetime) -> None:
    """Stores that a locked job is to be moved to the law of this name or reference, and wakes a worker."""
    moving_to = None if name == _name_of(session, job) else name
    if job.wanted_law != moving_to:
        job.wanted_law, job.updated_at = moving_to, now
    if moving_to is not None:
        enqueue(session, tasks.MOVE_LAW, job_id=job.id)


def carry_out(database: Database, job_id: str) -> None:
    """Predicts the candidates of a job by the law that it is being moved to, for the job's training budget, and moves
    it; a law that knows another budget alone is given up. May run twice at once.
    """
    name, predictions = None, dict[str, Document]()
    for _ in range(ATTEMPTS):
        with database.read() as session:
            job = job_rows.find(session, job_id)
            if job is None or job.wanted_law is None:
                return
            if job.wanted_law != name:
                name, predictions = job.wanted_law, {}
            asked, request = laws.named(session, name), JOB_REQUEST.read(job.request)
            missing = [id_ for id_ in rows.ids_of(session, job_id) if id_ not in predictions]
        try:
            law = laws.for_budget(asked, request)
        except InvalidInput as error:
            give_up(database, job_id, str(error))
            return
        for start in range(0, len(missing), CHUNK):
            with database.read() as session:
                chunk = rows.predictions(session, missing[start : start + CHUNK])
            predictions |= _predicted(law, chunk)
        with database.write() as session:
            if _written(session, job_id, name, predictions, database.now(session)):
                return
    # The sweep requests it again.


def give_up(database: Database, job_id: str, reason: str) -> None:
    """Leaves the job with the law that it has, and says in its log why."""
    with database.write() as session:
        job = job_rows.lock_job(session, job_id)
        if job is not None and job.wanted_law is not None:
            data = {"law": job.wanted_law, "error": reason}
            job.wanted_law = None
            session.flush()
            event_log.append(session, job.id, [Entry(JobEventKind.LAW, data)], database.now(session))


def resend(session: Session, _now: datetime) -> None:
    """Sends the task again for jobs that no worker moves; called by the sweep."""
    for job_id in job_rows.changing_law(session):
        enqueue(session, tasks.MOVE_LAW, job_id=job_id)


def _predicted(law: QualityLaw, chunk: Sequence[rows.PredictedCandidate]) -> dict[str, Document]:
    """Candidate id → its new columns."""
    architectures = [Architecture.model_validate(row.architecture) for row in chunk]
    logs = law.predict(Shapes.of(architectures)).log_perplexity.tolist()
    return {
        row.id: {
            "id": row.id,
            "predicted": {**(row.predicted or {}), **fields},
            "predicted_perplexity": fields["perplexity"],
            "proxy": -log,
        }
        for row, fields, log in zip(chunk, perplexities(law, architectures), logs, strict=True)
    }


def _written(session: Session, job_id: str, name: str, predictions: Mapping[str, Document], now: datetime) -> bool:
    """False if candidates were proposed, or another law was asked for, since they were predicted."""
    targets = job_rows.lock_targets(session, job_id)
    job = job_rows.lock_job(session, job_id)
    if job is None or job.wanted_law is None:
        return True
    if job.wanted_law != name or set(rows.ids_of(session, job_id)) - predictions.keys():
        return False
    request = JOB_REQUEST.read(job.request)
    is_proxy = request.proxy == "quality_law"
    columns = [
        row if is_proxy else {name: row[name] for name in row if name != "proxy"} for row in predictions.values()
    ]
    for start in range(0, len(columns), CHUNK):
        update_rows(session, Candidate, columns[start : start + CHUNK])
    former = _name_of(session, job)
    job.request = laws.with_law(request, name).model_dump(mode="json")
    job.wanted_law, job.updated_at = None, now
    session.flush()
    data = {"law": name, "former": former, "candidates": len(columns)}
    event_log.append(session, job.id, [Entry(JobEventKind.LAW, data)], now)
    for target in targets if is_proxy else ():
        frontier.rescored(session, target, now)
    return True


def _name_of(session: Session, job: Job) -> str | None:
    """The name or reference of a job's law."""
    law = laws.law_of(session, JOB_REQUEST.read(job.request))
    return None if law is None else law.origin.name
