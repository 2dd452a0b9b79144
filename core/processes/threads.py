"""Threads in the processes of a service: of linear algebra, and of Python."""

from __future__ import annotations

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
