"""Trainings on machines that share a store and nothing else: killed on one and gone on with on another."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from simulated_pool import Pool, alive, settings_for

from edgefront.core.services import sweep
from edgefront.core.services.trainings.claims import Outcome
from edgefront.core.services.trainings.files.folder import checkpoints_in
from edgefront.core.services.trainings.files.removal import deleted_trainings, remove_folder
from edgefront.core.services.trainings.files.store import TrainingManifest, training_store
from edgefront.core.services.trainings.lifecycle import list_metrics
from edgefront.core.states import TrainingEnding
from edgefront.core.store.database import Database
from edgefront.workers.training.pickup import remove_deleted
from edgefront.workers.training.stored_training import StoredTraining
from edgefront.workers.training.supervisor import LeaseLost, Supervisor

Machine = Callable[[str], Pool]


@pytest.fixture
def machine(sqlite_url: str, tmp_path: Path, open_database: Callable[..., Database]) -> Iterator[Machine]:
    """A worker with a home of its own: `machine("a")`."""
    database, pools = open_database(sqlite_url), []

    def start(name: str) -> Pool:
        settings = settings_for(sqlite_url, tmp_path / name, worker=name)
        settings.artifacts = f"file://{tmp_path}/store"
        pools.append(Pool(database, settings))
        return pools[-1]

    yield start
    for pool in pools:
        pool.end()


def supervise(pool: Pool) -> None:
    claim = pool.claim()
    assert claim is not None
    Supervisor(pool.database, pool.settings, claim.training_id, claim.fence).run()


def on_the_store(pool: Pool, training: str) -> TrainingManifest | None:
    stored = training_store(pool.settings, pool.database, training)
    assert stored is not None
    return stored.newest()


def steps_on_the_store(pool: Pool, training: str) -> list[int]:
    manifest = on_the_store(pool, training)
    return [] if manifest is None else list(manifest.checkpoints())


def losses(pool: Pool, training: str) -> dict[int, float | None]:
    with pool.database.read() as session:
        return {item.step: item.loss for item in list_metrics(session, pool.user, training).items}


def go(pool: Pool, training: str) -> None:
    pool.folder(training).mkdir(parents=True, exist_ok=True)
    (pool.folder(training) / "go").touch()


def test_killed_on_one_machine_it_resumes_elsewhere(machine: Machine) -> None:
    here, there = machine("a"), machine("b")
    training = here.submit("wait 5", steps=7)
    here.start()
    here.until(lambda: here.get(training).step == 5 and steps_on_the_store(here, training) == [2, 4])
    (run,), (supervisor,) = here.starts(training), here.supervisors().values()
    os.kill(supervisor, signal.SIGKILL)
    here.until(lambda: not alive(run))
    here.change(training, lease_expires_at=here.row(training).created_at)
    with here.database.write() as session:
        sweep.sweep(session, here.database.now(session))
    go(there, training)
    supervise(there)
    view = there.get(training)
    assert (view.state, view.attempts) == ("done", 0)
    assert "It resumed from step 4." in view.note
    assert len(there.starts(training)) == 1
    assert losses(there, training) == {step: 5.0 / step for step in range(1, 8)}  # as without any interruption
    manifest = on_the_store(there, training)
    assert manifest is not None
    assert (manifest.fence, list(manifest.checkpoints())) == (2, [4, 6])
    assert [file.path for file in manifest.below("result")] == [
        *("result/architecture.json", "result/model.safetensors", "result/result.json")
    ]
    assert [file.path for file in manifest.below("tensorboard")] == ["tensorboard/events"]
    # A third one has its weights; and the first removes its copy, once the training is deleted.
    third = machine("c")
    begins = StoredTraining(third.settings, third.database, "another", 1, third.folder("another"))
    weights = begins.weights(training, print)
    assert weights.read_bytes() == b"weights " * 100
    assert (weights.parent / "architecture.json").is_file()
    assert weights.is_relative_to(third.folder("another"))
    begins.end()
    # With a checkpoint, initial weights are not fetched again; a teacher's are.
    (third.folder("another") / "checkpoints" / "step-1").mkdir(parents=True)
    assert not begins.weights(training, print).exists()
    teacher = begins.weights(training, print, always=True)
    assert (teacher, teacher.exists()) == (weights, True)
    begins.end()
    assert third.delete(training)
    remove_folder(third.settings, training)
    assert (weights.exists(), on_the_store(here, training)) == (False, None)
    assert deleted_trainings(here.settings) == [training]
    remove_deleted(here.settings)
    assert not here.folder(training).exists()


def test_the_store_is_authoritative_unless_no_other_worker_had_the_training(machine: Machine, tmp_path: Path) -> None:
    here, there = machine("a"), machine("b")

    training = here.submit("done", steps=7)

    def checkpoint(pool: Pool, step: int) -> None:
        place = pool.folder(training) / "checkpoints" / f"step-{step}"
        place.mkdir(parents=True)
        (place / "model.safetensors").write_text(f"{pool.settings.home.name} after {step}")

    def steps(pool: Pool) -> list[int]:
        return list(checkpoints_in(pool.folder(training)))

    def claim(pool: Pool, fence: int) -> StoredTraining:
        """Fetches what it resumes from."""
        pool.folder(training).mkdir(parents=True, exist_ok=True)
        pool.change(training, fence=fence, state="training")
        claimed = StoredTraining(pool.settings, pool.database, training, fence, pool.folder(training))
        claimed.fetch(notes.append)
        return claimed

    def upload(claimed: StoredTraining) -> None:
        claimed.upload()
        claimed.finish(Outcome("stopped"), notes.append, is_end_requested=lambda: False)
        claimed.end(5)

    notes: list[str] = []
    checkpoint(here, 1)
    left = here.folder(training) / ".upload-0" / "checkpoints"
    left.mkdir(parents=True)
    claim(here, -1)
    assert (steps(here), left.exists()) == ([1], False)  # from before there was a store
    first = claim(here, 1)
    assert steps(here) == [1]  # another had it in between, and brought nothing to the store
    checkpoint(here, 2)
    upload(first)
    checkpoint(here, 3)
    assert steps(here) == [1, 2, 3]
    second = claim(there, 2)
    assert steps(there) == [2]  # what the other had not uploaded is not known
    checkpoint(there, 3)
    upload(second)
    claim(here, 3)  # nor is it resumed from, since another has had the training
    assert (steps(here), steps_on_the_store(here, training)) == ([3], [2, 3])
    checkpoint(here, 4)
    claim(here, 4)  # nobody else has
    assert steps(here) == [3, 4]
    # Nothing is begun while it is not known where to go on from.
    (tmp_path / "store").rename(tmp_path / "away")
    (tmp_path / "store").write_text("a file in the way")

    class Enough(Exception):
        pass

    def hold(note: str) -> None:
        if note.startswith("waits: the artifact store"):
            raise Enough

    with pytest.raises(Enough):
        StoredTraining(there.settings, there.database, training, 7, there.folder(training)).fetch(hold)


def test_the_end_waits_for_an_unavailable_store(machine: Machine, tmp_path: Path) -> None:
    here, store, away = machine("a"), tmp_path / "store", tmp_path / "away"
    training = here.submit("wait 3", steps=4)
    here.start()
    here.until(lambda: steps_on_the_store(here, training) == [2])
    store.rename(away)
    store.write_text("a file in the way")
    (here.folder(training) / "log.txt").write_text("more to upload")
    here.until(lambda: "Not uploaded yet: the artifact store" in here.get(training).note)
    run = here.starts(training)
    go(here, training)
    here.until(lambda: not alive(run[0]))
    here.until(lambda: here.get(training).step == 4)
    assert here.get(training).state in ("training", "evaluating")
    store.unlink()
    away.rename(store)
    view = here.until_state(training, "done")
    assert "everything is uploaded now" in view.note
    assert here.starts(training) == run
    assert steps_on_the_store(here, training) == [2, 4]


def test_a_supervisor_that_is_asked_to_end_waits_as_long_as_a_run_may_take_to_stop(
    machine: Machine, tmp_path: Path
) -> None:
    here = machine("a")
    here.settings.training.grace_s = 0.2
    training, notes = here.submit("done", steps=7), list[str]()
    folder = here.folder(training)
    (folder / "result").mkdir(parents=True)
    (folder / "result" / "model.safetensors").write_text("weights")
    (tmp_path / "store").write_text("a file in the way")

    def ended(fence: int, ending: TrainingEnding) -> Outcome:
        here.change(training, fence=fence, state="training")
        claim = StoredTraining(here.settings, here.database, training, fence, folder)
        claim.upload()
        try:
            return claim.finish(Outcome(ending), notes.append, is_end_requested=lambda: (tmp_path / "store").is_file())
        finally:
            claim.end(5)

    assert ended(1, "done") == Outcome("stopped", "its result could not be uploaded in time")
    assert ended(2, "stopped") == Outcome("stopped")
    assert any("is unavailable" in note for note in notes)
    (tmp_path / "store").unlink()
    assert ended(3, "done") == Outcome("done")
    manifest = on_the_store(here, training)
    assert manifest is not None
    assert [file.path for file in manifest.files] == ["result/model.safetensors"]
    assert not list(folder.glob(".upload-*"))
    # One that has lost its lease uploads nothing, and waits until it is told so.
    lost = StoredTraining(here.settings, here.database, training, 2, folder)
    lost.upload()

    def hold(note: str) -> None:
        if note != "its files are being uploaded":  # it has not noticed yet
            raise LeaseLost(note)

    with pytest.raises(LeaseLost, match="is no longer leased under fence 2"):
        lost.finish(Outcome("done"), hold, is_end_requested=lambda: False)
    lost.end(5)
    assert "No further uploads" in lost.note
    assert on_the_store(here, training) == manifest
