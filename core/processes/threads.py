"""Threads of linear algebra in the processes of a service."""

from __future__ import annotations

import os

BLAS_THREADS = "OPENBLAS_NUM_THREADS"


def use_one_blas_thread() -> None:
    """One thread for NumPy's and SciPy's products, unless the variable `BLAS_THREADS` says otherwise. Call it before
    either is imported, which reads that variable.

    The matrices of laws and predictions are small: threads that wait for each other at every product, spinning, take
    three times the processor time where requests and workers share the cores.
    """
    os.environ.setdefault(BLAS_THREADS, "1")
