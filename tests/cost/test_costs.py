"""Costs against the list of parameters that the builders share, the built models, and what was published."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from core.cost.costs import costs
from core.errors import InvalidInput
from core.graph.build import build
from core.graph.parameters import parameters
from core.nn.model import LanguageModel
from core.spaces.architecture import Architecture, Attention, Block, Embedding, FeedForward, Positions
from core.spaces.catalogue import named_models
from core.wire.service import Costs as CostsView

GOLDEN = Path(__file__).parent.parent / "golden"


@st.composite
def architectures(draw: st.DrawFn, max_width: int = 96, max_blocks: int = 6) -> Architecture:
    """Any description: hybrids of blocks in any order, every kind of embedding, odd widths and lengths."""
    heads = draw(st.integers(1, 6))
    d_model = heads * draw(st.integers(1, max_width // heads))
    attention = st.sampled_from([head for head in range(1, d_model + 1) if d_model % head == 0]).map(
        lambda n_head: Attention(n_head=n_head)
    )
    feed_forward = st.integers(1, 3 * max_width).map(lambda d_inner: FeedForward(d_inner=d_inner))
    blocks: list[Block] = draw(st.lists(st.one_of(attention, feed_forward), min_size=1, max_size=max_blocks))
    vocab_size = draw(st.integers(2, 400))
    cutoffs = sorted(draw(st.sets(st.integers(1, vocab_size - 1), max_size=3)))
    div = draw(st.integers(1, 4)) if cutoffs else 1
    least = div ** len(cutoffs)
    d_embed = draw(st.one_of(st.none(), st.integers(least, least + max_width)))
    return Architecture(
        d_model=d_model,
        positions=Positions(length=draw(st.integers(1, 300)), offset=draw(st.integers(0, 2))),
        activation=draw(st.sampled_from(["gelu", "gelu_tanh", "relu"])),
        embedding=Embedding(
            vocab_size=vocab_size,
            d_embed=max(d_model, least) if d_embed is None and d_model < least else d_embed,
            cutoffs=tuple(cutoffs),
            div=div,
        ),
        blocks=tuple(blocks),
    )


def example(**changes: Any) -> Architecture:
    """A small adaptive model that has a part of everything."""
    value = {
        "d_model": 32,
        "positions": {"length": 64, "offset": 2},
        "embedding": {"vocab_size": 200, "d_embed": 16, "cutoffs": [40, 90], "div": 2},
        "blocks": [{"kind": "attention", "n_head": 4}, {"kind": "feed_forward", "d_inner": 50}],
    }
    return Architecture.parse({**value, **changes})


# Parameters ------------------------------------------------------------------------------------------------------


@given(architectures())
@settings(max_examples=2000)
def test_counts_are_those_of_the_list_of_parameters(architecture: Architecture) -> None:
    found = costs(architecture, sequence_length=1)
    listed = {"decoder": 0, "position": 0, "embedding": 0}
    for spec in parameters(architecture):
        listed[spec.group] += spec.size
    assert (found.decoder_parameters, found.position_parameters, found.embedding_parameters) == tuple(listed.values())
    assert found.total_parameters == sum(listed.values())
    assert found.digest == architecture.digest


@given(architectures())
@settings(max_examples=100)
def test_counts_are_those_of_the_built_model(architecture: Architecture) -> None:
    with torch.device("meta"):
        model = LanguageModel(architecture)
    found = costs(architecture, sequence_length=1)
    assert sum(parameter.numel() for parameter in model.parameters()) == found.total_parameters
    decoder = [*model.blocks.parameters(), *model.final_norm.parameters()]
    assert sum(parameter.numel() for parameter in decoder) == found.decoder_parameters


@pytest.mark.parametrize("name", named_models())
def test_named_models_are_counted_as_built(name: str) -> None:
    architecture = named_models()[name].architecture
    with torch.device("meta"):
        model = LanguageModel(architecture)
    found = costs(architecture)
    assert sum(parameter.numel() for parameter in model.parameters()) == found.total_parameters
    assert sum(p.numel() * p.element_size() for p in model.parameters()) == found.weight_bytes


def _tables() -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / "lts_tables.jsonl").read_text().splitlines()]


def _layers(row: dict[str, Any]) -> tuple[Block, ...]:
    blocks: list[Block] = []
    for n_head, d_inner in zip(row["n_head"], row["d_inner"], strict=True):
        blocks += [Attention(n_head=n_head), FeedForward(d_inner=d_inner)]
    return tuple(blocks)


def test_the_papers_tables() -> None:
    """Decoder parameters in millions to one decimal; those of OPT (Table 3) are with the learned positions."""
    rows = _tables()
    assert {row["backbone"]: sum(other["backbone"] == row["backbone"] for other in rows) for row in rows} == {
        "opt": 21,
        "gpt2": 77,
    }
    for row in rows:
        opt = row["backbone"] == "opt"
        architecture = Architecture(
            d_model=row["d_model"],
            positions=Positions(length=2048, offset=2) if opt else Positions(),
            embedding=Embedding(vocab_size=50272 if opt else 50264),
            blocks=_layers(row),
        )
        found = costs(architecture)
        counted = found.decoder_parameters + (found.position_parameters if opt else 0)
        assert abs(counted / 1e6 - row["decoder_parameters_millions"]) <= 0.05, row["name"]


def test_two_hundred_trained_models_to_the_last_parameter() -> None:
    """Every combination of k and d_embed, equal to d_model and not; the reference keeps 192 learned positions."""
    rows = [json.loads(line) for line in (GOLDEN / "lts_random_gpt2_wt103.jsonl").read_text().splitlines()]
    assert len(rows) == 200
    assert {(row["div_val"], row["d_embed"] == row["d_model"]) for row in rows} == {
        (div, same) for div in (1, 2, 4) for same in (True, False)
    }
    for row in rows:
        architecture = Architecture(
            d_model=row["d_model"],
            positions=Positions(length=192),
            embedding=Embedding(
                vocab_size=row["n_token"], d_embed=row["d_embed"], cutoffs=(19997, 39997), div=row["div_val"]
            ),
            blocks=_layers(row),
        )
        found = costs(architecture)
        assert found.decoder_parameters == row["nonembedding"]
        assert found.total_parameters == row["total"]


# FLOPs -----------------------------------------------------------------------------------------------------------


def onnx_flops(architecture: Architecture, logits: Any, batch: int, sequence: int) -> int:
    """Two for each multiply-accumulate of every matrix product that the ONNX graph runs, by the shapes it ran with."""
    model = build(architecture, logits=logits)
    products = [node for node in model.graph.node if node.op_type in ("Gemm", "MatMul")]
    others = {node.op_type for node in model.graph.node} & {"Attention", "Einsum", "Conv", "MatMulInteger"}
    assert not others, "these multiply too: count them"
    known = {spec.name: spec.shape for spec in parameters(architecture)}
    wanted = sorted({name for node in products for name in (node.input[0], node.output[0])} - set(known))
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted if name != model.graph.output[0].name)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    values = session.run(wanted, {"tokens": np.zeros((batch, sequence), dtype=np.int64)})
    shapes = {**known, **{name: value.shape for name, value in zip(wanted, values, strict=True)}}
    multiplications = 0
    for node in products:
        transposed = any(item.name == "transA" and item.i for item in node.attribute)
        multiplications += math.prod(shapes[node.output[0]]) * shapes[node.input[0]][0 if transposed else -1]
    return 2 * multiplications


@given(architectures(), st.sampled_from(["all", "last", "none"]), st.integers(1, 3), st.integers(1, 40))
@settings(max_examples=150)
def test_flops_are_those_of_the_onnx_graph(architecture: Architecture, logits: str, batch: int, sequence: int) -> None:
    sequence = min(sequence, architecture.positions.length)
    found = costs(architecture, sequence_length=sequence, batch=batch, logits=logits)
    assert found.flops == onnx_flops(architecture, logits, batch, sequence)


@pytest.mark.parametrize("logits", ["all", "last", "none"])
@pytest.mark.parametrize(
    "embedding",
    [
        {"vocab_size": 200},
        {"vocab_size": 200, "d_embed": 16},
        {"vocab_size": 200, "cutoffs": [40, 90]},
        {"vocab_size": 200, "cutoffs": [40, 90], "d_embed": 16},
        {"vocab_size": 200, "cutoffs": [40, 90], "div": 2},
        {"vocab_size": 200, "cutoffs": [40, 90], "div": 4, "d_embed": 64},
    ],
)
def test_flops_are_those_that_torch_counts(embedding: dict[str, Any], logits: Any) -> None:
    architecture = example(embedding=embedding)
    with torch.device("meta"):
        model = LanguageModel(architecture).requires_grad_(False)
        tokens = torch.zeros(3, 10, dtype=torch.int64)
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(tokens, logits)
    found = costs(architecture, sequence_length=10, batch=3, logits=logits)
    assert counter.get_total_flops() == found.flops


def test_flops_by_hand() -> None:
    """One layer of GPT-2 of width 8, one sequence of 3: 2·(3·4·8² + 2·3²·8 + 3·2·8·16) and 2·8·10 a position."""
    architecture = example(
        d_model=8,
        embedding={"vocab_size": 10},
        blocks=[{"kind": "attention", "n_head": 2}, {"kind": "feed_forward", "d_inner": 16}],
    )
    body = 2 * (3 * 4 * 64 + 2 * 9 * 8 + 3 * 2 * 8 * 16)
    for logits, positions in (("none", 0), ("last", 1), ("all", 3)):
        assert costs(architecture, sequence_length=3, logits=logits).flops == body + positions * 2 * 8 * 10


# Options ---------------------------------------------------------------------------------------------------------


def test_heads_and_activation_cost_nothing() -> None:
    one = costs(example(), sequence_length=8)
    two = costs(
        example(
            activation="relu", blocks=[{"kind": "attention", "n_head": 8}, {"kind": "feed_forward", "d_inner": 50}]
        ),
        sequence_length=8,
    )
    assert one.digest != two.digest
    assert {**one.to_json(), "digest": two.digest} == two.to_json()


def test_types_and_defaults() -> None:
    found = costs(named_models()["gpt2-small"].architecture)
    assert (found.sequence_length, found.batch, found.dtype) == (192, 1, "float32")
    assert found.weight_bytes == 4 * found.total_parameters
    for dtype, width in (("float64", 8), ("float16", 2), ("bfloat16", 2)):
        assert costs(example(), sequence_length=1, dtype=dtype).weight_bytes == width * found_total()


def found_total() -> int:
    return costs(example(), sequence_length=1).total_parameters


def test_costs_are_a_wire_message() -> None:
    found = costs(example(), sequence_length=4)
    assert CostsView(**found.to_json()).model_dump() == found.to_json()


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"sequence_length": 0}, "sequence_length"),
        ({"sequence_length": 65}, "sequence_length"),
        ({"sequence_length": True}, "sequence_length"),
        ({"sequence_length": 2.0}, "sequence_length"),
        ({"batch": 0}, "batch"),
        ({"batch": 1 << 20}, "batch"),
        ({"dtype": "int3"}, "dtype"),
        ({"logits": "first"}, "logits"),
    ],
)
def test_wrong_options_are_named(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        costs(example(), **{"sequence_length": 8, **options})
    assert caught.value.field == field
    assert caught.value.allowed
