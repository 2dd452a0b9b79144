"""The limit: the row work of leases and reports by psycopg alone, with no HTTP, no validation and no frontier.

What it leaves out is what the service adds. It does the same commits on the same tables: a claim passes over locked
rows, makes a lease and marks the launches; a report locks its target and writes launches, measurements, candidates,
two events each, the target, the job and the device.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from datetime import datetime, timedelta, timezone
from multiprocessing.queues import Queue
from typing import Any

import psycopg
from fleet_agents import _ENVIRONMENT

from edgefront.core.store.tables import new_id

Figures = dict[str, list[float]]


def bare(conninfo: str, *, devices: list[tuple[str, str]], batch: int, seconds: float) -> tuple[Figures, int, float]:
    """(milliseconds by kind, rows, wall seconds) of one process for each (device id, device key), all at once."""
    results: Queue[tuple[Figures, int]] = multiprocessing.Queue()
    workers = [
        multiprocessing.Process(target=_work, args=(conninfo, device, key, batch, seconds, results))
        for device, key in devices
    ]
    begun = time.perf_counter()
    for worker in workers:
        worker.start()
    figures: Figures = {"lease_ms": [], "report_ms": []}
    rows = 0
    for _ in workers:
        found, count = results.get()
        rows += count
        for kind, values in found.items():
            figures[kind] += values
    wall_s = time.perf_counter() - begun
    for worker in workers:
        worker.join()
    return figures, rows, wall_s


def _work(
    conninfo: str, device: str, key: str, batch: int, seconds: float, results: Queue[tuple[Figures, int]]
) -> None:
    figures: Figures = {"lease_ms": [], "report_ms": []}
    rows = 0
    with psycopg.connect(conninfo) as connection, connection.cursor() as cursor:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            begun = time.perf_counter()
            taken = _claim(connection, cursor, device, key, batch)
            figures["lease_ms"].append(1e3 * (time.perf_counter() - begun))
            if not taken:
                break
            begun = time.perf_counter()
            _report(connection, cursor, device, taken)
            figures["report_ms"].append(1e3 * (time.perf_counter() - begun))
            rows += len(taken)
    results.put((figures, rows))


def _claim(
    connection: psycopg.Connection[Any], cursor: psycopg.Cursor[Any], device: str, key: str, batch: int
) -> list[Any]:
    now = datetime.now(timezone.utc)
    taken = cursor.execute(
        "SELECT l.id, l.fence, l.measurement_id, l.target_id, m.architecture, m.protocol FROM launch l "
        "JOIN measurement m ON m.id = l.measurement_id WHERE l.state = 'wanted' AND l.device_key = %s "
        "ORDER BY l.turn, l.id LIMIT %s FOR NO KEY UPDATE OF l SKIP LOCKED",
        [key, batch],
    ).fetchall()
    if taken:
        lease = new_id("lse")
        cursor.execute(
            "INSERT INTO lease (id, device_id, created_at, expires_at) VALUES (%s, %s, %s, %s)",
            [lease, device, now, now + timedelta(minutes=1)],
        )
        cursor.execute(
            "UPDATE launch SET state = 'leased', fence = fence + 1, device_id = %s, lease_id = %s WHERE id = ANY(%s)",
            [device, lease, [row[0] for row in taken]],
        )
    connection.commit()
    return taken


def _report(connection: psycopg.Connection[Any], cursor: psycopg.Cursor[Any], device: str, taken: list[Any]) -> None:
    now = datetime.now(timezone.utc)
    target = taken[0][3]
    job = cursor.execute("SELECT job_id FROM target WHERE id = %s FOR NO KEY UPDATE", [target]).fetchone()
    job_id = job[0] if job else ""
    cursor.executemany(
        "UPDATE launch SET state = 'done', result = %s, reports = %s, lease_id = NULL, finished_at = %s WHERE id = %s",
        [(_RESULT, json.dumps([row[0]]), now, row[0]) for row in taken],
    )
    cursor.executemany(
        "UPDATE measurement SET state = 'measured', launches = 1, latency_ms = 10, memory_bytes = 1000000, "
        "log_mean = 1, log_m2 = 0, build_peak_bytes = 1, measured_at = %s WHERE id = %s",
        [(now, row[2]) for row in taken],
    )
    cursor.execute(
        "UPDATE candidate SET state = 'measured', latency_ms = 10, memory_bytes = 1000000, build_peak_bytes = 1, "
        "launches = 1, measured_at = %s WHERE target_id = %s AND measurement_id = ANY(%s)",
        [now, target, [row[2] for row in taken]],
    )
    number = cursor.execute(
        "UPDATE job SET last_event = last_event + %s, updated_at = %s WHERE id = %s RETURNING last_event",
        [2 * len(taken), now, job_id],
    ).fetchone()
    last = number[0] if number else 0
    cursor.executemany(
        "INSERT INTO event (job_id, number, kind, target_id, data, created_at) VALUES (%s, %s, %s, %s, %s, %s)",
        [
            (job_id, last - index, kind, target, _RESULT, now)
            for index, (_, kind) in enumerate((row, kind) for row in taken for kind in ("candidate", "launch"))
        ],
    )
    cursor.execute(
        "UPDATE target SET settled = settled + %s, launches_done = launches_done + %s WHERE id = %s",
        [len(taken), len(taken), target],
    )
    cursor.execute("UPDATE device SET last_seen_at = %s, busy_s = busy_s + 1 WHERE id = %s", [now, device])
    connection.commit()


_RESULT = json.dumps(
    {
        "outcome": "done",
        "latency": {"warmup_ms": [10.123456] * 2, "samples_ms": [10.123456] * 5},
        "memory": {"method": "anonymous", "peak_bytes": 10**8, "forward_peak_bytes": 10**8, "build_peak_bytes": 10**7},
        "environment": _ENVIRONMENT,
        "build_s": 0.05,
        "measuring_s": 1.7,
        "wall_s": 1.9,
    }
)
