"""Bad conditions on a device: how they are seen, and that an agent marks a launch or waits, as the protocol asks."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
import torch
from scripted_server import Script, ScriptedServer, wait_for
from test_agent_loop import PROTOCOL, config, folder, item, reported, running  # noqa: F401

from edgefront.agents.device import conditions as conditions_module
from edgefront.agents.device.conditions import BusyBackoff, Conditions
from edgefront.agents.device.cores import Core, CorePlan
from edgefront.agents.device.kernel import gpu_reached, kernel_facts
from edgefront.core.measurement.ceiling import CORE_GB, CORE_GFLOPS, GPU_GB, GPU_GFLOPS, GPU_HALF_GFLOPS, ceiling
from edgefront.core.processes.limits import Quota

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
    conditions = Conditions(PLAN, system, lambda _cores: 0.0)
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
    assert not Conditions(PLAN, tmp_path, lambda _cores: 0.0).after(1)


def test_only_the_measuring_cores_governors_count(system: Path) -> None:
    """The clusters of an ARM processor have one each."""
    conditions = Conditions(PLAN, system, lambda _cores: 0.0)
    say(system, "powersave", cores=(0, 1))
    assert conditions.after(2) == ()
    assert conditions.after(3) == ("power-saving governor",)


def test_a_launch_waits_for_others_only_where_they_need_its_cores(system: Path) -> None:
    others = 3.0
    conditions = Conditions(PLAN, system, lambda cores: others * (cores == (0, 1, 2, 3)))
    assert conditions.before(1) == ()
    assert conditions.before(2) == ("other load (3.0 of 4 cores)",)
    assert conditions.after(2) == ()  # the process of the passes knows better
    others = 0.2
    assert conditions.before(4) == ()


def test_what_this_process_its_children_and_its_parent_compute_is_no_other_load(monkeypatch) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert {os.getpid(), os.getppid(), child.pid} <= set(conditions_module._own_s())
        child.communicate(b"")
    busy = iter([100.0, 100.5])
    own = iter([{1: 7.0, 2: 1.0}, {1: 7.25, 3: 90.0}])  # one has ended, and one is new
    monkeypatch.setattr(conditions_module, "_busy_s", lambda _cores: next(busy))
    monkeypatch.setattr(conditions_module, "_own_s", lambda: next(own))
    monkeypatch.setattr(conditions_module.time, "monotonic", iter([5.0, 5.5]).__next__)
    assert conditions_module.load_of_others((0,)) == pytest.approx(0.5)


def test_the_system_says_how_busy_cores_are() -> None:
    assert 0 < conditions_module._busy_s((0,)) <= conditions_module._busy_s((0, 1, 100_000))


def test_a_quota_below_the_threads_is_a_bad_condition(system: Path) -> None:
    plan = CorePlan((3,), PLAN.cores, Quota(0.5, Path("/sys/fs/cgroup/user.slice")))
    assert Conditions(plan, system).after(1) == ("a CPU quota of 0.5 cores (/sys/fs/cgroup/user.slice)",)
    assert Conditions(replace(plan, quota=Quota(1.5, Path("/")))).after(1) == ()


def test_throttling_is_seen_once(system: Path) -> None:
    count = system / "cpu0" / "thermal_throttle" / "core_throttle_count"
    count.write_text("7\n")
    conditions = Conditions(PLAN, system, lambda _cores: 0.0)
    assert "throttled by heat" not in conditions.after(1)
    count.write_text("9\n")
    assert "throttled by heat" in conditions.after(1)
    assert "throttled by heat" not in conditions.after(1)


def test_clock_rates_held_down_by_heat_are_seen(system: Path, tmp_path: Path) -> None:
    """As ARM boards say it; a fan that turns is no throttling."""
    conditions = Conditions(PLAN, system, lambda _cores: 0.0, tmp_path)
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


def test_an_agent_waits_for_better_conditions_where_it_is_asked_to(config, system, caplog):  # noqa: F811
    caplog.set_level(logging.INFO, "edgefront.agents")
    script = Script()
    say(system, "powersave")
    with ScriptedServer(script) as server, running(config(server.url)) as run:
        run.agent.conditions = Conditions(PLAN, system, lambda _cores: 0.0)
        script.items.append(item(0, PROTOCOL.model_copy(update={"when_busy": "wait"})))
        wait_for(lambda: "waiting to measure: power-saving governor" in caplog.text)
        assert script.started == []
        say(system, "performance")
        wait_for(lambda: len(script.reports) == 1)
    assert "power" not in str(script.reports[0].result.environment.get("conditions", ""))


WAITING = PROTOCOL.model_copy(update={"when_busy": "wait"})


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def waited_in_vain(clock: Clock, threads: int = 1) -> BusyBackoff:
    backoff = BusyBackoff(clock=clock)
    assert backoff.should_wait("a", threads, "on battery")
    clock.now += 299
    assert backoff.should_wait("a", threads, "on battery")
    clock.now += 1
    assert not backoff.should_wait("a", threads, "on battery")
    return backoff


def test_after_one_wait_in_vain_no_launch_waits_for_half_an_hour(clock: Clock) -> None:
    backoff = waited_in_vain(clock)
    assert not backoff.should_wait("b", 1, "on battery")
    clock.now += 1799
    assert not backoff.should_wait("c", 1, "on battery")
    clock.now += 1
    assert backoff.should_wait("d", 1, "on battery")


def test_good_conditions_in_between_let_the_next_launch_wait_again(clock: Clock) -> None:
    backoff = waited_in_vain(clock)
    backoff.conditions_were_good(1)
    assert backoff.should_wait("b", 1, "on battery")


def test_what_is_good_for_fewer_threads_says_nothing_of_a_launch_that_needs_more(clock: Clock) -> None:
    backoff = waited_in_vain(clock, threads=4)
    backoff.conditions_were_good(1)
    assert not backoff.should_wait("b", 4, "other load (2 threads run)")
    backoff.conditions_were_good(4)
    assert backoff.should_wait("b", 4, "other load (2 threads run)")


def test_a_launch_that_was_taken_away_while_it_waited_uses_up_nothing_of_the_next(clock: Clock) -> None:
    backoff = BusyBackoff(clock=clock)
    assert backoff.should_wait("a", 1, "on battery")
    clock.now += 1000
    assert backoff.should_wait("b", 1, "on battery")


def test_launches_that_stay_in_bad_conditions_wait_once_together(config, system, caplog):  # noqa: F811
    """Each waited for its own five minutes, and others behind them for all of these."""
    caplog.set_level(logging.INFO, "edgefront.agents")
    script = Script()
    say(system, "powersave")
    with ScriptedServer(script) as server, running(config(server.url)) as run:
        run.agent.conditions = Conditions(PLAN, system, lambda _cores: 0.0)
        run.agent.busy_backoff = BusyBackoff(wait_s=1.0)
        script.items.extend(item(number, WAITING) for number in range(4))
        wait_for(lambda: len(script.reports) == 4)
    assert caplog.text.count("waiting to measure") == 1
    assert caplog.text.count("waited in vain: power-saving governor") == 1
    assert all("power-saving" in report.result.environment["conditions"] for report in script.reports)


def test_launches_that_need_not_wait_are_made_while_others_do(config, system):  # noqa: F811
    script = Script()
    say(system, "powersave")
    with ScriptedServer(script) as server, running(config(server.url)) as run:
        run.agent.conditions = Conditions(PLAN, system, lambda _cores: 0.0)
        script.items.extend([item(0, WAITING), item(1), item(2)])
        wait_for(lambda: len(script.reports) == 2)
        assert reported(script) == ["lau_1", "lau_2"]
        assert sorted(script.started) == ["lau_1", "lau_2"]
        assert all("power-saving governor" in report.result.environment["conditions"] for report in script.reports)
        script.items.append(item(3))  # asked for while it waits
        wait_for(lambda: len(script.reports) == 3)
        say(system, "performance")
        wait_for(lambda: len(script.reports) == 4)
    assert reported(script) == ["lau_1", "lau_2", "lau_3", "lau_0"]
