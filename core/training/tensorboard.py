"""A training's metrics as TensorBoard files, in `tensorboard/` of its folder. `wandb sync` reads these too."""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from edgefront.core.training.run_folder import METRICS, TENSORBOARD, Journal, read_metrics
from edgefront.core.wire.trainings import MetricView

_TRAIN = ("loss", "lr", "gradient_norm", "tokens_per_s")
_VALID = ("loss", "perplexity", "bpc")

_log = logging.getLogger(__name__)


def figures(metric: MetricView) -> dict[str, float]:
    """The numbers of a report by name: `train/loss`, `valid/perplexity`, `extra/expected_ms` …"""
    values = {f"train/{name}": getattr(metric, name) for name in _TRAIN}
    values |= {f"valid/{name}": getattr(metric, f"valid_{name}") for name in _VALID}
    values |= {f"extra/{name}": value for name, value in metric.extra.items()}
    values["train/tokens"] = metric.tokens
    return {name: float(value) for name, value in values.items() if type(value) in (int, float)}


class Curves:
    """Event files. They are written again from the earlier reports, so steps that are repeated are in them once."""

    def __init__(self, folder: Path, earlier: Sequence[MetricView]) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._writer = EventsWriter(str(folder / "events"))
        # A TensorBoard that watches the folder forgets what it has read of the earlier files.
        self._writer.write_event(Event(wall_time=time.time(), step=0, session_log=SessionLog(status=SessionLog.START)))
        now, last = time.time(), earlier[-1].seconds if earlier else 0.0
        for metric in earlier:
            self._write(metric, now - (last - metric.seconds))
        self._writer.flush()

    def add(self, metric: MetricView) -> None:
        self._write(metric, time.time())
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()

    def _write(self, metric: MetricView, moment: float) -> None:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.summary import scalar

        for name, value in figures(metric).items():
            self._writer.write_event(Event(wall_time=moment, step=metric.step, summary=scalar(name, value)))


@contextmanager
def drawn(journal: Journal, folder: Path) -> Iterator[None]:
    """Within it, TensorBoard's files get what the journal reports. Where they cannot be written, the journal notes it
    once and the training continues.
    """
    if not journal.writes:
        yield
        return
    try:
        curves: Curves | None = Curves(folder / TENSORBOARD, read_metrics(folder / METRICS))
    except (OSError, ImportError) as error:
        journal.note(_failure(error))
        yield
        return

    def add(metric: MetricView) -> Iterable[str]:
        nonlocal curves
        if curves is not None:
            try:
                curves.add(metric)
            except OSError as error:
                curves = None
                yield _failure(error)

    journal.follow(add)
    try:
        yield
    finally:
        if curves is not None:
            curves.close()


def _failure(error: Exception) -> str:
    _log.warning("TensorBoard gets no more metrics", exc_info=error)
    if isinstance(error, ImportError):
        return "TensorBoard gets no metrics: tensorboardX is not installed (pip install 'edgefront-lm[train]')."
    return f"TensorBoard gets no more metrics: {error}."
