"""Which of the prepared data sets a recipe means that names one."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgefront.core.common.errors import InvalidInput
from edgefront.core.data.prepared.planning import Preparation
from edgefront.core.data.prepared.preparation import prepare
from edgefront.core.services.trainings.datasets import check_dataset
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
