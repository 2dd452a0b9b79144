"""The snapshot with which a generation was proposed: stored with it, and restored exactly.

Only the results that changed since the previous generation are stored (candidate number, state, latency, peak memory,
launches; of those that generate the times);
constant columns are read from the candidate's row. So the total size of the snapshots is linear in the number of
candidates, not quadratic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields

from sqlalchemy.orm import Session

from edgefront.core.common.states import CandidateState
from edgefront.core.search.interface import Evaluated, Predicted, Snapshot, Times, times_of
from edgefront.core.services.jobs.queries import candidates as candidate_queries
from edgefront.core.services.jobs.queries import jobs as job_queries
from edgefront.core.services.jobs.queries.candidates import SearchCandidate
from edgefront.core.store.sql import Document, Items

_Result = tuple[str, float | None, int | None, int, Times]


def take(session: Session, target_id: str, generation: int) -> tuple[Items, Snapshot]:
    """The current results of a target's search: the changes to store with `generation`, and the complete snapshot."""
    before = _folded(job_queries.snapshots(session, target_id, generation - 1))
    rows = candidate_queries.search_rows(session, target_id)
    now: dict[int, _Result] = {
        row.number: (row.state, row.latency_ms, row.memory_bytes, row.launches, times_of(row)) for row in rows
    }
    changed = [
        [number, *result[:4], *([result[4]] if result[4] else [])]
        for number, result in now.items()
        if before.get(number) != result
    ]
    return changed, _snapshot(rows, now)


def restore(session: Session, target_id: str, generation: int) -> Snapshot:
    """The snapshot with which a generation was proposed."""
    then = _folded(job_queries.snapshots(session, target_id, generation))
    return _snapshot((row for row in candidate_queries.search_rows(session, target_id) if row.number in then), then)


def _folded(stored: Iterable[Items]) -> dict[int, _Result]:
    # Only generations have times.
    return {
        number: (state, latency_ms, memory_bytes, launches, times[0] if times else {})
        for changes in stored
        for number, state, latency_ms, memory_bytes, launches, *times in changes
    }


def _snapshot(rows: Iterable[SearchCandidate], results: dict[int, _Result]) -> Snapshot:
    return Snapshot(tuple(_evaluated(row, results[row.number]) for row in rows))


def _evaluated(row: SearchCandidate, result: _Result) -> Evaluated:
    state, latency_ms, memory_bytes, launches, times = result
    return Evaluated(
        id=row.id,
        genome=row.genome,
        digest=row.digest,
        state=CandidateState(state),
        proxy=row.proxy,
        latency_ms=latency_ms,
        memory_bytes=memory_bytes,
        generation=row.generation,
        parents=tuple(row.parents),
        operator=row.operator,
        launches=launches,
        times=times,
        predicted=_predicted(row.predicted),
    )


def _predicted(stored: Document | None) -> Predicted | None:
    """What was predicted of a candidate's latency and memory; None where nothing was."""
    if stored is None or stored.get("latency_ms") is None:
        return None
    return Predicted(**{field.name: stored[field.name] for field in fields(Predicted)})
