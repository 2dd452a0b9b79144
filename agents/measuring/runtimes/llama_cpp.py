"""Runs GGUF files (given, or built from an architecture) with llama.cpp, through the server of `xllamacpp`."""

from __future__ import annotations

import math
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import xllamacpp
from numpy.typing import NDArray

from edgefront.agents.measuring.inputs import random_tokens
from edgefront.agents.measuring.memory_probes import memory_methods
from edgefront.agents.measuring.runtimes import GenerationTimes, LaunchRequest
from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, ShortConv
from edgefront.core.common.errors import MeasurementError
from edgefront.core.common.number_formats import KvCache, NumberFormat
from edgefront.core.common.processes.folders import CHILD, working_in
from edgefront.core.measurement.protocol import MeasurementProtocol
from edgefront.core.measurement.provider import Provider
from edgefront.core.model_files.formats import WeightCache
from edgefront.core.model_files.gguf import cached_gguf

_ERRORS_ONLY = 1
_LOG_S = 2.0
"""Maximum seconds to wait for an error message in llama.cpp's log."""
_ERROR = re.compile(r" E (?:\w+: +)?(?:error loading model: |failed to initialize the context: )?(.*)")
_GROWING = 16
"""Maximum number of decode passes before the earlier tokens are evaluated again, for models with convolutions."""
_KV_CACHES: Mapping[KvCache, Any] = {
    "f32": xllamacpp.ggml_type.GGML_TYPE_F32,
    "f16": xllamacpp.ggml_type.GGML_TYPE_F16,
    "q8_0": xllamacpp.ggml_type.GGML_TYPE_Q8_0,
    "q4_0": xllamacpp.ggml_type.GGML_TYPE_Q4_0,
}
# Greedy decoding, because sampling is not part of the measurement.
_GREEDY = {"n_predict": 1, "samplers": ["top_k"], "top_k": 1}


def facts() -> dict[str, Any]:
    """Returns llama.cpp's version, providers and memory methods: fields of `core.schemas.agent.RuntimeFacts`."""
    return {
        "version": xllamacpp.__version__,
        "providers": sorted(_devices()),
        "memory_methods": memory_methods(allocator=False, device=any(Provider(name).on_nvidia for name in _devices())),
        "kv_caches": list(_KV_CACHES),
    }


def computes_in(_: NumberFormat, request: LaunchRequest) -> bool:
    """Whether llama.cpp runs the request's file. The file, not the argument, determines the number format."""
    try:
        model = LlamaModel(request)
        model.forward_ms()
    except Exception:  # no kernel, not enough memory …: unsupported
        return False
    return model.finite()


