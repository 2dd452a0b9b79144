"""Time for one report to reach a target's frontier: dominance and hypervolume, of candidates that are already loaded.

Three kinds of target, from kind to cruel: `spread` (latency and memory scatter by a quarter around the parameters, as
activations do), `weights` (memory is weights with a tenth of scatter from the embedding, as true peaks are), `plane`
(no candidate dominates another). For each number of candidates, reports of new candidates and of further launches of
old ones (2 % noise on latency) are taken in two ways:

- stored: the frontier's own rows and the new point through `nondominated` and `hypervolume`, as the service does
- fresh: all candidates through `nondominated` and `hypervolume`

    python benchmarks/bench_frontier.py [--reports 100] [--seed 0]

Goal: at most 2 ms a report at 10,000 candidates.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from record import append, table

from edgefront.core.pareto.frontier import hypervolume, nondominated

Points = NDArray[np.float64]
REFERENCE = {"proxy": 0.0, "proxy_scale": 1.7e8, "latency_ms": 2000.0, "memory_bytes": 1.6e9}
GOAL_MS = 2.0


def candidates(kind: str, count: int, rng: np.random.Generator) -> Points:
    """Points (proxy, latency_ms, memory_bytes) inside the reference box."""
    if kind == "plane":
        share = rng.dirichlet([1, 1, 1], count)
        return np.column_stack([1.7e8 * share[:, 0], 1900 * (1 - share[:, 1]), 1.5e9 * (1 - share[:, 2])])
    parameters = rng.uniform(0.02, 0.8, count)
    latency = parameters * np.exp(rng.normal(0, 0.25, count))
    scatter = np.exp(rng.normal(0, 0.25, count)) if kind == "spread" else 1 + 0.1 * rng.uniform(0, 1, count)
    return np.column_stack([1.7e8 * parameters, 1000 * latency, 7e8 * parameters * scatter])


def timed(steps: Iterator[Callable[[], Any]]) -> list[float]:
    """Milliseconds of each step."""
    found = []
    for step in steps:
        started = time.perf_counter()
        step()
        found.append(1e3 * (time.perf_counter() - started))
    return found


def stored(known: Points, new: Points, moved: Points) -> Iterator[Callable[[], Any]]:
    rows = known[nondominated(known)]

    def report(point: Points) -> None:
        nonlocal rows
        pool = np.vstack([rows, point])
        rows = pool[nondominated(pool)]
        hypervolume(rows, REFERENCE)

    for point in np.stack([new, moved], axis=1).reshape(-1, 3):
        yield lambda point=point: report(point)


def fresh(known: Points, new: Points, moved: Points) -> Iterator[Callable[[], Any]]:
    def report(point: Points) -> None:
        pool = np.vstack([known, point])
        hypervolume(pool[nondominated(pool)], REFERENCE)

    for point in np.stack([new, moved], axis=1).reshape(-1, 3):
        yield lambda point=point: report(point)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--reports", type=int, default=100, help="new candidates, and as many further launches")
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    rows = []
    for count in (1_000, 10_000):
        for kind in ("spread", "weights", "plane"):
            rng = np.random.default_rng([options.seed, count])
            known, new = candidates(kind, count, rng), candidates(kind, options.reports, rng)
            noise = np.exp(rng.normal(0, 0.02, options.reports))
            moved = known[: options.reports] * np.column_stack([np.ones_like(noise), noise, np.ones_like(noise)])
            front = int(nondominated(known).sum())
            for way in (stored, fresh):
                times = timed(way(known, new, moved))
                row = {
                    "candidates": count,
                    "target": kind,
                    "frontier": front,
                    "way": way.__name__,
                    "median ms": float(np.median(times)),
                    "p99 ms": float(np.percentile(times, 99)),
                }
                rows.append(row)
                append("bench_frontier", row)
    table("Frontier and hypervolume for one report", rows)
    worst = {row["target"]: row["median ms"] for row in rows if (row["candidates"], row["way"]) == (10_000, "stored")}
    listed = ", ".join(f"{kind} {median:.2f} ms" for kind, median in worst.items())
    print(f"\nMedian of a report at 10,000 candidates, from the stored frontier: {listed} (goal {GOAL_MS:g} ms)")


if __name__ == "__main__":
    main()
