"""Quality of the best model that each search has found within limits, by number of launches, under equal conditions.

Every search maximises predicted quality within a limit on latency and a limit on peak memory, in the same space, and
begins with the same stock (default) models. Predicted quality needs no launch, so every search may compute it first for
any architecture. Devices are replayed from tables of real launches that no sum of costs fits exactly
(`find_devices.py`); a launch scatters by 1 %, equally for each search with the same seed.

- `surrogate` is edgefront's search with its default settings. It ends by itself, and then keeps its best model.
- `lts` (evolution) and `random` launch only models that are predicted to be better than the best model so far.
- `optuna-tpe`, `optuna-gp`, `botorch`, `botorch-costs`: see `find_rivals.py`. A search whose package is missing is
  left out, by name.

The best known quality is the result of evolution on the device itself in 240,000 evaluations without scatter; a lucky
launch can be better. The table has medians and quartiles over limits and seeds. Each run is a line of
`results/bench_find.jsonl`; existing runs are not repeated.

    python benchmarks/bench_find.py [--devices here helix alldlc] [--seeds 5] [--launches 40] [--searches surrogate …]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from find_devices import DEVICES, Task, device
from find_rivals import Session, Spent, botorch, optuna
from record import RESULTS, append, table

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.search.interface import Evaluated, Observation, Snapshot
from edgefront.core.search.registry import make

SHARES = (0.7, 0.4)
"""Latency limits, as shares of the latency of the deepest stock (default) model."""
AFTER = (10, 15, 20, 25, 40)
WITHIN = 0.01
NAME = "bench_find"


def ours(name: str, session: Session) -> None:
    """Runs edgefront's search of this name; returns when the search has ended."""

    def better(architecture: Architecture) -> bool:
        return bool(session.device.score(Shapes.of([architecture]))[0] > session.best)

    # A search by prediction includes quality itself.
    accept = None if name == "surrogate" else better
    settings = {"population": 5} if name == "random" else {}
    algorithm = make(name, settings, session.space, accept, session.task.problem)
    baselines = tuple(
        Observation(stock, launched.latency_ms, round(launched.memory_bytes))
        for stock, launched in zip(session.baselines, session.made, strict=True)
    )
    results: list[Evaluated] = []
    generation = 0
    while proposals := algorithm.ask(session.seed, generation, Snapshot(tuple(results), baselines)):
        for proposal in proposals:
            if accept is not None and not accept(proposal.architecture):
                continue
            launched = session.launch(session.operators.encode([proposal.genome])[0])
            results.append(
                Evaluated(
                    id=str(len(results)),
                    genome=proposal.genome,
                    digest=proposal.architecture.digest,
                    state="measured" if launched.within else "out_of_bounds",
                    proxy=launched.quality,
                    latency_ms=launched.latency_ms,
                    memory_bytes=round(launched.memory_bytes),
                    generation=generation,
                    parents=proposal.parents,
                    operator=proposal.operator,
                    predicted=proposal.predicted,
                )
            )
        generation += 1


SEARCHES: dict[str, Callable[[str, Session], None]] = {
    **dict.fromkeys(("surrogate", "lts", "random"), ours),
    **dict.fromkeys(("optuna-tpe", "optuna-gp"), optuna),
    **dict.fromkeys(("botorch", "botorch-costs"), botorch),
}


def run(name: str, task: Task, seed: int, launches: int) -> dict[str, Any]:
    """Runs one search. Returns its best quality after each launch, its end if it ended by itself, and its CPU time."""
    started = time.process_time()
    session, ended = Session(task, seed, launches), None
    try:
        SEARCHES[name](name, session)
        ended = len(session.made)
    except Spent:
        pass
    return {"best": session.curve, "ended": ended, "seconds": round(time.process_time() - started, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--devices", nargs="+", choices=DEVICES, default=["here", "helix"])
    parser.add_argument("--shares", nargs="+", type=float, default=list(SHARES), help="limits of latency")
    parser.add_argument("--searches", nargs="+", choices=SEARCHES, default=list(SEARCHES))
    options = parser.parse_args()
    searches = installed(options.searches)
    for share in options.shares:
        for name in options.devices:
            measure(name, share, searches, options.seeds, options.launches)
    rows = [summary(name, search) for name in options.devices for search in options.searches]
    table("Excess of predicted perplexity over the best known, %: median (quartiles)", [row for row in rows if row])


def installed(searches: Sequence[str]) -> list[str]:
    """Returns the searches whose package is installed."""
    missing = {name for name in ("optuna", "botorch") if importlib.util.find_spec(name) is None}
    for name in missing:
        print(f"{name} is not installed: left out")
    return [search for search in searches if search.split("-")[0] not in missing]


def measure(name: str, share: float, searches: Sequence[str], seeds: int, launches: int) -> None:
    """Runs the missing combinations of search and seed for one device and one pair of limits."""
    task, best_known = Task.of(device(name), share, launches), None
    done = {(row["device"], row["share"], row["seed"], row["search"]) for row in recorded()}
    for seed in range(seeds):
        for search in searches:
            if (name, share, seed, search) in done:
                continue
            best_known = best_known or task.best_known()
            found = run(search, task, seed, launches)
            # Excess of perplexity: both qualities are negative.
            excess = [None if np.isinf(best) else round(best / best_known - 1, 5) for best in found.pop("best")]
            row = {"device": name, "share": share, "seed": seed, "search": search, **found, "excess": excess}
            append(NAME, row)
            print(row, flush=True)


def recorded() -> list[dict[str, Any]]:
    path = RESULTS / f"{NAME}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def summary(name: str, search: str) -> dict[str, Any]:
    """Summarises the recorded runs of a search on a device; empty without runs."""
    rows = [row for row in recorded() if (row["device"], row["search"]) == (name, search)]
    if not rows:
        return {}
    curves = [[np.inf if value is None else value for value in row["excess"]] for row in rows]
    summed: dict[str, Any] = {"device": name, "search": search, "runs": len(rows)}
    for after in AFTER:
        summed[f"after {after}"] = quartiles([100 * curve[min(after, len(curve)) - 1] for curve in curves], ".2f")
    reached = [next((n for n, value in enumerate(curve, 1) if value <= WITHIN), np.inf) for curve in curves]
    summed["launches until within 1 %"] = quartiles(reached, ".0f")
    summed["ended after"] = quartiles([row["ended"] or np.inf for row in rows], ".0f")
    summed["s of a core"] = f"{np.median([row['seconds'] for row in rows]):.0f}"
    return summed


def quartiles(values: Sequence[float], form: str) -> str:
    """Formats the median (lower to upper quartile) of values; an infinite value is shown as never."""
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], method="inverted_cdf")
    texts = ["never" if np.isinf(value) else format(value, form) for value in (middle, low, high)]
    return texts[0] if len(set(texts)) == 1 else f"{texts[0]} ({texts[1]} to {texts[2]})"


if __name__ == "__main__":
    main()
