"""Perplexity against a transcription that reads one token at a time, and against models whose perplexity is known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import packages
import pytest
import torch
from numpy.typing import NDArray
from packages import F, S

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import Diverged, InvalidInput
from edgefront.core.nn.model import LanguageModel
from edgefront.core.nn.weights import load
from edgefront.core.training.evaluation.perplexity import Perplexity, documents, perplexity, perplexity_of, streams
from edgefront.core.training.recipes.recipe import EvaluationSettings

VOCABULARY = 23
lively = partial(packages.lively, vocab_size=VOCABULARY)
MODELS: dict[str, dict[str, Any]] = {
    "transformer-xl": {"positions": {"kind": "relative"}, "norm": "post", "blocks": [S, F, S, F]},
    "adaptive": {
        "positions": {"kind": "relative", "shared": False},
        "embedding": {"vocab_size": VOCABULARY, "cutoffs": [7, 15], "div": 2},
        "blocks": [S, F, S],
    },
    "srupp": {
        "positions": {"kind": "none"},
        "blocks": [{"kind": "srupp", "d_attn": 8}, {"kind": "srupp", "d_attn": 8, "attends": "none"}],
    },
    "hybrid": {"positions": {"kind": "none"}, "blocks": [{"kind": "sru"}, S, F]},
    "decoder": {
        "positions": {"kind": "rotary"},
        "norm_kind": "rms",
        "blocks": [
            *({"kind": "short_conv"}, {**F, "gated": True}, {**S, "n_kv_head": 1, "qk_norm": True}, F),
            {**S, "window": 4, "bias": "none"},
        ],
    },
}
GPT2 = {"positions": {"kind": "learned", "length": 24}, "blocks": [S, F, S, F]}


@dataclass(frozen=True)
class Parallel:
    tokens: NDArray[Any]
    starts: NDArray[Any]
    characters: int = 0
    words: int = 0
    source: Parallel | None = None


def text(size: int, seed: int = 0, documents: int = 1, **counts: int) -> Parallel:
    rng = np.random.default_rng(seed)
    inner = np.sort(rng.choice(np.arange(1, size), documents - 1, replace=False))
    starts = np.array([0, *inner, size], np.int64)
    return Parallel(rng.integers(0, VOCABULARY, size).astype(np.uint16), starts, **counts)


def evaluate(model: LanguageModel, split: Parallel, **changes: Any) -> Perplexity:
    arguments = {name: changes.pop(name) for name in ("max_tokens", "sentences", "begin") if name in changes}
    evaluation = EvaluationSettings(**{"rows": 1, **changes})
    return perplexity(model, split, evaluation, device="cpu", **arguments)


@torch.no_grad()
def token_by_token(model: LanguageModel, tokens: NDArray[Any], memory: int, first: int | None = None) -> float:
    """Every token after the last `memory` before it, through the key/value cache: the sum of losses in nats."""
    state, total = model.init_cache(1), 0.0
    inputs = tokens[:-1] if first is None else [first, *tokens[:-1]]
    targets = tokens[1:] if first is None else tokens
    for before, after in zip(inputs, targets, strict=True):
        scores, state = model(torch.tensor([[int(before)]]), cache=state)
        state = state.keep(memory)
        total -= float(torch.log_softmax(scores[0, 0].double(), -1)[int(after)])
    return total


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("segment", [1, 5, 64])
def test_same_length_attention_reads_as_one_token_at_a_time_does(name: str, segment: int) -> None:
    """With a window of memory + 1 keys every token sees the same past, however the text is cut into segments."""
    model, split = lively(MODELS[name]), text(60)
    found = evaluate(model, split, segment=segment, memory=9, same_length=True)
    assert found.tokens == 59
    assert found.loss * 59 == pytest.approx(token_by_token(model, split.tokens, 9), rel=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_the_segment_does_not_matter_to_a_memory_without_end(name: str) -> None:
    model, split = lively(MODELS[name]), text(60)
    losses = [evaluate(model, split, segment=segment, memory=100).loss for segment in (1, 7, 59, 200)]
    exact = token_by_token(model, split.tokens, 100) / 59
    assert losses == pytest.approx([exact] * 4, rel=1e-5)
    # Whoever forgets more is told something else.
    assert evaluate(model, split, segment=7, memory=2).loss != pytest.approx(exact, rel=1e-4)


def test_memory_is_of_the_segment_before_and_gives_later_tokens_more_to_see() -> None:
    """Transformer-XL's own evaluation without same_length: token i of a segment sees memory + i + 1 keys."""
    model, split = lively(MODELS["transformer-xl"]), text(30)
    total, state = 0.0, model.init_cache(1, "memory")
    with torch.no_grad():
        for start in range(0, 29, 8):
            stop = min(start + 8, 29)
            scores, state = model(torch.tensor(split.tokens[None, start:stop].astype(int)), cache=state)
            state = state.keep(4)
            targets = torch.tensor(split.tokens[start + 1 : stop + 1].astype(int))
            total += float(torch.nn.functional.cross_entropy(scores[0].double(), targets, reduction="sum"))
    assert evaluate(model, split, segment=8, memory=4).loss == pytest.approx(total / 29, rel=1e-6)


