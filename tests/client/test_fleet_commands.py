"""Devices, tokens, keys and comparisons by the command."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from command_line import edgefront
from running_client import Running
from sqlalchemy import select
from sqlalchemy.orm import Session

from edgefront import exits
from edgefront.client import Client
from edgefront.commands.devices import agent_command
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Candidate, Device


def read(running: Running, *arguments: str) -> Any:
    done = edgefront(*arguments, "--json", home=running.home, code=exits.OK)
    return json.loads(done.stdout)


def test_a_job_is_compared_with_itself(running: Running) -> None:
    job, target = running.job.id, running.job.targets[0]
    comparison = read(running, "compare", job)
    assert [target_view["target_id"] for target_view in comparison["targets"]] == [
        target_view.id for target_view in running.job.targets
    ]
    assert len(comparison["architectures"]) >= target.frontier_size
    shown = edgefront("compare", f"{job}/{target.name}", home=running.home, code=exits.OK)
    assert comparison["architectures"][0]["digest"][:10] in shown.stdout
    assert f"/compare?target={target.id}" in shown.stderr
    assert read(running, "compare", f"{job[-8:]}/{target.name}") == read(running, "compare", f"{job}/{target.name}")
    missing = edgefront("compare", f"{job}/nowhere", home=running.home, code=exits.NOT_FOUND)
    assert target.name in missing.stderr


@contextmanager
def rows(running: Running) -> Iterator[Session]:
    """The service's rows, to be changed."""
    database = Database(f"sqlite:///{running.home / 'edgefront.db'}")
    try:
        with database.write() as session:
            yield session
    finally:
        database.dispose()


def test_a_device_says_what_it_is_and_that_it_is_in_quarantine(running: Running) -> None:
    shown = edgefront("device show", running.board, home=running.home).stdout
    assert "Anchor: not measured yet" in shown
    view = read(running, "device show", running.board)
    assert view["name"] == running.board
    assert view["anchor"]["points"] == []
    with rows(running) as session:
        device = session.scalars(select(Device).where(Device.name == running.board)).one()
        kept = dict(device.facts)
        device.quarantine = "its anchor takes 1.50 times as long as it did"
        device.facts = {**kept, "extra": {"core_gflops": 37.5, "core_gb_per_s": 9.25}}
    try:
        assert "in quarantine" in edgefront("device list", home=running.home).stdout
        words = " ".join(edgefront("device show", running.board, home=running.home).stdout.split())
        assert "core compute 37.5 GFLOP/s" in words
        assert "core bandwidth 9.25 GB/s" in words
    finally:
        with rows(running) as session:
            device = session.scalars(select(Device).where(Device.name == running.board)).one()
            device.quarantine, device.facts = None, kept


def test_marked_results_are_said(running: Running) -> None:
    point = running.client.frontier(running.job.id).points[0]
    with rows(running) as session:
        session.get_one(Candidate, point.id).marked = True
    try:
        shown = edgefront("frontier", running.job.id, home=running.home).stdout
        (line,) = [line for line in shown.splitlines() if point.id in line]
        assert " !" in line
        assert shown.count("! measured under conditions out of the ordinary") == 1
        job = " ".join(edgefront("job show", running.job.id, home=running.home).stdout.split())
        assert "1 on the frontier marked." in job
        (row,) = [
            listed for listed in read(running, "frontier", running.job.id)[0]["points"] if listed["id"] == point.id
        ]
        assert row["marked"] is True
    finally:
        with rows(running) as session:
            session.get_one(Candidate, point.id).marked = False


def test_a_token_comes_with_its_command(running: Running) -> None:
    made = edgefront("token create", home=running.home)
    token = made.stdout.strip()
    assert re.fullmatch(r"efe_[\w-]{43}", token)
    assert f"echo {token} | edgefront agent --server {running.service.url} --token-file -" in made.stderr
    assert "listens on its own machine alone" in made.stderr
    again = edgefront("device reenrol", running.board, home=running.home)
    assert f"--name {running.board}" in again.stderr
    assert agent_command("http://10.0.0.5:8090", "efe_x", "lab 9").endswith("--token-file - --name 'lab 9' --insecure")
    assert agent_command("https://far.example", "efe_x", None).endswith("--token-file -")


def test_a_viewer_reads_by_the_command_and_changes_nothing(running: Running) -> None:
    key = read(running, "key create manager --role viewer")["key"]
    env = {"EDGEFRONT_KEY": key, "EDGEFRONT_URL": running.service.url}
    listed = edgefront("job list --json", env=env)
    assert running.job.id in [load["id"] for load in json.loads(listed.stdout)]
    refused = edgefront("job cancel", running.job.id, env=env, code=exits.NO_ACCESS)
    assert "reads everything and changes nothing" in refused.stderr
    with Client(running.service.url, key) as viewer:
        assert viewer.compare([running.job.targets[0].id]).targets[0].job_id == running.job.id
