"""What TensorBoard, MLflow and Weights & Biases are given: every report once, in one run, however often it resumes."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mlflow
import pytest
from prepared_text import prepared_text
from tensorboardX.proto.event_pb2 import Event, SessionLog

from edgefront.core.recipes.recipe import Recipe
from edgefront.core.run import run
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.training.journal import Journal, read_metrics, read_status
from edgefront.core.training.run_folder import EXIT_DONE, EXIT_STOPPED, METRICS, SPEC, TENSORBOARD, Metric, RunSpec
from edgefront.core.training.trackers import figures, tracked

RECIPE = {
    "name": "test",
    "steps": 6,
    "rows": 4,
    "segment": 16,
    "optimizer": {"name": "adamw", "lr": 0.01},
    "checkpoint_every": 2,
    "evaluation": {"segment": 16, "memory": 0, "rows": 4, "tokens": 200, "every": 3},
}
ARCHITECTURE = {
    "d_model": 8,
    "embedding": {"vocab_size": 256},
    "positions": {"kind": "learned", "length": 64},
    "blocks": [{"kind": "attention", "n_head": 2}],
}
SPEC_OF = RunSpec(data="/", recipe=RECIPE, about={"training": "trn_1", "name": "Ada's"}, seed=7)


class Stop(threading.Event):
    """Set when it has been asked so often."""

    def __init__(self, asked: int) -> None:
        super().__init__()
        self._left = asked

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0


def events(folder: Path) -> Iterator[Event]:
    """Of the files that TensorBoard reads, by its own format: length, checksum, event, checksum."""
    for path in sorted(folder.iterdir()):
        text = path.read_bytes()
        while text:
            (size,) = struct.unpack("<Q", text[:8])
            yield Event.FromString(text[12 : 12 + size])
            text = text[16 + size :]


def scalars(folder: Path) -> list[tuple[int, str, float]]:
    return [(e.step, value.tag, value.simple_value) for e in events(folder) for value in e.summary.value]


def reported(folder: Path) -> list[tuple[int, str, float]]:
    metrics = read_metrics(folder / METRICS)
    return [(metric.step, name, pytest.approx(value)) for metric in metrics for name, value in figures(metric).items()]


def test_tensorboard_has_every_report_once_after_a_restart(tmp_path: Path) -> None:
    data, folder = prepared_text(tmp_path), tmp_path / "run"
    folder.mkdir()
    recipe = Recipe.parse(RECIPE).model_dump(mode="json")
    architecture = dict(Architecture.parse(ARCHITECTURE).canonical)
    spec = RunSpec(architecture=architecture, data=str(data), recipe=recipe, threads=1)
    (folder / SPEC).write_text(spec.model_dump_json())
    assert run(folder, Stop(3)) == EXIT_STOPPED
    assert [step for step, tag, _ in scalars(folder / TENSORBOARD) if tag == "train/loss"] == [1, 2, 3]
    assert run(folder, threading.Event()) == EXIT_DONE
    assert scalars(folder / TENSORBOARD) == reported(folder)
    assert {"train/loss", "train/lr", "train/tokens_per_s", "valid/perplexity"} <= {
        tag for _, tag, _ in scalars(folder / TENSORBOARD)
    }
    starts = [event.step for event in events(folder / TENSORBOARD) if event.session_log.status == SessionLog.START]
    assert starts == [0]
    status = read_status(folder)
    assert status is not None
    assert "no more metrics" not in status.note


def follow(folder: Path, *steps: int, state: str = "done", **spec: Any) -> Journal:
    """A training that reports these steps and ends."""
    folder.mkdir(exist_ok=True)
    journal = Journal(folder, writes=True)
    with tracked(journal, folder, SPEC_OF.model_copy(update=spec)):
        for step in steps:
            journal.report(Metric(step=step, tokens=10 * step, seconds=float(step), loss=1 / step, extra={"seed": 1}))
        journal.update(state=state)
    return journal


def test_a_tracker_that_fails_is_noted_once_and_fails_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / TENSORBOARD).write_text("a file in the way")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nothing://there")
    journal = follow(tmp_path / "run", 1, 2, 3)
    assert journal.status.state == "done"
    assert journal.status.note.count("TensorBoard gets no more metrics") == 1
    assert journal.status.note.count("MLflow gets no more metrics") == 1
    assert [metric.step for metric in read_metrics(tmp_path / "run" / METRICS)] == [1, 2, 3]


@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_one_run_of_a_training_that_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.chdir(tmp_path)
    assert follow(tmp_path / "run", 1, 2, state="stopped").status.note == ""
    client = mlflow.MlflowClient()
    experiment = client.get_experiment_by_name("edgefront").experiment_id
    (found,) = client.search_runs([experiment])
    assert (found.info.run_name, found.info.status) == ("Ada's", "KILLED")
    assert follow(tmp_path / "again", 3).status.note == ""  # on another worker
    (found,) = client.search_runs([experiment])
    assert found.info.status == "FINISHED"
    history = client.get_metric_history(found.info.run_id, "train/loss")
    assert [(metric.step, metric.value) for metric in history] == [(1, 1.0), (2, 0.5), (3, pytest.approx(1 / 3))]
    assert found.data.params["recipe.optimizer.lr"] == "0.01"


@pytest.mark.filterwarnings("ignore")
def test_weights_and_biases_offline_has_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert follow(tmp_path / "run", 1, 2).status.note == ""
    (kept,) = (tmp_path / "run" / "wandb").glob("offline-run-*-trn_1/run-trn_1.wandb")
    text = kept.read_bytes()
    assert b"train/loss" in text
    assert json.dumps("Ada's").encode().strip(b'"') in text
