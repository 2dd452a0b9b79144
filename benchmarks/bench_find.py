"""How many launches it takes to find the best model within limits, by algorithm.

Replayed devices (`replayed.py`: latencies fitted to published launches), the space lts-gpt2 with its embedding free,
quality predicted by the shipped law of GPT-2 on WikiText-103. Six pairs of limits: latency and peak memory of the
stock model at six depths. Every search begins with the same baselines and has the same three objectives (predicted
perplexity, latency, memory); all know the limits. `surrogate` is asked for the best within limits and ends when a
batch is expected to gain less than 0.1 % (its default is 1 %); Optuna's samplers get the limits as constraints, and
their proposals are moved into the space as mutants are.

The best known is the better of what any search measured and what evolution finds on the device's fit. Given are the
best measured perplexity within the limits relative to it after so many launches, baselines included, and the launches
until it is within 1 %. A search that has ended keeps what it found.

With `--devices here` every launch is a real one, by the agent's measuring loop with ONNX Runtime on one thread of this
machine; a launch that fails is infeasible. The best known is then the best that any search measured.

    python benchmarks/bench_find.py --devices here --launches 40 --depths 5 10
    python benchmarks/bench_find.py [--launches 400] [--seeds 1] [--devices arm v100] [--searches surrogate lts …]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from record import append, table
from replayed import DEVICES, Replayed

from edgefront.agents.measuring.measure import Measurer
from edgefront.core.cost.shapes import Shapes
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.statistics import median
from edgefront.core.quality.features import features
from edgefront.core.quality.shipped import law_named
from edgefront.core.search.evolution import Evolution
from edgefront.core.search.forecast import Forecast
from edgefront.core.search.interface import Evaluated, Observation, Snapshot, generator
from edgefront.core.search.population_shapes import PopulationShapes
from edgefront.core.search.problem import Problem
from edgefront.core.search.registry import make
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.lts import LTS_GPT2
from edgefront.core.spaces.space import SearchSpace

SPACE = LTS_GPT2.narrow({"d_embed": ["d_model", 128, 256, 512], "div": [1, 2, 4]})
BASELINES = (1, 4, 8, 16)
DEPTHS = (2, 3, 5, 7, 10, 14)
"""Of the stock model, whose latency and memory are the limits."""
AFTER = (20, 25, 40, 80, 160, 400)
LIMITS_SEED = 99
WITHIN = 0.01
LAW = "lts-gpt2-wikitext103"
SETTINGS: dict[str, dict[str, Any]] = {"surrogate": {"least_gain": 0.001}}
GP_LAUNCHES = 40
"""Optuna's Gaussian process takes many minutes for more."""


class Here:
    """This machine, measured as an agent does, and what it launched, in order. A context manager."""

    name, protocol = "here", MeasurementProtocol()

    def __init__(self) -> None:
        self.launched: list[Architecture] = []

    def __enter__(self) -> Here:
        self._folder = tempfile.TemporaryDirectory()
        self._measurer = Measurer(Path(self._folder.name)).__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._measurer.__exit__(*error)
        self._folder.cleanup()

    def launch(self, architecture: Architecture, seed: int) -> tuple[float, int]:
        """Median latency (ms) and peak memory (bytes); without end where it cannot be run."""
        self.launched.append(architecture)
        result = self._measurer.measure(architecture, self.protocol, seed)
        if result.latency is None or result.memory is None:
            return np.inf, 1 << 50
        return median(result.latency.samples_ms), result.memory.peak_bytes


@dataclass(frozen=True)
class Task:
    """A device, its limits, and quality."""

    device: Replayed | Here
    problem: Problem

    @property
    def score(self) -> Callable[[Shapes], np.ndarray]:
        return self.problem.score()

    def launch(self, architecture: Architecture, seed: int) -> tuple[float, float, int]:
        """Quality, latency and memory of one launch."""
        return (float(self.score(Shapes.of([architecture]))[0]), *self.device.launch(architecture, seed))

    def within(self, latency_ms: float, memory_bytes: float) -> bool:
        return bool(self.problem.violation(np.array([latency_ms]), np.array([memory_bytes]))[0] == 0)


