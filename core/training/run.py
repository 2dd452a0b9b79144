"""Trains a model, or searches a supernet, by `spec.json` of a folder: `python -m edgefront.core.training.run FOLDER`.

On SIGTERM or SIGINT the process writes a checkpoint and exits; the same command resumes from the checkpoint. Under
`torchrun` every rank runs this command.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from edgefront.core.common.errors import EdgefrontError, InvalidInput
from edgefront.core.common.logs import log_to_stderr
from edgefront.core.common.validation import invalid_input
from edgefront.core.training.distributed import Ranks, joined
from edgefront.core.training.evaluation.package import write_package
from edgefront.core.training.loop import Abandoned, SmallerBatch, Trainer
from edgefront.core.training.run_folder import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_INVALID,
    EXIT_SMALLER,
    EXIT_STOPPED,
    RESULT,
    SPEC,
    Journal,
    RunSpec,
    read_status,
    tensorboard,
)
from edgefront.core.training.supernet import run as supernet

ENDED = ("smaller", "invalid", "failed")

_log = logging.getLogger("edgefront.core.training")


def run(folder: Path, stop: threading.Event) -> int:
    """Trains until done or until `stop` is set. Returns the exit code of the process; writes `status.json`."""
    journal = Journal(folder, writes=int(os.environ.get("RANK", "0")) == 0)
    try:
        try:
            spec = RunSpec.model_validate_json((folder / SPEC).read_bytes())
        except OSError as error:
            text = f"{folder / SPEC} cannot be read: {error.strerror}"
            raise InvalidInput(text, field="folder", value=str(folder)) from error
        except ValidationError as error:
            raise invalid_input(error, InvalidInput).under("spec") from None
        if spec.kind == "supernet":
            return supernet.run(spec, folder, stop.is_set)
        with joined(spec.device, spec.threads) as ranks:
            try:
                return _train(spec, folder, ranks, journal, stop)
            except Exception as error:
                # Recorded before this rank leaves, because the other ranks then fail for lack of this rank.
                return _failed(folder, error)
    except Exception as error:
        return _failed(folder, error)


def _train(spec: RunSpec, folder: Path, ranks: Ranks, journal: Journal, stop: threading.Event) -> int:
    journal.update(state="starting", error=None)
    trainer = Trainer(spec, folder, ranks, journal, stop.is_set)
    with tensorboard(journal, folder):
        if trainer.train() == "stopped":
            journal.update(state="stopped", step=trainer.progress.step)
            return EXIT_STOPPED
        journal.update(state="evaluating")
        try:
            _write_result(trainer, folder)
        except Abandoned:
            journal.update(state="stopped")
            return EXIT_STOPPED
        journal.update(state="done", seconds_left=0.0)
        return EXIT_DONE


def _failed(folder: Path, error: Exception) -> int:
    """Writes the failure to `status.json`. Any rank may write the file, because `torchrun` kills the other ranks."""
    state, code = "failed", EXIT_FAILED
    if isinstance(error, SmallerBatch):
        state, code = "smaller", EXIT_SMALLER
    elif isinstance(error, InvalidInput):
        state, code = "invalid", EXIT_INVALID
    is_ours = isinstance(error, EdgefrontError)
    detail = error.detail if isinstance(error, EdgefrontError) else f"{type(error).__name__}: {error}"
    _log.error(detail, exc_info=None if is_ours else error)
    try:
        journal = Journal(folder, writes=True)
        journal.status = read_status(folder) or journal.status
        if journal.status.state in ENDED and int(os.environ.get("WORLD_SIZE", "1")) > 1:
            return code  # the connection broke because another rank failed, which has reported its failure
        journal.update(state=state, error=detail)
    except (EdgefrontError, OSError) as unwritten:
        _log.error("status.json could not be written: %s", unwritten)
    return code


def _write_result(trainer: Trainer, folder: Path) -> None:
    """Evaluates the best weights on all validation and test data and writes `result/`. Every rank must call this."""
    best = trainer.load_best()
    scores = {split: trainer.evaluate(split) for split in ("valid", "test") if split in trainer.data.splits}
    progress = trainer.progress
    facts: dict[str, Any] = {
        **trainer.spec.about,
        "steps": progress.step,
        "best_step": best,
        "tokens": progress.tokens,
        "seconds": round(progress.seconds, 3),
        **_origin(trainer),
        "digest": trainer.architecture.digest,
        "dataset": trainer.data.name,
        "data_digest": trainer.data.digest,
        "level": trainer.data.level,
        "recipe": trainer.recipe.model_dump(mode="json"),
        "seed": trainer.spec.seed,
        **{split: None if score is None else asdict(score) for split, score in scores.items()},
    }
    if trainer.ranks.is_first:
        data = trainer.data
        source = None if data.source_vocab_size is None else data.source_tokenizer()
        write_package(folder / RESULT, trainer.model, data.tokenizer(), facts, source)
    trainer.ranks.wait()


def _origin(trainer: Trainer) -> dict[str, Any]:
    """Returns the fields of `result.json` about the initial weights, the pruning and the teacher."""
    about, progress, teacher, facts = trainer.spec.about, trainer.progress, trainer.teacher, dict[str, Any]()
    if progress.start is not None:
        facts["start"] = {**about.get("start", {}), "sha256": progress.start}
    if progress.cut is not None:
        cut = dict(progress.cut)
        facts["parent"] = {**about.get("parent", {}), "sha256": progress.start, "digest": cut.pop("parent")}
        facts["cut"] = cut
    if teacher is not None:
        facts["teacher"] = {
            **about.get("teacher", {}),
            "sha256": teacher.sha256,
            "digest": teacher.model.architecture.digest,
            **teacher.settings.model_dump(),
        }
    return facts


def main() -> None:
    """Entry point of the command."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m edgefront.core.training.run FOLDER")
    log_to_stderr()
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    sys.exit(run(Path(sys.argv[1]), stop))


if __name__ == "__main__":
    main()
