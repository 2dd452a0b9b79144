"""Jobs that generate, on a simulated device: their times, limits on them, and who is given such launches."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from databases import ON_BOTH
from leasing import Leasing, done, facts
from simulated_agent import SimulatedAgent, by_generation
from simulated_service import GENERATE, Service, generation_request
from sqlalchemy import select

from edgefront.core.architectures.catalogue import space
from edgefront.core.common.errors import InvalidInput
from edgefront.core.measurement.passes import protocol_costs
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import GenerationSamples, LaunchResult
from edgefront.core.schemas.agent import DeviceFacts
from edgefront.core.schemas.jobs import Limits
from edgefront.core.services.fleet import devices
from edgefront.core.services.jobs.answers.candidates import CandidateFilter, list_candidates
from edgefront.core.services.jobs.answers.exports import export_rows
from edgefront.core.services.jobs.answers.frontier_view import frontier_view
from edgefront.core.services.measuring.decision import refusals
from edgefront.core.store.tables import Candidate, Measurement

PROTOCOL = MeasurementProtocol.model_validate(GENERATE)


@pytest.fixture
def agent(service: Service) -> SimulatedAgent:
    return SimulatedAgent(service.database, measure=by_generation)


def generated(latency_ms: float, energy: float | None = None) -> LaunchResult:
    made = GenerationSamples(
        first_token_ms=(latency_ms / 4,) * 5,
        token_ms=(latency_ms / 20,) * 5,
        total_ms=(latency_ms,) * 5,
        energy_token_mj=energy,
    )
    return done(latency_ms).model_copy(update={"generation": made})


def test_settling_takes_the_median_of_each_time_over_launches(leasing: Leasing) -> None:
    device = leasing.device(modes=["generate"])
    target = leasing.target(protocol=PROTOCOL)
    leasing.candidate(target, launches=3)
    results = (generated(10.0), generated(30.0, energy=4.0), generated(20.0, energy=6.0))
    leasing.report(device, *zip(leasing.claim(device).items, results, strict=True))
    for row in (*leasing.rows(Measurement), *leasing.rows(Candidate)):
        assert (row.latency_ms, row.first_token_ms, row.token_ms, row.total_ms) == (20.0, 5.0, 1.0, 20.0)
        assert (row.tokens_per_s, row.energy_token_mj) == (pytest.approx(1000.0), 5.0)


def test_a_report_has_times_if_and_only_if_its_launch_generates(leasing: Leasing) -> None:
    device = leasing.device(modes=["forward", "generate"])
    leasing.launches(1, leasing.target(protocol=PROTOCOL))
    item = leasing.claim(device).items[0]
    with pytest.raises(InvalidInput, match="must contain the times") as told:
        leasing.append(device, (item, done(3.0)))
    assert told.value.field == "reports.0.result.generation"
    leasing.append(device, (item, generated(3.0)))
    leasing.launches(1)
    item = leasing.claim(device).items[0]
    with pytest.raises(InvalidInput, match="omit the generations"):
        leasing.append(device, (item, generated(3.0)))
    leasing.report(device, (item, done(12.0)))
    row = next(row for row in leasing.rows(Candidate) if row.latency_ms == 12.0)
    assert (row.first_token_ms, row.token_ms, row.tokens_per_s) == (None, None, None)


@ON_BOTH
def test_an_agent_that_does_not_know_the_mode_is_given_no_such_launch(leasing: Leasing) -> None:
    device = leasing.device()
    leasing.launches(1, leasing.target(protocol=PROTOCOL))
    assert not leasing.claim(device).items
    newer = DeviceFacts.model_validate(facts(modes=["forward", "prefill", "decode", "generate"]))
    with leasing.write() as session:
        devices.update_facts(session, device, newer)
    assert len(leasing.claim(device).items) == 1


def test_what_no_agent_there_can_run_and_limits_on_no_times_are_refused(
    service: Service,
) -> None:
    old = SimulatedAgent(service.database, device_facts=DeviceFacts.model_validate(facts()))
    assert old.device_id
    with pytest.raises(InvalidInput) as told:
        service.submit(generation_request({"token_ms": 5.0}))
    assert told.value.field == "targets.0.protocol.mode"
    request = generation_request({"first_token_ms": 5.0})
    place = request.targets[0].model_copy(update={"protocol": MeasurementProtocol()})
    with pytest.raises(InvalidInput, match="mode forward generates no tokens") as told:
        service.submit(request.model_copy(update={"targets": (place,)}))
    assert told.value.field == "targets.0.limits.first_token_ms"


@pytest.mark.parametrize("latency", ["total", "token"])
def test_the_best_within_limits_on_two_times(service: Service, agent: SimulatedAgent, latency: str) -> None:
    """The search finds models within the limits on the latency and on the other time, and recommends such a one."""
    limits = {"first_token_ms": 0.63, "token_ms": 0.192}
    job = service.finish(agent, generation_request(limits, latency=latency))
    view = service.recommended(job)
    with service.database.read() as session:
        rows = session.scalars(select(Candidate).where(Candidate.role == "search")).all()
        assert all(row.latency_ms == getattr(row, f"{latency}_ms") for row in rows)
        for row in rows:
            beyond = row.first_token_ms > 0.63 or row.token_ms > 0.192  # type: ignore[operator]
            assert row.state == ("out_of_bounds" if beyond else "measured"), row.reason
            assert ("first token" in (row.reason or "")) == (row.first_token_ms > 0.63)  # type: ignore[operator]
        predicted = [row for row in rows if row.operator == "predicted"]
    assert predicted
    # Some are bets on the edge of a limit; without the limits they would be up to a tenth beyond.
    assert all(row.first_token_ms <= 1.03 * 0.63 and row.token_ms <= 1.03 * 0.192 for row in predicted)  # type: ignore[operator]
    assert view.recommended is not None
    assert view.recommended.first_token_ms is not None
    assert view.recommended.first_token_ms <= 0.63
    assert view.recommended.token_ms is not None
    assert view.recommended.token_ms <= 0.192
    assert view.download == "--format onnx-generate"
    assert "0.63 ms to the first and 0.192 ms a further token" in view.sentence


@ON_BOTH
def test_limits_may_be_asked_for_afterwards_and_all_times_exported(service: Service, agent: SimulatedAgent) -> None:
    job = service.finish(agent, generation_request({"memory_mb": 200.0}))
    with service.database.read() as session:
        page = list_candidates(session, service.user, job.id, CandidateFilter(role="search"))
        token_ms = sorted(item.token_ms or 0.0 for item in page.items)
        middle = token_ms[len(token_ms) // 2]
        filters = CandidateFilter(role="search", limits=Limits(token_ms=middle))
        kept = list_candidates(session, service.user, job.id, filters).items
        frontier = frontier_view(session, service.user, job.id, limits=Limits(token_ms=middle))
    assert kept
    assert all(candidate.token_ms <= middle for candidate in kept)
    assert all(point.token_ms <= middle for point in frontier.points)  # type: ignore[operator]
    assert (service.recommended(job, max_token_ms=middle).recommended or kept[0]).token_ms <= middle  # type: ignore[operator]
    nothing = service.recommended(job, max_token_ms=token_ms[0] / 1000)
    assert nothing.recommended is None
    assert [move.limit for move in nothing.moves] == ["token_ms"]
    assert "raise the further-token limit" in nothing.sentence
    with service.database.read() as session:
        rows = list(export_rows(session, service.user, job.id))
        views = list_candidates(session, service.user, job.id).items
    for row, view in zip(rows, views, strict=True):
        assert row["tokens_per_s"] == view.tokens_per_s == pytest.approx(1000 / row["token_ms"])
        for time in ("first_token", "token"):
            assert row[f"{time}_ms"] == getattr(view, f"{time}_ms")
            assert row[f"{time}_half_width_ms"] == getattr(view, f"{time}_half_width_ms") > 0
        assert row["energy_token_mj"] == view.energy_token_mj == pytest.approx(2.5 * row["token_ms"])


PARTS: tuple[dict[str, Any], ...] = ({"mode": "prefill", "new_tokens": 0}, {})


@pytest.mark.parametrize("latency", ["total", "first_token", "token"])
def test_only_the_part_that_is_the_latency_is_held_against_the_device(latency: str) -> None:
    """A further token takes the time of one pass: at the speed of a whole generation it would be impossible."""
    protocol = MeasurementProtocol.model_validate({**GENERATE, "latency": latency})
    (architecture,) = space("lts-gpt2").baselines([2])
    costs = protocol_costs(architecture, protocol)
    prompt, whole = (protocol_costs(architecture, PROTOCOL.model_copy(update=part)).flops for part in PARTS)
    work = {"total": whole, "first_token": prompt, "token": (whole - prompt) / 15}[latency]
    counted = SimpleNamespace(
        translates=False, flops=costs.flops, weight_bytes=costs.weight_bytes,
        decoder_parameters=costs.decoder_parameters, total_parameters=costs.total_parameters,
    )  # fmt: skip
    begun = datetime(2026, 1, 1, tzinfo=timezone.utc)
    device = SimpleNamespace(facts={"cores": 1, "extra": {"core_gflops": 40.0}})  # 160 at most

    def refused(speed: float) -> bool:
        result = done(work / speed * 1e3, 2 * costs.weight_bytes)
        launch = SimpleNamespace(
            id="lau_1", measurement_id="mea_1", holder="dev_1", result=result, started_at=None,
            created_at=begun, reported_at=begun + timedelta(minutes=1), protocol=protocol,
            architecture=json.dumps(architecture.canonical),
        )  # fmt: skip
        return bool(refusals([launch], {"mea_1": counted}, {"dev_1": device}))

    assert not refused(40e9)
    assert refused(400e9)
