"""Downloads of a training: single files, the result as a tar archive, and the model as one file."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.passes import Logits
from edgefront.core.common.errors import Conflict, NotFound, Unavailable
from edgefront.core.common.files import Archive, locked
from edgefront.core.common.number_formats import NumberFormat
from edgefront.core.common.states import TrainingKind, TrainingState
from edgefront.core.model_files.model_file import (
    ModelFormat,
    as_measured,
    check_format,
    file_name,
    formats_of,
    write_model,
)
from edgefront.core.schemas.trainings import TrainingFile
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import training_of
from edgefront.core.services.settings import Settings
from edgefront.core.services.stored import PROTOCOL
from edgefront.core.services.trainings.folder import (
    WEIGHTS,
    checkpoints_in,
    files_in,
    hashed,
    tail,
    training_folder,
)
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Target, Training
from edgefront.core.training.evaluation.package import read_package
from edgefront.core.training.run_folder import LOG, RESULT, TENSORBOARD

BINARY = "application/octet-stream"
_MODELS = "models"
"""Folder of single-file models. Each is built from the training's result at its first request."""


@dataclass(frozen=True)
class Download:
    """A file that is ready to be sent. `sha256` is the hash of its content and its ETag."""

    path: Path
    name: str
    size: int
    sha256: str
    media_type: str = BINARY


@dataclass(frozen=True)
class TrainingFiles:
    """Downloadable files of a training. Methods that read files may take seconds."""

    training_id: str
    folder: Path
    state: TrainingState

    def listed(self) -> list[TrainingFile]:
        """Lists the files of the training's result, of the newest checkpoint, and of the logs for TensorBoard."""
        files: list[TrainingFile] = []
        folders = (self.folder / RESULT, *list(checkpoints_in(self.folder).values())[-1:], self.folder / TENSORBOARD)
        for folder in folders:
            for path in files_in(folder):
                with suppress(OSError):  # the next checkpoint has just replaced the folder
                    state = path.stat()
                    modified_at = datetime.fromtimestamp(state.st_mtime, timezone.utc)
                    name = path.relative_to(self.folder).as_posix()
                    files.append(TrainingFile(path=name, size=state.st_size, modified_at=modified_at))
        return files

    def file(self, path: str) -> Download:
        """Returns a file of the list `listed()` for download. `NotFound` for any other path."""
        if path not in {listed.path for listed in self.listed()}:
            raise NotFound(f"training {self.training_id} has no file {path!r}; choose a file of its list")
        name = f"{self.training_id}-{path.replace('/', '-')}"
        local = self.folder / path
        try:
            state, digest = hashed(local)
            return Download(local, name, state.st_size, digest)
        except FileNotFoundError:
            raise NotFound(f"training {self.training_id} has no file {path!r} any more") from None
        except OSError as error:
            raise Unavailable(f"the server cannot read {path}: {error.strerror or error}") from error

    def archive(self) -> Archive:
        """Returns the files of the result in a folder named by the training's id. `Conflict` without a result."""
        listed = [file.path for file in self.listed() if file.path.startswith(f"{RESULT}/")]
        if not listed:
            raise _no_result(self.training_id, self.state)
        return Archive({self.training_id + path.removeprefix(RESULT): self.folder / path for path in listed})

    def log(self, lines: int) -> str:
        """Returns the final `lines` lines of the run's log; empty before the first line."""
        return tail(self.folder / LOG, lines)


def files_of(database: Database, principal: Principal, training_id: str, settings: Settings) -> TrainingFiles:
    """Returns the downloadable files of a training. `NotFound` for an unknown training or another owner's training."""
    with database.read() as session:
        state = training_of(session, principal, training_id).state
    return TrainingFiles(training_id, training_folder(settings, training_id), state)


def _no_result(training_id: str, state: TrainingState) -> Conflict:
    if state == TrainingState.DONE:
        what = f"done, but its result is not in the service's folder of artifacts: restore {training_id} from a backup"
    else:
        what = f"{state} and has no result yet; wait until it is done"
    return Conflict(f"training {training_id} is {what}", state=state)


def trained_model(
    database: Database,
    principal: Principal,
    training_id: str,
    format_: ModelFormat,
    settings: Settings,
    number_format: NumberFormat = "float32",
    logits: Logits | None = None,
) -> Download:
    """Returns the trained model in this format. Building the file may take seconds and happens outside transactions.

    `logits`: by default what was measured of the training's candidate, if the trained model scores tokens as well.

    Raises:
        NotFound: the training does not exist, belongs to another owner, or trains a supernet, which is not one model.
        Conflict: the training has no result yet.
        InvalidInput: the model does not support the format, number format or logits, or GGUF its tokenizer.
        Unavailable: the disk is full.
    """
    with database.read() as session:
        training = training_of(session, principal, training_id)
        training_state, kind, trained = training.state, training.kind, training.trained or training.architecture
        target = session.get(Target, training.target_id) if training.target_id else None
        measured = None if target is None else PROTOCOL.read(target.protocol)
    files = files_of(database, principal, training_id, settings)
    if kind == TrainingKind.SUPERNET:
        raise NotFound(f"training {training_id} is of a supernet, not of one model: train a model that it found")
    try:
        sha256 = hashed(files.folder / WEIGHTS)[1]
    except FileNotFoundError:
        raise _no_result(training_id, training_state) from None
    architecture = Architecture.parse(trained)
    if measured is not None and architecture.output.kind == "tokens":
        logits = logits or as_measured(format_, "float32", measured.logits)[1]
    check_format(architecture, format_, number_format, logits)
    folder = files.folder / _MODELS / sha256[:16]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file_name(architecture.digest, None, format_, number_format, logits)
    with locked(folder / ".lock"):
        if not path.is_file():
            with tempfile.TemporaryDirectory(dir=folder, prefix=".") as temporary:
                package = read_package(files.folder / RESULT)
                tokenizer_files = package.hugging_face_files() if format_ in ("gguf", "transformers") else None
                draft = Path(temporary) / "model"
                write_model(
                    package.architecture, format_, package.weights, draft, number_format, tokenizer_files, logits
                )
                draft.replace(path)
    state, digest = hashed(path)
    return Download(path, path.name, state.st_size, digest)


def formats_of_trained(training: Training) -> tuple[ModelFormat, ...]:
    """Formats in which this training's model can be downloaded; empty before the training is done."""
    if training.state != TrainingState.DONE or training.kind == TrainingKind.SUPERNET or training.trained is None:
        return ()
    formats = _formats(Architecture.parse(training.trained))
    if (training.result or {}).get("level") == "words":  # llama.cpp has no such tokenizer
        return tuple(format_ for format_ in formats if format_ != "gguf")
    return formats


_formats = lru_cache(maxsize=1024)(formats_of)
