"""llama.cpp, through the server of `xllamacpp`: an architecture's GGUF file, with weights of the seed."""

from __future__ import annotations

import math
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import xllamacpp

from edgefront.agents.measuring.inputs import random_tokens
from edgefront.agents.measuring.request import LaunchRequest
from edgefront.agents.measuring.rulers import memory_methods
from edgefront.core.errors import MeasurementError
from edgefront.core.graph.gguf import cached_gguf
from edgefront.core.graph.weights import WeightCache
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.number_formats import KnownFormat

_ERRORS_ONLY = 1
# The likeliest next token: how it is chosen is no part of what is measured.
_GREEDY = {"n_predict": 1, "samplers": ["top_k"], "top_k": 1}


def facts() -> dict[str, Any]:
    """Version, providers and memory methods, as in `core.wire.agent.RuntimeFacts`."""
    return {
        "version": xllamacpp.__version__,
        "providers": sorted(_devices()),
        "memory_methods": memory_methods(allocator=False, device=False),
    }


def build(request: LaunchRequest) -> LlamaModel:
    """The model of this request."""
    return LlamaModel(request)


def computes_in(_: KnownFormat, request: LaunchRequest) -> bool:
    """Whether llama.cpp runs this request's file, whose format it computes in: it converts nothing."""
    try:
        model = LlamaModel(request)
        model.forward_ms()
    except Exception:  # no kernel, not enough memory …: unsupported
        return False
    return model.finite()


class LlamaModel:
    """A server with one slot, in this process, and the prompt of a pass.

    forward and prefill: the whole prompt, nothing of it kept from the pass before. decode: the tokens before lie in the
    key/value cache, which has the protocol's `dtype`, and the pass is the one token after them.

    A pass takes what llama.cpp says: it is within the wall clock around the request, which adds the way there and back
    between two threads (`request_overhead_ms` of the environment) that no generated token costs.
    """

    def __init__(self, request: LaunchRequest) -> None:
        subject, protocol = request.subject, request.protocol
        if isinstance(subject, Path):
            raise MeasurementError("llama.cpp cannot run ONNX files; choose runtime onnxruntime", reason="unsupported")
        if protocol.provider not in _devices():
            raise MeasurementError(
                f"this llama.cpp has no device {protocol.provider}; it has {', '.join(sorted(_devices()))}",
                reason="unsupported",
            )
        path = cached_gguf(WeightCache(request.cache), subject, request.seed, protocol.gguf_format)
        length = protocol.memory_length + protocol.sequence_length
        whole = protocol.model_copy(update={"sequence_length": length})
        tokens: list[int] = random_tokens(whole, subject.embedding.vocab_size, request.seed)[0].tolist()
        self._past = protocol.memory_length
        self._new = protocol.sequence_length
        self._request = {**_GREEDY, "prompt": tokens, "cache_prompt": protocol.mode == "decode"}
        self._server = _server(path, protocol, length)
        self._overhead_ms = math.inf
        if protocol.mode == "decode":
            self._complete(self._request)  # the tokens before
        self.starts: dict[str, int] = {}
        self.versions = {"xllamacpp": xllamacpp.__version__, "gguf": _version_of_gguf(), "numpy": np.__version__}

    def forward_ms(self) -> float:
        started = time.perf_counter_ns()
        timings = self._complete(self._request)["timings"]
        wall_ms = (time.perf_counter_ns() - started) / 1e6
        taken = float(timings["prompt_ms"])
        if (timings["cache_n"], timings["prompt_n"]) != (self._past, self._new):
            raise MeasurementError(
                f"llama.cpp passed {timings['prompt_n']} tokens after {timings['cache_n']}, not what was asked for",
                reason="run_error",
            )
        if taken > wall_ms:
            raise MeasurementError(
                f"llama.cpp says that a pass took {taken:.3f} ms, in {wall_ms:.3f} ms by the clock", reason="run_error"
            )
        self._overhead_ms = min(self._overhead_ms, wall_ms - taken)
        self.versions["request_overhead_ms"] = f"{self._overhead_ms:.3f}"
        return taken

    def let_go(self) -> None:
        """Does nothing: the server keeps its buffers."""

    def finite(self) -> bool:
        """One that is not would show in the probability of any token."""
        choice = self._complete({**self._request, "n_probs": 1})["choices"][0]
        logarithm = choice["logprobs"]["content"][0]["logprob"]
        return isinstance(logarithm, float) and math.isfinite(logarithm)

    def _complete(self, request: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._server.handle_completions(request)
        if "error" in answer:
            raise MeasurementError(f"llama.cpp: {answer['error'].get('message')}", reason="run_error")
        return answer


def _devices() -> set[str]:
    return {device["name"].lower() for device in xllamacpp.get_device_info()}


def _server(path: Path, protocol: MeasurementProtocol, length: int) -> Any:
    """llama.cpp's defaults, with the protocol's threads, one sequence, and nothing that is kept between requests but
    its keys and values.
    """
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx = length + 1
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = protocol.threads
    parameters.n_threads_http = 1
    if protocol.provider == "cpu":
        parameters.n_gpu_layers = 0
    type_ = xllamacpp.ggml_type
    parameters.cache_type_k = parameters.cache_type_v = (
        type_.GGML_TYPE_F32 if protocol.dtype == "float32" else type_.GGML_TYPE_F16
    )
    parameters.cache_ram_mib = parameters.n_ctx_checkpoints = 0
    parameters.fit_params = parameters.warmup = parameters.ctx_shift = parameters.ui = False
    parameters.verbosity = _ERRORS_ONLY
    # A device opens no port: the server, which is called in this process alone, gets a socket file, and only for so
    # long as it starts.
    with tempfile.TemporaryDirectory(prefix="edgefront-llama-") as folder:
        parameters.hostnames = [os.path.join(folder, "server.sock")]
        return xllamacpp.Server(parameters)


def _version_of_gguf() -> str:
    from importlib.metadata import version

    return version(gguf.__name__)
