"""Which of the prepared data sets a name means."""

from __future__ import annotations

from pathlib import Path

import pytest
import simulated_pool

from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.data.prepared.planning import Preparation
from edgefront.core.data.prepared.preparation import prepare
from edgefront.core.services.datasets import check_dataset, find_dataset
from edgefront.core.training.recipes.catalogue import recipe


def test_a_recipe_of_pieces_takes_no_words_of_the_same_text(tmp_path: Path) -> None:
    text, home = tmp_path / "wikitext-103", tmp_path / "data"
    text.write_text("a sentence of some words\n" * 60)
    words = prepare(str(text), home, settings=Preparation(level="words"))
    asked = recipe("lts-wt103")
    assert check_dataset("wikitext-103", home) == words.digest
    with pytest.raises(InvalidInput, match=r"`edgefront data prepare wikitext-103 --level bpe`"):
        check_dataset("wikitext-103", home, asked.task, asked.level)
    pieces = prepare(str(text), home, settings=Preparation(level="bpe", vocab_size=270))
    assert check_dataset("wikitext-103", home, asked.task, asked.level) == pieces.digest
    with pytest.raises(InvalidInput, match="several prepared data sets"):
        check_dataset("wikitext-103", home)


def test_data_is_found_by_name_digest_and_path_and_nowhere_else(tmp_path: Path) -> None:
    home = tmp_path / "data"
    assert check_dataset("enwik8", home) is None  # on the workers' machines, perhaps
    with pytest.raises(InvalidInput, match="no data set 'enwik8' is prepared here"):
        check_dataset("enwik8", home, allow_remote=False)
    folder = simulated_pool.prepare(home, "mine")
    outside = simulated_pool.prepare(tmp_path / "outside", "theirs")
    (home / "link").symlink_to(outside)
    for name in ("mine", folder.name[:8], f"./{folder.name}", str(folder)):
        assert find_dataset(name, home) == folder
        assert check_dataset(name, home) == folder.name
    assert check_dataset("python", home) is None  # built in, prepared when it is first used
    for name in ("../outside/" + outside.name, "./link", str(outside), "./", "/", "..\\outside"):
        with pytest.raises((InvalidInput, NotFound)) as caught:
            find_dataset(name, home)
        assert "theirs" not in caught.value.detail
    with pytest.raises(NotFound):
        find_dataset("mine", home, digest="0" * 64)
    (folder / "manifest.json").write_text("{")
    with pytest.raises(InvalidInput, match="damaged"):
        find_dataset(folder.name[:8], home)
