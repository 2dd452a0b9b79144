"""Text generation by a trained model, token by token."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from edgefront.core.common.errors import InvalidInput
from edgefront.core.data.tokenizers.tokenizers import Tokenizer
from edgefront.core.nn.embedding import RelativePositionEmbedding
from edgefront.core.nn.model import LanguageModel
from edgefront.core.training.evaluation.package import Package
from edgefront.core.training.evaluation.perplexity import check_scores, first_token
from edgefront.core.training.evaluation.translation import beam_search
from edgefront.core.training.recipes.recipe import predicts_next_token

_PROMPT_SEGMENT = 512
"""Maximum number of tokens of a prompt in one forward pass."""
_INCOMPLETE = "\ufffd"
"""Text that a tokenizer decodes from an incomplete character."""


@dataclass(frozen=True)
class Sampling:
    """Settings of the sampling of tokens.

    Logits are divided by `temperature` (0: greedy). Only the `top_k` most likely tokens can be sampled, and of these
    only the smallest set with `top_p` of the probability (Holtzman et al. 2020). Equal seeds give equal texts.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        rules = (
            ("temperature", math.isfinite(self.temperature) and self.temperature >= 0, "a finite number from 0"),
            ("top_k", self.top_k is None or self.top_k >= 1, "1 or more"),
            ("top_p", self.top_p is None or 0 < self.top_p <= 1, "above 0 and at most 1"),
            ("seed", 0 <= self.seed < 1 << 63, "0 to 2^63 - 1"),
        )
        for field, holds, allowed in rules:
            if not holds:
                value = getattr(self, field)
                raise InvalidInput(f"{field} must be {allowed}, not {value}", field=field, value=value, allowed=allowed)

    def draw(self, scores: Tensor, generator: torch.Generator) -> int:
        """Samples one token from logits [vocabulary]. Raises `Diverged` if the logits are not finite."""
        scores = scores.detach().double().cpu()
        check_scores(not bool(scores.isnan().any()) and bool(scores.max().isfinite()))
        if self.temperature == 0:
            return int(scores.argmax())
        order = scores.argsort(descending=True, stable=True)[: self.top_k]
        chances = torch.softmax((scores[order] - scores[order[0]]) / self.temperature, 0)
        if self.top_p is not None:
            # Compares the sum of the probabilities before each token, so that the token that reaches top_p stays.
            chances = chances[chances.cumsum(0) - chances < self.top_p]
        return int(order[int(torch.multinomial(chances, 1, generator=generator))])


def generate(
    model: LanguageModel,
    prompt: Sequence[int],
    tokens: int,
    sampling: Sampling = Sampling(),
    *,
    stop: Collection[int] = (),
    never: Sequence[int] = (),
    memory: int | None = None,
    on_token: Callable[[int], None] | None = None,
) -> list[int]:
    """Returns at most `tokens` generated tokens; ends before the first token in `stop`.

    Each token costs one forward pass over one position, because keys, values and cells of recurrences are cached.

    Args:
        never: tokens that are never generated.
        memory: number of past tokens that are attended to; None: all.
        on_token: called with each new token; an error of the callback ends the generation.

    The model must be in evaluation mode. Raises `InvalidInput` for a model that cannot continue a text, an empty
    prompt, and more tokens than the model's positions.
    """
    _check(model, prompt, tokens)
    device = next(model.parameters()).device
    generator = torch.Generator().manual_seed(sampling.seed)
    excluded = torch.tensor(list(never), dtype=torch.int64, device=device)
    generated: list[int] = []
    with torch.inference_mode():
        cache = model.init_cache(1)

        def read(ids: Sequence[int]) -> Tensor:
            nonlocal cache
            scores, after = model(torch.tensor([list(ids)], device=device), "last", cache=cache)
            cache = after if memory is None else after.keep(memory)
            return scores[0].index_fill(0, excluded, -math.inf) if never else scores[0]

        for start in range(0, len(prompt), _PROMPT_SEGMENT):
            scores = read(prompt[start : start + _PROMPT_SEGMENT])
        while len(generated) < tokens:
            token = sampling.draw(scores, generator)
            if token in stop:
                break
            generated.append(token)
            if on_token is not None:
                on_token(token)
            if len(generated) < tokens:
                scores = read([token])
    return generated


def _check(model: LanguageModel, prompt: Sequence[int], tokens: int) -> None:
    architecture = model.architecture
    if not predicts_next_token(architecture):
        raise InvalidInput(
            "this model cannot continue a text: it "
            + ("translates" if architecture.source is not None else "is an encoder, or has no output over tokens"),
            field="model",
            value=architecture.output.kind,
            allowed="a causal model with output tokens and without a source",
        )
    max_length = architecture.max_length
    if not prompt:
        raise InvalidInput("the prompt is empty", field="prompt", allowed="at least one token")
    # The model never reads the final token, which therefore needs no position.
    if max_length is not None and len(prompt) + tokens - 1 > max_length:
        room = max_length - len(prompt) + 1
        raise InvalidInput(
            f"a prompt of {len(prompt)} tokens and {tokens} more are too many for the model's {max_length} positions: "
            + (f"{room} fit after the prompt" if room > 0 else "the prompt alone is too long"),
            field="tokens" if room > 0 else "prompt",
            value=tokens if room > 0 else len(prompt),
            allowed=f"{room} tokens at most, or a shorter prompt" if room > 0 else f"at most {max_length} tokens",
        )


