"""How many launches are marked because of other load: on an idle core, and beside a busy loop on the same core.

    python benchmarks/bench_conditions.py [--launches 40] [--core 1] [--threads 1]

The launches, and the busy loop, are pinned. Whatever else runs on these cores is other load too, so the first figure
needs them quiet. On a machine that others use, run it with a priority above theirs: in a control group with large
`cpu.shares` or `cpu.weight`, or as `chrt -r 10 python …` (both as root).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from record import append, table

from edgefront.agents.device.cores import CorePlan
from edgefront.agents.measuring.measure import Measurer
from edgefront.core.measurement.protocol import MeasurementProtocol, Runtime
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.measurement.runtimes import not_installed
from edgefront.core.measurement.statistics import median
from edgefront.core.spaces.architecture import Architecture

_LOOP = "import os, sys\nos.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"
_RUNTIMES: tuple[Runtime, ...] = ("onnxruntime", "pytorch", "openvino", "llamacpp")


@contextmanager
def busy(core: int | None) -> Iterator[None]:
    """A process that computes on this core; without one, nothing."""
    process = None if core is None else subprocess.Popen([sys.executable, "-c", _LOOP, str(core)])
    try:
        yield
    finally:
        if process is not None:
            process.kill()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=40)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--threads", type=int, default=1, help="more than one: this many cores, from the last down")
    given = parser.parse_args()
    model = gpt2()
    cores = range(given.core - given.threads + 1, given.core + 1)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for runtime in (name for name in _RUNTIMES if not_installed(name) is None):
            protocol = MeasurementProtocol(runtime=runtime, threads=given.threads)
            with Measurer(Path(folder), CorePlan.of_device(cores), lock=Path(folder) / "lock") as measurer:
                measurer.measure(model, protocol, 0)  # makes the weights
                for name, core in (("nothing", None), ("a busy loop", given.core)):
                    with busy(core):
                        results = [measurer.measure(model, protocol, 0) for _ in range(given.launches)]
                    rows.append(row(runtime, name, results))
    table(f"{given.threads} thread(s), {given.launches} launches each", rows)
    append("conditions", {"threads": given.threads, "rows": rows})


def gpt2() -> Architecture:
    """Of four layers: about as large as the stock model of `make demo`."""
    layer = [{"kind": "attention", "n_head": 4}, {"kind": "feed_forward", "d_inner": 1024}]
    return Architecture.parse({"version": 1, "d_model": 256, "embedding": {"vocab_size": 50257}, "blocks": 4 * layer})


def row(runtime: str, beside: str, results: Sequence[LaunchResult]) -> dict[str, Any]:
    done = [result for result in results if result.latency is not None]
    marked = sum("other load" in str(result.environment.get("conditions", "")) for result in done)
    shares = sorted(float(str(result.environment["waited_share"])) for result in done)
    return {
        "runtime": runtime,
        "beside": beside,
        "launches": len(done),
        "marked %": 100 * marked / len(done),
        "waited %, least": 100 * shares[0],
        "median": 100 * median(shares),
        "most": 100 * shares[-1],
        "latency ms": median([median(result.latency.samples_ms) for result in done if result.latency is not None]),
    }


if __name__ == "__main__":
    main()