def tasks(
    device: Replayed | Here, scores: Callable[[Shapes], np.ndarray], launches: int, depths: Sequence[int]
) -> list[Task]:
    return [
        Task(
            device,
            Problem(
                goal="best_within_limits",
                latency_ms=float(latency),
                memory_bytes=float(memory),
                candidates=launches - len(BASELINES),
                protocol=device.protocol,
                proxy="quality_law",
                scores=scores,
            ),
        )
        for latency, memory in (device.launch(baseline, LIMITS_SEED) for baseline in SPACE.baselines(depths))
    ]


def best_known(task: Task) -> float:
    """The quality that evolution finds on the device's fit, without a launch and without what the fit does not explain.

    Nothing could find the few of a million architectures that happen to be far faster than all that resemble them.
    """

    device = task.device
    if isinstance(device, Here):
        return -np.inf

    def exact(shapes: Shapes) -> Forecast:
        nothing, none = np.zeros(len(shapes)), np.zeros((len(shapes), 0))
        return Forecast(
            task.score(shapes), device.fit(shapes), nothing, device.memory_bytes(shapes), nothing, none, none
        )

    rules = SPACE.rules
    evolution = Evolution(rules, PopulationShapes(SPACE), exact, task.problem, generator(0, 0, "best known"))
    pool = evolution.run(rules.sample(0, evolution.rng), 4000, 60)
    return float(pool.forecast.quality[pool.forecast.violation(task.problem, 0.0) == 0].max())


# Searches: each yields (quality, latency, memory) launch by launch, after the baselines ------------------------------


def ours(
    name: str,
    task: Task,
    seed: int,
    launches: int,
    space: SearchSpace = SPACE,
    depths: Sequence[int] = BASELINES,
) -> Iterator[tuple[float, float, int]]:
    algorithm = make(name, SETTINGS.get(name, {}), space, None, task.problem)
    baselines = []
    for architecture in space.baselines(depths):
        quality, latency, memory = task.launch(architecture, seed)
        baselines.append(Observation(architecture, latency, memory))
        yield quality, latency, memory
    results: list[Evaluated] = []
    generation = 0
    while len(results) < launches - len(baselines):
        proposals = algorithm.ask(seed, generation, Snapshot(tuple(results), tuple(baselines)))
        if not proposals:
            return
        for proposal in proposals[: launches - len(baselines) - len(results)]:
            quality, latency, memory = task.launch(proposal.architecture, seed)
            results.append(
                Evaluated(
                    id=str(len(results)),
                    genome=proposal.genome,
                    digest=proposal.architecture.digest,
                    state=state(task, latency, memory),
                    proxy=quality,
                    latency_ms=latency if np.isfinite(latency) else None,
                    memory_bytes=memory if np.isfinite(latency) else None,
                    generation=generation,
                    parents=proposal.parents,
                    operator=proposal.operator,
                    predicted=proposal.predicted,
                )
            )
            yield quality, latency, memory
        generation += 1


def state(task: Task, latency: float, memory: int) -> str:
    if not np.isfinite(latency):
        return "infeasible"
    return "measured" if task.within(latency, memory) else "out_of_bounds"


