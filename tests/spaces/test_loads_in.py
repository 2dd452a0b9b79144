"""The narrowing `loads_in`: what transformers or llama.cpp loads of a space (tests/models/test_samples_load.py)."""

from __future__ import annotations

import json
from itertools import islice

import numpy as np
import pytest

from edgefront.core.architectures.catalogue import space, spaces
from edgefront.core.architectures.gguf import gguf_form
from edgefront.core.architectures.huggingface import to_config
from edgefront.core.architectures.models import named_model
from edgefront.core.architectures.neighbourhood import space_around
from edgefront.core.architectures.space import LOADS_IN, SearchSpace
from edgefront.core.common.errors import SpaceError

WRITERS = {"transformers": to_config, "llamacpp": gguf_form}
LOADABLE = {"lts-opt": ["transformers"], "llama": ["transformers", "llamacpp"], "lfm": ["transformers", "llamacpp"]}
AROUND = ("gpt2-small", "smollm2-135m", "qwen2.5-0.5b", "qwen3-0.6b", "lfm2-350m")


def test_every_space_says_what_loads_it() -> None:
    assert {name: list(loadable.loaders()) for name, loadable in spaces().items() if loadable.loaders()} == LOADABLE
    assert space("lfm").to_json()["loads_in"] == LOADABLE["lfm"]


@pytest.mark.parametrize(
    ("loadable", "loader"),
    [
        *((space(name), loader) for name, loaders in LOADABLE.items() for loader in loaders),
        *((space_around(named_model(name).architecture, "auto"), loader) for name in AROUND for loader in WRITERS),
    ],
    ids=lambda value: value if isinstance(value, str) else value.name,
)
def test_whatever_is_sampled_can_be_written(loadable: SearchSpace, loader: str) -> None:
    """By the space, by many at once, and where least is left of it."""
    narrowed, rng = loadable.narrow({LOADS_IN: loader}), np.random.default_rng(0)
    operators = narrowed.operators
    genomes = [narrowed.sample(rng) for _ in range(30)]
    genomes += operators.decode(operators.sample(60, rng)) + list(islice(narrowed.enumerate(), 10))
    for genome in genomes:
        WRITERS[loader](narrowed.architecture(genome))


def test_it_goes_with_other_narrowings() -> None:
    both = space("llama").narrow({LOADS_IN: ["transformers", "llamacpp"], "n_layer": [2, 3], "n_head": [0, 9]})
    assert both.gene("layers").values == ("alike",)
    assert both.gene("n_head").values == (9,)
    assert 0 not in both.gene("d_inner").values
    assert space("lfm").narrow({LOADS_IN: "transformers", "min_attention_percent": [0, 30]}).gene(
        "min_attention_percent"
    ).values == (30,)
    assert space("lts-opt").narrow({LOADS_IN: "transformers", "d_inner": [512, 1024]}).gene("d_inner").values == (1024,)


@pytest.mark.parametrize(
    ("name", "narrow", "field", "said"),
    [
        ("llama", {LOADS_IN: "onnx"}, LOADS_IN, "loads_in cannot be 'onnx'; allowed: transformers, llamacpp"),
        ("llama", {LOADS_IN: [3]}, LOADS_IN, "loads_in cannot be 3"),
        ("par-32", {LOADS_IN: "transformers"}, LOADS_IN, "transformers loads no architecture of par-32: .*alternate"),
        ("lts-opt", {LOADS_IN: "llamacpp"}, LOADS_IN, "llama.cpp loads no architecture of lts-opt: .*relu"),
        ("llama", {LOADS_IN: "transformers", "layers": "own"}, "layers", "transformers loads alike only, not own"),
        ("lfm", {LOADS_IN: "llamacpp", "window": 128}, "window", "llama.cpp loads 0 only, not 128"),
        ("lfm", {LOADS_IN: "transformers", "min_attention_percent": 0}, "min_attention_percent", "not 0"),
    ],
)
def test_what_cannot_be_is_refused(name: str, narrow: dict[str, object], field: str, said: str) -> None:
    with pytest.raises(SpaceError, match=said) as raised:
        space(name).narrow(narrow)
    assert raised.value.field == field
    json.dumps(raised.value.value)
