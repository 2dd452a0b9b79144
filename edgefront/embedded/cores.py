"""Which cores measure, and which do everything else."""

from __future__ import annotations

import os
from dataclasses import dataclass

from core.errors import InvalidInput


@dataclass(frozen=True)
class Cores:
    """`measuring` belong to the measured models, `rest` to service and agent. With one core they are the same."""

    measuring: tuple[int, ...]
    rest: tuple[int, ...]

    @classmethod
    def split(cls, wanted: int | None) -> Cores:
        """The last `wanted` cores of this machine measure (None: all but one), the others do the rest."""
        own = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()
        own = own or tuple(range(os.cpu_count() or 1))
        count = max(1, len(own) - 1) if wanted is None else wanted
        if not 1 <= count <= len(own):
            raise InvalidInput(
                f"{count} cores cannot measure: this process may use {len(own)}",
                field="cores",
                value=count,
                allowed=f"1 to {len(own)}",
            )
        return cls(measuring=own[-count:], rest=own[: len(own) - count] or own)

    def keep_off(self) -> None:
        """Moves this process, and what it starts, to the cores that do not measure (where the system can)."""
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, self.rest)
