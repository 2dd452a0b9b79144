"""GPT-2, Llama, Qwen and LFM2 stacks as GGUF, in llama.cpp itself: the greedy tokens of PyTorch."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from gguf_models import CONV, GEMMA, MULTIPLIED, STACKS, attention, gpt2, inner, normed, stack
from in_llama_cpp import error_of, generated, in_torch
from tiny_models import lively_weights

from edgefront.core.architectures.cost.costs import CostOptions, costs
from edgefront.core.architectures.gguf import gguf_fault, gguf_form
from edgefront.core.architectures.models import named_models
from edgefront.core.common.errors import InvalidInput
from edgefront.core.common.number_formats import GgufFormat
from edgefront.core.model_files.formats import WeightCache
from edgefront.core.model_files.gguf import cached_gguf, write_gguf
from edgefront.core.model_files.model_file import check_format
from edgefront.core.model_files.parameter_values import GivenValues

pytestmark = pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("gguf") is None, reason="xllamacpp or gguf is not installed"
)

# A file has no positions below the first that is used.
GENERATING = STACKS | {"gpt2 with an offset": gpt2(positions={"kind": "learned", "length": 48, "offset": 2})}


@pytest.mark.parametrize("name", GENERATING)
def test_greedy_tokens_are_those_of_pytorch(tmp_path: Path, name: str) -> None:
    model = GENERATING[name]
    assert gguf_form(model).kind == name.split()[0]
    weights = lively_weights(model, 5)
    write_gguf(model, GivenValues(weights, {}), tmp_path / "model.gguf")
    prompt = np.random.default_rng(0).integers(0, 331, 12).tolist()
    tokens, scores = generated(tmp_path / "model.gguf", prompt, 24)
    expected, first = in_torch(model, weights, prompt, 24)
    assert tokens == expected
    assert max(abs(score - float(first[token])) for token, score in scores.items()) < 0.03


@pytest.mark.parametrize("name", ["gpt2", "llama", "deci without a feed_forward", "qwen2", "qwen3", "lfm2"])
@pytest.mark.parametrize(
    ("numbers", "bound"),
    [
        ("float16", 0.02),
        ("q8_0", 0.06),
        ("q4_0", 0.8),
        ("q4_k_m", 0.8),
        ("q5_k_m", 0.5),
        ("q6_k", 0.2),
        ("iq4_nl", 0.8),
    ],
)
def test_the_error_of_each_format_is_bounded(tmp_path: Path, name: str, numbers: GgufFormat, bound: float) -> None:
    assert error_of(STACKS[name], numbers, tmp_path / "model.gguf") < bound


@pytest.mark.parametrize("numbers", ["float32", "q8_0", "q4_0", "q4_k_m", "iq4_nl"])
@pytest.mark.parametrize("name", ["gpt2", "llama", "deci", "lfm2"])
def test_the_cache_writes_the_same_weights_of_a_size_that_is_counted(
    tmp_path: Path, name: str, numbers: GgufFormat
) -> None:
    import gguf

    model = STACKS[name]
    write_gguf(model, 7, tmp_path / "model.gguf", numbers)
    one = gguf.GGUFReader(tmp_path / "model.gguf")
    two = gguf.GGUFReader(cached_gguf(WeightCache(tmp_path / "cache"), model, 7, numbers))
    for left, right in zip(one.tensors, two.tensors, strict=True):
        assert left.name == right.name
        if left.name != "position_embd.weight":  # measured with one position more
            assert np.array_equal(left.data, right.data)
    kind = "full" if numbers == "float32" else numbers
    expected = costs(model, CostOptions(sequence_length=24, weights=kind)).weight_bytes
    assert sum(tensor.n_bytes for tensor in one.tensors) == expected


@pytest.mark.parametrize(
    ("blocks", "fields", "named"),
    [
        ([attention(window=8), inner()] * 2, {}, ["blocks.0.window 8"]),
        ([attention(), inner(), attention(d_head=32), inner()], {}, ["blocks.2.d_head 32"]),
        ([normed(), inner(), normed(n_kv_head=1), inner()], {}, ["blocks.2.n_kv_head 1"]),
        ([CONV, inner(), normed(), inner(32)], {}, ["blocks.3.d_inner 32"]),
        ([CONV, inner(), normed(window=8), inner(), normed(), inner()], {}, ["blocks.4.window None"]),
        ([{**CONV, "bias": True}, inner(), normed(), inner()], {}, ["blocks.0.bias True"]),
        ([attention(bias="all"), inner(), attention(bias="all"), inner(32)], {}, ["blocks"]),
        ([attention(), inner()], {"activation": "gelu"}, ["activation gelu"]),
        ([attention(), inner()], {"causal": False}, ["causal False"]),
        ([attention(), inner()], {"embedding": {"vocab_size": 331, "d_embed": 32}}, ["embedding.d_embed 32"]),
        ([{"kind": "attention", "n_head": 4}], {"positions": {"kind": "relative"}}, ["positions.kind relative"]),
        (
            [attention(), inner()],
            {"positions": {"kind": "rotary", "percent": 50}, "norm": "post"},
            ["positions.percent 50", "norm post", "final_norm False"],
        ),
        ([attention(), inner(gated=False)], {}, ["blocks.1.gated False"]),
        ([attention(), {"kind": "sru"}], {}, ["blocks.1.kind sru"]),
        ([attention(rope=False), inner()] * 2, {}, ["blocks.0.rope False"]),
        (
            [attention(scale="0.5", window=4), inner()],
            MULTIPLIED | {"norm": "both", "activation": "relu", "norm_kind": "layer"},
            ["blocks.0.window 4", "norm both"],
        ),
        ([attention(scale="0.5"), inner(), attention(), inner()], {}, ["blocks.0.scale 0.5"]),
        ([normed(), inner()], {"residual_multiplier": "0.5"}, ["residual_multiplier 0.5"]),
        ([attention(theta=500), inner()], {}, ["blocks.0.theta 500"]),
        ([normed(), inner()] * 2, GEMMA, ["blocks.0.window None"]),
        ([normed(window=8, theta=500), inner()] * 2, GEMMA, ["blocks.0.theta 500", "blocks.2.theta 500"]),
        ([normed(window=8, theta=10_000), inner()] * 6, GEMMA, ["blocks.10.window 8", "blocks.10.theta 10000"]),
        (
            [normed(window=8, theta=10_000, scale=1), inner(), normed(window=9, theta=10_000), inner()],
            GEMMA,
            ["blocks.0.scale 1", "blocks.2.window 9"],
        ),
        ([attention(), inner(parallel="own_norm")], {}, ["blocks.1.parallel own_norm"]),
        ([{"kind": "identity"}], {}, ["blocks 1"]),
        ([CONV, inner()], {}, ["blocks 2"]),
    ],
    ids=lambda value: value[0] if isinstance(value, list) and isinstance(value[0], str) else "",
)
def test_what_cannot_be_expressed_is_named_field_by_field(
    tmp_path: Path, blocks: list[Any], fields: dict[str, Any], named: list[str]
) -> None:
    with pytest.raises(InvalidInput, match="GGUF cannot express") as caught:
        write_gguf(stack(*blocks, **fields), 1, tmp_path / "model.gguf")
    details = [error["detail"] for error in caught.value.extra["errors"]]
    for one in named:
        assert any(detail.startswith(one) for detail in details), details
    assert not list(tmp_path.iterdir())


def test_rows_that_are_no_whole_blocks_are_named(tmp_path: Path) -> None:
    model = stack(attention(3, 3), inner(80))
    write_gguf(model, 1, tmp_path / "model.gguf", "float16")
    with pytest.raises(InvalidInput, match=r"blocks.1.d_inner 80: q8_0 .*; blocks.0.n_head · d_head 48: q8_0"):
        check_format(model, "gguf", "q8_0")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("smollm2-135m", "llama"),
        ("qwen2.5-0.5b", "qwen2"),
        ("qwen3-0.6b", "qwen3"),
        ("llama-3.2-1b", "llama"),
        ("lfm2-350m", "lfm2"),
        ("mobilellm-125m", "llama"),
        ("tinyllama-1.1b", "llama"),
        ("gpt2-small", "gpt2"),
    ],
)
def test_named_models_are_expressed_in_every_format(name: str, kind: str) -> None:
    model = named_models()[name].architecture
    assert gguf_form(model).kind == kind
    for numbers in get_args(GgufFormat):
        assert gguf_fault(model, numbers) is None
