"""What inheriting a trained model's weights is worth: a part that is cut and healed beside models from scratch.

A small Llama, the parent, is trained to the end of a schedule on a small vocabulary, and its cuts are studied. Among
random parts the one of the best predicted perplexity within a share of the parent's latency (measured here, in turns)
is the child. Then are trained, on equal tokens and with several seeds each:

    healed    the child with the weights that it inherits, by the parent's scores (recipe `distil`)
    inherited the same without the parent's scores
    scratch   the child from its beginning, by the recipe `modern`; also on 4 times the tokens; one seed also on 2 and 8
    stock     the parent's layers, as many as the latency permits, from their beginning; one seed also on 8

Each stage reads and writes JSON in `--folder`, and goes on with what is there:

    python benchmarks/bench_inherit.py text    --folder F --source DATA  # DATA/wikitext, DATA/shakespeare
    python benchmarks/bench_inherit.py parent  --folder F                # half an hour of a core
    python benchmarks/bench_inherit.py study   --folder F
    python benchmarks/bench_inherit.py judge   --folder F                # judged.json
    python benchmarks/bench_inherit.py choose  --folder F                # child.json
    python benchmarks/bench_inherit.py train   --folder F --processes 2
    python benchmarks/bench_inherit.py report  --folder F
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import append, table
from scipy.stats import spearmanr
from scipy.stats import t as student
from trainings import run_all, spec

from edgefront.core.cost.costs import CostOptions, costs
from edgefront.core.cost.shapes import Shapes
from edgefront.core.data.prepared.planning import Preparation
from edgefront.core.data.prepared.preparation import prepare
from edgefront.core.data.prepared.prepared import open_prepared
from edgefront.core.evaluation.package import WEIGHTS, Package, read_package
from edgefront.core.inherit.cuts import Cutter, HeldOut
from edgefront.core.inherit.parts import random_part
from edgefront.core.inherit.study import (
    CutStudy,
    StudySettings,
    read_study,
    rows_of,
    study_cuts,
    write_study,
)
from edgefront.core.quality.cut_law import CutLaw
from edgefront.core.recipes.papers import recipe
from edgefront.core.recipes.recipe import Recipe
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.training.run_folder import RESULT, RunSpec

VOCABULARY = 512
ROWS, SEGMENT = 8, 128
PARENT_STEPS, STEPS = 3000, 300
MORE = (1, 2, 4, 8)
"""Times the tokens of healing that models are trained on from their beginning."""
REPEATED = (1, 4)
"""Of these, those that are trained with every seed; the others with the first alone."""
SHARE = 0.6
"""Of the parent's latency."""
LR = 0.01
HEALING_LR = 2e-3
"""A fifth of the rate that the weights were trained at; others were not tried."""
LAYERS = [
    {"kind": "attention", "n_head": 6, "n_kv_head": 2, "bias": "none"},
    {"kind": "feed_forward", "d_inner": 512, "gated": True, "bias": False},
]
PARENT = Architecture.parse(
    {
        "d_model": 192,
        "positions": {"kind": "rotary"},
        "norm_kind": "rms",
        "activation": "silu",
        "embedding": {"vocab_size": VOCABULARY},
        "blocks": LAYERS * 8,
    }
)


def modern(steps: int) -> Recipe:
    """The recipe for models from their beginning, on so many steps of 1,024 tokens."""
    return _lengthened(recipe("modern"), steps, LR)


def healing(distil: bool, lr: float = HEALING_LR) -> Recipe:
    changed = _lengthened(recipe("distil"), STEPS, lr)
    return changed if distil else changed.overridden({"distil": None})


