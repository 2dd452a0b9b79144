"""The spaces llama and lfm: the published models in them, their rules, and what llama.cpp runs of them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from edgefront.core.architectures.block import Attention, FeedForward, ShortConv
from edgefront.core.architectures.catalogue import LFM, LLAMA
from edgefront.core.architectures.layers import LayeredSpace
from edgefront.core.architectures.models import named_model
from edgefront.core.architectures.neighbourhood import space_around
from edgefront.core.common.errors import SpaceError

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
