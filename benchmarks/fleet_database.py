"""A temporary database with devices and work for `bench_leases.py`: created, filled, checked and dropped."""

from __future__ import annotations

import hashlib
import json
import random
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import psycopg
from fleet_agents import figures_of, parameters_of
from sqlalchemy import make_url

from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.schemas.jobs import JobRequest, TargetRequest
from edgefront.core.store.database import Database
from edgefront.core.store.tables import new_id

PROTOCOL = MeasurementProtocol()
BASELINES = 12
PROXY_SCALE = 1.7e8


@dataclass(frozen=True)
class Agent:
    device_id: str
    secret: str


@contextmanager
def temporary_database(server: str) -> Iterator[str]:
    """Yields a migrated, empty database on the server, which is dropped at the end."""
    name = f"edgefront_bench_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(conninfo(server), autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    try:
        url = make_url(server).set(database=name).render_as_string(hide_password=False)
        database = Database(url)
        database.migrate()
        database.dispose()
        yield url
    finally:
        with psycopg.connect(conninfo(server), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)'.encode())


def conninfo(url: str) -> str:
    """Returns the URL in the form that psycopg reads."""
    return make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)


def fill(url: str, *, prefix: str, agents: int, jobs: int, candidates: int) -> list[Agent]:
    """Adds `agents` devices in `jobs` classes, a job with one target for each class, and requested first launches.

    Each target is in the middle of its search: baselines are measured, its candidates wait. The data is as large as in
    real work: canonical descriptions of 12 layers, and genomes of real length.
    """
    now = datetime.now(timezone.utc)
    made: list[Agent] = []
    with psycopg.connect(conninfo(url)) as connection, connection.cursor() as cursor:
        keys = [f"class:{prefix}-{index}" for index in range(jobs)]
        devices, credentials = [], []
        for index in range(agents):
            agent = Agent(new_id("dev"), f"efa_{prefix}{index:0>{43 - len(prefix)}}")
            made.append(agent)
            name, kind = f"{prefix} {index}", f"{prefix}-{index % jobs}"
            devices.append((agent.device_id, name, kind, "bench", "active", json.dumps(_FACTS), now, 0.0, 0.0))
            hashed = hashlib.sha256(agent.secret.encode()).hexdigest()
            credentials.append((new_id("key"), name, "bench", "agent", agent.secret[:10], hashed, agent.device_id, now))
        _copy(cursor, "device", _DEVICE, devices)
        _copy(cursor, "api_key", _KEY, credentials)
        targets = [_job(cursor, key, now) for key in keys]
        rng = random.Random(prefix)
        rows: dict[str, list[tuple[Any, ...]]] = {"measurement": [], "candidate": [], "launch": []}
        counts = dict.fromkeys(range(jobs), 0)
        # Jobs take turns (round robin), in the order of the launches' ids.
        for index in range(candidates + BASELINES * jobs):
            place = index % jobs
            baseline = counts[place] < BASELINES
            _candidate(rows, targets[place], keys[place], counts[place], baseline, rng, now)
            counts[place] += 1
        _copy(cursor, "measurement", _MEASUREMENT, rows["measurement"])
        _copy(cursor, "candidate", _CANDIDATE, rows["candidate"])
        _copy(cursor, "launch", _LAUNCH, rows["launch"])
        for place, (_, target_id) in enumerate(targets):
            cursor.execute(
                "UPDATE target SET candidates = %s, settled = %s WHERE id = %s", [counts[place], BASELINES, target_id]
            )
        connection.commit()
        connection.autocommit = True
        cursor.execute("VACUUM ANALYZE")
    return made


def check(url: str, handed_out: list[tuple[str, int]], accepted: list[str]) -> dict[str, int]:
    """Returns counts of errors: launches lost, duplicated, or different from their reports. All are 0 in a correct run.

    Rows of the full-speed measurement are excluded; their device classes begin with `limit`.
    """
    with psycopg.connect(conninfo(url)) as connection:

        def count(query: str, *arguments: Any) -> int:
            row = connection.execute(query.encode(), arguments).fetchone()
            return int(row[0]) if row else 0

        ids = [launch_id for launch_id, _ in handed_out]
        return {
            "handed out twice": len(ids) - len(set(ids)),
            "accepted twice": len(accepted) - len(set(accepted)),
            "accepted but not done": len(set(accepted))
            - count("SELECT count(*) FROM launch WHERE state = 'done' AND id = ANY(%s)", accepted),
            "done but not accepted": count(
                "SELECT count(*) FROM launch WHERE state = 'done' AND device_key NOT LIKE 'class:limit%%' "
                "AND NOT id = ANY(%s)",
                accepted,
            ),
            "measured not once": count(
                "SELECT count(*) FROM measurement m JOIN launch l ON l.measurement_id = m.id "
                "WHERE l.id = ANY(%s) AND m.launches <> 1",
                accepted,
            ),
            "candidates not settled": count(
                "SELECT count(*) FROM candidate c JOIN launch l ON l.measurement_id = c.measurement_id "
                "WHERE l.id = ANY(%s) AND c.state <> 'measured'",
                accepted,
            ),
            "settled miscounted": count(
                "SELECT count(*) FROM target t WHERE t.settled <> (SELECT count(*) FROM candidate c "
                "WHERE c.target_id = t.id AND c.state <> 'waiting')"
            ),
            "event numbers missing": count(
                "SELECT count(*) FROM job j WHERE j.last_event <> (SELECT count(*) FROM event e WHERE e.job_id = j.id)"
            ),
        }


