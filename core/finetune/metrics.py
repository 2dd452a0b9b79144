"""What GLUE's and SQuAD's tasks are scored by. All in per cent of what is possible, as their tables have it."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgefront.core.errors import InvalidInput

Numbers = NDArray[np.float64]


def accuracy(predicted: NDArray[Any], actual: NDArray[Any]) -> float:
    """Share of rows that are right."""
    return 100 * float(np.mean(predicted == actual))


def f1(predicted: NDArray[Any], actual: NDArray[Any]) -> float:
    """F1 of class 1 where there are two (GLUE's MRPC and QQP), else the mean over all classes that occur."""
    classes = np.union1d(predicted, actual)
    chosen = [1] if classes.max(initial=0) <= 1 else classes.tolist()
    return 100 * float(np.mean([_f1_of(predicted == label, actual == label) for label in chosen]))


def _f1_of(predicted: NDArray[np.bool_], actual: NDArray[np.bool_]) -> float:
    right = int((predicted & actual).sum())
    return 2 * right / int(predicted.sum() + actual.sum()) if right else 0.0


def matthews(predictions: NDArray[Any], labels: NDArray[Any]) -> float:
    """Matthews' correlation (CoLA), for any number of classes (Gorodkin 2004, eq. 8); 0 where either is constant."""
    classes = np.union1d(predictions, labels)
    predicted, actual = (
        np.array([(rows == cls).sum() for cls in classes], np.float64) for rows in (predictions, labels)
    )
    n = float(len(labels))
    covariance = n * float((predictions == labels).sum()) - float(predicted @ actual)
    spread = (n * n - float(predicted @ predicted)) * (n * n - float(actual @ actual))
    return 100 * covariance / spread**0.5 if spread > 0 else 0.0


def pearson(predicted: Numbers, actual: Numbers) -> float:
    """Linear correlation (STS-B); 0 where either is constant."""
    x, y = predicted - predicted.mean(), actual - actual.mean()
    spread = float(np.sqrt((x @ x) * (y @ y)))
    return 100 * float(x @ y) / spread if spread > 0 else 0.0


def spearman(predicted: Numbers, actual: Numbers) -> float:
    """Correlation of ranks, ties sharing their mean rank."""
    from scipy.stats import rankdata  # here: it takes a second to load, and only this task needs it

    return pearson(rankdata(predicted), rankdata(actual))


OF_CLASSES: dict[str, Callable[[NDArray[Any], NDArray[Any]], float]] = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews": matthews,
}
OF_NUMBERS: dict[str, Callable[[Numbers, Numbers], float]] = {"pearson": pearson, "spearman": spearman}

# Answers ------------------------------------------------------------------------------------------------------------

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = frozenset(string.punctuation)


def normalised_answer(text: str) -> str:
    """As SQuAD's official script compares answers: small letters, no punctuation, no articles, single spaces."""
    text = "".join(character for character in text.lower() if character not in _PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """1 if it is one of the answers, else 0. Without answers (SQuAD 2.0) nothing is the answer."""
    return float(any(normalised_answer(prediction) == normalised_answer(answer) for answer in answers or [""]))


def answer_f1(prediction: str, answers: Sequence[str]) -> float:
    """The best overlap of words with any of the answers (Rajpurkar et al. 2016, §6.1), from 0 to 1."""
    return max(_overlap(prediction, answer) for answer in answers or [""])


def _overlap(prediction: str, answer: str) -> float:
    words, right = normalised_answer(prediction).split(), normalised_answer(answer).split()
    if not words or not right:
        return float(words == right)
    common = sum((Counter(words) & Counter(right)).values())
    return 2 * common / (len(words) + len(right)) if common else 0.0


def squad_scores(predictions: Sequence[str], answers: Sequence[Sequence[str]]) -> dict[str, float]:
    """Means over all questions. Raises `InvalidInput` where there are none."""
    if not predictions:
        raise InvalidInput("there are no questions to score", field="questions", allowed="at least one")
    pairs = list(zip(predictions, answers, strict=True))
    return {
        "exact_match": 100 * float(np.mean([exact_match(*pair) for pair in pairs])),
        "f1": 100 * float(np.mean([answer_f1(*pair) for pair in pairs])),
    }