def optuna(name: str, task: Task, seed: int, launches: int) -> Iterator[tuple[float, float, int]]:
    """Optuna's sampler over the same places, an integer or a word each, with the limits as constraints."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)

    rules = SPACE.rules
    samplers = {"optuna-tpe": optuna.samplers.TPESampler(seed=seed, multivariate=True)}
    sampler = samplers.get(name) or optuna.samplers.GPSampler(seed=seed)
    study = optuna.create_study(directions=["minimize"] * 3, sampler=sampler)
    for architecture in SPACE.baselines(BASELINES):
        yield task.launch(architecture, seed)
    for _ in range(launches - len(BASELINES)):
        trial = study.ask()
        codes = [
            trial.suggest_int(f"{name}.{column}", 0, len(rules.genes[name].values) - 1)
            for name, columns in rules.columns.items()
            for column in range(columns.start, columns.stop)
        ]
        (genome,) = rules.decode(rules.repair(np.array([codes], dtype=np.int16)))
        quality, latency, memory = task.launch(SPACE.architecture(genome), seed)
        latency = min(latency, 1e9)
        trial.set_constraint("latency", float(np.log(latency / task.problem.latency_ms)))
        trial.set_constraint("memory", float(np.log(memory / task.problem.memory_bytes)))
        study.tell(trial, [-quality, latency, memory])
        yield quality, latency, memory


def search(name: str, task: Task, seed: int, launches: int) -> np.ndarray:
    """The best quality within the limits after each launch; -inf before there is any."""
    run = optuna if name.startswith("optuna") else ours
    launches = min(launches, GP_LAUNCHES) if name == "optuna-gp" else launches
    best, found = -np.inf, []
    for quality, latency, memory in run(name, task, seed, launches):
        best = max(best, quality if task.within(latency, memory) else -np.inf)
        found.append(best)
    return np.array(found)


def scores_of_law() -> Callable[[Shapes], np.ndarray]:
    """Predicted perplexity, its sign flipped: higher is better."""
    law = law_named(LAW)
    return lambda shapes: -np.exp(law.log_of(features(shapes)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launches", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--devices", nargs="+", choices=[*DEVICES, "here"], default=list(DEVICES))
    parser.add_argument("--depths", type=int, nargs="+", default=DEPTHS, help="of the stock models that are the limits")
    names = ["surrogate", "lts", "nsga2", "random", "optuna-tpe", "optuna-gp"]
    parser.add_argument("--searches", nargs="+", choices=names, default=names[:-1])
    options = parser.parse_args()
    scores, rows = scores_of_law(), []
    for device in options.devices:
        with Here() if device == "here" else nullcontext(DEVICES[device]) as opened:
            curves = compared(opened, scores, options)
        for name, every in curves.items():
            rows.append({"device": device, "search": name, **summary(every, options.launches)})
            append("bench_find", rows[-1])
    limits = f"median and worst of {len(options.depths)} limits"
    table(f"Excess of predicted perplexity over the best known, % ({limits})", rows)


def compared(
    device: Replayed | Here, scores: Callable[[Shapes], np.ndarray], options: argparse.Namespace
) -> dict[str, list[np.ndarray]]:
    """Search → for each limits and seed the excess of its best over the best known, after each launch."""
    curves: dict[str, list[np.ndarray]] = {name: [] for name in options.searches}
    for task in tasks(device, scores, options.launches, options.depths):
        aim = best_known(task)
        for seed in range(options.seeds):
            found = {}
            for name in options.searches:
                started = time.process_time()
                found[name] = search(name, task, seed, options.launches)
                seconds = time.process_time() - started
                print(f"{device.name} {task.problem.latency_ms:.0f} ms: {name} took {seconds:.0f} s of CPU", flush=True)
            best = max(aim, *(float(best_so_far[-1]) for best_so_far in found.values()))
            for name, best_so_far in found.items():
                curves[name].append(best_so_far / best - 1)  # perplexity: both are negative, so this is its excess
                print(
                    "  ",
                    name,
                    [f"{100 * curves[name][-1][min(n, len(best_so_far)) - 1]:.2f}" for n in AFTER],
                    flush=True,
                )
    return curves


def summary(curves: list[np.ndarray], launches: int) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for after in AFTER:
        reached = [100 * curve[min(after, len(curve)) - 1] for curve in curves]
        if after <= launches:
            row[f"after {after}"] = f"{statistics.median(reached):.2f} ({max(reached):.2f})"
    until = [int(np.argmax(curve <= WITHIN)) + 1 if curve[-1] <= WITHIN else np.inf for curve in curves]
    middle = statistics.median(until)
    row["launches until within 1 %"] = "never" if middle == np.inf else round(middle)
    row["limits never within 1 %"] = sum(launches == np.inf for launches in until)
    return row


if __name__ == "__main__":
    main()
