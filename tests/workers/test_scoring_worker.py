"""The embedded worker computes scores that its messages and sweeps tell of, in a process beside its tasks."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from simulated_agent import SimulatedAgent, principal
from simulated_service import request
from sqlalchemy import select
from test_embedded import run_to_its_end, settings_for

from edgefront.core.proxies.registry import ProxySettings
from edgefront.core.proxies.score import score
from edgefront.core.services.dispatch import sender
from edgefront.core.services.jobs import lifecycle as jobs
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Candidate
from edgefront.workers.embedded import EmbeddedWorker

SMALL_SPACE = {"n_layer": {"max": 2}, "d_model": [128], "d_inner": {"max": 320}, "div": [4], "d_embed": [128]}


def test_a_job_by_a_proxy_of_torch_runs_to_its_end(
    sqlite_url: str, tmp_path: Path, open_database: Callable[..., Database]
) -> None:
    settings = settings_for(sqlite_url, tmp_path)
    database = open_database(sqlite_url, send=sender(settings))
    agent, user = SimulatedAgent(database), principal(database)
    asked = request(
        space={"name": "lts-gpt2", "narrow": SMALL_SPACE},
        proxy="jacob_cov",
        proxy_settings={"rows": 2, "length": 2},
        algorithm={"name": "random", "settings": {"population": 2}},
        budget={"candidates": 2, "refinement": 0},
        baseline_layers=[1],
    )
    with EmbeddedWorker(settings, database):
        job = jobs.submit_job(database, user, asked)
        run_to_its_end(database, agent, job.id, user)
    with database.read() as session:
        candidates = session.scalars(select(Candidate)).all()
    assert len(candidates) == 3
    for row in candidates:
        architecture = Architecture.parse(row.architecture)
        assert row.state == "measured"
        assert row.proxy == pytest.approx(score(architecture, "jacob_cov", 0, ProxySettings(rows=2, length=2)))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("edgefront-scor")]
