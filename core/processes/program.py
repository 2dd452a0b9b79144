"""Runs a command-line program, with Ctrl-C handled while it is imported, while it runs, and when it has ended."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

INTERRUPTED = 130
"""Exit code after Ctrl-C."""


def run_program(load: Callable[[], Callable[[], int | None]]) -> None:
    """Runs the function that `load` imports, and exits with the code that it returns; after Ctrl-C with `INTERRUPTED`.

    While `load` imports, and when the function has ended, Ctrl-C ends the process at once: Python's `KeyboardInterrupt`
    would print a traceback there, or be lost in a callback of the import system. In between it is raised as usual. A
    process that ignores Ctrl-C, as in the background of a shell, goes on ignoring it.
    """
    handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handled:
        signal.signal(signal.SIGINT, _exit)
    main = load()
    try:
        if handled:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = main()
    except KeyboardInterrupt:
        code = INTERRUPTED
    finally:
        if handled:
            signal.signal(signal.SIGINT, _exit)
    sys.exit(code)


def _exit(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
