"""A trained model as one file for download: ONNX, GGUF, the folder of transformers and the others of `model_file`.

A file is built from the training's result when it is first asked for, and kept in the training's folder, where deleting
the training removes it.
"""

from __future__ import annotations

import tempfile
from functools import lru_cache
from pathlib import Path

from edgefront.core.errors import Conflict, NotFound
from edgefront.core.evaluation.package import read_package
from edgefront.core.files import locked
from edgefront.core.graph.model_file import ModelFormat, check_format, file_name, formats_of, write_model
from edgefront.core.number_formats import NumberFormat
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import training_of
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.files.downloads import Download, TrainingFiles, files_of
from edgefront.core.services.trainings.files.folder import WEIGHTS, hashed
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.states import TrainingKind, TrainingState
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Training
from edgefront.core.training.run_folder import RESULT

_FOLDER = "models"


def trained_model(
    database: Database,
    principal: Principal,
    training_id: str,
    format_: ModelFormat,
    settings: Settings,
    number_format: NumberFormat = "float32",
) -> Download:
    """The model with its trained weights in this format.

    Takes the database, not a session: building can take seconds and holds no transaction.

    Raises:
        NotFound: no such training, not yours, or a supernet, which is no single model.
        Conflict: it has no result yet.
        InvalidInput: a format or number format that this model does not have, or a tokenizer that GGUF does not have.
        Unavailable: the disk is full.
    """
    with database.read() as session:
        training = training_of(session, principal, training_id)
        state, kind, trained = training.state, training.kind, training.trained or training.architecture
    files = files_of(database, principal, training_id, settings)
    if kind == TrainingKind.SUPERNET:
        raise NotFound(f"training {training_id} is of a supernet, which is no single model: train what it found")
    sha256 = files.sha256_of(WEIGHTS)
    if sha256 is None:
        raise Conflict(f"training {training_id} is {state} and has no result yet", state=state)
    architecture = Architecture.parse(trained)
    check_format(architecture, format_, number_format)
    folder = files.folder / _FOLDER / sha256[:16]
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / file_name(architecture.digest, None, format_, number_format)
    with locked(folder / ".lock"):
        if not path.is_file():
            _build(files, format_, number_format, path)
    made, digest = hashed(path)
    return Download(path, path.name, made.st_size, digest)


def formats_of_trained(training: Training) -> tuple[ModelFormat, ...]:
    """The formats in which `trained_model` has this training's model; none before it is done."""
    if training.state != TrainingState.DONE or training.kind == TrainingKind.SUPERNET or training.trained is None:
        return ()
    formats = _formats(Architecture.parse(training.trained))
    if (training.result or {}).get("level") == "words":  # llama.cpp has no such tokenizer
        return tuple(format_ for format_ in formats if format_ != "gguf")
    return formats


@lru_cache(maxsize=1024)
def _formats(architecture: Architecture) -> tuple[ModelFormat, ...]:
    return formats_of(architecture)


def _build(files: TrainingFiles, format_: ModelFormat, number_format: NumberFormat, path: Path) -> None:
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=".") as place:
        package = read_package(files.folder / RESULT)
        beside = package.hugging_face_files() if format_ in ("gguf", "transformers") else None
        draft = Path(place) / "model"
        write_model(package.architecture, format_, package.weights, draft, number_format, beside)
        draft.replace(path)
