"""Which genes decide, on objectives of which it is known."""

from __future__ import annotations

import numpy as np
import pytest

from edgefront.core.prediction.importance import MIN_CANDIDATES, importance

GENES = np.random.default_rng(1).uniform(1.0, 4.0, (200, 4))


def test_the_gene_that_decides_has_the_largest_share_and_its_direction() -> None:
    noise = np.random.default_rng(2).normal(1.0, 0.01, 200)
    rising, falling = GENES[:, 1] ** 2 * noise, (GENES[:, 2] * 3 + GENES[:, 3]) ** -1.0
    answer = importance(GENES, np.stack([rising, falling], axis=1))
    assert answer is not None
    assert answer.shares.sum(axis=0) == pytest.approx([1.0, 1.0])
    assert answer.shares[:, 0].argmax() == 1
    assert answer.shares[1, 0] > 0.95
    assert answer.correlations[1, 0] > 0.95
    assert answer.shares[2, 1] > answer.shares[3, 1] > answer.shares[0, 1]
    assert answer.correlations[2, 1] < -0.8
    assert (answer.explained > 0.85).all()


def test_what_no_gene_decides_is_said_to_be_unexplained() -> None:
    answer = importance(GENES, np.random.default_rng(3).normal(size=(200, 1)))
    assert answer is not None
    assert answer.explained[0] < 0.1
    assert np.abs(answer.correlations).max() < 0.3


def test_the_same_candidates_give_the_same_answer_and_few_give_none() -> None:
    targets = GENES[:, :1] * 2
    first, again = importance(GENES, targets), importance(GENES, targets)
    assert first is not None
    assert again is not None
    assert (first.shares == again.shares).all()
    assert importance(GENES[: MIN_CANDIDATES - 1], targets[: MIN_CANDIDATES - 1]) is None
    assert importance(GENES[:MIN_CANDIDATES], targets[:MIN_CANDIDATES]) is not None
