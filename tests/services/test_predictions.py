"""Predictions from what was measured, whichever job asked for it."""

from __future__ import annotations

from typing import Any

import pytest
from databases import ON_BOTH
from simulated_agent import CLASS, SimulatedAgent, by_work
from simulated_service import Service, request

from edgefront.core.architectures.catalogue import space
from edgefront.core.common.errors import ArchitectureError, Conflict, InvalidInput, NotFound
from edgefront.core.measurement.prediction.latency import LatencyPredictor
from edgefront.core.schemas.predictions import PredictionRequest, PredictionsView
from edgefront.core.services.prediction.estimates import estimate
from edgefront.core.services.prediction.fits import Fits
from edgefront.core.services.prediction.predictions import predict
from edgefront.core.services.search import snapshots

STOCK = space("lts-gpt2").baselines([2])[0]


def asked(**changes: Any) -> PredictionRequest:
    return PredictionRequest.model_validate({"device_class": CLASS, "architectures": [STOCK.canonical]} | changes)


def ask(service: Service, fits: Fits | None = None, **changes: Any) -> PredictionsView:
    return predict(service.database, service.user, asked(**changes), fits or Fits())


def rising(*values: float | None) -> None:
    assert all(value is not None and value > 0 for value in values)
    assert sorted(values) == list(values)  # type: ignore[type-var]


@pytest.fixture
def measured(service: Service) -> Service:
    """A service that has a finished job."""
    agent = SimulatedAgent(service.database, by_work)
    service.submit(request(budget={"refinement": 0.0}))
    service.run(agent)
    return service


@ON_BOTH
def test_latency_memory_quality_and_where_the_time_goes(measured: Service) -> None:
    found = ask(measured, architectures=[STOCK.canonical, "gpt2-small"])
    assert found.device == CLASS
    assert found.learnt_from == found.measurements == 3 + 10 + 8
    assert 0 < found.latency_error < 0.5
    for prediction in found.predictions:
        predicted = prediction.predicted
        rising(predicted.latency_low_ms, predicted.latency_ms, predicted.latency_high_ms)
        rising(prediction.weight_bytes, predicted.memory_low_bytes, predicted.memory_bytes, predicted.memory_high_bytes)
        rising(predicted.perplexity_low, predicted.perplexity, predicted.perplexity_high)
        assert (predicted.law, predicted.relative_to) == ("own-data-gpt2", "gpt2-small")
        assert sum(part.ms for part in prediction.parts) == pytest.approx(predicted.latency_ms)
        assert [part.block for part in prediction.parts] == [*range(len(prediction.parts) - 1), None]
    stock, large = found.predictions
    assert [part.kind for part in stock.parts] == ["attention", "feed_forward"] * 2 + ["ends"]
    assert large.measured is None
    assert large.beyond_measured
    assert large.predicted.latency_ms > stock.predicted.latency_ms  # type: ignore[operator]


def test_what_was_measured_stands_beside_its_prediction(measured: Service) -> None:
    narrowed = space("lts-gpt2").narrow({"n_layer": {"max": 3}, "d_model": [128, 192], "d_inner": {"max": 640}})
    (one,) = ask(measured, architectures=[narrowed.baselines([2])[0].canonical]).predictions
    assert one.measured is not None
    assert one.measured.launches == 3
    assert not one.beyond_measured
    assert one.predicted.latency_ms == pytest.approx(one.measured.latency_ms, rel=0.05)


def test_no_session_is_open_while_it_learns(measured: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    fit, held = LatencyPredictor.fit, []

    def watched(*given: Any, **more: Any) -> LatencyPredictor:
        held.append(measured.database.engine.pool.checkedout())  # type: ignore[attr-defined]
        return fit(*given, **more)

    monkeypatch.setattr(LatencyPredictor, "fit", watched)
    ask(measured)
    estimate(measured.database, measured.user, request(seed=8), Fits())
    assert held == [0, 0]


@pytest.mark.slow
def test_a_fit_is_kept_until_something_is_measured(measured: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    fits, read = Fits(), []
    of_device = snapshots.current_device_data
    monkeypatch.setattr(snapshots, "current_device_data", lambda *given: read.append(given) or of_device(*given))
    first = ask(measured, fits)
    assert ask(measured, fits) == first
    assert len(read) == 1
    measured.submit(request(seed=8))
    measured.run(SimulatedAgent(measured.database))
    assert ask(measured, fits).measurements > first.measurements
    assert len(read) == 2


@ON_BOTH
def test_too_little_known_says_what_would_do(service: Service) -> None:
    agent = SimulatedAgent(service.database)
    with pytest.raises(Conflict, match=r"has 0 measurements.*needs 3 different architectures") as nothing:
        ask(service, device=agent.name, device_class=None)
    assert (nothing.value.field, nothing.value.extra["value"]) == ("device", agent.name)
    service.submit(request(baseline_layers=[1, 2], budget={"candidates": 8, "refinement": 0.0}))
    service.run(agent)
    with pytest.raises(Conflict, match=f"or use device_class '{CLASS}', which has 10"):
        ask(service, device=agent.name, device_class=None)
    with pytest.raises(Conflict, match=r"forward pass of 192 tokens by onnxruntime on cpu.* \(10\)"):
        ask(service, protocol={"batch": 4})


@pytest.mark.parametrize(
    ("changes", "error", "field"),
    [
        ({"device_class": "fridge"}, NotFound, "device_class"),
        ({"architectures": ["gpt5"]}, NotFound, ""),
        ({"architectures": [STOCK.canonical, {"version": 1}]}, ArchitectureError, "architectures.1.d_model"),
        ({"protocol": {"mode": "decode"}, "architectures": ["bert-base"]}, InvalidInput, "architectures.0.mode"),
        ({"protocol": {"provider": "cuda"}}, InvalidInput, "protocol.provider"),
    ],
)
def test_what_is_wrong_is_named(measured: Service, changes: Any, error: type[Exception], field: str) -> None:
    with pytest.raises(error) as raised:
        ask(measured, **changes)
    assert raised.value.field == field  # type: ignore[attr-defined]
