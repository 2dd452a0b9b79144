"""What a test marks its processes with."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def mark(tmp_path: Path) -> str:
    return str(tmp_path)
