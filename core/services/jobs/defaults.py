"""What a request leaves to the service: the proxy that suits its space, the algorithm that suits the proxy, the
baselines that its limits leave a chance, and the part of the space that llama.cpp runs where a target has it.

Settled when a job is submitted, and stored: a later release with other defaults continues what was begun.
"""

from __future__ import annotations

from edgefront.core.errors import EdgefrontError, within
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.proxies.quality_law import covers
from edgefront.core.quality.shipped import law_for
from edgefront.core.search.problem import COUNTED
from edgefront.core.services.quality.laws import with_law
from edgefront.core.services.spaces import space_of
from edgefront.core.states import Goal
from edgefront.core.units import MB
from edgefront.core.wire.jobs import JobRequest


def with_defaults(request: JobRequest) -> JobRequest:
    """The request with its proxy, algorithm and baselines named, as far as they do not follow from its space.

    Raises `SpaceError` with the field's path within the request.
    """
    request = _for_llama_cpp(_around_model(request))
    proxy = request.proxy
    if proxy == "auto":
        proxy = "quality_law" if covers(space_of(request.space).baselines([1])[0]) else "decoder_parameters"
    if proxy == "quality_law" and request.proxy_settings.get("law") is None:
        law = law_for(space_of(request.space))
        request = request if law is None else with_law(request, law.origin.name)
    algorithm = request.algorithm
    if algorithm.name == "auto":
        predictable = proxy == "quality_law" or proxy in COUNTED
        algorithm = algorithm.model_copy(update={"name": "surrogate" if predictable else "lts"})
    depths = request.baseline_layers
    if depths is None and request.space.model is None and request.goal == Goal.BEST_WITHIN_LIMITS:
        depths = _depths_within_memory(request)
    return request.model_copy(update={"proxy": proxy, "algorithm": algorithm, "baseline_layers": depths})


def _depths_within_memory(request: JobRequest) -> tuple[int, ...] | None:
    """Depths of the stock model whose weights alone leave it a chance; at least the least one. None: every depth."""
    space, depths = space_of(request.space), {1}
    for target in request.targets:
        if target.limits.memory_mb is None:
            return None
        for depth, architecture in enumerate(space.baselines(), start=1):
            try:
                weights = protocol_costs(architecture, target.protocol).weight_bytes
            except EdgefrontError:
                return None  # `resolve` says why such a model cannot run
            if weights <= target.limits.memory_mb * MB:
                depths.add(depth)
    return tuple(sorted(depths))


def _around_model(request: JobRequest) -> JobRequest:
    """Adds the name of the space that has the request's model, and the model in its canonical form."""
    space = space_of(request.space)
    if space.model is None:
        return request
    named = {"name": space.name, "model": space.model.canonical}
    return request.model_copy(update={"space": request.space.model_copy(update=named)})


def _for_llama_cpp(request: JobRequest) -> JobRequest:
    """Narrows the space to what llama.cpp runs, where a target is measured with it.

    One narrowing for all targets, so that they measure the same candidates. `resolve` refuses spaces of which it runs
    none. Raises `SpaceError` that names the gene of which it runs no value that was asked for.
    """
    space = space_of(request.space)
    if not space.loads_in_part or all(target.protocol.runtime != "llamacpp" for target in request.targets):
        return request
    with within("space", "narrow"):
        limited = space.limited_to("llamacpp")
    narrow = {**request.space.narrow, **{gene: list(values) for gene, values in limited.items()}}
    return request.model_copy(update={"space": request.space.model_copy(update={"narrow": narrow})})
