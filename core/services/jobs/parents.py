"""The model whose weights the models of a job inherit: a training, or an imported model, with a study of its cuts."""

from __future__ import annotations

from sqlalchemy.orm import Session

from edgefront.core.errors import InvalidInput, NotFound
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import training_of
from edgefront.core.services.quality.laws import CUTS_LAW, with_law
from edgefront.core.states import TrainingState
from edgefront.core.store.tables import Training
from edgefront.core.wire.jobs import JobRequest


def with_parent(session: Session, principal: Principal, request: JobRequest) -> JobRequest:
    """The request with the architecture of the parent and the law of its cuts, if its models inherit.

    `InvalidInput` names `space.inherit` where the caller has no such model, or no study of it came along, and what the
    request says otherwise than the parent.
    """
    if request.space.inherit is None:
        return request
    try:
        parent = training_of(session, principal, request.space.inherit)
    except NotFound as error:
        raise _refused(str(error), request.space.inherit) from None
    law = law_of_parent(parent)
    if law is None or parent.trained is None:
        raise _refused(f"nothing is known of the cuts of {parent.name} ({parent.id})", parent.id)
    if request.space.model is not None and request.space.model != parent.trained:
        raise InvalidInput(
            f"space.model is not the architecture of {parent.name} ({parent.id}), whose weights are inherited",
            field="space.model",
            value="an architecture",
            allowed="omit it",
        )
    named = request.proxy_settings.get("law")
    if named not in (None, law):
        raise InvalidInput(
            f"proxy_settings.law: the parts of {parent.name} are ranked by the law of its cuts, {law}",
            field="proxy_settings.law",
            value=named,
            allowed="omit it",
        )
    space = request.space.model_copy(update={"model": parent.trained})
    return with_law(request.model_copy(update={"space": space}), law)


def law_of_parent(parent: Training) -> str | None:
    """The law of the parts of a training that is done; None where no study of its cuts came along."""
    if parent.state != TrainingState.DONE:
        return None
    law = (parent.result or {}).get(CUTS_LAW)
    return law if isinstance(law, str) else None


def _refused(what: str, value: str) -> InvalidInput:
    return InvalidInput(
        f"space.inherit: {what}",
        field="space.inherit",
        value=value,
        allowed="a model imported with a study of its cuts (edgefront inherit study, edgefront train import)",
    )
