"""What a request leaves to the service: the proxy that suits its space, the algorithm that suits the proxy, and the
baselines that its limits leave a chance.

Settled when a job is submitted, and stored: a later release with other defaults continues what was begun.
"""

from __future__ import annotations

from edgefront.core.errors import EdgefrontError
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.proxies.quality_law import covers
from edgefront.core.search.problem import COUNTED
from edgefront.core.services.jobs.plan import space_of
from edgefront.core.units import MIB
from edgefront.core.wire.jobs import JobRequest


def with_defaults(request: JobRequest) -> JobRequest:
    """The request with its proxy, algorithm and baselines named, as far as they do not follow from its space.

    Raises `SpaceError` with the field's path within the request.
    """
    proxy = request.proxy
    if proxy == "auto":
        proxy = "quality_law" if covers(space_of(request.space).baselines([1])[0]) else "decoder_parameters"
    algorithm = request.algorithm
    if algorithm.name == "auto":
        predictable = proxy == "quality_law" or proxy in COUNTED
        algorithm = algorithm.model_copy(update={"name": "surrogate" if predictable else "lts"})
    depths = request.baseline_layers
    if depths is None and request.goal == "best_within_limits":
        depths = _depths_within_memory(request)
    return request.model_copy(update={"proxy": proxy, "algorithm": algorithm, "baseline_layers": depths})


def _depths_within_memory(request: JobRequest) -> tuple[int, ...] | None:
    """Depths of the stock model whose weights alone leave it a chance; at least the least one. None: every depth."""
    space, within = space_of(request.space), {1}
    for target in request.targets:
        if target.limits.memory_mb is None:
            return None
        for depth, architecture in enumerate(space.baselines(), start=1):
            try:
                weights = protocol_costs(architecture, target.protocol).weight_bytes
            except EdgefrontError:
                return None  # `checks` says why such a model cannot run
            if weights <= target.limits.memory_mb * MIB:
                within.add(depth)
    return tuple(sorted(within))
