"""Number of launches and minutes that a search on this machine needs for its answer, including stock (default) models.

Three spaces, forward and generation, each by `edgefront find` against the embedded service that runs on this machine
(`edgefront up`). `answer` counts launches until the recommended model and the stock model have two launches each, and
no model is launched for the first time afterwards. `all` also counts the later launches, which narrow the intervals.

    python benchmarks/bench_answer.py [--cases llama-generate …] [--minutes 6]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter
from datetime import datetime
from typing import Any

from record import append, table

from edgefront import Client
from edgefront.core.common.states import Purpose
from edgefront.core.schemas.candidates import LaunchView

GENERATE = "--mode generate --prompt 128 --new 32 --max-first-token-ms 1500 --max-token-ms 40 --max-memory-mb 400"
LLAMACPP = f"--runtime llamacpp --weights q8_0 --train-tokens 10B {GENERATE}"
FORWARD = "--runtime onnxruntime --max-latency-ms 150"
CASES = {
    "lts-gpt2-forward": f"--space lts-gpt2 {FORWARD} --max-memory-mb 200",
    "lts-gpt2-generate": f"--space lts-gpt2 --runtime onnxruntime {GENERATE}",
    "llama-forward": f"--space llama --train-tokens 10B {FORWARD} --max-memory-mb 400",
    "llama-generate": f"--space llama {LLAMACPP}",
    "lfm-forward": f"--space lfm --train-tokens 10B {FORWARD} --max-memory-mb 600",
    "lfm-generate": f"--space lfm {LLAMACPP}",
}


def row_of(client: Client, case: str, minutes: float) -> dict[str, Any]:
    """Runs one search and returns its launches and minutes."""
    command = [sys.executable, "-m", "edgefront", "find", *CASES[case].split(), "--minutes", f"{minutes:g}", "--json"]
    result = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    answer = result["targets"][0]["recommendation"]
    job = client.jobs.get(result["job"])
    launches = [
        (launch, candidate.id)
        for candidate in client.candidates.list(job.id)
        for launch in client.candidates.launches(candidate.id)
        if launch.created_at >= job.created_at  # a service that has measured these models before needs fewer launches
    ]
    launches.sort(key=lambda pair: finished(pair[0]))
    return {
        "case": case,
        "models": sum(launch.purpose == Purpose.FIRST for launch, _ in launches),
        "answer": launches_to_answer(
            launches, {answer[which]["id"] for which in ("recommended", "baseline") if answer[which]}
        ),
        "all": len(launches),
        "minutes": round((finished(launches[-1][0]) - job.created_at).total_seconds() / 60, 1),
        "sentence": answer["sentence"],
    }


def finished(launch: LaunchView) -> datetime:
    return launch.finished_at or launch.created_at


def launches_to_answer(launches: list[tuple[LaunchView, str]], deciding: set[str]) -> int | None:
    """Returns the number of launches after which each deciding candidate has two launches and no candidate has its
    first launch; None if that is never reached. `launches` has the candidate of each launch, in order.
    """
    last_first = max(place for place, (launch, _) in enumerate(launches, 1) if launch.purpose == Purpose.FIRST)
    made: Counter[str] = Counter()
    for place, (_, candidate) in enumerate(launches, 1):
        made[candidate] += 1
        if all(made[one] >= 2 for one in deciding):
            return max(place, last_first)
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--minutes", type=float, default=6)
    options = parser.parse_args()
    rows = []
    with Client() as client:
        for case in options.cases:
            rows.append(row_of(client, case, options.minutes))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    table("Launches to the answer, with stock models and further launches", rows)
    append("answer", {"minutes": options.minutes, "rows": rows})


if __name__ == "__main__":
    main()
