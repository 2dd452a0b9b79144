"""Prometheus metrics: requests, and the service's state at the time of the scrape.

Labels have a limited set of values: route templates, HTTP methods, states, devices. So a training's own curves are not
among them: TensorBoard has those (`core.training.tensorboard`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from edgefront.core.services.fleet.overview import Overview

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """One registry per application, so that a process can have several (in tests)."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "edgefront_http_requests", "Requests answered", ("method", "route", "status"), registry=self.registry
        )
        self._seconds = Histogram(
            "edgefront_http_request_seconds",
            "Time to the first byte of the answer, without the waiting of long polls",
            ("route",),
            buckets=_SECONDS,
            registry=self.registry,
        )
        self.lease_wait = Histogram(
            "edgefront_lease_wait_seconds",
            "Time that lease requests waited for work",
            buckets=(0.05, 0.25, 1, 5, 15, 30, 60),
            registry=self.registry,
        )
        self.leased = Counter("edgefront_launches_leased", "Launches leased", registry=self.registry)
        self.reports = Counter(
            "edgefront_reports", "Reports of launches by outcome", ("outcome",), registry=self.registry
        )
        self.events = Counter("edgefront_events_sent", "Events sent to readers of streams", registry=self.registry)

    def watch(self, waiting: Callable[[], float], readers: Callable[[], float]) -> None:
        """Adds gauges of open long polls and event streams."""
        for name, text, value in (
            ("edgefront_lease_requests_waiting", "Lease requests that wait for work", waiting),
            ("edgefront_event_streams", "Open event streams", readers),
        ):
            Gauge(name, text, registry=self.registry).set_function(value)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method if method in _METHODS else "other", route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self, overview: Overview | None) -> bytes:
        """The exposition text. Without `overview` (the database is unavailable) only the process's own metrics."""
        state = CollectorRegistry()
        state.register(_State(overview))
        return bytes(generate_latest(self.registry)) + bytes(generate_latest(state))


class _State(Collector):
    def __init__(self, overview: Overview | None) -> None:
        self._overview = overview

    def collect(self) -> Iterable[Any]:
        up = GaugeMetricFamily("edgefront_database_up", "1 if the database answers")
        up.add_metric((), float(self._overview is not None))
        yield up
        if self._overview is None:
            return
        state = self._overview
        speed = "Tokens a second of all running trainings together, by their last reports"
        for name, text, label, values in (
            ("jobs", "Jobs by state", "state", state.jobs),
            ("targets", "Targets by state", "state", state.targets),
            ("launches_open", "Launches that are requested or leased", "state", state.launches),
            ("devices", "Devices by state", "state", state.devices),
            ("trainings", "Trainings by state", "state", state.trainings),
            ("training_tokens_per_second", speed, "device", state.training_tokens_per_s),
        ):
            family = GaugeMetricFamily(f"edgefront_{name}", text, labels=(label,))
            for key, value in values.items():
                family.add_metric((key,), value)
            yield family
        for name, text, value in (
            ("devices_online", "Devices seen within the last minute", state.devices_online),
            ("settling_lag_seconds", "Age of the oldest report that is not settled yet", state.settling_lag_s),
            ("reports_waiting", "Reports that are not settled yet", state.reports_waiting),
            ("training_wait_seconds", "Time since the oldest queued training was submitted", state.trainings_wait_s),
        ):
            family = GaugeMetricFamily(f"edgefront_{name}", text)
            family.add_metric((), value)
            yield family
