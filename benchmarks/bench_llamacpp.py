"""llama.cpp as the agent runs it against llama.cpp by its own defaults: time to the first token, in turns.

    python benchmarks/bench_llamacpp.py [--model smollm2-135m] [--weights q8_0] [--prompt 128] [--rounds 15]
        [--cache FOLDER]

One thread on one core. Every way is a server of its own in this process, and evaluates the same prompt in turns; a
figure is what llama.cpp says itself (`prompt_ms`). "by its own defaults" is a server with the file, the thread, a
length and nothing else set. Needs the extra llamacpp.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

import xllamacpp
from bench_models import SEED
from record import append, table

from edgefront.agents.device.cores import CorePlan, keep_to
from edgefront.agents.measuring.inputs import random_tokens
from edgefront.agents.measuring.request import LaunchRequest
from edgefront.agents.measuring.runtimes.llama_cpp import build
from edgefront.core.graph.gguf import cached_gguf
from edgefront.core.graph.weights import WeightCache
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.processes.folders import working_in
from edgefront.core.spaces.models import named_model
from edgefront.core.wire.jobs import TargetRequest

NAME = "llamacpp"
PER_LAYER = "llama.cpp by its own defaults"
CONTEXT = 2048
"""Tokens that its cache has room for: files for measuring state no end, and llama.cpp would take memory for all."""


def agents(request: LaunchRequest) -> Callable[[], float]:
    return build(request).forward_ms


def by_default(request: LaunchRequest) -> Callable[[], float]:
    protocol, subject = request.protocol, request.subject
    assert not isinstance(subject, Path)
    parameters = xllamacpp.CommonParams()
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = protocol.threads
    parameters.n_ctx = CONTEXT
    parameters.verbosity = 1
    file = cached_gguf(WeightCache(request.cache), subject, request.seed, protocol.gguf_format)
    with file as path, tempfile.TemporaryDirectory() as folder, working_in(folder):
        parameters.model.path = str(path.absolute())
        parameters.hostnames = ["s.sock"]
        server = xllamacpp.Server(parameters)
    prompt = random_tokens(protocol, subject.embedding.vocab_size, request.seed)[0].tolist()
    asked = {"prompt": prompt, "n_predict": 1, "cache_prompt": False}

    def first_token_ms() -> float:
        timings = server.handle_completions(asked)["timings"]
        assert timings["prompt_n"] == len(prompt), timings
        return float(timings["prompt_ms"])

    return first_token_ms


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--weights", default="q8_0")
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "edgefront-bench-weights")
    given = parser.parse_args()
    keep_to(CorePlan.of_device().pinned(1))
    architecture = named_model(given.model).architecture
    asked = {"runtime": "llamacpp", "mode": "prefill", "sequence_length": given.prompt, "weights": given.weights}

    def request(protocol: MeasurementProtocol) -> LaunchRequest:
        return LaunchRequest(architecture=architecture.canonical, protocol=protocol, seed=SEED, cache=given.cache)

    default = TargetRequest.model_validate({"protocol": asked}).protocol
    ways = {PER_LAYER: by_default(request(default)), f"a target ({default.kv_cache})": agents(request(default))}
    for held in ("f32", "q8_0", "q4_0"):
        protocol = MeasurementProtocol.model_validate({**asked, "kv_cache": held})
        ways[f"kv_cache {held}"] = agents(request(protocol))
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(given.rounds + 1):
        for name, first_token_ms in list(ways.items())[:: 1 if number % 2 else -1]:
            taken = first_token_ms()
            if number:  # the first round warms up
                samples[name].append(taken)
    rows = [
        {
            "way": name,
            "median ms": statistics.median(times_ms),
            "least ms": min(times_ms),
            "most ms": max(times_ms),
            "median ratio": statistics.median(
                sample / own for sample, own in zip(times_ms, samples[PER_LAYER], strict=True)
            ),
        }
        for name, times_ms in samples.items()
    ]
    table(f"First token of {given.model} after a prompt of {given.prompt}, weights {given.weights}, one thread", rows)
    append(NAME, {"model": given.model, **asked, "rounds": given.rounds, "rows": rows})


if __name__ == "__main__":
    main()
