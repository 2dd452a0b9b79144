"""BLEU: by its definition on sentences that can be counted by hand, and of a model that translates."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from translators import BEGIN, END, translator

from edgefront.core.errors import InvalidInput
from edgefront.core.evaluation.translation import TranslationOptions, beam_search, bleu, translate


def test_perfect_translations_have_all_of_it_and_others_by_the_definition() -> None:
    reference = ["the cat sat on the mat today ."]
    assert bleu(reference, reference).score == pytest.approx(100)
    # 7 of 8 words, 5 of 7 pairs, 3 of 6 triples, 1 of 5 quadruples, and no penalty for brevity.
    found = bleu(["the cat sat on a mat today ."], reference)
    assert found.precisions == pytest.approx([700 / 8, 500 / 7, 300 / 6, 100 / 5])
    assert found.score == pytest.approx(100 * (7 / 8 * 5 / 7 * 3 / 6 * 1 / 5) ** 0.25)
    # All n-grams right, but 6 words for 8.
    short = bleu(["the cat sat on the mat"], reference)
    assert short.brevity_penalty == pytest.approx(math.exp(1 - 8 / 6))
    assert short.score == pytest.approx(100 * math.exp(1 - 8 / 6))


def test_the_tokenisation_is_in_the_signature() -> None:
    with_points = bleu(["Die Katze."] * 2, ["Die Katze ."] * 2)
    assert with_points.score == pytest.approx(bleu(["a b c"], ["a b c"]).score)
    assert "tok:13a" in with_points.signature
    assert bleu(["Die Katze ."], ["die katze ."], tokenize="none", lowercase=True).precisions[0] == 100
    assert bleu(["Die Katze ."], ["die katze ."], tokenize="none").precisions[0] == pytest.approx(100 / 3)


def test_incomparable_points_are_refused() -> None:
    with pytest.raises(InvalidInput, match="2 translations for 1 references"):
        bleu(["a", "b"], ["a"])
    with pytest.raises(InvalidInput, match="0 translations"):
        bleu([], [])
    with pytest.raises(InvalidInput, match="tokenize"):
        bleu(["a"], ["a"], tokenize="words")  # type: ignore[arg-type]


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
        options=TranslationOptions(begin=BEGIN, length_penalty=4.0, max_length=12, rows=2, tokenize="none"),
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
        options=TranslationOptions(begin=BEGIN, sentences=2),
    )
    assert len(wrong.hypotheses) == 2
    assert wrong.bleu.score < found.bleu.score
