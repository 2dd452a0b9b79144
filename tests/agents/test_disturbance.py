"""What disturbs the passes of a launch: judged by how long their threads waited for a core while they were timed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from subjects import gpt

from edgefront.agents.measuring.child import Disturbance, conditions
from edgefront.agents.measuring.measure import Measurer
from edgefront.core.measurement.protocol import MeasurementProtocol

ONE_THREAD = MeasurementProtocol()

BESIDE_A_LOOP = r"""
import json, os, subprocess, sys, time
from edgefront.agents.measuring.child import Disturbance
from edgefront.core.measurement.protocol import MeasurementProtocol
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
loop = subprocess.Popen([sys.executable, "-c", "print(flush=True)\nwhile True: pass"], stdout=subprocess.PIPE)
loop.stdout.readline()
disturbance, end = Disturbance(MeasurementProtocol()), time.perf_counter() + 0.2
while time.perf_counter() < end: pass
print(json.dumps(disturbance.facts()))
loop.kill()
"""


def test_a_loop_on_the_same_core_is_other_load() -> None:
    answer = subprocess.run([sys.executable, "-c", BESIDE_A_LOOP], capture_output=True, text=True, check=True)
    facts = json.loads(answer.stdout)
    assert facts["waited_share"] > 0.1
    assert facts["conditions"].startswith("other load (the passes waited for a core for ")


def test_waits_count_from_a_tenth_of_the_time_and_a_millisecond() -> None:
    assert conditions(1.0, 0.09, 0.0) == ""
    assert conditions(1.0, 0.48, 0.0) == "other load (the passes waited for a core for 48 % of their time)"
    assert conditions(0.004, 0.0009, 0.0) == ""  # the system's own
    assert conditions(1.0, 0.5, 0.48) == "CPU quota (it stopped the passes for 48 % of their time)"
    assert conditions(1.0, 0.8, 0.4).count(";") == 1


def test_all_threads_of_the_process_count(tmp_path: Path) -> None:
    def say(waited_ms: int) -> None:
        for thread in (1, 2):
            (tmp_path / str(thread)).mkdir(exist_ok=True)
            (tmp_path / str(thread) / "schedstat").write_text(f"{10**9} {waited_ms * 10**6} 5\n")

    say(100)
    disturbance = Disturbance(ONE_THREAD.model_copy(update={"threads": 2}), tmp_path)
    time.sleep(0.01)
    say(1100)
    share = disturbance.facts()["waited_share"]
    assert isinstance(share, float)
    assert share > 1


@pytest.mark.parametrize(("fields", "judged"), [({}, True), ({"threads": 2}, False), ({"provider": "cuda"}, False)])
def test_without_the_systems_counters_one_threads_time_says_it(
    tmp_path: Path, fields: dict[str, object], judged: bool
) -> None:
    """Two threads may wait for each other, and one for an accelerator."""
    disturbance = Disturbance(ONE_THREAD.model_copy(update=fields), tmp_path)
    time.sleep(0.02)  # as a process that does not run
    facts = disturbance.facts()
    assert ("waited_share" in facts, "conditions" in facts) == (judged, judged)


def test_a_launch_says_how_long_its_passes_waited(tmp_path: Path) -> None:
    with Measurer(tmp_path, lock=tmp_path / "lock") as measurer:
        result = measurer.measure(gpt(), ONE_THREAD, 0)
    share = result.environment["waited_share"]
    assert isinstance(share, float)
    assert share >= 0
