"""Checkpoints are whole or not there, and the right ones stay; TensorBoard has every report once."""

from __future__ import annotations

import shutil
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from loop_runs import folder_with, spec_of
from prepared_text import ALONE, after
from tensorboardX.proto.event_pb2 import Event, SessionLog
from torch import Tensor

from edgefront.core.common.errors import InvalidInput, Unavailable
from edgefront.core.schemas.trainings import MetricView
from edgefront.core.training.checkpoint import (
    MODEL,
    OPTIMIZER,
    Checkpoints,
    Progress,
    read_memory,
    read_model,
    read_optimizer,
)
from edgefront.core.training.run import run
from edgefront.core.training.run_folder import (
    EXIT_DONE,
    EXIT_STOPPED,
    METRICS,
    TENSORBOARD,
    Journal,
    figures,
    read_metrics,
    read_status,
    tensorboard,
)


def save(checkpoints: Checkpoints, step: int, best_step: int | None = None) -> dict[str, Tensor]:
    weights = {"a": torch.randn(3, 2), "b": torch.randn(4).to(torch.bfloat16)}
    optimizer = {"state": {"a": {"step": torch.tensor(3.0)}}, "param_groups": [{"lr": 0.1}]}
    memory = {"blocks.0.memory": torch.ones(2, 3)}
    checkpoints.save(Progress(step=step, best_step=best_step), weights, optimizer, memory, ALONE)
    return weights


def steps(checkpoints: Checkpoints) -> list[str]:
    return sorted(path.name for path in checkpoints.folder.iterdir())


def test_the_last_few_and_the_best_stay(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for step in (1, 2, 3, 4, 5):
        save(checkpoints, step, best_step=2)
    assert steps(checkpoints) == ["step-000000002", "step-000000004", "step-000000005"]


def test_a_partial_checkpoint_of_a_killed_writer_is_ignored(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    (tmp_path / ".part-step-000000009").mkdir()
    (tmp_path / ".part-step-000000009" / MODEL).write_bytes(b"half")
    assert checkpoints.latest() is None
    save(checkpoints, 3)
    assert steps(checkpoints) == ["step-000000003"]


def test_a_folder_that_cannot_be_written_leaves_the_checkpoints_before(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    save(checkpoints, 1)
    (tmp_path / ".part-step-000000002").write_text("a file in the way")
    with pytest.raises(Unavailable, match="step-000000002 cannot be written"):
        save(checkpoints, 2)
    assert checkpoints.latest() == checkpoints.at(1)


def test_a_full_disk_is_named_though_torch_does_not_name_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    save(checkpoints, 1)

    def full(*_: object) -> None:
        raise RuntimeError("[enforce fail at inline_container.cc:672] . unexpected pos 64 vs 0")

    with monkeypatch.context() as patched:
        patched.setattr(torch, "save", full)
        patched.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1 << 30, 1 << 30, 0))  # type: ignore[attr-defined]
        with pytest.raises(Unavailable, match=f"step-000000002 cannot be written: no space left in {tmp_path}"):
            save(checkpoints, 2)
    assert checkpoints.latest() == checkpoints.at(1)


@pytest.mark.parametrize(
    ("name", "read"),
    [(MODEL, read_model), (OPTIMIZER, read_optimizer), ("rank-0.pt", lambda path: read_memory(path, 0))],
)
def test_a_damaged_checkpoint_is_named(tmp_path: Path, name: str, read) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    save(checkpoints, 1)
    path = checkpoints.at(1) / name
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(InvalidInput, match="step-000000001 cannot be read"):
        read(checkpoints.at(1))


def test_a_pickle_that_runs_code_is_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return print, ("run",)

    checkpoints = Checkpoints(tmp_path, keep=2)
    save(checkpoints, 1)
    torch.save({"evil": Evil()}, checkpoints.at(1) / OPTIMIZER)
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_optimizer(checkpoints.at(1))


def test_metrics_after_the_checkpoint_are_taken_back(tmp_path: Path) -> None:
    journal = Journal(tmp_path, writes=True)
    for step in (1, 2, 3, 4):
        journal.report(MetricView(step=step, tokens=10 * step, seconds=1.0, loss=1.5))
    with (tmp_path / METRICS).open("ab") as file:
        file.write(b'{"step": 5, "tok')
    Journal(tmp_path, writes=True).rewind(2)
    assert [metric.step for metric in read_metrics(tmp_path / METRICS)] == [1, 2]


def test_only_the_first_rank_writes(tmp_path: Path) -> None:
    journal = Journal(tmp_path, writes=False)
    journal.update(state="training")
    journal.report(MetricView(step=1, tokens=1, seconds=1.0))
    assert not list(tmp_path.iterdir())
    assert read_status(tmp_path) is None


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


def test_tensorboard_has_every_report_once_after_a_restart(data: Path, tmp_path: Path) -> None:
    spec = spec_of(data, "gpt2", steps=6, checkpoint_every=2, evaluation={"every": 3})
    folder = folder_with(spec, tmp_path / "run")
    assert run(folder, cast("Any", SimpleNamespace(is_set=after(3)))) == EXIT_STOPPED
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


def test_files_that_cannot_be_written_are_noted_once_and_fail_nothing(tmp_path: Path) -> None:
    (tmp_path / TENSORBOARD).write_text("a file in the way")
    journal = Journal(tmp_path, writes=True)
    with tensorboard(journal, tmp_path):
        for step in (1, 2, 3):
            journal.report(MetricView(step=step, tokens=10 * step, seconds=float(step), loss=1 / step))
    assert journal.status.note.count("TensorBoard gets no more metrics") == 1
    assert [metric.step for metric in read_metrics(tmp_path / METRICS)] == [1, 2, 3]
