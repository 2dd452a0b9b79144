"""The protocols that differ from one in runtime, in the format of weights, and in that of llama.cpp's cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

from edgefront.core.errors import InvalidInput
from edgefront.core.measurement.protocol import Dtype, MeasurementProtocol
from edgefront.core.measurement.runtimes import Runtime
from edgefront.core.number_formats import KV_CACHE_DEFAULT, KvCache, WeightFormat
from edgefront.core.validation import checked

_DTYPES: Mapping[WeightFormat, Dtype] = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
_DEFAULTS: Mapping[Runtime, tuple[WeightFormat, ...]] = {
    "llamacpp": ("q8_0", "q4_0"),
    "onnxruntime": ("int8", "int4"),
    "openvino": ("int8", "int4"),
    "pytorch": ("f32", "int8"),
}


def format_of(protocol: MeasurementProtocol) -> WeightFormat:
    """The format of a protocol's weights, in one word."""
    if protocol.quantisation != "full":
        return protocol.quantisation
    return next(name for name, dtype in _DTYPES.items() if dtype == protocol.dtype)


def formats_in_words(weights: WeightFormat, kv_cache: KvCache | None) -> str:
    """What weights hold, and llama.cpp's cache where it is not its default: `q8_0`, `q4_0, cache q8_0`."""
    return weights if kv_cache in (None, KV_CACHE_DEFAULT) else f"{weights}, cache {kv_cache}"


def variants_of(
    protocol: MeasurementProtocol,
    runtimes: Sequence[Runtime] = (),
    formats: Sequence[WeightFormat] = (),
    kv_caches: Sequence[KvCache] = (),
) -> list[MeasurementProtocol]:
    """A protocol for each combination that exists, each once; what is empty is the protocol's, of formats 8 and 4 bits.

    Raises `InvalidInput` that names `formats` or `kv_caches` where none of the runtimes has what was asked for.
    """
    runtimes = runtimes or (protocol.runtime,)
    own_cache = (protocol.kv_cache or KV_CACHE_DEFAULT,)
    made: dict[str, MeasurementProtocol] = {}
    faults: dict[WeightFormat, str] = {}
    had: set[WeightFormat] = set()
    for runtime in runtimes:
        for weights in formats or _DEFAULTS[runtime]:
            for cache in (kv_caches or own_cache) if runtime == "llamacpp" else (None,):
                try:
                    variant = _variant(protocol, runtime, weights, cache)
                except InvalidInput as error:
                    faults[weights] = error.detail
                    continue
                had.add(weights)
                made.setdefault(variant.digest, variant)
    for weights in formats:
        if weights not in had:
            raise InvalidInput(
                f"formats: {' or '.join(runtimes)} cannot hold weights in {weights}: {faults[weights]}",
                field="formats",
                value=weights,
                allowed="; ".join(f"{runtime}: {', '.join(_formats_of(protocol, runtime))}" for runtime in runtimes),
            )
    if kv_caches and "llamacpp" not in runtimes:
        raise InvalidInput(
            f"kv_caches: {' or '.join(runtimes)} keep keys and values as they compute them; llamacpp has a choice",
            field="kv_caches",
            value=list(kv_caches),
            allowed="no value, or llamacpp among the runtimes",
        )
    return list(made.values())


def _variant(
    protocol: MeasurementProtocol, runtime: Runtime, weights: WeightFormat, cache: KvCache | None
) -> MeasurementProtocol:
    held: dict[str, str] = {"dtype": _DTYPES[weights]} if weights in _DTYPES else {"weights": weights}
    if runtime == "llamacpp":
        held["kv_cache"] = cache or KV_CACHE_DEFAULT
    # What depends on the runtime is named anew: its cache, how its memory is measured.
    kept = protocol.model_dump(
        exclude={"runtime", "kv_cache", "memory", "dtype", "weights", "block_size"}, exclude_defaults=True
    )
    return checked(MeasurementProtocol, {**kept, "runtime": runtime, **held})


def _formats_of(protocol: MeasurementProtocol, runtime: Runtime) -> list[WeightFormat]:
    had: list[WeightFormat] = []
    for weights in get_args(WeightFormat):
        try:
            _variant(protocol, runtime, weights, None)
        except InvalidInput:
            continue
        had.append(weights)
    return had
