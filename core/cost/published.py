"""Published models with what is counted from their architectures."""

from __future__ import annotations

from edgefront.core.cost.parameters import count
from edgefront.core.published import PublishedModel, PublishedView
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.models.published import expressed


def published_view(model: PublishedModel) -> PublishedView:
    """The facts about a published model with its digest and its parameters, or why it has none."""
    architecture = expressed(model)
    facts = dict(model)
    if not isinstance(architecture, Architecture):
        return PublishedView(**facts, not_expressible=architecture)
    return PublishedView(**facts, digest=architecture.digest, counted_parameters=count(architecture).total)
