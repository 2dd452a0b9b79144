"""Run folder of a training: the interface between the supervisor and the training process.

    spec.json        `RunSpec`; written once, before the start
    status.json      `RunStatus`; replaced atomically, at least every few seconds
    metrics.jsonl    one `MetricView` per line; a restart removes lines after the checkpoint
    micro_rows       number of rows of a batch that fit into memory together; no file if all rows fit
    tensorboard/     the metrics for TensorBoard and `wandb sync`
    log.txt          standard output and error of all ranks
    checkpoints/     step-000001000/ … (`core.training.checkpoint`)
    result/          the trained model: model.safetensors, architecture.json, tokenizer files, result.json

`python -m edgefront.core.training.run FOLDER` trains to the end or until SIGTERM, and resumes a stopped run.
"""

from __future__ import annotations

import logging
import math
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.files import refusing_full_disk, whole_file
from edgefront.core.schemas.trainings import MetricView, TrainingBudget
from edgefront.core.training.recipes.recipe import Recipe

EXIT_DONE = 0
EXIT_STOPPED = 75
"""Exit code after a stop by SIGTERM, with a checkpoint. The same command resumes the run."""
EXIT_INVALID = 64
"""Exit code for an invalid spec or invalid data, described in `status.json`; a retry would fail in the same way."""
EXIT_FAILED = 70
"""Exit code for out of memory at the smallest batch, a loss that is not finite, or a bug; see `status.json`."""
EXIT_SMALLER = 71
"""Exit code for out of memory on one of several ranks. The same command resumes with half the micro rows.

Under `torchrun` every exit code except 0 becomes 1, so that only `status.json` distinguishes the reasons.
"""

SPEC, STATUS, METRICS, LIMIT, LOG, CHECKPOINTS, RESULT, TENSORBOARD = (
    "spec.json",
    "status.json",
    "metrics.jsonl",
    "micro_rows",
    "log.txt",
    "checkpoints",
    "result",
    "tensorboard",
)


class RunSpec(BaseModel):
    """Input of a training. Paths are absolute."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["training", "supernet"] = "training"
    architecture: dict[str, Any] = Field(default_factory=dict)
    """Canonical description of the architecture, with the data's vocabulary or `vocab_size`. Empty for a supernet."""
    data: str
    """Path of the prepared data set (`core.data.prepared.prepared`)."""
    recipe: dict[str, Any]
    """A complete `core.training.recipes.recipe.Recipe`."""
    budget: TrainingBudget = TrainingBudget()
    """Budget of the training. The learning rate's schedule ends with the budget's steps."""
    start: str | None = None
    """Initial weights: path of another training's safetensors file, which is read before the first step."""
    vocab_size: int | None = Field(default=None, ge=1)
    """Vocabulary size of the model if `start` has a padded embedding, larger than the data's vocabulary."""
    inherit: bool = False
    """Whether `start` is pruned, so that the trained model is a submodel of `start`."""
    teacher: str | None = None
    """Weights of the teacher, for a recipe with `distil`: path of a safetensors file of any architecture with the same
    tokens. Every rank reads the file at every start."""
    seed: int = Field(default=0, ge=0, lt=1 << 63)
    device: Literal["cpu", "cuda"] = "cpu"
    threads: int | None = Field(default=None, ge=1)
    """Number of CPU threads of one rank; None: torch's default."""
    supernet: dict[str, Any] | None = None
    """Settings of a supernet search (`core.training.supernet`)."""
    about: dict[str, Any] = Field(default_factory=dict)
    """Fields that `result.json` and the model card repeat, such as the model's name and licence."""

    @model_validator(mode="after")
    def _whole(self) -> RunSpec:
        if self.inherit and self.start is None:
            raise ValueError("inherit needs start, the weights of the model that is pruned")
        return self


RunState = Literal["starting", "training", "evaluating", "stopped", "smaller", "done", "invalid", "failed"]
"""States of a run. The final five are outcomes, with exit codes 75, 71, 0, 64 and 70. A killed run has no outcome."""


class RunStatus(BaseModel):
    """Content of `status.json`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    state: RunState
    step: int = 0
    steps: int = 0
    """Expected number of steps, from the budget."""
    seconds_left: float | None = None
    micro_rows: int | None = None
    note: str = ""
    """Message for users, such as: It resumed from step 3000."""
    error: str | None = None
    last: MetricView | None = None


def recipe_of(spec: RunSpec) -> Recipe:
    """Returns the spec's recipe with steps, warm-up and decay shortened to the budget of steps and tokens."""
    recipe, budget = Recipe.parse(spec.recipe), spec.budget
    limits = [recipe.steps]
    if budget.steps is not None:
        limits.append(budget.steps)
    if budget.tokens is not None:
        limits.append(math.ceil(budget.tokens / (recipe.rows * recipe.segment)))
    steps = min(limits)
    warmup = math.floor(recipe.schedule.warmup * steps / recipe.steps)
    return recipe.overridden({"steps": steps, "schedule": {"warmup": warmup}})


_EVERY_S = 1.0


