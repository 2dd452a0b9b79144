"""Runs a command-line program, with Ctrl-C handled while it is imported, while it runs, and when it has ended."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from edgefront.core.common.errors import Conflict, EdgefrontError, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

FAILED, WRONG, INTERRUPTED = 1, 2, 130
"""Exit codes after an error, after wrong input, and after Ctrl-C."""


def open_closed_streams() -> None:
    """Opens those of the standard streams that this process was started without (`>&-`, some daemons) on the null
    device: Python has None for them, and the next file that is opened would get their number.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            os.set_inheritable(number, True)
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - as long as the process


def run_program(load: Callable[[], Callable[[], int | None]]) -> None:
    """Runs the function that `load` imports, and exits with the code that it returns; after Ctrl-C with `INTERRUPTED`.
    An error that the user can mend is one line on standard error.

    While `load` imports, and when the function has ended, Ctrl-C ends the process at once: Python's `KeyboardInterrupt`
    would print a traceback there, or be lost in a callback of the import system. In between it is raised as usual. A
    process that ignores Ctrl-C, as in the background of a shell, goes on ignoring it.
    """
    open_closed_streams()
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
    except (EdgefrontError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        code = WRONG if isinstance(error, (InvalidInput, Conflict)) else FAILED
    finally:
        if handled:
            signal.signal(signal.SIGINT, _exit)
    sys.exit(code)


def _exit(_number: int, _frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
