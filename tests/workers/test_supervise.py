"""Supervisors and runs as real processes: started once, steered, killed, and gone on with."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from simulated_pool import VOCABULARY, Pool, alive, prepare, settings_for
from sqlalchemy.orm import Session

from edgefront.core.common.errors import Unavailable
from edgefront.core.services.trainings import claims as training_claims
from edgefront.core.services.trainings.claims import TrainingClaim
from edgefront.core.services.trainings.folder import checkpoints_in, tail, training_folder
from edgefront.core.store.database import Database
from edgefront.core.training.run_folder import SPEC, RunSpec
from edgefront.workers.sweep import sweep_once
from edgefront.workers.training.launch import FolderLock, FolderLocked, stop_all
from edgefront.workers.training.supervisor import Supervisor


@pytest.fixture
def pool(sqlite_url: str, tmp_path: Path, open_database: Callable[..., Database]) -> Iterator[Pool]:
    pool = Pool(open_database(sqlite_url), settings_for(sqlite_url, tmp_path))
    yield pool
    pool.end()


def supervise(pool: Pool, claim: TrainingClaim | None = None) -> None:
    """A supervisor in this process, and its run in one of its own."""
    claim = claim or pool.claim()
    assert claim is not None
    Supervisor(pool.database, pool.settings, claim.training_id, claim.fence).run()


def only(values: dict[str, int]) -> int:
    (pid,) = values.values()
    return pid


# To the end ----------------------------------------------------------------------------------------------------------


def test_a_training_to_its_end(
    database_url: str, tmp_path: Path, open_database: Callable[..., Database]
) -> None:  # fmt: skip
    pool = Pool(open_database(database_url), settings_for(database_url, tmp_path))
    training = pool.submit(steps=5)
    supervise(pool)
    view = pool.get(training)
    assert (view.state, view.step, view.checkpoint, view.attempts) == ("done", 5, 4, 0)
    assert view.trained is not None
    assert view.trained["embedding"]["vocab_size"] == VOCABULARY != view.architecture["embedding"]["vocab_size"]
    assert view.result is not None
    assert view.result["steps"] == 5
    assert pool.steps(training) == [1, 2, 3, 4, 5]
    assert view.last_metric is not None
    assert (view.last_metric.step, view.last_metric.loss, view.tokens) == (5, 1.0, 160)
    (score,) = view.evaluations
    assert (score.digest, score.dataset, score.metric, score.value) == (view.digest, "letters", "perplexity", 12.5)
    digest = view.dataset_digest
    assert len(score.details["comparability_key"]) == 16
    assert score.details | {"recipe": "quick", "seed": 0, "dataset_digest": digest, "tokens": 640} == score.details
    states = pool.states(training)
    assert (states[0], states[1], states[-1]) == ("queued", "starting", "done")
    events = pool.events(training)
    assert [event.number for event in events] == list(range(1, len(events) + 1))
    assert view.last_event == len(events)
    assert {"metric", "checkpoint", "evaluation"} <= {event.kind for event in events}
    spec = RunSpec.model_validate_json((pool.folder(training) / SPEC).read_bytes())
    assert (spec.data, spec.recipe["name"], spec.device) == (str(tmp_path / "data" / str(digest)), "quick", "cpu")
    assert pool.inbox[-1] == ("edgefront.train", {"queue": "cpu"})


def test_a_run_is_given_its_first_weights_its_teacher_and_the_model_that_it_is_a_part_of(pool: Pool) -> None:
    first = pool.submit()
    supervise(pool)
    weights = str(pool.folder(first) / "result" / "model.safetensors")
    second, part = pool.submit(start=first), pool.submit(start=first, inherit=True, recipe="distil")
    supervise(pool)
    spec = RunSpec.model_validate_json((pool.folder(second) / SPEC).read_bytes())
    assert (spec.start, spec.teacher, spec.inherit) == (weights, None, False)
    assert spec.about["start"] == {"training": first}
    supervise(pool)
    spec = RunSpec.model_validate_json((pool.folder(part) / SPEC).read_bytes())
    assert (spec.start, spec.teacher, spec.inherit) == (weights, weights, True)
    assert spec.about["parent"] == spec.about["teacher"] == {"training": first, "name": pool.get(first).name}


def test_a_run_whose_teacher_was_deleted_says_so(pool: Pool) -> None:
    first = pool.submit()
    supervise(pool)
    second = pool.submit(start=first, inherit=True, recipe="distil")
    pool.delete(first)
    supervise(pool)
    view = pool.get(second)
    assert (view.state, pool.starts(second)) == ("failed", [])
    assert view.reason == f"start: training {first}, whose weights it needs, was deleted"


def test_invalid_requests_and_missing_data_fail_at_once(pool: Pool) -> None:
    invalid, without = pool.submit("invalid"), pool.submit()
    supervise(pool)
    view = pool.get(invalid)
    assert (view.state, view.reason, len(pool.starts(invalid))) == ("failed", "the recipe makes no sense", 1)
    (prepare(pool.settings.data_folder) / "manifest.json").unlink()
    supervise(pool)
    view = pool.get(without)
    assert (view.state, pool.starts(without)) == ("failed", [])
    assert "no data set 'letters' is prepared" in (view.reason or "")


def test_failures_in_a_row_end_it_and_progress_resets_their_count(pool: Pool) -> None:
    training = pool.submit("fail 3", steps=9)
    supervise(pool)
    view = pool.get(training)
    assert (view.state, view.attempts, view.checkpoint) == ("queued", 1, 2)
    assert "attempt 1 of 3 failed: the loss is not a number; it resumes from step 2" in view.note
    supervise(pool)
    assert pool.get(training).attempts == 2
    pool.change(training, checkpoint=1, failed_at_checkpoint=1)  # as if step 2 had been new this time
    supervise(pool)
    assert (pool.get(training).state, pool.get(training).attempts) == ("queued", 1)
    supervise(pool)
    supervise(pool)
    view = pool.get(training)
    assert (view.state, view.reason) == ("failed", "3 attempts; the last: the loss is not a number")
    assert pool.act("resume", training).attempts == 0


def test_a_smaller_batch_and_a_killed_run_resume(pool: Pool) -> None:
    smaller, killed = pool.submit("smaller 2", steps=4), pool.submit("kill 3", steps=4)
    supervise(pool)
    assert (pool.get(smaller).state, pool.get(smaller).attempts) == ("queued", 0)
    supervise(pool)
    assert pool.get(smaller).state == "done"
    assert pool.steps(smaller) == [1, 2, 3, 4]
    supervise(pool)
    view = pool.get(killed)
    assert (view.state, view.attempts) == ("queued", 1)
    assert "SIGKILL" in view.note
    supervise(pool)
    assert pool.steps(killed) == [1, 2, 3]


def test_an_error_that_nobody_has_foreseen_ends_no_run_and_uses_up_an_attempt_of_one_that_does_not_start(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, fails = pool.submit(steps=5), pool.submit(steps=5)
    report, failed = training_claims.report, list[object]()

    def fails_first(*arguments: object) -> object:
        if not failed:
            failed.append(arguments)
            raise ZeroDivisionError
        return report(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(training_claims, "report", fails_first)
    supervise(pool)
    assert failed
    assert pool.get(runs).state == "done"
    monkeypatch.setattr(Supervisor, "_start", lambda *_: 1 / 0)
    supervise(pool)
    view = pool.get(fails)
    assert (view.state, view.attempts) == ("queued", 1)
    assert "internal error (ZeroDivisionError)" in view.note


# Leases --------------------------------------------------------------------------------------------------------------


def test_a_lost_lease_ends_the_run_and_nothing_more_is_written(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    training = pool.submit("wait")
    claim = pool.claimed()
    report = training_claims.report

    def taken(session: Session, *arguments: object) -> object:
        outcome = report(session, *arguments)  # type: ignore[arg-type]
        if pool.starts(training):
            row = training_claims.lock_claimed(session, training, claim.fence)
            row.fence, row.note = row.fence + 1, "theirs"  # somebody else has it from now on
        return outcome

    monkeypatch.setattr(training_claims, "report", taken)
    supervise(pool, claim)
    row = pool.row(training)
    assert (row.fence, row.note) == (claim.fence + 1, "theirs")
    (run,) = pool.starts(training)
    assert not alive(run)


class Away(Database):
    """A database that is away for some writes."""

    is_away, writes = False, 0

    @contextmanager
    def write(self) -> Iterator[Session]:
        if self.is_away and self.writes > 6:
            self.is_away = False
        self.writes += 1
        if self.is_away:
            raise Unavailable("the database is away")
        with super().write() as session:
            yield session

    @contextmanager
    def read(self) -> Iterator[Session]:
        if self.is_away:
            raise Unavailable("the database is away")
        with super().read() as session:
            yield session


class Hanging(Database):
    """A database that hangs for as long as the run lives."""

    wait_for_its_end: Callable[[], None] | None = None

    @contextmanager
    def write(self) -> Iterator[Session]:
        if self.wait_for_its_end is not None:
            self.wait_for_its_end()
            self.wait_for_its_end = None
            raise Unavailable("the database is away")
        with super().write() as session:
            yield session

    read = write


def supervise_without(database: Database, tmp_path: Path, title: str, begin: Callable[[Pool, str], None]) -> None:
    """Supervises a training from whose start on the database is not there: no lease expires, no run is left."""
    url = database.url.render_as_string(hide_password=False)
    try:
        pool = Pool(database, settings_for(url, tmp_path, ttl_s=0.4))
        training = pool.submit(title)
        claim = pool.claimed()
        supervisor = Supervisor(database, pool.settings, claim.training_id, claim.fence)
        start = supervisor._start

        def started(*arguments: object) -> object:
            process = start(*arguments)  # type: ignore[arg-type]
            begin(pool, training)
            return process

        supervisor._start = started  # type: ignore[method-assign, assignment]
        supervisor.run()
        view = pool.get(training)
        assert (view.state, view.attempts) == ("queued", 0)
        assert not alive(pool.starts(training)[0])
    finally:
        database.dispose()


def test_an_unavailable_database_stops_the_run_before_its_lease_expires(sqlite_url: str, tmp_path: Path) -> None:
    database = Away(sqlite_url)

    def begin(pool: Pool, training: str) -> None:
        pool.until(lambda: (pool.folder(training) / "status.json").exists())
        database.is_away, database.writes = True, 0

    supervise_without(database, tmp_path, "wait", begin)


def test_a_database_that_hangs_does_not_keep_a_run_beyond_its_lease(sqlite_url: str, tmp_path: Path) -> None:
    database = Hanging(sqlite_url)

    def begin(pool: Pool, training: str) -> None:
        pool.until(lambda: pool.starts(training))
        (run,) = pool.starts(training)
        database.wait_for_its_end = lambda: pool.until(lambda: not alive(run))

    supervise_without(database, tmp_path, "stubborn", begin)


def test_only_what_extends_the_lease_counts_as_a_heartbeat(pool: Pool) -> None:
    """A supervisor that only looked at its training took that for a heartbeat, and sent the next one too late."""
    pool.submit()
    claim = pool.claimed()
    supervisor = Supervisor(pool.database, pool.settings, claim.training_id, claim.fence)
    assert supervisor._is_heartbeat_due()  # starting it took a while
    supervisor._write(lambda session, _: training_claims.lock_claimed(session, claim.training_id, claim.fence))
    assert supervisor._is_heartbeat_due()
    supervisor._while_waiting("waits")
    assert not supervisor._is_heartbeat_due()


def test_a_run_that_was_left_behind_is_killed_before_another_writes(pool: Pool) -> None:
    folder = pool.folder("left")
    folder.mkdir(parents=True)
    lock = FolderLock(folder)
    lock.take(lambda: None, 1)
    child = os.fork()
    if not child:
        os.setsid()
        signal.pause()
        os._exit(0)
    pool.until(lambda: os.getpgid(child) == child)
    lock.belongs_to(child)
    lock.free()  # here; the child still has it
    other = FolderLock(folder)
    other.take(lambda: None, 10)
    assert os.waitpid(child, 0)[1] == signal.SIGKILL
    other.free()


def test_a_stale_process_id_kills_no_process(pool: Pool) -> None:
    folder = pool.folder("ended")
    folder.mkdir(parents=True)
    other = subprocess.Popen(["sleep", "60"], start_new_session=True)  # has the number that a run had once
    try:
        (folder / "run.lock").write_text(json.dumps({"host": socket.gethostname(), "group": other.pid}))
        lock = FolderLock(folder)
        lock.take(lambda: None, 1)  # and has not started its run yet
        with pytest.raises(FolderLocked):
            FolderLock(folder).take(lambda: None, 0.1)
        assert other.poll() is None
        lock.free()
    finally:
        other.kill()
        other.wait()


def test_a_log_with_zeros_in_it_can_be_shown_and_its_lines_end_at_a_line_feed_alone(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    log.write_bytes(b"before the power went\0\0\n")
    assert tail(log, 5) == "before the power went\ufffd\ufffd\n"
    log.write_bytes("first\n 10 %\r 20 %\u2028 30 %\nlast\n".encode())
    assert tail(log, 2) == " 10 %\r 20 %\u2028 30 %\nlast\n"


def test_a_training_that_has_lost_its_checkpoint_says_that_it_begins_again(pool: Pool) -> None:
    training = pool.submit("wait 2")
    assert pool.start() == 1
    pool.until(lambda: pool.get(training).checkpoint)
    assert stop_all(pool.settings.home, 20)
    for folder in checkpoints_in(training_folder(pool.settings, training)).values():
        shutil.rmtree(folder)  # the database was restored without the artifacts
    assert pool.start() == 1
    pool.until(lambda: any(event.kind == "note" for event in pool.events(training)))
    (said,) = [event.data["note"] for event in pool.events(training) if event.kind == "note"]
    assert said.startswith("Its checkpoint of step ")
    assert said.endswith(": the training begins again.")
    assert stop_all(pool.settings.home, 20)


# Detached ------------------------------------------------------------------------------------------------------------


def test_messages_that_come_twice_start_nothing_twice(pool: Pool) -> None:
    first, second = pool.submit("wait"), pool.submit()
    assert pool.start() == 1
    assert pool.start() == 0  # its one slot is taken
    pool.until(lambda: pool.get(first).step)
    assert pool.start() == 0
    assert len(pool.supervisors()) == 1
    assert pool.get(second).note.startswith("waits for a worker")
    # Steered by its owner.
    assert pool.act("pause", first).wanted == "pause"
    assert pool.until_state(first, "paused").checkpoint == 1
    pool.until(lambda: not pool.supervisors())
    assert pool.act("resume", first).state == "queued"
    pool.act("cancel", second)
    assert pool.start() == 1
    pool.until(lambda: pool.get(first).step == 2)
    assert len(pool.starts(first)) == 2
    # The service ends: it waits in the queue, with what it has done.
    assert stop_all(pool.settings.home, 20)
    view = pool.get(first)
    assert (view.state, view.attempts, view.checkpoint) == ("queued", 0, 2)
    assert not any(alive(pid) for pid in pool.starts(first))


def test_kill_nine_of_the_supervisor_takes_its_run_along(pool: Pool) -> None:
    training = pool.submit("wait")
    pool.start()
    pool.until(lambda: pool.get(training).step)
    (run,) = pool.starts(training)
    os.kill(only(pool.supervisors()), signal.SIGKILL)
    pool.until(lambda: not alive(run))
    pool.until(lambda: not pool.supervisors())
    assert pool.get(training).state == "training"
    pool.change(training, lease_expires_at=pool.row(training).created_at)
    sweep_once(pool.database)
    view = pool.get(training)
    assert (view.state, view.attempts) == ("queued", 1)
    assert "the worker was lost" in view.note
    (pool.folder(training) / "go").touch()
    pool.start()
    assert pool.until_state(training, "done").step == 3
    assert pool.steps(training) == [1, 2, 3]


def test_an_embedded_service_that_ends_leaves_no_process_of_a_training_behind(pool: Pool) -> None:
    training = pool.submit("stubborn")
    pool.start()
    pool.until(lambda: pool.starts(training))
    assert not stop_all(pool.settings.home, 0.2)
    assert stop_all(pool.settings.home, 0.2, kill=True)
    pool.until(lambda: not any(alive(pid) for pid in pool.starts(training)))


def test_cancelled_and_deleted_while_they_run(pool: Pool) -> None:
    pool.settings.training.slots = 2
    pool.settings.training.grace_s = 0.1
    stubborn, deleted = pool.submit("stubborn"), pool.submit("wait")
    assert pool.start() == 2
    pool.until(lambda: pool.starts(stubborn) and pool.starts(deleted))
    pool.act("cancel", stubborn)
    assert not pool.delete(deleted)  # its supervisor removes the folder
    assert pool.until_state(stubborn, "cancelled").finished_at is not None
    pool.until(lambda: not pool.supervisors())
    assert not any(alive(pid) for pid in pool.starts(stubborn))
    assert not pool.folder(deleted).exists()
