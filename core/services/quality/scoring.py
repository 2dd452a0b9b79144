"""Proxy scores of a job: computed at once without torch, or by workers. Each score is computed once for all jobs.

A target (a device and protocol of a job) requests and awaits the scores of its proposals before any measurement. Each
score is a work item (`core.services.work`). Scores are deterministic, so a result is accepted from any worker.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.catalogue import spaces
from edgefront.core.common.errors import InvalidInput, NotFound, within
from edgefront.core.common.states import FINISHED_SCORES, ScoreState, WorkKind
from edgefront.core.data.prepared.prepared import read_manifest
from edgefront.core.quality.predictor import PerplexityPredictor
from edgefront.core.schemas.jobs import JobRequest
from edgefront.core.services import tasks, work
from edgefront.core.services.datasets import find_dataset, is_path
from edgefront.core.services.quality import queries as score_queries
from edgefront.core.services.settings import Settings
from edgefront.core.services.spaces import space_of
from edgefront.core.store.database import enqueue
from edgefront.core.store.sql import Document
from edgefront.core.store.tables import Job, Target
from edgefront.core.training.proxies.registry import PUBLISHED_SCORE, Proxy, ProxySettings, proxy_named
from edgefront.core.training.proxies.score import law_about, score, score_by
from edgefront.core.training.recipes.catalogue import recipe

MAX_WORKERS = 8
"""Maximum number of workers that are notified at once. Each worker computes scores until none is left."""
DATA_FIELD = "proxy_settings.data"


@dataclass(frozen=True)
class Scored:
    """A score as an objective (higher is better), or the reason why the score is missing."""

    value: float | None
    reason: str | None = None


@dataclass(frozen=True)
class ScoreTask:
    """Proxy score that a worker computes."""

    id: str
    architecture: Document
    proxy: str
    settings: Document
    seed: int


def proxy_of(request: JobRequest) -> tuple[Proxy, ProxySettings]:
    """Returns the job's proxy and the proxy's settings. `InvalidInput` names a wrong field of the request."""
    proxy = PUBLISHED_SCORE if request.proxy == PUBLISHED_SCORE.name else proxy_named(request.proxy)
    with within("proxy_settings"):
        settings = ProxySettings.parse(request.proxy_settings)
    if settings.data is not None and is_path(
        settings.data
    ):  # workers on other machines look data up by name and digest
        raise InvalidInput(
            f"{DATA_FIELD}: {settings.data!r} is a path; name a data set that is prepared on the server",
            field=DATA_FIELD,
            value=settings.data,
            allowed="the name of a prepared data set, or the first digits of its digest",
        )
    if proxy.needs_data and settings.data is None:
        raise InvalidInput(
            f"proxy {proxy.name} needs a prepared data set in {DATA_FIELD}",
            field=DATA_FIELD,
            allowed="the name of a prepared data set",
        )
    if "law" in proxy.uses:
        space = spaces().get(request.space.name)
        if space is not None:
            law_about(space)  # raises the reason if no law covers the space; `laws` looks up a named one
    if "recipe" in proxy.uses:
        try:
            recipe(settings.recipe)
        except NotFound as error:
            field = "proxy_settings.recipe"
            raise InvalidInput(
                f"{field}: {error.detail}", field=field, value=settings.recipe, allowed=error.detail
            ) from None
    return proxy, proxy.relevant(settings)


def data_of(request: JobRequest, settings: Settings | None) -> str | None:
    """Returns the digest of the prepared data of the job's scores; None if the proxy needs no data. `InvalidInput`
    names the field if the data set is not prepared.
    """
    _, asked = proxy_of(request)
    if asked.data is None:
        return None
    try:
        return read_manifest(find_dataset(asked.data, (settings or Settings()).data_folder)).digest
    except NotFound:
        raise InvalidInput(
            f"{DATA_FIELD}: no data set {asked.data!r} is prepared here; see `edgefront data list` and "
            "`edgefront data prepare` on the server",
            field=DATA_FIELD,
            value=asked.data,
            allowed="the name of a prepared data set, or the first digits of its digest",
        ) from None
    except InvalidInput as error:
        raise error.at(*DATA_FIELD.split(".")) from None


def check_data(request: JobRequest, settings: Settings | None) -> str | None:
    """Returns the result of `data_of` if this machine has a data folder; else None: only the workers have the data."""
    return data_of(request, settings) if (settings or Settings()).data_folder.is_dir() else None


@dataclass(frozen=True)
class Scorer:
    """Computes the proxy scores of a job; holds all inputs of these scores."""

    proxy: Proxy
    settings: ProxySettings
    """Settings of the proxy; `data` is a digest."""
    seed: int
    law: PerplexityPredictor | None = None
    """Predictor of the proxy `quality_law`; None: the one in the settings, or the architecture's default."""
    published: Mapping[str, float] | None = None
    """Digest → score of published models; None for other proxies."""

    def at_once(self, architectures: Sequence[Architecture]) -> dict[str, Scored] | None:
        """Returns architecture digest → score; None if the proxy needs torch: then workers compute the scores."""
        if self.proxy.needs_torch:
            return None
        values = {architecture.digest: self._score(architecture) for architecture in architectures}
        return {digest: Scored(self.proxy.oriented(value)) for digest, value in values.items()}

    def _score(self, architecture: Architecture) -> float:
        if self.law is not None:
            return score_by(self.law, architecture)
        if self.published is not None:
            return self.published[architecture.digest]
        return score(architecture, self.proxy, self.seed, self.settings)


