"""Scores of a job's proxy: what needs no torch is computed at once, the rest by workers, each once for all jobs.

A target asks for the scores of what it is about to propose and waits for them before any of it is measured. Workers
claim one score at a time for a while; whoever has a result may report it, for it is true whoever holds the claim.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy.orm import Session

from edgefront.core.data.prepared.prepared import read_manifest
from edgefront.core.errors import InvalidInput, NotFound
from edgefront.core.proxies.proxy import Proxy
from edgefront.core.proxies.quality_law import law_about
from edgefront.core.proxies.registry import proxy_named
from edgefront.core.proxies.score import score
from edgefront.core.proxies.settings import ProxySettings
from edgefront.core.recipes.papers import recipe
from edgefront.core.services import tasks
from edgefront.core.services.quality import queries as rows
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.datasets import find_dataset, is_path
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.catalogue import spaces
from edgefront.core.store.outbox import enqueue
from edgefront.core.store.tables import Job, Target
from edgefront.core.wire.jobs import JobRequest

LANES = 8
"""Workers that are asked at once to compute scores; each goes on until none is left."""
CLAIM = timedelta(minutes=2)
"""A claim that is not extended for so long is another's."""
DATA_FIELD = "proxy_settings.data"
ATTEMPTS = 3
"""Claims of a score that came to nothing, because its process died or its worker was lost; then it has none."""


@dataclass(frozen=True)
class Scored:
    """A proxy as an objective (higher is better), or why there is none."""

    value: float | None
    reason: str | None = None


@dataclass(frozen=True)
class Claim:
    """A score to compute."""

    id: str
    attempt: int
    architecture: dict[str, Any]
    proxy: str
    settings: dict[str, Any]
    seed: int


def proxy_of(request: JobRequest) -> tuple[Proxy, ProxySettings]:
    """The job's proxy, and its settings as far as they concern it. `InvalidInput` names the field of the request."""
    proxy = proxy_named(request.proxy)
    try:
        settings = ProxySettings.parse(request.proxy_settings)
    except InvalidInput as error:
        field = error.field.replace("settings", "proxy_settings", 1)
        detail = error.detail.replace("settings", "proxy_settings", 1)
        raise InvalidInput(detail, field=field, value=error.value, allowed=error.allowed) from None
    if proxy.needs_data and settings.data is None:
        raise InvalidInput(
            f"proxy {proxy.name} needs a prepared data set in {DATA_FIELD}",
            field=DATA_FIELD,
            allowed="the name of a prepared data set",
        )
    if "law" in proxy.uses:
        _check_law(request, settings)
    if "recipe" in proxy.uses:
        try:
            recipe(settings.recipe)
        except NotFound as error:
            field = "proxy_settings.recipe"
            raise InvalidInput(
                f"{field}: {error.detail}", field=field, value=settings.recipe, allowed=error.detail
            ) from None
    return proxy, proxy.relevant(settings)


def _check_law(request: JobRequest, settings: ProxySettings) -> None:
    """`InvalidInput` where the law of the settings, or any about the job's space, is not there."""
    known = spaces().get(request.space.name)
    try:
        if known is not None:
            law_about(known, settings.law)
    except InvalidInput as error:
        field = "proxy" if error.field == "proxy" else f"proxy_settings.{error.field}"
        raise InvalidInput(f"{field}: {error.detail}", field=field, value=error.value, allowed=error.allowed) from None


def data_of(request: JobRequest, settings: Settings | None) -> str | None:
    """The digest of the prepared data that the job's scores are taken on; None where they are taken on none.

    `InvalidInput` names the field of the request where that data is not here.
    """
    _, asked = proxy_of(request)
    if asked.data is None:
        return None
    try:
        if is_path(asked.data):  # workers look for the digest, which a folder's name need not tell
            raise NotFound("a path")
        return read_manifest(find_dataset(asked.data, (settings or Settings()).data_folder)).digest
    except NotFound:
        detail = f"no data set {asked.data!r} is prepared here"
    except InvalidInput as error:
        detail = error.detail.removeprefix("dataset: ")
    raise InvalidInput(
        f"{DATA_FIELD}: {detail}; see `edgefront data list` and `edgefront data prepare` on the server",
        field=DATA_FIELD,
        value=asked.data,
        allowed="the name of a prepared data set, or the first digits of its digest",
    )


