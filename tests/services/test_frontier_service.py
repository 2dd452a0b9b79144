"""The flags, the size and the hypervolume always equal what brute force makes of the rows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import leasing
import pytest
from databases import ON_BOTH
from hypothesis import given
from hypothesis import strategies as st
from job_rows import evaluation
from sqlalchemy import event, select

from edgefront.core.measurement.statistics import LaunchVariance
from edgefront.core.schemas.jobs import Limits
from edgefront.core.search.pareto.baseline import Baseline
from edgefront.core.search.pareto.frontier import hypervolume
from edgefront.core.services import event_log
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.jobs.answers.frontier_view import frontier_view
from edgefront.core.services.jobs.comparison import summary_of
from edgefront.core.services.jobs.frontier import update_frontier
from edgefront.core.store.database import Database
from edgefront.core.store.tables import Candidate, Job, Measurement, Target

NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
USER = Principal("key_1", "ann", "ann", "user")
REFERENCE = {"proxy": 0.0, "proxy_scale": 8.0, "latency_ms": 9.0, "memory_bytes": 9.0}


class Frontier:
    """One target with `size` candidates that wait; proxies repeat so that ties happen."""

    def __init__(
        self, database: Database, size: int, limits: dict[str, float] | None = None, epsilon: float = 0.0
    ) -> None:
        self.database, self.epsilon = database, epsilon
        rows = leasing.Leasing(database, NOW)
        self.target_id = rows.target()
        with database.write() as session:
            target = session.get_one(Target, self.target_id)
            target.name, target.limits, target.reference = "t", limits or {}, REFERENCE
            job = session.get_one(Job, target.job_id)
            job.owner, job.request, self.job_id = "ann", {**job.request, "epsilon": epsilon}, job.id
        made = [("search", 1.0 + number % 7) for number in range(size)] + [("baseline", 8.0)]
        for role, proxy in made:
            rows.candidate(self.target_id, role=role, proxy=proxy, launches=0)
        with database.read() as session:
            *self.ids, self.baseline = session.scalars(select(Candidate.id).order_by(Candidate.number))

    def settle(self, news: dict[str, tuple[str, float | None, int | None]], now: datetime = NOW) -> None:
        """Candidate id → (state, latency, memory) of its measurement."""
        with self.database.write() as session:
            target = session.get_one(Target, self.target_id)
            changed: list[Candidate] = []
            measurements: dict[str, Measurement] = {}
            for id_, (state, latency, memory) in news.items():
                candidate = session.get_one(Candidate, id_)
                measurement = session.get_one(Measurement, candidate.measurement_id)
                measurement.state, measurement.latency_ms, measurement.memory_bytes = state, latency, memory
                measurement.reason = None if state == "measured" else "crashed: it did"
                measurement.measured_at = now if state == "measured" else None
                measurement.launches = 1
                changed.append(candidate)
                measurements[measurement.id] = measurement
            session.flush()
            update_frontier(session, target, changed, measurements, LaunchVariance(1e-3, 10), now)

    def check(self) -> None:
        with self.database.read() as session:
            rows = session.scalars(select(Candidate).where(Candidate.role == "search")).all()
            eligible = [row for row in rows if row.state == "measured"]
            expected = {
                row.id
                for row in eligible
                if not any(_comes_before(other, row, self.epsilon) for other in eligible if other is not row)
            }
            assert {row.id for row in rows if row.on_frontier} == expected
            target = session.get_one(Target, self.target_id)
            assert target.frontier_size == len(expected)
            points = [(row.proxy, row.latency_ms, row.memory_bytes) for row in eligible if row.id in expected]
            assert target.hypervolume == pytest.approx(hypervolume(points, REFERENCE))
            assert target.settled == sum(row.state != "waiting" for row in session.scalars(select(Candidate)))
            replayed: set[str] = set()
            for entry in event_log.read(session, self.job_id, 0, 10_000):
                if entry.kind == "frontier":
                    replayed = (replayed | set(entry.data["joined"])) - set(entry.data["left"])
                    assert len(replayed) == entry.data["size"]
            assert replayed == expected


def _comes_before(a: Candidate, b: Candidate, epsilon: float) -> bool:
    """Whether `a` keeps `b` off the frontier."""
    if epsilon == 0:
        return _dominates(a, b)
    (box, rest), (other, other_rest) = _box(a, epsilon), _box(b, epsilon)
    if box == other:
        return (rest, a.digest) < (other_rest, b.digest)
    return all(x >= y for x, y in zip(box, other, strict=True))


def _box(row: Candidate, epsilon: float) -> tuple[list[int], float]:
    """The box of a candidate, and the square of its distance from the box's best corner."""
    width = math.log1p(epsilon)
    logs = (750 + math.log(row.proxy), -math.log(row.latency_ms or 0), -math.log(row.memory_bytes or 0))
    box = [math.floor(value / width) for value in logs]
    return box, sum((corner + 1 - value / width) ** 2 for corner, value in zip(box, logs, strict=True))


