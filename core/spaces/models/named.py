"""What a named model is."""

from __future__ import annotations

from dataclasses import dataclass

from edgefront.core.spaces.architecture import Architecture


@dataclass(frozen=True)
class NamedModel:
    """A published model under a name that people know."""

    name: str
    source: str
    """Paper and table that it comes from."""
    architecture: Architecture
