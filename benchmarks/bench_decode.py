"""One token of ONNX Runtime against one of llama.cpp, float32, on a machine that is not quiet.

    python benchmarks/bench_decode.py [--models smollm2-135m …] [--contexts 128 2048] [--passes 20] [--cache FOLDER]

The agent's own models of both runtimes are in one process, with one thread on one core, and take turns pass by pass.
The time is that of the process's threads on the processor, so that waiting for a core does not count (what other
programs take of caches and memory does, for both alike). A JSON line for each model and context goes to
`results/decode.jsonl`. `bench_runtimes.py` measures launches by the clock.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

import numpy as np
from bench_models import SEED
from bench_runtimes import CONTEXTS, MODELS, model_of
from record import append, table

from edgefront.agents.measuring.request import LaunchRequest
from edgefront.agents.measuring.runtimes import library
from edgefront.core.measurement.protocol import MeasurementProtocol, Runtime
from edgefront.core.measurement.runtimes import not_installed

COMPARED: tuple[Runtime, Runtime] = ("llamacpp", "onnxruntime")


def processor_ms(name: str, context: int, passes: int, cache: Path) -> dict[Runtime, list[float]]:
    """Milliseconds of processor time of each pass, by runtime."""
    one, core = model_of(name), min(os.sched_getaffinity(0))
    models = {}
    for runtime in COMPARED:
        protocol = MeasurementProtocol(runtime=runtime, mode="decode", memory_length=context)
        request = LaunchRequest(architecture=one.canonical, protocol=protocol, seed=SEED, cache=cache, cores=(core,))
        models[runtime] = library(runtime).build(request)
    times: dict[Runtime, list[float]] = {runtime: [] for runtime in COMPARED}
    for number in range(passes + 2):
        for runtime, model in models.items():
            started = time.process_time()
            model.forward_ms()
            if number >= 2:
                times[runtime].append((time.process_time() - started) * 1e3)
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--contexts", type=int, nargs="+", default=list(CONTEXTS))
    parser.add_argument("--passes", type=int, default=14)
    parser.add_argument("--cache", type=Path, help="folder for random weights; else a temporary one")
    asked = parser.parse_args()
    for runtime in COMPARED:
        missing = not_installed(runtime)
        if missing is not None:
            parser.error(missing)
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    with tempfile.TemporaryDirectory(prefix="bench-decode-") as folder:
        for name in asked.models:
            longest = getattr(model_of(name).positions, "length", max(asked.contexts) + 1) - 1
            for context in dict.fromkeys(min(context, longest) for context in asked.contexts):
                times = processor_ms(name, context, asked.passes, asked.cache or Path(folder))
                row: dict[str, object] = {"model": name, "context": context}
                for runtime, spent in times.items():
                    row |= {f"{runtime} least ms": min(spent), f"{runtime} median ms": float(np.median(spent))}
                pairs = [ours / theirs for theirs, ours in zip(*(times[runtime] for runtime in COMPARED), strict=True)]
                row |= {"ratio of the least": min(times[COMPARED[1]]) / min(times[COMPARED[0]])}
                row |= {"median ratio": float(np.median(pairs))}
                table(f"{name}, one token after {context}", [row])
                append("decode", {"row": row, "processor_ms": times})


if __name__ == "__main__":
    main()
