"""Variants of a protocol in runtime, format of weights and format of llama.cpp's cache; and command lines that measure
or search with a protocol.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.number_formats import BLOCK_SIZE, KV_CACHE_DEFAULT, KvCache, WeightFormat
from edgefront.core.common.validation import checked
from edgefront.core.measurement.protocol import Dtype, MeasurementProtocol
from edgefront.core.measurement.runtimes import Runtime

_DTYPES: Mapping[WeightFormat, Dtype] = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
_DEFAULTS: Mapping[Runtime, tuple[WeightFormat, ...]] = {
    "llamacpp": ("q8_0", "q4_0"),
    "onnxruntime": ("int8", "int4"),
    "openvino": ("int8", "int4"),
    "pytorch": ("f32", "int8"),
}
_ONLY_OF_MEASURE = ("batch", "block-size", "logits", "warmup", "repeats")
"""Options of `edgefront measure` that `edgefront model get` lacks."""


def format_of(protocol: MeasurementProtocol) -> WeightFormat:
    """Format of the protocol's weights, whether quantised or not."""
    if protocol.weights != "full":
        return protocol.weights
    return next(name for name, dtype in _DTYPES.items() if dtype == protocol.dtype)


def formats_in_words(weights: WeightFormat, kv_cache: KvCache | None) -> str:
    """Description of the formats of weights and, if not the default, of llama.cpp's cache: `q4_0, cache q8_0`."""
    return weights if kv_cache in (None, KV_CACHE_DEFAULT) else f"{weights}, cache {kv_cache}"


def variants_of(
    protocol: MeasurementProtocol,
    runtimes: Sequence[Runtime] = (),
    formats: Sequence[WeightFormat] = (),
    kv_caches: Sequence[KvCache] = (),
) -> list[MeasurementProtocol]:
    """Returns a protocol for each possible combination of runtime, format of weights and format of the cache. Empty
    `runtimes` or `kv_caches`: those of the protocol. Empty `formats`: the runtime's defaults, mostly 8 and 4 bits.

    Raises `InvalidInput`, which names `formats` or `kv_caches`, if no runtime supports a requested format or cache.
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
                f"formats: {' or '.join(runtimes)} cannot use weights in {weights}: {faults[weights]}",
                field="formats",
                value=weights,
                allowed="; ".join(f"{runtime}: {', '.join(_formats_of(protocol, runtime))}" for runtime in runtimes),
            )
    if kv_caches and "llamacpp" not in runtimes:
        raise InvalidInput(
            f"kv_caches: only llamacpp has a choice of caches, not {' or '.join(runtimes)}",
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
    # Fields that depend on the runtime, such as the cache and the memory method, get their defaults.
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


def measure_command(model: str, protocol: MeasurementProtocol) -> str:
    """The command `edgefront measure MODEL` with the options of this protocol."""
    return shlex.join(["edgefront", "measure", model, *measure_options(protocol)])


def measure_options(protocol: MeasurementProtocol) -> list[str]:
    """The options with which `edgefront measure` follows the protocol."""
    return [word for name, value in _options(protocol).items() for word in (f"--{name}", value)]


def get_options(protocol: MeasurementProtocol) -> list[str]:
    """The options with which `edgefront model get` follows the protocol, without its defaults."""
    usual = _options(MeasurementProtocol(runtime="llamacpp", mode="generate"))
    own = {name: value for name, value in _options(protocol).items() if name not in _ONLY_OF_MEASURE}
    kept = {name: value for name, value in own.items() if name == "weights" or value != usual.get(name)}
    return [word for name, value in kept.items() for word in (f"--{name}", value)]


def _options(protocol: MeasurementProtocol) -> dict[str, str]:
    options: dict[str, Any] = {
        "runtime": protocol.runtime,
        "provider": protocol.provider,
        "threads": protocol.threads,
        "batch": protocol.batch,
        "dtype": protocol.dtype,
        "weights": protocol.weights,
        "block-size": None if protocol.block_size == BLOCK_SIZE else protocol.block_size,
        "kv-cache": protocol.kv_cache,
        "logits": protocol.logits,
        "warmup": protocol.warmup,
        "repeats": protocol.repeats,
    }
    if protocol.mode == "generate":
        options |= {
            "prompt": protocol.sequence_length,
            "new": protocol.new_tokens,
            "context": protocol.memory_length,
        }
    else:
        options |= {
            "mode": protocol.mode,
            "sequence-length": protocol.sequence_length,
            "memory-length": protocol.memory_length,
        }
    return {name: str(value) for name, value in options.items() if value is not None}


def place_words(place: str, protocol: MeasurementProtocol) -> str:
    """The value `DEVICE:RUNTIME:THREADS,FIELD=VALUE` of `edgefront find --device`, with all non-default fields.

    `place` is a device's name or `class=NAME`.
    """
    default = MeasurementProtocol(runtime=protocol.runtime, mode=protocol.mode).model_dump(mode="json")
    given = protocol.model_dump(mode="json", exclude={"runtime", "threads"})
    fields = [f",{name}={value}" for name, value in given.items() if value is not None and value != default.get(name)]
    if protocol.mode != MeasurementProtocol().mode:
        fields.insert(0, f",mode={protocol.mode}")
    return f"{place}:{protocol.runtime}:{protocol.threads}{''.join(fields)}"
