"""PAR's question in small: Transformer-XL, Sandwich and PAR stacks of equal depth, and what a supernet finds there.

One recipe, one budget, one text for all: each stack is trained again with each seed and evaluated on the held-out text;
one search by the supernet a seed says which other stacks are trained so. Latency is of a segment after a
memory, by the agent's own `Measurer`, all stacks taking turns. Runs that were done are kept in `--folder` and not done
again.

    python benchmarks/bench_par.py [--layers 12] [--d-model 128] [--steps 2000] [--search-steps 3000] [--seeds 3]
        [--data python] [--folder FOLDER] [--device cpu|cuda] [--quick]

`--quick` makes everything tiny, to see that all of it runs: its figures say nothing.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench_models import take_turns
from record import RESULTS, append, table
from trainings import run_all

from edgefront.agents.measuring.measure import Measurer
from edgefront.core.cost.costs import costs
from edgefront.core.data.prepared.preparation import Preparation, prepare
from edgefront.core.data.prepared.prepared import Prepared
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.statistics import median
from edgefront.core.recipes.recipe import Recipe
from edgefront.core.spaces.pattern import contract, expand, sandwich_pattern
from edgefront.core.supernet.picture import draw
from edgefront.core.supernet.result import FILE, SearchOutcome, SupernetResult
from edgefront.core.supernet.run import run
from edgefront.core.supernet.settings import SupernetSettings
from edgefront.core.training.run_folder import RESULT, RunSpec


def recipe(arguments: argparse.Namespace, steps: int) -> Recipe:
    """Transformer-XL in small: memory as long as the segment, evaluated after a longer one."""
    segment = 16 if arguments.quick else arguments.segment
    return Recipe.parse(
        {
            "name": "bench-par",
            "steps": steps,
            "rows": 8 if arguments.quick else arguments.rows,
            "segment": segment,
            "memory": segment,
            "clip": 0.25,
            "dropout": {"embedding": 0.1, "hidden": 0.1, "output": 0.1},
            "optimizer": {"name": "adamw", "lr": 2e-3, "betas": [0.9, 0.95], "weight_decay": 0.01},
            "schedule": {"warmup": steps // 10, "min_lr": 1e-4},
            "initialisation": "transformer_xl",
            "checkpoint_every": max(1, steps // 4),
            "evaluation": {"segment": segment, "memory": 4 * segment, "every": max(1, steps // 4), "tokens": 1 << 15},
        }
    )


def shape(arguments: argparse.Namespace) -> SupernetSettings:
    """The blocks, and the search over them."""
    return SupernetSettings(
        layers=arguments.layers,
        d_model=arguments.d_model,
        n_head=4,
        d_inner=4 * arguments.d_model,
        seeds=arguments.seeds,
    )


def search(arguments: argparse.Namespace, data: Prepared, folder: Path) -> tuple[SearchOutcome, ...]:
    """What the supernet finds with each seed; its picture beside it."""
    place = folder / "supernet"
    place.mkdir(parents=True, exist_ok=True)
    if not (place / RESULT / FILE).exists():
        spec = RunSpec(
            kind="supernet",
            data=str(data.folder),
            recipe=recipe(arguments, arguments.search_steps).model_dump(mode="json"),
            supernet=shape(arguments).model_dump(mode="json"),
            device=arguments.device,
        )
        print("  searching", file=sys.stderr, flush=True)
        run(spec, place)
    found = SupernetResult.parse((place / RESULT / FILE).read_bytes()).searches
    panels = [
        (
            f"seed {result.seed}: {result.pattern}",
            result.probabilities,
            [(r.step, r.probabilities) for r in result.records],
        )
        for result in found
    ]
    (place / "probabilities.png").write_bytes(draw(panels))
    return found


def stacks(arguments: argparse.Namespace, found: tuple[SearchOutcome, ...]) -> dict[str, str]:
    """Name → letters of everything that is trained, the published ones first."""
    pairs = arguments.layers // 2
    named = {
        "Transformer-XL": expand(f"(sf)x{pairs}"),
        "Sandwich": expand(sandwich_pattern(pairs, max(1, round(pairs * 6 / 16)))),
        "PAR": expand(f"par({arguments.layers})"),
    }
    for result in found:
        if result.letters not in named.values():
            named[f"supernet, seed {result.seed}"] = result.letters
    return named


def run_name(stack: str, seed: int) -> str:
    """Of the training of a stack with a seed, and of its folder."""
    return f"{stack}-{seed}".replace(", ", "-").replace(" ", "-").lower()


def latencies(arguments: argparse.Namespace, models: Mapping[str, Any], cache: Path) -> dict[str, float]:
    """Median milliseconds over rounds of one segment after a memory."""
    segment = recipe(arguments, 1).segment
    protocol = MeasurementProtocol.model_validate(
        {"runtime": "pytorch", "provider": arguments.device, "sequence_length": segment, "memory_length": 4 * segment}
    )
    with Measurer(cache) as measurer:
        launches = take_turns(
            measurer,
            {name: (architecture, protocol) for name, architecture in models.items()},
            1 if arguments.quick else 3,
        )
    found = {}
    for name, results in launches.items():
        known = [median(result.latency.samples_ms) for result in results if result.latency is not None]
        if not known:
            sys.exit(f"{name} could not be measured: {results[-1].reason}")
        found[name] = statistics.median(known)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--d-model", type=int, default=128)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--segment", type=int, default=96)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--search-steps", type=int, default=3000)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data", default="python", help="a data set's name, or the path of a text")
    parser.add_argument("--pieces", type=int, default=2048, help="of byte-pair encoding")
    parser.add_argument("--folder", type=Path, help="where runs are kept; else a temporary one")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--at-once", type=int, default=1, help="trainings side by side")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.layers, arguments.d_model, arguments.seeds = 4, 32, min(arguments.seeds, 2)
        arguments.steps, arguments.search_steps, arguments.data = 8, 12, str(Path(__file__).parent / "README.md")
    with tempfile.TemporaryDirectory(prefix="bench-par-") as temporary:
        folder = arguments.folder or Path(temporary)
        settings = Preparation(level="bpe", vocab_size=arguments.pieces)
        data = prepare(arguments.data, folder / "data", settings=settings)
        found = search(arguments, data, folder)
        letters = stacks(arguments, found)
        models = {name: shape(arguments).architecture(stack, data.vocab_size) for name, stack in letters.items()}
        specs = {
            run_name(name, seed): RunSpec(
                architecture=model.canonical,
                data=str(data.folder),
                recipe=recipe(arguments, arguments.steps).model_dump(mode="json"),
                seed=seed,
                device=arguments.device,
            )
            for name, model in models.items()
            for seed in range(arguments.seeds)
        }
        trained = run_all(specs, folder / "trainings", arguments.at_once)
        ms = latencies(arguments, models, folder / "weights")
        rows = []
        for name, stack in letters.items():
            scores = [trained[run_name(name, seed)] for seed in range(arguments.seeds)]
            perplexities = [score["test"]["perplexity"] for score in scores]
            built = models[name]
            blocks = stack.replace("i", "")
            rows.append(
                {
                    "stack": name,
                    "pattern": contract(stack),
                    "attention share": f"{blocks.count('s') / max(1, len(blocks)):.0%}",
                    "decoder parameters (M)": round(costs(built).decoder_parameters / 1e6, 2),
                    "perplexity": round(statistics.mean(perplexities), 3),
                    "± over seeds": round(statistics.stdev(perplexities), 3) if len(perplexities) > 1 else 0.0,
                    "ms": round(ms[name], 3),
                    "relative": round(ms[name] / ms["Transformer-XL"], 2),
                }
            )
        table(
            f"{arguments.layers} layers of {arguments.d_model} on {data.name}, {arguments.steps} steps, "
            f"{arguments.seeds} seeds",
            rows,
        )
        searched = [
            {
                "seed": result.seed,
                "pattern": result.pattern,
                "converged": result.converged,
                "steps": result.steps,
                "s in the first two thirds": result.letters[: round(2 * len(result.letters) / 3)].count("s"),
                "s in all": result.letters.count("s"),
            }
            for result in found
        ]
        table("What the supernet found", searched)
        options = {name: str(value) if isinstance(value, Path) else value for name, value in vars(arguments).items()}
        append("bench_par", {**options, "stacks": rows, "searches": searched}, quick=arguments.quick)
        if not arguments.quick:
            RESULTS.mkdir(exist_ok=True)
            (RESULTS / "bench_par.png").write_bytes((folder / "supernet" / "probabilities.png").read_bytes())


if __name__ == "__main__":
    main()
