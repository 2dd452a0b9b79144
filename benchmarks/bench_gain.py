"""What the quality law's choice gains once it is trained: perplexities of three choices under the same limits.

The limits are latency and peak memory of a stock model on this CPU, measured as an agent does. Within them are chosen,
each from as many real launches: the best by the quality law, the best by decoder parameters, and the largest
layer-scaled stock model. All three are trained by one recipe with several seeds and evaluated on held-out text.

    python benchmarks/bench_gain.py [--data python] [--launches 40] [--steps 600] [--seeds 3] [--folder FOLDER]

`--data` is a data set or a folder with train.txt, valid.txt and test.txt. `--folder` keeps choices and trainings, so an
interrupted run resumes there; `--choose` ends once the choice is made (do that on a quiet machine).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from bench_find import LAW, Here, Task, ours
from record import append, table
from trainings import run_all, spec

from edgefront.core.cost.costs import costs
from edgefront.core.cost.shapes import Shapes
from edgefront.core.data.prepared.planning import Preparation
from edgefront.core.data.prepared.preparation import prepare
from edgefront.core.quality.shipped import law_named
from edgefront.core.recipes.papers import recipe
from edgefront.core.search.problem import Problem
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.lts import LTS_GPT2
from edgefront.core.units import MB

SPACE = LTS_GPT2.narrow(
    {
        "d_model": {"min": 128, "max": 384, "step": 64},
        "d_inner": {"min": 256, "max": 2048, "step": 64},
        "d_embed": ["d_model", 128, 256],
        "div": [1, 2, 4],
    }
)
DEPTHS = (2, 3, 4, 6)
LIMIT_DEPTH = 3
"""Layers of the stock model whose latency and memory are the limits."""
SLACK = 1.02
"""So that the stock model itself is within its limits in spite of noise."""


def choose(launches: int) -> dict[str, Any]:
    """Limits, and by name of the choice its architecture and what was measured of it."""
    law = law_named(LAW)
    qualities: dict[str, Callable[[Shapes], np.ndarray]] = {
        "quality law": lambda shapes: -law.predict(shapes).log_perplexity,
        "decoder parameters": lambda shapes: shapes.decoder_parameters.astype(float),
    }
    with Here() as device:
        stock = {depth: device.launch(one, 0) for depth, one in zip(DEPTHS, SPACE.baselines(DEPTHS), strict=True)}
        latency, memory = (SLACK * value for value in stock[LIMIT_DEPTH])
        found: dict[str, Any] = {"latency_ms": latency, "memory_mb": memory / MB, "launches": launches}
        for name, score in qualities.items():
            problem = Problem(
                goal="best_within_limits",
                latency_ms=latency,
                memory_bytes=memory,
                candidates=launches - len(DEPTHS),
                protocol=device.protocol,
                proxy="quality_law" if name == "quality law" else "decoder_parameters",
                scores=score,
            )
            found[name] = _best(device, Task(device, problem), launches)
        fits = [depth for depth, (ms, peak) in stock.items() if ms <= latency and peak <= memory]
        found["stock model"] = _choice(SPACE.baselines([max(fits)])[0], *stock[max(fits)])
    return found


def _best(device: Here, task: Task, launches: int) -> dict[str, Any]:
    """The best launched architecture within the limits."""
    before = len(device.launched)
    tried = list(ours("surrogate", task, 0, launches, SPACE, DEPTHS))
    within = [index for index, (_, ms, peak) in enumerate(tried) if task.within(ms, peak)]
    best = max(within, key=lambda index: tried[index][0])
    return _choice(device.launched[before + best], *tried[best][1:])


def _choice(architecture: Architecture, latency_ms: float, memory_bytes: float) -> dict[str, Any]:
    return {
        "architecture": dict(architecture.canonical),
        "latency_ms": latency_ms,
        "memory_mb": memory_bytes / MB,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="python")
    parser.add_argument("--launches", type=int, default=40, help="of each choice")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--at-once", type=int, default=2, help="trainings side by side, each on one thread")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--choose", action="store_true", help="only choose")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        kept = folder / "choices.json"
        if not kept.exists():
            folder.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(choose(options.launches), indent=1))
        chosen = json.loads(kept.read_bytes())
        if options.choose:
            return
        results = _trained(chosen, folder, options)
    limits = {name: chosen.pop(name) for name in ("latency_ms", "memory_mb", "launches")}
    rows = [_row(name, one, results, options.seeds) for name, one in chosen.items()]
    title = f"Limits {limits['latency_ms']:.1f} ms and {limits['memory_mb']:.0f} MB; {options.steps} steps, test split"
    table(title, rows)
    append("gain", {"steps": options.steps, "data": options.data, **limits, "rows": rows})


def _trained(chosen: dict[str, Any], folder: Path, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    data = prepare(options.data, folder / "data", settings=Preparation(level="bpe"))
    quick = (
        recipe("quick")
        .overridden({"steps": options.steps, "rows": 16, "segment": 64})
        .overridden({"optimizer": {"lr": 1e-3}, "schedule": {"warmup": options.steps // 7}})
        .overridden({"evaluation": {"segment": 64, "every": options.steps // 2}})
    )
    runs = {
        f"{name}-{seed}".replace(" ", "-"): spec(
            Architecture.model_validate(one["architecture"]), data.folder, quick, seed
        )
        for seed in range(options.seeds)
        for name, one in chosen.items()
        if isinstance(one, dict)
    }
    return run_all(runs, folder, options.at_once)


def _row(name: str, one: dict[str, Any], results: dict[str, dict[str, Any]], seeds: int) -> dict[str, Any]:
    architecture = Architecture.model_validate(one["architecture"])
    found, predicted = costs(architecture), law_named(LAW).predict(Shapes.of([architecture]))
    by_seed = [results[f"{name}-{seed}".replace(" ", "-")]["test"]["perplexity"] for seed in range(seeds)]
    return {
        "choice": name,
        "layers": sum(block.kind == "attention" for block in architecture.blocks),
        "d_model": architecture.d_model,
        "decoder parameters, M": found.decoder_parameters / 1e6,
        "ms": one["latency_ms"],
        "MB": one["memory_mb"],
        "predicted (WikiText-103, 40,000 steps)": math.exp(predicted.log_perplexity[0]),
        "± %": 100 * float(predicted.half_width[0]),
        "trained here": statistics.fmean(by_seed),
        "by seed": [round(value, 2) for value in by_seed],
    }


if __name__ == "__main__":
    main()
