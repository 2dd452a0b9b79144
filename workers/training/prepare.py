"""`python -m edgefront.workers.training.prepare DATA FOLDER`: prepares a built-in data set and prints its progress."""

from __future__ import annotations

import sys
from pathlib import Path

from edgefront.core.data.prepared.preparation import prepare
from edgefront.core.errors import EdgefrontError

_TENTHS = 10


class _PrintedProgress:
    """Prints progress at every tenth of each phase."""

    def __init__(self) -> None:
        self._printed: tuple[str, int] = ("", 0)

    def __call__(self, phase: str, done: int, total: int) -> None:
        now = (phase, _TENTHS * done // max(1, total))
        if now != self._printed:
            self._printed = now
            sys.stdout.write(f"{phase}: {now[1] * 100 // _TENTHS} %\n")
            sys.stdout.flush()


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit("usage: python -m edgefront.workers.training.prepare DATA FOLDER")
    try:
        prepare(sys.argv[1], Path(sys.argv[2]), progress=_PrintedProgress())
    except EdgefrontError as error:
        sys.exit(error.detail)


if __name__ == "__main__":
    main()
