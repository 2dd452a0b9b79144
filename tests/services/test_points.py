"""Points of a chart: what is always among them, how the others are spread, and the columns that hold them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from databases import ON_BOTH
from simulated_agent import SimulatedAgent, by_size
from simulated_service import Service, request
from sqlalchemy import event

from edgefront.core.common.errors import NotFound
from edgefront.core.schemas.candidates import CandidateView
from edgefront.core.schemas.jobs import JobView
from edgefront.core.schemas.points import PointsHeader, decode, encode
from edgefront.core.services.jobs import frontier as frontier_queries
from edgefront.core.services.jobs.answers import points
from edgefront.core.services.jobs.answers.candidates import CandidateFilter, PageRequest, list_candidates
from edgefront.core.services.jobs.answers.points import Zoom
from edgefront.core.services.jobs.queries import candidates as candidate_queries
from edgefront.core.services.trainings import queries as training_queries
from edgefront.core.store.tables import Candidate, new_id

MANY = 4000


@pytest.fixture
def measured(service: Service) -> Iterator[tuple[Service, JobView]]:
    """A finished job of a few candidates."""
    agent = SimulatedAgent(service.database, by_size(0.02))
    return service, service.finish(agent, request())


@pytest.fixture
def many(measured: tuple[Service, JobView]) -> tuple[Service, JobView]:
    """The same job with thousands of dominated candidates more: nearly all in one corner, one far away."""
    service, job = measured
    rng = np.random.default_rng(3)
    with service.database.write() as session:
        (like,) = list_candidates(
            session, service.user, job.id, CandidateFilter(role="search"), page=PageRequest(limit=1)
        ).items
        row = session.get_one(Candidate, like.id)
        columns = {
            column.name: getattr(row, column.name) for column in Candidate.__table__.columns if column.name != "id"
        }
        first = 1000
        made = []
        for index in range(MANY):
            far = index == MANY - 1
            figures = {
                "latency_ms": 500.0 if far else 100.0 + rng.random(),
                "memory_bytes": 10**9,
                "proxy": 1.0 if far else 2.0 + rng.random() / 100,
                "number": first + index,
                "digest": f"{index:064x}",
                "on_frontier": False,
                "state": "measured",
            }
            made.append({**columns, **figures, "id": new_id("cnd")})
        candidate_queries.add(session, made)
    return service, job


def read(service: Service, job: JobView, **options: Any) -> tuple[PointsHeader, dict[str, Any]]:
    with service.database.read() as session:
        return decode(points.read(session, service.user, job.id, **options))


def everything(service: Service, job: JobView) -> list[CandidateView]:
    with service.database.read() as session:
        return list(list_candidates(session, service.user, job.id, page=PageRequest(limit=1000)).items)


def test_a_few_are_all_there_with_their_figures(measured: tuple[Service, JobView]) -> None:
    service, job = measured
    header, columns = read(service, job)
    found = {view.id: view for view in everything(service, job) if view.latency_ms and view.memory_bytes}
    assert set(header.ids) == set(found)
    assert header.rows == header.total == len(found) > 5
    assert sum(header.measured.values()) == len(found)
    for at, id_ in enumerate(header.ids):
        view = found[id_]
        assert columns["number"][at] == view.number
        assert columns["latency_ms"][at] == view.latency_ms
        assert columns["memory_bytes"][at] == view.memory_bytes
        assert columns["proxy"][at] == view.proxy
        group = "baseline" if view.role == "baseline" else "frontier" if view.on_frontier else "dominated"
        assert header.groups[columns["group"][at]] == group
    latencies = [view.latency_ms for view in found.values()]
    assert header.latency_ms == (min(filter(None, latencies)), max(filter(None, latencies)))
    assert "first_token_ms" not in columns  # of another mode


def test_many_are_thinned_but_never_the_frontier_nor_outliers(many: tuple[Service, JobView]) -> None:
    service, job = many
    header, columns = read(service, job, most=200)
    assert header.rows < 1600 < MANY < header.total
    important = {view.id for view in everything(service, job) if view.on_frontier or view.role == "baseline"}
    assert important <= set(header.ids)
    assert 500.0 in columns["latency_ms"]  # the only one in its cell
    assert len(set(header.ids)) == header.rows
    assert read(service, job, most=200)[0].ids == header.ids
    assert header.measured["dominated"] >= MANY


@ON_BOTH
def test_a_zoom_shows_the_window_in_full(many: tuple[Service, JobView]) -> None:
    service, job = many
    zoom = Zoom(100.0, 100.05, 2.0, 2.01)
    header, columns = read(service, job, zoom=zoom)
    inside = (columns["latency_ms"] >= 100.0) & (columns["latency_ms"] <= 100.05)
    assert 100 < header.total < 400
    assert inside.sum() == header.total
    half, _ = read(service, job, zoom=replace(zoom, max_latency_ms=None))
    assert half.total == MANY - 1


@ON_BOTH
def test_who_is_selected_stays(many: tuple[Service, JobView]) -> None:
    service, job = many
    _, columns = read(service, job, most=1)
    with service.database.read() as session:
        page = list_candidates(
            session, service.user, job.id, CandidateFilter(group="dominated"), "-number", PageRequest(limit=40)
        )
    drawn = set(columns["number"].tolist())
    left_out = next(view for view in page.items if view.number not in drawn)
    header, _ = read(service, job, most=1, keep=[left_out.id, "cnd_nobody"])
    assert left_out.id in header.ids


def test_nothing_is_measured_yet(service: Service) -> None:
    SimulatedAgent(service.database)
    job = service.submit(request())
    header, columns = read(service, job, axis="predicted")
    assert (header.rows, header.total, header.latency_ms) == (0, 0, None)
    assert columns["number"].tolist() == []
    with pytest.raises(NotFound):
        read(service, job, target="no")


def test_columns_are_aligned_and_unknown_figures_missing() -> None:
    header = {"job_id": "job_1", "target_id": "tgt_1", "rows": 3, "total": 3, "measured": {}, "latency_ms": (1, 2)}
    full = {name: np.full(3, np.nan) for name in ("memory_bytes", "decoder_parameters", "proxy", "perplexity")}
    full |= {name: np.full(3, np.nan) for name in ("perplexity_low", "perplexity_high", "first_token_ms", "token_ms")}
    full |= {"latency_ms": np.array([1.0, np.nan, 2.0]), "latency_half_width_ms": np.full(3, np.nan)}
    full |= dict.fromkeys(("latency_low_ms", "latency_high_ms"), np.full(3, np.nan))
    full |= dict.fromkeys(("first_token_half_width_ms", "token_half_width_ms"), np.full(3, np.nan))
    full |= {"number": np.array([0, 1, 2]), "group": np.array([5, 0, 1]), "marked": np.array([0, 1, 0])}
    data = encode({**header, "memory_bytes": None, "ids": ("a", "b", "c")}, full)
    assert len(data) % 8 == 0
    assert (4 + int.from_bytes(data[:4], "little")) % 8 == 0
    found, columns = decode(data)
    assert list(columns) == ["latency_ms", "number", "group", "marked"]
    np.testing.assert_array_equal(columns["latency_ms"], [1.0, np.nan, 2.0])
    assert [found.groups[place] for place in columns["group"]] == ["unusable", "frontier", "dominated"]


def test_the_frontier_is_read_without_reading_all_candidates(service: Service) -> None:
    """SQLite otherwise prefers any index that has the order: it read 50,000 candidates to find 168."""
    asked: list[tuple[str, Any]] = []
    with service.database.read() as session:
        event.listen(session.get_bind(), "before_cursor_execute", lambda *call: asked.append((call[2], call[3])))
        for read in (training_queries.frontier, candidate_queries.measured_baselines):
            read(session, "tgt_0")
        frontier_queries.frontier_points(session, ["tgt_0"])
        frontier_queries.baseline_points(session, ["tgt_0"])
        cursor = session.connection().connection.cursor()
        reads = [(sql, values) for sql, values in asked if sql.startswith("SELECT")]
        plans = [cursor.execute(f"EXPLAIN QUERY PLAN {sql}", values).fetchall()[0][3] for sql, values in reads]
    by_frontier, by_number = "ix_candidate_frontier (target_id=?)", "(target_id=? AND number<?)"
    wanted = [by_frontier, by_number, by_frontier, by_number]
    assert len(plans) == len(wanted)
    for plan, ending in zip(plans, wanted, strict=True):
        assert plan.endswith(ending), plan
