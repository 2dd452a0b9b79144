"""A strategy for any legal description of a small model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.architectures.block import BLOCK_KINDS

LENGTH = 24
"""Length of every learned position table."""

Part = dict[str, Any]


@st.composite
def descriptions(
    draw: st.DrawFn,
    *,
    causal: bool | None = None,
    source: bool | None = None,
    kinds: Sequence[str] = BLOCK_KINDS,
    over_vocabulary: bool = False,
    max_blocks: int = 5,
) -> Architecture:
    """Stacks of `kinds` in any order, with every kind of embedding and output.

    `causal` and `source` fix whether it is causal or has a source; `over_vocabulary` leaves pooled and other heads out.
    """
    d_model = draw(st.sampled_from([4, 8, 12, 16]))
    causal = draw(st.booleans() if causal is None else st.just(causal))
    source = causal and draw(st.sampled_from([False, False, True]) if source is None else st.just(source))
    attends = ["self", "source", "both"] if source else ["self"]
    positions = draw(_positions(relative=causal))
    attention = draw(_attention(d_model, causal, positions, attends))
    kind = st.one_of(attention if kind == "attention" else _block(kind, d_model, attends) for kind in kinds)
    norms = draw(_norms())
    blocks = draw(st.lists(kind, min_size=1, max_size=max_blocks))
    for before, block in pairwise(blocks):
        if norms["norm"] in ("pre", "both") and (before["kind"], block["kind"]) == ("attention", "feed_forward"):
            block["parallel"] = draw(st.sampled_from([None, "own_norm", "shared_norm"]))
    if source and not any(block.get("attends") in ("source", "both") for block in blocks):
        reader = draw(st.sampled_from(["source", "both"]))
        blocks.append({"kind": "srupp", "d_attn": 4, "n_head": 2, "attends": reader})
    embedding = draw(_embedding(d_model))
    return Architecture.parse(
        {
            "d_model": d_model,
            "causal": causal,
            "positions": positions,
            "embedding": embedding,
            "blocks": blocks,
            "output": draw(_output(embedding, over_vocabulary, causal)),
            "source": draw(_source(d_model)) if source else None,
            **norms,
        }
    )


@st.composite
def _source(draw: st.DrawFn, d_model: int) -> Part:
    causal = draw(st.booleans())
    positions = draw(_positions(relative=causal))
    attention = draw(_attention(d_model, causal, positions, ["self"]))
    block = st.one_of(attention if kind == "attention" else _block(kind, d_model, ["self"]) for kind in BLOCK_KINDS)
    return {
        "d_model": d_model,
        "causal": causal,
        "positions": positions,
        "embedding": draw(_embedding(d_model)),
        "blocks": draw(st.lists(block, min_size=1, max_size=3)),
        "output": {"kind": "none"},
        **draw(_norms()),
    }


def _norms() -> st.SearchStrategy[Part]:
    return st.fixed_dictionaries(
        {
            "norm": st.sampled_from(["pre", "post", "branch", "both"]),
            "norm_kind": st.sampled_from(["layer", "layer", "rms"]),
            "final_norm": st.sampled_from([None, True, False]),
            "norm_eps": st.sampled_from(["1e-5", "1e-12", "1e-3"]),
            "residual_multiplier": st.sampled_from([1, 1, "0.25"]),
            "activation": st.sampled_from(["gelu", "gelu_tanh", "relu", "silu"]),
        }
    )


def _positions(*, relative: bool) -> st.SearchStrategy[Part]:
    learned = st.fixed_dictionaries(
        {"kind": st.just("learned"), "length": st.just(LENGTH), "offset": st.sampled_from([0, 2])}
    )
    plain = st.sampled_from([{"kind": "sinusoidal"}, {"kind": "none"}])
    scaling = st.sampled_from([None, {"factor": 8, "length": 16}, {"factor": 2, "length": 64, "low": 2, "high": 3}])
    rotary = st.fixed_dictionaries(
        {
            "kind": st.just("rotary"),
            "theta": st.sampled_from([10_000, 100]),
            "percent": st.sampled_from([100, 60]),
            "scaling": scaling,
        }
    )
    clamp = st.sampled_from([None, 1, 4, 100])
    distances = st.fixed_dictionaries({"kind": st.just("relative"), "shared": st.booleans(), "clamp": clamp})
    return learned | plain | rotary | (distances if relative else rotary)


@st.composite
def _attention(
    draw: st.DrawFn, d_model: int, causal: bool, positions: Part, attends: list[str]
) -> st.SearchStrategy[Part]:
    """Attention blocks that go with these positions: of one shape where they share u and v."""
    if positions["kind"] == "relative":
        heads = st.just(draw(_heads(d_model))) if positions["shared"] else _heads(d_model)
        return st.builds(
            lambda heads, window: {"kind": "attention", **heads, "window": window}, heads, _windows(causal)
        )
    rotary = positions["kind"] == "rotary"
    # Of heads of 4 and 8 features 60 % are 2 and 4, of 7 they are 4: features turn in pairs.
    widths = st.sampled_from([4, 7, 8] if positions.get("percent", 100) == 60 else [2, 4])
    heads = st.builds(lambda n_head, d_head: {"n_head": n_head, "d_head": d_head}, st.sampled_from([1, 2, 4]), widths)

    @st.composite
    def block(draw: st.DrawFn) -> Part:
        described = {"kind": "attention", **draw(heads if rotary else _heads(d_model))}
        described["n_kv_head"] = draw(st.sampled_from([None, *(n for n in (1, 2) if described["n_head"] % n == 0)]))
        described["attends"] = draw(st.sampled_from(["self"] if rotary else attends))
        if described["attends"] == "self":
            described["window"] = draw(_windows(causal))
        described["qk_norm"] = draw(st.sampled_from([False, True, "whole"]))
        described["bias"] = draw(st.sampled_from([None, "qkv", "none"]))
        described["scale"] = draw(st.sampled_from([None, None, 2, "0.3"]))
        if rotary:
            described["rope"] = draw(st.sampled_from([True, True, False]))
            if described["rope"]:
                described["theta"] = draw(st.sampled_from([None, None, 50]))
        return described

    return block()


def _windows(causal: bool) -> st.SearchStrategy[int | None]:
    return st.sampled_from([None, None, 2, 3, 50]) if causal else st.none()


@st.composite
def _heads(draw: st.DrawFn, d_model: int) -> Part:
    """Heads that divide d_model, or of a width of their own."""
    n_head = draw(st.sampled_from([1, 2, 3, 4]))
    own = draw(st.booleans()) or d_model % n_head != 0
    return {"n_head": n_head, "d_head": draw(st.sampled_from([1, 3, 8]))} if own else {"n_head": n_head}


def _block(kind: str, d_model: int, attends: list[str]) -> st.SearchStrategy[Part]:
    if kind == "feed_forward":
        return st.fixed_dictionaries(
            {"kind": st.just(kind), "d_inner": st.integers(1, 24), "gated": st.booleans(), "bias": st.booleans()}
        )
    if kind == "short_conv":
        return st.fixed_dictionaries(
            {"kind": st.just(kind), "kernel": st.sampled_from([2, 3, 5]), "bias": st.booleans()}
        )
    if kind == "sru":
        return st.fixed_dictionaries({"kind": st.just(kind), "d_proj": st.sampled_from([None, 1, 5])})
    if kind == "srupp":
        with_attention = st.fixed_dictionaries(
            {
                "kind": st.just(kind),
                "d_attn": st.sampled_from([4, 6]),
                "n_head": st.sampled_from([1, 2]),
                "attends": st.sampled_from(attends),
            }
        )
        without = st.fixed_dictionaries(
            {"kind": st.just(kind), "d_attn": st.sampled_from([3, 6]), "attends": st.just("none")}
        )
        return with_attention | without
    return st.just({"kind": kind})


@st.composite
def _embedding(draw: st.DrawFn, d_model: int) -> Part:
    vocab_size = draw(st.integers(5, 40))
    d_embed = draw(st.sampled_from([None, 9, 24]))
    cutoffs = sorted(draw(st.sets(st.integers(1, vocab_size - 1), max_size=3)))
    divs = [div for div in (1, 2, 3) if (d_embed or d_model) // div ** len(cutoffs)] if cutoffs else [1]
    return {
        "vocab_size": vocab_size,
        "d_embed": d_embed,
        "cutoffs": cutoffs,
        "div": draw(st.sampled_from(divs)),
        "scaled": draw(st.sampled_from([None, True, False])),
        "multiplier": draw(st.sampled_from([1, 1, "1.5"])),
        "segments": draw(st.sampled_from([0, 0, 3])),
        "norm": draw(st.booleans()),
    }


@st.composite
def _output(draw: st.DrawFn, embedding: Part, over_vocabulary: bool, causal: bool) -> Part:
    kinds = ["tokens", "tokens"] if embedding["cutoffs"] else ["tokens", "tokens", "masked_tokens"]
    if not over_vocabulary:
        kinds += ["spans", "none"] if causal else ["pooled", "classes", "spans", "none"]
    kind = draw(st.sampled_from(kinds))
    if kind not in ("tokens", "masked_tokens"):
        return {"kind": kind, "classes": draw(st.integers(1, 5))} if kind == "classes" else {"kind": kind}
    tied, bias = draw(st.booleans()), draw(st.sampled_from([None, True, False]))
    biased = bias if bias is not None else bool(embedding["cutoffs"]) or kind == "masked_tokens"
    projections = ["tails", "all", "none"] if tied else ["tails"]
    return {
        "kind": kind,
        "tied": tied,
        "tied_projections": draw(st.sampled_from(projections)),
        "bias": bias,
        "logits_scaling": 1 if biased or embedding["cutoffs"] else draw(st.sampled_from([1, 8, "0.5"])),
    }
