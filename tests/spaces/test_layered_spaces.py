"""The spaces llama and lfm: the published models in them, their rules, and what llama.cpp runs of them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from edgefront.core.errors import SpaceError
from edgefront.core.spaces.block import Attention, FeedForward, ShortConv
from edgefront.core.spaces.catalogue import LFM, LLAMA
from edgefront.core.spaces.layers import LayeredSpace
from edgefront.core.spaces.models import named_model
from edgefront.core.spaces.neighbourhood import space_around

DEEP = LLAMA.narrow({"n_layer": {"max": 32}, "n_kv_head": [1, 3, 5], "n_head": [9, 15], "d_inner": {"min": 1024}})


@pytest.mark.parametrize(("name", "space"), [("smollm2-135m", DEEP), ("smollm2-360m", DEEP), ("lfm2-350m", LFM)])
def test_published_models_are_in_them(name: str, space: LayeredSpace) -> None:
    architecture = named_model(name).architecture
    genome = space.genome_of(architecture)
    assert genome is not None
    assert space.repair(genome) == genome
    assert space.architecture(genome) == architecture


def test_their_stock_models_are_the_published_ones() -> None:
    assert LLAMA.narrow({"n_layer": 30}).baselines()[-1] == named_model("smollm2-135m").architecture
    assert LFM.baselines()[-1] == named_model("lfm2-350m").architecture
    for depth, stock in enumerate(LFM.baselines(), start=1):
        kinds = [block.kind for block in stock.blocks[::2]]
        assert len(kinds) == depth
        assert kinds.count("attention") >= 1  # also where none of LFM2's first layers attends


def test_parts_are_left_out_of_layers_and_attention_of_some_only() -> None:
    rng = np.random.default_rng(0)
    space = LLAMA.narrow({"n_head": [0, 2], "n_kv_head": 1, "d_inner": [0, 256], "min_attention_percent": 50})
    lacking = set()
    for _ in range(300):
        genome = space.sample(rng)
        blocks = space.architecture(genome).blocks
        attention = sum(isinstance(block, Attention) for block in blocks)
        assert 2 * attention >= genome["n_layer"]
        lacking |= {
            (type(block), type(following)) for block, following in pairwise(blocks) if type(block) is type(following)
        }
    assert lacking == {(Attention, Attention), (FeedForward, FeedForward)}


def test_layers_alike_have_the_widths_of_the_first() -> None:
    rng = np.random.default_rng(1)
    for space in (LLAMA.narrow({"layers": "alike"}), LFM.narrow({"layers": "alike", "window": 0})):
        for _ in range(50):
            blocks = space.architecture(space.sample(rng)).blocks
            assert all(len({b for b in blocks if b.kind == kind}) <= 1 for kind in ("attention", "feed_forward"))


def test_proportional_layers_have_the_widths_of_their_d_model() -> None:
    """Also those that nobody narrowed and that layers of their own have on request only (6 and 8 n_kv_head)."""
    space = LLAMA.narrow({"layers": "proportional"})
    assert space.gene("d_model").values == (128, 256, 384, 512, 768, 1024)
    assert space.gene("n_kv_head").values == (1, 2, 3, 4, 6, 8)
    assert space.size() == 6 * 15
    for genome in space.samples(50, np.random.default_rng(1)):
        attention, fed, *others = space.architecture(genome).blocks
        assert isinstance(attention, Attention)
        assert isinstance(fed, FeedForward)
        assert others == [attention, fed] * (genome["n_layer"] - 1)
        widths = attention.n_head * attention.d_head, attention.n_kv_head * 2 * attention.d_head, fed.d_inner / 4
        assert widths == (genome["d_model"],) * 3


def test_proportional_layers_beside_others_are_those_that_the_genes_have() -> None:
    """576 has nine heads of 64, which have no half, and 768 has six n_kv_head, which the genes have on request only."""
    space = LLAMA.narrow({"layers": ["alike", "proportional"], "d_model": [512, 576, 768], "n_layer": [2, 3]})
    drawn = space.samples(400, np.random.default_rng(2))
    assert {genome["d_model"] for genome in drawn if genome["layers"] == "proportional"} == {512}
    assert space.repair({**drawn[0], "d_model": 576, "layers": "proportional"})["layers"] == "alike"
    (fitting,) = LLAMA.narrow({"layers": "proportional", "d_inner": 1536}).gene("d_model").values
    assert fitting == 384
    # Where no d_model has such layers, they are no value any more.
    assert LLAMA.narrow({"layers": ["own", "proportional"], "d_model": 576}).gene("layers").values == ("own",)


@pytest.mark.parametrize(
    ("narrow", "field", "said"),
    [
        ({"d_model": [192, 576]}, "d_model", "so d_model is a multiple of 2·d_head, and not 192, 576"),
        ({"n_head": 9}, "n_head", "so n_head is d_model / d_head, and not 9"),
        ({"d_model": 256, "n_kv_head": [1, 4]}, "n_kv_head", "so n_kv_head is n_head / 2, and not 1, 4"),
        ({"d_model": 256, "d_inner": [0, 768]}, "d_inner", "so d_inner is 4·d_model, and not 0, 768; allowed: 1024"),
    ],
)
def test_narrowings_that_proportional_layers_cannot_have_are_refused(
    narrow: dict[str, object], field: str, said: str
) -> None:
    with pytest.raises(SpaceError, match=said.split("; ")[0]) as raised:
        LLAMA.narrow({"layers": "proportional", **narrow})
    assert raised.value.field == field
    assert said.partition("allowed: ")[2] in str(raised.value.allowed)


def test_the_baselines_of_proportional_layers_are_the_stock_model() -> None:
    space = LLAMA.narrow({"layers": "proportional", "d_head": 128, "n_layer": 30})
    assert space.baselines()[-1] == named_model("smollm2-135m").architecture
    around = space_around(named_model("smollm2-135m").architecture, "llama").narrow({"layers": "proportional"})
    assert around.baselines() == (named_model("smollm2-135m").architecture,)


def test_a_narrowing_that_leaves_no_layer_is_refused() -> None:
    with pytest.raises(SpaceError, match="neither attention nor feed-forward"):
        LLAMA.narrow({"n_head": 0, "d_inner": 0, "min_attention_percent": 0})
    with pytest.raises(SpaceError, match="no n_kv_head of 4 divides an n_head of 2, 3, 6, 9"):
        LLAMA.narrow({"n_head": [2, 3, 6, 9], "n_kv_head": 4})
    with pytest.raises(SpaceError, match="min_attention_percent is 40, but no layer attends"):
        LLAMA.narrow({"n_head": 0})
    with pytest.raises(SpaceError, match="no layer attends"):
        LFM.narrow({"mixer": "short_conv"})


def test_what_llama_cpp_runs_of_them() -> None:
    """Widths by layer and parts left out in `deci`; in `lfm2` one width, and no windows; in `qwen3` every part."""
    assert LLAMA.limited_to("llamacpp") == {}
    assert LLAMA.narrow({"layers": "proportional"}).limited_to("llamacpp") == {}
    qwen = space_around(named_model("qwen3-0.6b").architecture, "llama").limited_to("llamacpp")
    assert qwen["layers"] == ("alike",)
    assert 0 not in (*qwen["d_inner"], *qwen["n_head"])
    assert LFM.limited_to("llamacpp") == {"layers": ("alike",), "window": (0,)}
    rng = np.random.default_rng(2)
    narrowed = LFM.narrow({gene: list(values) for gene, values in LFM.limited_to("llamacpp").items()})
    assert narrowed.limited_to("llamacpp") == {}
    for _ in range(30):
        architecture = narrowed.architecture(narrowed.sample(rng))
        attention = [block for block in architecture.blocks if isinstance(block, Attention)]
        assert {block.window for block in attention} == {None}
        assert {block.n_head * architecture.d_head(block) for block in attention} == {architecture.d_model}
        assert {block.kernel for block in architecture.blocks if isinstance(block, ShortConv)} <= {3}
