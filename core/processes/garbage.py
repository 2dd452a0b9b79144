"""Python's garbage collector in the processes of a service."""

from __future__ import annotations

import gc

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
