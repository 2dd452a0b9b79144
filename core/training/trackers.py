"""Where a training's metrics go besides its journal: TensorBoard files, MLflow, Weights & Biases.

TensorBoard's files are in `tensorboard/` of the training's folder, MLflow is used where MLFLOW_TRACKING_URI is set, and
Weights & Biases where WANDB_API_KEY or WANDB_MODE=offline is. A training that resumes continues its run in each. What
fails is left out from then on, and the journal says so once: a tracker neither fails a training nor keeps it waiting.
"""

from __future__ import annotations

import logging
import os
import queue
import re
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

from edgefront.core.training.journal import Journal, read_metrics
from edgefront.core.training.run_folder import METRICS, TENSORBOARD, Metric, RunSpec

_END_S = 30.0
"""How long a training waits at its end for what was not sent yet."""
_GROUPS = {"loss": "train", "lr": "train", "gradient_norm": "train", "tokens_per_s": "train", "mfu": "train"}
_PROJECT, _TAG = "edgefront", "edgefront.training"
_PARAMS_AT_ONCE = 100
_THREAD = "edgefront-tracker-"

_log = logging.getLogger(__name__)


class Tracker(Protocol):
    """One place to which metrics go. Any method may raise."""

    def log(self, metric: Metric) -> None: ...

    def end(self, state: str) -> None:
        """`done`, `stopped` (it will resume), or any other state for a failure."""


@dataclass(frozen=True)
class _Run:
    """What a tracker shows a training as."""

    id: str
    name: str
    settings: Mapping[str, Any]

    @classmethod
    def of(cls, folder: Path, spec: RunSpec) -> _Run:
        id_ = re.sub(r"[^A-Za-z0-9_-]", "-", str(spec.about.get("training") or folder.resolve().name))[:64]
        settings = {"kind": spec.kind, "seed": spec.seed, "recipe": spec.recipe, "device": spec.device}
        if spec.architecture:
            settings["architecture"] = spec.architecture
        return cls(id_, str(spec.about.get("name") or id_), settings)


def figures(metric: Metric) -> dict[str, float]:
    """The numbers of a report by name: `train/loss`, `valid/perplexity`, `extra/expected_ms` …"""
    found = {f"{group}/{name}": getattr(metric, name) for name, group in _GROUPS.items()}
    found |= {f"valid/{name}": getattr(metric, f"valid_{name}") for name in ("loss", "perplexity", "bpc")}
    found |= {f"extra/{name}": value for name, value in metric.extra.items()}
    found["train/tokens"] = metric.tokens
    return {name: float(value) for name, value in found.items() if type(value) in (int, float)}


class TensorBoard:
    """Event files. They are written again from the reports before, so steps that are repeated are in them once."""

    def __init__(self, folder: Path, before: Sequence[Metric]) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._writer = EventsWriter(str(folder / "events"))
        # A TensorBoard that watches the folder forgets what it has read of the files before.
        self._writer.write_event(Event(wall_time=time.time(), step=0, session_log=SessionLog(status=SessionLog.START)))
        now, last = time.time(), before[-1].seconds if before else 0.0
        for metric in before:
            self._write(metric, now - (last - metric.seconds))
        self._writer.flush()

    def log(self, metric: Metric) -> None:
        self._write(metric, time.time())
        self._writer.flush()

    def end(self, state: str) -> None:
        self._writer.close()

    def _write(self, metric: Metric, moment: float) -> None:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.summary import scalar

        for name, value in figures(metric).items():
            self._writer.write_event(Event(wall_time=moment, step=metric.step, summary=scalar(name, value)))


class MLflow:
    """One run of an experiment (MLFLOW_EXPERIMENT_NAME, else `edgefront`), found again by its tag."""

    def __init__(self, run: _Run, environment: Mapping[str, str]) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Param

        self._client = MlflowClient()
        experiment = self._experiment(environment.get("MLFLOW_EXPERIMENT_NAME") or _PROJECT)
        found = self._client.search_runs([experiment], f"tags.`{_TAG}` = '{run.id}'", max_results=1)
        if found:
            self._run_id = found[0].info.run_id
            self._client.update_run(self._run_id, status="RUNNING")
            return
        self._run_id = self._client.create_run(experiment, run_name=run.name, tags={_TAG: run.id}).info.run_id
        params = [Param(name, str(value)[:500]) for name, value in _flat(run.settings)]
        for start in range(0, len(params), _PARAMS_AT_ONCE):
            self._client.log_batch(self._run_id, params=params[start : start + _PARAMS_AT_ONCE])

    def log(self, metric: Metric) -> None:
        from mlflow.entities import Metric as Figure

        now = int(1000 * time.time())
        figures_ = [Figure(name, value, now, metric.step) for name, value in figures(metric).items()]
        self._client.log_batch(self._run_id, metrics=figures_)

    def end(self, state: str) -> None:
        status = {"done": "FINISHED", "stopped": "KILLED"}.get(state, "FAILED")
        self._client.set_terminated(self._run_id, status)

    def _experiment(self, name: str) -> str:
        from mlflow.exceptions import MlflowException

        found = self._client.get_experiment_by_name(name)
        if found is None:
            try:
                return str(self._client.create_experiment(name))
            except MlflowException:  # another training has just created it
                found = self._client.get_experiment_by_name(name)
                if found is None:
                    raise
        return str(found.experiment_id)


