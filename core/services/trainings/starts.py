"""Whether a training may begin with the weights of another, or of an imported model."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from edgefront.core.data.tokenizers.load import load_tokenizer, same_tokens
from edgefront.core.errors import InvalidInput
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.datasets import find_dataset
from edgefront.core.services.trainings.files.folder import training_folder
from edgefront.core.services.trainings.queries import trainings as rows
from edgefront.core.services.trainings.views import start_of
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.states import TrainingKind, TrainingState
from edgefront.core.store.tables import Training
from edgefront.core.training.run_folder import RESULT
from edgefront.core.training.vocabulary import with_vocabulary

_PREPARED_WITH = {"bpe": " --vocabulary FOLDER/tokenizer.json", "words": " --vocabulary FOLDER/vocabulary.txt"}


def check_weights(start: Training, architectures: Sequence[tuple[str, Architecture]], *, is_part: bool = False) -> None:
    """Checks that there are weights, and of the architectures to train, which come with their names.

    `is_part`: these are to be parts of that model, which the run checks.
    """
    if start.kind == TrainingKind.SUPERNET or start.state != TrainingState.DONE or start.trained is None:
        what = "of a supernet" if start.kind == TrainingKind.SUPERNET else start.state
        raise InvalidInput(
            f"start: training {start.id} is {what} and has no weights to start from",
            field="start",
            value=start.id,
            allowed="a training that is done, or an imported model",
        )
    if is_part:
        return
    trained = Architecture.parse(start.trained)
    source = None if trained.source is None else trained.source.embedding.vocab_size
    for name, architecture in architectures:
        own = with_vocabulary(architecture, trained.embedding.vocab_size, source)
        if own.digest != trained.digest:
            raise InvalidInput(
                f"start: training {start.id} has a different architecture from {name}",
                field="start",
                value=start.id,
                allowed="a training of the same architecture, or inherit for a part of its model",
            )


def check_tokens(start: Training, dataset: str, level: str | None, digest: str, settings: Settings) -> None:
    """Checks that the weights were trained on the tokens of a data set that is prepared here, as the run will again.

    Raises `InvalidInput` that says which command prepares the data with their tokenizer.
    """
    data = find_dataset(dataset, settings.data_folder, digest, level)
    folder = training_folder(settings, start.id) / RESULT
    if same_tokens(folder, data):
        return
    own = load_tokenizer(folder).level
    options = f"--level {own}{_PREPARED_WITH.get(own, '')}"
    first = f"`edgefront train download {start.id} -o FOLDER`, then " if "FOLDER" in options else ""
    raise InvalidInput(
        f"start: training {start.id} was trained on other tokens than those of the data set {dataset}: prepare the "
        f"data with its tokenizer ({first}`edgefront data prepare NAME {options}`)",
        field="start",
        value=start.id,
        allowed="a data set of the same tokens",
    )


def vocabulary_of_start(session: Session, training: Training) -> int | None:
    """Tokens of the model whose weights a training begins with; None without one."""
    start = start_of(training)
    row = None if start is None else rows.find(session, start)
    if row is None or row.trained is None:
        return None
    return Architecture.parse(row.trained).embedding.vocab_size
