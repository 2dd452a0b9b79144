"""A real worker process on a real Redis starts trainings, which outlive it; and the embedded worker stops them."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from celery_worker import celery_worker
from simulated_pool import Pool, alive, asked, settings_for

from edgefront.core.services.dispatch import sender
from edgefront.core.services.trainings.folder import mark_deleted
from edgefront.core.services.trainings.machine import served_queues
from edgefront.core.store.database import Database
from edgefront.workers.app import EmbeddedWorker, remove_deleted
from edgefront.workers.training.launch import FolderLock, stop_all


def worker(pool: Pool) -> AbstractContextManager[subprocess.Popen[bytes]]:
    home = pool.settings.home
    return celery_worker(pool.settings.environment(), home, "--queues", "edgefront,edgefront-train-cpu")


def test_trainings_outlive_their_worker_and_messages_that_come_twice(
    postgres_url: str, redis_url: str, tmp_path: Path, open_database: Callable[..., Database]
) -> None:
    settings = settings_for(postgres_url, tmp_path, redis_url, end_with_worker=True)
    send = sender(settings)
    pool = Pool(open_database(postgres_url, send=send), settings)
    first = pool.submit("wait")
    for _ in range(3):
        send("edgefront.train", {"queue": "cpu"})
    try:
        with worker(pool) as process:
            pool.until(lambda: pool.get(first).step, 60)
            process.send_signal(signal.SIGKILL)
            process.wait(10)
        second = pool.submit("wait")
        (run,) = pool.starts(first)
        assert alive(run)
        (pool.folder(first) / "go").touch()
        assert pool.until_state(first, "done").attempts == 0
        assert pool.starts(first) == [run]
        with worker(pool):
            pool.until(lambda: pool.get(second).step, 60)
        # One that is told to end takes along what it has started, where it is set to.
        assert pool.get(second).state == "queued"
        assert not any(alive(pid) for pid in pool.starts(second))
    finally:
        pool.end()


def test_one_that_cannot_be_started_is_not_tried_for_ever(
    sqlite_url: str, tmp_path: Path, open_database: Callable[..., Database]
) -> None:
    pool = Pool(open_database(sqlite_url), settings_for(sqlite_url, tmp_path))
    training = pool.submit()
    pool.settings.artifact_folder.parent.mkdir(parents=True, exist_ok=True)
    pool.settings.artifact_folder.write_text("a file in the way")
    for attempt in (1, 2, 3):
        assert pool.get(training).state == "queued"
        assert pool.start() == 0
        assert pool.get(training).attempts == attempt
    view = pool.get(training)
    assert view.state == "failed"
    assert "3 attempts; the last: the training could not be started on here" in (view.reason or "")


def test_files_of_a_deleted_training_are_removed_after_its_supervisor_was_lost(
    sqlite_url: str, tmp_path: Path, open_database: Callable[..., Database]
) -> None:
    pool = Pool(open_database(sqlite_url), settings_for(sqlite_url, tmp_path))
    folders = [pool.folder(name) for name in ("lost", "running", "kept")]
    for folder in folders:
        folder.mkdir(parents=True)
    for name in ("lost", "running"):
        mark_deleted(pool.settings, name)
    lock = FolderLock(folders[1])
    lock.take(lambda: None, 1)
    remove_deleted(pool.settings)
    assert [folder.exists() for folder in folders] == [False, True, True]
    lock.free()
    remove_deleted(pool.settings)
    assert not folders[1].exists()


def test_the_embedded_worker_serves_what_this_machine_can_run(
    sqlite_url: str, tmp_path: Path, open_database: Callable[..., Database]
) -> None:
    settings = settings_for(sqlite_url, tmp_path)
    assert served_queues(settings) == ("cpu",)
    settings.training.gpus = 2
    assert served_queues(settings) == ("cpu", "gpu", "gpus")
    pool = Pool(open_database(sqlite_url, send=sender(settings)), settings)
    try:
        with EmbeddedWorker(settings, pool.database):
            request = asked("wait", requires={"device": "cuda", "gpus": 2})
            training = pool.create(request)[0].id
            view = pool.until_state(training, "training")
            assert view.worker == "here"
        assert stop_all(settings.home, 20)
        assert pool.get(training).state == "queued"
        spec = json.loads((pool.folder(training) / "spec.json").read_text())
        assert spec["device"] == "cuda"
        seen = (pool.folder(training) / "visible").read_text()
        assert seen == "0,1"
    finally:
        pool.end()