def check_data(request: JobRequest, settings: Settings | None) -> str | None:
    """`data_of`, where there is a data folder: the data may be on the workers' machines alone, and is then theirs
    to find.
    """
    return data_of(request, settings) if (settings or Settings()).data_folder.is_dir() else None


def scores_for(
    session: Session,
    target: Target,
    request: JobRequest,
    architectures: Sequence[Architecture],
    now: datetime,
    settings: Settings | None = None,
) -> Mapping[str, Scored] | None:
    """Digest → score of each architecture; None while some are not known: workers are then asked, and `advance` is
    sent when they are. The target is locked. `settings` say where data is; the environment's if absent.

    What had no score before the job was made is tried again for it: memory, data or packages may be there by now.
    """
    proxy, asked = proxy_of(request)
    if not proxy.needs_torch:
        values = {one.digest: score(one, proxy, request.proxy_seed, asked) for one in architectures}
        return {digest: Scored(proxy.oriented(value)) for digest, value in values.items()}
    described = {one.digest: one.canonical for one in architectures}
    if asked.data is not None:
        # A name may mean other data tomorrow: all scores of a target are of what it means when the job is made.
        target.proxy_data = target.proxy_data or data_of(request, settings)
        asked = asked.model_copy(update={"data": target.proxy_data})
    stored = asked.model_dump(mode="json")
    found = rows.scores(session, proxy.name, stored, asked.digest, request.proxy_seed, described, now)
    job = session.get_one(Job, target.job_id)
    for row in found.values():
        if row.state == "infeasible" and row.settled_at is not None and row.settled_at < job.created_at:
            row.state, row.reason, row.attempts, row.settled_at = "wanted", None, 0, None
    session.flush()
    missing = [row.id for row in found.values() if row.state not in rows.SETTLED]
    rows.wait_for(session, target.id, missing)
    for lane in range(min(LANES, len(missing))):
        enqueue(session, tasks.SCORE, lane=lane)
    if missing:
        return None
    return {
        digest: Scored(None if row.value is None else proxy.oriented(row.value), row.reason)
        for digest, row in found.items()
    }


def claim(session: Session, now: datetime) -> Claim | None:
    """The next score to compute, held for `CLAIM`; None if there is none."""
    while (row := rows.next_open(session, now)) is not None:
        if row.attempts >= ATTEMPTS:
            settle(session, row.id, None, f"{ATTEMPTS} attempts to score it by {row.proxy} came to no end", now)
            session.flush()
            continue
        row.state, row.claimed_until = "claimed", now + CLAIM
        row.attempts += 1
        session.flush()
        return Claim(row.id, row.attempts, row.architecture, row.proxy, row.settings, row.seed)
    return None


def extend(session: Session, held: Claim, now: datetime) -> bool:
    """Holds a claim for longer; False if it is settled or another's by now."""
    row = rows.lock(session, held.id)
    if row is None or row.state != "claimed" or row.attempts != held.attempt:
        return False
    row.claimed_until = now + CLAIM
    return True


def give_back(session: Session, held: Claim, reason: str, now: datetime) -> None:
    """An attempt that came to nothing: another follows, or this was the last and the score has none."""
    row = rows.lock(session, held.id)
    if row is None or row.state != "claimed" or row.attempts != held.attempt:
        return
    if row.attempts >= ATTEMPTS:
        settle(session, row.id, None, f"{ATTEMPTS} attempts; the last: {reason}", now)
    else:
        row.state, row.claimed_until = "wanted", None


def settle(session: Session, score_id: str, value: float | None, reason: str | None, now: datetime) -> None:
    """A score's end: its value, or why there is none. The first answer stands; targets that waited go on."""
    row = rows.lock(session, score_id)
    if row is None or row.state in rows.SETTLED:
        return
    if value is not None and not math.isfinite(value):
        value, reason = None, f"{row.proxy} is not a finite number ({value})"
    row.state = "infeasible" if value is None else "done"
    row.value, row.reason = value, None if value is not None else reason or "no reason was given"
    row.claimed_until, row.settled_at = None, now
    session.flush()
    for target_id in rows.released(session, row.id):
        enqueue(session, tasks.ADVANCE, target_id=target_id)


def resend(session: Session, now: datetime) -> None:
    """Asks workers again where scores wait that nobody computes: for the sweep."""
    if rows.any_open(session, now):
        enqueue(session, tasks.SCORE, lane=0)
