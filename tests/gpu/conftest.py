"""Tests of what only an NVIDIA GPU shows. Each is skipped, by its name, without one.

`benchmarks/gpu.py` runs this folder without the suite's conftest, on machines that lack most of its packages. So a file
here needs no fixture of other folders.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
for shared in ("agents", "models", "training"):
    sys.path.append(str(HERE.parent / shared))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what is in this folder, and skips what needs more GPUs than there are."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for item in items:
        if HERE not in item.path.parents:
            continue
        item.add_marker(pytest.mark.gpu)
        wanted = 2 if "two_gpus" in item.name else 1
        if count < wanted:
            needs = "an NVIDIA GPU that torch sees" if wanted == 1 else f"two GPUs; torch sees {count}"
            item.add_marker(pytest.mark.skip(reason=f"needs {needs}"))
