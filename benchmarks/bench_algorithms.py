"""What a search algorithm gains over random search, on simulated devices and by two meanings of memory.

Devices, both additive over layers: `gpu` (launches of kernels, heads, and 8 TFLOP/s) and `arm` (the linear model of
parameters, width, layers, inner widths and heads that fits the latencies which the authors of LTS, arXiv 2203.02094,
measured on an ARM CPU, with 1.4 % mean error). Memory: `allocated` is the sum of what the layers allocate, without
weights, as the paper measures it; `peak` is weights and the largest block's activations, as a device needs it.

For each: the share of random candidates that are on the frontier, each algorithm's hypervolume over that of random
search at equal budget (mean of the seeds), and how many frontier points are both faster and smaller than the
layer-scaled baseline at equal parameters.

    python benchmarks/bench_algorithms.py [--candidates 400] [--seeds 5]
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import numpy as np
from record import append, table

from edgefront.core.cost.costs import CostOptions, costs
from edgefront.core.cost.parameters import count
from edgefront.core.pareto.baseline import Baseline, reference, versus
from edgefront.core.pareto.frontier import hypervolume, nondominated
from edgefront.core.search.interface import Evaluated, Snapshot, objectives
from edgefront.core.search.registry import make
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.block import Attention, FeedForward
from edgefront.core.spaces.lts import LTS_GPT2

SEQUENCE = 192
NAMES = ("random", "lts", "nsga2")
Figure = Callable[[Architecture], float]


def gpu(architecture: Architecture) -> float:
    """Milliseconds: 0.1 a launch, 0.03 a head, 4·10⁹ multiply-accumulates a millisecond."""
    body = costs(architecture, CostOptions(logits="none")).flops / 2 / 4e9
    heads = sum(block.n_head for block in architecture.blocks if isinstance(block, Attention))
    return 0.1 * (1 + len(architecture.blocks)) + 0.03 * heads + body


def arm(architecture: Architecture) -> float:
    """Milliseconds on the paper's ARM CPU."""
    heads = sum(block.n_head for block in architecture.blocks if isinstance(block, Attention))
    inner = sum(block.d_inner for block in architecture.blocks if isinstance(block, FeedForward))
    millions = count(architecture).decoder / 1e6
    width, layers = architecture.d_model, len(architecture.blocks) // 2
    return 168.2 + 1.026 * width + 41.98 * millions + 16.52 * layers + 0.02252 * inner + 1.418 * heads


def activations(architecture: Architecture) -> list[int]:
    """Bytes that each block allocates."""
    found, width = [], architecture.d_model
    for block in architecture.blocks:
        if isinstance(block, Attention):
            found.append(4 * SEQUENCE * (2 * SEQUENCE * block.n_head + 4 * width))
        else:
            found.append(4 * SEQUENCE * (2 * block.d_inner + width))
    return found


def allocated(architecture: Architecture) -> float:
    return float(sum(activations(architecture)))


def peak(architecture: Architecture) -> float:
    return float(costs(architecture).weight_bytes + max(activations(architecture)))


def search(name: str, seed: int, candidates: int, latency: Figure, memory: Figure) -> np.ndarray:
    """Points (decoder parameters, latency, memory) of a search of so many candidates, 40 in a generation."""
    algorithm, results = make(name, {"population": 40}, LTS_GPT2), list[Evaluated]()
    generation = 0
    while len(results) < candidates:
        for proposal in algorithm.ask(seed, generation, Snapshot(tuple(results)))[: candidates - len(results)]:
            built = proposal.architecture
            results.append(
                Evaluated(
                    id=str(len(results)),
                    genome=proposal.genome,
                    digest=built.digest,
                    state="measured",
                    proxy=float(count(built).decoder),
                    latency_ms=latency(built),
                    memory_bytes=int(memory(built)),
                    generation=generation,
                    parents=proposal.parents,
                )
            )
        generation += 1
    return objectives(results)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--candidates", type=int, default=400)
    arguments.add_argument("--seeds", type=int, default=5)
    options = arguments.parse_args()
    rows = []
    for latency in (gpu, arm):
        for memory in (allocated, peak):
            scaled = [
                (count(architecture).decoder, latency(architecture), memory(architecture))
                for architecture in LTS_GPT2.baselines()
            ]
            corner, baseline = reference(scaled), Baseline(scaled)
            for name in NAMES:
                gains, shares, better = [], [], []
                for seed in range(options.seeds):
                    found = {
                        which: search(which, seed, options.candidates, latency, memory) for which in {name, "random"}
                    }
                    gains.append(hypervolume(found[name], corner) / hypervolume(found["random"], corner) - 1)
                    front = found[name][nondominated(found[name])]
                    shares.append(len(front) / len(found[name]))
                    against = [versus(baseline, *point) for point in front]
                    better.append(
                        np.mean(
                            [comparison["speedup"] > 1 and comparison["memory_ratio"] > 1 for comparison in against]
                        )
                    )
                row = {
                    "device": latency.__name__,
                    "memory": memory.__name__,
                    "algorithm": name,
                    "on the frontier %": float(100 * np.mean(shares)),
                    "faster and smaller %": float(100 * np.mean(better)),
                    "hypervolume over random %": float(100 * np.mean(gains)),
                    "worst seed %": float(100 * np.min(gains)),
                }
                rows.append(row)
                append("bench_algorithms", row)
    table(f"{options.candidates} candidates of lts-gpt2, {options.seeds} seeds", rows)


if __name__ == "__main__":
    main()
