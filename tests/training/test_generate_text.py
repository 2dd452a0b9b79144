"""Text from trained models: what is drawn, what is kept of the past, where it ends, and what comes out on the way."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from packages import DESCRIPTIONS, lively, package
from translators import translator
from typer.testing import CliRunner

from edgefront.cli.main import app
from edgefront.core.common.errors import Diverged, InvalidInput, NotFound
from edgefront.core.data.tokenizers.bpe import BPETokenizer
from edgefront.core.data.tokenizers.tokenizers import ByteTokenizer, CharacterTokenizer, WordTokenizer
from edgefront.core.training.evaluation.generate import Sampling, TextStream, generate, generate_text
from edgefront.core.training.evaluation.package import read_package, write_package
from edgefront.core.training.evaluation.translation import beam_search
from edgefront.core.training.recipes.recipe import Recipe

GREEDY = Sampling(temperature=0)
CAUSAL = [name for name in DESCRIPTIONS if name != "bert"]


@pytest.mark.parametrize("name", CAUSAL)
def test_greedy_tokens_are_those_of_passes_over_the_whole_text(name: str) -> None:
    model, prompt = lively(DESCRIPTIONS[name]), [5, 9, 200, 31]
    found = generate(model, prompt, 20, GREEDY)
    with torch.inference_mode():
        scores = model(torch.tensor([[*prompt, *found]]))[0]
    assert found == scores[3:-1].argmax(-1).tolist()


def test_a_long_prompt_is_read_in_parts_and_a_short_memory_sees_the_last_tokens_alone() -> None:
    model = lively(DESCRIPTIONS["transformer-xl"])
    prompt = np.random.default_rng(0).integers(0, 256, 1100).tolist()
    with torch.inference_mode():
        wanted = int(model(torch.tensor([prompt]), "last")[0].argmax())
    assert generate(model, prompt, 1, GREEDY) == [wanted]
    one_block = lively({**DESCRIPTIONS["transformer-xl"], "blocks": [{"kind": "attention", "n_head": 2}]})
    # With one attention and a memory of 7 tokens, nothing beyond the last 8 reaches the next one.
    found = generate(one_block, prompt[:20], 6, GREEDY, memory=7)
    assert found == generate(one_block, prompt[12:20], 6, GREEDY, memory=7)


def frequencies(sampling: Sampling, chances: np.ndarray[Any, Any], count: int = 3000) -> np.ndarray[Any, Any]:
    generator, scores = torch.Generator().manual_seed(sampling.seed), torch.tensor(np.log(chances)) + 7
    drawn = [sampling.draw(scores, generator) for _ in range(count)]
    return np.bincount(drawn, minlength=len(chances)) / count


def test_tokens_are_drawn_with_their_chances() -> None:
    chances = np.array([0.5, 0.25, 0.15, 0.1])
    within = {"atol": 4 * math.sqrt(0.25 / 3000)}
    np.testing.assert_allclose(frequencies(Sampling(seed=1), chances), chances, **within)
    sharper = chances**2 / (chances**2).sum()
    np.testing.assert_allclose(frequencies(Sampling(temperature=0.5), chances), sharper, **within)
    np.testing.assert_allclose(frequencies(Sampling(top_k=2), chances), [2 / 3, 1 / 3, 0, 0], **within)
    # 0.5 and 0.25 are less than 0.76 of the probability: the third is needed.
    np.testing.assert_allclose(
        frequencies(Sampling(top_p=0.76), chances), [0.5 / 0.9, 0.25 / 0.9, 0.15 / 0.9, 0], **within
    )
    assert frequencies(Sampling(top_p=0.4), chances, 50)[0] == 1
    assert frequencies(Sampling(top_k=1, temperature=5.0), chances, 50)[0] == 1
    assert frequencies(Sampling(top_k=1000), chances, 50).sum() == 1


@pytest.mark.parametrize("name", ["gpt2", "transformer-xl"])
def test_a_model_with_so_many_positions_says_when_they_are_exceeded(name: str) -> None:
    model = lively(DESCRIPTIONS[name])
    assert len(generate(model, [1] * 10, 31, GREEDY)) == 31
    if name == "transformer-xl":
        assert len(generate(model, [1] * 10, 80, GREEDY)) == 80
        return
    with pytest.raises(InvalidInput, match="40 positions: 31 fit after the prompt") as refused:
        generate(model, [1] * 10, 32, GREEDY)
    assert refused.value.field == "tokens"
    with pytest.raises(InvalidInput, match="the prompt alone is too long"):
        generate(model, [1] * 41, 1, GREEDY)


def test_it_ends_with_the_end_token_and_reports_each_token() -> None:
    model, seen = lively(DESCRIPTIONS["sru"]), list[int]()
    whole = generate(model, [7], 12, GREEDY)
    end = whole[-1]
    found = generate(model, [7], 12, GREEDY, stop=[end], on_token=seen.append)
    assert found == seen == whole[: whole.index(end)]


def test_what_cannot_be_is_refused() -> None:
    model = lively(DESCRIPTIONS["sru"])
    with pytest.raises(InvalidInput, match="prompt is empty"):
        generate(model, [], 1)
    with pytest.raises(InvalidInput, match="is an encoder"):
        generate(lively(DESCRIPTIONS["bert"]), [3], 1)
    with pytest.raises(InvalidInput, match="it translates"):
        generate(translator(), [3], 1)
    for field, value in (("temperature", -1.0), ("temperature", math.nan), ("top_k", 0), ("top_p", 0.0), ("seed", -1)):
        with pytest.raises(InvalidInput) as refused:
            Sampling(**{field: value})
        assert refused.value.field == field
    with torch.no_grad():
        model.embedding.tables[0][3] = math.nan
    with pytest.raises(Diverged):
        generate(model, [3], 1)


def pieces_of(texts: list[str]) -> BPETokenizer:
    return BPETokenizer.train(iter(texts), 300)


@pytest.mark.parametrize("level", ["bytes", "words", "bpe"])
def test_text_is_streamed_in_whole_characters(level: str) -> None:
    text = "Grüße aus Tōkyō 🎉\nund noch eine Zeile\n\nEnde"
    tokenizer = {
        "bytes": ByteTokenizer,
        "words": lambda: WordTokenizer(["<eos>", "<unk>", *dict.fromkeys(text.split())]),
    }.get(level, lambda: pieces_of([text, "Straße ⛩"]))()
    ids = tokenizer.encode(text)
    stream = TextStream(tokenizer)
    pieces = [stream.add(token) for token in ids]
    assert "".join(pieces) + stream.rest() == tokenizer.decode(ids)
    assert "\ufffd" not in "".join(pieces)
    assert len([piece for piece in pieces if piece]) > 5
    # What stood before is not told again, and the space between belongs to what is.
    after = TextStream(tokenizer, ids[:3])
    before = tokenizer.decode(ids[:3]).removesuffix("\ufffd")
    assert before + "".join(after.add(token) for token in ids[3:]) + after.rest() == (tokenizer.decode(ids))
    broken = TextStream(ByteTokenizer())
    assert "".join(broken.add(byte) for byte in (0xFF, 0xFE, 65, 0xE2, 66)) + broken.rest() == "\ufffd\ufffdA\ufffdB"


def test_a_package_writes_text(tmp_path: Path) -> None:
    recipe = Recipe(name="quick", segment=6, evaluation={"memory": 7, "clamp": 3}).model_dump(mode="json")
    found = package(tmp_path / "model", recipe=recipe)
    seen: list[str] = []
    made = generate_text(found, "Once", 30, GREEDY, on_text=seen.append)
    assert made.text == "".join(seen)
    assert (made.prompt_tokens, len(made.tokens), made.ended) == (4, 30, "length")
    assert made.text == ByteTokenizer().decode(made.tokens)
    # As it was evaluated: with seven tokens of memory and distances clamped.
    model = found.model()
    model.positions.max_relative_distance = 3
    assert list(made.tokens) == generate(model, list(b"Once"), 30, GREEDY, memory=7)
    with pytest.raises(InvalidInput, match="prompt is empty"):
        generate_text(found, "", 3)


def test_words_begin_and_end_with_the_end_of_a_line(tmp_path: Path) -> None:
    words = WordTokenizer(["<eos>", "<unk>", *(f"w{number}" for number in range(254))])
    model = lively(DESCRIPTIONS["srupp"], spread=0.1)
    write_package(tmp_path, model, words, {})
    found = read_package(tmp_path)
    begun = generate_text(found, "", 5, GREEDY, stop_at_end=False)
    assert begun.tokens == tuple(generate(model, [0], 5, GREEDY))
    with torch.no_grad():
        model.output.tables[0][0] = 10 * model.output.tables[0][generate(model, [0], 1, GREEDY)[0]]
    write_package(tmp_path, model, words, {})
    ended = generate_text(read_package(tmp_path), "", 5, GREEDY)
    assert (ended.text, ended.ended) == ("", "end")
    on = generate_text(read_package(tmp_path), "", 5, GREEDY, stop_at_end=False)
    assert (on.text[0], len(on.tokens)) == ("\n", 5)


def test_a_translation_model_translates_the_prompt(tmp_path: Path) -> None:
    model = translator(spread=0.3)
    words = WordTokenizer(["<eos>", "<unk>", "a", "b", "c", "d"])
    write_package(tmp_path, model, words, {}, CharacterTokenizer("abcdefghi"))
    made = generate_text(read_package(tmp_path), "dbe", 8)
    best = beam_search(model, torch.tensor([[3, 1, 4]]), begin=0, end=0, max_length=8)[0][0]
    assert made.tokens == best.tokens
    assert made.text == words.decode(best.tokens)


def run(*arguments: str, stdin: str | None = None) -> Any:
    return CliRunner().invoke(app, ["generate", *arguments], input=stdin)


def test_the_command_writes_the_prompt_and_what_follows(tmp_path: Path) -> None:
    folder = str(package(tmp_path / "model", "gpt2").folder)
    wanted = generate_text(read_package(folder), "Once", 9, Sampling(0.8, seed=3)).text
    done = run(folder, "--prompt", "Once", "--tokens", "9", "--seed", "3")
    assert done.exit_code == 0, done.output
    assert done.stdout == f"Once{wanted}\n"
    output = json.loads(run(folder, "--prompt", "-", "--tokens", "9", "--seed", "3", "--json", stdin="Once").stdout)
    assert (output["text"], output["tokens"], output["prompt_tokens"]) == (wanted, 9, 4)
    wrong = run(folder, "--prompt", "Once", "--tokens", "90")
    assert isinstance(wrong.exception, InvalidInput)
    assert wrong.stdout == ""
    assert isinstance(run(str(tmp_path)).exception, NotFound)
