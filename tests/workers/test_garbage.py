"""The collector of a service's process: what is loaded stays, what is made later is collected as before."""

from __future__ import annotations

import subprocess
import sys

_PROGRAM = """
import gc, weakref
from edgefront.core.processes.threads import collect_seldom

class Node: pass

kept = Node()
collect_seldom()
assert gc.get_freeze_count() > 1000 and not any(item is kept for item in gc.get_objects())
circle = Node()
circle.itself = circle
gone = weakref.ref(circle)
del circle
gc.collect()
assert gone() is None
"""


def test_what_is_loaded_is_not_looked_at_again_and_circles_are_freed() -> None:
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True)
