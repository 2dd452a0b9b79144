"""Bad conditions on a device: how they are seen."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from running_agent import PROTOCOL, item, running
from scripted_server import Script, ScriptedServer, wait_for

from edgefront.agents import loop
from edgefront.agents.device.cores import Conditions, Core, CorePlan
from edgefront.agents.device.kernel import gpu_reached, kernel_facts
from edgefront.core.common.processes.limits import Quota
from edgefront.core.measurement.plausible import CORE_GB, CORE_GFLOPS, GPU_GB, GPU_GFLOPS, GPU_HALF_GFLOPS, ceiling

PLAN = CorePlan((3, 2, 1, 0), tuple(Core(number) for number in range(4)))


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """What Linux says of a processor, in ordinary files."""
    cpus = tmp_path / "cpu"
    for core in PLAN.order:
        (cpus / f"cpu{core}" / "cpufreq").mkdir(parents=True)
        (cpus / f"cpu{core}" / "thermal_throttle").mkdir()
    say(cpus, "performance")
    return cpus


def say(system: Path, governor: str, cores: Sequence[int] = PLAN.order, **more: str) -> None:
    for core in cores:
        for name, text in {"scaling_governor": governor, **more}.items():
            (system / f"cpu{core}" / "cpufreq" / name).write_text(text + "\n")


def test_a_power_saving_governor_is_seen(system: Path) -> None:
    conditions = Conditions(PLAN, system)
    assert "power-saving governor" not in conditions.after(1)
    say(system, "powersave")
    assert "power-saving governor" in conditions.after(1)
    say(system, "powersave", scaling_driver="intel_pstate", energy_performance_preference="balance_performance")
    assert not [text for text in conditions.after(1) if "power" in text]
    say(system, "powersave", energy_performance_preference="power")
    assert "energy preference power" in conditions.after(1)


@pytest.mark.skipif(sys.platform != "linux", reason="psutil's module of Linux")
def test_a_system_without_power_supplies_is_not_on_battery(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setattr("psutil._pslinux.POWER_SUPPLY_PATH", str(tmp_path / "power_supply"))
    with pytest.raises(FileNotFoundError):
        psutil.sensors_battery()
    assert not Conditions(PLAN, tmp_path).after(1)


def test_only_the_measuring_cores_governors_count(system: Path) -> None:
    """The clusters of an ARM processor have one each."""
    conditions = Conditions(PLAN, system)
    say(system, "powersave", cores=(0, 1))
    assert conditions.after(2) == ()
    assert conditions.after(3) == ("power-saving governor",)


def test_a_quota_below_the_threads_is_a_bad_condition(system: Path) -> None:
    plan = CorePlan((3,), PLAN.cores, Quota(0.5, Path("/sys/fs/cgroup/user.slice")))
    assert Conditions(plan, system).after(1) == ("a CPU quota of 0.5 cores (/sys/fs/cgroup/user.slice)",)
    assert Conditions(replace(plan, quota=Quota(1.5, Path("/")))).after(1) == ()


def test_throttling_is_seen_once(system: Path) -> None:
    count = system / "cpu0" / "thermal_throttle" / "core_throttle_count"
    count.write_text("7\n")
    conditions = Conditions(PLAN, system)
    assert "throttled by heat" not in conditions.after(1)
    count.write_text("9\n")
    assert "throttled by heat" in conditions.after(1)
    assert "throttled by heat" not in conditions.after(1)


def test_clock_rates_held_down_by_heat_are_seen(system: Path, tmp_path: Path) -> None:
    """As ARM boards say it; a fan that turns is no throttling."""
    conditions = Conditions(PLAN, system, tmp_path)
    for number, (kind, state) in enumerate([("pwm-fan", "3"), ("cpufreq-cpu0", "0"), ("cpufreq-cpu4", "0")]):
        device = tmp_path / f"cooling_device{number}"
        device.mkdir()
        (device / "type").write_text(kind + "\n")
        (device / "cur_state").write_text(state + "\n")
    assert "throttled by heat" not in conditions.after(1)
    (tmp_path / "cooling_device2" / "cur_state").write_text("2\n")
    assert "throttled by heat" in conditions.after(1)


def test_the_kernel_says_what_a_core_reaches() -> None:
    facts = kernel_facts(CorePlan.of_device())
    for name in (CORE_GFLOPS, CORE_GB):
        value = facts[name]
        assert isinstance(value, float)
        assert value > 0
    assert ceiling({"cores": 1, "extra": facts}, PROTOCOL, 0).flops > 0


def test_the_kernel_of_a_gpu_runs_on_any_device_of_torch() -> None:
    reached = gpu_reached(torch.device("cpu"), size=256, copied_bytes=1 << 24, seconds=0.0)
    assert set(reached) == {GPU_GFLOPS, GPU_HALF_GFLOPS, GPU_GB}
    assert all(value > 0 for value in reached.values())


def test_a_gpu_without_memory_for_the_kernel_has_the_other_figures() -> None:
    assert set(gpu_reached(torch.device("cpu"), 256, copied_bytes=1 << 60, seconds=0.0)) == {
        GPU_GFLOPS,
        GPU_HALF_GFLOPS,
    }


def test_without_a_gpu_that_torch_sees_only_the_core_is_known() -> None:
    assert CORE_GFLOPS in (facts := kernel_facts(CorePlan.of_device(), gpu=not torch.cuda.is_available()))
    assert GPU_GFLOPS not in facts


def test_an_agent_marks_a_launch_that_was_made_in_bad_conditions(config, system):
    script = Script()
    say(system, "powersave")
    with ScriptedServer(script) as server, running(config(server.url)) as run:
        run.agent.conditions = Conditions(PLAN, system)
        script.items.append(item(0))
        wait_for(lambda: script.reports)
    assert "power-saving governor" in script.reports[0].result.environment["conditions"]


def test_a_launch_that_asks_so_waits_for_better_conditions_and_not_for_ever(config, monkeypatch):
    monkeypatch.setattr(loop, "_CONDITIONS_INTERVAL_S", 0.01)
    waiting = PROTOCOL.model_copy(update={"when_busy": "wait"})
    seen = iter([("on battery",), ("on battery",), ()])
    script = Script()
    with ScriptedServer(script) as server, running(config(server.url)) as run:
        run.agent.conditions.before = lambda _: next(seen)
        script.items.append(item(0, waiting))
        wait_for(lambda: len(script.reports) == 1)
        assert next(seen, None) is None
        monkeypatch.setattr(loop, "_BUSY_WAIT_S", 0.0)
        looks = []
        run.agent.conditions.before = lambda _: looks.append("") or ("on battery",)
        script.items.extend([item(1, waiting), item(2, waiting)])
        wait_for(lambda: len(script.reports) == 3)
        assert len(looks) == 1, "after a wait in vain none waits for a while"


def test_other_load_is_a_bad_condition_before_a_launch(monkeypatch, system: Path) -> None:
    for busy, threads, is_bad in (([10.0] * 4, 4, False), ([90.0] * 4, 1, True), ([90.0, 90.0, 0.0, 0.0], 2, False)):
        monkeypatch.setattr("psutil.cpu_percent", lambda *_, busy=busy, **__: busy)
        assert any("other load" in text for text in Conditions(PLAN, system).before(threads)) is is_bad