class Journal:
    """Writes status and metrics of one run. `writes` is True only on the first rank; other ranks write nothing."""

    def __init__(self, folder: Path, *, writes: bool) -> None:
        self._folder, self.writes = folder, writes
        self._follower: Callable[[MetricView], Iterable[str]] | None = None
        self.status = RunStatus(state="starting")
        self._written_at = 0.0

    def update(self, *, now: bool = True, **changes: Any) -> None:
        """Changes fields of the status. Writes the file at once, or if `now` is False within about a second."""
        self.status = self.status.model_copy(update=changes)
        if not self.writes or (not now and time.monotonic() - self._written_at < _EVERY_S):
            return
        with whole_file(self._folder / STATUS) as file:
            file.write(self.status.model_dump_json(indent=1).encode())
        self._written_at = time.monotonic()

    def note(self, text: str) -> None:
        """Appends a sentence to the status's note, which users read."""
        self.update(note=f"{self.status.note} {text}".strip())

    def report(self, metric: MetricView) -> None:
        """Appends a line to the metrics; writes the status within about a second."""
        path = self._folder / METRICS
        if self.writes:
            with refusing_full_disk(path), path.open("ab") as file:
                file.write(metric.model_dump_json(exclude_none=True).encode() + b"\n")
        self.update(now=False, last=metric, step=metric.step)
        for text in () if self._follower is None else self._follower(metric):
            self.note(text)

    def follow(self, follower: Callable[[MetricView], Iterable[str]]) -> None:
        """Calls `follower` with each later report, and appends the sentences that `follower` returns to the note."""
        self._follower = follower

    def rewind(self, step: int) -> None:
        """Removes metrics of steps after `step`, which the run repeats, and a line truncated by a crash."""
        path = self._folder / METRICS
        if not self.writes or not path.exists():
            return
        kept = [metric for metric in read_metrics(path) if metric.step <= step]
        with whole_file(path) as file:
            for metric in kept:
                file.write(metric.model_dump_json(exclude_none=True).encode() + b"\n")
        if kept:
            self.status = self.status.model_copy(update={"last": kept[-1]})


def read_metrics(path: Path) -> list[MetricView]:
    """Reads the complete lines of a metrics file."""
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return []
    return list(parse_metrics(line for line in text.splitlines(keepends=True) if line.endswith(b"\n")))


def parse_metrics(lines: Iterable[bytes]) -> Iterator[MetricView]:
    """Parses lines of metrics; skips lines that a crash has truncated."""
    for line in lines:
        with suppress(ValidationError):
            yield MetricView.model_validate_json(line)


def read_status(folder: Path) -> RunStatus | None:
    """Reads the status of a run; None if the file is missing or invalid."""
    try:
        return RunStatus.model_validate_json((folder / STATUS).read_bytes())
    except (OSError, ValidationError):
        return None


def read_limit(folder: Path) -> int | None:
    """Reads the maximum number of rows per micro-batch, written after memory ran out; None without a limit."""
    try:
        return int((folder / LIMIT).read_bytes())
    except FileNotFoundError:
        return None


def write_limit(folder: Path, micro_rows: int) -> None:
    """Writes the maximum number of rows per micro-batch of later runs. Any rank may call this function."""
    with whole_file(folder / LIMIT) as file:
        file.write(f"{micro_rows}\n".encode())


def with_vocabulary(architecture: Architecture, vocab_size: int, source_vocab_size: int | None = None) -> Architecture:
    """Returns the architecture with another vocabulary size; softmax clusters beyond this size are removed.

    A candidate is measured with the vocabulary of the search space but trained with the vocabulary of the data set, so
    the digests of the two architectures differ. `source_vocab_size` is the vocabulary size of a translation model's
    source; None: `vocab_size`.
    """
    described = _with(architecture.canonical, vocab_size)
    if architecture.source is not None:
        described["source"] = _with(architecture.source.canonical, source_vocab_size or vocab_size)
    return Architecture.parse(described)


def _with(described: dict[str, Any], vocab_size: int) -> dict[str, Any]:
    embedding = dict(described["embedding"])
    embedding["vocab_size"] = vocab_size
    if "cutoffs" in embedding:
        embedding["cutoffs"] = [cutoff for cutoff in embedding["cutoffs"] if cutoff < vocab_size]
        if not embedding["cutoffs"]:
            embedding.pop("div", None)  # `div` only narrows clusters after the first
    return {**described, "embedding": embedding}


_TRAIN = ("loss", "lr", "gradient_norm", "tokens_per_s")
_VALID = ("loss", "perplexity", "bpc")

_log = logging.getLogger(__name__)


def figures(metric: MetricView) -> dict[str, float]:
    """Returns the numbers in a line of metrics by name: `train/loss`, `valid/perplexity`, `extra/expected_ms` …"""
    values = {f"train/{name}": getattr(metric, name) for name in _TRAIN}
    values |= {f"valid/{name}": getattr(metric, f"valid_{name}") for name in _VALID}
    values |= {f"extra/{name}": value for name, value in metric.extra.items()}
    values["train/tokens"] = metric.tokens
    return {name: float(value) for name, value in values.items() if type(value) in (int, float)}


class Curves:
    """Rewrites TensorBoard's event files from all reports of the run, so steps that a restart repeats occur once."""

    def __init__(self, folder: Path, earlier: Sequence[MetricView]) -> None:
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._writer = EventsWriter(str(folder / "events"))
        # After this event, a TensorBoard that watches the folder discards the earlier files.
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
def tensorboard(journal: Journal, folder: Path) -> Iterator[None]:
    """Context manager that copies the journal's reports to TensorBoard's files. Failures only add a note."""
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
