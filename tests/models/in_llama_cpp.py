"""What llama.cpp and PyTorch generate with the same weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from tiny_models import as_tensors, lively_weights

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.number_formats import GgufFormat
from edgefront.core.model_files.gguf import write_gguf
from edgefront.core.model_files.parameter_values import GivenValues
from edgefront.core.nn.model import LanguageModel


def server(path: Path) -> Any:
    """llama.cpp with this file, one sequence of 48 tokens, and keys and values in float32."""
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx, parameters.n_parallel, parameters.verbosity = 48, 1, 1
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = parameters.n_threads_http = 1
    parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    parameters.warmup = parameters.fit_params = False
    return xllamacpp.Server(parameters)


def generated(path: Path, prompt: list[int] | str, count: int) -> tuple[list[int], dict[int, float]]:
    """Greedy tokens of llama.cpp, and the log-probabilities of the likeliest first ones."""
    request = {
        "prompt": prompt,
        "n_predict": count,
        "samplers": ["top_k"],
        "top_k": 1,
        "n_probs": 50,
        "ignore_eos": True,
    }
    answer = server(path).handle_completions(request)
    tokens = answer["choices"][0]["logprobs"]["content"]
    return [token["id"] for token in tokens], {token["id"]: token["logprob"] for token in tokens[0]["top_logprobs"]}


def in_torch(model: Architecture, weights: dict[str, Any], prompt: list[int], count: int) -> tuple[list[int], Any]:
    """Greedy tokens of PyTorch, and the log-probabilities of all first ones."""
    module = LanguageModel(model)
    module.load_state_dict(as_tensors(weights))
    tokens = list(prompt)
    first = None
    with torch.inference_mode():
        for _ in range(count):
            scores = module.eval()(torch.tensor([tokens]))[0, -1].log_softmax(-1)
            first = scores if first is None else first
            tokens.append(int(scores.argmax()))
    return tokens[len(prompt) :], first


def error_of(model: Architecture, numbers: GgufFormat, path: Path) -> float:
    """Mean error of the scores of likely tokens in llama.cpp, relative to the spread of all that torch gives."""
    weights = lively_weights(model, 5)
    prompt = np.random.default_rng(1).integers(0, 331, 12).tolist()
    write_gguf(model, GivenValues(weights, {}), path, numbers)
    _, scores = generated(path, prompt, 1)
    _, first = in_torch(model, weights, prompt, 1)
    exact = np.array([float(first[token]) for token in scores])
    return float(np.abs(np.array(list(scores.values())) - exact).mean() / np.std(first.numpy()))
