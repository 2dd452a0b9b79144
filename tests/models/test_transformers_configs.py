"""Configurations as transformers itself writes and reads them: all fields are known, and positions mean the same."""

from __future__ import annotations

import dataclasses
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from foreign_models import transformers

from edgefront.core.architectures.embeddings_and_head import RotaryPositions
from edgefront.core.architectures.huggingface import from_config, ignored, read_config
from edgefront.core.common.errors import InvalidInput
from edgefront.core.model_files.positions import rotary_frequencies

CLASSES = (
    "GPT2", "OPT", "Llama", "Mistral", "Qwen2", "Qwen3", "Lfm2", "GPTNeoX", "StableLm", "Phi", "SmolLM3", "Olmo2",
    "Granite", "Gemma3Text",
)  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip


@pytest.mark.parametrize("name", CLASSES)
def test_every_field_of_transformers_is_known(tmp_path: Path, name: str) -> None:
    made = getattr(transformers, f"{name}Config")()
    every = json.loads(made.to_json_string(use_diff=False))
    model = from_config(every)
    made.save_pretrained(tmp_path)
    assert read_config(tmp_path) == model
    assert {field.name for field in dataclasses.fields(made)} <= {*every, *ignored(made.model_type)}


def test_what_older_files_say_of_sampling_is_known() -> None:
    from transformers.generation.configuration_utils import GenerationConfig

    assert set(GenerationConfig._get_default_generation_params()) <= ignored("llama")


OBJECTS: tuple[Any, ...] = (
    "missing", None, {}, {"rope_type": "default"}, {"type": "default", "rope_theta": 500000.0}, LLAMA3,
    {**LLAMA3, "rope_theta": 500000.0}, {"rope_theta": 20000.5},
)  # fmt: skip


def test_positions_are_those_of_transformers_or_refused() -> None:
    """Where a file says them in two places, beside each other, or nowhere."""
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    small = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    read = 0
    for scaling, parameters, theta in product(OBJECTS, OBJECTS, ("missing", 10000.0, 500000.0)):
        given = {"rope_scaling": scaling, "rope_parameters": parameters, "rope_theta": theta}
        given = {name: value for name, value in given.items() if value != "missing"}
        config = {**small, "vocab_size": 97, "max_position_embeddings": 512, **given}
        try:
            positions = from_config({"model_type": "llama", **config}).positions
        except InvalidInput:
            continue
        assert isinstance(positions, RotaryPositions)
        theirs = LlamaRotaryEmbedding(transformers.LlamaConfig(**json.loads(json.dumps(config))))
        frequencies = theirs.inv_freq.double().numpy()
        np.testing.assert_allclose(rotary_frequencies(positions, 32), frequencies, rtol=1e-6, err_msg=str(given))
        read += 1
    assert read > 50


@pytest.mark.parametrize("eps", [9.999999747378752e-06, 3e-3, 0.5])
def test_scores_with_any_epsilon_and_base_are_those_of_transformers(tmp_path: Path, eps: float) -> None:
    from edgefront.core.training.evaluation.package import import_transformers, read_package

    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=97, rms_norm_eps=eps, max_position_embeddings=512,
        rope_parameters={**LLAMA3, "rope_theta": 12345.6, "factor": 2.5, "low_freq_factor": 0.5},
    )  # fmt: skip
    torch.manual_seed(0)
    theirs = transformers.LlamaForCausalLM(config).eval()
    theirs.save_pretrained(tmp_path / "theirs")
    import_transformers(tmp_path / "theirs", tmp_path / "mine")
    package = read_package(tmp_path / "mine")
    assert package.architecture.stated_length == 512
    tokens = torch.randint(0, 97, (1, 200))
    with torch.inference_mode():
        torch.testing.assert_close(package.model()(tokens), theirs(tokens).logits, rtol=1e-5, atol=1e-5)
