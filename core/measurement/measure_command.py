"""What a person types to measure, or to search, by a protocol."""

from __future__ import annotations

import shlex
from typing import Any

from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.number_formats import BLOCK_SIZE

_BUILDS = ("dtype", "weights", "block-size")
"""Options that choose between builds of an architecture: a file is run as it is."""


def measure_command(model: str, protocol: MeasurementProtocol, *, of_file: bool = False) -> str:
    """`edgefront measure MODEL` with its `measure_options`."""
    return shlex.join(["edgefront", "measure", model, *measure_options(protocol, of_file=of_file)])


def measure_options(protocol: MeasurementProtocol, *, of_file: bool = False) -> list[str]:
    """The options with which `edgefront measure` does what the protocol says; `of_file`: of a GGUF file, which has its
    own formats.
    """
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
    given = {name: value for name, value in options.items() if value is not None and not (of_file and name in _BUILDS)}
    return [word for name, value in given.items() for word in (f"--{name}", str(value))]


def place_words(place: str, protocol: MeasurementProtocol) -> str:
    """`DEVICE:RUNTIME:THREADS,FIELD=VALUE` of `edgefront find --device`, with the fields that are not the defaults.

    `place` is a device's name, or `class=NAME`.
    """
    default = MeasurementProtocol(runtime=protocol.runtime, mode=protocol.mode).model_dump(mode="json")
    given = protocol.model_dump(mode="json", exclude={"runtime", "threads"})
    fields = [f",{name}={value}" for name, value in given.items() if value is not None and value != default.get(name)]
    if protocol.mode != MeasurementProtocol().mode:
        fields.insert(0, f",mode={protocol.mode}")
    return f"{place}:{protocol.runtime}:{protocol.threads}{''.join(fields)}"
