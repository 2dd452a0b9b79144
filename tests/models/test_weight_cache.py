"""The weight cache: right values under growth, concurrency, a full disk and its bound."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tiny_models import adaptive

from edgefront.core.architectures.parameters import ParameterSpec, parameters
from edgefront.core.common.errors import Unavailable
from edgefront.core.model_files import formats
from edgefront.core.model_files.build import build
from edgefront.core.model_files.formats import WeightCache
from edgefront.core.model_files.random_values import CHUNK, values

SMALL = ParameterSpec("blocks.0.up.weight", (7, 3))
LARGE = ParameterSpec("blocks.0.up.weight", (CHUNK // 8 + 1, 17))


def test_the_file_is_raw_little_endian_under_seed_and_name(tmp_path: Path) -> None:
    cache = WeightCache(tmp_path)
    assert cache.file(SMALL, 3) == tmp_path / cache.location(SMALL, 3) == tmp_path / "3" / "blocks.0.up.weight.f32"
    assert cache.file(SMALL, 3).read_bytes() == values(SMALL, 3).astype("<f4").tobytes()


def test_ones_and_zeros_share_one_file_each(tmp_path: Path) -> None:
    cache = WeightCache(tmp_path)
    for name, size in (("a", 5), ("b", 50)):
        for seed in (0, 1):
            assert np.all(cache.array(ParameterSpec(name, (size,), "ones"), seed) == 1)
            assert np.all(cache.array(ParameterSpec(name, (size,), "zeros"), seed) == 0)
    assert sorted(path.name for path in tmp_path.glob("*.f32")) == ["ones.f32", "zeros.f32"]


def test_writing_to_a_mapped_parameter_stays_private(tmp_path: Path) -> None:
    cache = WeightCache(tmp_path)
    cache.array(SMALL, 0)[:] = 7
    np.testing.assert_array_equal(cache.array(SMALL, 0), values(SMALL, 0))


@pytest.mark.parametrize("left", [0, 1, 6, 83])
def test_an_append_cut_short_by_a_crash_is_completed(tmp_path: Path, left: int) -> None:
    cache = WeightCache(tmp_path)
    path = cache.file(SMALL, 1)
    os.truncate(path, left)
    np.testing.assert_array_equal(cache.array(SMALL, 1), values(SMALL, 1))


def test_the_seeds_used_least_recently_go_first(tmp_path: Path) -> None:
    bound = 3 * 4 * SMALL.size
    cache = WeightCache(tmp_path, max_bytes=bound)
    for age, seed in ((300, 1), (200, 2), (400, 3)):
        cache.file(SMALL, seed)
        os.utime(tmp_path / str(seed), times=(time.time() - age,) * 2)
    cache.touch(3)
    cache.file(SMALL, 4)
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"2", "3", "4"}
    assert cache.size_bytes() <= bound


def test_the_folder_is_measured_seldom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of a thousand blocks has thousands of files; measuring all for each of them took minutes."""
    cache, measured, size_bytes = WeightCache(tmp_path), [], WeightCache.size_bytes

    def measure(cache: WeightCache) -> int:
        measured.append(size_bytes(cache))
        return measured[-1]

    monkeypatch.setattr(WeightCache, "size_bytes", measure)
    for index in range(100):
        cache.file(ParameterSpec(f"blocks.{index}.up.weight", (4, 4)), 1)
    assert len(measured) <= 2
    assert len(list((tmp_path / "1").iterdir())) == 100


def _disk_with_room_for(monkeypatch: pytest.MonkeyPatch, folder: Path, limit: int) -> None:
    """Appending fails with "no space left" as soon as the folder holds `limit` bytes."""
    real = formats.chunks

    def chunks(*arguments: Any) -> Iterator[Any]:
        for chunk in real(*arguments):
            if sum(path.stat().st_size for path in folder.rglob("*.f32")) >= limit:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            yield chunk

    monkeypatch.setattr(formats, "chunks", chunks)


def test_a_full_disk_is_an_error_that_names_the_place_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = WeightCache(tmp_path)
    before = cache.array(SMALL, 1)
    with monkeypatch.context() as patched:
        _disk_with_room_for(patched, tmp_path, 1)
        with pytest.raises(Unavailable, match=r"the disk is full: .*blocks\.0\.up\.weight\.f32"):
            cache.file(LARGE, 1)
    np.testing.assert_array_equal(before, values(SMALL, 1))
    np.testing.assert_array_equal(cache.array(LARGE, 1), values(LARGE, 1))


def test_a_full_disk_makes_room_by_dropping_old_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = WeightCache(tmp_path)
    cache.file(LARGE, 1)
    os.utime(tmp_path / "1", times=(0, 0))
    _disk_with_room_for(monkeypatch, tmp_path, 4 * LARGE.size)
    np.testing.assert_array_equal(cache.array(SMALL, 2), values(SMALL, 2))
    assert not (tmp_path / "1").exists()


def test_a_model_over_a_cache_holds_references_alone(tmp_path: Path) -> None:
    model = adaptive()
    built = build(model, weights=WeightCache(tmp_path), seed=3)
    assert built.ByteSize() < 40_000
    stored = {tensor.name: tensor for tensor in built.graph.initializer}
    for spec in parameters(model):
        entries = {entry.key: entry.value for entry in stored[spec.name].external_data}
        raw = (tmp_path / entries["location"]).read_bytes()[: int(entries["length"])]
        np.testing.assert_array_equal(np.frombuffer(raw, "<f4").reshape(spec.shape), values(spec, 3))