def test_clamped_distances_are_those_of_an_architecture_that_clamps() -> None:
    split = text(60)
    plain = lively(MODELS["transformer-xl"])
    clamping = lively({**MODELS["transformer-xl"], "positions": {"kind": "relative", "clamp": 3}})
    wanted = evaluate(clamping, split, segment=5, memory=10)
    assert evaluate(plain, split, segment=5, memory=10, clamp=3) == wanted
    assert evaluate(plain, split, segment=5, memory=10).loss != pytest.approx(wanted.loss, rel=1e-4)
    assert plain.positions.max_relative_distance is None
    assert evaluate(clamping, split, segment=5, memory=10, clamp=6) == evaluate(
        plain, split, segment=5, memory=10, clamp=6
    )
    assert clamping.positions.max_relative_distance == 3


@pytest.mark.parametrize("positions", [GPT2["positions"], {"kind": "sinusoidal"}])
def test_a_sliding_window_scores_each_segment_behind_its_context(positions: dict[str, Any]) -> None:
    model, split = lively({**GPT2, "positions": positions}), text(40)
    total = 0.0
    with torch.no_grad():
        for start in range(0, 39, 6):
            low, stop = max(0, start - 10), min(start + 6, 39)
            scores = model(torch.tensor(split.tokens[None, low:stop].astype(int)))[0, start - low :]
            targets = torch.tensor(split.tokens[start + 1 : stop + 1].astype(int))
            total += float(torch.nn.functional.cross_entropy(scores.double(), targets, reduction="sum"))
    for rows in (1, 3, 16):
        found = evaluate(model, split, segment=6, memory=10, rows=rows)
        assert found.tokens == 39
        assert found.loss == pytest.approx(total / 39, rel=1e-6)


def test_windows_longer_than_the_positions_are_refused() -> None:
    with pytest.raises(InvalidInput, match="24 positions") as refused:
        evaluate(lively(GPT2), text(40), segment=16, memory=9)
    assert refused.value.field == "evaluation.segment"
    assert evaluate(lively(GPT2), text(40), segment=16, memory=8).tokens == 39


