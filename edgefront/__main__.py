"""Entry point of `edgefront` and `python -m edgefront`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgefront.core.common.processes.program import run_program

if TYPE_CHECKING:
    from collections.abc import Callable


def main() -> None:
    """The `edgefront` command as a program."""
    run_program(_load)


def _load() -> Callable[[], None]:
    from edgefront.cli.main import main as command

    return command


if __name__ == "__main__":
    main()
