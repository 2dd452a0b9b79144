"""What the quality law's choice gains once it is trained: perplexities of four choices under the same limits.

Small Llamas (vocabulary of 512) are trained by the recipe `modern` at two budgets four-fold apart. A law is learnt from
30 shapes and judged on ten others. Under three pairs of limits, latency and peak memory of a stock model on this CPU as
an agent measures them, shapes are chosen: by the law, the largest stock model, by decoder parameters, at random. They
are trained with three seeds each.

Each stage reads and writes JSON lines in `--folder`, and goes on with what is there:

    python benchmarks/bench_gain.py text    --folder F --source DATA   # DATA/wikitext, DATA/shakespeare; prepared text
    python benchmarks/bench_gain.py shapes  --folder F                 # shapes.jsonl
    python benchmarks/bench_gain.py latency --folder F                 # latency.jsonl; in turns
    python benchmarks/bench_gain.py train   --folder F --what shapes --processes 16 --minutes 4      # runs.jsonl
    python benchmarks/bench_gain.py learn   --folder F                 # judged.jsonl, choices.jsonl
    python benchmarks/bench_gain.py train   --folder F --what choices --processes 16 --minutes 4     # runs.jsonl
    python benchmarks/bench_gain.py report  --folder F
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gain_shapes import JUDGE, LEARN, VOCABULARY, architectures, shapes, text_of
from gain_training import SEGMENT, Run, train_all

from edgefront.core.cost.costs import CostOptions, costs
from edgefront.core.spaces.architecture import Architecture

STEPS = (400, 1600)
SEEDS = 3
LR = 0.01


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def write(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def add(path: Path, row: Mapping[str, Any]) -> None:
    with path.open("a") as lines:
        lines.write(json.dumps(row) + "\n")


def text(options: argparse.Namespace) -> None:
    """The text as 512 byte pairs in `data/`."""
    from edgefront.core.data.prepared.planning import Preparation
    from edgefront.core.data.prepared.preparation import prepare
    from edgefront.core.data.sources.corpus import Shares
    from edgefront.core.data.sources.standard_library import standard_library

    library = standard_library(Shares())
    built_in = "\n".join((library.root / part.path).read_text() for part in library.splits["train"])
    folder = text_of(options.source, options.folder / "text", built_in)
    settings = Preparation(level="bpe", vocab_size=VOCABULARY)
    prepared = prepare(str(folder), options.folder / "prepared", settings=settings)
    prepared.folder.rename(options.folder / "data")


def draw(options: argparse.Namespace) -> None:
    write(
        options.folder / "shapes.jsonl", shapes(options.learn, options.judge, options.pool, options.small, options.seed)
    )


def latency(options: argparse.Namespace) -> None:
    """Launches of all shapes in turns, each turn in an order of its own, until the time is over.

    Besides its median a launch's fastest pass is kept: on a busy machine the passes that nothing interrupted.
    """
    from edgefront.agents.measuring.measure import Measurer
    from edgefront.core.measurement.protocol import MeasurementProtocol

    protocol = MeasurementProtocol(repeats=options.repeats)
    path, until = options.folder / "launches.jsonl", time.time() + 60 * options.minutes
    rows = read(options.folder / "shapes.jsonl")
    launches = Counter(launch["digest"] for launch in read(path))
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as cache, Measurer(Path(cache)) as measurer:
        while time.time() < until:
            rng.shuffle(rows)
            for row in sorted(rows, key=lambda row: (launches[row["digest"]], row["role"] != "stock")):
                if time.time() > until:
                    break
                result = measurer.measure(architectures([row])[0], protocol, launches[row["digest"]])
                launch: dict[str, Any] = {"digest": row["digest"]}
                if result.latency is not None and result.memory is not None:
                    samples = result.latency.samples_ms
                    launch |= {"ms": statistics.median(samples), "fastest_ms": min(samples)}
                    launch["peak_bytes"] = result.memory.peak_bytes
                launches[row["digest"]] += 1
                add(path, launch)


def train(options: argparse.Namespace) -> None:
    path, rows = options.folder / "runs.jsonl", read(options.folder / "shapes.jsonl")
    by_digest = {row["digest"]: row for row in rows}
    if options.what == "shapes":
        asked = {(row["digest"], 0, steps) for row in rows if row["role"] in (LEARN, JUDGE) for steps in options.steps}
    else:
        asked = {(row["digest"], row["seed"], row["steps"]) for row in read(options.folder / "choices.jsonl")}
    asked -= {(run["digest"], run["seed"], run["steps"]) for run in read(path)}
    runs = [
        Run(digest, by_digest[digest]["architecture"], seed, steps, _flops(by_digest[digest]["architecture"]))
        for digest, seed, steps in sorted(asked)
    ][: options.at_most]
    begun = time.time()
    data = options.data or options.folder / "data"
    for number, result in enumerate(train_all(runs, data, options.processes, options.minutes, options.lr), start=1):
        add(path, result)
        print(
            f"{time.time() - begun:5.0f} s: {number} of {len(runs)}, {result['steps']} steps in {result['seconds']} s, "
            f"perplexity {result['perplexity']:.2f}",
            flush=True,
        )


def _flops(architecture: Mapping[str, Any]) -> float:
    described = Architecture.model_validate(architecture)
    return float(costs(described, CostOptions(sequence_length=SEGMENT)).flops)


def learn(options: argparse.Namespace) -> None:
    from gain_choices import choices, fastest, judgements
    from record import table

    rows = read(options.folder / "shapes.jsonl")
    learnt = [run for run in read(options.folder / "runs.jsonl") if run["seed"] == 0]
    found = judgements(rows, learnt)
    write(options.folder / "judged.jsonl", found)
    table("Laws learnt from own trainings", found)
    chosen = choices(rows, learnt, fastest(read(options.folder / "launches.jsonl")), found, SEEDS)
    write(options.folder / "choices.jsonl", chosen)
    table(
        "Choices", [{name: row[name] for name in list(row) if name != "digest"} for row in chosen if row["seed"] == 1]
    )


def report(options: argparse.Namespace) -> None:
    from gain_report import report as written

    written(options.folder, options.record)


STAGES = {"text": text, "shapes": draw, "latency": latency, "train": train, "learn": learn, "report": report}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--source", type=Path, help="text: folder with wikitext/ and shakespeare/")
    parser.add_argument("--learn", type=int, default=30, help="shapes: to learn from")
    parser.add_argument("--judge", type=int, default=10, help="shapes: to judge the law on")
    parser.add_argument("--pool", type=int, default=302, help="shapes: to choose from besides")
    parser.add_argument("--small", type=int, default=120, help="shapes: small ones besides")
    parser.add_argument("--seed", type=int, default=0, help="shapes")
    parser.add_argument("--repeats", type=int, default=20, help="latency: passes of a launch")
    parser.add_argument("--what", choices=("shapes", "choices"), default="shapes", help="train")
    parser.add_argument("--data", type=Path, help="train: prepared text, else FOLDER/data")
    parser.add_argument("--steps", type=int, nargs="+", default=STEPS, help="train: budgets of the shapes")
    parser.add_argument("--lr", type=float, default=LR, help="train")
    parser.add_argument("--processes", type=int, default=2, help="train: at once, each on one thread")
    parser.add_argument("--minutes", type=float, default=1e6, help="train, latency: nothing begins after so many")
    parser.add_argument("--at-most", type=int, help="train: so many trainings")
    parser.add_argument("--record", action="store_true", help="report: to benchmarks/results")
    options = parser.parse_args()
    STAGES[options.stage](options)


if __name__ == "__main__":
    main()
