"""Sources of a model file's parameters: a seed (untrained), a safetensors file, or arrays."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.parameters import ParameterSpec, parameters
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.hugging_face import refuse_pointer
from edgefront.core.model_files.formats import LARGEST, RANDOM_SCALE
from edgefront.core.model_files.random_values import CHUNK, INT4_SCALE, chunks

FORMAT = "edgefront"
_LARGEST_HEADER = 100_000_000


def safetensors_header(path: Path) -> tuple[dict[str, Any], int]:
    """Reads a safetensors file's header; returns (entries by tensor name, and `__metadata__`; offset of the data).

    Raises `InvalidInput` if the file is not safetensors, FileNotFoundError if there is no file.
    """
    with path.open("rb") as file:
        start = file.read(64)
        refuse_pointer(start, path)
        file.seek(8)
        length = int.from_bytes(start[:8], "little")
        text = file.read(length) if length <= _LARGEST_HEADER else b""
    try:
        entries = json.loads(text) if len(text) == length else None
    except (ValueError, RecursionError):
        entries = None
    if not isinstance(entries, dict):
        raise InvalidInput(
            f"{path} is not a safetensors file, or was cut short",
            field="path",
            value=str(path),
            allowed="a safetensors file",
        )
    return entries, 8 + length


def not_finite(place: Path | str, name: str) -> InvalidInput:
    """Error about weights with infinite numbers or NaN, usually of a diverged training."""
    return InvalidInput(
        f"{place} has numbers in {name} that are not finite",
        field="weights",
        value=name,
        allowed="finite numbers, as from before the training diverged",
    )


class SeededValues:
    """Untrained weights that are generated from a seed."""

    int4_scale: float | None = INT4_SCALE
    """Common scale of all int4 blocks (`core.model_files.formats`); None gives each block its own scale."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.about: Mapping[str, str] = {"seed": str(seed), "weights": "untrained, random by seed"}
        """Metadata of a model file about its weights."""

    def chunks(self, spec: ParameterSpec) -> Iterator[NDArray[np.float32]]:
        """All values of a parameter in the order of its shape, in flat chunks."""
        return chunks(spec, self.seed)

    def scale(self, spec: ParameterSpec) -> float:
        """Scale of this parameter's int8 values (`core.model_files.formats`)."""
        return RANDOM_SCALE


class GivenValues:
    """Weights given as arrays by parameter name; `about` describes the weights in metadata.

    Raises `InvalidInput` that names a parameter with an infinite number or NaN.
    """

    int4_scale: float | None = None

    def __init__(self, arrays: Mapping[str, Any], about: Mapping[str, str], place: Path | str = "the model") -> None:
        self.arrays, self.about, self._place = arrays, about, place

    def chunks(self, spec: ParameterSpec) -> Iterator[NDArray[np.float32]]:
        flat = np.asarray(self.arrays[spec.name]).reshape(-1)
        for start in range(0, spec.size, CHUNK):
            chunk = flat[start : start + CHUNK].astype(np.float32, copy=False)
            if not np.isfinite(chunk).all():
                raise not_finite(self._place, spec.name)
            yield chunk

    def scale(self, spec: ParameterSpec) -> float:
        """Scale of this parameter's int8 values: the largest magnitude becomes `core.model_files.formats.LARGEST`."""
        largest = max((float(np.abs(chunk).max(initial=0.0)) for chunk in self.chunks(spec)), default=0.0)
        return float(np.float32(largest / LARGEST)) or 1.0


class StoredValues(GivenValues):
    """Parameters of a safetensors file that edgefront wrote, memory-mapped: pages are read when used.

    Raises `InvalidInput` if the file is truncated or not written by edgefront, and names the first parameter that is
    missing, unknown, or of another shape or type than float32; FileNotFoundError if there is no file.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        entries, start = safetensors_header(self.path)
        metadata = entries.pop("__metadata__", None)
        if not isinstance(metadata, dict) or metadata.get("format") != FORMAT or "architecture" not in metadata:
            raise self._wrong("does not describe its architecture")
        self.architecture = Architecture.parse(metadata["architecture"])
        if metadata.get("digest") != self.architecture.digest:
            raise self._wrong(
                f"names digest {metadata.get('digest')} but contains architecture {self.architecture.digest}"
            )
        data = np.memmap(self.path, np.uint8, "r", offset=start)
        super().__init__(
            {spec.name: self._mapped(spec, entries, data) for spec in parameters(self.architecture)},
            {name: value for name, value in metadata.items() if name not in ("format", "digest", "architecture")},
            self.path,
        )
        if entries:
            raise self._wrong(f"has {min(entries)}, which is not a parameter of its architecture")

    def _mapped(self, spec: ParameterSpec, entries: dict[str, Any], data: NDArray[np.uint8]) -> NDArray[np.float32]:
        entry = entries.pop(spec.name, None)
        if not isinstance(entry, dict):
            raise self._wrong(f"lacks the parameter {spec.name}")
        if entry.get("dtype") != "F32" or tuple(entry.get("shape", ())) != spec.shape:
            raise self._wrong(
                f"has {spec.name} as {entry.get('dtype')} of {entry.get('shape')}, not F32 of {spec.shape}"
            )
        low, high = entry.get("data_offsets", (0, -1))
        if not 0 <= low <= high <= len(data) or high - low != 4 * spec.size:
            raise self._wrong(f"was cut short: {spec.name} is incomplete")
        return data[low:high].view("<f4").reshape(spec.shape)

    def _wrong(self, what: str) -> InvalidInput:
        return InvalidInput(
            f"{self.path} {what}", field="path", value=str(self.path), allowed="a safetensors file written by edgefront"
        )


ParameterValues = SeededValues | GivenValues
"""Values of every parameter of one model."""


def values_of(weights: int | ParameterValues) -> ParameterValues:
    """Source of parameter values: `weights` itself, or, if `weights` is a seed, its untrained weights."""
    return SeededValues(weights) if isinstance(weights, int) else weights
