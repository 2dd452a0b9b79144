"""Faults of a model: fields that do not fit a file format or a space, with reasons, as listed in errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from edgefront.core.architectures.architecture import Architecture

_MAX_LISTED = 20

Numbered = list[tuple[int, Any]]
"""Blocks with their indices."""


class Fault(NamedTuple):
    """A field of a model that does not fit, with the field's value and the reason."""

    field: str
    value: Any
    reason: str

    def __str__(self) -> str:
        return f"{self.field} {self.value}: {self.reason}"


def listed(faults: Sequence[Fault], under: str = "") -> list[dict[str, Any]]:
    """Converts the first faults to entries of an error's `errors`, with the prefix `under` before their fields."""
    return [
        {"field": f"{under}{fault.field}", "value": fault.value, "allowed": fault.reason, "detail": str(fault)}
        for fault in faults[:_MAX_LISTED]
    ]


def of_kind(architecture: Architecture, kind: type[Any] | tuple[type[Any], ...]) -> Numbered:
    """Blocks of this kind, each with its index."""
    return [(index, block) for index, block in enumerate(architecture.blocks) if isinstance(block, kind)]


def uneven(blocks: Numbered, who: str, **fields: Callable[[Any], Any]) -> Iterator[Fault]:
    """Faults of blocks with another value of a field than the first; `who`: the format or space that has one value."""
    for field, of in fields.items():
        for index, block in blocks[1:]:
            first = of(blocks[0][1])
            if of(block) != first:
                reason = f"{who} one value in all layers, but blocks.{blocks[0][0]} has {first}"
                yield Fault(f"blocks.{index}.{field}", of(block), reason)