def _job(cursor: psycopg.Cursor[Any], key: str, now: datetime) -> tuple[str, str]:
    request = JobRequest(targets=(TargetRequest(device_class=key.removeprefix("class:"), protocol=PROTOCOL),))
    job, target = new_id("job"), new_id("tgt")
    cursor.execute(
        "INSERT INTO job (id, name, owner, request, request_digest, state, last_event, created_at, updated_at) "
        "VALUES (%s, 'bench', 'bench', %s, %s, 'running', 0, %s, %s)",
        [job, request.model_dump_json(), "0" * 64, now, now],
    )
    reference = {"proxy": 0.0, "proxy_scale": PROXY_SCALE, "latency_ms": 2000.0, "memory_bytes": 1.6e9}
    cursor.execute(
        "INSERT INTO target (id, job_id, position, name, device_key, protocol, protocol_digest, limits, seed, proxy, "
        "state, note, generation, reference, hypervolume, frontier_size, candidates, settled, launches_done, "
        "refinements, busy_s, measuring_s, started_at) "
        "VALUES (%s, %s, 0, 'bench', %s, %s, %s, '{}', 1, 'decoder_parameters', 'searching', '', 0, %s, 0, 0, 0, 0, "
        "0, 0, 0, 0, %s)",
        [target, job, key, PROTOCOL.model_dump_json(), PROTOCOL.digest, json.dumps(reference), now],
    )
    return job, target


def _candidate(
    rows: dict[str, list[tuple[Any, ...]]],
    target: tuple[str, str],
    key: str,
    number: int,
    baseline: bool,
    rng: random.Random,
    now: datetime,
) -> None:
    architecture = {
        "version": 1,
        "d_model": rng.randrange(128, 1024, 64),
        "embedding": {"vocab_size": 50264, "cutoffs": [19997, 39997], "div": 4},
        "blocks": [
            block
            for _ in range(12)
            for block in (
                {"kind": "attention", "n_head": rng.choice((2, 4, 8))},
                {"kind": "feed_forward", "d_inner": rng.randrange(256, 4096)},
            )
        ],
    }
    described = json.dumps(architecture)
    genome = json.dumps({"d_model": architecture["d_model"], "d_inner": [rng.randrange(4096) for _ in range(16)]})
    digest = hashlib.sha256(f"{key} {number} {described}".encode()).hexdigest()
    parameters = int(parameters_of(architecture))
    measurement, candidate = new_id("mea"), new_id("cnd")
    known: tuple[Any, ...] = (None, None, None)
    if baseline:
        known = (*figures_of(architecture), now)
    state, launches = ("measured", 2) if baseline else ("wanted", 0)
    protocol = PROTOCOL.model_dump_json()
    rows["measurement"].append(
        (measurement, digest, key, PROTOCOL.digest, protocol, described, 1, state, launches, *known)
    )
    rows["candidate"].append(
        (
            *(candidate, *target, measurement, number, "baseline" if baseline else "search", -1 if baseline else 0),
            *("sample", "[]", genome, digest, described, parameters, parameters, 4 * parameters, 2 * parameters),
            *(float(parameters), 1, "measured" if baseline else "waiting", launches, False, now, *known),
        )
    )
    if not baseline:
        row = (new_id("lau"), measurement, target[1], key, "wanted", "first", 0, 0, 0, "[]", now)
        rows["launch"].append(row)


def _copy(cursor: psycopg.Cursor[Any], table: str, columns: str, rows: list[tuple[Any, ...]]) -> None:
    with cursor.copy(f"COPY {table} ({columns}) FROM STDIN".encode()) as copy:
        for row in rows:
            copy.write_row(row)


_DEVICE = "id, name, device_class, owner, state, facts, enrolled_at, busy_s, measuring_s"
_KEY = "id, name, owner, role, prefix, secret_hash, device_id, created_at"
_MEASUREMENT = (
    "id, digest, device_key, protocol_digest, protocol, architecture, seed, state, launches, latency_ms, "
    "memory_bytes, measured_at"
)
_CANDIDATE = (
    "id, job_id, target_id, measurement_id, number, role, generation, operator, parents, genome, digest, "
    "architecture, decoder_parameters, total_parameters, weight_bytes, flops, proxy, seed, state, launches, "
    "on_frontier, created_at, latency_ms, memory_bytes, measured_at"
)
_LAUNCH = "id, measurement_id, target_id, device_key, state, purpose, turn, attempts, fence, reports, created_at"
_FACTS = {
    "hostname": "bench",
    "system": "Linux 6.1.0",
    "architecture": "x86_64",
    "cpu": "Benchmark CPU @ 2.0 GHz",
    "cpu_features": [f"feature{index}" for index in range(60)],
    "cores": 4,
    "memory_bytes": 8 << 30,
    "gpus": [],
    "runtimes": [
        {"runtime": name, "version": "1.0", "providers": ["cpu"], "memory_methods": ["anonymous"]}
        for name in ("onnxruntime", "pytorch")
    ],
    "modes": ["forward", "prefill", "decode"],
    "extra": {},
}
