"""GGUF files, in llama.cpp itself: the greedy tokens of PyTorch, and the error of each format."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tiny_models import as_tensors, lively_weights

from edgefront.core.cost.costs import costs
from edgefront.core.errors import InvalidInput
from edgefront.core.graph.gguf import cached_gguf, write_gguf
from edgefront.core.graph.model_file import file_name, formats_of, write_model
from edgefront.core.graph.parameter_values import GivenValues
from edgefront.core.graph.weights import WeightCache
from edgefront.core.nn.model import LanguageModel
from edgefront.core.number_formats import GgufFormat
from edgefront.core.spaces.architecture import Architecture

pytestmark = pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("gguf") is None, reason="xllamacpp or gguf is not installed"
)

ATTENTION, FEED_FORWARD = {"kind": "attention", "n_head": 4}, {"kind": "feed_forward", "d_inner": 160}


def gpt2(**fields: Any) -> Architecture:
    return Architecture.parse(
        {
            "d_model": 64,
            "positions": {"kind": "learned", "length": 48},
            "embedding": {"vocab_size": 331},
            "blocks": [ATTENTION, FEED_FORWARD] * 3,
            **fields,
        }
    )


def generated(path: Path, prompt: list[int], count: int) -> tuple[list[int], dict[int, float]]:
    """Greedy tokens of llama.cpp, and the log-probabilities of the likeliest first ones."""
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx, parameters.n_parallel, parameters.verbosity = 48, 1, 1
    parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    parameters.warmup = parameters.fit_params = False
    request = {
        "prompt": prompt,
        "n_predict": count,
        "samplers": ["top_k"],
        "top_k": 1,
        "n_probs": 50,
        "ignore_eos": True,
    }
    answer = xllamacpp.Server(parameters).handle_completions(request)
    tokens = answer["choices"][0]["logprobs"]["content"]
    return [one["id"] for one in tokens], {one["id"]: one["logprob"] for one in tokens[0]["top_logprobs"]}


def in_torch(model: Architecture, weights: dict[str, Any], prompt: list[int], count: int) -> tuple[list[int], Any]:
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


@pytest.mark.parametrize(
    "model",
    [gpt2(), gpt2(output={"tied": False}), gpt2(positions={"kind": "learned", "length": 48, "offset": 2})],
    ids=["gpt2", "untied", "offset"],
)
def test_greedy_tokens_are_those_of_pytorch(tmp_path: Path, model: Architecture) -> None:
    weights = lively_weights(model, 5)
    path = tmp_path / "model.gguf"
    write_gguf(model, GivenValues(weights, {"weights": "trained"}), path)
    prompt = np.random.default_rng(0).integers(0, 331, 12).tolist()
    tokens, scores = generated(path, prompt, 24)
    expected, first = in_torch(model, weights, prompt, 24)
    assert tokens == expected
    # llama.cpp looks GELU up in a table of float16.
    assert max(abs(score - float(first[token])) for token, score in scores.items()) < 0.02


@pytest.mark.parametrize(("numbers", "bound"), [("float16", 0.02), ("q8_0", 0.05), ("q4_0", 0.6)])
def test_the_error_of_each_format_is_bounded(tmp_path: Path, numbers: GgufFormat, bound: float) -> None:
    model = gpt2()
    weights = lively_weights(model, 5)
    prompt = np.random.default_rng(1).integers(0, 331, 12).tolist()
    write_gguf(model, GivenValues(weights, {}), tmp_path / "model.gguf", numbers)
    _, scores = generated(tmp_path / "model.gguf", prompt, 1)
    _, first = in_torch(model, weights, prompt, 1)
    exact = np.array([float(first[token]) for token in scores])
    assert np.abs(np.array(list(scores.values())) - exact).mean() < bound * np.std(first.numpy())


@pytest.mark.parametrize("numbers", ["float32", "q8_0", "q4_0"])
def test_the_cache_writes_the_same_weights_of_a_size_that_is_counted(tmp_path: Path, numbers: GgufFormat) -> None:
    import gguf

    model, cache = gpt2(), WeightCache(tmp_path / "cache")
    write_gguf(model, 7, tmp_path / "model.gguf", numbers)
    one, two = gguf.GGUFReader(tmp_path / "model.gguf"), gguf.GGUFReader(cached_gguf(cache, model, 7, numbers))
    assert [tensor.name for tensor in one.tensors] == [tensor.name for tensor in two.tensors]
    for left, right in zip(one.tensors, two.tensors, strict=True):
        if left.name != "position_embd.weight":
            assert np.array_equal(left.data, right.data)
    kind = "full" if numbers == "float32" else numbers
    expected = costs(model, sequence_length=24, weights=kind).weight_bytes
    assert sum(tensor.n_bytes for tensor in one.tensors) == expected


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"positions": {"kind": "relative"}}, "positions.kind relative"),
        ({"norm": "post"}, "norm post"),
        ({"activation": "relu"}, "activation relu"),
        ({"blocks": [ATTENTION, FEED_FORWARD, FEED_FORWARD]}, "blocks.2"),
        ({"blocks": [ATTENTION, {"kind": "sru"}]}, "blocks.1.kind sru"),
        ({"embedding": {"vocab_size": 331, "d_embed": 32}}, "embedding.d_embed 32"),
        ({"causal": False}, "causal False"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_gguf_cannot_express_is_named(tmp_path: Path, fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named):
        write_gguf(gpt2(**fields), 1, tmp_path / "model.gguf")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("numbers", ["float32", "float16", "q8_0", "q4_0"])
def test_a_model_is_shipped_in_each_format(tmp_path: Path, numbers: GgufFormat) -> None:
    path = tmp_path / file_name(gpt2().digest, 7, "gguf", numbers)
    assert path.name.endswith(f"-untrained-seed7{'' if numbers == 'float32' else f'-{numbers}'}.gguf")
    write_model(gpt2(), "gguf", 7, path, numbers)
    assert path.read_bytes()[:4] == b"GGUF"
    with pytest.raises(InvalidInput, match="it has float32, float16, q8_0, q4_0"):
        write_model(gpt2(), "gguf", 7, path, "int8")
    assert "gguf" in formats_of(gpt2())
    assert "gguf" not in formats_of(gpt2(norm="post"))


def test_quantised_rows_are_whole_blocks(tmp_path: Path) -> None:
    model = gpt2(blocks=[ATTENTION, {"kind": "feed_forward", "d_inner": 100}])
    write_gguf(model, 1, tmp_path / "model.gguf")
    with pytest.raises(InvalidInput, match="d_inner 100: q4_0"):
        write_gguf(model, 1, tmp_path / "small.gguf", "q4_0")
