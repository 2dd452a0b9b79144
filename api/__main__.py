"""`python -m edgefront.api`: the API of a team's server, configured by environment variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefront.core.common.processes.program import run_program

if TYPE_CHECKING:
    from collections.abc import Callable


def _load() -> Callable[[], None]:
    from edgefront.api.serve import serve
    from edgefront.core.services.settings import Settings

    return lambda: serve(Settings())


if __name__ == "__main__":
    run_program(_load)
