"""A seeded, simulated service, held against `tests/golden/launch_path.txt`: rows that each transaction changed, lists,
charts and exports. `EDGEFRONT_TEST_UPDATE_GOLDEN=1 make test ARGS=tests/services/test_frozen_path.py` writes it anew.
"""

from __future__ import annotations

import csv
import difflib
import hashlib
import io
import itertools
import json
import os
import random
import re
import uuid
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import simulated_agent
from simulated_agent import SimulatedAgent, by_generation, by_size, done, failing
from simulated_service import Service, generation_request, request
from sqlalchemy import Connection, event
from ulid import ULID

from edgefront.api.routers import candidate_tables
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.schemas import points as wire
from edgefront.core.services.jobs.answers import candidates, exports, frontier_view, points
from edgefront.core.services.measuring.queries import leases
from edgefront.core.services.measuring.stranded import return_stranded
from edgefront.core.store.database import Database
from edgefront.core.store.tables import base

GOLDEN = Path(__file__).parents[1] / "golden/launch_path.txt"
START = datetime(2026, 1, 1, tzinfo=timezone.utc)
TABLES = ("job", "target", "generation", "measurement", "launch", "lease", "candidate", "device", "event", "work_item")
DOCUMENTS = (
    "request",
    "protocol",
    "architecture",
    "genome",
    "snapshot",
    "device_data",
    "facts",
    "law",
    "predicted",
    "result",
)
"""Of which only the digest is written."""
_NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")


def plain(value: Any) -> str:
    """JSON with the numbers that arithmetic of another machine would come to."""
    text = json.dumps(value, sort_keys=True, default=str)
    return _NUMBER.sub(lambda number: f"{float(number[0]):.6g}", text)


def digest(value: Any) -> str:
    return hashlib.sha256(plain(value).encode()).hexdigest()[:12]


class Recorder:
    """What the transactions of a database change, as lines; identifiers are numbered as they appear."""

    def __init__(self, database: Database) -> None:
        self.lines: list[str] = []
        self._rows: dict[tuple[str, str], dict[str, str]] = {}
        self._names: dict[str, str] = {}
        event.listen(database.engine, "commit", self._committed)

    def note(self, *lines: str) -> None:
        self.lines += [self._named(line) for line in lines]

    def _named(self, text: str) -> str:
        def name(found: re.Match[str]) -> str:
            number = sum(known.startswith(found[1]) for known in self._names) + 1
            return self._names.setdefault(found[0], f"{found[1]}{number}")

        text = re.sub(r"\b([a-z]{3}_)[0-9a-z]{26}\b", name, text)
        return re.sub(r"\b([0-9a-f]{8})[0-9a-f]{56}\b", r"\1", text)

    def _committed(self, connection: Connection) -> None:
        changes = []
        for table in TABLES:
            with closing(connection.connection.cursor()) as cursor:
                order = "kind, subject" if table == "work_item" else "id"
                columns = [each[0] for each in cursor.execute(f"SELECT * FROM {table} ORDER BY {order}").description]
                found = {f"{row[0]}": self._shown(columns, row) for row in cursor.fetchall()}
            before = {id_: row for (of, id_), row in self._rows.items() if of == table}
            for id_, row in found.items():
                new = {name: value for name, value in row.items() if before.get(id_, {}).get(name) != value}
                if new:
                    verb = "~" if id_ in before else "+"
                    values = " ".join(f"{name}={value}" for name, value in sorted(new.items()) if value != "null")
                    changes.append(f"  {verb} {table} {id_} {values}")
            changes += [f"  - {table} {id_}" for id_ in before if id_ not in found]
            self._rows = {key: row for key, row in self._rows.items() if key[0] != table}
            self._rows |= {(table, id_): row for id_, row in found.items()}
        if changes:
            self.note("transaction", *changes)

    @staticmethod
    def _shown(columns: list[str], row: tuple[Any, ...]) -> dict[str, str]:
        shown = {}
        for name, value in zip(columns, row, strict=True):
            shown[name] = digest(json.loads(value)) if name in DOCUMENTS and value is not None else plain(value)
        return shown


@pytest.fixture
def seeded(service: Service, monkeypatch: pytest.MonkeyPatch) -> Service:
    """The service with identifiers and a clock that are the same in every run."""
    drawn = random.Random(1)
    counter = itertools.count(1)

    def identifier(value: bytes | None = None) -> ULID:
        return ULID(value or next(counter).to_bytes(6, "big") + b"\0" * 10)

    monkeypatch.setattr(base, "ULID", identifier)
    monkeypatch.setattr(base.secrets, "token_bytes", drawn.randbytes)
    monkeypatch.setattr(simulated_agent.uuid, "uuid4", lambda: uuid.UUID(bytes=drawn.randbytes(16)))
    return service


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = START
        monkeypatch.setattr(Database, "now", lambda *_: self.now)

    def tick(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)


