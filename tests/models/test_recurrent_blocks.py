"""SRU and SRU++ models in both builders, held to the papers' equations one token at a time (`naive_models`)."""

from __future__ import annotations

from typing import Any

import naive_models as naive
import numpy as np
import onnx
import pytest
import torch
from numpy.typing import NDArray
from tiny_models import as_tensors, lively_weights, onnx_session

from edgefront.core.errors import InvalidInput
from edgefront.core.graph.build import build
from edgefront.core.graph.options import GraphOptions
from edgefront.core.nn.context import Context
from edgefront.core.nn.load import load
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.state import State
from edgefront.core.spaces.architecture import Architecture

Array = NDArray[Any]
# ONNX keeps a layer norm's epsilon as float32, also in graphs of float64.
IN_TORCH, IN_ONNX, IN_FLOAT32 = 1e-12, 1e-9, 2e-5
SRUPP = {"kind": "srupp", "d_attn": 6}


def description(blocks: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    """Hidden states straight from the embedding, through the blocks, to tied logits."""
    ends = {"positions": {"kind": "none"}, "norm": "post", "embedding": {"vocab_size": 19}}
    return {"d_model": 8, **ends, "blocks": blocks, **changes}


def translation(layers: int, **changes: Any) -> dict[str, Any]:
    """The IWSLT'14 setting: an SRU++ encoder that sees both ways, and a decoder that attends to its states too."""
    source = description([SRUPP] * layers, causal=False, embedding={"vocab_size": 23}, output={"kind": "none"})
    return description([{**SRUPP, "attends": "both"}] * layers, source=source) | changes


MODELS = {
    "sru": description([{"kind": "sru"}, {"kind": "sru", "d_proj": 3}]),
    "srupp": description([SRUPP, SRUPP]),
    "heads": description([{**SRUPP, "n_head": 3}, {**SRUPP, "n_head": 2}]),
    "some attention": description([{**SRUPP, "attends": "none"}, SRUPP, {**SRUPP, "attends": "none"}]),
    "both ways": description([SRUPP, {"kind": "sru"}, {**SRUPP, "n_head": 2}], causal=False),
    "other epsilon": description([SRUPP], norm_eps="1e-3"),
    "source": translation(1, blocks=[{**SRUPP, "attends": "source", "n_head": 2}, {"kind": "sru"}, SRUPP]),
    "source and self": translation(2),
}
BLOCKS_WITHOUT_SOURCE = [name for name in MODELS if "source" not in MODELS[name]]


def feeds(model: dict[str, Any], batch: int, sequence: int, source: int = 0, seed: int = 0) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    tokens = {"tokens": rng.integers(0, 19, (batch, sequence))}
    return tokens | ({"source_tokens": rng.integers(0, 23, (batch, source))} if "source" in model else {})


def expected(model: dict[str, Any], weights: dict[str, Array], given: dict[str, Array], **options: Any) -> Array:
    sources = given.get("source_tokens", [None] * len(given["tokens"]))
    rows = zip(given["tokens"], sources, strict=True)
    return np.stack([naive.language_model(tokens, weights, model, source, **options) for tokens, source in rows])


def by_torch(model: LanguageModel, given: dict[str, Array], **options: Any) -> Array:
    tensors = {name.removesuffix("_tokens"): torch.from_numpy(value) for name, value in given.items()}
    with torch.inference_mode():
        return np.asarray(model(**tensors, **options).numpy())


@pytest.mark.parametrize("name", MODELS)
def test_both_builders_follow_the_equations_at_several_shapes(name: str) -> None:
    description = MODELS[name]
    architecture = Architecture.parse(description)
    weights = lively_weights(architecture, 1, "float64")
    model = load(LanguageModel(architecture), as_tensors(weights))
    single = {key: value.astype(np.float32) for key, value in weights.items()}
    sessions = [
        (IN_ONNX, onnx_session(build(architecture, GraphOptions(dtype="float64"), weights=weights))),
        (IN_FLOAT32, onnx_session(build(architecture, weights=single))),
    ]
    for batch, sequence, source in [(1, 1, 1), (3, 5, 7), (2, 9, 4)]:
        given = feeds(description, batch, sequence, source)
        reference = expected(description, weights, given)
        np.testing.assert_allclose(by_torch(model, given), reference, rtol=0, atol=IN_TORCH)
        for close, session in sessions:
            (outputs,) = session.run(None, given)
            np.testing.assert_allclose(outputs, reference, rtol=0, atol=close)


@pytest.mark.parametrize("window", [1, 3, 20])
def test_a_window_bounds_what_attention_sees_but_not_the_recurrence(window: int) -> None:
    description = MODELS["heads"]
    architecture = Architecture.parse(description)
    weights = lively_weights(architecture, 2, "float64")
    given = feeds(description, 2, 8)
    reference = expected(description, weights, given, window=window)
    model = load(LanguageModel(architecture), as_tensors(weights))
    np.testing.assert_allclose(by_torch(model, given, window=window), reference, rtol=0, atol=IN_TORCH)
    session = onnx_session(build(architecture, GraphOptions(dtype="float64", window=window), weights=weights))
    np.testing.assert_allclose(session.run(None, given)[0], reference, rtol=0, atol=IN_ONNX)


@pytest.mark.parametrize("name", BLOCKS_WITHOUT_SOURCE)
def test_padding_anywhere_is_as_if_it_were_not_there(name: str) -> None:
    description = MODELS[name]
    architecture = Architecture.parse(description)
    weights = lively_weights(architecture, 3, "float64")
    given = feeds(description, 4, 6)
    mask = np.array([[1, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0], [1, 0, 1, 1, 0, 1]], bool)
    model = load(LanguageModel(architecture), as_tensors(weights))
    from_torch = by_torch(model, given, mask=torch.from_numpy(mask))
    for row, real in enumerate(mask):
        reference = naive.language_model(given["tokens"][row][real], weights, description)
        np.testing.assert_allclose(from_torch[row][real], reference, rtol=0, atol=IN_TORCH)


def test_padding_lets_no_gradient_through() -> None:
    architecture = Architecture.parse(MODELS["heads"])
    model = load(LanguageModel(architecture), as_tensors(lively_weights(architecture, 3, "float64")))
    tokens, mask = torch.tensor([[5, 5, 1, 2], [1, 2, 3, 4]]), torch.tensor([[False, False, True, True], [True] * 4])
    logits = model(tokens, mask=mask)
    logits[mask].square().sum().backward()
    assert all(value.grad.isfinite().all() for value in model.parameters())
    embedding = dict(model.named_parameters())["embedding.tables.0"]
    hidden = model(tokens, "none", mask=mask)
    (tied,) = torch.autograd.grad(hidden[mask].square().sum(), embedding)
    assert tied[5].abs().max() == 0
    assert tied[1].abs().max() > 0


def test_translation_with_padded_sources_follows_the_equations() -> None:
    description = translation(6)
    architecture = Architecture.parse(description)
    weights = lively_weights(architecture, 4, "float64")
    given = feeds(description, 3, 5, 7)
    real = np.array([[1] * 7, [1, 1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 1, 1]], bool)
    reference = np.stack(
        [
            naive.language_model(tokens, weights, description, source[kept])
            for tokens, source, kept in zip(given["tokens"], given["source_tokens"], real, strict=True)
        ]
    )
    model = load(LanguageModel(architecture), as_tensors(weights))
    outputs = by_torch(model, given, source_mask=torch.from_numpy(real))
    np.testing.assert_allclose(outputs, reference, rtol=0, atol=IN_TORCH)
    source, mask = torch.from_numpy(given["source_tokens"]), torch.from_numpy(real)
    steps, state = [], model.start(3)
    with torch.inference_mode():
        for token in torch.from_numpy(given["tokens"]).split(1, 1):
            logits, state = model.step(token, state, source=source, source_mask=mask)
            steps.append(logits.numpy())
            source = None
    np.testing.assert_allclose(np.concatenate(steps, 1), reference, rtol=0, atol=IN_TORCH)


@pytest.mark.parametrize("name", [name for name in MODELS if MODELS[name].get("causal", True)])
def test_one_token_at_a_time_gives_the_same_scores(name: str) -> None:
    description = MODELS[name]
    architecture = Architecture.parse(description)
    weights = lively_weights(architecture, 5, "float64")
    given = feeds(description, 2, 6, 4)
    reference = expected(description, weights, given)
    first = {**given, "tokens": given["tokens"][:, :2]}

    model = load(LanguageModel(architecture), as_tensors(weights))
    with torch.inference_mode():
        for form in ("cache", "memory"):
            source = torch.from_numpy(given["source_tokens"]) if "source_tokens" in given else None
            logits, state = model.step(torch.from_numpy(first["tokens"]), model.start(2, form), source=source)
            steps = [logits.numpy()]
            for place in range(2, 6):
                logits, state = model.step(torch.from_numpy(given["tokens"][:, place : place + 1]), state)
                steps.append(logits.numpy())
            np.testing.assert_allclose(np.concatenate(steps, 1), reference, rtol=0, atol=IN_TORCH)

    prefill = onnx_session(build(architecture, GraphOptions(mode="prefill", dtype="float64"), weights=weights))
    decode = onnx_session(build(architecture, GraphOptions(mode="decode", dtype="float64"), weights=weights))
    logits, *carried = prefill.run(None, first)
    steps = [logits]
    names = [output.name.removeprefix("next.") for output in decode.get_outputs()[1:]]
    for place in range(2, 6):
        logits, *carried = decode.run(
            None, {"tokens": given["tokens"][:, place : place + 1], **dict(zip(names, carried, strict=True))}
        )
        steps.append(logits)
    np.testing.assert_allclose(np.concatenate(steps, 1), reference, rtol=0, atol=IN_ONNX)


def test_gradients_of_a_whole_block_with_memory_and_state() -> None:
    architecture = Architecture.parse(description([{"kind": "srupp", "d_attn": 4, "n_head": 2}], d_model=4))
    model = load(LanguageModel(architecture), as_tensors(lively_weights(architecture, 6, "float64")))
    block = model.blocks[0]
    names, values = zip(*block.named_parameters(), strict=True)

    def run(x: torch.Tensor, memory: torch.Tensor, cell: torch.Tensor, *weights: torch.Tensor) -> Any:
        state = State(architecture, "memory")
        state |= {"blocks.0.memory": memory, "blocks.0.cell": cell}
        context = Context(architecture, x.shape[1], state=state)
        h = torch.func.functional_call(block, dict(zip(names, weights, strict=True)), (x, "blocks.0", context))
        assert context.next_state is not None
        return h, context.next_state["blocks.0.cell"]

    rng = torch.Generator().manual_seed(0)
    shapes = [(2, 3, 4), (2, 2, 4), (2, 4)]
    inputs = [torch.randn(shape, generator=rng, dtype=torch.float64, requires_grad=True) for shape in shapes]
    assert torch.autograd.gradcheck(run, (*inputs, *values))


@pytest.mark.parametrize("name", MODELS)
def test_the_graphs_are_valid_standard_onnx(name: str) -> None:
    architecture = Architecture.parse(MODELS[name])
    for mode in ("forward", "prefill", "decode") if architecture.causal else ("forward",):
        built = build(architecture, GraphOptions(mode=mode))
        onnx.checker.check_model(built, full_check=True)
        assert not [node.domain for node in built.graph.node if node.domain]


def test_no_tokens_at_all_is_an_error() -> None:
    architecture = Architecture.parse(MODELS["srupp"])
    model = load(LanguageModel(architecture), as_tensors(lively_weights(architecture, 0)))
    with pytest.raises(InvalidInput):
        model(torch.zeros(2, 0, dtype=torch.int64))
