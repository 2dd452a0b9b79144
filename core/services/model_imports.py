"""Imports a model with its weights: as a training that is done from the start."""

from __future__ import annotations

from pathlib import Path

from edgefront.core.architectures.parameters import count
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.files import sha256
from edgefront.core.common.states import KeyRole, TrainingCommand, TrainingKind, TrainingState
from edgefront.core.quality.cut_law import CutLaw
from edgefront.core.schemas.trainings import TrainingView
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.idempotency import add_once
from edgefront.core.services.quality.laws import CUTS_LAW
from edgefront.core.services.quality.learning import store_law_of_cuts
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.files.drafts import Draft, remove_left
from edgefront.core.services.trainings.files.folder import check_stored
from edgefront.core.services.trainings.queries import trainings as rows
from edgefront.core.services.trainings.transitions import log_state
from edgefront.core.services.trainings.views import training_view
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Training
from edgefront.core.training.evaluation.given_model import ImportedModel, check_imported
from edgefront.core.training.evaluation.package import CUTS, WEIGHTS
from edgefront.core.training.pruning.law_file import law_in


def begin_import(database: Database, principal: Principal, settings: Settings) -> Draft:
    """Where the archive of a model is written as it arrives, to be closed by the caller.

    Raises `Forbidden` for a key that may not, `BoundReached` where the owner has as many bytes as the admin allows.
    """
    principal.require(KeyRole.USER)
    remove_left(settings, database)
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
    """Stores the model whose archive has arrived. Returns its training, and whether it was made: the same weights,
    tokenizer and study of cuts of the same owner give the training that there is, as it is.

    Raises:
        InvalidInput: it is no tar archive of a model, or the model is not whole; says which tensor is wrong.
        TooLarge: one of its files is.
        BoundReached: the owner would have more bytes than the admin allows.
        Unavailable: the disk is full.
    """
    draft.unpack()
    model = check_imported(draft.result, name=name, licence=licence)
    with database.read() as session:
        former = rows.find_import(session, principal.owner, model.digest)
        if former is not None:
            return training_view(session, former), False
    law = _law_of_cuts(draft.result, model)
    check_stored(database, principal.owner, settings, draft.size())
    draft.place()
    training = _row(principal.owner, draft.training_id, model, name=name, licence=licence)
    with database.write() as session:
        now = database.now(session)
        training.created_at = training.updated_at = training.finished_at = now
        former = add_once(session, [training], lambda: rows.find_import(session, principal.owner, model.digest))
        if former is not None:  # another request was faster
            return training_view(session, former), False
        if law is not None:
            training.result = {
                **(training.result or {}),
                CUTS_LAW: store_law_of_cuts(session, principal.owner, law, now),
            }
        log_state(session, training, now)
        return training_view(session, training), True


def _row(owner: str, training_id: str, model: ImportedModel, **asked: str | None) -> Training:
    architecture = model.architecture
    request = {name: value for name, value in (*asked.items(), ("licence", model.facts.get("licence"))) if value}
    return Training(
        id=training_id,
        owner=owner,
        name=model.facts["name"],
        kind=TrainingKind.IMPORT,
        request=request,
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


def _law_of_cuts(folder: Path, model: ImportedModel) -> CutLaw | None:
    """The law of the study that came along. `InvalidInput` where it is damaged, or about another model."""
    if not (folder / CUTS).is_file():
        return None
    law, weights = law_in(folder / CUTS)
    if law.parent != model.architecture or weights != sha256(folder / WEIGHTS):
        raise InvalidInput(
            f"the model cannot be imported: {CUTS} is about other weights than {WEIGHTS}",
            field="cuts",
            value=weights[:12],
            allowed="the study of this model (edgefront inherit study), or none",
        )
    return law
