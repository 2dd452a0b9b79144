"""What a space narrowed by `loads_in` has is loaded by transformers and by llama.cpp: random architectures of each."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
import transformers
from in_llama_cpp import generated

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.catalogue import space
from edgefront.core.architectures.gene import Gene
from edgefront.core.architectures.gguf import gguf_form
from edgefront.core.architectures.huggingface import to_config
from edgefront.core.architectures.models import named_model
from edgefront.core.architectures.neighbourhood import space_around
from edgefront.core.architectures.space import LOADS_IN, SearchSpace
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.number_formats import GgufFormat
from edgefront.core.model_files.gguf import write_gguf
from edgefront.core.model_files.model_file import check_format

NUMBERS: tuple[GgufFormat, ...] = get_args(GgufFormat)


def loaded(architecture: Architecture) -> Any:
    """The configuration as transformers takes it, with all that it checks."""
    config = to_config(architecture)
    return transformers.AutoConfig.for_model(**config)


def small(name: str, **narrow: Any) -> SearchSpace:
    """With few tokens and layers; heads and widths as the space has them."""
    whole = space(name)
    few = tuple(Gene(gene.name, (331,)) if gene.name == "vocab_size" else gene for gene in whole.gene_list)
    return replace(whole, gene_list=few).narrow(narrow)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "narrow", "types"),
    [
        ("llama", {"output": ["tied", "untied"], "d_head": [32, 64, 128]}, {"llama", "mistral"}),
        ("lfm", {"min_attention_percent": [5, 100]}, {"lfm2", "qwen3"}),
        ("lts-opt", {}, {"opt"}),
    ],
)
def test_transformers_loads_every_sample(name: str, narrow: dict[str, Any], types: set[str]) -> None:
    """The configuration of 200, and the model of 8, without its weights."""
    narrowed, rng = space(name).narrow({LOADS_IN: "transformers", **narrow}), np.random.default_rng(0)
    samples = [narrowed.architecture(narrowed.sample(rng)) for _ in range(200)]
    assert {loaded(architecture).model_type for architecture in samples} == types
    with torch.device("meta"):
        for architecture in sorted(samples, key=lambda sample: len(sample.blocks))[:8]:
            transformers.AutoModelForCausalLM.from_config(loaded(architecture))


@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="xllamacpp is not installed")
@pytest.mark.parametrize(
    ("name", "narrow"),
    [
        ("llama", {"d_inner": {"min": 0, "max": 512}}),
        ("lfm", {"d_inner": {"min": 0, "max": 512}}),
    ],
)
def test_llama_cpp_loads_every_sample(tmp_path: Path, name: str, narrow: dict[str, Any]) -> None:
    sizes = {"n_layer": [1, 2, 3], "d_model": [128, 192, 256]}
    narrowed, rng = small(name, **{LOADS_IN: "llamacpp"}, **sizes, **narrow), np.random.default_rng(0)
    for number in range(12):
        architecture = narrowed.architecture(narrowed.sample(rng))
        write_gguf(architecture, number, tmp_path / "model.gguf", NUMBERS[number % len(NUMBERS)])
        assert len(generated(tmp_path / "model.gguf", [1, 2, 3], 2)[0]) == 2


@pytest.mark.parametrize("loader", ["llamacpp", "transformers"])
def test_around_granite_every_sample_is_one_that_loads(loader: str) -> None:
    granite = named_model("ibm-granite/granite-4.0-350m").architecture
    narrowed, rng = space_around(granite, "llama").narrow({LOADS_IN: loader}), np.random.default_rng(0)
    for _ in range(12):
        architecture = narrowed.architecture(narrowed.sample(rng))
        if loader == "llamacpp":
            assert gguf_form(architecture).kind == "granite"
        else:
            assert to_config(architecture)["model_type"] == "granite"


def test_gemma_of_heads_that_do_not_divide_the_width_is_refused() -> None:
    gemma = named_model("google/gemma-3-270m").architecture.canonical
    blocks = [{**block, "n_head": 3} if block["kind"] == "attention" else block for block in gemma["blocks"]]
    with pytest.raises(InvalidInput, match="not a multiple of num_attention_heads 3, which gemma3_text does not load"):
        to_config(Architecture.parse({**gemma, "blocks": blocks}))


def of_heads(count: int, **changes: Any) -> Architecture:
    attention = {"kind": "attention", "n_head": count, "n_kv_head": 1, "d_head": 64, "bias": "none"}
    feed_forward = {"kind": "feed_forward", "d_inner": 768, "gated": True, "bias": False}
    return Architecture.parse(
        {
            "d_model": 576,
            "positions": {"kind": "rotary"},
            "norm_kind": "rms",
            "activation": "silu",
            "embedding": {"vocab_size": 512},
            "blocks": [{**attention, **changes}, feed_forward] * 2,
        }
    )


def test_heads_that_do_not_divide_the_width_are_written_as_the_type_that_takes_them() -> None:
    assert loaded(of_heads(9)).model_type == "llama"
    assert loaded(of_heads(7)).model_type == "mistral"  # the same layers, and no such check
    assert loaded(of_heads(7, bias="all")).model_type == "smollm3"  # which has biases too
    check_format(of_heads(9, bias="all"), "transformers")


def test_convolutions_alone_are_refused() -> None:
    """transformers loads them, and generates nothing: its cache has no length without an attention."""
    description = of_heads(9).canonical
    blocks = [{"kind": "short_conv"}, description["blocks"][1]] * 2
    with pytest.raises(InvalidInput, match="no full_attention among its layer_types, which lfm2 does not load"):
        to_config(Architecture.parse({**description, "blocks": blocks}))
