"""Reads the header of a GGUF file: its fields, and the offset of each tensor.

The gguf package's reader takes five seconds for a vocabulary of 49,000 tokens, and cannot distinguish truncated files
from damaged ones. A model in several files is read from the path of the first file (`…-00001-of-00003.gguf`).
"""

from __future__ import annotations

import math
import mmap
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.number_formats import GGUF_MAGIC
from edgefront.core.common.validation import short

_VERSIONS = (2, 3)
_STRING, _ARRAY, _BOOL = 8, 9, 7
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Field types, each with its letter in `struct` and numpy."""
_ALIGNMENT = 32
_MAX_AXES = 4
_STATES = (".ssm.", ".wkv.", ".shortconv.", ".sliding_window", ".attention.sliding_window")
"""Fields of models with a recurrence, convolution or window; such a model's cache cannot remove the latest token."""
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


@dataclass(frozen=True)
class StoredTensor:
    """Location of one tensor in a file. `shape` has numpy's order of axes, `kind` is llama.cpp's format number."""

    name: str
    shape: tuple[int, ...]
    kind: int
    path: Path
    start: int

    @property
    def kind_name(self) -> str:
        """llama.cpp's name of the number format, for example Q4_K."""
        import gguf

        known = self.kind in list(gguf.GGMLQuantizationType)
        return str(gguf.GGMLQuantizationType(self.kind).name) if known else f"format {self.kind}"

    @property
    def nbytes(self) -> int | None:
        """Bytes of the tensor; None for a format unknown to the installed gguf package."""
        import gguf

        if self.kind not in list(gguf.GGMLQuantizationType):
            return None
        values, size = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(self.kind)]
        return math.prod(self.shape) // int(values) * int(size)


class GgufHeader:
    """Header of a GGUF model in one file or several.

    Raises `InvalidInput` for a file that is not GGUF, is damaged or truncated, or lacks another file of the model.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        first = _Part(path)
        self.fields: Mapping[str, Any] = first.fields
        self.paths = (path, *self._others(first))
        parts = [first, *(_Part(other) for other in self.paths[1:])]
        self.tensors: Mapping[str, StoredTensor] = {name: at for part in parts for name, at in part.tensors.items()}
        if not self.tensors:
            raise fault(path, "has no tensors", "weights")

    def _others(self, first: _Part) -> tuple[Path, ...]:
        count, number = first.fields.get("split.count", 1), first.fields.get("split.no", 0)
        if type(count) is not int or count < 2:
            return ()
        match = _PART.search(self.path.name)
        if number != 0 or match is None or int(match[1]) != 1 or int(match[2]) != count:
            part = number + 1 if type(number) is int else short(number)
            first_name = f"…-00001-of-{count:05d}.gguf"
            raise fault(self.path, f"is part {part} of {count}; give the first part, {first_name}", "path")
        stem = self.path.name[: match.start()]
        others = tuple(self.path.with_name(f"{stem}-{part:05d}-of-{count:05d}.gguf") for part in range(2, count + 1))
        for other in others:
            if not other.is_file():
                raise fault(self.path, f"is the first of {count} parts, but {other.name} is missing", "path")
        return others

    @property
    def kind(self) -> str:
        """llama.cpp's name of the architecture."""
        return str(self.fields.get("general.architecture"))

    @property
    def vocab_size(self) -> int:
        """Number of rows of the embedding."""
        table = self.tensors.get("token_embd.weight")
        if table is not None:
            return table.shape[0]
        size = self.fields.get(f"{self.kind}.vocab_size", len(self.fields.get("tokenizer.ggml.tokens") or ()))
        if type(size) is not int or size < 1:
            raise fault(self.path, "must have a token embedding or a vocabulary", "weights")
        return size

    @property
    def context_length(self) -> int | None:
        """Maximum sequence length that the file declares for llama.cpp; None if the file declares none."""
        length = self.fields.get(f"{self.kind}.context_length")
        return length if type(length) is int and length > 0 else None

    @property
    def keeps_state(self) -> bool:
        """Whether a recurrence, convolution or window may prevent llama.cpp from removing a token from the cache."""
        return any(name.startswith(f"{self.kind}{state}") for name in self.fields for state in _STATES)

    @property
    def parameters(self) -> int:
        return sum(math.prod(tensor.shape) for tensor in self.tensors.values())

    @property
    def weight_bytes(self) -> int:
        """Bytes of all tensors in known formats."""
        return sum(tensor.nbytes or 0 for tensor in self.tensors.values())

    @property
    def facts(self) -> dict[str, Any]:
        """llama.cpp's architecture, number and bytes of weights, and weights per format, most frequent format first."""
        counts: dict[str, int] = {}
        for tensor in self.tensors.values():
            counts[tensor.kind_name] = counts.get(tensor.kind_name, 0) + math.prod(tensor.shape)
        return {
            "architecture": self.kind,
            "parameters": self.parameters,
            "weight_bytes": self.weight_bytes,
            "weights": dict(sorted(counts.items(), key=lambda item: -item[1])),
        }


