"""Settings of a service process, and a wrapper of a program's main function that handles Ctrl-C and exit codes."""

from __future__ import annotations

import gc
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
    """Opens closed standard streams (`>&-`, some daemons) on the null device. Otherwise the next opened file would get
    the descriptor of a standard stream.
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
    """Runs the function that `load` imports and exits with the function's return value, or with `INTERRUPTED` after
    Ctrl-C. Prints an EdgefrontError or OSError as one line on standard error.

    During imports, and after the function, Ctrl-C ends the process at once, because `KeyboardInterrupt` would print a
    traceback, or be lost in a callback of the import system. A process that ignores Ctrl-C still ignores Ctrl-C.
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


# A service's process -------------------------------------------------------------------------------------------------

BLAS_THREADS = "OPENBLAS_NUM_THREADS"

SWITCH_S = 0.0005
"""Switch interval of Python's threads, in seconds. A short request waits about a dozen intervals beside two computing
threads, which is a tenth of a second with Python's default of 0.005 s.
"""


def use_one_blas_thread() -> None:
    """Limits BLAS to one thread, unless the variable `BLAS_THREADS` is set. Must be called before NumPy or SciPy is
    imported.

    The service's matrices are small. With several BLAS threads, which spin while waiting, they take three times the
    processor time when requests and workers share the cores.
    """
    os.environ.setdefault(BLAS_THREADS, "1")


def switch_often() -> None:
    """Sets the switch interval of threads to `SWITCH_S`."""
    sys.setswitchinterval(SWITCH_S)


YOUNG = 20_000
"""Threshold of the garbage collector's youngest generation. With Python's default of 700 the collector would visit each
object of a request several times, although reference counting frees the objects when the request ends.
"""


def collect_seldom() -> None:
    """Excludes all present objects from garbage collection. Must be called after all imports. Otherwise a collection
    over the quarter of a million objects of a service would block requests for a tenth of a second.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 20, 20)
