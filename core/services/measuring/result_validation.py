"""Which results of done launches count: those that are far off wait for a second launch that agrees.

Part of result processing, in its transaction: one `ResultValidator` serves a batch of reports and reads what it needs
when it is first asked for.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Literal

from sqlalchemy.orm import Session

from edgefront.core.measurement import agreement as rules
from edgefront.core.measurement.protocol import LATENCY_NAMES
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.measurement.statistics import LaunchVariance, half_width_ms, median
from edgefront.core.services.fleet.capability import can_run
from edgefront.core.services.fleet.device_keys import key_of_device
from edgefront.core.services.fleet.online import ONLINE
from edgefront.core.services.measuring.queries import measurements as rows
from edgefront.core.services.measuring.queries import validation
from edgefront.core.services.measuring.queries.launches import ReportedLaunch
from edgefront.core.states import LaunchState, MeasurementState, Purpose
from edgefront.core.store.sql import Document
from edgefront.core.store.tables import Launch, Measurement
from edgefront.core.units import MB

MAX_WAITED_FOR = 2
"""Devices that were asked for a launch of one measurement and did not make it in time; then no further one is asked."""
MAX_CONFIRMATIONS = 6
"""Further launches to confirm one measurement; if they do not agree either, it has failed."""
MAX_IMPLAUSIBLE = 3
"""Implausible results of one measurement; then it has failed, unless another device can make it."""
MAX_EXCUSED, EXCUSED_WITHIN = 3, timedelta(days=1)
"""So many results of a device that contradict others may be put down to bad conditions within this time."""
MAX_BY_LOAD = math.log(4.0)
"""Logarithm of the factor by which bad conditions may slow a launch down if nothing else speaks for the faster one."""
BASELINE_OF_ONE = "unconfirmed: one device has measured this baseline, and another of its class is to measure it too"
OF_QUARANTINED = "set aside: its device is in quarantine, and others have measured this"
AUDITED_FROM = 4
"""Degrees of freedom from which an interval is one that a further launch can be held against."""


@dataclass
class _Peers:
    """What was measured on a device with a protocol, without what is processed now."""

    measured: Sequence[validation.Peer]

    @cached_property
    def latency(self) -> rules.PeerFit | None:
        return rules.latency_fit([(peer.flops, peer.latency_ms) for peer in self.measured])

    @cached_property
    def times(self) -> list[rules.PeerFit | None]:
        """Fits of the time to the first token, and of each further one."""
        made = [(peer.flops, peer.times) for peer in self.measured if peer.times]
        return [rules.latency_fit([(flops, times[i]) for flops, times in made]) for i in range(len(rules.TIMES))]

    @cached_property
    def memory(self) -> rules.PeerFit | None:
        return rules.memory_fit([(peer.weight_bytes, peer.memory_bytes) for peer in self.measured])


@dataclass
class ResultValidator:
    """Decides which launches of a batch count, and what their measurements need."""

    session: Session
    now: datetime
    subjects: Mapping[str, validation.Subject]
    devices: Mapping[str, validation.ReportingDevice]
    caught: dict[str, str] = field(default_factory=dict)
    """Device id → what it was caught at."""
    audits: dict[str, list[int]] = field(default_factory=dict)
    """Device id → repeats of what was measured before, and those within the interval known before."""
    unlikely_ends: set[str] = field(default_factory=set)
    """Infeasible launches of models that take less than others that were measured there."""
    _variances: dict[tuple[str, str], LaunchVariance] = field(default_factory=dict)
    _peers: dict[tuple[str, str, frozenset[str]], _Peers] = field(default_factory=dict)
    _online: dict[str, Sequence[validation.AbleDevice]] = field(default_factory=dict)
    """Device key → the devices that could measure now."""
    _tried: dict[str, dict[str, datetime]] = field(default_factory=dict)
    _waited_for: dict[str, int] = field(default_factory=dict)

    def validate(
        self, measurement: Measurement, done: Sequence[validation.DoneLaunch], fresh: set[str]
    ) -> tuple[list[LaunchResult], str | None]:
        """The results that count, and why the measurement is not confirmed (None if it is).

        Args:
            measurement: as it stood before. done: its done launches (`validation.done_launches`), oldest first.
            fresh: ids of those that have come since.

        Launches that contradict the others are set aside, and their devices are `caught`. Those of devices in
        quarantine are set aside where there are others.
        """
        done = self._without_quarantined(done)
        figures = [rules.figures_of(launch.device_id, launch.result) for launch in done]
        variance = self._variance(measurement)
        if measurement.state == MeasurementState.MEASURED:
            new = [figure for launch, figure in zip(done, figures, strict=True) if launch.id in fresh]
            self._audit(measurement, variance, new)
        tolerance = rules.apart(variance)
        results = [launch.result for launch in done]
        if done[0].in_quarantine and measurement.state != MeasurementState.MEASURED:
            shown = ", ".join(f"{figure.latency_ms:.4g} ms" for figure in figures)
            return results, f"unconfirmed: {shown}, from a device in quarantine"
        if len(done) == 1:
            outlier_reason = self._outlier_reason(measurement, figures[0])
            return results, outlier_reason or self._baseline_reason(measurement)
        agreed, is_proof = self._agreement(measurement, done, figures, tolerance)
        if not agreed.agreeing:
            shown = ", ".join(_shown(figure) for figure in figures)
            return results, f"unconfirmed: its {len(done)} launches do not agree: {shown}"
        makers = [row.device_id for row in done]
        honest = rules.voting(agreed.agreeing, makers)
        middle = _middle(figures, agreed.agreeing)
        beside = [done[index].result for index in agreed.agreeing]
        aside = agreed.outliers if len(set(makers)) > 1 else frozenset()
        for index in sorted(aside):
            row = done[index]
            if row.device_id in honest:
                validation.set_aside(
                    self.session, row.id, f"set aside: {_shown(figures[index])}, and others {_shown(middle)}"
                )
                continue
            why = f"{validation.DISBELIEVED}{_shown(figures[index])}, where other devices measured {_shown(middle)}"
            validation.set_aside(self.session, row.id, why)
            # Devices of one class may differ by less.
            if not is_proof or rules.agree_but_for_times(figures[index], middle, rules.MAX_APART):
                continue
            if not (
                _is_explained_by_load(figures[index], row.result, middle, beside) and self._is_excused(row.device_id)
            ):
                self.caught.setdefault(row.device_id, f"launch {row.id} is {why}")
        kept = [row.result for index, row in enumerate(done) if index not in aside]
        if len(honest) > 1:
            return kept, None
        if measurement.state != MeasurementState.MEASURED and not aside:
            outlier_reason = self._outlier_reason(measurement, middle)
            if outlier_reason is not None and self.other_device(measurement) is not None:
                return kept, outlier_reason
        return kept, self._baseline_reason(measurement)

    def other_device(self, measurement: Measurement, *, seen_since: bool = False) -> str | None:
        """The first of `other_devices`."""
        return next(iter(self.other_devices(measurement, seen_since=seen_since)), None)

    def other_devices(self, measurement: Measurement, *, seen_since: bool = False) -> list[str]:
        """Devices of the measurement's class that can measure it now, and have not yet, nor failed to: those that had a
        result last come first, and those that never had one count only where there are no others. None where
        `MAX_WAITED_FOR` were asked in vain.

        `seen_since`: only those that were seen since the newest of its devices enrolled: for a minute one that was
        replaced still looks online, and what nobody doubts should not wait for it.
        """
        subject = self.subjects[measurement.id]
        protocol = subject.protocol
        if protocol is None:
            return []
        if measurement.id not in self._tried:
            self.look_up([measurement.id])
        tried = self._tried[measurement.id]
        if self._waited_for[measurement.id] >= MAX_WAITED_FOR:
            return []
        since = max([self.now - ONLINE, *(tried.values() if seen_since else ())])
        key = measurement.device_key
        if key not in self._online:
            self._online[key] = validation.able_devices(self.session, key, self.now - ONLINE)
        able = [
            device
            for device in self._online[key]
            if device.last_seen_at > since
            and device.id not in tried
            and device.id not in self.caught
            and can_run(device.facts, protocol)
        ]
        return [str(device.id) for device in able if device.reported_at is not None] or [
            str(device.id) for device in able
        ]

    def look_up(self, measurement_ids: Collection[str]) -> None:
        """Reads at once which devices have tried these, for `other_devices`."""
        self._tried |= validation.tried_on(self.session, measurement_ids)
        waited_for = validation.waited_for(self.session, measurement_ids)
        self._waited_for |= {id_: waited_for.get(id_, 0) for id_ in measurement_ids}

    def confirm(self, measurement: Measurement, target_id: str | None) -> bool:
        """Makes sure that a further launch of an unconfirmed measurement comes; False if there were enough.

        It is for another device of the class where one is online, else for whichever comes first.
        """
        if validation.has_live(self.session, measurement.id):
            return True
        if self._confirmations(measurement) >= MAX_CONFIRMATIONS:
            return False
        other = self.other_device(measurement, seen_since=True) or self.other_device(measurement)
        key = measurement.device_key if other is None else key_of_device(other)
        validation.add_launch(self.session, measurement.id, target_id, key, Purpose.CONFIRM, self.now)
        return True

    def replace(self, measurement: Measurement, launch: ReportedLaunch) -> bool:
        """Makes sure that an implausible launch is made again; False if there were enough of them."""
        if validation.has_live(self.session, measurement.id):
            return True
        made = validation.count_of(self.session, measurement.id, Launch.state == LaunchState.IMPLAUSIBLE)
        if made >= MAX_IMPLAUSIBLE and self.other_device(measurement) is None:
            return False
        validation.add_launch(
            self.session, measurement.id, launch.target_id, measurement.device_key, launch.purpose, self.now
        )
        return True

    def is_final(self, measurement: Measurement, launch_id: str, end: LaunchState, reason: str) -> bool:
        """Whether that a launch was infeasible or failed for the last time holds for its measurement.

        Where another device can measure it, two have to say so. If it takes less than others that were measured there,
        two launches have to be infeasible in any case.
        """
        if len(validation.ended_badly(self.session, [measurement.id]).get(measurement.id, ())) > 1:
            return True
        if end == LaunchState.INFEASIBLE and self._is_small(measurement, reason):
            if validation.count_of(self.session, measurement.id, Launch.state == LaunchState.INFEASIBLE) > 1:
                return True
            self.unlikely_ends.add(launch_id)
            return False
        return self.other_device(measurement) is None

    def _is_small(self, measurement: Measurement, reason: str) -> bool:
        """Whether it certainly takes less than others that were measured there."""
        expected, peers = self._expected(measurement), self._peers_of(measurement).measured
        if expected is None or not peers:
            return False
        if reason == "out_of_memory":
            most: float = max(peer.memory_bytes for peer in peers)
            return expected.memory is not None and expected.memory.is_below(most)
        return expected.latency is not None and expected.latency.is_below(max(peer.latency_ms for peer in peers))

    def _without_quarantined(self, done: Sequence[validation.DoneLaunch]) -> Sequence[validation.DoneLaunch]:
        others = [row for row in done if not row.in_quarantine]
        if others and len(others) < len(done):
            for row in done:
                if row.in_quarantine:
                    validation.set_aside(self.session, row.id, OF_QUARANTINED)
        return others or done

    def _confirmations(self, measurement: Measurement) -> int:
        made = Launch.purpose == Purpose.CONFIRM, Launch.state != LaunchState.CANCELLED
        return validation.count_of(self.session, measurement.id, *made)

    def _agreement(
        self,
        measurement: Measurement,
        done: Sequence[validation.DoneLaunch],
        figures: Sequence[rules.LaunchFigures],
        tolerance: float,
    ) -> tuple[rules.Agreement, bool]:
        """Which launches to believe, and whether that proves the others wrong. None where they do not agree, and where
        devices contradict each other and a further one, which could change it, can be asked.
        """
        devices = frozenset(row.device_id for row in done)
        agreed = rules.agreement(figures, tolerance if len(devices) == 1 else min(tolerance, rules.DEVICES_APART))
        if len(devices) == 1 or (agreed.agreeing and not agreed.is_disputed):
            return agreed, True
        if self.other_device(measurement) is not None:
            return rules.Agreement(frozenset(), frozenset()), False
        if not agreed.agreeing:
            agreed = rules.agreement(figures, rules.MAX_APART)
        return (agreed, True) if agreed.agreeing else self._decided(measurement, done, figures, devices)

    def _decided(
        self,
        measurement: Measurement,
        done: Sequence[validation.DoneLaunch],
        figures: Sequence[rules.LaunchFigures],
        devices: frozenset[str],
    ) -> tuple[rules.Agreement, bool]:
        """Does what `_agreement` does for devices that contradict each other, without a majority or a further device.

        What these devices measured themselves proves nothing: the first of a class may be wrong in all that it reports.
        It serves only where the launches far from it report bad conditions, which explain that.
        """
        undecided = rules.Agreement(frozenset(), frozenset()), False
        independent = self._expected_by(measurement, self._peers_of(measurement, devices))
        expected = independent or self._expected(measurement)
        near = {
            i
            for i, launch_figures in enumerate(figures)
            if expected is not None and expected.outlier_reason(launch_figures) is None
        }
        if not near or {done[index].device_id for index in near} == devices:
            return undecided
        agreed = rules.Agreement(frozenset(near), frozenset(range(len(done))) - near)
        if independent is None:
            middle, beside = _middle(figures, near), [done[index].result for index in near]
            for i in agreed.outliers:
                far = abs(math.log(figures[i].latency_ms / middle.latency_ms)) > MAX_BY_LOAD
                if far or not _is_explained_by_load(figures[i], done[i].result, middle, beside):
                    return undecided
        return agreed, independent is not None

    def _is_excused(self, device_id: str) -> bool:
        """Whether bad conditions may explain one result more of this device, just set aside: a device that always
        reports them would never be caught.
        """
        return validation.count_disbelieved(self.session, device_id, self.now - EXCUSED_WITHIN) <= MAX_EXCUSED

    def _baseline_reason(self, measurement: Measurement) -> str | None:
        """A job's comparisons all divide by its baselines: where the class has two devices, both measure them. What is
        believed already, and may have been shared, is not taken back.
        """
        if (
            measurement.state == MeasurementState.MEASURED
            or not self.subjects[measurement.id].is_baseline
            or self.other_device(measurement, seen_since=True) is None
        ):
            return None
        if self._confirmations(measurement) >= MAX_CONFIRMATIONS:
            return None
        return BASELINE_OF_ONE

    def _outlier_reason(self, measurement: Measurement, launch_figures: rules.LaunchFigures) -> str | None:
        """Why what one device says needs another launch."""
        expected = self._expected(measurement)
        outlier_reason = None if expected is None else expected.outlier_reason(launch_figures)
        return outlier_reason or self._outlier_time_reason(measurement, launch_figures)

    def _expected(self, measurement: Measurement) -> rules.Expectation | None:
        """What the predictors expect where they have predicted this one, else in proportion to what others took."""
        said = self.subjects[measurement.id].predicted or {}
        latency, memory = _predicted(said, "latency", "ms"), _predicted(said, "memory", "bytes")
        by_peers = None
        if latency is None or memory is None:
            by_peers = self._expected_by(measurement, self._peers_of(measurement))
        if by_peers is None:
            by_peers = rules.Expectation(None, None)
        expectation = rules.Expectation(latency or by_peers.latency, memory or by_peers.memory)
        return expectation if expectation.is_known else None

    def _expected_by(self, measurement: Measurement, peers: _Peers) -> rules.Expectation | None:
        """Expectation in proportion to what these took."""
        subject, latency, memory = self.subjects[measurement.id], peers.latency, peers.memory
        expectation = rules.Expectation(
            None if latency is None else latency.expected(float(subject.flops or 0)),
            None if memory is None else memory.expected(float(subject.weight_bytes or 0)),
        )
        return expectation if expectation.is_known else None

    def _peers_of(self, measurement: Measurement, but_devices: frozenset[str] = frozenset()) -> _Peers:
        key = measurement.device_key, measurement.protocol_digest, but_devices
        if key not in self._peers:
            peers = validation.peers(self.session, *key[:2], but=self.subjects.keys(), but_devices=but_devices)
            self._peers[key] = _Peers(peers)
        return self._peers[key]

    def _variance(self, measurement: Measurement) -> LaunchVariance:
        place = (measurement.device_key, measurement.protocol_digest)
        if place not in self._variances:
            self._variances[place] = rows.launch_variance(self.session, *place)
        return self._variances[place]

    def _audit(self, measurement: Measurement, variance: LaunchVariance, fresh: Sequence[rules.LaunchFigures]) -> None:
        """Holds further launches against the interval known before them, of one launch more."""
        mean_ms = measurement.latency_ms
        if mean_ms is None or variance.degrees < AUDITED_FROM:
            return
        of_mean, of_one = (half_width_ms(mean_ms, count, variance) or 0.0 for count in (measurement.launches, 1))
        for launch_figures in fresh:
            if launch_figures.device is not None:
                counts = self.audits.setdefault(launch_figures.device, [0, 0])
                counts[0] += 1
                counts[1] += abs(launch_figures.latency_ms - mean_ms) <= (of_mean**2 + of_one**2) ** 0.5

    def _outlier_time_reason(self, measurement: Measurement, launch_figures: rules.LaunchFigures) -> str | None:
        """Whether a time of a generation is far from what others there took, though its latency is not."""
        if not launch_figures.times:
            return None
        flops = float(self.subjects[measurement.id].flops or 0)
        for fit, value, name in zip(self._peers_of(measurement).times, launch_figures.times, rules.TIMES, strict=True):
            expected = None if fit is None else fit.expected(flops)
            outlier_reason = None if expected is None else expected.outlier_reason(value)
            if outlier_reason is not None:
                return f"{outlier_reason}: its {LATENCY_NAMES[name]}"
        return None


def _predicted(said: Document, name: Literal["latency", "memory"], unit: str) -> rules.Expected | None:
    value, low, high = (said.get(f"{name}_{part}{unit}") for part in ("", "low_", "high_"))
    return rules.from_prediction(name, value, low, high) if value and low and high else None


def _is_explained_by_load(
    outlier: rules.LaunchFigures, result: LaunchResult, middle: rules.LaunchFigures, beside: Sequence[LaunchResult]
) -> bool:
    """Whether bad conditions, which agents report, may be why an honest launch is so far from those that agree: it was
    slowed down, or they were. They change no peak memory.
    """
    if not rules.agree_in_memory(outlier, middle):
        return False
    slowed = [result] if outlier.latency_ms > middle.latency_ms else beside
    return all(launch.conditions for launch in slowed)


def _middle(figures: Sequence[rules.LaunchFigures], chosen: Collection[int]) -> rules.LaunchFigures:
    of = [figures[index] for index in chosen]
    times = tuple(median(values) for values in zip(*(launch_figures.times for launch_figures in of), strict=True))
    return rules.LaunchFigures(
        None,
        median([launch_figures.latency_ms for launch_figures in of]),
        median([launch_figures.memory_bytes for launch_figures in of]),
        times,
    )


def _shown(launch_figures: rules.LaunchFigures) -> str:
    names = zip(launch_figures.times, rules.TIMES, strict=False)
    times = ", ".join(f"{LATENCY_NAMES[name]} {value:.4g} ms" for value, name in names)
    return f"{launch_figures.latency_ms:.4g} ms{times and f' ({times})'} and {launch_figures.memory_bytes / MB:.4g} MB"
