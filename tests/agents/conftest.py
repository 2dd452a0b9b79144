"""Measurers and models for the agent's tests: small ones, made here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted_server import TOKEN

from edgefront.agents.measuring.measure import Measurer
from edgefront.agents.options import AgentOptions
from edgefront.core.schemas.agent import DeviceFacts


@pytest.fixture(scope="module", autouse=True)
def threads_as_on_a_device() -> Iterator[None]:
    """Measuring processes set the threads of their libraries themselves."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("OPENBLAS_NUM_THREADS", raising=False)
        yield


@pytest.fixture(scope="session")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One weight cache for all tests: it fills once."""
    return tmp_path_factory.mktemp("weights")


@pytest.fixture(scope="session")
def measurer(weights: Path, own_measuring_lock: None) -> Iterator[Measurer]:
    with Measurer(weights) as made:
        yield made


@pytest.fixture(scope="session")
def facts(known_device: dict[str, str]) -> DeviceFacts:
    """Of this machine, probed once."""
    return DeviceFacts.model_validate_json(Path(known_device["EDGEFRONT_TEST_FACTS"]).read_bytes())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The agent's data folder."""
    return tmp_path / "agent"


@pytest.fixture
def config(tmp_path: Path, folder: Path, weights: Path, facts: DeviceFacts):
    def make(url: str, wait_s: float = 5.0, **changes) -> tuple[AgentOptions, DeviceFacts, float]:
        folder.mkdir(exist_ok=True)
        if not (folder / "weights").exists():
            (folder / "weights").symlink_to(weights)
        token = tmp_path / "token"
        token.write_text(TOKEN + "\n")
        settings = {"server": url, "data_dir": folder, "token_file": token, **changes}
        return AgentOptions(**settings), facts, wait_s

    return make
