"""What holds for every proxy: costs, repetition, what is refused; partial training and others on real text."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scored_models import MODELS, SMALL, model
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from edgefront.core.architectures.parameters import count
from edgefront.core.common.errors import InvalidInput
from edgefront.core.data.batches.batch import IGNORED
from edgefront.core.data.prepared.planning import Preparation
from edgefront.core.data.prepared.preparation import prepare
from edgefront.core.data.prepared.prepared import open_prepared
from edgefront.core.training.proxies.registry import ProxySettings, proxies
from edgefront.core.training.proxies.score import score
from edgefront.core.training.proxies.zero_cost import batch_of

ROOT = Path(__file__).parents[2]
UNTRAINED = [name for name in proxies() if name != "partial_training"]


def test_the_counts_are_those_of_the_cost_formulas() -> None:
    for architecture in MODELS.values():
        found = count(architecture)
        assert score(architecture, "decoder_parameters") == found.decoder
        assert score(architecture, "total_parameters") == found.total


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("proxy", UNTRAINED)
def test_every_kind_of_model_has_a_score_that_repeats(proxy: str, kind: str) -> None:
    architecture = MODELS[kind]
    if proxy == "relu_log_det" and kind == "srupp":
        with pytest.raises(InvalidInput, match="feed-forward blocks, and this model has none"):
            score(architecture, proxy, 1, SMALL)
        return
    if proxy == "quality_law" and kind in ("srupp", "encoder", "translation"):
        with pytest.raises(InvalidInput, match="no scaling law covers"):
            score(architecture, proxy, 1, SMALL)
        return
    settings = ProxySettings(rows=2, length=3)
    found = score(architecture, proxy, 1, settings)
    assert math.isfinite(found)
    assert score(architecture, proxy, 1, settings) == found
    if proxies()[proxy].needs_torch:
        assert score(architecture, proxy, 2, settings) != found


def test_a_sequence_longer_than_the_positions_is_refused() -> None:
    with pytest.raises(InvalidInput, match="sequences of 9 tokens are longer than the model's 8 positions"):
        score(MODELS["gpt"], "snip", 0, ProxySettings(rows=1, length=9))


def test_a_score_that_is_no_number_is_an_error_with_its_cause() -> None:
    """Of fewer units than patterns no determinant is left."""
    few = model(blocks=[{"kind": "attention", "n_head": 1}, {"kind": "feed_forward", "d_inner": 5}])
    with pytest.raises(InvalidInput, match=r"relu_log_det of this model is not a finite number \(-inf\)"):
        score(few, "relu_log_det", 0, ProxySettings(rows=8, length=8))


def test_synflow_says_where_nothing_flows() -> None:
    """A norm of ones is zero: where nothing tells the places apart, nothing else is left of them."""
    with pytest.raises(InvalidInput, match="synflow is 0 for this model"):
        score(model(positions={"kind": "relative"}, norm="pre"), "synflow", 0, SMALL)


def test_an_encoder_predicts_some_of_its_tokens() -> None:
    batch = batch_of(MODELS["encoder"], ProxySettings(rows=4, length=8), 0)
    predicted = batch.targets != IGNORED
    assert (predicted.sum(1) == 1).all()
    assert (batch.targets[predicted] == batch.inputs[predicted]).all()


@pytest.mark.parametrize("proxy", ["grad_norm", "snip", "fisher", "grasp", "synflow", "jacob_cov", "relu_log_det"])
def test_costs_are_near_the_products_that_torch_counts(proxy: str) -> None:
    """Matrix products alone. The inputs of the first map need no gradient, which the formulas leave in."""
    architecture = model(
        d_model=32,
        positions={"kind": "learned", "length": 16},
        embedding={"vocab_size": 211},
        blocks=[{"kind": "attention", "n_head": 2}, {"kind": "feed_forward", "d_inner": 96}] * 4,
    )
    settings = ProxySettings(rows=4, length=16)
    with sdpa_kernel(SDPBackend.MATH), Counter() as counter:
        score(architecture, proxy, 0, settings)
    determinant = 64**3 // 3 if proxy == "relu_log_det" else 0
    told = proxies()[proxy].cost(architecture, settings)
    assert counter.flops + determinant == pytest.approx(told, rel=0.15)


class Counter(TorchDispatchMode):
    """FLOPs of the matrix products, forward and backward."""

    flops = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        output = function(*args, **(kwargs or {}))
        count = flop_registry.get(function.overloadpacket)
        self.flops += 0 if count is None else count(*args, **(kwargs or {}), out_val=output)
        return output


def test_the_documentation_has_every_proxy_and_its_direction() -> None:
    text = (ROOT / "docs" / "proxies.md").read_text(encoding="utf-8")
    for proxy in proxies().values():
        assert f"| `{proxy.name}` | {'higher' if proxy.higher_is_better else 'lower'} |" in text


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
