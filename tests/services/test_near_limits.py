"""What one launch decided near a limit is decided again by all launches, or said to be uncertain."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from databases import ON_BOTH
from simulated_agent import CLASS, SimulatedAgent, by_generation, by_work, done, facts
from simulated_service import Service
from sqlalchemy import select

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.catalogue import space
from edgefront.core.common.units import rounded
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.schemas.jobs import JobRequest
from edgefront.core.services.jobs import job_views
from edgefront.core.store.tables import Candidate, Launch, Measurement

SPACE = {"name": "lts-gpt2", "narrow": {"n_layer": {"max": 6}, "d_model": [256], "d_inner": {"max": 1024}}}


def searching(latency_ms: float, **changes: Any) -> JobRequest:
    value = {
        "goal": "best_within_limits",
        "space": SPACE,
        "targets": [{"device_class": CLASS, "limits": {"latency_ms": latency_ms}}],
        "algorithm": {"settings": {"initial": 4, "batch": 2, "population": 50, "steps": 2}},
        "budget": {"candidates": 8, "refinement": 1.0},
        "seed": 7,
    }
    return JobRequest.model_validate(value | changes)


def stock_times(service: Service) -> dict[int, float]:
    """Layers → latency of the measured stock models."""
    with service.database.read() as session:
        rows = session.scalars(select(Candidate).where(Candidate.role == "baseline")).all()
        return {len(row.architecture["blocks"]) // 2: float(row.latency_ms or 0) for row in rows}


def scattered(decides: Callable[[Architecture, MeasurementProtocol], bool], first: float) -> Any:
    """A device on which the first launch of some models takes `first` times as long as all others."""

    def measure(architecture: Architecture, protocol: MeasurementProtocol, before: int) -> LaunchResult:
        result = by_work(architecture, protocol, before)
        assert result.latency is not None
        assert result.memory is not None
        factor = first if before == 0 and decides(architecture, protocol) else 1.0
        return done(factor * result.latency.samples_ms[0], result.memory.peak_bytes)

    return measure


@ON_BOTH
def test_a_depth_that_a_second_launch_moves_beyond_the_limit_gives_way_to_the_largest_within(service: Service) -> None:
    depths = space("lts-gpt2").narrow(SPACE["narrow"]).baselines()
    four = depths[3]
    exact = by_work(four, MeasurementProtocol(), 0).latency
    assert exact is not None
    limit = 0.975 * exact.samples_ms[0]
    agent = SimulatedAgent(service.database, scattered(lambda architecture, _: architecture == four, 0.97))
    view = service.recommended(service.finish(agent, searching(limit)))
    times = stock_times(service)
    assert {3, 4, 5} <= times.keys()
    assert times[3] <= limit < times[4]
    assert view.baseline is not None
    assert view.baseline.digest == depths[2].digest
    assert "not measured" not in view.sentence


def test_answer_and_baseline_are_launched_again_beside_each_other(service: Service) -> None:
    """Another job measured both an hour ago, when the device was slower."""
    slower = [1.2]

    def measure(architecture: Architecture, protocol: MeasurementProtocol, before: int) -> LaunchResult:
        return scattered(lambda *_: True, slower[0])(architecture, protocol, 0)

    agent = SimulatedAgent(service.database, measure)
    service.finish(agent, searching(1e6))
    hour = timedelta(hours=1)
    with service.database.write() as session:
        for launch in session.scalars(select(Launch)):
            launch.finished_at = None if launch.finished_at is None else launch.finished_at - hour
        for measured in session.scalars(select(Measurement)):
            measured.measured_at = None if measured.measured_at is None else measured.measured_at - hour
    slower[0] = 1.0
    view = service.recommended(service.finish(agent, searching(1e6)))
    for candidate in (view.recommended, view.baseline):
        assert candidate is not None
        exact = by_work(Architecture.parse(candidate.architecture), MeasurementProtocol(), 0).latency
        assert exact is not None
        assert candidate.launches == 2
        assert candidate.latency_ms == pytest.approx(exact.samples_ms[0])


def test_a_depth_that_was_not_measured_is_said_to_be_predicted_within(service: Service) -> None:
    agent = SimulatedAgent(service.database, by_work)
    job = service.finish(agent, searching(1e6))
    times = stock_times(service)
    assert 3 not in times
    slope = (times[5] - times[1]) / 4
    view = service.recommended(job, max_latency_ms=times[1] + 2.5 * slope)
    assert "The baseline with 3 layers, not measured, is predicted to be within them." in view.sentence


GENERATION = {"mode": "generate", "sequence_length": 64, "new_tokens": 8}


def choosing(targets: list[dict[str, Any]], formats: list[str] | None = None, refinement: float = 0.5) -> JobRequest:
    variants = {"runtimes": ["onnxruntime"], "formats": formats or ["f32"]}
    value = {
        "goal": "best_within_limits",
        "space": {"published": {"score": "obsscaling_base:HellaSwag"}},
        "targets": [{"protocol": GENERATION, "variants": variants, **target} for target in targets],
        "budget": {"refinement": refinement},
    }
    return JobRequest.model_validate(value)


def board(service: Service, measure: Any = None, device_class: str = CLASS) -> SimulatedAgent:
    own = facts(memory_bytes=64 << 30, numbers=("float32", "int8"))
    return SimulatedAgent(service.database, measure, device_class=device_class, device_facts=own)


@pytest.mark.parametrize(
    ("slower", "words"), [(1.07, "43 ± 3 ms a further token, one launch, at the limit"), (1.4, "40 % beyond")]
)
def test_a_model_just_beyond_the_limit_gets_a_second_launch_and_may_be_the_answer(
    service: Service, slower: float, words: str
) -> None:
    limit = {"token_ms": 40.0, "memory_mb": 1500.0}
    true = service.chosen(service.finish(board(service), choosing([{"device_class": CLASS, "limits": limit}])))
    assert true.recommended is not None
    best, limit["token_ms"] = true.recommended, 40.0
    assert best.candidate.token_ms is not None

    def disturbed(architecture: Architecture, protocol: MeasurementProtocol, before: int) -> LaunchResult:
        first = before == 0 and architecture.digest == best.candidate.digest
        factor = slower * 40.0 / best.candidate.token_ms if first else 1.0  # type: ignore[operator]
        return by_generation(architecture, protocol, before, factor)

    agent = board(service, disturbed, "another board")
    once = service.finish(agent, choosing([{"device_class": "another board", "limits": limit}], refinement=0.0))
    view = service.chosen(once)
    assert view.recommended is not None
    assert view.recommended.model != best.model
    assert f"{best.model} f32 onnxruntime: " in view.sentence
    assert words in view.sentence
    other = board(service, disturbed, "third board")
    again = service.chosen(service.finish(other, choosing([{"device_class": "third board", "limits": limit}])))
    assert again.recommended is not None
    assert again.recommended.model == best.model
    assert again.recommended.candidate.launches >= 2
    assert best.model not in again.sentence.partition("not within the limits")[2]


def test_each_device_of_a_published_job_has_its_own_limits_and_answer(service: Service) -> None:
    phone = board(service, device_class="phone")
    workstation = board(service, device_class="workstation")
    targets = [
        {"device_class": "workstation", "limits": {"token_ms": 100.0}},
        {"device_class": "phone", "limits": {"token_ms": 20.0}},
    ]
    job = service.submit(choosing(targets, ["int8", "f32"]))
    for _ in range(4):
        service.run(workstation)
        service.run(phone)
    job = service.get(job.id)
    assert job.state == "finished"
    view = service.chosen(job)
    assert [each.device for each in view.every] == ["workstation", "phone"]
    assert [each.limits.token_ms for each in view.every] == [100.0, 20.0]
    for each in view.every:
        assert each.recommended is not None
        assert each.recommended.candidate.token_ms is not None
        assert each.recommended.candidate.token_ms <= (each.limits.token_ms or 0)
        assert each.sentence.startswith(f"{each.device}: Within {each.limits.token_ms:g} ms a further token")
        alone = service.chosen(
            service.finish(
                workstation if each.device == "workstation" else phone,
                choosing(
                    [{"device_class": each.device, "limits": {"token_ms": each.limits.token_ms}}], ["int8", "f32"]
                ),
            ),
        )
        assert alone.recommended is not None
        assert (alone.recommended.model, alone.recommended.weights) == (
            each.recommended.model,
            each.recommended.weights,
        )
        assert {"device", "elsewhere"}.isdisjoint(alone.model_dump())
    answers = {target.device: target.answer for target in job.targets if target.answer}
    assert answers.keys() == {"workstation", "phone"}


def test_a_model_that_left_the_catalogue_is_named_and_takes_no_list_down(service: Service) -> None:
    job = service.finish(board(service), choosing([{"device_class": CLASS, "limits": {"token_ms": 60.0}}]))
    best = service.chosen(job).recommended
    assert best is not None
    with service.database.write() as session:
        for row in session.scalars(select(Candidate).where(Candidate.digest == best.candidate.digest)):
            row.genome = {"model": "somebody/left"}
    job_views._kept.clear()
    view = service.chosen(job)
    assert view.recommended is not None
    assert view.recommended.model != best.model
    assert "somebody/left" in view.note
    assert "somebody/left" in service.get(job.id).targets[0].answer


@pytest.mark.parametrize(
    ("value", "digits", "text"),
    [(1000.4, 3, "1000"), (12345.6, 4, "12350"), (2.9e9, 3, "2900000000"), (0.01234, 2, "0.012"), (42.8, 3, "42.8")],
)
def test_figures_are_written_without_exponents(value: float, digits: int, text: str) -> None:
    assert rounded(value, digits) == text
