"""Whether what is written loads: random architectures of every space that transformers or llama.cpp loads.

    .venv/bin/python benchmarks/bench_loads.py [--count 500] [--gguf 100]

Each is drawn from its space narrowed by `loads_in`, with at most three layers. transformers makes the model of its
`config.json` without weights; llama.cpp loads a GGUF file of random weights (few tokens, d_model to 256), in each of
its number formats in turn, and generates two tokens. Needs transformers, torch, xllamacpp and gguf; minutes. A JSON
line for each space goes to `results/loads.jsonl`.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import transformers
import xllamacpp
from record import append, table

from edgefront.core.graph.gguf import write_gguf
from edgefront.core.number_formats import GgufFormat
from edgefront.core.spaces.architecture import Architecture
from edgefront.core.spaces.catalogue import spaces
from edgefront.core.spaces.gene import Gene
from edgefront.core.spaces.huggingface import to_config
from edgefront.core.spaces.space import LOADS_IN, SearchSpace

NUMBERS: tuple[GgufFormat, ...] = ("float32", "float16", "q8_0", "q4_0")
LAYERS = (1, 2, 3)


def in_transformers(architecture: Architecture) -> str:
    config = transformers.AutoConfig.for_model(**to_config(architecture))
    with torch.device("meta"):
        transformers.AutoModelForCausalLM.from_config(config)
    return str(config.model_type)


def in_llama_cpp(architecture: Architecture, number: int, folder: Path) -> str:
    numbers, path = NUMBERS[number % len(NUMBERS)], folder / "model.gguf"
    write_gguf(architecture, number, path, numbers)
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx, parameters.n_parallel, parameters.verbosity = 48, 1, 1
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = parameters.n_threads_http = 1
    parameters.warmup = parameters.fit_params = False
    request = {"prompt": [1, 2, 3], "n_predict": 2, "ignore_eos": True}
    answer = xllamacpp.Server(parameters).handle_completions(request)
    if answer["timings"]["predicted_n"] != 2:
        raise RuntimeError(str(answer))
    return numbers


def shallow(space: SearchSpace, loader: str, small: bool) -> SearchSpace:
    genes = {gene.name: gene for gene in space.gene_list}
    if small and "vocab_size" in genes:
        genes["vocab_size"] = Gene("vocab_size", (331,))
    depths = [depth for depth in LAYERS if depth in genes["n_layer"].options]
    sizes = {"d_model": [128, 192, 256], "d_inner": {"min": 0, "max": 512}} if small else {}
    return replace(space, gene_list=tuple(genes.values())).narrow({LOADS_IN: loader, "n_layer": depths, **sizes})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--gguf", type=int, default=100)
    options = parser.parse_args()
    rows = []
    for name, space in spaces().items():
        for loader in space.loaders():
            narrowed, rng = shallow(space, loader, loader == "llamacpp"), np.random.default_rng(0)
            kinds: Counter[str] = Counter()
            faults: Counter[str] = Counter()
            count = options.count if loader == "transformers" else options.gguf
            with tempfile.TemporaryDirectory() as folder:
                for number in range(count):
                    architecture = narrowed.architecture(narrowed.sample(rng))
                    try:
                        if loader == "transformers":
                            kinds[in_transformers(architecture)] += 1
                        else:
                            kinds[in_llama_cpp(architecture, number, Path(folder))] += 1
                    except Exception as error:  # whatever a loader says is what is counted
                        faults[f"{type(error).__name__}: {error}"[:200]] += 1
            row = {"space": name, "loader": loader, "samples": count, "loaded": dict(kinds), "failed": dict(faults)}
            append("loads", row)
            rows.append({**row, "loaded": f"{sum(kinds.values())}: {dict(kinds)}", "failed": sum(faults.values())})
    table("What loads of what is written", rows)


if __name__ == "__main__":
    main()
