"""GGUF files: the error of each format in llama.cpp itself, their names, blocks and cache."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from gguf_models import gpt2

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.number_formats import GgufFormat
from edgefront.core.model_files.formats import WeightCache, encode
from edgefront.core.model_files.gguf import cached_gguf
from edgefront.core.model_files.model_file import file_name, formats_of, write_model

pytestmark = pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("gguf") is None, reason="xllamacpp or gguf is not installed"
)

ATTENTION, FEED_FORWARD = {"kind": "attention", "n_head": 4}, {"kind": "feed_forward", "d_inner": 160}


def of_heads(count: int) -> Architecture:
    """Models of the same size."""
    return gpt2(blocks=[{**ATTENTION, "n_head": count}, FEED_FORWARD] * 3)


@pytest.mark.parametrize("numbers", get_args(GgufFormat))
def test_a_model_is_shipped_in_each_format(tmp_path: Path, numbers: GgufFormat) -> None:
    path = tmp_path / file_name(gpt2().digest, 7, "gguf", numbers)
    assert path.name.endswith(f"-untrained-seed7{'' if numbers == 'float32' else f'-{numbers}'}.gguf")
    write_model(gpt2(), "gguf", 7, path, numbers)
    assert path.read_bytes()[:4] == b"GGUF"
    with pytest.raises(InvalidInput, match="it has float32, float16, q8_0, q4_0"):
        write_model(gpt2(), "gguf", 7, path, "int8")
    assert "gguf" in formats_of(gpt2())
    assert "gguf" not in formats_of(gpt2(norm="post"))


@pytest.mark.parametrize("numbers", ["q8_0", "q4_0"])
def test_quantised_blocks_are_those_of_gguf(numbers: Any) -> None:
    import gguf

    rng = np.random.default_rng(0)
    signs = np.tile(np.array([1, -1], np.float32), 16)
    edges = np.stack([signs, -signs, np.zeros(32, np.float32), np.ones(32, np.float32), -np.ones(32, np.float32)])
    blocks = np.concatenate([edges, rng.uniform(-0.03, 0.03, (5000, 32)), rng.normal(size=(5000, 32))])
    values = blocks.astype(np.float32)
    expected = gguf.quantize(values, getattr(gguf.GGMLQuantizationType, numbers.upper()))
    assert np.array_equal(encode(values, numbers), expected.reshape(-1))


def test_the_latest_files_stay_within_a_share_of_the_cache(tmp_path: Path) -> None:
    models = [of_heads(count) for count in (2, 4, 8)]

    def cached(cache: WeightCache, model: Architecture) -> Path:
        return cached_gguf(cache, model, 7, "float32")

    first = cached(WeightCache(tmp_path), models[0])
    cache = WeightCache(tmp_path, max_bytes=4 * 5 * first.stat().st_size // 2)
    second = cached(cache, models[1])
    os.utime(second, (0, 0))
    os.utime(first, (1, 1))
    left = first.with_name("left-by-a-crash.part")
    left.write_bytes(b"half")
    third = cached(cache, models[2])
    assert {path.name for path in third.parent.glob("*.*")} == {first.name, third.name}
    before = first.stat().st_mtime
    assert cached(cache, models[0]) == first
    assert first.stat().st_mtime > before
