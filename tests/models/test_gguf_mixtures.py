"""Mixtures of llama.cpp's formats: each tensor has the one that llama.cpp itself chooses, and the files run."""

from __future__ import annotations

import json
import math
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from in_llama_cpp import generated

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.cost.costs import CostOptions, costs
from edgefront.core.architectures.cost.shapes import Shapes
from edgefront.core.architectures.cost.weight_bytes import weight_bytes
from edgefront.core.architectures.gguf import gguf_fault, gguf_form
from edgefront.core.architectures.models import named_models
from edgefront.core.common.errors import Unavailable
from edgefront.core.common.number_formats import GGUF_BLOCKS, GgufBlocks, GgufQuantisation
from edgefront.core.model_files import formats
from edgefront.core.model_files.formats import encode
from edgefront.core.model_files.gguf import write_gguf
from edgefront.core.model_files.gguf_header import GgufHeader
from edgefront.core.model_files.gguf_tensors import tensors

pytestmark = pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("gguf") is None, reason="xllamacpp or gguf is not installed"
)

GOLDEN = Path(__file__).parent.parent / "golden" / "gguf_mixtures.jsonl"
MODELS = {row["name"]: row for row in map(json.loads, GOLDEN.read_text().splitlines())}
FILES = [(name, numbers) for name, row in MODELS.items() for numbers in row["files"]]


@pytest.mark.parametrize(("name", "numbers"), FILES)
def test_tensors_have_the_formats_that_llama_cpp_chooses(name: str, numbers: GgufQuantisation) -> None:
    model, golden = Architecture.parse(MODELS[name]["architecture"]), MODELS[name]["files"][numbers]
    chosen = [(tensor, kind) for tensor, kind in tensors(model, gguf_form(model), numbers) if tensor.constant is None]
    expected = {f"{name}.weight": kind for kind, names in golden["types"].items() for name in names}
    kinds = {tensor.name: kind for tensor, kind in chosen}
    assert kinds == {name: expected.get(name, "f32") for name in kinds}
    assert set(expected) <= set(kinds)
    assert sum(tensor.bytes_in(kind) for tensor, kind in chosen) == golden["bytes"]
    assert costs(model, CostOptions(sequence_length=1, weights=numbers)).weight_bytes == golden["bytes"]


def test_weights_of_many_models_at_once_are_counted_as_llama_cpp_counts() -> None:
    shapes = Shapes.of([Architecture.parse(row["architecture"]) for row in MODELS.values()])
    for numbers in ("q4_k_m", "q5_k_m", "q6_k", "iq4_nl"):
        expected = [row["files"][numbers]["bytes"] for row in MODELS.values()]
        assert weight_bytes(shapes, 4, numbers, 32).tolist() == expected


def test_weights_of_named_models_are_counted_exactly() -> None:
    numbers: GgufQuantisation
    for numbers in ("q8_0", "q4_k_m", "iq4_nl"):
        for name, named in named_models().items():
            model = named.architecture
            if gguf_fault(model, numbers) is not None:
                continue
            every = tensors(model, gguf_form(model), numbers)
            in_file = sum(tensor.bytes_in(kind) for tensor, kind in every if tensor.constant is None)
            assert costs(model, CostOptions(sequence_length=1, weights=numbers)).weight_bytes == in_file, name


@pytest.mark.parametrize("blocks", sorted(set(GGUF_BLOCKS) - {"q8_0", "q4_0"}))
def test_blocks_are_near_the_weights(blocks: GgufBlocks) -> None:
    import gguf

    values = np.random.default_rng(0).normal(0, 0.02, (64, 512)).astype(np.float32)
    values[0] = 0
    count, size = GGUF_BLOCKS[blocks]
    kind = gguf.GGMLQuantizationType[blocks.upper()]
    assert tuple(gguf.GGML_QUANT_SIZES[kind]) == (count, size)
    read = gguf.dequantize(encode(values, blocks).reshape(64, -1), kind)
    error = np.abs(read - values).mean() / np.abs(values).mean()
    assert not read[0].any()
    bits = next(int(letter) for letter in blocks if letter.isdigit())
    assert error < {4: 0.1, 5: 0.06, 6: 0.03}[bits]


@pytest.mark.parametrize(
    ("name", "numbers"),
    [
        *((name, "q4_k_m") for name in ("grouped, rows of 256", "convolutions first", "parts left out")),
        *(("rows of 100", numbers) for numbers in ("q4_k_m", "q5_k_m", "q6_k", "iq4_nl")),
    ],
)
def test_a_file_has_the_chosen_formats_and_generates_in_llama_cpp(
    tmp_path: Path, name: str, numbers: GgufQuantisation
) -> None:
    model = Architecture.parse(MODELS[name]["architecture"])
    write_gguf(model, 3, tmp_path / "model.gguf", numbers)
    stored = GgufHeader(tmp_path / "model.gguf").tensors
    assert {name: (tensor.kind_name.lower(), tensor.nbytes) for name, tensor in stored.items()} == {
        tensor.name: (kind, tensor.bytes_in(kind)) for tensor, kind in tensors(model, gguf_form(model), numbers)
    }
    tokens, scores = generated(tmp_path / "model.gguf", [1, 2, 3], 4)
    assert len(tokens) == 4
    assert all(map(math.isfinite, scores.values()))


def test_without_xllamacpp_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Architecture.parse(MODELS["untied, pairs, rows of 32"]["architecture"])
    formats._quantize_chunk.cache_clear()
    monkeypatch.setattr(formats, "find_spec", lambda _: None)
    write_gguf(model, 1, tmp_path / "model.gguf", "q4_0")
    with pytest.raises(Unavailable, match=r"xllamacpp.*pip install 'edgefront-lm\[llamacpp\]'"):
        write_gguf(model, 1, tmp_path / "other.gguf", "q4_k_m")
    assert [path.name for path in tmp_path.iterdir()] == ["model.gguf"]
