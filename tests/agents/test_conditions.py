"""Bad conditions on a device: how they are seen, and that an agent marks a launch or waits, as the protocol asks."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from scripted_server import Script, ScriptedServer, wait_for
from test_agent_loop import PROTOCOL, config, folder, item, running  # noqa: F401

from edgefront.agents.device.conditions import Conditions
from edgefront.agents.device.kernel import kernel_facts
from edgefront.core.measurement.ceiling import CORE_GB, CORE_GFLOPS, ceiling


@pytest.fixture
def system(tmp_path: Path) -> Path:
    """What Linux says of a processor, in ordinary files."""
    found = tmp_path / "cpu"
    (found / "cpu0" / "cpufreq").mkdir(parents=True)
    (found / "cpu0" / "thermal_throttle").mkdir()
    say(found, "performance")
    return found


def say(system: Path, governor: str, **more: str) -> None:
    (system / "cpu0" / "cpufreq" / "scaling_governor").write_text(governor + "\n")
    for name, text in more.items():
        (system / "cpu0" / "cpufreq" / name).write_text(text + "\n")


def test_a_power_saving_governor_is_seen(system: Path) -> None:
    conditions = Conditions(4, system, lambda: 1)
    assert "power-saving governor" not in conditions.bad(1)
    say(system, "powersave")
    assert "power-saving governor" in conditions.bad(1)
    say(system, "powersave", scaling_driver="intel_pstate", energy_performance_preference="balance_performance")
    assert not [text for text in conditions.bad(1) if "power" in text]
    say(system, "powersave", energy_performance_preference="power")
    assert "energy preference power" in conditions.bad(1)


def test_load_is_bad_only_where_it_needs_the_measuring_cores(system: Path) -> None:
    running_threads = 4
    conditions = Conditions(4, system, lambda: running_threads)
    assert not [text for text in conditions.bad(1) if "load" in text]
    assert "other load (3 threads run)" in conditions.bad(2)
    running_threads = 1
    assert not [text for text in conditions.bad(4) if "load" in text]
    assert not [text for text in Conditions(4, system, lambda: None).bad(4) if "load" in text]


def test_throttling_is_seen_once(system: Path) -> None:
    count = system / "cpu0" / "thermal_throttle" / "core_throttle_count"
    count.write_text("7\n")
    conditions = Conditions(4, system, lambda: 1)
    assert "throttled by heat" not in conditions.bad(1)
    count.write_text("9\n")
    assert "throttled by heat" in conditions.bad(1)
    assert "throttled by heat" not in conditions.bad(1)


def test_the_kernel_says_what_a_core_reaches() -> None:
    facts = kernel_facts()
    for name in (CORE_GFLOPS, CORE_GB):
        value = facts[name]
        assert isinstance(value, float)
        assert value > 0
    assert ceiling({"cores": 1, "extra": facts}, PROTOCOL, 0).flops > 0


def test_an_agent_marks_what_it_measures_under_bad_conditions(config, system):  # noqa: F811
    script = Script()
    say(system, "powersave")
    with ScriptedServer(script) as server, running(config(server.url)) as run:
        run.agent.conditions = Conditions(4, system, lambda: 1)
        script.items.append(item(0))
        wait_for(lambda: len(script.reports) == 1)
    assert "power-saving governor" in script.reports[0].result.environment["conditions"]


def test_an_agent_waits_for_better_conditions_where_it_is_asked_to(config, system, caplog):  # noqa: F811
    caplog.set_level(logging.INFO, "edgefront.agents.loop")
    script = Script()
    say(system, "powersave")
    with ScriptedServer(script) as server, running(config(server.url)) as run:
        run.agent.conditions = Conditions(4, system, lambda: 1)
        script.items.append(item(0, PROTOCOL.model_copy(update={"when_busy": "wait"})))
        wait_for(lambda: "waiting to measure: power-saving governor" in caplog.text)
        assert script.started == []
        say(system, "performance")
        wait_for(lambda: len(script.reports) == 1)
    assert "power" not in str(script.reports[0].result.environment.get("conditions", ""))
