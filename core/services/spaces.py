"""Search spaces of job requests."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache

from edgefront.core.architectures.catalogue import space as catalogued
from edgefront.core.architectures.neighbourhood import space_around
from edgefront.core.architectures.published import published_models, score_named
from edgefront.core.architectures.published_space import Filter, published_space
from edgefront.core.architectures.space import SearchSpace
from edgefront.core.common.errors import InvalidInput, within
from edgefront.core.schemas.jobs import SpaceRequest
from edgefront.core.schemas.published import PublishedRequest


def space_of(request: SpaceRequest) -> SearchSpace:
    """Returns the narrowed space of a request. Errors name the field, for example `space.model` or
    `space.narrow.<gene>`.
    """
    return _space(request.model_dump_json())


def filter_of(request: SpaceRequest) -> Filter:
    """Returns the filter of published models in a request; the default filter if the request has none."""
    published = request.published or PublishedRequest()
    return Filter(published.kind, published.licence, published.min_context)


def score_of(request: SpaceRequest) -> str:
    """Returns the score of published models, as TABLE:BENCHMARK; empty for other spaces, and without such a score."""
    with suppress(InvalidInput):
        return "" if request.published is None else str(score_named(request.published.score, published_models()))
    return ""


@lru_cache(maxsize=256)
def _space(text: str) -> SearchSpace:
    request = SpaceRequest.model_validate_json(text)
    base: SearchSpace
    with within("space"):
        if request.published is not None:
            with within("published"):
                base = published_space(request.published.score, filter_of(request))
        elif request.model is None:
            base = catalogued(request.name)
        else:
            base = space_around(request.model, request.name, parts=request.inherit is not None)
    with within("space", "narrow"):
        return base.narrow(request.narrow) if request.narrow else base
