"""A finished job of many candidates, written directly into a database.

Architectures and genomes are real ones of the space `lts-gpt2`; as many candidates as are wanted share them under
digests of their own. Their figures follow from their size, with noise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import islice
from typing import Any

import numpy as np

from edgefront.core.architectures.catalogue import spaces
from edgefront.core.architectures.cost.costs import costs
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.schemas.jobs import JobRequest, Limits, TargetRequest
from edgefront.core.search.pareto.frontier import Dominance
from edgefront.core.store.database import Database
from edgefront.core.store.sql import insert_rows
from edgefront.core.store.tables import Candidate, Job, Target, new_id
from edgefront.core.store.tables.base import random_ids

SPACE = "lts-gpt2"
BASELINES = 12
OUTSIDE = 0.05
UNUSABLE = 0.02
"""Shares of candidates."""
_BATCH = 2000


def fill(database: Database, candidates: int, owner: str, *, models: int = 500) -> str:
    """A finished job of so many candidates of one target, with so many different architectures; returns its id."""
    rng = np.random.default_rng(7)
    now = datetime.now(timezone.utc)
    protocol = MeasurementProtocol()
    request = JobRequest.model_validate(
        {
            "name": f"{candidates} candidates",
            "space": {"name": SPACE},
            "proxy": "quality_law",
            "targets": [{"device_class": "bench"}],
        }
    )
    assert request.targets == (TargetRequest(device_class="bench"),)
    job_id, target_id = new_id("job"), new_id("tgt")
    columns = _columns(rng, candidates, models)
    with database.write() as session:
        session.add(
            Job(
                id=job_id,
                name=request.name or "bench",
                owner=owner,
                request=request.model_dump(mode="json"),
                request_digest="0" * 64,
                state="finished",
                created_at=now,
                updated_at=now,
                finished_at=now,
            )
        )
        session.flush()
        worst = columns["latency_ms"][:BASELINES].max(), columns["memory_bytes"][:BASELINES].max()
        session.add(
            Target(
                id=target_id,
                job_id=job_id,
                position=0,
                name="bench",
                device_key="class:bench",
                protocol=protocol.model_dump(mode="json"),
                protocol_digest=protocol.digest,
                limits=Limits().model_dump(mode="json"),
                seed=1,
                proxy="quality_law",
                state="finished",
                reference={
                    "proxy": -12.0,
                    "proxy_scale": 1.0,
                    "latency_ms": float(1.1 * worst[0]),
                    "memory_bytes": float(1.1 * worst[1]),
                },
                hypervolume=0.5,
                frontier_size=int(columns["on_frontier"].sum()),
                candidates=candidates,
                settled=candidates,
                launches_done=candidates,
                started_at=now,
                finished_at=now,
            )
        )
    rows = _rows(columns, job_id, target_id, now)
    while batch := list(islice(rows, _BATCH)):
        with database.write() as session:
            insert_rows(session, Candidate, batch)
    return job_id


def _columns(rng: np.random.Generator, count: int, different: int) -> dict[str, Any]:
    """Figures of all candidates, the baselines first."""
    space = spaces()[SPACE]
    genomes = space.samples(different, rng)
    models = [space.architecture(genome) for genome in genomes]
    sizes = [costs(model) for model in models]
    at = rng.integers(different, size=count)
    parameters = np.array([size.decoder_parameters for size in sizes], dtype=np.float64)[at]
    latency = 2.0 + parameters / 1.5e6 * rng.lognormal(0.0, 0.15, count)
    memory = 3e7 + 4 * parameters * rng.lognormal(0.05, 0.05, count)
    perplexity = 18.0 + 160.0 * (parameters / 1e6) ** -0.55 * rng.lognormal(0.0, 0.06, count)
    search = np.arange(count) >= BASELINES
    draw = rng.random(count)
    state = np.where(draw < OUTSIDE, "out_of_bounds", np.where(draw < OUTSIDE + UNUSABLE, "infeasible", "measured"))
    state = np.where(search, state, "measured")
    competing = np.flatnonzero(search & (state == "measured"))
    points = np.stack([-perplexity, latency, memory], axis=1)[competing]
    best = competing[Dominance(epsilon=0.02).frontier(points.tolist(), [f"{index:08d}" for index in competing])]
    on_frontier = np.zeros(count, dtype=bool)
    on_frontier[best] = True
    return {
        "genomes": genomes,
        "models": models,
        "sizes": sizes,
        "at": at,
        "latency_ms": latency,
        "memory_bytes": memory.astype(np.int64),
        "perplexity": perplexity,
        "state": state,
        "on_frontier": on_frontier,
    }


def _rows(columns: dict[str, Any], job_id: str, target_id: str, now: datetime) -> Iterator[dict[str, Any]]:
    genomes = [dict(genome) for genome in columns["genomes"]]
    described = [model.canonical for model in columns["models"]]
    ids = random_ids("cnd", len(columns["at"]))
    for number, place in enumerate(columns["at"].tolist()):
        size = columns["sizes"][place]
        perplexity, latency = float(columns["perplexity"][number]), float(columns["latency_ms"][number])
        memory, state = int(columns["memory_bytes"][number]), str(columns["state"][number])
        is_measured = state != "infeasible"
        is_baseline = number < BASELINES
        yield {
            "id": ids[number],
            "job_id": job_id,
            "target_id": target_id,
            "measurement_id": None,
            "number": number,
            "role": "baseline" if is_baseline else "search",
            "generation": -1 if is_baseline else number // 100,
            "operator": "baseline" if is_baseline else "mutate",
            "parents": [] if number <= BASELINES else [ids[number // 2]],
            "genome": genomes[place],
            "digest": hashlib.sha256(f"{job_id} {number}".encode()).hexdigest(),
            "architecture": described[place],
            "decoder_parameters": size.decoder_parameters,
            "total_parameters": size.total_parameters,
            "weight_bytes": size.weight_bytes,
            "flops": size.flops,
            "proxy": -float(np.log(perplexity)),
            "predicted": {
                "perplexity": perplexity,
                "perplexity_low": 0.95 * perplexity,
                "perplexity_high": 1.05 * perplexity,
                "extrapolated": False,
                "law": "lts-gpt2-wikitext103",
                "latency_ms": 1.02 * latency,
                "latency_low_ms": 0.9 * latency,
                "latency_high_ms": 1.15 * latency,
                "memory_bytes": 1.01 * memory,
                "memory_low_bytes": 0.95 * memory,
                "memory_high_bytes": 1.08 * memory,
                "label": "own data",
            },
            "predicted_perplexity": perplexity,
            "seed": 1,
            "state": state,
            "reason": None if is_measured else "out of memory",
            "latency_ms": latency if is_measured else None,
            "latency_half_width_ms": 0.02 * latency if is_measured else None,
            "memory_bytes": memory if is_measured else None,
            "build_peak_bytes": 2 * memory if is_measured else None,
            "launches": 1,
            "on_frontier": bool(columns["on_frontier"][number]),
            "created_at": now,
            "measured_at": now if is_measured else None,
        }
