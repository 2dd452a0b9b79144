"""Work items: whose claim counts, how attempts are counted, and which turn a waiting item keeps."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from sqlalchemy import select

from edgefront.core.common.states import WorkKind
from edgefront.core.services import work
from edgefront.core.services.work import CLAIM, SHORT, Claim, Outcome
from edgefront.core.store.database import Database
from edgefront.core.store.tables import WorkItem

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)


def request(database: Database, subject: str = "tgt") -> None:
    with database.write() as session:
        work.request(session, WorkKind.RESULTS, {subject: "ada"}, NOW)


def claimed(database: Database, holder: str = "worker", now: datetime = NOW) -> Claim:
    with database.write() as session:
        claim = work.claim(session, SHORT, holder, 1, now)
    assert claim is not None
    return claim


def finish(database: Database, claim: Claim, outcome: Outcome = Outcome.DONE) -> None:
    with database.write() as session:
        work.finish(session, claim, NOW, outcome)


def items(database: Database) -> list[WorkItem]:
    with database.read() as session:
        return list(session.scalars(select(WorkItem)))


def test_a_worker_that_lost_its_claim_changes_nothing(database: Database) -> None:
    request(database)
    lost = claimed(database, "first")
    later = NOW + CLAIM + timedelta(seconds=1)
    held = claimed(database, "second", later)
    with database.write() as session:
        assert not work.extend(session, lost, later)
        work.release(session, lost)
    finish(database, lost)
    assert [item.holder for item in items(database)] == ["second"]
    with database.write() as session:
        assert work.extend(session, held, later)
    finish(database, held)
    assert items(database) == []


def test_failures_in_a_row_are_counted(database: Database) -> None:
    request(database)
    for outcome, attempts in ((Outcome.FAILED, 1), (Outcome.FAILED, 2), (Outcome.MORE, 3), (Outcome.FAILED, 1)):
        claim = claimed(database)
        assert claim.attempts == attempts
        finish(database, claim, outcome)


def test_an_item_that_is_requested_again_keeps_its_turn(database: Database) -> None:
    request(database)
    (before,) = items(database)
    request(database, "other")
    request(database)
    turns = {item.subject: item.turn for item in items(database)}
    assert turns["tgt"] == before.turn < turns["other"]