def _lengthened(of: Recipe, steps: int, lr: float) -> Recipe:
    return of.overridden(
        {
            "steps": steps,
            "rows": ROWS,
            "segment": SEGMENT,
            "optimizer": {"lr": lr},
            "schedule": {"warmup": max(1, steps // 20)},
            "checkpoint_every": 1 << 20,
            "evaluation": {"segment": SEGMENT, "every": 1 << 20},
        }
    )


def text(options: argparse.Namespace) -> None:
    """The sources' text as 512 byte pairs in `data/`: of each source 90 % to train on, 5 to validate, 5 to test."""
    sources = [options.source / path for path in ("wikitext/valid.txt", "wikitext/test.txt", "shakespeare/input.txt")]
    texts, into = [path.read_text(encoding="utf-8") for path in sources], options.folder / "text"
    into.mkdir(parents=True, exist_ok=True)
    for name, begin, end in (("train", 0.0, 0.9), ("valid", 0.9, 0.95), ("test", 0.95, 1.0)):
        parts = [text[int(begin * len(text)) : int(end * len(text))] for text in texts]
        (into / f"{name}.txt").write_text("\n".join(parts), encoding="utf-8")
    settings = Preparation(level="bpe", vocab_size=VOCABULARY)
    prepare(str(into), options.folder / "prepared", settings=settings).folder.rename(data(options.folder))


def data(folder: Path) -> Path:
    return folder / "data"


def parent(options: argparse.Namespace) -> None:
    run_all({"parent": spec(PARENT, data(options.folder), modern(PARENT_STEPS), 0, options.threads)}, options.folder)


def _parent(folder: Path) -> Package:
    return read_package(folder / "parent" / RESULT)


def study(options: argparse.Namespace) -> None:
    package = _parent(options.folder)
    settings = StudySettings(tokens=8192, segment=SEGMENT)
    write_study(study_cuts(package, open_prepared(data(options.folder)), "parent", settings), package.folder)


def choose(options: argparse.Namespace) -> None:
    """The child and the stock model."""
    law = read_study(options.folder / "parent" / RESULT).law
    parts = _drawn(4000)
    work = np.array([_flops(part) for part in parts]) / _flops(PARENT)
    expected = law.expected(Shapes.of(parts))
    near = [index for index in np.argsort(expected) if SHARE - 0.2 <= work[index] <= SHARE + 0.05][:24]
    stock = [Architecture.parse({**PARENT.canonical, "blocks": LAYERS * depth}) for depth in range(1, 9)]
    candidates = [PARENT, *stock[:-1], *(parts[index] for index in near)]
    milliseconds = latencies(candidates, options.launches)
    limit = SHARE * milliseconds[0]
    within = [index for index in range(8, len(candidates)) if milliseconds[index] <= limit]
    best = min(within, key=lambda index: float(law.expected(Shapes.of([candidates[index]]))[0]))
    depth = max((index for index in range(1, 8) if milliseconds[index] <= limit), default=1)
    chosen = {
        "parent_ms": milliseconds[0],
        "child": candidates[best].canonical,
        "child_ms": milliseconds[best],
        "stock": candidates[depth].canonical,
        "stock_ms": milliseconds[depth],
    }
    (options.folder / "child.json").write_text(json.dumps(chosen))


def _drawn(count: int) -> list[Architecture]:
    """Different random parts, in the order in which they were drawn."""
    rng = np.random.default_rng(1)
    return list({part.digest: part for part in (random_part(PARENT, rng) for _ in range(count))}.values())


def judge(options: argparse.Namespace) -> None:
    """How far predictions agree with parts that the study never saw, on another text."""
    package, held = _parent(options.folder), read_study(options.folder / "parent" / RESULT)
    known = {PARENT.digest, *(part.digest for part in held.law.combinations.architectures)}
    unseen = [part for part in _drawn(100) if part.digest not in known]
    (options.folder / "judged.json").write_text(json.dumps(judged(package, held, unseen[:60], data(options.folder))))


def _flops(architecture: Architecture) -> float:
    return float(costs(architecture, CostOptions(sequence_length=SEGMENT)).flops)


def latencies(models: Sequence[Architecture], launches: int) -> list[float]:
    """Each model's fastest pass of so many launches, in milliseconds; all in turns."""
    import tempfile

    from edgefront.agents.measuring.measure import Measurer
    from edgefront.core.measurement.protocol import MeasurementProtocol

    fastest = [math.inf] * len(models)
    with tempfile.TemporaryDirectory() as cache, Measurer(Path(cache)) as measurer:
        for launch in range(launches):
            for index, model in enumerate(models):
                result = measurer.measure(model, MeasurementProtocol(repeats=40), launch)
                if result.latency is not None:
                    fastest[index] = min(fastest[index], *result.latency.samples_ms)
    return fastest


def judged(package: Package, held: CutStudy, parts: Sequence[Architecture], data_folder: Path) -> dict[str, float]:
    """Predictions beside the losses of parts right after the cut, on text of the test split."""
    law: CutLaw = held.law
    cutter = _cutter(package, held, data_folder, 8192)
    losses = np.array([cutter.loss(part, law.table) for part in parts]) - cutter.parent_loss
    predicted = law.predict(Shapes.of(parts))
    expected = predicted.log_perplexity - law.parent_log_perplexity
    useful = losses < 1.5
    error = np.abs(losses - expected)
    return {
        "parts": len(parts),
        "held": float((error <= predicted.half_width).mean()),
        "spearman": float(spearmanr(losses, expected).statistic),
        "useful": int(useful.sum()),
        "held_useful": float((error <= predicted.half_width)[useful].mean()),
        "mean_error_useful": float(error[useful].mean()),
        "mean_half_width_useful": float(predicted.half_width[useful].mean()),
        "spearman_useful": float(spearmanr(losses[useful], expected[useful]).statistic),
    }


def _cutter(package: Package, held: CutStudy, data_folder: Path, tokens: int) -> Cutter:
    """Cuts the parent, and evaluates what comes out on text of the test split."""
    rows = HeldOut(rows_of(open_prepared(data_folder), "test", tokens, SEGMENT), torch.device("cpu"))
    model = package.model()
    return Cutter(model, held.importance, rows, rows.loss(model), lambda *_: None)


def train(options: argparse.Namespace) -> None:
    run_all(_runs(options.folder, options.seeds), options.folder, options.processes)


def _runs(folder: Path, seeds: int) -> dict[str, RunSpec]:
    chosen, at = json.loads((folder / "child.json").read_text()), data(folder)
    child, stock = Architecture.parse(chosen["child"]), Architecture.parse(chosen["stock"])
    weights = str(folder / "parent" / RESULT / WEIGHTS)
    runs = {}
    for seed in range(1, 1 + seeds):
        for name, distil in (("healed", True), ("inherited", False)):
            begun = {"start": weights, "inherit": True, "teacher": weights if distil else None}
            runs[f"{name}-{seed}"] = spec(child, at, healing(distil), seed).model_copy(update=begun)
        for times in MORE if seed == 1 else REPEATED:
            runs[f"scratch-{times}-{seed}"] = spec(child, at, modern(times * STEPS), seed)
        for times in (MORE[0], MORE[-1]) if seed == 1 else MORE[:1]:
            runs[f"stock-{times}-{seed}"] = spec(stock, at, modern(times * STEPS), seed)
    return runs


def report(options: argparse.Namespace) -> None:
    chosen = json.loads((options.folder / "child.json").read_text())
    found = {
        name: json.loads((options.folder / name / RESULT / "result.json").read_text())
        for name in _runs(options.folder, options.seeds)
        if (options.folder / name / RESULT / "result.json").exists()
    }
    package = _parent(options.folder)
    held = read_study(package.folder)
    cutter = _cutter(package, held, data(options.folder), 1 << 18)
    cut = math.exp(cutter.loss(Architecture.parse(chosen["child"]), held.law.table))
    shown = [
        _row("parent", chosen["parent_ms"], PARENT_STEPS, [_test(package.facts)]),
        _row("child, cut", chosen["child_ms"], 0, [cut]),
    ]
    for name, times, ms in (
        ("healed", 1, "child_ms"),
        ("inherited", 1, "child_ms"),
        *(("scratch", times, "child_ms") for times in MORE),
        *(("stock", times, "stock_ms") for times in (MORE[0], MORE[-1])),
    ):
        key = name if name in ("healed", "inherited") else f"{name}-{times}"
        scores = [_test(found[f"{key}-{seed}"]) for seed in range(1, 1 + options.seeds) if f"{key}-{seed}" in found]
        if scores:
            shown.append(_row(name, chosen[ms], times * STEPS, scores))
    agreement = json.loads((options.folder / "judged.json").read_text())
    table("models by inheritance and from their beginning", shown)
    table("predictions of parts that the study never saw", [agreement])
    append("inherit", {"models": shown, "judged": agreement, **chosen})


def _row(name: str, ms: float, steps: int, scores: Sequence[float]) -> dict[str, Any]:
    tokens = steps * ROWS * SEGMENT
    return {"model": name, "ms a pass": ms, "tokens": tokens, "perplexity": _interval(scores), "seeds": len(scores)}


def _test(facts: Mapping[str, Any]) -> float:
    return float(facts["test"]["perplexity"])


def _interval(scores: Sequence[float]) -> str:
    if len(scores) < 2:
        return f"{scores[0]:.2f}"
    half = student.ppf(0.975, len(scores) - 1) * statistics.stdev(scores) / math.sqrt(len(scores))
    return f"{statistics.mean(scores):.2f} ± {half:.2f}"


STAGES = {
    "text": text,
    "parent": parent,
    "study": study,
    "judge": judge,
    "choose": choose,
    "train": train,
    "report": report,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=STAGES)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--source", type=Path, help="of the texts")
    parser.add_argument("--threads", type=int, default=1, help="of the parent's training")
    parser.add_argument("--processes", type=int, default=1, help="trainings at once, one thread each")
    parser.add_argument("--launches", type=int, default=5)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    STAGES[options.stage](options)


if __name__ == "__main__":
    main()
