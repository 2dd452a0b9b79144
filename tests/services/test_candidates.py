"""Filters, orders, pages and exports of candidates."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

import pytest
from databases import ON_BOTH
from hypothesis import given
from hypothesis import strategies as st
from simulated_agent import SimulatedAgent, by_size, failing
from simulated_service import Service, request

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.schemas.candidates import GROUPS, CandidateView, Group
from edgefront.core.schemas.jobs import JobView, Limits
from edgefront.core.services import cursor as cursors
from edgefront.core.services.jobs.answers.candidates import (
    SORTABLE,
    CandidateFilter,
    PageRequest,
    get_candidate,
    list_candidates,
    list_launches,
)
from edgefront.core.services.jobs.answers.exports import EXPORT_COLUMNS, export_rows
from edgefront.core.services.jobs.resolved import BASELINE_LAUNCHES
from edgefront.core.store.database import Database


@pytest.fixture
def measured(service: Service) -> Iterator[tuple[Service, JobView]]:
    """A job some of whose candidates failed, and some of which wait."""
    plain = by_size(0.02)

    def some_crash(architecture: Architecture, protocol: MeasurementProtocol, before: int) -> LaunchResult:
        crash = int(architecture.digest, 16) % 4 == 0 and architecture.d_model == 128
        return (failing("run_error") if crash else plain)(architecture, protocol, before)

    agent = SimulatedAgent(service.database, some_crash)
    job = service.submit(request(algorithm={"name": "random", "settings": {"iterations": 2, "population": 30}}))
    for _ in range(12):
        agent.step(4)
        service.work()
    return service, service.get(job.id)


def pages(service: Service, job_id: str, limit: int = 7, **options: Any) -> list[CandidateView]:
    found: list[CandidateView] = []
    cursor = None
    while True:
        with service.database.read() as session:
            page = list_candidates(session, service.user, job_id, page=PageRequest(cursor, limit), **options)
        assert len(page.items) <= limit
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found


@ON_BOTH
def test_pages_hold_every_candidate_once_in_every_order(measured: tuple[Service, JobView]) -> None:
    service, job = measured
    everything = pages(service, job.id)
    assert {view.state for view in everything} >= {"measured", "waiting", "failed"}
    assert [view.number for view in everything] == list(range(len(everything)))
    for name in SORTABLE:
        for sort in (name, f"-{name}"):
            found = pages(service, job.id, sort=sort)
            assert {view.id for view in found} == {view.id for view in everything}
            assert len(found) == len(everything)
            values = [_figure(view, name) for view in found]
            known = [value for value in values if value is not None]
            assert values[: len(known)] == known  # the unmeasured come last
            assert known == sorted(known, reverse=sort.startswith("-"))


def _figure(view: CandidateView, name: str) -> Any:
    if name == "predicted_perplexity":
        return None if view.predicted is None else view.predicted.perplexity
    return getattr(view, name)


@ON_BOTH
def test_filters(measured: tuple[Service, JobView]) -> None:
    service, job = measured
    everything = pages(service, job.id)
    (target,) = job.targets
    checks: list[tuple[CandidateFilter, Callable[[CandidateView], bool]]] = [
        (CandidateFilter(state="measured"), lambda view: view.state == "measured"),
        (CandidateFilter(role="baseline"), lambda view: view.role == "baseline"),
        (CandidateFilter(on_frontier=True), lambda view: view.on_frontier),
        (CandidateFilter(on_frontier=False), lambda view: not view.on_frontier),
        (CandidateFilter(generation=0), lambda view: view.generation == 0),
        (CandidateFilter(generation=1 << 70), lambda view: False),
        (
            CandidateFilter(limits=Limits(latency_ms=2.0)),
            lambda view: view.latency_ms is not None and view.latency_ms <= 2.0,
        ),
        (
            CandidateFilter(limits=Limits(memory_mb=25.0)),
            lambda view: view.memory_bytes is not None and view.memory_bytes <= 25 * 10**6,
        ),
        (
            CandidateFilter(min_decoder_parameters=500_000, max_decoder_parameters=800_000),
            lambda view: 500_000 <= view.decoder_parameters <= 800_000,
        ),
        (
            CandidateFilter(limits=Limits(memory_mb=1e15), min_decoder_parameters=-(1 << 80)),
            lambda view: bool(view.memory_bytes),
        ),
        (CandidateFilter(target=target.id), lambda view: True),
        (CandidateFilter(target=target.name, state="failed", role="search"), lambda view: view.state == "failed"),
        (CandidateFilter(group="frontier"), lambda view: view.on_frontier),
        (CandidateFilter(group="unusable"), lambda view: view.role == "search" and view.state == "failed"),
        (CandidateFilter(group="baseline"), lambda view: view.role == "baseline"),
        (CandidateFilter(group="waiting", target=target.id), lambda view: _is_of(view, "waiting")),
        (CandidateFilter(group="dominated"), lambda view: _is_of(view, "measured") and not view.on_frontier),
        (CandidateFilter(text=" #12 "), lambda view: view.number == 12),
        (CandidateFilter(text=everything[7].id[-6:].upper()), lambda view: view.id == everything[7].id),
        (CandidateFilter(text=everything[7].digest[:12]), lambda view: view.digest == everything[7].digest),
        (CandidateFilter(text="RUN_ERR", group="unusable"), lambda view: "run_err" in (view.reason or "").lower()),
        (CandidateFilter(text="%"), lambda view: False),
        (CandidateFilter(ids=(everything[3].id, "cnd_nobody")), lambda view: view.id == everything[3].id),
    ]
    for filters, expected in checks:
        found = pages(service, job.id, filters=filters)
        assert [view.id for view in found] == [view.id for view in everything if expected(view)], filters


def _is_of(view: CandidateView, state: str) -> bool:
    return view.role == "search" and view.state == state


@ON_BOTH
def test_a_list_is_sorted_by_what_is_derived(measured: tuple[Service, JobView]) -> None:
    service, job = measured
    (target,) = job.targets
    for name in ("speedup", "memory_ratio"):
        for sort in (name, f"-{name}"):
            found = pages(service, job.id, filters=CandidateFilter(target=target.id), sort=sort)
            values = [getattr(view.versus_baseline, name) for view in found if view.versus_baseline]
            assert len(values) > 10
            assert all(view.versus_baseline for view in found[: len(values)])  # the others come last
            assert values == pytest.approx(sorted(values, reverse=sort.startswith("-")), rel=1e-9)
    ranks = [GROUPS.index(_group(view)) for view in pages(service, job.id, sort="group")]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) > 3
    assert len(pages(service, job.id, sort="perplexity")) == len(ranks)  # nothing was trained


def _group(view: CandidateView) -> Group:
    if view.role == "baseline":
        return "baseline"
    if view.state == "measured":
        return "frontier" if view.on_frontier else "dominated"
    return "waiting" if view.state == "waiting" else "unusable"


@ON_BOTH
def test_a_page_by_number_knows_its_place(measured: tuple[Service, JobView]) -> None:
    service, job = measured
    everything = pages(service, job.id, sort="-latency_ms")
    groups = Counter(map(_group, everything))
    with service.database.read() as session:
        for offset in range(0, len(everything), 7):
            page = list_candidates(
                session, service.user, job.id, sort="-latency_ms", page=PageRequest(limit=7, offset=offset)
            )
            assert page.place is not None
            assert (page.place.offset, page.place.total) == (offset, len(everything))
            assert {name: count for name, count in page.place.groups.items() if count} == groups
            assert [view.id for view in page.items] == [view.id for view in everything[offset : offset + 7]]
            numbers = {view.id: view.number for view in everything}
            assert page.place.numbers == {id_: numbers[id_] for view in page.items for id_ in view.parents}
            for view in page.items:
                around = list_candidates(
                    session, service.user, job.id, sort="-latency_ms", page=PageRequest(limit=7, around=view.id)
                )
                assert around == page
        beyond = list_candidates(session, service.user, job.id, page=PageRequest(limit=7, offset=10_000)).place
        assert beyond is not None
        assert beyond.offset == (len(everything) - 1) // 7 * 7
        filters = CandidateFilter(group="frontier")
        dominated = next(view for view in everything if _group(view) == "dominated")
        page = list_candidates(session, service.user, job.id, filters, page=PageRequest(limit=7, around=dominated.id))
        assert page.place is not None
        assert (page.place.offset, page.place.total) == (0, groups["frontier"])


def test_what_is_wrong_is_named(measured: tuple[Service, JobView]) -> None:
    service, job = measured
    with service.database.read() as session:
        user = service.user
        good = str(list_candidates(session, user, job.id, sort="latency_ms", page=PageRequest(limit=1)).next_cursor)
        with pytest.raises(InvalidInput, match="sort must be one of number"):
            list_candidates(session, user, job.id, sort="genome")
        with pytest.raises(InvalidInput, match="state must be one of waiting"):
            list_candidates(session, user, job.id, CandidateFilter(state="lost"))
        with pytest.raises(InvalidInput, match="cursor"):
            list_candidates(session, user, job.id, sort="-latency_ms", page=PageRequest(good))
        for unknown in ("x", "\x00", "\ud800"):
            with pytest.raises(NotFound):
                list_candidates(session, user, job.id, CandidateFilter(target=unknown))
            with pytest.raises(NotFound):
                list_candidates(session, user, unknown)
            with pytest.raises(NotFound):
                get_candidate(session, user, unknown)
            with pytest.raises(NotFound):
                export_rows(session, user, unknown)


def test_cursors_of_others_making_are_refused_and_not_run(measured: tuple[Service, JobView]) -> None:
    service, job = measured
    forged: list[Any] = [
        ["number", "1", "x"],
        ["number", True, "x"],
        ["number", 1 << 63, "x"],
        ["number", [], "x"],
        ["number", 1, "\x00"],
        ["number", 1, "\ud800"],
        ["number", 1],
        {"number": 1},
        ["created_at", "yesterday", "x"],
        ["created_at", "2026-01-01T00:00:00", "x"],
        ["created_at", "0001-01-01T00:00:00+23:59", "x"],
        ["created_at", "9999-12-31T23:59:59-23:59", "x"],
        ["created_at", 5, "x"],
    ]
    with service.database.read() as session:
        for value in forged:
            text = base64.urlsafe_b64encode(json.dumps(value).encode()).decode()
            sort = value[0] if isinstance(value, list) else "number"
            with pytest.raises(InvalidInput, match="cursor"):
                list_candidates(session, service.user, job.id, sort=sort, page=PageRequest(text))


@given(st.text(max_size=40) | st.binary(max_size=40).map(lambda raw: base64.urlsafe_b64encode(raw).decode()))
def test_any_text_is_a_cursor_or_refused(text: str) -> None:
    with suppress(InvalidInput):
        assert len(cursors.decode(text, (str, int))) == 2


@given(st.tuples(st.text(st.characters(codec="ascii", categories=["L", "N"])), st.integers(-(1 << 62), 1 << 62)))
def test_cursors_come_back(value: tuple[str, int]) -> None:
    assert tuple(cursors.decode(cursors.encode(list(value)), (str, int))) == value


def test_exported_rows_are_the_candidates(measured: tuple[Service, JobView]) -> None:
    service, job = measured
    views = {view.id: view for view in pages(service, job.id)}
    with service.database.read() as session:
        rows = list(export_rows(session, service.user, job.id, sort="-proxy"))
    assert [row["proxy"] for row in rows] == sorted((view.proxy for view in views.values()), reverse=True)
    names = [name for name, _ in EXPORT_COLUMNS]
    assert all(meaning for _, meaning in EXPORT_COLUMNS)
    for row in rows:
        view = views[row["id"]]
        assert list(row) == names
        assert all(value is None or isinstance(value, str | int | float | bool | datetime) for value in row.values())
        assert row["latency_ms"] == view.latency_ms
        assert row["speedup"] == (view.versus_baseline.speedup if view.versus_baseline else None)
        assert Architecture.parse(row["architecture"]).digest == row["digest"] == view.digest
        assert row["parents"].split() == list(view.parents)
        assert row["predicted_perplexity_low"] == (view.predicted.perplexity_low if view.predicted else None)
        assert (json.loads(row["genome"])["d_model"] if row["genome"] else None) == (
            view.architecture["d_model"] if view.role == "search" else None
        )
    with service.database.read() as session:
        few = list(export_rows(session, service.user, job.id, CandidateFilter(on_frontier=True)))
    assert {row["id"] for row in few} == {id_ for id_, view in views.items() if view.on_frontier}


def test_launches_show_the_raw_samples(measured: tuple[Service, JobView]) -> None:
    service, job = measured
    with service.database.read() as session:
        (baseline, *_) = list_candidates(session, service.user, job.id, CandidateFilter(role="baseline")).items
        launches = list_launches(session, service.user, baseline.id)
        assert get_candidate(session, service.user, baseline.id) == baseline
    assert len(launches) == baseline.launches == BASELINE_LAUNCHES
    for launch in launches:
        assert launch.result is not None
        assert launch.result.latency is not None
        assert len(launch.result.latency.samples_ms) == 5


def test_views_fit_the_wire(measured: tuple[Service, JobView], open_database: Callable[..., Database]) -> None:
    """Views are made without validation; they are valid all the same."""
    service, job = measured
    for view in pages(service, job.id):
        assert CandidateView.model_validate_json(view.model_dump_json()) == view
    assert JobView.model_validate_json(job.model_dump_json()) == job
