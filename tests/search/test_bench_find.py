"""The comparison of searches within limits (`benchmarks/bench_find.py`), with few launches."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def bench() -> Any:
    sys.path.append(str(BENCHMARKS))
    yield importlib.import_module("bench_find")
    sys.path.remove(str(BENCHMARKS))


def test_every_search_begins_with_the_same_launches_and_only_improves(bench: Any) -> None:
    device = bench.device("here")
    task, first = bench.Task.of(device, 0.7, 10), len(device.depths)
    runs = [bench.run(search, task, 0, 10) for search in ("surrogate", "lts", "random")]
    assert all(len(run["best"]) == 10 and run["ended"] is None for run in runs)
    assert len({tuple(run["best"][:first]) for run in runs}) == 1
    assert all((np.array(run["best"][1:]) >= run["best"][:-1]).all() for run in runs)


def test_a_replayed_device_has_the_latencies_of_its_table(bench: Any) -> None:
    devices = importlib.import_module("find_devices")
    found = devices.hwgpt.read_table(devices.HWGPT)
    measured = found.columns["helix_cpu_ms"]
    assert bench.device("helix").latency_ms(found.shapes) == pytest.approx(measured, rel=1e-6)


def test_medians_and_quartiles_are_of_the_runs(bench: Any) -> None:
    assert bench.quartiles([3.0, 1.0, 2.0, 5.0, 4.0], ".0f") == "3 (2 to 4)"
    assert bench.quartiles([20, np.inf, np.inf, np.inf], ".0f") == "never (20 to never)"
    assert bench.quartiles([np.inf, np.inf], ".0f") == "never"