@pytest.mark.parametrize("rows", [1, 2, 7, 59, 100])
def test_rows_read_every_prediction_once(rows: int) -> None:
    """Each row is a stream of its own, whose first input is the last target of the row before."""
    model, split = lively(MODELS["transformer-xl"]), text(60)
    found = evaluate(model, split, segment=4, memory=100, rows=rows)
    length = -(-59 // min(rows, 59))
    streams = [split.tokens[start : start + length + 1] for start in range(0, 59, length)]
    total = sum(token_by_token(model, stream, 100) for stream in streams)
    assert found.tokens == 59
    assert found.loss == pytest.approx(total / 59, rel=1e-5)


@pytest.mark.parametrize("size", [2, 3, 10, 11])
@pytest.mark.parametrize("rows", [1, 3, 4, 12])
def test_streams_cut_a_text_into_all_of_its_predictions(size: int, rows: int) -> None:
    tokens = np.arange(size)
    passage = streams(tokens, rows)
    inputs, targets = passage.columns(0, passage.length + 2)
    counted = targets >= 0
    assert sorted(targets[counted]) == list(range(1, size))
    assert (inputs[counted] == targets[counted] - 1).all()
    assert passage.count == size - 1
    assert passage.rows <= rows
    some = streams(tokens, rows, max_tokens=2)
    assert sorted(some.columns(0, 2)[1][some.columns(0, 2)[1] >= 0]) == list(range(1, min(size, 3)))


@pytest.mark.parametrize("begin", [None, 5])
@pytest.mark.parametrize("name", ["transformer-xl", "srupp", "gpt2"])
def test_sentences_start_without_memory(name: str, begin: int | None) -> None:
    model, split = lively({**MODELS, "gpt2": GPT2}[name]), text(50, documents=9)
    split.starts[3] = split.starts[2]  # an empty one among them
    total, count = 0.0, 0
    for low, high in zip(split.starts, split.starts[1:], strict=False):
        total += token_by_token(model, split.tokens[low:high], 100, begin) if high > low else 0.0
        count += max(0, high - low - (begin is None))
    for rows in (1, 4):
        found = evaluate(model, split, segment=7, memory=16, rows=rows, sentences=True, begin=begin)
        assert found.tokens == count
        assert found.loss == pytest.approx(total / count, rel=1e-5)


def test_so_many_tokens_of_sentences_are_whole_ones() -> None:
    starts = np.array([0, 3, 3, 7, 9])
    assert documents(np.arange(9), starts, begin=0, max_tokens=7).sizes.tolist() == [3, 4]
    assert documents(np.arange(9), starts, begin=0, max_tokens=8).sizes.tolist() == [3, 4]
    assert documents(np.arange(9), starts, begin=0, max_tokens=1).sizes.tolist() == [3]
    assert documents(np.arange(9), starts, max_tokens=5).sizes.tolist() == [2, 3]


def test_translations_are_read_after_their_source() -> None:
    attends = {"kind": "attention", "n_head": 2, "attends": "source"}
    encoder = {"d_model": 16, "causal": False, "positions": {"kind": "sinusoidal"}, "blocks": [S, F]}
    encoder |= {"embedding": {"vocab_size": VOCABULARY}, "output": {"kind": "none"}}
    model = lively({"positions": {"kind": "sinusoidal"}, "blocks": [S, attends, F], "source": encoder})
    source = text(40, seed=3, documents=6)
    split = Parallel(text(30, documents=6).tokens, text(30, documents=6).starts, source=source)
    total = 0.0
    with torch.no_grad():
        for index in range(6):
            ours = [int(token) for token in split.tokens[split.starts[index] : split.starts[index + 1]]]
            theirs = source.tokens[source.starts[index] : source.starts[index + 1]].astype(int)
            scores = model(torch.tensor([[2, *ours[:-1]]]), source=torch.tensor(theirs)[None])[0].double()
            total += float(torch.nn.functional.cross_entropy(scores, torch.tensor(ours), reduction="sum"))
    for rows in (1, 4):
        found = evaluate(model, split, rows=rows, begin=2)
        assert found.tokens == 30
        assert found.loss == pytest.approx(total / 30, rel=1e-5)
    with pytest.raises(InvalidInput, match="no source"):
        evaluate(model, source)
    with pytest.raises(InvalidInput, match="parallel text"):
        evaluate(lively(GPT2), split, segment=8)


def bigrams() -> tuple[LanguageModel, NDArray[np.float64]]:
    """A model without any computation: row v of the output table is log p(v | the token before)."""
    rng = np.random.default_rng(5)
    chances = rng.dirichlet(np.ones(VOCABULARY), VOCABULARY)
    architecture = Architecture.parse(
        {
            "d_model": VOCABULARY,
            "positions": {"kind": "none"},
            "norm": "post",
            "embedding": {"vocab_size": VOCABULARY},
            "blocks": [{"kind": "identity"}],
            "output": {"tied": False},
        }
    )
    weights = {"embedding.tables.0": torch.eye(VOCABULARY), "output.tables.0": torch.tensor(np.log(chances).T).float()}
    return load(LanguageModel(architecture), weights), chances


def test_the_perplexity_of_known_chances() -> None:
    model, chances = bigrams()
    split = text(80, characters=300, words=20)
    nats = -np.log(chances[split.tokens[:-1], split.tokens[1:]]).mean()
    for rows in (1, 4):
        found = evaluate(model, split, segment=16, rows=rows)
        assert found.loss == pytest.approx(nats, rel=1e-6)
        assert found.perplexity == pytest.approx(math.exp(nats), rel=1e-6)
        assert found.bpc == pytest.approx(nats * 80 / 300 / math.log(2), rel=1e-6)
        assert found.word_perplexity == pytest.approx(math.exp(nats * 80 / 20), rel=1e-6)
    some = evaluate(model, split, segment=16, max_tokens=33)
    first = -np.log(chances[split.tokens[:33], split.tokens[1:34]]).mean()
    assert (some.tokens, some.loss) == (33, pytest.approx(first, rel=1e-6))
    assert evaluate(model, text(80)).bpc is None
    assert evaluate(model, text(80)).word_perplexity is None
    # A text of characters: its bits a character are its loss in bits.
    letters = evaluate(model, text(80, characters=80))
    assert letters.bpc == pytest.approx(letters.loss / math.log(2), rel=1e-12)


def test_a_loss_that_is_no_number_is_reported() -> None:
    model = lively(GPT2)
    with torch.no_grad():
        model.embedding.tables[0][3] = math.nan
    with pytest.raises(Diverged, match="is nan: the model's weights are not finite"):
        evaluate(model, text(60), segment=16)
    overflowing, _ = bigrams()
    with torch.no_grad():
        overflowing.output.tables[0].fill_(-1e6)
        overflowing.output.tables[0][0] = 1e6
    found = evaluate(overflowing, text(60))
    assert (found.perplexity, found.loss > 1e5) == (None, True)


@pytest.mark.parametrize("training", [True, False])
def test_the_model_is_left_as_it_was(training: bool) -> None:
    model = lively(MODELS["hybrid"]).train(training)
    before = {name: tensor.clone() for name, tensor in model.named_parameters()}
    evaluate(model, text(60))
    assert model.training is training
    assert all(torch.equal(tensor, before[name]) and tensor.grad is None for name, tensor in model.named_parameters())


@pytest.mark.parametrize("name", ["transformer-xl", "srupp", "adaptive"])
def test_half_precision_is_near(name: str) -> None:
    model, split = lively(MODELS[name]), text(60)
    wanted = evaluate(model, split, memory=20, segment=16).loss
    evaluation = EvaluationSettings(segment=16, memory=20, rows=1)
    found = perplexity(model, split, evaluation, device="cpu", precision="bfloat16").loss
    assert found == pytest.approx(wanted, rel=0.03)
    assert found != wanted


def test_progress_counts_what_was_read_and_may_end_it() -> None:
    model, seen = lively(MODELS["transformer-xl"]), []
    evaluation = EvaluationSettings(segment=16, rows=2)
    perplexity(model, text(60), evaluation, device="cpu", progress=lambda done, total: seen.append((done, total)))
    assert seen == [(32, 59), (59, 59)]

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        perplexity(model.train(), text(60), evaluation, device="cpu", progress=stop)
    assert model.training


def test_models_without_a_perplexity_are_refused() -> None:
    encoder = {"positions": {"kind": "learned"}, "causal": False, "blocks": [S], "output": {"kind": "masked_tokens"}}
    with pytest.raises(InvalidInput, match="sees the tokens that follow"):
        evaluate(lively(encoder), text(60))
    with pytest.raises(InvalidInput, match="a text of 1 tokens has no token to predict"):
        evaluate(lively(MODELS["srupp"]), text(1))
    with pytest.raises(InvalidInput, match="no token to predict"):
        evaluate(lively(MODELS["srupp"]), Parallel(np.array([1, 2]), np.array([0, 1, 2])), sentences=True)


def test_a_perplexity_that_no_float_holds_is_none() -> None:
    found = perplexity_of(5.3 * 400, 400, text(400, characters=400, words=1))
    assert found.word_perplexity is None
    assert found.perplexity == pytest.approx(math.exp(5.3))
    assert perplexity_of(1e4, 1, None).perplexity is None
