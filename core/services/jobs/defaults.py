"""What a request leaves to the service: the proxy that suits its space, and the algorithm that suits the proxy.

Settled when a job is submitted, and stored: a later release with other defaults continues what was begun.
"""

from __future__ import annotations

from edgefront.core.proxies.quality_law import covers
from edgefront.core.search.problem import COUNTED
from edgefront.core.services.jobs.plan import space_of
from edgefront.core.wire.jobs import JobRequest


def with_defaults(request: JobRequest) -> JobRequest:
    """The request with its proxy and algorithm named. Raises `SpaceError` with the field's path within the request."""
    proxy = request.proxy
    if proxy == "auto":
        proxy = "quality_law" if covers(space_of(request.space).baselines([1])[0]) else "decoder_parameters"
    algorithm = request.algorithm
    if algorithm.name == "auto":
        predictable = proxy == "quality_law" or proxy in COUNTED
        algorithm = algorithm.model_copy(update={"name": "surrogate" if predictable else "lts"})
    return request.model_copy(update={"proxy": proxy, "algorithm": algorithm})