class Board:
    """Results that contradict each other, cannot be true, fail or are infeasible, by turns of the models. One model
    fails on every board.
    """

    def __init__(self) -> None:
        self._models: list[str] = []

    def honest(self, architecture: Architecture, protocol: MeasurementProtocol, before: int) -> LaunchResult:
        if self._turn(architecture) == 4:
            return failing("crashed")(architecture, protocol, before)
        return by_size(0.02)(architecture, protocol, before)

    def _turn(self, architecture: Architecture) -> int:
        if architecture.digest not in self._models:
            self._models.append(architecture.digest)
        return self._models.index(architecture.digest) % 6

    def lying(self, architecture: Architecture, protocol: MeasurementProtocol, before: int) -> LaunchResult:
        honest = self.honest(architecture, protocol, before)
        turn = self._turn(architecture)
        if turn == 1:
            return honest if before % 2 else done(honest.timed.samples_ms[0] * 3, honest.peak.peak_bytes)
        if turn == 2 and before == 0:
            return done(1e-5, honest.peak.peak_bytes)
        if turn == 3:
            return failing("out_of_memory")(architecture, protocol, before)
        if turn == 5:
            return honest.model_copy(update={"environment": {"conditions": "other load"}})
        return honest


def run(service: Service, clock: Clock, *agents: SimulatedAgent, steps: int = 100) -> None:
    """Measures by turns until there is no work left."""
    for step in range(steps):
        service.work()
        clock.tick(2.0)
        lease = agents[step % len(agents)].lease(3)
        clock.tick(3.0)
        if lease.items:
            agents[step % len(agents)].report(lease)
        service.work()
        if not lease.items:
            return


def lists(service: Service, job_id: str) -> Iterator[str]:
    """What the API answers of a job, as lines."""
    with service.database.read() as session:
        page = candidates.list_candidates(session, service.user, job_id).model_dump(mode="json")
        shown = frontier_view.frontier_view(session, service.user, job_id).model_dump(mode="json")
        for each in page["items"]:
            each["architecture"] = digest(each["architecture"])
            each["predicted"] = digest(each["predicted"])
        for name in ("points", "baseline"):
            shown[name] = [each["number"] for each in shown[name]]
        yield from (f"candidate {plain(each)}" for each in page["items"])
        yield f"frontier {plain(shown)}"
        view = frontier_view.frontier_view(session, service.user, job_id)
        header, columns = wire.decode(points.read(session, service.user, job_id))
        yield f"points {plain(header.model_dump(mode='json'))}"
        yield from (f"points {name} {values.dtype} {plain(values.tolist())}" for name, values in columns.items())
        yield from (f"frontier.csv {line}" for line in _short(candidate_tables.frontier_csv(view)))
        for launch in candidates.list_launches(session, service.user, page["items"][0]["id"]):
            yield f"launch {plain(launch.model_dump(mode='json'))}"

    def rows(session: Any) -> Iterator[dict[str, Any]]:
        return exports.export_rows(session, service.user, job_id)

    with candidate_tables.write_export(service.database, rows, "csv") as file:
        yield from (f"csv {line}" for line in _short(file.read().decode()))
    with candidate_tables.write_export(service.database, rows, "parquet") as file:
        table = pq.read_table(io.BytesIO(file.read()))
    for field in table.schema:
        yield f"parquet {field.name} {field.type} {(field.metadata or {})[b'description'].decode()}"
    yield f"parquet {digest(table.to_pylist())}"


def _short(text: str) -> Iterator[str]:
    """The lines of a CSV file, with digests of what is long."""
    for row in csv.reader(io.StringIO(text)):
        yield plain([cell if len(cell) < 80 else digest(cell) for cell in row])


def test_what_a_launch_leaves_behind(seeded: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    recorder = Recorder(seeded.database)
    small = {"name": "lts", "settings": {"iterations": 2, "population": 6}}

    recorder.note("# a device that contradicts itself, and one that does not")
    board = Board()
    lying, honest = (SimulatedAgent(seeded.database, measure) for measure in (board.lying, board.honest))
    forward = seeded.submit(request(algorithm=small))
    run(seeded, clock, lying, honest)
    recorder.note(*lists(seeded, forward.id))

    recorder.note("# generations, within limits")
    speaker = SimulatedAgent(seeded.database, by_generation)
    generating = seeded.submit(
        generation_request({"first_token_ms": 0.63, "token_ms": 0.192}).model_copy(
            update={"budget": generation_request({}).budget.model_copy(update={"candidates": 7})}
        )
    )
    run(seeded, clock, speaker)
    recorder.note(*lists(seeded, generating.id))

    recorder.note("# a job that is cancelled while a launch of it runs, and a lease that ends unanswered")
    cancelled = seeded.submit(request(algorithm=small, seed=8))
    held = honest.lease(2)
    clock.tick(1.0)
    with seeded.database.write() as session:
        assert leases.start(session, honest.device_id, held.items[0].id, held.items[0].fence, clock.now)
    seeded.act("cancel", cancelled.id)
    clock.tick(1.0)
    honest.report(held)
    seeded.work()
    lost = seeded.submit(request(algorithm=small, seed=9))
    held = speaker.lease(2)
    with seeded.database.write() as session:
        assert leases.start(session, speaker.device_id, held.items[0].id, held.items[0].fence, clock.now)
    clock.tick(100.0)
    with seeded.database.write() as session:
        leases.end_expired(session, clock.now)
        return_stranded(session, clock.now)
    seeded.work()
    recorder.note(*lists(seeded, cancelled.id), *lists(seeded, lost.id))

    text = "\n".join(recorder.lines) + "\n"
    if os.environ.get("EDGEFRONT_TEST_UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    before = GOLDEN.read_text(encoding="utf-8")
    if text != before:
        changes = difflib.unified_diff(before.splitlines(), text.splitlines(), "golden", "now", lineterm="", n=1)
        pytest.fail("\n".join(itertools.islice(changes, 60)))
