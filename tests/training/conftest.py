"""Fixtures of the trainings that tests run here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from forked_runs import Start, forked_runs
from prepared_text import prepared_text


@pytest.fixture(scope="session")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared_text(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    with forked_runs() as start:
        yield start
