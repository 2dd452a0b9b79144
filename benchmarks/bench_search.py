"""How much of a search job's time is measuring, and what the service costs over the agent's bare measuring loop.

The mix: GPT-2 decoders of 2 to 16 layers, d_model 512, sequence 192, one thread, first launches of 2 warm-ups and 5
repeats. A job of so many candidates runs on the embedded service (API, worker, SQLite, one agent process); the same
launches then run in the same order in a bare loop over `Measurer`. The two alternate, so that a machine that drifts
favours neither; medians over the rounds count.

    python benchmarks/bench_search.py [--candidates 60] [--rounds 2] [--runtime onnxruntime|pytorch]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from record import append, table

from edgefront import Client
from edgefront.agents.measuring.measure import Measurer
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.spaces.architecture import Architecture
from edgefront.embedded.service import EmbeddedService
from edgefront.workflows.up import agent_is_ready

NARROW = {"d_model": [512], "d_inner": {"min": 1024, "max": 3072}}
SEED = 7


def bare(
    architectures: list[Architecture], protocol: MeasurementProtocol, folder: Path
) -> tuple[list[LaunchResult], float]:
    """Results and wall seconds of launching these one after the other."""
    with Measurer(folder) as measurer:
        # As in the job: the cache and the warm parent are there before the clock runs.
        measurer.measure(max(architectures, key=lambda a: len(a.blocks)), protocol, SEED)
        started = time.perf_counter()
        results = [measurer.measure(architecture, protocol, SEED) for architecture in architectures]
        return results, time.perf_counter() - started


def job(
    candidates: int, protocol: MeasurementProtocol, home: Path
) -> tuple[list[Architecture], list[dict], float, float]:
    """Launched architectures in order, their raw results, seconds from the first start to the last report, and the
    measuring share that the service reports."""
    with EmbeddedService(home, port=0, isolated=True) as service, Client(service.url, service.key) as client:
        while not agent_is_ready(client, service):
            time.sleep(0.25)
        created = client.jobs.create(
            {
                "name": "bench",
                "space": {"name": "lts-gpt2", "narrow": NARROW},
                "targets": [{"device": "local", "protocol": protocol.model_dump()}],
                "algorithm": {"name": "random", "settings": {}},
                "budget": {"candidates": candidates, "refinement": 0},
                "baseline_layers": [1, 16],
                "seed": SEED,
            }
        )
        finished = client.jobs.wait(created.id)
        launches = []
        for candidate in client.candidates.list(created.id):
            for launch in client.candidates.launches(candidate.id):
                if launch.result is not None:
                    launches.append((launch.finished_at, launch, Architecture.parse(candidate.architecture)))
    launches.sort(key=lambda item: item[0])
    first = launches[0]
    span = (launches[-1][0] - first[0]).total_seconds() + first[1].result.wall_s
    share = finished.targets[0].measuring_share or 0.0
    return [item[2] for item in launches], [item[1].result for item in launches], span, share


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--runtime", choices=["onnxruntime", "pytorch"], default="onnxruntime")
    arguments = parser.parse_args()
    protocol = MeasurementProtocol(runtime=arguments.runtime, threads=1, sequence_length=192)
    rounds = []
    for number in range(arguments.rounds):
        with tempfile.TemporaryDirectory() as folder:
            architectures, results, span, share = job(arguments.candidates, protocol, Path(folder) / "home")
            bare_results, seconds = bare(architectures, protocol, Path(folder) / "cache")
        overheads = [result.wall_s - result.measuring_s for result in results]
        rounds.append(
            {
                "round": number + 1,
                "launches": len(results),
                "job: launches/min": 60 * len(results) / span,
                "bare loop: launches/min": 60 * len(results) / seconds,
                "job / bare": seconds / span,
                "in launches / wall": sum(result.wall_s for result in results) / span,
                "measuring share": sum(result.measuring_s for result in results) / span,
                "share as served": share,
                "bare measuring share": sum(result.measuring_s for result in bare_results) / seconds,
                "s besides passes, mean": statistics.fmean(overheads),
                "s besides passes, max": max(overheads),
            }
        )
    table(f"Search job on the embedded service, {arguments.runtime}", rounds)
    middle = {key: statistics.median(row[key] for row in rounds) for key in rounds[0] if key != "round"}
    table("Medians", [middle])
    append("bench_search", {"runtime": arguments.runtime, "rounds": rounds, "median": middle})


if __name__ == "__main__":
    main()
