"""Partial training, and the other proxies on real text: what depends on a prepared data set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scored_models import MODELS, model

from edgefront.core.data.prepared.planning import Preparation
from edgefront.core.data.prepared.preparation import prepare
from edgefront.core.data.prepared.prepared import open_prepared
from edgefront.core.errors import InvalidInput
from edgefront.core.proxies.batch import batch_of
from edgefront.core.proxies.registry import ProxySettings, proxies
from edgefront.core.proxies.score import score

TEXT = ProxySettings(rows=2, length=8, data="counting")
SHORT = ProxySettings(data="counting", steps=2, recipe="quick")


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    source = folder / "counting.txt"
    source.write_text("".join(f"{number} and {number + 1} make {2 * number + 1}\n" for number in range(3000)))
    return prepare(str(source), folder / "counting", settings=Preparation(level="bytes")).folder


def learner(width: int = 16, **changes: Any) -> Any:
    positions = {"kind": "learned", "length": 256}
    return model(d_model=width, positions=positions, **changes)


def test_a_batch_of_text_is_its_first_in_the_order_of_the_seed(text: Path) -> None:
    batch = batch_of(MODELS["gpt"], TEXT, 0, text)
    stream = open_prepared(text).split("train").tokens
    assert batch.inputs.shape == batch.targets.shape == (2, 8)
    assert np.array_equal(batch.targets[0], stream[:8])
    assert np.array_equal(batch.inputs[:, 1:], batch.targets[:, :-1])
    with pytest.raises(InvalidInput, match="no <mask>"):
        batch_of(MODELS["encoder"], TEXT, 0, text)


@pytest.mark.parametrize("proxy", ["snip", "jacob_cov"])
def test_models_are_scored_over_the_datas_vocabulary(text: Path, proxy: str) -> None:
    found = score(MODELS["gpt"], proxy, 0, TEXT, data=text)
    assert found != score(MODELS["gpt"], proxy, 0, ProxySettings(rows=2, length=8))
    other = model(embedding={"vocab_size": 99})
    assert score(other, proxy, 0, TEXT, data=text) == found


def test_data_that_is_named_must_be_there(text: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no folder is given for the data set 'counting'"):
        score(MODELS["gpt"], "snip", 0, TEXT)
    with pytest.raises(InvalidInput, match="partial_training needs a prepared data set"):
        score(MODELS["gpt"], "partial_training")
    assert score(MODELS["gpt"], "decoder_parameters", 0, TEXT) > 0, "it has nothing to do with data"


def test_a_few_steps_lower_the_loss_and_repeat(text: Path) -> None:
    few = score(learner(), "partial_training", 1, SHORT, data=text)
    assert score(learner(), "partial_training", 1, SHORT, data=text) == few
    more = score(learner(), "partial_training", 1, ProxySettings(data="counting", steps=12), data=text)
    assert more < few < np.log(256) + 0.5
    proxy = proxies()["partial_training"]
    assert proxy.oriented(more) > proxy.oriented(few), "a lower loss is better"
    assert proxy.cost(learner(), ProxySettings(steps=12)) == 6 * proxy.cost(learner(), SHORT)


def test_a_model_that_the_recipe_cannot_train_is_reported(text: Path) -> None:
    with pytest.raises(InvalidInput):
        score(MODELS["encoder"], "partial_training", 0, SHORT, data=text)
