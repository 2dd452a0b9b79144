"""The papers' models side by side: latency and peak memory of segments, forward passes and decoding, on one machine.

Every number is made by the agent's own `Measurer`: a new process a launch, its memory methods, its pinned cores. Models
that are compared take turns: each round launches all of them once, every other round in reverse, so that a machine that
drifts favours none. Latency is the median over rounds of the launches' medians; a ratio is the median over rounds of
what the round's launches say.

    python benchmarks/bench_models.py [--only par bert …] [--runtime onnxruntime pytorch] [--rounds 3] [--threads 1]
        [--passes "64 after 640" …] [--device cpu|cuda] [--dtype float32] [--quick]

`--quick` shrinks every model to a few features, to see that all of it runs: its figures say nothing.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from record import append, table

from edgefront.agents.device.nvml import Gpu
from edgefront.agents.device.processor import processor
from edgefront.agents.measuring.measure import Measurer
from edgefront.core.cost.costs import costs
from edgefront.core.measurement.protocol import Dtype, MeasurementProtocol, Runtime
from edgefront.core.measurement.record import LaunchResult
from edgefront.core.measurement.statistics import median
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.models import named_model

SEED = 7
TIME_LIMIT_S = 1800.0


@dataclass(frozen=True)
class Comparison:
    """Models under the same passes. The first is what the others are compared with."""

    title: str
    models: tuple[str, ...]
    passes: Mapping[str, Mapping[str, Any]]
    """Name → fields of the protocol."""


def segment(tokens: int, memory: int, **fields: Any) -> dict[str, Any]:
    return {"sequence_length": tokens, "memory_length": memory, **fields}


def decode(memory: int) -> dict[str, Any]:
    return {"mode": "decode", "memory_length": memory, "repeats": 20}


COMPARISONS: dict[str, Comparison] = {
    "par": Comparison(
        "PAR and Sandwich against Transformer-XL, WikiText-103 (Mandava et al. 2020, Table A2)",
        ("transformer-xl-base", "sandwich-base", "par-base"),
        {"64 after 640": segment(64, 640), "forward 192": {}, "decode after 640": decode(640)},
    ),
    "bert": Comparison(
        "PAR BERT against BERT, answering SQuAD's questions (Mandava et al. 2020, Table 3)",
        ("bert-base-squad", "par-bert-base-squad", "distilbert-squad"),
        {"forward 128": {"sequence_length": 128}, "forward 384": {"sequence_length": 384}},
    ),
    "small": Comparison(
        "SRU++ against Transformer-XL of 42 and 41 million parameters, enwik8 (Lei 2021, Figure 5a)",
        ("transformer-xl-24b-enwik8", "srupp-small"),
        {"512 after 512": segment(512, 512), "decode after 512": decode(512)},
    ),
    "k": Comparison(
        "SRU++ with attention in every k-th layer, and plain SRU of the same widths (Lei 2021, Table 2)",
        ("srupp-small", "srupp-small-k2", "srupp-small-k5", "srupp-small-k10", "srupp-small-none", "sru-small"),
        {"512 after 512": segment(512, 512), "decode after 512": decode(512)},
    ),
}


def small(model: Architecture) -> Architecture:
    """The same stack of few features and words."""
    value = {**model.canonical, "d_model": 64}
    embedding = {**value["embedding"], "vocab_size": 1000}
    if "cutoffs" in embedding:
        embedding["cutoffs"] = [200, 400, 700][: len(embedding["cutoffs"])]
    if "d_embed" in embedding:
        embedding["d_embed"] = 64
    sizes = {"n_head": 4, "n_kv_head": 2, "d_head": 16, "d_inner": 128, "d_attn": 16, "d_proj": 16}
    value["blocks"] = [{name: sizes.get(name, part) for name, part in block.items()} for block in value["blocks"]]
    return Architecture.parse({**value, "embedding": embedding})


def protocols(
    arguments: argparse.Namespace, runtime: Runtime, comparison: Comparison
) -> Iterator[tuple[str, MeasurementProtocol]]:
    shared = {
        "runtime": runtime,
        "provider": arguments.device,
        "dtype": arguments.dtype,
        "threads": arguments.threads,
        "time_limit_s": TIME_LIMIT_S,
    }
    for name, fields in comparison.passes.items():
        if name in arguments.passes:
            yield name, MeasurementProtocol.model_validate({**shared, **fields})


def take_turns(
    measurer: Measurer, subjects: Mapping[str, tuple[Architecture, MeasurementProtocol]], rounds: int
) -> dict[str, list[LaunchResult]]:
    """A launch of every subject in every round, every other round in reverse; none after one that could not be made."""
    found: dict[str, list[LaunchResult]] = {name: [] for name in subjects}
    for number in range(rounds):
        for name in list(subjects) if number % 2 == 0 else reversed(list(subjects)):
            if all(result.outcome == "done" for result in found[name]):
                found[name].append(measurer.measure(*subjects[name], SEED))
    return found


def rows(
    comparison: Comparison,
    name: str,
    protocol: MeasurementProtocol,
    launches: Mapping[str, list[LaunchResult]],
    sizes: Mapping[str, int],
) -> Iterator[dict[str, Any]]:
    """What is told of each model under one pass."""
    medians = {
        model: [median(result.latency.samples_ms) for result in results if result.latency is not None]
        for model, results in launches.items()
    }
    first = medians[comparison.models[0]]
    tokens = protocol.batch * protocol.sequence_length
    for model, results in launches.items():
        found, last = medians[model], results[-1]
        row: dict[str, Any] = {"runtime": protocol.runtime, "pass": name, "model": model}
        row["parameters (M)"] = round(sizes[model] / 1e6, 1)
        if last.outcome != "done":
            row |= {
                "ms": f"{last.outcome}: {last.reason}",
                "min to max": "",
                "tokens/s": "",
                "relative": "",
                "peak MiB": "",
            }
        else:
            middle = statistics.median(found)
            peak = statistics.median(result.memory.peak_bytes for result in results if result.memory is not None)
            ratios = [own / base for own, base in zip(found, first, strict=False)]
            row |= {"ms": _figures(middle), "min to max": f"{_figures(min(found))} to {_figures(max(found))}"}
            row["tokens/s"] = _figures(1000 * tokens / middle)
            row |= {"relative": f"{statistics.median(ratios):.2f}" if ratios else "", "peak MiB": round(peak / 2**20)}
        yield row


def where(arguments: argparse.Namespace, versions: Mapping[str, Any]) -> dict[str, Any]:
    """What the figures were taken on."""
    facts: dict[str, Any] = {"device": arguments.device, "dtype": arguments.dtype, "threads": arguments.threads}
    facts["processor"] = processor()[0]
    if arguments.device == "cuda":
        facts["gpu"] = Gpu.visible().name()
    return facts | {name: versions[name] for name in ("torch", "onnxruntime", "cuda") if name in versions}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=COMPARISONS, default=list(COMPARISONS))
    passes = sorted({name for comparison in COMPARISONS.values() for name in comparison.passes})
    parser.add_argument("--passes", nargs="+", choices=passes, default=passes)
    parser.add_argument("--runtime", nargs="+", choices=get_args(Runtime), default=["onnxruntime", "pytorch"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--dtype", choices=get_args(Dtype), default="float32")
    parser.add_argument("--cache", type=Path, help="folder for random weights, up to 2 GiB; else a temporary one")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    raw, versions = [], {}
    with (
        tempfile.TemporaryDirectory(prefix="bench-models-") as folder,
        Measurer(arguments.cache or Path(folder)) as measurer,
    ):
        for comparison in (COMPARISONS[name] for name in arguments.only):
            models = {name: named_model(name).architecture for name in comparison.models}
            if arguments.quick:
                models = {name: small(model) for name, model in models.items()}
            sizes = {name: costs(model).total_parameters for name, model in models.items()}
            told: list[dict[str, Any]] = []
            for runtime in arguments.runtime:
                for name, protocol in protocols(arguments, runtime, comparison):
                    launches = take_turns(
                        measurer,
                        {model: (architecture, protocol) for model, architecture in models.items()},
                        arguments.rounds,
                    )
                    told += rows(comparison, name, protocol, launches, sizes)
                    for model, results in launches.items():
                        versions |= results[-1].environment
                        raw.append(
                            {"pass": name, "model": model, "protocol": protocol.model_dump(mode="json")}
                            | {"launches": [result.model_dump(mode="json") for result in results]}
                        )
            table(comparison.title, told)
    facts = where(arguments, versions)
    append("bench_models", {**facts, "rounds": arguments.rounds, "results": raw}, quick=arguments.quick)


def _figures(value: float) -> str:
    """Three figures, without an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    main()
