"""How well decoder parameters rank small trained models on this machine: LTS (arXiv 2203.02094, §4.1) in small.

Architectures sampled from `lts-gpt2`, narrowed so that a CPU can train them, are trained by one recipe on the built-in
corpus (the source of Python's standard library, as bytes), three seeds each, and evaluated on its held-out files. The
table has decoder parameters and perplexity, and Spearman's ρ between them with its 95 % interval.

    python benchmarks/bench_proxy.py [--architectures 24] [--seeds 3] [--steps 600] [--folder FOLDER]

`--folder` keeps the runs: what was interrupted continues there.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from record import append, table
from trainings import run_all, spec

from edgefront.core.cost.costs import costs
from edgefront.core.data.prepared.planning import Preparation
from edgefront.core.data.prepared.preparation import prepare
from edgefront.core.proxies.correlation import common_ratio, interval, kendall, spearman
from edgefront.core.recipes.papers import recipe
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.catalogue import space

NARROWED = {
    "n_layer": [2, 3, 4, 5],
    "d_model": [128, 192],
    "d_inner": {"min": 256, "max": 768, "step": 64},
}


def sampled(count: int) -> list[Architecture]:
    """`count` different architectures, uniform by gene, the same each time."""
    narrowed, rng = space("lts-gpt2").narrow(NARROWED), np.random.default_rng(2203)
    found: dict[str, Architecture] = {}
    while len(found) < count:
        architecture = narrowed.architecture(narrowed.sample(rng))
        found.setdefault(architecture.digest, architecture)
    return list(found.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--architectures", type=int, default=24)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--at-once", type=int, default=2, help="trainings side by side, each on one thread")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        data = prepare("python", folder / "data", settings=Preparation(level="bytes", valid_percent=1))
        # At the recipe's own rate, twice as high, the deepest of these do worse than the shallowest.
        slower = {"optimizer": {"lr": 1e-3}, "schedule": {"warmup": options.steps // 7}}
        # Twice as many rows half as long read twice as many files.
        quick = (
            recipe("quick")
            .overridden({"steps": options.steps, "rows": 16, "segment": 64, **slower})
            .overridden({"evaluation": {"segment": 64, "every": options.steps // 2}})
        )
        architectures = sampled(options.architectures)
        runs = {
            f"{architecture.digest[:12]}-{seed}": spec(architecture, data.folder, quick, seed)
            for seed in range(options.seeds)
            for architecture in architectures
        }
        results = run_all(runs, folder, options.at_once)
    rows = [_row(architecture, results, options.seeds) for architecture in architectures]
    rows.sort(key=lambda row: row["decoder parameters"])
    table(f"{options.steps} steps of {quick.rows} x {quick.segment} bytes, {options.seeds} seeds", rows)
    parameters = [row["decoder parameters"] for row in rows]
    quality = [-row["perplexity"] for row in rows]
    found: dict[str, Any] = {
        "spearman": spearman(quality, parameters),
        "interval": interval(quality, parameters),
        "kendall": kendall(quality, parameters),
        "common_ratio_30": common_ratio(quality, parameters, 0.3),
        "spearman_by_seed": [
            spearman([-row["by seed"][seed] for row in rows], parameters) for seed in range(options.seeds)
        ],
        # How much of the ranking chance alone could turn: the seeds' deviation beside that between architectures.
        "deviation_of_seeds": statistics.fmean(statistics.pstdev(row["by seed"]) for row in rows),
        "deviation_of_architectures": statistics.pstdev(row["perplexity"] for row in rows),
    }
    for name, value in found.items():
        print(f"{name}: {value}")
    append("proxy", {"steps": options.steps, "seeds": options.seeds, **found, "rows": rows})


def _row(architecture: Architecture, results: dict[str, dict[str, Any]], seeds: int) -> dict[str, Any]:
    trained = [results[f"{architecture.digest[:12]}-{seed}"] for seed in range(seeds)]
    found = costs(architecture)
    by_seed = [training["test"]["perplexity"] for training in trained]
    return {
        "architecture": architecture.digest[:12],
        "layers": sum(block.kind == "attention" for block in architecture.blocks),
        "d_model": architecture.d_model,
        "decoder parameters": found.decoder_parameters,
        "perplexity": statistics.fmean(by_seed),
        "by seed": [round(value, 4) for value in by_seed],
        "seconds": statistics.fmean(training["seconds"] for training in trained),
    }


if __name__ == "__main__":
    main()
