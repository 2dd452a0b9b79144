"""The alarms of `docs/alarms.yaml`: each fires on what it is for, and none on a service that is well."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tools import PROMTOOL

ALARMS = Path(__file__).parents[2] / "docs" / "alarms.yaml"
MINUTES = 20
WELL = {
    "edgefront_database_up": "1",
    "edgefront_broker_up": "1",
    'edgefront_queue_unserved_seconds{queue="edgefront"}': "4",
    'edgefront_queue_unserved_seconds{queue="edgefront-search"}': "500",
    'edgefront_queue_oldest_seconds{queue="edgefront"}': "0",
    "edgefront_settling_lag_seconds": "0",
    "edgefront_devices_online": "1",
    'edgefront_launches_open{state="wanted"}': "4",
    "edgefront_training_wait_seconds": "0",
    'edgefront_http_requests_total{status="200"}': "0+600",
    'edgefront_http_requests_total{status="503"}': "0+1",
    "edgefront_artifacts_free_bytes": "6e9",
}
ILL: dict[str, dict[str, str | None]] = {
    "EdgefrontDown": {"edgefront_database_up": None},
    "EdgefrontDatabaseAway": {"edgefront_database_up": "0"},
    "EdgefrontBrokerAway": {"edgefront_broker_up": "0"},
    "EdgefrontNoWorker": {'edgefront_queue_unserved_seconds{queue="edgefront"}': "+Inf"},
    "EdgefrontWorkWaits": {'edgefront_queue_oldest_seconds{queue="edgefront"}': "301"},
    "EdgefrontReportsWait": {"edgefront_settling_lag_seconds": "61"},
    "EdgefrontNoDevice": {"edgefront_devices_online": "0"},
    "EdgefrontTrainingsWait": {"edgefront_training_wait_seconds": "3601"},
    "EdgefrontErrors": {'edgefront_http_requests_total{status="503"}': "0+60"},
    "EdgefrontDiskFull": {"edgefront_artifacts_free_bytes": "4e9"},
}


def series(changes: dict[str, str | None]) -> list[dict[str, str]]:
    values = {name: value for name, value in (WELL | changes).items() if value is not None}
    steady = {name: value if "+" in value[1:] else f"{value}+0" for name, value in values.items()}
    return [{"series": name, "values": f"{value}x{MINUTES}"} for name, value in steady.items()]


def test_each_alarm_fires_on_what_it_is_for_and_on_nothing_else(tmp_path: Path) -> None:
    alarms = [rule["alert"] for rule in yaml.safe_load(ALARMS.read_text())["groups"][0]["rules"]]
    assert list(ILL) == alarms
    tests: list[dict[str, Any]] = []
    for name, changes in {"nothing": {}, **ILL}.items():
        fires = [f'ALERTS{{alertname="{name}",alertstate="firing"}}'] if name in ILL else []
        firing = {"expr": 'count by (alertname, alertstate) (ALERTS{alertstate="firing"})', "eval_time": f"{MINUTES}m"}
        expected = [{"labels": f"{{{fire.partition('{')[2]}", "value": 1} for fire in fires]
        tests.append(
            {
                "interval": "1m",
                "name": name,
                "input_series": series(changes),
                "promql_expr_test": [{**firing, "exp_samples": expected}],
            }
        )
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(ALARMS)], "evaluation_interval": "1m", "tests": tests}))
    done = subprocess.run([PROMTOOL.path(), "test", "rules", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_runbook_has_every_alarm() -> None:
    runbook = (ALARMS.parent / "operate.md").read_text()
    assert [name for name in ILL if f"`{name}`" not in runbook] == []
