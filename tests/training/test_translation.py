"""Beam search against every translation there is and a search by lists; BLEU by its definition."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from translators import BEGIN, END, translator

from edgefront.core.common.errors import Diverged
from edgefront.core.nn.model import LanguageModel
from edgefront.core.training.evaluation.translation import Hypothesis, beam_search, bleu, translate

SOURCES = [[3, 1, 4, 1, 5], [8, 2], [7, 7, 6]]


def sources() -> tuple[torch.Tensor, torch.Tensor]:
    """Padded, with numbers in the padding that would tell."""
    tokens, mask = torch.full((3, 5), 8), torch.zeros(3, 5, dtype=torch.bool)
    for index, row in enumerate(SOURCES):
        tokens[index, : len(row)], mask[index, : len(row)] = torch.tensor(row), True
    return tokens, mask


@torch.no_grad()
def chances(model: LanguageModel, source: list[int], prefix: tuple[int, ...]) -> list[float]:
    """Log-probabilities of what follows the prefix, by a pass over all of it."""
    scores = model(torch.tensor([[BEGIN, *prefix]]), "last", source=torch.tensor([source]))[0]
    return [float(chance) for chance in torch.log_softmax(scores.double(), -1)]


def by_lists(model: LanguageModel, source: list[int], beam: int, penalty: float, longest: int) -> list[Hypothesis]:
    live: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[Hypothesis] = []
    for length in range(longest + 1):
        reached = []
        for total, prefix in live:
            for token, chance in enumerate(chances(model, source, prefix)):
                if token == END or length < longest:
                    reached.append((total + chance, prefix, token))
        reached.sort(key=lambda item: -item[0])
        for total, prefix, token in reached[:beam]:
            if token == END and len(finished) < beam:
                finished.append(Hypothesis(prefix, total / (length + 1) ** penalty))
        live = [(total, (*prefix, token)) for total, prefix, token in reached[: 2 * beam] if token != END][:beam]
        if len(finished) >= beam or not live:
            break
    return sorted(finished, key=lambda hypothesis: -hypothesis.score)


def assert_same(found: list[Hypothesis], wanted: list[Hypothesis]) -> None:
    assert [hypothesis.tokens for hypothesis in found] == [hypothesis.tokens for hypothesis in wanted]
    assert [item.score for item in found] == pytest.approx([item.score for item in wanted], rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("kind", ["attention", "srupp"])
@pytest.mark.parametrize("penalty", [0.0, 1.0])
def test_a_beam_as_wide_as_all_translations_finds_the_best_of_them(kind: str, penalty: float) -> None:
    model, longest = translator(kind, vocabulary=4), 3
    found = beam_search(model, *sources(), begin=BEGIN, end=END, beam=50, length_penalty=penalty, max_length=longest)
    for source, hypotheses in zip(SOURCES, found, strict=True):
        known = {
            prefix: chances(model, source, prefix)
            for n in range(4)
            for prefix in itertools.product((1, 2, 3), repeat=n)
        }
        every = []
        for prefix, after in known.items():
            total = sum(known[prefix[:i]][prefix[i]] for i in range(len(prefix)))
            # At the greatest length only the end may follow; its own log-probability counts.
            every.append(Hypothesis(prefix, (total + after[END]) / (len(prefix) + 1) ** penalty))
        every.sort(key=lambda hypothesis: -hypothesis.score)
        assert len(hypotheses) == len(every) == 1 + 3 + 9 + 27
        assert_same(hypotheses[:10], every[:10])
        assert sorted(item.tokens for item in hypotheses) == sorted(item.tokens for item in every)


@pytest.mark.parametrize("kind", ["attention", "srupp"])
@pytest.mark.parametrize(("beam", "penalty", "longest"), [(1, 1.0, 9), (2, 1.0, 9), (3, 0.5, 7), (5, 2.0, 6)])
def test_the_batch_is_searched_as_each_sentence_by_lists(kind: str, beam: int, penalty: float, longest: int) -> None:
    model = translator(kind)
    found = beam_search(
        model,
        *sources(),
        begin=BEGIN,
        end=END,
        beam=beam,
        length_penalty=penalty,
        max_length=longest,
    )
    for source, hypotheses in zip(SOURCES, found, strict=True):
        assert_same(hypotheses, by_lists(model, source, beam, penalty, longest))
        assert all(len(item.tokens) <= longest for item in hypotheses)


def test_the_models_positions_are_kept_to() -> None:
    short = translator(positions={"kind": "learned", "length": 4})
    found = beam_search(short, *sources(), begin=BEGIN, end=END, beam=12)
    assert max(len(item.tokens) for hypotheses in found for item in hypotheses) == 3


def test_the_mask_of_the_source_is_heeded() -> None:
    tokens, mask = sources()
    model = translator()
    before = beam_search(model, tokens, mask, begin=BEGIN, end=END)
    assert beam_search(model, torch.where(mask, tokens, 0), mask, begin=BEGIN, end=END) == before
    alone = [beam_search(model, torch.tensor([row]), begin=BEGIN, end=END)[0] for row in SOURCES]
    for answer, other in zip(alone, before, strict=True):
        assert_same(answer, other)


def test_scores_that_are_no_numbers_are_reported() -> None:
    model, (tokens, mask) = translator(), sources()
    with torch.no_grad():
        model.embedding.tables[0][1] = math.nan
    with pytest.raises(Diverged):
        beam_search(model, tokens, mask, begin=BEGIN, end=END)


def test_perfect_translations_have_all_of_it_and_others_by_the_definition() -> None:
    reference = ["the cat sat on the mat today ."]
    assert bleu(reference, reference).score == pytest.approx(100)
    # 7 of 8 words, 5 of 7 pairs, 3 of 6 triples, 1 of 5 quadruples, and no penalty for brevity.
    found = bleu(["the cat sat on a mat today ."], reference)
    assert found.score == pytest.approx(100 * (7 / 8 * 5 / 7 * 3 / 6 * 1 / 5) ** 0.25)
    # All n-grams right, but 6 words for 8.
    short = bleu(["the cat sat on the mat"], reference)
    assert short.score == pytest.approx(100 * math.exp(1 - 8 / 6))


def test_the_tokenisation_is_in_the_signature() -> None:
    with_points = bleu(["Die Katze."] * 2, ["Die Katze ."] * 2)
    assert with_points.score == pytest.approx(bleu(["a b c"], ["a b c"]).score)
    assert "tok:13a" in with_points.signature
    assert "tok:none" in bleu(["Die Katze ."], ["die katze ."], tokenize="none").signature


@dataclass(frozen=True)
class Side:
    tokens: NDArray[Any]
    starts: NDArray[Any]


def side(sentences: list[list[int]]) -> Side:
    edges = np.cumsum([0, *map(len, sentences)])
    return Side(np.concatenate([np.array(row, np.uint16) for row in sentences]), edges)


class Words:
    def decode(self, ids: list[int]) -> str:
        return " ".join(f"w{token}" for token in ids)


def test_a_model_is_scored_by_the_best_of_each_beam() -> None:
    model = translator().train()
    rng = np.random.default_rng(0)
    texts = [list(rng.integers(1, 9, n)) for n in (4, 2, 7, 5, 3)]
    model.eval()
    right = [
        beam_search(model, torch.tensor([row]), begin=BEGIN, end=END, beam=5, length_penalty=4.0, max_length=12)[0][
            0
        ].tokens
        for row in texts
    ]
    model.train()
    source, target = side(texts), side([[*map(int, row), END] for row in right])
    seen: list[tuple[int, int]] = []
    found = translate(
        model,
        source,
        target,
        Words(),
        device="cpu",
        end=END,
        begin=BEGIN,
        length_penalty=4.0,
        max_length=12,
        rows=2,
        tokenize="none",
        progress=lambda done, total: seen.append((done, total)),
    )
    assert found.references == [Words().decode(list(row)) for row in right]
    assert found.hypotheses == found.references
    assert found.bleu.score == pytest.approx(100)
    assert seen == [(2, 5), (4, 5), (5, 5)]
    assert model.training
    wrong = translate(
        model,
        source,
        side([[2, 2, 2, 2, END]] * 5),
        Words(),
        device="cpu",
        end=END,
        begin=BEGIN,
        sentences=2,
    )
    assert len(wrong.hypotheses) == 2
    assert wrong.bleu.score < found.bleu.score
