"""The spaces of the LTS paper: their published ranges, their exact sizes, and what the operators do to layers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from genomes import mutated

from edgefront.core.architectures.base_space import LtsSpace
from edgefront.core.architectures.block import Attention, FeedForward
from edgefront.core.architectures.catalogue import LTS_GPT2, LTS_OPT, LTS_TRANSFORMER_XL
from edgefront.core.architectures.embeddings_and_head import Embedding, LearnedPositions, RelativePositions
from edgefront.core.architectures.parameters import count
from edgefront.core.common.errors import SpaceError

GOLDEN = Path(__file__).parent.parent / "golden"


def test_lts_gpt2_is_as_published() -> None:
    assert LTS_GPT2.genes() == {
        "n_layer": {"min": 2, "max": 16, "step": 1, "per_layer": False},
        "d_model": {"min": 128, "max": 1024, "step": 64, "per_layer": False},
        "div": {"values": [4], "options": [1, 2, 4], "per_layer": False},
        "d_embed": {"values": ["d_model"], "options": ["d_model", 128, 256, 512], "per_layer": False},
        "n_head": {"values": [2, 4, 8], "per_layer": True},
        "d_inner": {"min": 256, "max": 4096, "step": 64, "per_layer": True},
    }
    architecture = LTS_GPT2.architecture(LTS_GPT2.sample(np.random.default_rng(0)))
    assert architecture.embedding == Embedding(vocab_size=50264, cutoffs=(19997, 39997), div=4)
    assert architecture.activation == "gelu_tanh"


def test_lts_opt_is_as_published() -> None:
    assert LTS_OPT.genes() == {
        "n_layer": {"min": 3, "max": 29, "step": 1, "per_layer": False},
        "d_model": {"min": 512, "max": 1472, "step": 64, "per_layer": False},
        "div": {"values": [1], "per_layer": False},
        "d_embed": {"values": ["d_model"], "per_layer": False},
        "n_head": {"values": [2, 4, 8, 16], "per_layer": True},
        "d_inner": {"min": 512, "max": 6080, "step": 64, "per_layer": True},
    }
    architecture = LTS_OPT.architecture(LTS_OPT.sample(np.random.default_rng(0)))
    assert architecture.embedding == Embedding(vocab_size=50272)
    assert architecture.positions == LearnedPositions(length=2048, offset=2)
    assert architecture.activation == "relu"


def test_lts_transformer_xl_is_as_published() -> None:
    """The genes of lts-gpt2 over Transformer-XL as archai built it: u and v in each layer, norms after, ReLU."""
    assert LTS_TRANSFORMER_XL.genes() == LTS_GPT2.genes()
    architecture = LTS_TRANSFORMER_XL.architecture(LTS_TRANSFORMER_XL.sample(np.random.default_rng(0)))
    assert architecture.embedding == Embedding(vocab_size=267735, cutoffs=(19997, 39997, 199997), div=4)
    assert architecture.positions == RelativePositions(shared=False)
    assert (architecture.norm, architecture.has_final_norm, architecture.activation) == ("post", False, "relu")


@pytest.mark.parametrize("seed", range(20))
def test_the_proxy_counts_transformer_xl_as_the_paper_does(seed: int) -> None:
    """Tables 4 and 5: Σ(5·D² + 7·D + 2·D·f + f), u and v of each layer included, whatever the heads."""
    genome = LTS_TRANSFORMER_XL.sample(np.random.default_rng(seed))
    width, inners = genome["d_model"], genome["d_inner"][: genome["n_layer"]]
    expected = sum(5 * width**2 + 7 * width + 2 * width * inner + inner for inner in inners)
    assert count(LTS_TRANSFORMER_XL.architecture(genome)).decoder == expected


def test_only_lts_gpt2_keeps_inner_layers_twice_as_wide() -> None:
    genome = LTS_GPT2.sample(np.random.default_rng(1))
    below = {**genome, "d_model": 512, "d_inner": [960] * 16}
    assert not LTS_GPT2.contains(LTS_GPT2.architecture(below))
    assert LTS_OPT.gene("d_inner").values[0] == LTS_OPT.gene("d_model").values[0] == 512
    wide = {**LTS_OPT.sample(np.random.default_rng(1)), "d_model": 1472, "d_inner": [512] * 29}
    assert LTS_OPT.contains(LTS_OPT.architecture(wide))


@pytest.mark.parametrize(
    ("space", "exact"),
    [
        # Σ over d_model = 64·j of Σ over n_layer of (3 heads · inner widths from 2·d_model up)^n_layer.
        (LTS_GPT2, sum((3 * (65 - 2 * j)) ** n for j in range(2, 17) for n in range(2, 17))),
        (LTS_TRANSFORMER_XL, LTS_GPT2.size()),
        (LTS_OPT, sum(16 * (4 * 88) ** n for n in range(3, 30))),
    ],
)
def test_sizes_are_exact(space: LtsSpace, exact: int) -> None:
    assert space.size() == exact


def test_hidden_layers_stay_and_come_back() -> None:
    rng = np.random.default_rng(5)
    genome = {**LTS_GPT2.sample(rng), "n_layer": 2}
    deeper = {**genome, "n_layer": 16}
    assert len(LTS_GPT2.architecture(deeper).blocks) == 32
    inner = [block.d_inner for block in LTS_GPT2.architecture(deeper).blocks if isinstance(block, FeedForward)]
    assert inner == genome["d_inner"]
    # Only what is visible makes the identity.
    hidden = {**genome, "d_inner": genome["d_inner"][:2] + [4096] * 14}
    assert LTS_GPT2.architecture(hidden) == LTS_GPT2.architecture(genome)
    mutants = [mutated(LTS_GPT2, genome, rng, 0.3) for _ in range(20)]
    assert any(mutant["d_inner"][2:] != genome["d_inner"][2:] for mutant in mutants)


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        ({"n_layer": 4}, {"n_layer": (4,)}),
        ({"n_layer": [6, 2, 2]}, {"n_layer": (2, 6)}),
        ({"d_model": {"max": 256}}, {"d_model": (128, 192, 256)}),
        ({"d_model": {"min": 100, "max": 260, "step": 128}}, {"d_model": (128, 256)}),
        ({"d_inner": {"min": 512, "step": 512}}, {"d_inner": tuple(range(512, 4097, 512))}),
        ({"div": [1, 2]}, {"div": (1, 2)}),
        ({"d_embed": 256}, {"d_embed": (256,)}),
        # What no architecture can have any more leaves with the rest.
        ({"d_inner": {"max": 512}}, {"d_model": (128, 192, 256)}),
        ({"d_model": {"min": 896}}, {"d_inner": tuple(range(1792, 4097, 64))}),
        ({}, {}),
    ],
)
def test_narrowing(changes: dict[str, Any], left: dict[str, tuple[Any, ...]]) -> None:
    narrowed = LTS_GPT2.narrow(changes)
    for gene in narrowed.gene_list:
        assert gene.values == left.get(gene.name, gene.values)
    assert all(narrowed.gene(name).values == values for name, values in left.items())


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"n_layers": [2]}, "n_layers", "n_layer, d_model"),
        ({"n_layer": 17}, "n_layer", "2 to 16"),
        ({"n_layer": True}, "n_layer", "2 to 16"),
        ({"n_layer": [2.0]}, "n_layer", "2 to 16"),
        ({"n_layer": []}, "n_layer", "leaves no value"),
        ({"d_model": 130}, "d_model", "128 to 1024 in steps of 64"),
        ({"d_model": {"min": 1025}}, "d_model", "leaves no value"),
        ({"d_model": {"min": 512, "max": 256}}, "d_model", "leaves no value"),
        ({"d_model": {"least": 512}}, "d_model", "least"),
        ({"d_model": {"step": 0}}, "d_model.step", "positive"),
        ({"d_model": {"min": "128"}}, "d_model.min", "integer"),
        ({"n_head": [3]}, "n_head", "2, 4, 8"),
        ({"d_embed": "d_inner"}, "d_embed", "d_model, 128, 256, 512"),
        ({"div": 3}, "div", "1, 2, 4"),
        ({"d_model": 1024, "d_inner": {"max": 1984}}, "d_model", "d_inner ≥ 2·d_model"),
        ([("n_layer", 2)], "narrow", "object"),
    ],
)
def test_impossible_narrowing_names_the_gene(changes: Any, field: str, words: str) -> None:
    with pytest.raises(SpaceError) as caught:
        LTS_GPT2.narrow(changes)
    assert caught.value.field == field
    assert words in f"{caught.value.detail} {caught.value.allowed}"


def test_baselines_are_the_papers() -> None:
    scaled = LTS_GPT2.baselines()
    assert [len(architecture.blocks) for architecture in scaled] == list(range(2, 33, 2))
    for architecture in scaled:
        assert architecture.d_model == 1024
        assert set(architecture.blocks) == {Attention(n_head=8), FeedForward(d_inner=3072)}
        assert architecture.embedding.div == 4
    opt = LTS_OPT.baselines([24])[0]
    assert (opt.d_model, set(opt.blocks)) == (1024, {Attention(n_head=16), FeedForward(d_inner=4096)})
    assert len(LTS_OPT.baselines()) == 29
    xl = LTS_TRANSFORMER_XL.baselines()
    assert [len(architecture.blocks) for architecture in xl] == list(range(2, 33, 2))
    assert (xl[0].d_model, set(xl[-1].blocks)) == (512, {Attention(n_head=8), FeedForward(d_inner=2048)})


@pytest.mark.parametrize("changes", [{"d_model": [512]}, {"d_model": [256, 512]}, {"d_model": {"max": 320}}, {}])
def test_baselines_keep_the_stock_embedding_where_the_embedding_is_free(changes: dict[str, Any]) -> None:
    free = {"div": [1, 2, 4], "d_embed": ["d_model", 128, 256, 512]}
    narrowed = LTS_GPT2.narrow({**changes, **free})
    assert narrowed.baselines([2]) == LTS_GPT2.narrow(changes).baselines([2])
    assert LTS_GPT2.narrow({"div": [1, 2]}).baselines([2])[0].embedding.div == 1  # else the first that is permitted


@pytest.mark.parametrize(
    ("changes", "shape"),
    [
        ({"d_model": [128, 256]}, (256, 8, 1024)),
        ({"d_model": {"max": 512}, "n_head": [2, 4]}, (512, 4, 2048)),
        ({"d_model": 256, "d_inner": {"max": 640}}, (256, 8, 640)),
        ({"d_model": [512, 1024], "d_inner": [2048, 4096]}, (1024, 8, 2048)),
    ],
)
def test_baselines_fit_a_narrowed_space(changes: dict[str, Any], shape: tuple[int, int, int]) -> None:
    narrowed = LTS_GPT2.narrow({**changes, "n_layer": [2, 4, 6]})
    scaled = narrowed.baselines()
    assert [len(architecture.blocks) for architecture in scaled] == [2, 4, 6, 8, 10, 12]
    d_model, n_head, d_inner = shape
    for architecture in scaled:
        assert architecture.d_model == d_model
        assert set(architecture.blocks) == {Attention(n_head=n_head), FeedForward(d_inner=d_inner)}
    assert [narrowed.contains(architecture) for architecture in scaled] == [False, True, False, True, False, True]
    assert [len(architecture.blocks) for architecture in narrowed.baselines([8, 3, 3])] == [6, 16]


def test_published_models_are_in_the_spaces() -> None:
    """All but those that break the paper's own rules: 1.7·d_model in the reference code, d_model 1480 in Table 3."""
    homes = {"opt": LTS_OPT, "gpt2": LTS_GPT2, "transformer_xl": LTS_TRANSFORMER_XL}
    rows = [json.loads(line) for line in (GOLDEN / "lts_tables.jsonl").read_text().splitlines()]
    outside = []
    for row in rows:
        home = homes[row["backbone"]]
        # Where the heads cannot be read in the table, any will do.
        genome = {"n_head": [2] * row["n_layer"], **{name: value for name, value in row.items() if value is not None}}
        genome |= {"div": 1 if home is LTS_OPT else 4, "d_embed": "d_model"}
        if not home.contains(home.architecture(genome)):
            outside.append(row)
    assert len(rows) == 252
    assert [row["name"] for row in outside if row["backbone"] == "opt"] == ["M17"]
    for row in outside:
        ratio = min(row["d_inner"]) / row["d_model"]
        assert row["d_model"] == 1480 if row["backbone"] == "opt" else 1.7 <= ratio < 2
    assert len(outside) < len(rows) / 8
