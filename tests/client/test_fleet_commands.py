"""Devices, tokens, keys and comparisons by the command."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from running_client import Running
from sqlalchemy import select
from sqlalchemy.orm import Session

from edgefront.cli import exits
from edgefront.cli.commands.devices import agent_command
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Candidate, Device


def test_a_job_is_compared_with_itself(running: Running) -> None:
    job, target = running.job.id, running.job.targets[0]
    comparison = running.read("compare", job)
    assert [target_view["target_id"] for target_view in comparison["targets"]] == [
        target_view.id for target_view in running.job.targets
    ]
    assert len(comparison["architectures"]) >= target.frontier_size
    shown = running.command("compare", f"{job}/{target.name}", code=exits.OK)
    assert comparison["architectures"][0]["digest"][:10] in shown.stdout
    assert f"/compare?target={target.id}" in shown.stderr
    assert running.read("compare", f"{job[-8:]}/{target.name}") == running.read("compare", f"{job}/{target.name}")
    missing = running.command("compare", f"{job}/nowhere", code=exits.NOT_FOUND)
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
    shown = running.command("device show", running.board).stdout
    assert "Anchor: not measured yet" in shown
    view = running.read("device show", running.board)
    assert view["name"] == running.board
    assert view["anchor"]["points"] == []
    with rows(running) as session:
        device = session.scalars(select(Device).where(Device.name == running.board)).one()
        kept = dict(device.facts)
        device.quarantine = "its anchor takes 1.50 times as long as it did"
        device.facts = {**kept, "extra": {"core_gflops": 37.5, "core_gb_per_s": 9.25}}
    try:
        assert "in quarantine" in running.command("device list").stdout
        words = " ".join(running.command("device show", running.board).stdout.split())
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
        shown = running.command("frontier", running.job.id).stdout
        (line,) = [line for line in shown.splitlines() if point.id in line]
        assert " !" in line
        assert shown.count("! measured under conditions out of the ordinary") == 1
        job = " ".join(running.command("job show", running.job.id).stdout.split())
        assert "1 on the frontier marked." in job
        (row,) = [
            listed for listed in running.read("frontier", running.job.id)[0]["points"] if listed["id"] == point.id
        ]
        assert row["marked"] is True
    finally:
        with rows(running) as session:
            session.get_one(Candidate, point.id).marked = False


def test_a_token_comes_with_its_command(running: Running) -> None:
    made = running.command("token create")
    token = made.stdout.strip()
    assert re.fullmatch(r"efe_[\w-]{43}", token)
    assert f"echo {token} | edgefront agent --server {running.service.url} --token-file -" in made.stderr
    assert "listens on its own machine alone" in made.stderr
    again = running.command("device reenrol", running.board)
    assert f"--name {running.board}" in again.stderr
    assert agent_command("http://10.0.0.5:8090", "efe_x", "lab 9").endswith("--token-file - --name 'lab 9' --insecure")
    assert agent_command("https://far.example", "efe_x", None).endswith("--token-file -")
