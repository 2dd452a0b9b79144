"""Dropout is where the papers' code has it, only in train mode, and differentiable."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from translators import translator

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.nn.dropout import Dropout
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import fill
from edgefront.core.training.parametrisation import initialise

PAIR = [{"kind": "attention", "n_head": 2}, {"kind": "feed_forward", "d_inner": 24}]
ADAPTIVE = {"vocab_size": 60, "cutoffs": [20, 40], "div": 2}
MODELS: dict[str, dict[str, Any]] = {
    "gpt2": {"embedding": {"vocab_size": 60}, "blocks": PAIR * 2},
    "transformer_xl": {
        "positions": {"kind": "relative"},
        "norm": "post",
        "activation": "relu",
        "embedding": ADAPTIVE,
        "blocks": PAIR * 2,
    },
    "srupp": {
        "positions": {"kind": "none"},
        "embedding": ADAPTIVE,
        "blocks": [{"kind": "srupp", "d_attn": 8}, {"kind": "srupp", "d_attn": 8, "attends": "none"}, {"kind": "sru"}],
    },
    "decoder": {
        "positions": {"kind": "rotary"},
        "norm_kind": "rms",
        "embedding": {"vocab_size": 60},
        "blocks": [
            {"kind": "short_conv"},
            {"kind": "feed_forward", "d_inner": 32, "gated": True, "bias": False},
            {"kind": "attention", "n_head": 4, "n_kv_head": 2, "qk_norm": True, "bias": "none", "window": 4},
            {"kind": "feed_forward", "d_inner": 32, "gated": True},
        ],
    },
    "bert": {
        "causal": False,
        "norm": "post",
        "embedding": {"vocab_size": 60, "segments": 2, "norm": True},
        "blocks": PAIR,
        "output": {"kind": "masked_tokens"},
    },
}
ALL = Dropout(embedding=0.3, narrow=0.3, hidden=0.3, attention=0.3, highway=0.3, output=0.3)


def model(name: str) -> LanguageModel:
    return fill(LanguageModel(Architecture.parse({"d_model": 16, **MODELS[name]})), 0).train()


def tokens(batch: int = 2, sequence: int = 7, vocab_size: int = 60) -> Tensor:
    return torch.randint(vocab_size, (batch, sequence), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", MODELS)
def test_rates_of_zero_change_no_bit(name: str) -> None:
    subject = model(name)
    subject.dropout = Dropout(inner=0.0)
    trained = subject(tokens(), "none")
    subject.eval()
    assert torch.equal(trained, subject(tokens(), "none"))
    subject.dropout = ALL
    assert torch.equal(trained, subject(tokens(), "none"))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("part", Dropout.model_fields)
def test_a_rate_acts_exactly_where_its_place_exists(name: str, part: str) -> None:
    places = {"embedding", "hidden", "inner", "attention", "output"}
    if name == "srupp":
        places |= {"highway"}
        places -= {"inner"}  # it has no feed-forward block
    if name in ("srupp", "transformer_xl"):
        places |= {"narrow"}
    subject = initialise(model(name), "translation", 0)
    for parameter_name, parameter in subject.named_parameters():
        if parameter_name.endswith("alpha"):  # 0 at first, which hides the attention
            torch.nn.init.ones_(parameter)
    expected = subject(tokens(), "none")
    subject.dropout = Dropout(**{part: 0.5})
    torch.manual_seed(0)
    changed = not torch.equal(subject(tokens(), "none"), expected)
    assert changed == (part in places)


class Spy:
    """F.dropout and attention's own, as they are, with a list of what they were given."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.shapes: list[tuple[int, ...]] = []
        self.attentions: list[float] = []
        dropout, attention = F.dropout, F.scaled_dot_product_attention

        def seen(x: Tensor, p: float = 0.5) -> Tensor:
            self.shapes.append(tuple(x.shape))
            return dropout(x, p)

        def attended(*args: Any, **settings: Any) -> Tensor:
            self.attentions.append(settings["dropout_p"])
            found: Tensor = attention(*args, **settings)
            return found

        patch.setattr(F, "dropout", seen)
        patch.setattr(F, "scaled_dot_product_attention", attended)


