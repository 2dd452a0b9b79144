"""`edgefront quality probe` against the running service: the plan, and what is refused."""

from __future__ import annotations

import json

from command_line import edgefront
from running_client import Running
from simulated_pool import DATA, prepare

from edgefront import exits

HOW = ("--data", DATA, "--recipe", "quick", "--set", "segment=8 schedule.warmup=0 checkpoint_every=2", "--steps", "4")


def test_a_plan_is_shown_and_nothing_is_trained(running: Running) -> None:
    prepare(running.home / "data")
    probe = ("quality", "probe", "--job", running.job.id, "--trainings", "2", *HOW, "--dry-run")
    told = edgefront(*probe, "--json", home=running.home)
    assert told.returncode == exits.OK, told.stderr
    plan = json.loads(told.stdout)
    assert (plan["state"], plan["id"], len(plan["trainings"])) == ("planned", None, 2)
    assert plan["expected"]["low"] < plan["expected"]["ratio"] < plan["expected"]["high"]
    shown = edgefront(*probe, home=running.home)
    assert shown.returncode == exits.OK, shown.stderr
    assert "before: " in shown.stdout
    assert "expected: predicted perplexity" in shown.stdout
    assert list(running.client.trainings.list(job=running.job.id)) == []
    refused = edgefront(*probe, "--max-latency-ms", "0.000001", home=running.home)
    assert refused.returncode != exits.OK
    assert "is within" in refused.stderr
