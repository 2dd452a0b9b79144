"""Targets that stand for several: one for each runtime, format of weights and format of llama.cpp's cache."""

from __future__ import annotations

from collections.abc import Iterator

from edgefront.core.errors import InvalidInput, within
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.variants import format_of, variants_of
from edgefront.core.wire.jobs import MAX_TARGETS, JobRequest, TargetRequest


def with_variants(request: JobRequest) -> JobRequest:
    """The request with a target for each variant. `InvalidInput` names the field of the target that has none."""
    if all(target.variants is None for target in request.targets):
        return request
    targets = []
    for index, target in enumerate(request.targets):
        with within("targets", index, "variants"):
            targets += list(_variants(target))
    if len(targets) > MAX_TARGETS:
        raise InvalidInput(
            f"targets: the variants make {len(targets)} targets, and a job has at most {MAX_TARGETS}",
            field="targets",
            value=len(targets),
            allowed=f"at most {MAX_TARGETS}: fewer runtimes, formats or cache formats",
        )
    return request.model_copy(update={"targets": tuple(targets)})


def without_variants(request: JobRequest) -> JobRequest:
    """The request as if no target had variants."""
    targets = [target.model_copy(update={"variants": None}) for target in request.targets]
    return request.model_copy(update={"targets": tuple(targets)})


def _variants(target: TargetRequest) -> Iterator[TargetRequest]:
    asked = target.variants
    if asked is None:
        yield target
        return
    protocols = variants_of(target.protocol, asked.runtimes, asked.formats, asked.kv_caches)
    caches = {protocol.kv_cache for protocol in protocols} - {None}
    for protocol in protocols:
        name = f"{target.name or target.device or target.device_class or ''} {_words(protocol, len(caches) > 1)}"
        yield target.model_copy(update={"protocol": protocol, "variants": None, "name": name.strip()})


def _words(protocol: MeasurementProtocol, with_cache: bool) -> str:
    """What distinguishes it from its siblings: `llamacpp q8_0`, `llamacpp q8_0, cache f16`."""
    cache = f", cache {protocol.kv_cache}" if with_cache and protocol.kv_cache else ""
    return f"{protocol.runtime} {format_of(protocol)}{cache}"
