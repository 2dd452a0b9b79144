"""Which GPUs a worker may train on, by what the driver's tool says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefront.core.common.processes.limits import total_memory_bytes
from edgefront.core.common.units import MIB
from edgefront.core.services.trainings.machine import system_gpus

LISTED = "".join(
    f"{number}, NVIDIA, GPU-{name}, {size}, 1, 9.0\\n"
    for number, name, size in ((0, "aaaa", "81559"), (1, "bbbb", "24564"), (2, "cccc", "[N/A]"))
)


@pytest.fixture(autouse=True)
def _listed_anew() -> None:
    system_gpus.cache_clear()


@pytest.mark.parametrize(
    ("visible", "numbers"),
    [(None, [0, 1, 2]), ("1", [1]), ("GPU-aaaa, 2", [0, 2]), ("", []), ("GPU-dddd", [])],
)
def test_gpus_are_those_that_this_process_may_use(
    visible: str | None, numbers: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\nprintf '{LISTED}'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    sizes = {0: 81559 * MIB, 1: 24564 * MIB, 2: total_memory_bytes()}  # the last shares the machine's
    try:
        assert system_gpus() == {number: sizes[number] for number in numbers}
    finally:
        system_gpus.cache_clear()
