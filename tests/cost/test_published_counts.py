"""Counts of the papers' models: every row of the tables in tests/golden, and the named models that stand for them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, Block, FeedForward
from edgefront.core.architectures.cost.costs import CostOptions, costs
from edgefront.core.architectures.embeddings_and_head import Embedding, LearnedPositions, NoPositions, RelativePositions
from edgefront.core.architectures.models import named_model
from edgefront.core.architectures.models.srupp import srupp_layers, stack
from edgefront.core.architectures.parameters import count
from edgefront.core.architectures.pattern import expand

GOLDEN = Path(__file__).parent.parent / "golden"


def rows(name: str) -> list[dict[str, Any]]:
    """The rows of a golden table."""
    return [json.loads(line) for line in (GOLDEN / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]


def by_name(name: str) -> list[Any]:
    return [pytest.param(row, id=row["name"]) for row in rows(name)]


# LTS -----------------------------------------------------------------------------------------------------------------


def _lts_model(row: dict[str, Any]) -> Architecture:
    """Heads that cannot be read are 1: they change no count."""
    blocks: list[Block] = []
    for n_head, d_inner in zip(row["n_head"] or [1] * row["n_layer"], row["d_inner"], strict=True):
        blocks += [Attention(n_head=n_head), FeedForward(d_inner=d_inner)]
    backbone = row["backbone"]
    return Architecture(
        d_model=row["d_model"],
        positions={
            "opt": LearnedPositions(length=2048, offset=2),
            "gpt2": LearnedPositions(),
            "transformer_xl": RelativePositions(shared=False),
        }[backbone],
        norm="post" if backbone == "transformer_xl" else "pre",
        activation="relu" if backbone != "gpt2" else "gelu_tanh",
        embedding=Embedding(vocab_size=267_735 if backbone == "transformer_xl" else 50_272),
        blocks=tuple(blocks),
    )


def test_every_row_of_lts() -> None:
    """Tables 3 to 7, within the one decimal that is printed; those of OPT (Table 3) are with the learned positions."""
    published = rows("lts_tables")
    assert {row["table"] for row in published} == {3, 4, 5, 6, 7}
    for row in published:
        counts = count(_lts_model(row))
        counted = counts.decoder + (counts.position if row["backbone"] == "opt" else 0)
        assert abs(counted / 1e6 - row["decoder_parameters_millions"]) <= 0.05, (row["table"], row["name"])
        assert counts.decoder == row.get("decoder_parameters", counts.decoder), row["name"]


def test_two_hundred_trained_models_to_the_last_parameter() -> None:
    """Every combination of k and d_embed, equal to d_model and not; the reference keeps 192 learned positions."""
    published = rows("lts_random_gpt2_wt103")
    assert len(published) == 200
    assert {(row["div_val"], row["d_embed"] == row["d_model"]) for row in published} == {
        (div, same) for div in (1, 2, 4) for same in (True, False)
    }
    for row in published:
        layers = zip(row["n_head"], row["d_inner"], strict=True)
        architecture = Architecture(
            d_model=row["d_model"],
            positions=LearnedPositions(length=192),
            embedding=Embedding(
                vocab_size=row["n_token"], d_embed=row["d_embed"], cutoffs=(19997, 39997), div=row["div_val"]
            ),
            blocks=tuple(
                block for head, inner in layers for block in (Attention(n_head=head), FeedForward(d_inner=inner))
            ),
        )
        counts = count(architecture)
        assert counts.decoder == row["nonembedding"]
        assert counts.total == row["total"]


def test_the_baselines_of_lts() -> None:
    opt = count(named_model("lts-opt-baseline").architecture)
    assert opt.decoder + opt.position == 304_410_624
    assert count(named_model("lts-transformer-xl-baseline").architecture).decoder == 16 * (
        5 * 512**2 + 7 * 512 + 2 * 512 * 2048 + 2048
    )


# PAR and Transformer-XL ----------------------------------------------------------------------------------------------

PAR = {
    "Transformer-XL Base": "transformer-xl-base",
    "Sandwich Transformer Base": "sandwich-base",
    "PAR Transformer Base": "par-base",
    "Transformer-XL Large": "transformer-xl-large",
    "Sandwich Transformer Large": "sandwich-large",
    "PAR Transformer Large": "par-large",
    "Transformer-XL 24B, enwik8": "transformer-xl-24b-enwik8",
    "Sandwich Transformer 24B, enwik8": "sandwich-24b-enwik8",
    "PAR Transformer 24B, enwik8": "par-24b-enwik8",
    "Transformer-XL 24B, text8": "transformer-xl-24b-text8",
    "Sandwich Transformer 24B, text8": "sandwich-24b-text8",
    "PAR Transformer 24B, text8": "par-24b-text8",
    "Transformer-XL 16 layers, WikiText-103": "transformer-xl-wt103",
    "Transformer-XL 12 layers, enwik8": "transformer-xl-24b-enwik8",
    "Transformer-XL 24 layers, enwik8": "transformer-xl-24l-enwik8",
}


@pytest.mark.parametrize("row", by_name("par_models"))
def test_par_and_transformer_xl(row: dict[str, Any]) -> None:
    architecture = named_model(PAR[row["name"]]).architecture
    kinds = "".join("s" if isinstance(block, Attention) else "f" for block in architecture.blocks)
    assert kinds == expand(row["pattern"])
    assert (architecture.embedding.vocab_size, list(architecture.embedding.cutoffs)) == (
        row["vocab_size"],
        row["cutoffs"],
    )
    total = count(architecture).total
    assert total == row["parameters"]
    if row["paper_parameters_millions"] is not None:
        assert abs(total / 1e6 - row["paper_parameters_millions"]) <= row["within_millions"]


@pytest.mark.parametrize("row", by_name("par_models")[:3])
def test_what_is_built_multiplies_what_only_the_queries_need_less_what_the_clamp_saves(row: dict[str, Any]) -> None:
    """704 keys, but 401 distances to be mapped; and one distance more meets each query."""
    architecture = named_model(PAR[row["name"]]).architecture
    built = costs(architecture, CostOptions(sequence_length=64, memory_length=640, logits="none")).flops
    fewer = (704 - 401) * 512 * 512 - 64 * 512
    assert built == row["flops"]["queries_only"] - 2 * row["attention_blocks"] * fewer


# SRU++ ---------------------------------------------------------------------------------------------------------------

SRUPP = {
    "SRU++ small, k=1": "srupp-small",
    "SRU++ Base": "srupp-base",
    "SRU++ Base, k=5": "srupp-base-k5",
    "SRU++ Large": "srupp-large",
    "SRU++ Large, d = 8 d'": "srupp-large-ratio8",
    "ratio 6": "srupp-base-ratio6",
    "ratio 8": "srupp-base-ratio8",
    "ratio 10": "srupp-base-ratio10",
    "attention in 6 to 10": "srupp-base-upper",
    "attention in 2, 4, 6, 8, 10": "srupp-base-k2",
    "attention in 8, 9, 10": "srupp-base-upper3",
    "attention in 3, 6, 9": "srupp-base-k3",
    "k=5, two heads": "srupp-base-k5-h2",
    "attention in 10": "srupp-base-k10",
    "attention in 10, two heads": "srupp-base-k10-h2",
    "ratio 8, k=5": "srupp-base-ratio8-k5",
    "SRU++ Base, WikiText-103": "srupp-base-wt103",
    "SRU++ Large, WikiText-103": "srupp-large-wt103",
    "SRU++ Large, d = 8 d', k=5, WikiText-103": "srupp-large-ratio8-k5-wt103",
    "SRU++ Large, d = 8 d', WikiText-103": "srupp-large-ratio8-wt103",
    "SRU++ Base, Billion Word": "srupp-base-lm1b",
    "SRU++ Large, k=5, Billion Word": "srupp-large-lm1b",
}


@pytest.mark.parametrize("row", by_name("srupp_models"))
def test_srupp(row: dict[str, Any]) -> None:
    layers = srupp_layers(row["d_attn"], row["attention_layers"], row["layers"], row["n_head"])
    architecture = stack(row["d_model"], layers, row["dataset"])
    counts = count(architecture)
    assert (counts.decoder, counts.total) == (row["blocks"], row["parameters"])
    assert isinstance(architecture.positions, NoPositions)
    paper = row["paper_parameters_millions"]
    if paper is not None:
        assert (round(counts.total / 1e6) == paper) is row["rounds_to_paper"]
        assert architecture == named_model(SRUPP[row["name"]]).architecture


def test_only_one_row_of_srupp_is_printed_otherwise() -> None:
    """108.965 M is printed as 108."""
    assert [row["name"] for row in rows("srupp_models") if row["rounds_to_paper"] is False] == ["ratio 10"]


def test_table_2_of_srupp_is_42_million() -> None:
    """Its widths but the first are not printed."""
    for name in ("", "-k2", "-k5", "-k10", "-none"):
        assert round(count(named_model(f"srupp-small{name}").architecture).total / 1e6) == 42


@pytest.mark.parametrize(
    ("row", "name"),
    [
        pytest.param(row, name, id=name)
        for row, name in zip(rows("translation_models"), ("srupp-iwslt", "srupp-iwslt-k2"), strict=True)
    ],
)
def test_translation(row: dict[str, Any], name: str) -> None:
    architecture = named_model(name).architecture
    counts = count(architecture)
    assert architecture.source is not None
    assert len(architecture.blocks) == len(architecture.source.blocks) == row["layers"]
    assert (counts.decoder, counts.total) == (row["blocks"], row["parameters"])
    assert abs(counts.total / 1e6 - row["paper_parameters_millions"]) <= row["within_millions"]


def test_the_transformer_of_the_same_table_is_20_1_million() -> None:
    assert abs(count(named_model("transformer-iwslt").architecture).total / 1e6 - 20.1) <= 0.05


# BERT and OPT --------------------------------------------------------------------------------------------------------

ENCODERS_AND_OPT = {
    "BERT Base": "bert-base",
    "DistilBERT": "distilbert",
    "PAR BERT Base": "par-bert-base",
    "OPT 350M": "opt-350m",
    "OPT 350M of LTS": "lts-opt-baseline",
}


@pytest.mark.parametrize("row", by_name("bert_and_opt_models"))
def test_bert_and_opt(row: dict[str, Any]) -> None:
    architecture = named_model(ENCODERS_AND_OPT[row["name"]]).architecture
    counts = count(architecture)
    assert counts.total == row["parameters"]
    if row["family"] == "bert":
        assert counts.decoder == row["blocks"]
    else:
        table = architecture.embedding.vocab_size * architecture.d_embed
        assert counts.total - table == row["without_token_embedding"]
    paper = row["paper_parameters_millions"]
    if row["family"] == "bert" and paper is not None:
        assert abs(counts.total / 1e6 - paper) < 0.5


def test_bert_large() -> None:
    """As transformers counts BertModel with 24 layers of 1024."""
    assert count(named_model("bert-large").architecture).total == 335_141_888
