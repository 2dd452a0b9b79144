"""What a service sets in its processes: threads of linear algebra and of Python, and the garbage collector."""

from __future__ import annotations

import gc
import os
import sys

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