def test_transformer_xl_drops_where_its_code_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Embedding; sinusoids once for all layers; of each layer the attention's update, the inner and outer feed-forward;
    the last states. With a memory, too.
    """
    subject = model("transformer_xl")
    subject.dropout = Dropout(embedding=0.1, hidden=0.1, attention=0.2, output=0.1)
    whole, inner = (2, 7, 16), (2, 7, 24)
    for memory, state in ((0, None), (7, subject(tokens(), "none", cache=subject.init_cache(2, "memory"))[1])):
        with monkeypatch.context() as patch:
            spy = Spy(patch)
            if state is None:
                subject(tokens(), "none")
            else:
                subject(tokens(), "none", cache=state)
        sinusoids = (8 + memory, 16)
        assert spy.shapes == [whole, sinusoids, whole, inner, whole, whole, inner, whole, whole]
        assert spy.attentions == [0.2, 0.2]


def test_srupp_drops_where_its_code_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The narrow vectors of each cluster; embedding; before W^o; the highway but in the last block; the last states."""
    subject = model("srupp")
    subject.dropout = Dropout(embedding=0.1, narrow=0.1, hidden=0.1, attention=0.2, highway=0.1, output=0.1)
    with monkeypatch.context() as patch:
        spy = Spy(patch)
        subject.token_losses(subject(tokens(), "none"), tokens())
    narrow = [(2, 7, 16), (2, 7, 8), (2, 7, 4)]
    counts = torch.bucketize(tokens(), torch.tensor([19, 39])).flatten().bincount(minlength=3)
    read = [(14, 16), *((int(count), width) for count, width in zip(counts[1:], (8, 4), strict=True))]
    blocks = [(2, 7, 8), (2, 16), (2, 7, 8), (2, 16)]
    assert spy.shapes == [*narrow, (2, 7, 16), *blocks, (2, 7, 16), *read]
    assert spy.attentions == [0.2]


def test_bert_drops_nothing_inside_its_feed_forward_block(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = model("bert")
    subject.dropout = Dropout(embedding=0.1, hidden=0.1, inner=0.0, attention=0.1)
    with monkeypatch.context() as patch:
        spy = Spy(patch)
        subject(tokens(), "none")
    assert spy.shapes == [(2, 7, 16)] * 3


def test_the_highway_is_dropped_for_all_of_a_row_and_not_in_the_last_block() -> None:
    description = {
        "d_model": 64,
        "positions": {"kind": "none"},
        "final_norm": False,
        "embedding": {"vocab_size": 60},
        "blocks": [{"kind": "sru", "d_proj": 8}] * 2,
    }
    subject = initialise(LanguageModel(Architecture.parse(description)), "srupp", 0).train()
    subject.dropout = Dropout(highway=0.5)
    passed: list[Tensor] = []
    hooks = [
        block.register_forward_hook(lambda _, args, out: passed.append(args[0] == out)) for block in subject.blocks
    ]
    torch.manual_seed(0)
    subject(tokens(4, 9), "none")
    first, last = passed
    closed = first.all(1)
    assert torch.equal(first.any(1), closed)  # where the input passes unchanged, it does so at every step
    assert 0.4 < closed.float().mean() < 0.6
    assert (closed[0] != closed[1]).any()
    assert not last.any()
    for hook in hooks:
        hook.remove()


def test_the_source_has_the_rates_too() -> None:
    subject, target = translator().train(), tokens(vocab_size=6)
    source = tokens(vocab_size=9)
    subject.dropout = Dropout(inner=0.0)
    expected = subject(target, "none", source=source)
    subject.dropout = Dropout(embedding=0.5)
    assert subject.source is not None
    assert subject.source.dropout == subject.dropout
    assert not torch.equal(subject(target, "none", source=source), expected)
    subject.dropout = Dropout(output=0.5)  # the states that a decoder reads are not what an output layer reads
    assert torch.equal(subject.source(source, "none"), subject.source.eval()(source, "none"))
