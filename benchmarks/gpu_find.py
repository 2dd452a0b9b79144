"""Runs a whole `edgefront find` on this machine's GPU: embedded service (SQLite, memory transport), agent, command.

Records the answer, the launches, the anchors (reference models that detect drift) measured on the device, and the
results of the agent's kernels, which are the upper limit for the speed of launches.

    python benchmarks/gpu_find.py [--device cuda|cpu] [--candidates 12] [--minutes 1.5] [--quick]

`--quick` searches among tiny models, as a test that everything runs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from record import append, table
from sqlalchemy import create_engine, update

from edgefront.cli.exits import NOTHING_FITS
from edgefront.cli.workflows.up import agent_is_ready
from edgefront.client.client import Client
from edgefront.core.measurement.plausible import CORE_GB, CORE_GFLOPS, GPU_GB, GPU_GFLOPS, GPU_HALF_GFLOPS
from edgefront.core.services.measuring.anchors import EVERY
from edgefront.core.store.tables import Device
from edgefront.embedded.service import DEVICE, EmbeddedService

NARROW = ("n_layer=2..12", "d_model=256..1024")
REACHED = (CORE_GFLOPS, CORE_GB, GPU_GFLOPS, GPU_HALF_GFLOPS, GPU_GB)
QUICK = ("n_layer=2,3", "d_model=128", "d_inner=256,384", "vocab_size=8192")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    parser.add_argument("--candidates", type=int, default=12)
    parser.add_argument("--minutes", type=float, default=1.5)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="gpu-find-") as home,
        EmbeddedService(Path(home), port=0, isolated=True) as own,
        Client(own.url, own.key) as client,
    ):
        until(lambda: agent_is_ready(client, own), 90, "the agent did not start")
        answer = find(options, own)
        result = found_by(client, answer, options.device)
        append("gpu_find", result, quick=options.quick)  # kept if the run is aborted from here on

        def anchored() -> bool:
            points = client.devices.anchor(DEVICE).points
            result["anchors"] = [point.latency_ms for point in points if point.provider.startswith(options.device)]
            return bool(result["anchors"])

        enrolled_long_ago(Path(home))
        until(anchored, 45, None)
    table("edgefront find", [result])
    append("gpu_find", result, quick=options.quick)


def found_by(client: Client, answer: Mapping[str, Any], device: str) -> dict[str, Any]:
    """Returns the figures of the answer and the facts of the device, which has not measured its anchor yet."""
    (target,) = answer["targets"]
    recommended = target["recommendation"]["recommended"]
    facts = client.devices.get(DEVICE).facts
    candidates = list(client.candidates.list(answer["job"]))
    return {
        "device": device,
        "gpus": [gpu.get("name") for gpu in facts.gpus],
        "runtimes": {runtime.runtime: list(runtime.providers) for runtime in facts.runtimes},
        "state": answer["state"],
        "recommended": recommended
        and f"{recommended['latency_ms']:.3g} ms, {recommended['memory_bytes'] / 1e6:.0f} MB",
        "candidates": len(candidates),
        "launches": sum(candidate.launches for candidate in candidates),
        "anchors": [],
        "reached": {name: facts.extra[name] for name in REACHED if name in facts.extra},
    }


def find(options: argparse.Namespace, service: EmbeddedService) -> dict[str, Any]:
    """Runs `edgefront find` and returns its answer as JSON."""
    narrow = [f"--narrow={text}" for text in (QUICK if options.quick else NARROW)]
    budget = ("--candidates", str(options.candidates), "--minutes", str(options.minutes))
    limits = ("--max-latency-ms", "50", "--max-memory-mb", "4000", "--train-tokens", "10B")
    where = ("--device", f"{DEVICE}:pytorch,provider={options.device}", "--sequence-length", "64")
    command = [sys.executable, "-m", "edgefront", "find", "--json", "--space", "llama"]
    done = subprocess.run(
        [*command, *narrow, *where, *limits, *budget],
        env={**os.environ, "EDGEFRONT_URL": service.url, "EDGEFRONT_KEY": service.key},
        stdout=subprocess.PIPE,
        check=False,
    )
    if done.returncode not in (0, NOTHING_FITS):
        log = service.agent and service.agent.log_tail()
        sys.exit(f"edgefront find ended with {done.returncode}; the agent's log: {log}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def enrolled_long_ago(home: Path) -> None:
    """Backdates the device's enrolment, because a device measures its first anchor (reference model) after half an
    hour.
    """
    engine = create_engine(f"sqlite:///{home / 'edgefront.db'}")
    with engine.begin() as connection:
        connection.execute(update(Device).values(enrolled_at=datetime.now(timezone.utc) - 2 * EVERY))
    engine.dispose()


def until(holds: Callable[[], bool], seconds: float, otherwise: str | None) -> None:
    """Waits until `holds` is true. After `seconds` exits with the message `otherwise`, or returns if that is None."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            if otherwise is None:
                return
            sys.exit(f"{otherwise} within {seconds:g} s")
        time.sleep(0.25)


if __name__ == "__main__":
    main()
