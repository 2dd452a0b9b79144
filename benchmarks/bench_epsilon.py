"""How many of random candidates lie on the frontier, by the ε up to which differences do not count.

Devices: the two of `replayed.py`, one launch of each candidate, and real launches of a CPU by both runtimes
(`results/predict_here.jsonl.gz`). Candidates of lts-gpt2, ranked by decoder parameters and by the quality law.

    python benchmarks/bench_epsilon.py [--candidates 400] [--seeds 5]
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator, Sequence

import numpy as np
from record import RESULTS, append, table
from replayed import DEVICES

from edgefront.core.cost.shapes import Shapes
from edgefront.core.pareto.dominance import Dominance
from edgefront.core.quality.shipped import law_named
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.lts import LTS_GPT2

EPSILONS = (0.0, 0.01, 0.02, 0.05)
LAW = law_named("lts-gpt2-wikitext103")
Launches = tuple[list[Architecture], list[tuple[float, int]]]


def replayed(candidates: int, seeds: int) -> Iterator[tuple[str, Launches]]:
    for name, device in DEVICES.items():
        for seed in range(seeds):
            rng = np.random.default_rng(seed)
            models = [LTS_GPT2.architecture(LTS_GPT2.sample(rng)) for _ in range(candidates)]
            yield name, (models, [device.launch(model, seed) for model in models])


def measured() -> Iterator[tuple[str, Launches]]:
    found: dict[str, Launches] = {}
    with gzip.open(RESULTS / "predict_here.jsonl.gz", "rt") as file:
        for row in map(json.loads, file):
            if row["space"] == "lts-gpt2" and row["mode"] == "forward":
                models, figures = found.setdefault(f"cpu, {row['runtime']}", ([], []))
                models.append(Architecture.parse(row["architecture"]))
                figures.append((row["latency_ms"], row["peak_bytes"]))
    yield from found.items()


def shares(launches: Launches) -> Iterator[tuple[str, list[float]]]:
    """Proxy → share on the frontier by each ε."""
    models, figures = launches
    shapes, digests = Shapes.of(models), [model.digest for model in models]
    proxies: dict[str, tuple[Sequence[float], bool]] = {
        "decoder_parameters": (shapes.decoder_parameters.tolist(), False),
        "quality_law": ((-LAW.predict(shapes).log_perplexity).tolist(), True),
    }
    for proxy, (values, logarithmic) in proxies.items():
        points = [(value, *figure) for value, figure in zip(values, figures, strict=True)]
        yield (
            proxy,
            [float(Dominance(epsilon, logarithmic).frontier(points, digests).mean()) for epsilon in EPSILONS],
        )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--candidates", type=int, default=400)
    arguments.add_argument("--seeds", type=int, default=5)
    options = arguments.parse_args()
    found: dict[tuple[str, str], list[list[float]]] = {}
    for device, launches in (*replayed(options.candidates, options.seeds), *measured()):
        for proxy, of_epsilon in shares(launches):
            found.setdefault((device, proxy), []).append(of_epsilon)
    rows = []
    for (device, proxy), seen in found.items():
        means = np.mean(seen, axis=0)
        by_epsilon = {f"ε {at:g}": f"{100 * share:.0f} %" for at, share in zip(EPSILONS, means, strict=True)}
        rows.append({"device": device, "ranked by": proxy, **by_epsilon})
        append("bench_epsilon", rows[-1])
    table("Share of random candidates on the frontier", rows)


if __name__ == "__main__":
    main()
