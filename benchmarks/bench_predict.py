"""Accuracy of latency predictions from a few launches: mean error, and the share of 95 % intervals that hold.

A table of launches is split randomly many times; each time some launches are used to fit and the rest are predicted.
The figures are means over the splits. The launches for the fit are selected as in the search (`tests/hwgpt.py`).

    python benchmarks/bench_predict.py [--column NAME]                          # HW-GPT-Bench
    python benchmarks/bench_predict.py --here [--minutes 30] [--device cuda]    # this machine, real launches

`--here` adds launches to `results/predict_here.jsonl.gz` for this many minutes (0: only existing launches) and resumes
where it stopped: both runtimes, forward passes and decoding, `lts-gpt2` and `hybrid`, each architecture once.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from record import RESULTS, append, from_tests, table

from edgefront.agents.measuring.measure import Measurer
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.catalogue import space
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.common.files import whole_file
from edgefront.core.measurement.prediction.latency import LatencyPredictor
from edgefront.core.measurement.protocol import MeasurementProtocol, Runtime

hwgpt = from_tests("hwgpt")

SIZES = (10, 20, 50, 100)
TABLE = Path(__file__).resolve().parents[1] / "tests" / "golden" / "hwgpt_latency_s.csv.gz"
LOG = RESULTS / "predict_here.jsonl.gz"
MIN_UNSEEN = 5
SEED = 11
Row = dict[str, float | int | None]

# Launches on this machine --------------------------------------------------------------------------------------------

NARROWED: Mapping[str, Mapping[str, Any]] = {
    "lts-gpt2": {
        "n_layer": {"min": 2, "max": 12, "step": 1},
        "d_model": {"min": 128, "max": 768, "step": 64},
        "d_inner": {"min": 256, "max": 3072, "step": 64},
    },
    "hybrid": {
        "n_block": {"min": 2, "max": 16, "step": 1},
        "d_model": {"min": 128, "max": 768, "step": 64},
        "d_inner": {"min": 256, "max": 3072, "step": 64},
    },
}
QUICK: Mapping[str, Any] = {
    "n_layer": {"min": 1, "max": 4, "step": 1},
    "d_model": {"min": 64, "max": 128, "step": 64},
    "d_inner": {"min": 64, "max": 512, "step": 64},
}
"""Ranges of the genes of lts-gpt2 with `--quick`."""
MODES: Mapping[str, Mapping[str, Any]] = {"forward": {}, "decode": {"mode": "decode", "memory_length": 512}}


@dataclass(frozen=True)
class Setting:
    """A column of the log: one space under one protocol."""

    space: str
    runtime: Runtime
    mode: str
    device: str = "cpu"
    quick: bool = False

    @property
    def protocol(self) -> MeasurementProtocol:
        passes = {"sequence_length": 16, "repeats": 2} if self.quick else MODES[self.mode]
        return MeasurementProtocol(runtime=self.runtime, provider=self.device, **passes)

    def architectures(self) -> Iterator[Architecture]:
        """Yields different architectures without end, in the same order each time."""
        narrowed, rng = (
            space(self.space).narrow(QUICK if self.quick else NARROWED[self.space]),
            np.random.default_rng(SEED),
        )
        seen: set[str] = set()
        while True:
            architecture = narrowed.architecture(narrowed.sample(rng))
            if architecture.digest not in seen:
                seen.add(architecture.digest)
                yield architecture


def settings(
    spaces: Sequence[str], runtimes: Sequence[Runtime], modes: Sequence[str], device: str, quick: bool
) -> list[Setting]:
    return [Setting(name, runtime, mode, device, quick) for runtime in runtimes for mode in modes for name in spaces]


def read_log() -> list[dict[str, Any]]:
    if not LOG.exists():
        return []
    return [json.loads(line) for line in gzip.decompress(LOG.read_bytes()).decode().splitlines()]


def write_log(rows: Sequence[Mapping[str, Any]]) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    with whole_file(LOG) as file:
        file.write(gzip.compress(text.encode(), mtime=0))


def collect(wanted: Sequence[Setting], launches: int, minutes: float) -> list[dict[str, Any]]:
    """Adds launches to the log, in turn for each setting, until each has `launches` or the time is over."""
    rows = read_log()
    done = {(row["space"], row["protocol"], row["digest"]) for row in rows}
    end, added = time.monotonic() + 60 * minutes, 0
    queues = {setting: setting.architectures() for setting in wanted}
    with tempfile.TemporaryDirectory(prefix="edgefront-predict-") as folder, Measurer(Path(folder)) as measurer:
        for turn in range(launches):
            for setting, queue in queues.items():
                architecture = next(queue)
                if (setting.space, setting.protocol.digest, architecture.digest) in done or time.monotonic() > end:
                    continue
                result = measurer.measure(architecture, setting.protocol, SEED)
                if result.latency is None or result.memory is None:
                    print(f"{setting}: {result.outcome}: {result.message}", file=sys.stderr)
                    continue
                rows.append(
                    {
                        "space": setting.space,
                        "protocol": setting.protocol.digest,
                        "runtime": setting.runtime,
                        "mode": setting.mode,
                        "digest": architecture.digest,
                        "latency_ms": median(result.latency.samples_ms),
                        "peak_bytes": result.memory.peak_bytes,
                        "architecture": architecture.canonical,
                    }
                )
                added += 1
                if added % 10 == 0:
                    write_log(rows)
            if time.monotonic() > end:
                print(f"time is over after {added} launches, in turn {turn + 1} of {launches}", file=sys.stderr)
                break
    if added:
        write_log(rows)
    return rows


# Judging -------------------------------------------------------------------------------------------------------------


def evaluate(
    shapes: Shapes,
    protocol: MeasurementProtocol,
    measured: NDArray[np.float64],
    *,
    splits: int,
) -> list[Row]:
    """Returns for each of `SIZES` the mean relative error and the share of intervals that hold, outside the fit."""
    rows: list[Row] = []
    for count in SIZES:
        if len(shapes) < count + MIN_UNSEEN:
            rows.append({"launches": count, "error": None, "held": None, "width": None})
            continue
        errors, held, widths = [], [], []
        for split in range(splits):
            seen = hwgpt.spread(shapes, protocol, count, split)
            unseen = np.setdiff1d(np.arange(len(shapes)), seen)
            predictor = LatencyPredictor.fit(shapes.take(seen), protocol, measured[seen])
            predicted, truth = predictor.predict(shapes.take(unseen)), measured[unseen]
            errors.append(np.mean(np.abs(predicted.ms / truth - 1)))
            held.append(np.mean((predicted.low <= truth) & (truth <= predicted.high)))
            widths.append(np.median(np.log(predicted.high / predicted.ms)))
        means = [float(np.mean(values)) for values in (errors, held, widths)]
        rows.append(dict(zip(("launches", "error", "held", "width"), (count, *means), strict=True)))
    return rows


def line(name: str, rows: Sequence[Row]) -> dict[str, str]:
    """Formats a row of the table: error % and, after the slash, intervals that hold %."""
    cells = {
        f"{row['launches']} launches": "-" if row["error"] is None else f"{row['error']:.2%} / {row['held']:.1%}"
        for row in rows
    }
    return {"device": name, **cells}


# Commands ------------------------------------------------------------------------------------------------------------


def evaluate_table(options: argparse.Namespace) -> None:
    found = hwgpt.read_table(TABLE, [options.column])
    rows = evaluate(found.shapes, hwgpt.PROTOCOL, found.columns[options.column], splits=options.splits)
    table(f"{options.column} of {TABLE.name}", [line(options.column, rows)])


def evaluate_local(options: argparse.Namespace) -> None:
    wanted = settings(options.spaces, options.runtimes, options.modes, options.device, options.quick)
    log = collect(wanted, options.launches, options.minutes) if options.minutes else read_log()
    lines, kept = [], []
    for setting in wanted:
        rows = [row for row in log if row["space"] == setting.space and row["protocol"] == setting.protocol.digest]
        name = f"{setting.runtime}, {setting.mode}, {setting.space} ({len(rows)})"
        if len(rows) < SIZES[0] + MIN_UNSEEN:
            print(f"{name}: too few launches yet", file=sys.stderr)
            continue
        shapes = Shapes.of([Architecture.parse(row["architecture"]) for row in rows])
        latency = np.array([row["latency_ms"] for row in rows])
        results = evaluate(shapes, setting.protocol, latency, splits=options.splits)
        lines.append(line(name, results))
        kept.append({"setting": name, "rows": results})
    table("latency: error / intervals that hold", lines)
    append(
        "predict",
        {"here": True, "device": options.device, "splits": options.splits, "settings": kept},
        quick=options.quick,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--column", default="a100_ms", help="the device of the table (%(default)s)")
    parser.add_argument("--here", action="store_true")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="of `--here`")
    parser.add_argument(
        "--quick", action="store_true", help="of `--here`: tiny models of lts-gpt2, whose figures say nothing"
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="of launches; 0 replays the log")
    parser.add_argument("--launches", type=int, default=200, help="at most so many of each setting")
    parser.add_argument("--spaces", nargs="+", choices=tuple(NARROWED), default=list(NARROWED))
    parser.add_argument("--runtimes", nargs="+", choices=("onnxruntime", "pytorch"), default=["onnxruntime", "pytorch"])
    parser.add_argument("--modes", nargs="+", choices=tuple(MODES), default=list(MODES))
    options = parser.parse_args()
    (evaluate_local if options.here else evaluate_table)(options)


if __name__ == "__main__":
    main()
