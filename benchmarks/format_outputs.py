"""What a model computes in every format of every runtime: log-probabilities of a text's last places."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.graph.build import build
from edgefront.core.graph.formats import quantise
from edgefront.core.graph.gguf import write_gguf
from edgefront.core.graph.options import GraphOptions
from edgefront.core.graph.parameter_values import GivenValues
from edgefront.core.spaces.architecture import Architecture

Weights = Mapping[str, NDArray[np.float32]]
Scores = Callable[[NDArray[np.int64], int], NDArray[Any]]
"""A text [length] and a count to log-probabilities of the token after each of so many last places, [count, vocabulary].
"""


def error(found: NDArray[Any], exact: NDArray[Any]) -> float:
    """Relative norm of the difference of logits, which log-probabilities are but for a constant of each place."""
    one, other = (logits - logits.mean(-1, keepdims=True) for logits in (found, exact))
    return float(np.linalg.norm(one - other) / np.linalg.norm(other))


def in_onnxruntime(model: Architecture, weights: Weights, **choice: Any) -> Scores:
    import onnxruntime as ort

    session = ort.InferenceSession(build(model, GraphOptions(**choice), weights=weights).SerializeToString())
    return lambda text, count: _logarithms(session.run(None, {"tokens": text[None]})[0], count)


def in_pytorch(model: Architecture, weights: Weights, *, int8: bool = False) -> Scores:
    import torch

    from edgefront.core.nn.int8 import use_int8
    from edgefront.core.nn.load import load
    from edgefront.core.nn.model import LanguageModel

    def quantised(name: str) -> tuple[torch.Tensor, float]:
        whole, scale = quantise(weights[name])
        return torch.from_numpy(whole), scale

    module = load(LanguageModel(model), {name: torch.from_numpy(value) for name, value in weights.items()}).eval()
    module = use_int8(module, quantised) if int8 else module

    def scores(text: NDArray[np.int64], count: int) -> NDArray[Any]:
        with torch.inference_mode():
            return _logarithms(module(torch.from_numpy(text[None])).numpy(), count)

    return scores


def in_llamacpp(model: Architecture, weights: Weights, numbers: Any, folder: Path, length: int) -> Scores:
    """With room for texts of `length` tokens. The GGUF file stays in the folder."""
    import xllamacpp

    path = folder / f"{model.digest}-{numbers}.gguf"
    write_gguf(model, GivenValues(weights, {}), path, numbers)
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx, parameters.n_parallel, parameters.verbosity = length + 1, 1, 1
    parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    parameters.warmup = parameters.fit_params = False
    server = xllamacpp.Server(parameters)
    vocabulary = model.embedding.vocab_size

    def scores(text: NDArray[np.int64], count: int) -> NDArray[Any]:
        rows = np.full((count, vocabulary), -np.inf)
        for row in range(count):
            prompt = text[: len(text) - count + row + 1].tolist()
            request = {"prompt": prompt, "n_predict": 1, "samplers": ["top_k"], "top_k": 1, "n_probs": vocabulary}
            answer = server.handle_completions(request)["choices"][0]["logprobs"]["content"][0]
            for token in answer["top_logprobs"]:
                rows[row, token["id"]] = token["logprob"]
        return rows

    return scores


def _logarithms(logits: Any, count: int) -> NDArray[Any]:
    rows = np.asarray(logits, np.float64).reshape(-1, np.shape(logits)[-1])[-count:]
    highest = rows.max(-1, keepdims=True)
    return np.asarray(rows - highest - np.log(np.exp(rows - highest).sum(-1, keepdims=True)))
