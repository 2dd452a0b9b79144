"""BLEU of translations (Papineni et al. 2002) as sacrebleu computes it (Post 2018), and the translating itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from edgefront.core.errors import InvalidInput
from edgefront.core.evaluation.beam import beam_search
from edgefront.core.evaluation.perplexity import evaluating, padded
from edgefront.core.nn.model import LanguageModel
from edgefront.core.recipes.recipe import Precision
from edgefront.core.validation import one_of

Tokenize = Literal["13a", "intl", "char", "none"]
"""How sacrebleu splits text into words; "none": at spaces, for text that is tokenised already (IWSLT'14 by custom)."""


class Sentences(Protocol):
    """One side of parallel text."""

    @property
    def tokens(self) -> NDArray[Any]: ...

    @property
    def starts(self) -> NDArray[Any]: ...


class Decoder(Protocol):
    """A tokenizer, as far as translations need one."""

    def decode(self, ids: Sequence[int], /) -> str:
        """The text of these tokens."""
        ...


@dataclass(frozen=True)
class Bleu:
    """`score` and the n-gram `precisions` for n = 1 … 4 in per cent; `signature` is sacrebleu's, to be reported with
    it.
    """

    score: float
    precisions: tuple[float, ...]
    brevity_penalty: float
    signature: str


@dataclass(frozen=True)
class Translations:
    """What came out, what should have, and the score of it."""

    bleu: Bleu
    hypotheses: list[str]
    references: list[str]


def bleu(
    hypotheses: Sequence[str], references: Sequence[str], *, tokenize: Tokenize = "13a", lowercase: bool = False
) -> Bleu:
    """Corpus BLEU with one reference a sentence. Raises `InvalidInput` for unequal numbers of both, and for none."""
    from sacrebleu.metrics.bleu import BLEU

    one_of("tokenize", tokenize, get_args(Tokenize))
    if not hypotheses or len(hypotheses) != len(references):
        raise InvalidInput(
            f"{len(hypotheses)} translations for {len(references)} references",
            field="hypotheses",
            value=len(hypotheses),
            allowed="one for each reference, and at least one",
        )
    # The text is tokenised on purpose, so sacrebleu's warning about it is suppressed.
    metric = BLEU(tokenize=tokenize, lowercase=lowercase, force=tokenize == "none")
    score = metric.corpus_score(list(hypotheses), [list(references)])
    return Bleu(score.score, tuple(score.precisions), score.bp, str(metric.get_signature()))


@dataclass(frozen=True)
class TranslationOptions:
    """How sentences are translated, and the translations scored."""

    begin: int | None = None
    """Token that stands before a translation; None: the one that ends a sentence."""
    precision: Precision = "float32"
    """Precision of the passes."""
    beam: int = 5
    length_penalty: float = 1.0
    max_length: int = 200
    """Tokens of a translation."""
    rows: int = 32
    """Sentences at a time."""
    sentences: int | None = None
    """The first so many; None: all."""
    tokenize: Tokenize = "13a"
    lowercase: bool = False


def translate(
    model: LanguageModel,
    source: Sentences,
    target: Sentences,
    tokenizer: Decoder,
    *,
    device: torch.device | str,
    end: int,
    options: TranslationOptions = TranslationOptions(),
    progress: Callable[[int, int], None] | None = None,
) -> Translations:
    """Translates every sentence of `source` and scores the best of each beam against `target`.

    `end` ends a sentence on both sides. `progress` is called with the number of finished sentences and the total.
    Raises as `beam_search` and `bleu` do.
    """
    begin = end if options.begin is None else options.begin
    count = len(target.starts) - 1 if options.sentences is None else min(options.sentences, len(target.starts) - 1)
    lengths = np.diff(np.asarray(source.starts, np.int64))[:count]
    order = np.argsort(lengths, kind="stable")  # like lengths together, so that little is padded
    texts = [""] * count
    with evaluating(model, torch.device(device), options.precision):
        for start in range(0, count, options.rows):
            some = order[start : start + options.rows]
            tokens, mask = padded([_sentence(source, i) for i in some])
            searched = beam_search(
                model,
                torch.from_numpy(tokens).to(device),
                torch.from_numpy(mask).to(device),
                begin=begin,
                end=end,
                beam=options.beam,
                length_penalty=options.length_penalty,
                max_length=options.max_length,
            )
            for i, hypotheses in zip(some, searched, strict=True):
                texts[i] = tokenizer.decode(list(hypotheses[0].tokens))
            if progress is not None:
                progress(min(start + options.rows, count), count)
    references = [tokenizer.decode([int(t) for t in _sentence(target, i) if t != end]) for i in range(count)]
    score = bleu(texts, references, tokenize=options.tokenize, lowercase=options.lowercase)
    return Translations(score, texts, references)


def _sentence(side: Sentences, index: int) -> NDArray[Any]:
    return side.tokens[side.starts[index] : side.starts[index + 1]]
