"""`python -m edgefront.api`: the API of a team's server, configured by environment variables."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from edgefront.core.processes.program import run_program

if TYPE_CHECKING:
    from collections.abc import Callable


def _load() -> Callable[[], int]:
    from edgefront.api.serve import serve
    from edgefront.core.errors import EdgefrontError
    from edgefront.core.services.settings import Settings

    def main() -> int:
        try:
            serve(Settings())
        except EdgefrontError as error:
            sys.stderr.write(f"{error.detail}\n")
            return 2
        return 0

    return main


if __name__ == "__main__":
    run_program(_load)
