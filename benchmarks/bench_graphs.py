"""Time to write an ONNX graph from its description, without weights: 16 layers of each family, in every mode.

The weights come after, mapped from a cache or written to a file; here is only what a search pays for each candidate on
top of them. Also the size of the graph, in nodes and bytes, and the time for ONNX Runtime to read and optimise it over
mapped weights.

    python benchmarks/bench_graphs.py [--quick] [--repeats 20]

Goal: under 50 ms for 16 layers.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import onnx
import onnxruntime as ort
from record import append, table

from edgefront.core.graph.build import EXTERNAL_FOLDER, build, unfilled_model
from edgefront.core.graph.options import GraphOptions
from edgefront.core.graph.state import Mode
from edgefront.core.graph.weights import WeightCache
from edgefront.core.spaces.architecture import Architecture

MODES: tuple[Mode, ...] = ("forward", "segment", "prefill", "decode")
LAYER = [{"kind": "attention", "n_head": 8}, {"kind": "feed_forward", "d_inner": 2048}]
GATED = {"kind": "feed_forward", "d_inner": 1408, "gated": True, "bias": False}
FAMILIES: dict[str, dict[str, Any]] = {
    "gpt-2": {"blocks": LAYER * 16},
    "transformer-xl": {"blocks": LAYER * 16, "positions": {"kind": "relative", "clamp": 400}, "norm": "post"},
    "lfm2": {
        "blocks": [
            *({"kind": "short_conv"}, GATED, {"kind": "attention", "n_head": 8, "n_kv_head": 2, "qk_norm": True}, GATED)
        ]
        * 8,
        "positions": {"kind": "rotary"},
        "norm_kind": "rms",
        "activation": "silu",
    },
    "srupp": {"blocks": [{"kind": "srupp", "d_attn": 128}] * 16, "positions": {"kind": "none"}},
    "adaptive": {
        "blocks": LAYER * 16,
        "embedding": {"vocab_size": 50000, "cutoffs": [10000, 20000, 40000], "div": 4},
    },
}
GOAL_MS = 50.0


def family(name: str) -> Architecture:
    return Architecture.parse({"d_model": 512, "embedding": {"vocab_size": 50000}, **FAMILIES[name]})


def median_ms(work: Callable[[], Any], repeats: int) -> float:
    work()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        times.append(1e3 * (time.perf_counter() - started))
    return statistics.median(times)


def session(model: onnx.ModelProto, cache: WeightCache) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry(EXTERNAL_FOLDER, str(cache.folder))
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="3 repeats, and no sessions")
    options = parser.parse_args()
    repeats = 3 if options.quick else options.repeats
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        cache = WeightCache(Path(folder))
        for name in FAMILIES:
            model = family(name)
            for mode in MODES:
                graph = unfilled_model(model, GraphOptions(mode=mode))
                row: dict[str, Any] = {
                    "family": name,
                    "mode": mode,
                    "write ms": median_ms(
                        lambda model=model, mode=mode: unfilled_model(model, GraphOptions(mode=mode)), repeats
                    ),
                    "nodes": len(graph.graph.node),
                    "kB": graph.ByteSize() / 1e3,
                }
                if not options.quick:
                    built = build(model, GraphOptions(mode=mode), weights=cache)
                    row["session ms"] = median_ms(lambda built=built: session(built, cache), min(repeats, 5))
                rows.append(row)
    table("Graphs of 16 layers, 512 features", rows)
    slowest = max(row["write ms"] for row in rows)
    print(f"\nslowest {slowest:.1f} ms: {'meets' if slowest < GOAL_MS else 'MISSES'} the goal of {GOAL_MS:g} ms")
    if not options.quick:
        append("graphs", {"onnx": onnx.__version__, "onnxruntime": ort.__version__, "rows": rows})


if __name__ == "__main__":
    main()
