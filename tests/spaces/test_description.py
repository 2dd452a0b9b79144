"""The description, version 1: digests are a public contract, and each mistake gets one error that names its field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import Attention, FeedForward, Identity
from edgefront.core.common.errors import ArchitectureError

GOLDEN = json.loads((Path(__file__).parent.parent / "golden" / "digests.json").read_text())
S: dict[str, Any] = {"kind": "attention", "n_head": 4}
F: dict[str, Any] = {"kind": "feed_forward", "d_inner": 128}
BASE: dict[str, Any] = {"version": 1, "d_model": 64, "embedding": {"vocab_size": 100}, "blocks": [S, F]}
SOURCE: dict[str, Any] = {
    "d_model": 64,
    "causal": False,
    "positions": {"kind": "none"},
    "embedding": {"vocab_size": 50},
    "blocks": [{"kind": "srupp", "d_attn": 16}],
    "output": {"kind": "none"},
}
READER: dict[str, Any] = {"kind": "srupp", "d_attn": 16, "attends": "both"}


def nested(depth: int) -> dict[str, Any]:
    """A source of a source of a source …"""
    description = SOURCE
    for _ in range(depth):
        description = {**SOURCE, "source": description}
    return description


@pytest.mark.parametrize("case", GOLDEN, ids=lambda case: case["title"])
def test_digests_never_change(case: dict[str, Any]) -> None:
    architecture = Architecture.parse(case["given"])
    assert architecture.canonical_json == case["canonical"]
    assert architecture.digest == case["digest"]
    assert Architecture.parse(architecture.canonical_json) == architecture


@pytest.mark.parametrize(
    "spelled_out",
    [
        {"version": 1, "causal": True, "norm": "pre", "final_norm": True, "norm_eps": "1e-5", "source": None},
        {"positions": {"kind": "learned", "length": 1024, "offset": 0}, "activation": "gelu_tanh"},
        {"embedding": {"vocab_size": 100, "d_embed": 64, "cutoffs": [], "div": 1, "scaled": False, "segments": 0}},
        {"output": {"kind": "tokens", "tied": True, "tied_projections": "tails", "bias": False, "classes": None}},
        {"blocks": [{**S, "d_head": 16, "attends": "self"}, F]},
        {"blocks": {"pattern": "(sf)", "s": S, "f": F}},
        {"norm_kind": "layer"},
        {"blocks": [{**S, "n_kv_head": 4, "window": None, "qk_norm": False, "bias": "all"}, F]},
        {
            "blocks": [
                {**S, "n_kv_head": None, "bias": None, "rope": True},
                {**F, "gated": False, "bias": True, "parallel": None},
            ]
        },
    ],
)
def test_defaults_spelled_out_are_the_same_model(spelled_out: dict[str, Any]) -> None:
    assert Architecture.parse({**BASE, **spelled_out}) == Architecture.parse(BASE)


def test_defaults_of_what_other_fields_decide() -> None:
    relative = {**BASE, "positions": {"kind": "relative"}}
    assert Architecture.parse({**relative, "blocks": [{**S, "bias": "none"}, F]}) == Architecture.parse(relative)
    rotary = {**BASE, "positions": {"kind": "rotary"}}
    spelled_out = {"kind": "rotary", "theta": 10_000, "percent": 100, "scaling": None}
    assert Architecture.parse({**BASE, "positions": spelled_out}) == Architecture.parse(rotary)
    assert Architecture.parse({**BASE, "positions": {"kind": "rotary", "theta": "10000.0"}}) == Architecture.parse(
        rotary
    )
    assert Architecture.parse({**rotary, "blocks": [{**S, "theta": 10_000}, F]}) == Architecture.parse(rotary)
    assert Architecture.parse({**rotary, "blocks": [{**S, "scale": "0.25"}, F]}) == Architecture.parse(rotary)
    assert Architecture.parse({**rotary, "context_length": 4096}) == Architecture.parse(rotary)
    stretched, spelled_out = {"factor": 32}, {"factor": 32, "length": 8192, "low": 1, "high": 4}
    assert Architecture.parse({**BASE, "positions": {"kind": "rotary", "scaling": stretched}}) == Architecture.parse(
        {**BASE, "positions": {"kind": "rotary", "scaling": spelled_out}}
    )


@pytest.mark.parametrize(
    "other",
    [
        {"causal": False},
        {"norm": "post"},
        {"final_norm": False},
        {"norm": "branch"},
        {"norm": "both"},
        {"norm_eps": "1e-12"},
        {"norm_kind": "rms"},
        {"activation": "gelu"},
        {"activation": "silu"},
        {"positions": {"kind": "rotary"}},
        {"positions": {"kind": "rotary", "theta": 500_000}},
        {"positions": {"kind": "rotary", "theta": "10000.5"}},
        {"positions": {"kind": "rotary", "percent": 50}},
        {"positions": {"kind": "rotary", "scaling": {"factor": 8}}},
        {"positions": {"kind": "rotary", "scaling": {"factor": "1.5", "low": "0.5", "high": "2.5"}}},
        {"positions": {"kind": "rotary"}, "context_length": 8192},
        {"blocks": [{**S, "n_kv_head": 2}, F]},
        {"blocks": [{**S, "window": 64}, F]},
        {"blocks": [{**S, "qk_norm": True}, F]},
        {"blocks": [{**S, "qk_norm": "whole"}, F]},
        {"blocks": [{**S, "bias": "qkv"}, F]},
        {"blocks": [{**S, "bias": "none"}, F]},
        {"blocks": [{**S, "scale": "0.5"}, F]},
        {"positions": {"kind": "rotary"}, "blocks": [{**S, "theta": 500}, F]},
        {"positions": {"kind": "rotary", "scaling": {"factor": 8}}, "blocks": [{**S, "theta": 10_000}, F]},
        {"residual_multiplier": "0.22"},
        {"embedding": {"vocab_size": 100, "multiplier": 12}},
        {"output": {"kind": "tokens", "logits_scaling": 8}},
        {"output": {"kind": "masked_tokens", "bias": False, "logits_scaling": 8}},
        {"blocks": [S, {**F, "gated": True}]},
        {"blocks": [S, {**F, "bias": False}]},
        {"positions": {"kind": "rotary"}, "blocks": [{**S, "rope": False}, F]},
        {"blocks": [S, {**F, "parallel": "own_norm"}]},
        {"blocks": [S, {**F, "parallel": "shared_norm"}]},
        {"blocks": [S, F, S, F]},
        {"positions": {"kind": "learned", "length": 512}},
        {"positions": {"kind": "relative"}},
        {"positions": {"kind": "relative", "shared": False}},
        {"positions": {"kind": "relative", "clamp": 400}},
        {"positions": {"kind": "sinusoidal"}},
        {"positions": {"kind": "none"}},
        {"embedding": {"vocab_size": 100, "scaled": True}},
        {"embedding": {"vocab_size": 100, "segments": 2}},
        {"embedding": {"vocab_size": 100, "norm": True}},
        {"output": {"kind": "tokens", "tied": False}},
        {"output": {"kind": "tokens", "bias": True}},
        {"output": {"kind": "tokens", "tied_projections": "all"}},
        {"output": {"kind": "masked_tokens"}},
        {"output": {"kind": "masked_tokens", "bias": False}},
        {"causal": False, "output": {"kind": "pooled"}},
        {"causal": False, "output": {"kind": "classes", "classes": 3}},
        {"causal": False, "output": {"kind": "classes", "classes": 4}},
        {"output": {"kind": "spans"}},
        {"output": {"kind": "none"}},
        {"blocks": [{**S, "d_head": 32}, F]},
        {"blocks": [S, {"kind": "identity"}, F]},
        {"blocks": [{"kind": "sru"}]},
        {"blocks": [{"kind": "short_conv"}]},
        {"blocks": [{"kind": "short_conv", "kernel": 4}]},
        {"blocks": [{"kind": "short_conv", "bias": True}]},
        {"blocks": [{"kind": "sru", "d_proj": 16}]},
        {"blocks": [{"kind": "srupp", "d_attn": 16}]},
        {"blocks": [{"kind": "srupp", "d_attn": 16, "n_head": 2}]},
        {"blocks": [{"kind": "srupp", "d_attn": 16, "attends": "none"}]},
        {"blocks": [READER], "source": SOURCE},
    ],
)
def test_every_field_counts(other: dict[str, Any]) -> None:
    changed = Architecture.parse({**BASE, **other})
    assert changed != Architecture.parse(BASE)
    assert Architecture.parse(changed.canonical) == changed


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("1e-5", "1e-5"),
        ("0.00001", "1e-5"),
        ("1e-05", "1e-5"),
        ("0.1", "1e-1"),
        ("1e-20", "1e-20"),
        ("9.999999747378752e-06", "9.999999747378752e-06"),
        ("0.00000999999974737875200000", "9.999999747378752e-06"),
        ("2", "2.0"),
    ],
)
def test_a_number_has_one_text(given: str, kept: str) -> None:
    model = Architecture.parse({**BASE, "norm_eps": given})
    assert model.canonical.get("norm_eps", "1e-5") == model.norm_eps == kept
    assert float(model.norm_eps) == float(given)


@pytest.mark.parametrize(
    ("given", "kept"),
    [(1, 1), ("1.0", 1), ("1e6", 1_000_000), ("1.5", "1.5"), (1 << 53, 1 << 53), (10**30, "1e+30"), ("1e-3", "1e-3")],
)
def test_a_number_that_need_not_be_whole_has_one_form(given: Any, kept: Any) -> None:
    model = Architecture.parse({**BASE, "positions": {"kind": "rotary", "theta": given}})
    assert model.canonical["positions"]["theta"] == kept
    assert type(model.canonical["positions"]["theta"]) is type(kept)
    assert Architecture.parse(model.canonical) == model


def test_a_pattern_is_its_blocks() -> None:
    blocks = {"pattern": "(sff)x2 (i)", "s": S, "f": F}
    attention, feed_forward = Attention(n_head=4), FeedForward(d_inner=128)
    expected = (attention, feed_forward, feed_forward) * 2 + (Identity(),)
    assert Architecture.parse({**BASE, "blocks": blocks}).blocks == expected


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"version": 2}, "version"),
        ({"version": True}, "version"),
        ({"version": "1"}, "version"),
        ({"d_model": 0}, "d_model"),
        ({"d_model": -64}, "d_model"),
        ({"d_model": 64.0}, "d_model"),
        ({"d_model": "64"}, "d_model"),
        ({"d_modle": 64}, "d_modle"),
        ({"d_model": 66}, "blocks.0.n_head"),
        ({"norm": "none"}, "norm"),
        ({"norm_eps": 1e-5}, "norm_eps"),
        ({"norm_eps": "0"}, "norm_eps"),
        ({"norm_eps": "-1e-5"}, "norm_eps"),
        ({"norm_eps": "1e-400"}, "norm_eps"),
        ({"norm_eps": "1e39"}, "norm_eps"),
        ({"norm_eps": "nan"}, "norm_eps"),
        ({"norm_eps": " 1e-5"}, "norm_eps"),
        ({"activation": "swish"}, "activation"),
        ({"embedding": {}}, "embedding.vocab_size"),
        ({"embedding": {"vocab_size": 100, "cutoffs": [100]}}, "embedding.cutoffs"),
        ({"embedding": {"vocab_size": 100, "cutoffs": [20, 10]}}, "embedding.cutoffs"),
        ({"embedding": {"vocab_size": 100, "cutoffs": [0]}}, "embedding.cutoffs.0"),
        ({"embedding": {"vocab_size": 100, "div": 4}}, "embedding.div"),
        ({"embedding": {"vocab_size": 100, "cutoffs": [10, 20, 30, 40], "div": 4}}, "embedding.div"),
        ({"embedding": {"vocab_size": 100, "segments": -1}}, "embedding.segments"),
        ({"positions": {"length": 10}}, "positions.kind"),
        ({"positions": {"kind": "t5"}}, "positions.kind"),
        ({"positions": {"kind": "learned", "length": 0}}, "positions.length"),
        ({"norm_kind": "group"}, "norm_kind"),
        ({"positions": {"kind": "rotary", "theta": 0}}, "positions.theta"),
        ({"positions": {"kind": "rotary", "theta": 10**400}}, "positions.theta"),
        ({"positions": {"kind": "rotary", "theta": "inf"}}, "positions.theta"),
        ({"positions": {"kind": "rotary", "theta": True}}, "positions.theta"),
        ({"positions": {"kind": "rotary", "scaling": {"factor": "much"}}}, "positions.scaling.factor"),
        ({"context_length": 8192}, "context_length"),
        ({"positions": {"kind": "rotary"}, "context_length": 0}, "context_length"),
        ({"positions": {"kind": "rotary"}, "context_length": 1 << 31}, "context_length"),
        ({"positions": {"kind": "rotary", "theta": 1e4}}, "positions.theta"),
        ({"positions": {"kind": "rotary", "percent": 0}}, "positions.percent"),
        ({"positions": {"kind": "rotary", "scaling": {}}}, "positions.scaling.factor"),
        ({"positions": {"kind": "rotary", "scaling": {"factor": 8, "low": 4}}}, "positions.scaling.low"),
        ({"positions": {"kind": "rotary"}, "blocks": [{**S, "d_head": 7}]}, "blocks.0.d_head"),
        ({"positions": {"kind": "rotary"}, "d_model": 60}, "blocks.0.n_head"),
        ({"positions": {"kind": "rotary", "percent": 6}}, "blocks.0.n_head"),
        ({"blocks": [{**S, "n_kv_head": 3}]}, "blocks.0.n_kv_head"),
        ({"blocks": [{**S, "n_kv_head": 8}]}, "blocks.0.n_kv_head"),
        ({"blocks": [{**S, "n_kv_head": 0}]}, "blocks.0.n_kv_head"),
        ({"blocks": {"pattern": "(fs)", "s": {**S, "n_kv_head": 3}, "f": F}}, "blocks.s.n_kv_head"),
        ({"blocks": [{**S, "window": 1}]}, "blocks.0.window"),
        ({"blocks": [{**S, "window": 8}], "causal": False}, "blocks.0.window"),
        ({"source": SOURCE, "blocks": [{**S, "window": 8, "attends": "both"}]}, "blocks.0.window"),
        ({"blocks": [{**S, "bias": "out"}]}, "blocks.0.bias"),
        ({"blocks": [{**S, "qk_norm": 1}]}, "blocks.0.qk_norm"),
        ({"blocks": [{**S, "qk_norm": "all"}]}, "blocks.0.qk_norm"),
        ({"norm": "middle"}, "norm"),
        ({"residual_multiplier": 0}, "residual_multiplier"),
        ({"residual_multiplier": 0.22}, "residual_multiplier"),
        ({"embedding": {"vocab_size": 100, "multiplier": "-1"}}, "embedding.multiplier"),
        ({"blocks": [{**S, "theta": 500}]}, "blocks.0.theta"),
        ({"positions": {"kind": "rotary"}, "blocks": [S, {**S, "theta": 500, "rope": False}]}, "blocks.1.theta"),
        ({"blocks": [{**S, "scale": 0}]}, "blocks.0.scale"),
        ({"positions": {"kind": "relative"}, "blocks": [{**S, "scale": 1}]}, "blocks.0.scale"),
        ({"output": {"kind": "spans", "logits_scaling": 8}}, "output.logits_scaling"),
        ({"output": {"kind": "tokens", "bias": True, "logits_scaling": 8}}, "output.logits_scaling"),
        ({"output": {"kind": "masked_tokens", "logits_scaling": 8}}, "output.logits_scaling"),
        (
            {"embedding": {"vocab_size": 100, "cutoffs": [9]}, "output": {"kind": "tokens", "logits_scaling": 8}},
            "output.logits_scaling",
        ),
        ({"blocks": [{**F, "gated": "yes"}]}, "blocks.0.gated"),
        ({"blocks": [{**S, "rope": False}]}, "blocks.0.rope"),
        ({"positions": {"kind": "rotary"}, "blocks": [S, {**S, "rope": 0}]}, "blocks.1.rope"),
        ({"positions": {"kind": "none"}, "blocks": [F, {**S, "rope": False}]}, "blocks.1.rope"),
        ({"blocks": [S, {**F, "parallel": True}]}, "blocks.1.parallel"),
        ({"blocks": [{**F, "parallel": "own_norm"}]}, "blocks.0.parallel"),
        ({"blocks": [S, F, {**F, "parallel": "own_norm"}]}, "blocks.2.parallel"),
        ({"blocks": [{"kind": "sru"}, {**F, "parallel": "shared_norm"}]}, "blocks.1.parallel"),
        ({"blocks": [S, {**F, "parallel": "own_norm"}], "norm": "post"}, "blocks.1.parallel"),
        ({"blocks": [S, {**F, "parallel": "own_norm"}], "norm": "branch"}, "blocks.1.parallel"),
        ({"positions": {"kind": "relative"}, "blocks": [{**S, "n_kv_head": 2}]}, "blocks.0.n_kv_head"),
        ({"positions": {"kind": "relative"}, "blocks": [F, {**S, "qk_norm": True}]}, "blocks.1.qk_norm"),
        ({"positions": {"kind": "relative"}, "blocks": [{**S, "bias": "all"}]}, "blocks.0.bias"),
        ({"positions": {"kind": "relative", "clamp": 0}}, "positions.clamp"),
        ({"positions": {"kind": "relative"}, "causal": False}, "positions.kind"),
        ({"positions": {"kind": "relative"}, "blocks": [S, {**S, "n_head": 2}]}, "blocks.1.n_head"),
        ({"positions": {"kind": "sinusoidal"}, "d_model": 65, "blocks": [F]}, "d_model"),
        ({"blocks": []}, "blocks"),
        ({"blocks": "sf"}, "blocks"),
        ({"blocks": [F] * 1025}, "blocks"),
        ({"blocks": [S, {"kind": "convolution"}]}, "blocks.1.kind"),
        ({"blocks": [{"n_head": 4}]}, "blocks.0.kind"),
        ({"blocks": [{**S, "n_head": 3}]}, "blocks.0.n_head"),
        ({"blocks": [{**S, "attends": "none"}]}, "blocks.0.attends"),
        ({"blocks": [{**S, "attends": "source"}]}, "blocks.0.attends"),
        ({"blocks": [{**F, "d_inner": -1}]}, "blocks.0.d_inner"),
        ({"blocks": [{"kind": "srupp"}]}, "blocks.0.d_attn"),
        ({"blocks": [{"kind": "srupp", "d_attn": 16, "n_head": 3}]}, "blocks.0.n_head"),
        ({"blocks": [{"kind": "srupp", "d_attn": 16, "n_head": 2, "attends": "none"}]}, "blocks.0.n_head"),
        ({"blocks": [{"kind": "short_conv", "kernel": 1}]}, "blocks.0.kernel"),
        ({"blocks": [{"kind": "short_conv", "d_inner": 4}]}, "blocks.0.d_inner"),
        ({"blocks": [{"kind": "identity", "d_inner": 4}]}, "blocks.0.d_inner"),
        ({"blocks": {"pattern": "(sf", "s": S, "f": F}}, "blocks.pattern"),
        ({"blocks": {"pattern": "(sf)", "s": S}}, "blocks.pattern"),
        ({"blocks": {"pattern": ["s"], "s": S}}, "blocks.pattern"),
        ({"blocks": {"pattern": "(s)", "sf": S}}, "blocks.sf"),
        ({"blocks": {"pattern": "(sf)", "s": S, "f": {**F, "d_inner": 0}}}, "blocks.f.d_inner"),
        ({"blocks": {"pattern": "(fs)", "s": {**S, "n_head": 3}, "f": F}}, "blocks.s.n_head"),
        ({"blocks": {"pattern": "(f)", "s": {**S, "n_head": 0}, "f": F}}, "blocks.s.n_head"),
        ({"blocks": {"pattern": "(f)", "z": 7, "f": F}}, "blocks.z"),
        ({"output": {"kind": "classes"}}, "output.classes"),
        ({"output": {"kind": "spans", "classes": 2}}, "output.classes"),
        ({"output": {"kind": "spans", "tied": False}}, "output.tied"),
        ({"output": {"kind": "tokens", "tied": False, "tied_projections": "all"}}, "output.tied_projections"),
        ({"output": {"kind": "scores"}}, "output.kind"),
        ({"output": {"kind": "pooled"}}, "output.kind"),
        ({"output": {"kind": "classes", "classes": 2}}, "output.kind"),
        (
            {"embedding": {"vocab_size": 100, "cutoffs": [10]}, "output": {"kind": "masked_tokens"}},
            "output.kind",
        ),
        ({"blocks": [S, {"kind": "srupp", "d_attn": 16, "attention": False}]}, "blocks.1.attention"),
        ({"blocks": {"pattern": "(sf)", "s": S, "f": {**F, "feed_forward": 1}}}, "blocks.f.feed_forward"),
        ({"positions": {"kind": "learned", "rotary": True}}, "positions.rotary"),
        ({"embedding": {"vocab_size": 100, "int": 1}}, "embedding.int"),
        ({"embedding": 3}, "embedding"),
        ({"sru": 1}, "sru"),
        ({"source": SOURCE}, "source"),
        ({"source": {**SOURCE, "blocks": "(sf)"}}, "source.blocks"),
        ({"source": {**SOURCE, "blocks": [{**S, "n_head": 7}]}, "blocks": [READER]}, "source.blocks.0.n_head"),
        ({"source": {**SOURCE, "d_model": 32}, "blocks": [READER]}, "source.d_model"),
        ({"source": {**SOURCE, "output": {"kind": "tokens"}}, "blocks": [READER]}, "source.output.kind"),
        ({"source": {**SOURCE, "blocks": [{**F, "d_inner": 0}]}, "blocks": [READER]}, "source.blocks.0.d_inner"),
        ({"source": {**SOURCE, "blocks": {"pattern": "(f)", "f": {**F, "d_inner": 0}}}}, "source.blocks.f.d_inner"),
        ({"source": {**SOURCE, "source": SOURCE}, "blocks": [READER]}, "source.source"),
        ({"source": nested(4000), "blocks": [READER]}, "source.source"),
        ({"source": SOURCE, "blocks": [READER], "causal": False}, "causal"),
        (
            {"source": SOURCE, "blocks": [{**S, "attends": "both"}], "positions": {"kind": "relative"}},
            "blocks.0.attends",
        ),
        (
            {"source": SOURCE, "blocks": [{**S, "attends": "source"}], "positions": {"kind": "rotary"}},
            "blocks.0.attends",
        ),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ArchitectureError) as caught:
        Architecture.parse({**BASE, **change})
    assert caught.value.field == field
    assert caught.value.allowed
    assert str(caught.value)


def test_an_unknown_kind_gets_the_list_of_kinds() -> None:
    with pytest.raises(ArchitectureError, match=r"blocks\.0\.kind: there is no 'convolution'; there are attention, "):
        Architecture.parse({**BASE, "blocks": [{"kind": "convolution"}]})
