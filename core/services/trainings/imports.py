"""Imports a model with its weights and stores it as a training in state done."""

from __future__ import annotations

from pathlib import Path

from edgefront.core.architectures.parameters import count
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.files import sha256
from edgefront.core.common.states import KeyRole, TrainingCommand, TrainingKind, TrainingState
from edgefront.core.quality.pruning_predictor import PruningPredictor
from edgefront.core.schemas.trainings import TrainingView
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.idempotency import add_once
from edgefront.core.services.quality.laws import PRUNING_PREDICTOR
from edgefront.core.services.quality.learning import store_pruning_predictor
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings import queries as training_queries
from edgefront.core.services.trainings.drafts import Draft, remove_abandoned
from edgefront.core.services.trainings.folder import check_stored
from edgefront.core.services.trainings.transitions import log_state
from edgefront.core.services.trainings.views import training_view
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Training
from edgefront.core.training.evaluation.given_model import CheckedModel, check_imported
from edgefront.core.training.evaluation.package import CUTS, WEIGHTS
from edgefront.core.training.pruning.study_file import read_study_file


def begin_import(database: Database, principal: Principal, settings: Settings) -> Draft:
    """Returns a draft into which the caller writes a model's archive. The caller must close the draft.

    Raises `Forbidden` for viewers and agents, `BoundReached` if the owner's files have reached their limit.
    """
    principal.require(KeyRole.USER)
    remove_abandoned(settings, database)
    check_stored(database, principal.owner, settings)
    return Draft(settings, database)


def import_model(
    database: Database,
    principal: Principal,
    draft: Draft,
    settings: Settings,
    *,
    name: str | None = None,
    licence: str | None = None,
) -> tuple[TrainingView, bool]:
    """Stores the model of a complete archive. Returns the training of the model, and whether this training is new: if
    the owner has already imported the same weights, tokenizer and importance study, the existing training is returned.

    Raises:
        InvalidInput: the archive is not a tar archive of a model, or the model is incomplete; the message names the
            wrong tensor.
        TooLarge: a file is too large.
        BoundReached: the owner's files would exceed their limit.
        Unavailable: the disk is full.
    """
    draft.unpack()
    model = check_imported(draft.result, name=name, licence=licence)
    with database.read() as session:
        former = training_queries.find_import(session, principal.owner, model.digest)
        if former is not None:
            return training_view(session, former), False
    law = _law_of_cuts(draft.result, model)
    check_stored(database, principal.owner, settings, draft.size())
    draft.move_to_training()
    training = _row(principal.owner, draft.training_id, model, name=name, licence=licence)
    with database.write() as session:
        now = database.now(session)
        training.created_at = training.updated_at = training.finished_at = now
        former = add_once(
            session, [training], lambda: training_queries.find_import(session, principal.owner, model.digest)
        )
        if former is not None:
            return training_view(session, former), False
        if law is not None:
            training.result = {
                **(training.result or {}),
                PRUNING_PREDICTOR: store_pruning_predictor(session, principal.owner, law, now),
            }
        log_state(session, training, now)
        return training_view(session, training), True


def _row(owner: str, training_id: str, model: CheckedModel, **request: str | None) -> Training:
    architecture = model.architecture
    named = {name: value for name, value in (*request.items(), ("licence", model.facts.get("licence"))) if value}
    return Training(
        id=training_id,
        owner=owner,
        name=model.facts["name"],
        kind=TrainingKind.IMPORT,
        request=named,
        request_digest=model.digest,
        import_digest=model.digest,
        architecture=architecture.canonical,
        trained=architecture.canonical,
        digest=architecture.digest,
        decoder_parameters=count(architecture).decoder,
        state=TrainingState.DONE,
        wanted=TrainingCommand.RUN,
        result=dict(model.facts),
    )


def _law_of_cuts(folder: Path, model: CheckedModel) -> PruningPredictor | None:
    """Returns the pruning predictor from the archive's importance study; None if the archive has no study. Raises
    `InvalidInput` if the study is damaged or belongs to another model.
    """
    if not (folder / CUTS).is_file():
        return None
    law, weights = read_study_file(folder / CUTS)
    if law.parent != model.architecture or weights != sha256(folder / WEIGHTS):
        raise InvalidInput(
            f"the model cannot be imported, because {CUTS} is about other weights than {WEIGHTS}",
            field="cuts",
            value=weights[:12],
            allowed="the study of this model (edgefront inherit study), or none",
        )
    return law
