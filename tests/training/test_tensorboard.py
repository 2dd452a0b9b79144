"""TensorBoard's files have every report once, however often a training resumes."""

from __future__ import annotations

import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from prepared_text import prepared_text
from tensorboardX.proto.event_pb2 import Event, SessionLog
from test_loop import folder_with, spec_of

from edgefront.core.run import run
from edgefront.core.training.run_folder import (
    EXIT_DONE,
    EXIT_STOPPED,
    METRICS,
    TENSORBOARD,
    Journal,
    read_metrics,
    read_status,
)
from edgefront.core.training.tensorboard import drawn, figures
from edgefront.core.wire.trainings import MetricView


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
    evaluation = {"every": 3}
    spec = spec_of(prepared_text(tmp_path), "gpt2", steps=6, checkpoint_every=2, evaluation=evaluation)
    folder = folder_with(spec, tmp_path / "run")
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


def test_files_that_cannot_be_written_are_noted_once_and_fail_nothing(tmp_path: Path) -> None:
    (tmp_path / TENSORBOARD).write_text("a file in the way")
    journal = Journal(tmp_path, writes=True)
    with drawn(journal, tmp_path):
        for step in (1, 2, 3):
            journal.report(MetricView(step=step, tokens=10 * step, seconds=float(step), loss=1 / step))
    assert journal.status.note.count("TensorBoard gets no more metrics") == 1
    assert [metric.step for metric in read_metrics(tmp_path / METRICS)] == [1, 2, 3]
