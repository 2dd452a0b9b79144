"""Prometheus metrics: counts and durations of requests, and the service's state at the time of the scrape.

Labels have few values: route templates, HTTP methods, states, devices. Curves of trainings are not metrics but
TensorBoard files (`core.training.run_folder`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric, generate_latest

from edgefront.core.services.fleet.overview import StateGauge

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """Prometheus metrics of one application, in a separate registry, so that tests can run several applications."""

    def __init__(self, *, share_port: bool = False) -> None:
        self._labels = {"process": str(os.getpid())} if share_port else {}
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
        """Adds gauges that call `waiting` (open long polls) and `readers` (open event streams)."""
        for name, text, value in (
            ("edgefront_lease_requests_waiting", "Lease requests that wait for work", waiting),
            ("edgefront_event_streams", "Open event streams", readers),
        ):
            Gauge(name, text, registry=self.registry).set_function(value)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        self._requests.labels(method if method in _METHODS else "other", route, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self, state: Sequence[StateGauge] | None, *, broker: bool, artifacts: Path) -> bytes:
        """Returns the metrics as Prometheus text; without `state` (no database) only this process's metrics.

        `broker`: whether the broker answers. `artifacts`: the folder whose disk is watched.
        """
        registry = CollectorRegistry()
        Gauge("edgefront_database_up", "1 if the database answers", registry=registry).set(state is not None)
        Gauge("edgefront_broker_up", "1 if the broker answers", registry=registry).set(broker)
        folder = next(folder for folder in (artifacts, *artifacts.absolute().parents) if folder.exists())
        free = Gauge("edgefront_artifacts_free_bytes", "Bytes left on the disk of artifacts", registry=registry)
        free.set(shutil.disk_usage(folder).free)
        for name, meaning, label, values in state or ():
            gauge = Gauge(f"edgefront_{name}", meaning, [label] if label else [], registry=registry)
            for key, value in values.items():
                (gauge.labels(key) if label else gauge).set(value)
        return bytes(generate_latest(self)) + bytes(generate_latest(registry))

    def collect(self) -> Iterator[Metric]:
        """Returns this process's metrics, labelled with the process if several share a port."""
        for metric in self.registry.collect():
            if self._labels:
                metric.samples = [
                    sample._replace(labels={**sample.labels, **self._labels}) for sample in metric.samples
                ]
            yield metric
