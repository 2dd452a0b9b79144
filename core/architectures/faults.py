"""Faults of a model: the fields that a file format or search space cannot express, each with value and reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from edgefront.core.architectures.architecture import Architecture

_MAX_LISTED = 20

Numbered = list[tuple[int, Any]]
"""Blocks with their indices."""


class Fault(NamedTuple):
    """A field of a model that a file format or search space cannot express, with its value and the reason."""

    field: str
    value: Any
    reason: str

    def __str__(self) -> str:
        return f"{self.field} {self.value}: {self.reason}"


def listed(faults: Sequence[Fault], under: str = "") -> list[dict[str, Any]]:
    """Converts the first faults to the mappings in an error's `errors`; `under` is put before each field name."""
    return [
        {"field": f"{under}{fault.field}", "value": fault.value, "allowed": fault.reason, "detail": str(fault)}
        for fault in faults[:_MAX_LISTED]
    ]


def of_kind(architecture: Architecture, kind: type[Any] | tuple[type[Any], ...]) -> Numbered:
    """Blocks of this kind, each with its index."""
    return [(index, block) for index, block in enumerate(architecture.blocks) if isinstance(block, kind)]


def uneven(blocks: Numbered, who: str, **fields: Callable[[Any], Any]) -> Iterator[Fault]:
    """Yields a fault for each value of `fields` that differs from the first block's. `who` begins the reason."""
    for field, of in fields.items():
        for index, block in blocks[1:]:
            first = of(blocks[0][1])
            if of(block) != first:
                reason = f"{who} one value in all layers, but blocks.{blocks[0][0]} has {first}"
                yield Fault(f"blocks.{index}.{field}", of(block), reason)
