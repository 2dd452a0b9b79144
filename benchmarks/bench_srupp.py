"""Bits per character against training time: SRU++ with attention in every k-th layer, beside Transformer-XL.

Ten layers of SRU++ with k = 1, 2, 5, 10 and without attention, their width adjusted to the parameters of the first as
in the paper's Table 2 (arXiv 2102.12459), and a Transformer-XL of as many parameters, trained on the same tokens in the
same order by one recipe: the source of Python's standard library as bytes.

    python benchmarks/bench_srupp.py [--steps 500] [--seeds 1] [--device cpu|cuda]
        [--only-ends] [--folder FOLDER] [--quick]

`--quick` trains for some steps of another text, to see that all of it runs: its figures say nothing.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from record import append, table
from trainings import run_all, spec

from edgefront.core.cost.costs import costs
from edgefront.core.data.prepared.planning import Preparation
from edgefront.core.data.prepared.preparation import prepare
from edgefront.core.recipes.papers import recipe
from edgefront.core.recipes.recipe import Recipe
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.models.srupp import every, srupp_layers, stack

D_ATTN, RATIO, LAYERS_OF_TRANSFORMER = 64, 4, 4
SRUPP, TRANSFORMER = "SRU++ k = 1", "Transformer-XL"


def srupp(k: int | None, d_attn: int) -> Architecture:
    """Ten layers, of which each k-th attends."""
    return stack(RATIO * d_attn, srupp_layers(d_attn, every(k) if k else ()))


def transformer_xl(d_model: int) -> Architecture:
    """Four layers of attention and feed-forward, relative positions, two heads."""
    layer: list[dict[str, Any]] = [
        {"kind": "attention", "n_head": 2},
        {"kind": "feed_forward", "d_inner": 4 * d_model},
    ]
    return Architecture.parse(
        {
            "d_model": d_model,
            "embedding": {"vocab_size": 256},
            "blocks": layer * LAYERS_OF_TRANSFORMER,
            "positions": {"kind": "relative"},
            "norm": "post",
        }
    )


def adjusted(make: Callable[[int], Architecture], wanted: int, widths: range) -> Architecture:
    """Of these widths the model whose decoder parameters come nearest."""
    return min((make(width) for width in widths), key=lambda one: abs(costs(one).decoder_parameters - wanted))


def contestants() -> dict[str, Architecture]:
    first = srupp(1, D_ATTN)
    wanted, widths = costs(first).decoder_parameters, range(D_ATTN, 2 * D_ATTN)
    found = {SRUPP: first}
    for k in (2, 5, 10, None):
        name = "SRU++ without attention" if k is None else f"SRU++ k = {k}"
        found[name] = adjusted(lambda width, k=k: srupp(k, width), wanted, widths)
    found[TRANSFORMER] = adjusted(transformer_xl, wanted, range(64, 256, 4))
    return found


def one_recipe(steps: int) -> Recipe:
    """The same for all: memory of one segment, state carried on."""
    return recipe("quick").overridden(
        {
            "steps": steps,
            "memory": 128,
            "schedule": {"warmup": steps // 10},
            "evaluation": {"segment": 128, "memory": 128, "every": max(1, steps // 5)},
        }
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--only-ends", action="store_true", help=f"only {SRUPP} and {TRANSFORMER}")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    models, text = contestants(), "python"
    if options.only_ends:
        models = {name: models[name] for name in (SRUPP, TRANSFORMER)}
    if options.quick:
        options.steps, text = 6, str(Path(__file__).parent / "README.md")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        data = prepare(text, folder / "data", settings=Preparation(level="bytes", valid_percent=1, test_percent=1))
        chosen = one_recipe(options.steps)
        initialisation = {TRANSFORMER: "transformer_xl"}
        runs = {
            f"{name}-{seed}": spec(
                model,
                data.folder,
                chosen.overridden({"initialisation": initialisation.get(name, "srupp")}),
                seed,
                device=options.device,
            )
            for seed in range(options.seeds)
            for name, model in models.items()
        }
        results = run_all(runs, folder)  # one after the other: their times are compared
    first = _mean(results, SRUPP, options.seeds, "seconds")
    rows = []
    for name, model in models.items():
        seconds = _mean(results, name, options.seeds, "seconds")
        rows.append(
            {
                "model": name,
                "d_model": model.d_model,
                "decoder parameters": costs(model).decoder_parameters,
                "bpc": statistics.fmean(results[f"{name}-{seed}"]["test"]["bpc"] for seed in range(options.seeds)),
                "training seconds": seconds,
                "of k = 1": seconds / first,
            }
        )
    where = "one thread" if options.device == "cpu" else "on a GPU"
    table(f"{options.steps} steps of {chosen.rows} x {chosen.segment} bytes, {where}", rows)
    result = {"device": options.device, "steps": options.steps, "seeds": options.seeds, "rows": rows}
    append("srupp", result, quick=options.quick)


def _mean(results: dict[str, dict[str, Any]], name: str, seeds: int, key: str) -> float:
    return statistics.fmean(results[f"{name}-{seed}"][key] for seed in range(seeds))


if __name__ == "__main__":
    main()