class _Loaded:
    """A llama.cpp server with one slot in this process, and the tokens: context, prompt, and `more` further tokens."""

    def __init__(self, request: LaunchRequest, more: int = 0) -> None:
        protocol = request.protocol
        if protocol.provider not in _devices():
            raise MeasurementError(
                f"this llama.cpp has no device {protocol.provider}; it has {', '.join(sorted(_devices()))}",
                reason="unsupported",
            )
        length = protocol.memory_length + protocol.sequence_length
        vocabulary = request.gguf_file or _architecture(request).embedding
        whole = protocol.model_copy(update={"sequence_length": length + more})
        self._tokens: list[int] = random_tokens(whole, vocabulary.vocab_size, request.seed)[0].tolist()
        self._prompt = self._tokens[:length]
        self._past = protocol.memory_length
        self._new = protocol.sequence_length
        self._keeps_state = _keeps_state(request)
        self._server = _server(_file_of(request), protocol, length + max(more, protocol.new_tokens))
        self._overhead_ms = math.inf
        self.starts: dict[str, int] = {}
        self.versions = {"xllamacpp": xllamacpp.__version__, "gguf": version("gguf"), "numpy": np.__version__}

    def _timed(self, request: dict[str, Any], past: int) -> tuple[dict[str, Any], float, float]:
        """Returns the server's response, and llama.cpp's times (ms) for the prompt and for all later tokens, checked
        against the wall clock. Raises `MeasurementError` if llama.cpp did not evaluate exactly the tokens after the
        first `past`.
        """
        started = time.perf_counter_ns()
        answer = self._complete(request)
        wall_ms = (time.perf_counter_ns() - started) / 1e6
        timings = answer["timings"]
        prompt_ms = float(timings["prompt_ms"])
        further_ms = float(timings["predicted_ms"]) if request["n_predict"] > 1 else 0.0
        if timings["cache_n"] == 0 < past and self._keeps_state:
            raise MeasurementError(
                f"llama.cpp read the context of {past} tokens again: it fits the model's window whole. "
                "Measure after a longer context, or without a context",
                reason="unsupported",
            )
        if (timings["cache_n"], timings["prompt_n"]) != (past, self._new):
            raise MeasurementError(
                f"llama.cpp ran {timings['prompt_n']} tokens after {timings['cache_n']}, not {self._new} after {past}",
                reason="run_error",
            )
        taken = prompt_ms + further_ms
        if taken > wall_ms:
            raise MeasurementError(
                f"llama.cpp reports {taken:.3f} ms for a pass that took {wall_ms:.3f} ms in all", reason="run_error"
            )
        self._overhead_ms = min(self._overhead_ms, wall_ms - taken)
        self.versions["request_overhead_ms"] = f"{self._overhead_ms:.3f}"
        return answer, prompt_ms, further_ms

    def _finite(self, request: dict[str, Any]) -> bool:
        """Whether all scores are finite. Tests one token's probability, which any NaN or infinite score changes."""
        choice = self._complete({**request, "n_probs": 1})["choices"][0]
        logarithm = choice["logprobs"]["content"][0]["logprob"]
        return isinstance(logarithm, float) and math.isfinite(logarithm)

    def _complete(self, request: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = self._server.handle_completions(request)
        if "error" in answer:
            raise MeasurementError(f"llama.cpp: {answer['error'].get('message')}", reason="run_error")
        return answer


class LlamaModel(_Loaded):
    """Runs the prompt of a forward pass in llama.cpp.

    In modes forward and prefill, a pass evaluates the whole prompt without any state of the previous pass. In mode
    decode, the key/value cache (`kv_cache`) contains the earlier tokens, and a pass evaluates one more token. llama.cpp
    cannot remove a token from the state of a convolution, or from a window that has dropped keys. For such models, each
    pass evaluates the token after the previous pass's token, up to `_GROWING` passes.

    The time of a pass is the time that llama.cpp reports. The rest of the request's wall time is communication between
    two threads (`request_overhead_ms` of the environment), which later generated tokens do not need.
    """

    def __init__(self, request: LaunchRequest) -> None:
        decode = request.protocol.mode == "decode"
        self._grows = decode and _keeps_state(request)
        # One more token for the pass that checks whether the scores are finite.
        super().__init__(request, (_GROWING + 1) * request.protocol.sequence_length if self._grows else 0)
        self._request = {**_GREEDY, "prompt": self._prompt, "cache_prompt": decode}
        self._passes = 0
        if decode:
            self._read_past()

    def forward_ms(self) -> float:
        return self._timed(*self._next())[1]

    def finite(self) -> bool:
        past = self._past + self._passes * self._new
        finite = self._finite({**self._request, "prompt": self._tokens[: past + self._new]})
        self._passes = _GROWING  # if tokens cannot be removed, the earlier tokens are read again
        return finite

    def _read_past(self) -> None:
        """Evaluates the tokens before the measured pass, so that the key/value cache contains them."""
        self._complete({**self._request, "prompt": self._tokens[: self._past]} if self._grows else self._request)
        self._passes = 0

    def _next(self) -> tuple[dict[str, Any], int]:
        """Returns the request of the next pass, and the number of tokens before that pass."""
        if not self._grows:
            return self._request, self._past
        if self._passes == _GROWING:
            self._read_past()
        past = self._past + self._passes * self._new
        self._passes += 1
        return {**self._request, "prompt": self._tokens[: past + self._new]}, past


class LlamaGenerator(_Loaded):
    """Generates tokens after a context and a prompt. Before each generation llama.cpp removes the tokens after the
    context from its cache; for convolutions and windows, llama.cpp evaluates the context again instead.
    """

    def __init__(self, request: LaunchRequest) -> None:
        super().__init__(request)
        tokens = request.protocol.new_tokens
        context = self._prompt[: self._past]
        self._before = {**_GREEDY, "prompt": context, "cache_prompt": True} if context else None
        self._request = {
            **_GREEDY,
            "prompt": self._prompt,
            "cache_prompt": bool(context),
            "n_predict": tokens,
            "ignore_eos": True,
        }

    def prepare(self) -> None:
        if self._before is not None:
            self._complete(self._before)

    def generate(self) -> GenerationTimes:
        answer, first_ms, further_ms = self._timed(self._request, self._past)
        made, requested = answer["timings"]["predicted_n"], self._request["n_predict"]
        if made != requested:
            raise MeasurementError(f"llama.cpp generated {made} tokens, not {requested}", reason="run_error")
        return GenerationTimes(first_ms, further_ms)

    @property
    def tokens(self) -> NDArray[np.int64]:
        """Runs one more, identical generation and returns its tokens, because timed generations return no tokens."""
        chosen = self._complete({**self._request, "n_probs": 1})["choices"][0]["logprobs"]["content"]
        return np.array([[token["id"] for token in chosen]], np.int64)

    def finite(self) -> bool:
        return self._finite({**self._request, "n_predict": 1})


def _file_of(request: LaunchRequest) -> Path:
    if request.gguf_file is not None:
        return request.gguf_file.paths[0]
    cache = WeightCache(request.cache)
    return cached_gguf(cache, _architecture(request), request.seed, request.protocol.gguf_format)


def _keeps_state(request: LaunchRequest) -> bool:
    if request.gguf_file is not None:
        return request.gguf_file.keeps_state
    return any(
        isinstance(block, ShortConv) or (isinstance(block, Attention) and block.window is not None)
        for block in _architecture(request).blocks
    )


def _architecture(request: LaunchRequest) -> Architecture:
    subject = request.subject
    assert isinstance(subject, Architecture)  # ONNX files are refused before
    return subject


def _devices() -> set[str]:
    return {device["name"].lower() for device in xllamacpp.get_device_info()}


def _gpu_number(provider: str, devices: Sequence[Mapping[str, Any]]) -> int:
    """Position of the provider's GPU among these devices of llama.cpp; -1 if the provider is not a GPU."""
    kinds = xllamacpp.ggml_backend_dev_type
    for kind in (kinds.GGML_BACKEND_DEVICE_TYPE_GPU, kinds.GGML_BACKEND_DEVICE_TYPE_IGPU):
        names = [device["name"].lower() for device in devices if device["type"] == kind]
        if provider in names:
            return names.index(provider)
    return -1


def _server(path: Path, protocol: MeasurementProtocol, length: int) -> Any:
    """Starts a server for one sequence with the protocol's number of threads and cache format, and llama.cpp's defaults
    otherwise. Only keys and values remain between requests.
    """
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path.absolute())
    parameters.n_ctx = length + 1
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = protocol.threads
    parameters.n_threads_http = 1
    # By default it spreads over all GPUs, and computes large products on a GPU even for the processor (-1: never).
    parameters.split_mode = xllamacpp.llama_split_mode.LLAMA_SPLIT_MODE_NONE
    parameters.main_gpu = _gpu_number(protocol.provider, xllamacpp.get_device_info())
    if parameters.main_gpu < 0:
        parameters.n_gpu_layers = 0
    assert protocol.kv_cache is not None
    parameters.cache_type_k = parameters.cache_type_v = _KV_CACHES[protocol.kv_cache]
    if protocol.kv_cache == "f32":
        # Its flash attention reads float16, so that every pass would convert the whole cache (2026.10).
        parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    parameters.cache_ram_mib = parameters.n_ctx_checkpoints = 0
    parameters.fit_params = parameters.warmup = parameters.ctx_shift = parameters.ui = False
    parameters.verbosity = _ERRORS_ONLY
    # A device opens no port: the server, which only this process calls, gets a socket file, and only for as
    # long as it starts. The path of a socket has a hundred characters at most, and a temporary folder's may have more.
    with tempfile.TemporaryDirectory(prefix=CHILD) as folder, working_in(folder):
        parameters.hostnames = ["s.sock"]
        with (Path(folder) / "log").open("w+b") as log, _standard_error_in(log.fileno()):
            try:
                return xllamacpp.Server(parameters)
            except RuntimeError:
                raise RuntimeError(f"llama.cpp cannot load {path.name}: {_reason(log)}") from None


@contextmanager
def _standard_error_in(file: int) -> Iterator[None]:
    """Redirects standard error to `file`, because only standard error shows why llama.cpp cannot load a model."""
    kept = os.dup(2)
    os.dup2(file, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _reason(log: BinaryIO) -> str:
    """Returns the first error message in the log, without the source location in llama.cpp. Waits a moment for the
    thread that writes the log.
    """
    ended = time.monotonic() + _LOG_S
    text = ""
    while "exiting due to model loading error" not in text and time.monotonic() < ended:
        time.sleep(0.01)
        log.seek(0)
        text = log.read().decode(errors="replace")
    match = _ERROR.search(text)
    return match[1].strip() if match else "it does not say why"


build, generator = LlamaModel, LlamaGenerator
