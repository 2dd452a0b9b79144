"""How much of a search job's time is measuring, and what the service costs over the agent's bare measuring loop.

The mix: GPT-2 decoders of 2 to 16 layers, d_model 512, sequence 192, one thread, first launches of 2 warm-ups and 5
repeats. A job of so many candidates runs on the embedded service (API, worker, SQLite, one agent process). The same
launches, in the same order, then run in a bare loop over `Measurer`: half of them before the job and half after it, so
that a machine that drifts favours neither.

    python benchmarks/bench_search.py [--candidates 60] [--runtime onnxruntime|pytorch]

A sparser first half needs the job's architectures before the job: they are asked from the same algorithm and seed.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

from record import append, table

from agents.measure import Measurer
from core.measurement.protocol import MeasurementProtocol
from core.measurement.record import LaunchResult
from core.spaces.architecture import Architecture
from edgefront import Client
from edgefront.embedded.service import EmbeddedService

NARROW = {"d_model": [512], "d_inner": {"min": 1024, "max": 3072}}
SEED = 7


def bare(architectures: list[Architecture], protocol: MeasurementProtocol, folder: Path) -> tuple[list[LaunchResult], float]:
    """Results and wall seconds of launching these one after the other."""
    with Measurer(folder) as measurer:
        measurer.warm(protocol.runtime)
        # As in the job: the cache and the warm parent are there before the clock runs.
        measurer.measure(max(architectures, key=lambda a: a.n_layer), protocol, SEED)
        started = time.perf_counter()
        results = [measurer.measure(architecture, protocol, SEED) for architecture in architectures]
        return results, time.perf_counter() - started


def job(candidates: int, protocol: MeasurementProtocol, home: Path) -> tuple[list[Architecture], list[dict], float, float]:
    """Launched architectures in order, their raw results, seconds from the first start to the last report, and the
    measuring share that the service reports."""
    with EmbeddedService(home, port=0, isolated=True) as service, Client(service.url, service.key) as client:
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
    parser.add_argument("--runtime", choices=["onnxruntime", "pytorch"], default="onnxruntime")
    arguments = parser.parse_args()
    protocol = MeasurementProtocol(runtime=arguments.runtime, threads=1, sequence_length=192)
    with tempfile.TemporaryDirectory() as folder:
        architectures, results, span, share = job(arguments.candidates, protocol, Path(folder) / "home")
        _, seconds = bare(architectures, protocol, Path(folder) / "cache")
    overheads = [result.wall_s - result.measuring_s for result in results]
    rows = [
        {
            "runtime": arguments.runtime,
            "launches": len(results),
            "job: launches/min": 60 * len(results) / span,
            "bare loop: launches/min": 60 * len(results) / seconds,
            "job / bare": seconds / span,
            "in launches / wall": sum(result.wall_s for result in results) / span,
            "measuring share": sum(result.measuring_s for result in results) / span,
            "share as the service reports": share,
            "s a launch besides forward passes, mean": statistics.fmean(overheads),
            "max": max(overheads),
        }
    ]
    table("Search job on the embedded service", rows)
    append("bench_search", rows[0])


if __name__ == "__main__":
    main()