class TextStream:
    """Decodes tokens as a stream of text.

    An incomplete character is delayed until its tokens are complete. Text after a line's end does not depend on
    earlier tokens, so only one line is decoded at a time.
    """

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._ids = list(before)
        self._returned = len(tokenizer.decode(self._ids).rstrip(_INCOMPLETE)) if self._ids else 0

    def add(self, token: int) -> str:
        """Adds a token and returns the text that is now complete, possibly empty."""
        self._ids.append(token)
        text = self._tokenizer.decode(self._ids)
        whole = text.rstrip(_INCOMPLETE)  # some tokenizers decode each byte as one such character
        new, self._returned = whole[self._returned :], max(self._returned, len(whole))
        if text.endswith("\n"):
            # The line's end stays, because some tokenizers leave out the space before the first word of a text.
            self._ids = [token]
            self._returned = len(self._tokenizer.decode(self._ids))
        return new

    def rest(self) -> str:
        """Returns the delayed text of an incomplete character."""
        return self._tokenizer.decode(self._ids)[self._returned :] if self._ids else ""


@dataclass(frozen=True)
class Generated:
    """Generated `text`, without the prompt. `ended`: whether the end token or the number of tokens ended the text."""

    text: str
    prompt_tokens: int
    tokens: tuple[int, ...]
    ended: Literal["end", "length"]


def generate_text(
    package: Package,
    prompt: str,
    tokens: int,
    sampling: Sampling = Sampling(),
    *,
    memory: int | None = None,
    stop_at_end: bool = True,
    chat: bool = False,
    special: bool = False,
    device: torch.device | str = "cpu",
    on_text: Callable[[str], None] | None = None,
) -> Generated:
    """Generates text after the prompt with a trained model; a translation model translates the prompt.

    Args:
        memory: number of past tokens that are attended to. None selects memory and clamp of the model's evaluation
            settings, or all tokens for models with a bounded number of positions.
        stop_at_end: whether to end at a token that ends a line (words) or a document (bpe).
        chat: whether the prompt is a user's message for the model's chat template, and the text is the answer.
        special: whether names of special tokens in the prompt become these tokens instead of characters.
        on_text: called with each new piece of text.

    An empty prompt begins a new document. Translation uses beam search and ignores `sampling`. Raises the errors of
    `generate`, and `InvalidInput` for a prompt with characters outside the vocabulary.
    """
    model = package.model(device)
    if package.architecture.source is not None:
        return _translated(package, model, prompt, tokens, on_text)
    tokenizer, recipe = package.tokenizer, package.recipe
    if chat:
        ids = tokenizer.chat(prompt)
    else:
        ids = tokenizer.prompt_with_special(prompt) if special else tokenizer.prompt(prompt)
    if tokenizer.eos is not None and (not ids or (recipe is not None and recipe.task == "sentences")):
        ids = [tokenizer.eos, *ids]
    if recipe is not None and package.architecture.max_length is None:
        if memory is None:
            memory = max(recipe.evaluation.memory, recipe.segment)
        if isinstance(model.positions, RelativePositionEmbedding) and recipe.evaluation.clamp is not None:
            model.positions.max_relative_distance = recipe.evaluation.clamp
    stream, pieces = TextStream(tokenizer, ids), list[str]()

    def put(text: str) -> None:
        if text:
            pieces.append(text)
            if on_text is not None:
                on_text(text)

    generated = generate(
        model,
        ids,
        tokens,
        sampling,
        stop=tokenizer.stops if stop_at_end else (),
        never=tokenizer.unused(package.architecture.embedding.vocab_size),
        memory=memory,
        on_token=lambda token: put(stream.add(token)),
    )
    put(stream.rest())
    return Generated("".join(pieces), len(ids), tuple(generated), "length" if len(generated) == tokens else "end")


def _translated(
    package: Package, model: LanguageModel, prompt: str, tokens: int, on_text: Callable[[str], None] | None
) -> Generated:
    end = package.tokenizer.eos
    if end is None:
        raise InvalidInput("this model's tokenizer has no token that ends a translation", field="model")
    ids = package.source_tokenizer.encode(prompt)
    source_end = package.source_tokenizer.eos
    if source_end is not None:
        ids = [*ids, source_end]
    device = next(model.parameters()).device
    begin = first_token(package.tokenizer, "pairs")
    source = torch.tensor([ids], device=device)
    best = beam_search(model, source, begin=end if begin is None else begin, end=end, max_length=tokens)[0][0]
    text = package.tokenizer.decode(best.tokens)
    if on_text is not None:
        on_text(text)
    return Generated(text, len(ids), best.tokens, "end")