class _Part:
    """Header of one of the model's files."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.fields: dict[str, Any] = {}
        self.tensors: dict[str, StoredTensor] = {}
        try:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                self._data, self._size, self._at = data, len(data), 0
                self._read()
        except InvalidInput:
            raise
        except OSError as error:
            raise fault(path, f"cannot be read: {error.strerror}", "path") from None
        except (ValueError, struct.error):  # an empty file cannot be mapped
            raise fault(
                path,
                f"was cut short or is damaged, because its {path.stat().st_size} bytes end within the header",
                "path",
            ) from None

    def _read(self) -> None:
        if self._data[:4] != GGUF_MAGIC:
            raise fault(self._path, "is not a GGUF file", "path")
        self._at = 4
        (version,) = self._numbers("I")
        if version not in _VERSIONS:
            big = version & 0xFFFF == 0
            raise fault(
                self._path, "is big-endian" if big else f"is GGUF of version {version}; it must be 2 or 3", "path"
            )
        tensors, fields = self._numbers("QQ")
        for _ in range(fields):
            name, (type_,) = self._string(), self._numbers("I")
            if name in self.fields:
                raise fault(self._path, f"has {short(name)} twice", "path")
            self.fields[name] = self._value(type_)
        entries = [self._tensor() for _ in range(tensors)]
        alignment = self.fields.get("general.alignment", _ALIGNMENT)
        if type(alignment) is not int or alignment < 1:
            raise fault(
                self._path,
                f"has general.alignment {short(alignment)}; it must be a positive integer",
                "general.alignment",
            )
        data_start = -(-self._at // alignment) * alignment
        for name, shape, kind, offset in entries:
            if name in self.tensors:
                raise fault(self._path, f"has {short(name)} twice", "weights")
            self.tensors[name] = StoredTensor(name, shape, kind, self._path, data_start + offset)
        end = max((at.start + (at.nbytes or 0) for at in self.tensors.values()), default=0)
        if end > self._size:
            raise fault(self._path, f"was cut short: its tensors need {end} bytes, and it has {self._size}", "path")

    def _numbers(self, letters: str) -> tuple[Any, ...]:
        numbers = struct.unpack_from(f"<{letters}", self._data, self._at)
        self._at += struct.calcsize(f"<{letters}")
        return numbers

    def _take(self, count: int) -> bytes:
        if count > self._size - self._at:
            raise struct.error
        self._at += count
        return self._data[self._at - count : self._at]

    def _string(self) -> str:
        (length,) = self._numbers("Q")
        return self._take(length).decode(errors="replace")

    def _value(self, type_: int) -> Any:
        if type_ == _STRING:
            return self._string()
        if type_ != _ARRAY:
            return self._numbers(self._letter(type_))[0]
        inner, count = self._numbers("IQ")
        if inner == _STRING:
            return [self._string() for _ in range(count)]
        dtype = np.dtype("<" + self._letter(inner).replace("?", "B"))
        values = np.frombuffer(self._take(count * dtype.itemsize), dtype)
        return (values.astype(bool) if inner == _BOOL else values).tolist()

    def _letter(self, type_: int) -> str:
        if type_ not in _SCALARS:
            raise fault(self._path, f"is damaged, because a field has the unknown type {type_}", "path")
        return _SCALARS[type_]

    def _tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        name, (axes,) = self._string(), self._numbers("I")
        if axes > _MAX_AXES:
            raise fault(
                self._path, f"is damaged, because {short(name)} has {axes} axes instead of at most {_MAX_AXES}", "path"
            )
        shape = self._numbers("Q" * axes)
        kind, offset = self._numbers("IQ")
        return name, shape[::-1], kind, offset


def fault(path: Path, what: str, field: str) -> InvalidInput:
    """Error about a GGUF file; `what` completes the sentence that begins with the path."""
    return InvalidInput(f"{path} {what}", field=field, value=str(path), allowed="another GGUF file")
