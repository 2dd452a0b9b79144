"""Translates by beam search and computes BLEU (Papineni et al. 2002) with sacrebleu (Post 2018).

Beam search works as in fairseq (Ott et al. 2019); greedy decoding is a beam of 1. At each step:

1. Each of the `beam` best unfinished translations of a sentence is extended by every token.
2. Among the `beam` best extended translations, those that end with the end token are finished.
3. The `beam` best extended translations without end token continue, until `beam` translations are finished.

The score of a finished translation is the sum of the tokens' log-probabilities, including the end token, divided by
the translation's length to the power of `length_penalty`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgefront.core.data.prepared.prepared import Split
from edgefront.core.data.tokenizers.tokenizers import Tokenizer
from edgefront.core.nn.model import LanguageModel
from edgefront.core.training.evaluation.perplexity import check_scores, evaluating, padded
from edgefront.core.training.recipes.recipe import Precision


@dataclass(frozen=True)
class Hypothesis:
    """A translation: its tokens without begin and end token, and its length-normalised score in nats."""

    tokens: tuple[int, ...]
    score: float


def beam_search(
    model: LanguageModel,
    source: Tensor,
    source_mask: Tensor | None = None,
    *,
    begin: int,
    end: int,
    beam: int = 5,
    length_penalty: float = 1.0,
    max_length: int = 200,
) -> list[list[Hypothesis]]:
    """Returns the finished translations of each source, 1 to `beam`, best first.

    Args:
        source: tokens, int64 [batch, source], on the model's device.
        source_mask: bool [batch, source], False where padded.
        begin: the token before a translation (fairseq: the end token).
        length_penalty: above 1 favours longer translations, below 1 shorter ones; 0 is the plain sum.
        max_length: maximum number of tokens before the end token; the model's positions are also a limit.

    The model must be in evaluation mode and have a source. Raises `Diverged` for scores that are not finite.
    """
    positions = model.architecture.max_length
    search = _Search(beam, length_penalty, max_length if positions is None else min(max_length, positions - 1), end)
    with torch.no_grad():
        by_sentence = _search_all(model, source, source_mask, begin, search)
    return [sorted(hypotheses, key=lambda hypothesis: -hypothesis.score) for hypotheses in by_sentence]


def _search_all(
    model: LanguageModel, source: Tensor, source_mask: Tensor | None, begin: int, search: _Search
) -> list[list[Hypothesis]]:
    """Returns the finished translations of each sentence, in the order in which they finished."""
    beam = search.beam
    batch, device = source.shape[0], source.device
    finished: list[list[Hypothesis]] = [[] for _ in range(batch)]
    live = torch.arange(batch, device=device)  # unfinished sentences; each has `beam` rows in the tensors below
    cache = model.init_cache(batch)
    scores, cache = model(
        source.new_full((batch, 1), begin), "last", cache=cache, source=source, source_mask=source_mask
    )
    spread = live.repeat_interleave(beam)
    cache, scores = cache.take(spread), scores[spread]
    # All hypotheses of a sentence are equal at the start, so that only the first one may be extended.
    totals = torch.full((batch, beam), -math.inf, device=device)
    totals[:, 0] = 0.0
    tokens = source.new_empty((batch * beam, 0))
    while True:
        ended, rows, extensions, totals = search.step(scores, totals, tokens)
        for index, hypothesis in ended:
            sentence = int(live[index])
            if len(finished[sentence]) < beam:
                finished[sentence].append(hypothesis)
        done = [len(finished[i]) >= beam for i in live.tolist()]
        going = ~torch.tensor(done, device=device) & totals.isfinite().any(1)
        if tokens.shape[1] >= search.max_length or not bool(going.any()):
            break
        kept = going.nonzero().flatten()
        live, totals = live[kept], totals[kept]
        parents = rows.view(-1, beam)[kept].flatten()
        last = extensions.view(-1, beam)[kept].flatten()
        tokens, cache = torch.cat((tokens[parents], last[:, None]), 1), cache.take(parents)
        mask = None if source_mask is None else source_mask[live.repeat_interleave(beam)]
        scores, cache = model(last[:, None], "last", cache=cache, source_mask=mask)
    return finished


@dataclass(frozen=True)
class _Search:
    beam: int
    length_penalty: float
    max_length: int
    end: int

    def step(
        self, scores: Tensor, totals: Tensor, tokens: Tensor
    ) -> tuple[list[tuple[int, Hypothesis]], Tensor, Tensor, Tensor]:
        """Extends the unfinished hypotheses by one token.

        Returns the newly finished hypotheses, each with the index of its sentence; and for the `beam` hypotheses that
        continue in each sentence, their rows in `tokens`, their new tokens and their totals.

        `scores` [sentences·beam, vocabulary] are logits of the next token, `totals` [sentences, beam] log-probabilities
        of the `tokens` [sentences·beam, length] so far.
        """
        chances = torch.log_softmax(scores.float(), -1)
        check_scores(not bool(chances.isnan().any()))
        length, (sentences, beam) = tokens.shape[1], totals.shape
        if length >= self.max_length:
            chances[:, : self.end] = chances[:, self.end + 1 :] = -math.inf
        vocabulary = chances.shape[1]
        reached = (totals[:, :, None] + chances.view(sentences, beam, vocabulary)).flatten(1)
        best, flat = reached.topk(2 * beam, dim=1)
        row, token = flat // vocabulary, flat % vocabulary
        row = row + beam * torch.arange(sentences, device=row.device)[:, None]
        ends = token == self.end
        ended = self._ended(best, row, ends, tokens)
        # A stable sort moves hypotheses that end to the back, and keeps the order of the first `beam` that continue.
        on = ends.to(torch.int8).sort(dim=1, stable=True).indices[:, :beam]
        totals = best.masked_fill(ends, -math.inf).gather(1, on)
        return ended, row.gather(1, on).flatten(), token.gather(1, on).flatten(), totals

    def _ended(self, best: Tensor, row: Tensor, ends: Tensor, tokens: Tensor) -> list[tuple[int, Hypothesis]]:
        beam, length = self.beam, tokens.shape[1]
        sentence, rank = (ends & best.isfinite())[:, :beam].nonzero(as_tuple=True)
        totals, sequences = best[sentence, rank].tolist(), tokens[row[sentence, rank]].tolist()
        scale = (length + 1) ** self.length_penalty
        return [
            (index, Hypothesis(tuple(words), total / scale))
            for index, words, total in zip(sentence.tolist(), sequences, totals, strict=True)
        ]


Tokenize = Literal["13a", "intl", "char", "none"]
"""Tokenisation by sacrebleu. "none" splits at spaces, for tokenised text (IWSLT'14 by custom)."""


class Bleu(NamedTuple):
    """BLEU `score` in per cent, with the `signature` of sacrebleu."""

    score: float
    signature: str


@dataclass(frozen=True)
class Translations:
    """Translations of sentences, the reference translations, and the BLEU score."""

    bleu: Bleu
    hypotheses: list[str]
    references: list[str]


def bleu(hypotheses: Sequence[str], references: Sequence[str], *, tokenize: Tokenize = "13a") -> Bleu:
    """Corpus BLEU with one reference per sentence, and at least one sentence."""
    from sacrebleu.metrics.bleu import BLEU

    # `force` suppresses sacrebleu's warning about tokenised text.
    metric = BLEU(tokenize=tokenize, force=tokenize == "none")
    score = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Bleu(score, str(metric.get_signature()))


def translate(
    model: LanguageModel,
    source: Split,
    target: Split,
    tokenizer: Tokenizer,
    *,
    device: torch.device | str,
    end: int,
    begin: int | None = None,
    precision: Precision = "float32",
    beam: int = 5,
    length_penalty: float = 1.0,
    max_length: int = 200,
    rows: int = 32,
    sentences: int | None = None,
    tokenize: Tokenize = "13a",
    progress: Callable[[int, int], None] | None = None,
) -> Translations:
    """Translates every sentence of `source` and scores the best translation of each beam against `target`.

    Args:
        end: token that ends a sentence, in the source and in the translation.
        begin: token before a translation; None: `end`.
        max_length: maximum number of tokens of a translation.
        rows: number of sentences per batch.
        sentences: number of sentences to translate, from the first; None: all.
        progress: called with the number of finished sentences and the total.

    Raises the errors of `beam_search`.
    """
    count = len(target.starts) - 1 if sentences is None else min(sentences, len(target.starts) - 1)
    lengths = np.diff(np.asarray(source.starts, np.int64))[:count]
    order = np.argsort(lengths, kind="stable")  # sentences of similar length share a batch, which needs less padding
    texts = [""] * count
    with evaluating(model, torch.device(device), precision):
        for start in range(0, count, rows):
            batch = order[start : start + rows]
            tokens, mask = padded([_sentence(source, i) for i in batch])
            searched = beam_search(
                model,
                torch.from_numpy(tokens).to(device),
                torch.from_numpy(mask).to(device),
                begin=end if begin is None else begin,
                end=end,
                beam=beam,
                length_penalty=length_penalty,
                max_length=max_length,
            )
            for i, hypotheses in zip(batch, searched, strict=True):
                texts[i] = tokenizer.decode(list(hypotheses[0].tokens))
            if progress is not None:
                progress(min(start + rows, count), count)
    references = [tokenizer.decode([int(t) for t in _sentence(target, i) if t != end]) for i in range(count)]
    return Translations(bleu(texts, references, tokenize=tokenize), texts, references)


def _sentence(side: Split, index: int) -> NDArray[Any]:
    return side.tokens[side.starts[index] : side.starts[index + 1]]