def _dominates(a: Candidate, b: Candidate) -> bool:
    pairs = [(-a.proxy, -b.proxy), (a.latency_ms, b.latency_ms), (a.memory_bytes, b.memory_bytes)]
    return all(x <= y for x, y in pairs) and any(x < y for x, y in pairs)  # type: ignore[operator]


_RESULT = st.one_of(
    st.tuples(st.just("measured"), st.integers(1, 8).map(float), st.integers(1, 8)),
    st.tuples(st.sampled_from(["infeasible", "failed"]), st.none(), st.none()),
)


@pytest.mark.slow
@given(
    rounds=st.lists(st.dictionaries(st.integers(0, 11), _RESULT, min_size=1, max_size=5), min_size=1, max_size=14),
    limit=st.sampled_from([None, 5.0]),
    epsilon=st.sampled_from([0.0, 0.3]),
)
def test_flags_equal_brute_force_after_any_sequence(
    tmp_path_factory: pytest.TempPathFactory,
    sqlite_template: object,
    rounds: list[dict[int, tuple[str, float | None, int | None]]],
    limit: float | None,
    epsilon: float,
) -> None:
    path = tmp_path_factory.mktemp("frontier") / "db.sqlite"
    path.write_bytes(sqlite_template.read_bytes())  # type: ignore[attr-defined]
    database = Database(f"sqlite:///{path}")
    try:
        frontier = Frontier(database, 12, {"latency_ms": limit} if limit else None, epsilon)
        for news in rounds:
            frontier.settle({frontier.ids[number]: result for number, result in news.items()})
            frontier.check()
    finally:
        database.dispose()


@ON_BOTH
def test_what_differs_by_less_than_the_error_of_measurement_is_one_point(database: Database) -> None:
    frontier = Frontier(database, 4, epsilon=0.01)
    same = {id_: ("measured", 10.0 + n / 1000, 1000) for n, id_ in enumerate(frontier.ids[1:])}
    frontier.settle({frontier.ids[0]: ("measured", 8.0, 1000), **same})  # type: ignore[dict-item]
    frontier.check()
    with database.read() as session:
        view = frontier_view(session, USER, frontier.job_id)
        assert view.epsilon == 0.01
        assert [point.proxy for point in view.points] == [1.0, 4.0], "of three of one latency the largest"
    with database.write() as session:
        for row in session.scalars(select(Candidate).where(Candidate.id.in_(frontier.ids))):
            row.proxy = 4.0
    frontier.settle(same)  # type: ignore[arg-type]
    frontier.check()
    with database.read() as session:
        assert [point.latency_ms for point in frontier_view(session, USER, frontier.job_id).points] == [8.0]


@ON_BOTH
def test_the_baseline_is_shown_beside_the_frontier(database: Database) -> None:
    frontier = Frontier(database, 3)
    frontier.settle({frontier.baseline: ("measured", 4.0, 4)})
    frontier.settle({id_: ("measured", 1.0 + number, 3 - number) for number, id_ in enumerate(frontier.ids)})
    frontier.check()
    with database.read() as session:
        view = frontier_view(session, USER, frontier.job_id)
        assert frontier.baseline not in {point.id for point in view.points}
        assert [point.id for point in view.baseline] == [frontier.baseline]
        assert view.baseline[0].versus_baseline is None
        assert [point.decoder_parameters for point in view.points] == [1, 2, 3]
        versus = view.points[0].versus_baseline
        assert versus is not None
        assert versus.extrapolated
        assert versus.speedup == pytest.approx(versus.latency_ms / 1.0)
        assert view.summary


