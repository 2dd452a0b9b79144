"""What benchmarks share with the tests: servers of their own, and simulated devices."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parents[1] / "tests"


def from_tests(module: str) -> Any:
    """A module of the folder `tests`."""
    if str(TESTS) not in sys.path:
        sys.path.append(str(TESTS))
    return import_module(module)