class WeightsAndBiases:
    """One run of a project (WANDB_PROJECT, else `edgefront`), which has the training's id."""

    def __init__(self, run: _Run, folder: Path, environment: Mapping[str, str]) -> None:
        import wandb

        self._run = wandb.init(
            project=environment.get("WANDB_PROJECT") or _PROJECT,
            id=run.id,
            name=run.name,
            config=dict(run.settings),
            dir=folder,
            resume="allow",
            settings=wandb.Settings(console="off", silent=True, disable_git=True, disable_code=True),
        )
        # Its own count of steps only rises, and a training that resumes repeats some.
        self._run.define_metric("*", step_metric="step")

    def log(self, metric: Metric) -> None:
        self._run.log({"step": metric.step, **figures(metric)})

    def end(self, state: str) -> None:
        import wandb

        self._run.finish(exit_code=0 if state in ("done", "stopped") else 1)
        wandb.teardown()  # its own process has written everything only when that has ended


class _InBackground:
    """A tracker that may be slow, in a thread of its own."""

    def __init__(self, name: str, make: Callable[[], Tracker]) -> None:
        self._name, self._make, self._error = name, make, ""
        self._waiting: queue.SimpleQueue[Metric | str] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"{_THREAD}{name}", daemon=True)
        self._thread.start()

    def log(self, metric: Metric) -> None:
        if self._error:
            raise RuntimeError(self._error)
        self._waiting.put(metric)

    def end(self, state: str) -> None:
        self._waiting.put(state)
        self._thread.join(_END_S)
        if self._error or self._thread.is_alive():
            raise RuntimeError(self._error or f"it did not take everything within {_END_S:g} s")

    def _work(self) -> None:
        try:
            tracker = self._make()
            while isinstance(item := self._waiting.get(), Metric):
                tracker.log(item)
            tracker.end(item)
        except BaseException as error:
            _log.warning("%s failed", self._name, exc_info=error)
            self._error = _said(error)


class Trackers:
    """All that are set up. Failures are returned as sentences for the journal, each tracker's first alone."""

    def __init__(self, folder: Path, spec: RunSpec, environment: Mapping[str, str]) -> None:
        run, before = _Run.of(folder, spec), read_metrics(folder / METRICS)
        self._trackers: dict[str, Tracker] = {}
        self._failed: list[str] = []
        self._guard("TensorBoard", lambda: self._add("TensorBoard", TensorBoard(folder / TENSORBOARD, before)))
        slow: dict[str, Callable[[], Tracker]] = {}
        if environment.get("MLFLOW_TRACKING_URI"):
            slow["MLflow"] = lambda: MLflow(run, environment)
        if environment.get("WANDB_API_KEY") or environment.get("WANDB_MODE") == "offline":
            slow["Weights & Biases"] = lambda: WeightsAndBiases(run, folder, environment)
        for name, make in slow.items():
            self._add(name, _InBackground(name, make))

    def log(self, metric: Metric) -> list[str]:
        """Sends a report; returns what failed."""
        for name, tracker in list(self._trackers.items()):
            self._guard(name, lambda tracker=tracker: tracker.log(metric))  # type: ignore[misc]
        return self._news()

    def end(self, state: str) -> list[str]:
        """The training ends in this state."""
        for name, tracker in list(self._trackers.items()):
            self._guard(name, lambda tracker=tracker: tracker.end(state))  # type: ignore[misc]
        return self._news()

    def _add(self, name: str, tracker: Tracker) -> None:
        self._trackers[name] = tracker

    def _guard(self, name: str, do: Callable[[], None]) -> None:
        try:
            do()
        except Exception as error:
            _log.warning("%s gets no more metrics: %s", name, _said(error))
            self._trackers.pop(name, None)
            self._failed.append(f"{name} gets no more metrics: {_said(error)}.")

    def _news(self) -> list[str]:
        news, self._failed = self._failed, []
        return news


@contextmanager
def tracked(journal: Journal, folder: Path, spec: RunSpec) -> Iterator[None]:
    """Within it, what the journal reports goes to the trackers of this machine too; at its end their runs end."""
    if not journal.writes:
        yield
        return
    trackers = Trackers(folder, spec, os.environ)
    journal.follow(trackers.log)
    try:
        yield
    finally:
        for text in trackers.end(journal.status.state):
            journal.note(text)


def leave(code: int) -> NoReturn:
    """Ends the process with this exit status, at once where a tracker still waits for its server."""
    if any(thread.name.startswith(_THREAD) for thread in threading.enumerate()):
        logging.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # its library would go on waiting at the interpreter's end
    sys.exit(code)


def _said(error: BaseException) -> str:
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        package = error.name.partition(".")[0]
        extra = {"mlflow": "mlflow", "wandb": "wandb"}.get(package, "train")
        return f"{package} is not installed (pip install 'edgefront-lm[{extra}]')"
    text = " ".join(str(error).split()) or type(error).__name__
    return text.rstrip(".")[:300]


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """`{"a": {"b": 1}}` → `a.b`, 1."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
