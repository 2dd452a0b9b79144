"""The same weights give the same logits as Hugging Face transformers' GPT-2 and OPT, in torch and in ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from foreign_models import Model, backward_differences, difference, logit_differences, randomised, transformers
from loaders import from_gpt2, from_opt
from tiny_models import onnx_session, random_tokens, run_onnx

from edgefront.core.errors import InvalidInput
from edgefront.core.graph.build import build
from edgefront.core.graph.options import GraphOptions
from edgefront.core.graph.parameters import parameters
from edgefront.core.spaces.architecture import Architecture

LAYERS, HEADS, WIDTH, VOCABULARY, LENGTH = 3, 4, 48, 211, 40


def _architecture(**changes: Any) -> Architecture:
    inner = changes.pop("d_inner", 4 * WIDTH)
    layer = [{"kind": "attention", "n_head": HEADS}, {"kind": "feed_forward", "d_inner": inner}]
    description = {
        "d_model": WIDTH,
        "positions": {"kind": "learned", "length": LENGTH},
        "embedding": {"vocab_size": VOCABULARY},
        "blocks": layer * LAYERS,
    }
    return Architecture.parse({**description, **changes})


def gpt2(tied: bool = True) -> Model:
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
        bos_token_id=0, eos_token_id=0, tie_word_embeddings=tied,
    )  # fmt: skip
    return transformers.GPT2LMHeadModel(config), _architecture(output={"kind": "tokens", "tied": tied}), from_gpt2


def opt(word_embed_proj_dim: int = WIDTH, norm: str = "pre") -> Model:
    config = transformers.OPTConfig(
        vocab_size=VOCABULARY, max_position_embeddings=LENGTH, hidden_size=WIDTH, num_hidden_layers=LAYERS,
        num_attention_heads=HEADS, ffn_dim=100, word_embed_proj_dim=word_embed_proj_dim,
        do_layer_norm_before=norm == "pre",
    )  # fmt: skip
    ours = _architecture(
        activation="relu",
        positions={"kind": "learned", "length": LENGTH, "offset": 2},
        norm=norm,
        embedding={"vocab_size": VOCABULARY, "d_embed": word_embed_proj_dim},
        d_inner=100,
    )
    return transformers.OPTForCausalLM(config), ours, from_opt


MODELS = {
    "gpt2": gpt2,
    "gpt2 untied": lambda: gpt2(tied=False),
    "opt": opt,
    "opt with projections": lambda: opt(20),
    "opt post-norm with projections": lambda: opt(20, "post"),  # as the 350M model has it
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("dtype", "within"), [("float64", 1e-9), ("float32", 1e-5)])
def test_logits_are_theirs(name: str, dtype: str, within: float) -> None:
    assert max(logit_differences(MODELS[name](), dtype, LENGTH)) < within


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_theirs(name: str) -> None:
    assert max(backward_differences(MODELS[name]()).values()) < 1e-9


@pytest.mark.parametrize("name", MODELS)
def test_counts_are_theirs(name: str) -> None:
    theirs, ours, _ = MODELS[name]()
    assert sum(spec.size for spec in parameters(ours)) == theirs.num_parameters()


def test_a_missing_entry_is_named() -> None:
    theirs, ours, rename = gpt2()
    state = dict(theirs.state_dict())
    del state["transformer.h.1.attn.c_proj.weight"]
    with pytest.raises(InvalidInput, match=r"no h\.1\.attn\.c_proj\.weight"):
        rename(state, ours)


def test_layers_of_another_order_are_refused() -> None:
    theirs, ours, rename = gpt2()
    shuffled = ours.model_copy(update={"blocks": (*ours.blocks[2:], ours.blocks[0])})
    with pytest.raises(InvalidInput, match="an attention block and a feed-forward block each"):
        rename(theirs.state_dict(), shuffled)


def test_the_gpt2_family_has_its_published_size() -> None:
    sizes = {}
    for name, layers, width in (("small", 12, 768), ("medium", 24, 1024), ("large", 36, 1280), ("xl", 48, 1600)):
        blocks = [{"kind": "attention", "n_head": width // 64}, {"kind": "feed_forward", "d_inner": 4 * width}] * layers
        model = Architecture.parse({"d_model": width, "embedding": {"vocab_size": 50257}, "blocks": blocks})
        sizes[name] = sum(spec.size for spec in parameters(model))
    assert sizes == {"small": 124_439_808, "medium": 354_823_168, "large": 774_030_080, "xl": 1_557_611_200}


def test_a_deeper_model_is_refused() -> None:
    theirs, ours, rename = opt()
    shallower = ours.model_copy(update={"blocks": ours.blocks[:-2]})
    with pytest.raises(InvalidInput, match=r"layers\.2\.\S+ has no place in this architecture"):
        rename(theirs.state_dict(), shallower)


def test_an_untied_head_is_not_taken_for_a_tied_one() -> None:
    theirs, _, rename = gpt2(tied=False)
    with pytest.raises(InvalidInput, match=r"lm_head\.weight differs from wte\.weight"):
        rename(theirs.state_dict(), _architecture())


def test_a_head_of_another_kind_is_refused() -> None:
    theirs, _, rename = gpt2()
    with pytest.raises(InvalidInput, match="GPT-2 has no output of kind spans") as raised:
        rename(theirs.state_dict(), _architecture(output={"kind": "spans"}))
    assert raised.value.field == "output.kind"


def test_float32_is_not_float64_in_disguise() -> None:
    # Guards the test above: at 1e-9 a graph that computed anything in float32 would fail.
    theirs, ours, rename = gpt2()
    weights = {key: value.numpy() for key, value in rename(randomised(theirs).state_dict(), ours).items()}
    tokens = random_tokens(ours, 1, LENGTH)
    single = run_onnx(onnx_session(build(ours, weights=weights)), tokens)
    double = run_onnx(onnx_session(build(ours, GraphOptions(dtype="float64"), weights=weights)), tokens)
    assert 1e-9 < difference(single.astype(np.float64), double) < 1e-5
