"""Files that are measured as they are, ONNX and GGUF: what a protocol may ask of them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from edgefront.core.errors import InvalidInput
from edgefront.core.graph.gguf_header import GgufHeader
from edgefront.core.measurement.generation import last_length
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.number_formats import GGUF_MAGIC

_BUILDS = {"dtype": "float32", "weights": "full"}
"""Fields that choose between builds of an architecture, with the only value that a file admits."""


def read_file(path: Path, protocol: MeasurementProtocol) -> GgufHeader | None:
    """The header of a GGUF file; None of any other file, which counts as ONNX.

    Raises `InvalidInput` that names the field of the protocol which the file does not admit, and for a GGUF file that
    is damaged or was cut short.
    """
    header = _header(path) if is_gguf(path) else None
    if header is None and protocol.runtime == "llamacpp":
        raise _fault(protocol, "runtime", "llama.cpp cannot run ONNX files; choose runtime onnxruntime", "onnxruntime")
    if header is not None and protocol.runtime != "llamacpp":
        raise _fault(protocol, "runtime", f"runtime {protocol.runtime} cannot run GGUF files; llamacpp can", "llamacpp")
    kind = "an ONNX" if header is None else "a GGUF"
    for field, only in (_BUILDS | {"mode": "forward"} if header is None else _BUILDS).items():
        if getattr(protocol, field) != only:
            chosen = getattr(protocol, field)
            why = f"{field} {chosen} needs an architecture: {kind} file is run unchanged"
            raise _fault(protocol, field, why, f"{only}, or the description of the model")
    if header is not None:
        _check_length(header, protocol)
    return header


def _header(path: Path) -> GgufHeader:
    stat = path.stat()
    return _header_of(path, stat.st_mtime_ns, stat.st_size)


@lru_cache(maxsize=4)
def _header_of(path: Path, _changed_ns: int, _size: int) -> GgufHeader:
    """Each launch asks for it, and a vocabulary takes a third of a second to read."""
    return GgufHeader(path)


def is_gguf(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(GGUF_MAGIC)) == GGUF_MAGIC
    except OSError:
        return False


def _check_length(header: GgufHeader, protocol: MeasurementProtocol) -> None:
    """llama.cpp admits as many tokens as the file states, and wants room for one after those of a prompt."""
    length, most = last_length(protocol), header.context_length
    needed = length if protocol.mode == "generate" else length + 1
    if most is not None and needed > most:
        field = "memory_length" if protocol.memory_length else "sequence_length"
        raise _fault(
            protocol,
            field,
            f"{field}: {length} tokens in all, and {header.path.name} states a context of {most}",
            f"at most {most - needed + length} tokens in all",
        )


def _fault(protocol: MeasurementProtocol, field: str, why: str, allowed: str) -> InvalidInput:
    return InvalidInput(why, field=field, value=getattr(protocol, field), allowed=allowed)
