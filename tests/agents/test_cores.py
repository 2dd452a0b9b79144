"""Which cores measure: the fast ones first, as made trees of /sys describe them, and the kernel's on the fastest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from edgefront.agents.device.cores import Core, CorePlan, described, numbers, parse_cores, ranked
from edgefront.agents.device.kernel import kernel_facts
from edgefront.core.common.errors import InvalidInput
from edgefront.core.measurement.plausible import MAX_MHZ


def tree(folder: Path, *cores: dict[str, str]) -> Path:
    """Files as Linux has them below /sys/devices/system/cpu, with these contents for each core."""
    files = {
        "capacity": "cpu_capacity",
        "khz": "cpufreq/cpuinfo_max_freq",
        "siblings": "topology/thread_siblings_list",
    }
    for number, core in enumerate(cores):
        for name, text in core.items():
            file = folder / f"cpu{number}" / files[name]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text + "\n")
    return folder


def of(system: Path, count: int) -> tuple[int, ...]:
    return ranked(described(range(count), system))


def test_big_cores_measure_before_little_ones(tmp_path: Path) -> None:
    """RK3588: four Cortex-A55 and four Cortex-A76, of which one pair reaches a higher clock."""
    little = {"capacity": "530", "khz": "1800000"}
    system = tree(tmp_path, *[little] * 4, *[{"capacity": "1004", "khz": "2352000"}] * 2, *[{"capacity": "1024"}] * 2)
    assert of(system, 8) == (7, 6, 5, 4, 3, 2, 1, 0)
    three = tree(tmp_path / "three", {"capacity": "1024"}, *[{"capacity": "250"}] * 4, *[{"capacity": "860"}] * 3)
    assert of(three, 8) == (0, 7, 6, 5, 4, 3, 2, 1)  # one X, three A7xx, four A5xx: a telephone's


def test_capacity_goes_before_clock_and_speeds_are_of_one_kind(tmp_path: Path) -> None:
    fast_clock, wide = {"capacity": "400", "khz": "2400000"}, {"capacity": "1024", "khz": "2000000"}
    assert of(tree(tmp_path / "both", fast_clock, wide), 2) == (1, 0)
    # The second says no capacity: 1,024 of the first is not compared with its 2,000,000 kHz.
    assert of(tree(tmp_path / "mixed", {"capacity": "1024", "khz": "2400000"}, {"khz": "2000000"}), 2) == (0, 1)
    assert of(tree(tmp_path / "one", {"khz": "2400000"}, {}), 2) == (1, 0)  # unknown: as if equal
    assert of(tmp_path / "nothing", 2) == (1, 0)


def test_hardware_threads_of_hybrid_processors(tmp_path: Path) -> None:
    """Two fast cores with two threads each, then two slow ones with one: what x86 says by clocks alone."""
    pairs = [{"khz": "5000000", "siblings": text} for text in ("0-1", "0-1", "2-3", "2-3")]
    system = tree(tmp_path, *pairs, *[{"khz": "3800000"}] * 2)
    assert of(system, 6) == (3, 1, 5, 4, 2, 0)


def test_the_plan_of_this_process_starts_with_its_fastest_core(tmp_path: Path) -> None:
    for fastest in os.sched_getaffinity(0):
        speeds = ["1024" if core == fastest else "446" for core in range(fastest + 2)]
        plan = CorePlan.of_device(system=tree(tmp_path / str(fastest), *({"capacity": speed} for speed in speeds)))
        assert plan.measuring(1) == (fastest,)


def test_the_highest_clock_is_that_of_a_measuring_core(tmp_path: Path) -> None:
    """The clock of core 0, often a slow one, would be a ceiling that the fast ones exceed."""
    cores = described(range(2), tree(tmp_path, {"khz": "1800000"}, {"khz": "2352000"}))
    assert kernel_facts(CorePlan((1, 0), cores))[MAX_MHZ] == 2352
    assert kernel_facts(CorePlan((0,), cores))[MAX_MHZ] == 1800
    assert MAX_MHZ not in kernel_facts(CorePlan((0,), (Core(0),)))


def test_the_kernel_runs_on_the_core_that_it_is_told() -> None:
    core = max(os.sched_getaffinity(0))
    command = [sys.executable, "-m", "edgefront.agents.device.kernel", str(core)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as child:
        pinned = False
        while child.poll() is None and not pinned:
            pinned = psutil.Process(child.pid).cpu_affinity() == [core]
        child.communicate()
    assert pinned


def test_the_plan_leaves_whole_cores_to_the_rest():
    cores = tuple(Core(number, 0, frozenset({number % 4, number % 4 + 4})) for number in range(8))
    plan = CorePlan(ranked(cores), cores)
    assert plan.measuring(2) == (6, 7)
    assert plan.others(2) == (0, 1, 4, 5)  # not 2 and 3, the siblings
    assert plan.others(4) == (0, 1, 2, 3)  # nothing else is left
    assert plan.others(8) == ()
    assert plan.home() == (0,)
    single = CorePlan((0,), (Core(0),))
    assert (single.measuring(1), single.others(1), single.home()) == ((0,), (), (0,))


def test_cores_are_named_by_lists():
    assert parse_cores("2,4-6") == (2, 4, 5, 6)
    assert numbers("0-1\n") == [0, 1]
    for text in ("", "a", "1-", "1,,2"):
        with pytest.raises(InvalidInput, match="not a list of cores"):
            parse_cores(text)
    with pytest.raises(InvalidInput, match="cannot measure"):
        CorePlan.of_device([100_000])
    available = max(os.sched_getaffinity(0))
    assert CorePlan.of_device([available]).measuring(1) == (available,)


def test_a_narrowed_process_may_still_measure_on_a_core_it_is_given():
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from edgefront.agents.device.cores import CorePlan\n"
        f"plan = CorePlan.of_device([{max(os.sched_getaffinity(0))}])\n"
        "print(plan.count, len(os.sched_getaffinity(0)))"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["1", "1"]
