"""The runtimes of the agent on models that people deploy: time to the first token, time for each further one, memory.

Every number is made by the agent's own `Measurer`. For each pass all runtimes and formats of weights take turns, as the
models of `bench_models.py` do. llama.cpp's latency is what it says itself; `by the clock` is the least wall time around
a request, relative to that.

    python benchmarks/bench_runtimes.py [--models smollm2-135m …] [--threads 1 2] [--rounds 3] [--cache FOLDER]
        [--runtimes "llama.cpp f32" …] [--passes "per token after 2048" …] [--quick]
    python benchmarks/bench_runtimes.py --besides
    python benchmarks/bench_runtimes.py --tables

Each launch is a line on standard error. `--quick` shrinks every model, to see that all of it runs. Otherwise a JSON
line for each model and pass goes to `results/runtimes.jsonl` as soon as it is measured, so that a part can be measured
at a time; `--tables` prints the latest of each on this processor. `--besides` tells what a launch of llama.cpp takes
besides its passes.
Needs the extras torch, onnx, openvino and llamacpp.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench_models import SEED, TIME_LIMIT_S, small
from record import RESULTS, append, table

from edgefront.agents.device.processor import processor
from edgefront.agents.measuring.measure import Measurer
from edgefront.core.cost.costs import costs
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.measurement.statistics import median
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.models import named_model
from edgefront.core.units import MIB

RUNTIMES: dict[str, dict[str, Any]] = {
    "llama.cpp f32": {"runtime": "llamacpp"},
    "llama.cpp q8_0": {"runtime": "llamacpp", "weights": "q8_0"},
    "llama.cpp q4_0": {"runtime": "llamacpp", "weights": "q4_0"},
    "ONNX Runtime f32": {"runtime": "onnxruntime"},
    "ONNX Runtime int8": {"runtime": "onnxruntime", "weights": "int8"},
    "ONNX Runtime int4": {"runtime": "onnxruntime", "weights": "int4"},
    "OpenVINO f32": {"runtime": "openvino"},
    "PyTorch f32": {"runtime": "pytorch"},
}
"""The first is what the others are compared with."""
NAME = "runtimes"
FIRST_TOKEN = (128, 512)
CONTEXTS = (128, 2048)
TOKENS = 14
"""Timed passes of a token: with two before them, as many as llama.cpp does of a model with convolutions before it reads
the context again."""


def uneven() -> Architecture:
    """Twelve layers of a Llama that differ: heads, groups and inner widths, one without attention, one without
    feed-forward.
    """
    blocks: list[dict[str, Any]] = []
    for layer in range(12):
        if layer != 5:
            heads = 9 if layer % 3 else 6
            group = {"n_head": heads, "n_kv_head": 3, "d_head": 64, "bias": "none"}
            blocks.append({"kind": "attention", **group})
        if layer != 8:
            fed = {"d_inner": 1024 + 256 * (layer % 4), "gated": True, "bias": False}
            blocks.append({"kind": "feed_forward", **fed})
    smollm = named_model("smollm2-135m").architecture.canonical
    return Architecture.parse({**smollm, "blocks": blocks})


def narrower(by: int) -> Architecture:
    """SmolLM2-135M of narrower feed-forward parts: 108 million parameters, or less."""
    smollm = named_model("smollm2-135m").architecture.canonical
    blocks = [{**block, "d_inner": 1024 - by} if "d_inner" in block else block for block in smollm["blocks"]]
    return Architecture.parse({**smollm, "blocks": blocks})


MODELS = ("smollm2-135m", "lfm2-350m", "gpt2-small", "uneven-llama")


def model_of(name: str) -> Architecture:
    return uneven() if name == "uneven-llama" else named_model(name).architecture


def passes(one: Architecture) -> Iterator[tuple[str, dict[str, Any]]]:
    """Learned positions end: a model that has fewer is decoded at its last."""
    longest = getattr(one.positions, "length", max(CONTEXTS) + 1) - 1
    for tokens in FIRST_TOKEN:
        yield f"first token of {tokens}", {"mode": "prefill", "sequence_length": tokens, "repeats": 3}
    for context in CONTEXTS:
        past = min(context, longest)
        yield f"per token after {past}", {"mode": "decode", "memory_length": past, "repeats": TOKENS}


def judged(
    name: str, one: Architecture, fields: Mapping[str, Any], labels: Sequence[str], rounds: int, measurer: Measurer
) -> list[dict[str, Any]]:
    """A row for each runtime, which take turns at one pass. `name` says what is measured, as it is measured."""
    launches: dict[str, list[LaunchResult]] = {label: [] for label in labels}
    for number in range(rounds):
        for label in labels if number % 2 == 0 else reversed(labels):
            results = launches[label]
            if results and results[-1].outcome != "done":
                continue
            protocol = MeasurementProtocol.model_validate({"time_limit_s": TIME_LIMIT_S, **fields, **RUNTIMES[label]})
            started = time.perf_counter()
            results.append(measurer.measure(one, protocol, SEED))
            whole_s = time.perf_counter() - started
            figure = f"{_latency(results[-1]):.2f} ms" if results[-1].latency else str(results[-1].outcome)
            print(f"{name}: {label}: {figure} (launch {whole_s:.1f} s)", file=sys.stderr, flush=True)
    first = next(iter(launches.values()))
    return [{"runtime": label} | _row(results, first) for label, results in launches.items()]


def _latency(result: LaunchResult) -> float:
    assert result.latency is not None
    return median(result.latency.samples_ms)


def _row(results: list[LaunchResult], first: list[LaunchResult]) -> dict[str, Any]:
    last = results[-1]
    if last.outcome != "done":
        return {"ms": f"{last.outcome}: {last.reason}", "relative": "", "peak MiB": "", "by the clock": ""}
    own, base = ([_latency(launch) for launch in some if launch.latency] for some in (results, first))
    ratios = [latency / other for latency, other in zip(own, base, strict=False)]
    middle = statistics.median(own)
    overheads = [float(str(result.environment.get("request_overhead_ms", "nan"))) for result in results]
    return {
        "ms": middle,
        "relative": statistics.median(ratios) if ratios else "",
        "peak MiB": round(statistics.median(result.memory.peak_bytes for result in results if result.memory) / MIB),
        "by the clock": "" if overheads[0] != overheads[0] else 1 + statistics.median(overheads) / middle,
    }


def besides(measurer: Measurer, rounds: int) -> list[dict[str, Any]]:
    """What a launch of a new architecture takes besides its passes: writing its file, starting and building."""
    rows = []
    for label in (label for label in RUNTIMES if label.startswith("llama.cpp")):
        protocol = MeasurementProtocol.model_validate({"sequence_length": 8, "threads": 1, **RUNTIMES[label]})
        for number in range(rounds + 1):
            one = narrower(32 * number)
            started = time.perf_counter()
            result = measurer.measure(one, protocol, SEED)
            whole_s = time.perf_counter() - started
            assert result.measuring_s is not None, result.message
            if number == 0:  # it made the weights, and started the process that forks
                continue
            millions = costs(one).total_parameters / 1e6
            row = {"runtime": label, "parameters (M)": millions, "launch s": whole_s, "passes s": result.measuring_s}
            rows.append(row | {"besides s": whole_s - result.measuring_s, "of that building s": result.build_s})
    return rows


def tables() -> None:
    """The latest figures on this processor of each model, pass and number of threads, as one table a model."""
    latest: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    for line in (RESULTS / f"{NAME}.jsonl").read_text().splitlines():
        found = json.loads(line)
        if "besides" in found or found.get("processor") != processor()[0]:
            continue
        latest[found["model"], found["pass"], found["threads"]] = found["rows"]
    for name in dict.fromkeys(model for model, _, _ in latest):
        rows = [
            {"pass": what, "threads": threads, **row}
            for (model, what, threads), result in latest.items()
            if model == name
            for row in result
        ]
        table(f"{name}, {costs(model_of(name)).total_parameters / 1e6:.1f} million parameters", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--runtimes", nargs="+", choices=RUNTIMES, default=list(RUNTIMES))
    parser.add_argument("--passes", nargs="+", help="only passes of these names")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cache", type=Path, help="folder for random weights; else a temporary one")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--besides", action="store_true")
    parser.add_argument("--tables", action="store_true")
    options = parser.parse_args()
    if options.tables:
        tables()
        return
    with (
        tempfile.TemporaryDirectory(prefix="bench-runtimes-") as folder,
        Measurer(options.cache or Path(folder)) as measurer,
    ):
        if options.besides:
            rows = besides(measurer, options.rounds)
            table("seconds of a launch", rows)
            append(NAME, {"besides": rows})
            return
        for name in options.models:
            one = small(model_of(name)) if options.quick else model_of(name)
            for what, fields in passes(one):
                if options.passes and what not in options.passes:
                    continue
                for threads in options.threads:
                    asked, said = {**fields, "threads": threads}, f"{name}, {what}, threads {threads}"
                    rows = judged(said, one, asked, options.runtimes, options.rounds, measurer)
                    table(said, rows)
                    if not options.quick:
                        found = {"model": name, "pass": what, "threads": threads, "rounds": options.rounds}
                        append(NAME, {**found, "rows": rows})


if __name__ == "__main__":
    main()
