"""Settings of a process of the service (threads, garbage collector), and the main function of a program (Ctrl-C, exit
codes).
"""

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


# A service's process -------------------------------------------------------------------------------------------------

BLAS_THREADS = "OPENBLAS_NUM_THREADS"

SWITCH_S = 0.0005
"""Seconds after which a thread that computes lets another one run. Each step of a short request, or of a task, may
wait for so long, and it has a dozen: with Python's 0.005 it takes a tenth of a second beside two that compute."""


def use_one_blas_thread() -> None:
    """One thread for NumPy's and SciPy's products, unless the variable `BLAS_THREADS` says otherwise. Call it before
    either is imported, which reads that variable.

    The matrices of laws and predictions are small: threads that wait for each other at every product, spinning, take
    three times the processor time where requests and workers share the cores.
    """
    os.environ.setdefault(BLAS_THREADS, "1")


def switch_often() -> None:
    """Has the threads of this process take turns every `SWITCH_S`."""
    sys.setswitchinterval(SWITCH_S)


YOUNG = 20_000
"""Objects that are made and not freed before the collector looks at them. Those of a request are freed when it is
answered, without the collector; with Python's 700 it looks at each several times before that.
"""


def collect_seldom() -> None:
    """Call it once all modules are loaded and before the work begins: what is there stays, so the collector never looks
    at it again. To look at the quarter of a million objects of a service takes a tenth of a second, during which no
    request is answered.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG, 20, 20)