def scorer_of(
    request: JobRequest, data: str | None, settings: Settings | None = None, law: PerplexityPredictor | None = None
) -> Scorer:
    """Returns the scorer of the job's candidates. `law` is the job's predictor.

    Args:
        data: digest of the scores' data, because a name may refer to other data later. None: the data set that
            `request` names, if any, is looked up.
        settings: locate the data. None reads them from the environment.
    """
    proxy, asked = proxy_of(request)
    if asked.data is not None:
        asked = asked.model_copy(update={"data": data or data_of(request, settings)})
    published = space_of(request.space).scores if proxy is PUBLISHED_SCORE else None
    return Scorer(proxy, asked, request.proxy_seed, law if "law" in proxy.uses else None, published)


def stored_scores(
    session: Session, target: Target, scorer: Scorer, architectures: Sequence[Architecture], now: datetime
) -> dict[str, Scored] | None:
    """Returns architecture digest → score by a proxy that needs torch; None while any score is missing. Requests
    missing scores from workers; the last score advances the target. The caller must hold the target's lock.

    Scores that failed before the job was created are requested again: memory, data or packages may be available now.
    """
    described = {architecture.digest: architecture.canonical for architecture in architectures}
    stored = scorer.settings.model_dump(mode="json")
    by_digest = score_queries.scores(
        session, scorer.proxy.name, stored, scorer.settings.digest, scorer.seed, described, now
    )
    job = session.get_one(Job, target.job_id)
    for row in by_digest.values():
        if row.state == ScoreState.INFEASIBLE and row.settled_at is not None and row.settled_at < job.created_at:
            row.state, row.reason, row.settled_at = ScoreState.WANTED, None, None
    missing = [row.id for row in by_digest.values() if row.state not in FINISHED_SCORES]
    score_queries.wait_for(session, target.id, missing)
    if missing:
        work.request(session, WorkKind.SCORE, dict.fromkeys(missing, job.owner), now)
        work.wake(session, work.SCORES, min(MAX_WORKERS, len(missing)))
        return None
    return {
        digest: Scored(None if row.value is None else scorer.proxy.oriented(row.value), row.reason)
        for digest, row in by_digest.items()
    }


def task_of(session: Session, score_id: str) -> ScoreTask | None:
    """Returns the score to compute; None if the score is finished, or if no active target waits for the score."""
    row = score_queries.waited_for(session, score_id)
    return None if row is None else ScoreTask(row.id, row.architecture, row.proxy, row.settings, row.seed)


def store_score(session: Session, score_id: str, value: float | None, reason: str | None, now: datetime) -> None:
    """Stores a score, or the reason why it is missing. Only the first result counts. Advances the waiting targets."""
    row = score_queries.lock(session, score_id)
    if row is None or row.state in FINISHED_SCORES:
        return
    if value is not None and not math.isfinite(value):
        value, reason = None, f"{row.proxy} is not a finite number ({value})"
    row.state = ScoreState.INFEASIBLE if value is None else ScoreState.DONE
    row.value, row.reason = value, None if value is not None else reason or "no reason was given"
    row.settled_at = now
    for target_id in score_queries.released(session, row.id):
        enqueue(session, tasks.ADVANCE, target_id=target_id)


def resend(session: Session, now: datetime) -> None:
    """Requests unfinished scores that have no work item, if an active target waits. The periodic sweep calls this."""
    work.request(session, WorkKind.SCORE, score_queries.forgotten(session), now)
