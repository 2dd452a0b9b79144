"""`python -m edgefront.agents`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefront.core.processes.program import run_program

if TYPE_CHECKING:
    from collections.abc import Callable


def _load() -> Callable[[], int]:
    from edgefront.agents.main import run

    return run


if __name__ == "__main__":
    run_program(_load)