def test_by_perplexity_it_is_the_frontier_of_the_models_trained_in_the_same_way(database: Database) -> None:
    frontier = Frontier(database, 6)
    mb = 10**6
    frontier.settle({id_: ("measured", 10.0 * (n + 1), (n + 1) * mb) for n, id_ in enumerate(frontier.ids)})
    frontier.settle({frontier.baseline: ("measured", 5.0, mb)})

    def score(number: int, value: float, recipe: dict[str, str] | None = None, **changes: str) -> None:
        details = {"recipe": "quick", **(recipe or {})}
        when = NOW + timedelta(seconds=value)
        with database.write() as session:
            session.add(
                evaluation(f"{number + 1:064x}", value, when, details=details, **{"dataset": "python", **changes})
            )

    with database.read() as session:
        nothing = frontier_view(session, USER, frontier.job_id, by="perplexity")
    assert (nothing.points, nothing.trained) == ((), ())
    # Worse than a quicker one, better than it, an older score beside a newer one, and one that is measured on nothing.
    for number, value in ((0, 40.0), (1, 50.0), (2, 30.0), (4, 20.0), (4, 25.0)):
        score(number, value)
    score(3, 1.0, dataset="other")
    score(3, 2.0, split="valid")
    score(3, 3.0, metric="bpc")
    score(3, 4.0, {"comparability_key": "longer"})
    score(6, 5.0)  # the baseline: shown, never on a frontier
    with database.read() as session:
        view = frontier_view(session, USER, frontier.job_id, by="perplexity")
        assert [point.id for point in view.points] == [frontier.ids[n] for n in (0, 2, 4)]
        assert {score.candidate_id: score.perplexity for score in view.trained} == {
            **{frontier.ids[n]: value for n, value in ((0, 40.0), (1, 50.0), (2, 30.0), (4, 25.0))},
            frontier.baseline: 5.0,
        }
        within = frontier_view(session, USER, frontier.job_id, by="perplexity", limits=Limits(latency_ms=30.0))
        assert [point.id for point in within.points] == [frontier.ids[n] for n in (0, 2)]
        named = frontier_view(session, USER, frontier.job_id, by="perplexity", dataset="other")
        assert [point.id for point in named.points] == [frontier.ids[3]]
        by_proxy = frontier_view(session, USER, frontier.job_id)
        assert by_proxy.trained == view.trained
        assert by_proxy.summary == view.summary


@ON_BOTH
def test_the_clock_starts_with_a_launch_of_its_own(database: Database) -> None:
    frontier = Frontier(database, 2)
    frontier.settle({frontier.ids[0]: ("measured", 1.0, 1)}, NOW - timedelta(days=1))
    with database.read() as session:
        assert session.get_one(Target, frontier.target_id).started_at is None
    later = NOW + timedelta(minutes=1)
    frontier.settle({frontier.ids[1]: ("measured", 1.0, 1)}, later)
    frontier.settle({frontier.ids[1]: ("measured", 1.5, 1)}, later + timedelta(minutes=1))
    with database.read() as session:
        assert session.get_one(Target, frontier.target_id).started_at == later


def test_a_report_looks_at_the_frontier_alone(sqlite_url: str, open_database: Callable[..., Database]) -> None:
    """The rows that a report reads do not grow with the candidates, unless a member got worse."""
    database = open_database(sqlite_url)
    frontier = Frontier(database, 300)
    # Everything but the first seven is dominated by them.
    news = {id_: ("measured", 1.0 if n < 7 else 5.0, 1 if n < 7 else 5) for n, id_ in enumerate(frontier.ids[:-1])}
    frontier.settle(news)  # type: ignore[arg-type]
    fetched = itertools.count()

    @event.listens_for(Candidate, "load")
    def loaded(*_: object) -> None:
        next(fetched)

    try:
        frontier.settle({frontier.ids[-1]: ("measured", 6.0, 6)})
        frontier.settle({frontier.ids[0]: ("measured", 0.5, 1)})
    finally:
        event.remove(Candidate, "load", loaded)
    assert next(fetched) <= 4
    frontier.check()


def test_no_frontier_while_the_stock_models_are_measured() -> None:
    baseline = Baseline([(1e6, 5.0, 1e6), (2e6, 9.0, 2e6)])
    summaries = {
        state: summary_of([], baseline, Target(state=state, proxy="decoder_parameters"), None)
        for state in ("baselines", "finished")
    }
    assert summaries["baselines"] == "No frontier yet: the baseline is measured before the search begins."
    assert summaries["finished"] == "No frontier: no searched model was measured within the limits."
