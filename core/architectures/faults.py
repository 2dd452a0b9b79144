"""Reasons why a model does not fit a format or a space, by field, as in errors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from edgefront.core.architectures.architecture import Architecture

_MAX_LISTED = 20

Numbered = list[tuple[int, Any]]
"""Blocks with their indices."""


class Fault(NamedTuple):
    """A field of a model that does not fit, its value and the reason."""

    field: str
    value: Any
    reason: str

    def __str__(self) -> str:
        return f"{self.field} {self.value}: {self.reason}"


def listed(faults: Sequence[Fault], under: str = "") -> list[dict[str, Any]]:
    """The first faults for the `errors` of an error, with this prefix of their fields."""
    return [
        {"field": f"{under}{fault.field}", "value": fault.value, "allowed": fault.reason, "detail": str(fault)}
        for fault in faults[:_MAX_LISTED]
    ]


def of_kind(architecture: Architecture, kind: type[Any] | tuple[type[Any], ...]) -> Numbered:
    """The blocks of this kind with their indices."""
    return [(index, block) for index, block in enumerate(architecture.blocks) if isinstance(block, kind)]


def uneven(blocks: Numbered, who: str, **fields: Callable[[Any], Any]) -> Iterator[Fault]:
    """Blocks with another value of one of these fields than the first; `who` has one value in all layers."""
    for field, of in fields.items():
        for index, block in blocks[1:]:
            first = of(blocks[0][1])
            if of(block) != first:
                reason = f"{who} one in all layers, and blocks.{blocks[0][0]} has {first}"
                yield Fault(f"blocks.{index}.{field}", of(block), reason)
