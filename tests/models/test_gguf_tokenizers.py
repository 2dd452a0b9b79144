"""The tokenizer inside a GGUF file: llama.cpp makes the tokens that ours makes."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest
from in_llama_cpp import generated, server
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from edgefront.core.data.tokenizers.bpe import Pieces
from edgefront.core.data.tokenizers.tokenizers import Bytes, Characters, Words
from edgefront.core.data.tokenizers.tokenizers import Tokenizer as Ours
from edgefront.core.errors import InvalidInput
from edgefront.core.graph.gguf import write_gguf
from edgefront.core.graph.gguf_vocabulary import vocabulary_of
from edgefront.core.spaces.architecture import Architecture

pytestmark = pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("gguf") is None, reason="xllamacpp or gguf is not installed"
)

TEXT = (
    "Once upon a time, 12 345 naïve café-goers (ages 7–99) said: “Γειά σου, κόσμε!” It's 3.14 €; don't they'LL  go?\n"
    "\tdef f(x):\r\n    return x**2  # квадрат 二乗 🙂👍🏽 e\u0301\n\n  the end   "
)
SAMPLE = [TEXT, "the quick brown fox isn't there, in 2024 or 1999\n" * 3, "κόσμε квадрат 二乗 naïve café " * 4]
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
    r"\s+(?!\S)|\s+"
)


def model_of(size: int) -> Architecture:
    blocks = [{"kind": "attention", "n_head": 2}, {"kind": "feed_forward", "d_inner": 64}]
    positions = {"kind": "learned", "length": 48}
    return Architecture.parse(
        {"d_model": 32, "positions": positions, "embedding": {"vocab_size": size}, "blocks": blocks}
    )


def given(tmp_path: Path, split: Any, normalizer: Any = None, size: int = 400) -> Pieces:
    """A tokenizer.json of elsewhere, that splits text in this way."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer, tokenizer.decoder = split, decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(SAMPLE, trainer)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return Pieces.given(tmp_path / "tokenizer.json")


def split(pattern: str) -> Any:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


DIGITS = pre_tokenizers.Sequence(
    [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
)
TOKENIZERS: dict[str, Callable[[Path], Ours]] = {
    "bpe": lambda _: Pieces.train(iter(SAMPLE), 500),
    "bytes": lambda _: Bytes(),
    "bytes that were seen": lambda _: Bytes(sorted(set(TEXT.encode()))),
    "characters": lambda _: Characters("".join(sorted(set(TEXT)))),
    "split as Llama 3": lambda folder: given(folder, split(LLAMA3)),
    "split as Qwen2": lambda folder: given(folder, split(LLAMA3.replace("{1,3}", "")), normalizers.NFC()),
    "split as SmolLM": lambda folder: given(folder, DIGITS),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_llama_cpp_makes_the_same_tokens(tmp_path: Path, name: str) -> None:
    ours = TOKENIZERS[name](tmp_path)
    text = TEXT.replace("e\u0301", "é") if "Qwen2" in name else TEXT  # llama.cpp composes no characters
    path = tmp_path / "model.gguf"
    write_gguf(model_of(ours.vocab_size), 1, path, files=ours.hugging_face())
    running = server(path)
    asked = {"content": text, "add_special": False, "parse_special": False}
    answer = httpx.post(f"{running.listening_address}/tokenize", json=asked, trust_env=False)
    tokens = answer.raise_for_status().json()["tokens"]
    assert tokens == ours.encode(text)
    text_again = httpx.post(f"{running.listening_address}/detokenize", json={"tokens": tokens}, trust_env=False)
    assert text_again.json()["content"] == text


def test_the_end_of_a_document_and_the_other_special_tokens_are_marked(tmp_path: Path) -> None:
    import gguf

    ours = Pieces.train(iter(SAMPLE), 300)
    write_gguf(model_of(310), 1, tmp_path / "model.gguf", files=ours.hugging_face())  # padded
    fields = gguf.GGUFReader(tmp_path / "model.gguf").fields
    assert fields["tokenizer.ggml.eos_token_id"].contents() == ours.eos
    types = fields["tokenizer.ggml.token_type"].contents()
    assert [types[number] for number in ours.special.values()] == [gguf.TokenType.CONTROL] * len(ours.special)
    assert types[300:] == [gguf.TokenType.UNUSED] * 10
    tokens, _ = generated(tmp_path / "model.gguf", "Once upon", 3)
    assert len(tokens) == 3


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda _: Words(["<eos>", "<unk>", "the"]), "of type WordLevel"),
        (lambda folder: given(folder, split(r"\w+|\W+")), "the way it splits text"),
        (lambda folder: given(folder, pre_tokenizers.ByteLevel(add_prefix_space=True)), "adding no space"),
        (lambda folder: given(folder, DIGITS, normalizers.Lowercase()), "normalizer Lowercase"),
    ],
    ids=["words", "another split", "a space before", "lower case"],
)
def test_a_tokenizer_that_gguf_cannot_express_is_refused(
    tmp_path: Path, made: Callable[[Path], Ours], said: str
) -> None:
    ours = made(tmp_path)
    path = tmp_path / "model.gguf"
    with pytest.raises(InvalidInput, match=said) as caught:
        write_gguf(model_of(ours.vocab_size), 1, path, files=ours.hugging_face())
    assert caught.value.field == "tokenizer"
    assert not path.exists()


def test_a_tokenizer_of_more_tokens_than_the_model_is_refused(tmp_path: Path) -> None:
    files = Pieces.train(iter(SAMPLE), 300).hugging_face()
    with pytest.raises(InvalidInput, match="the tokenizer has 300 tokens, the model 299"):
        write_gguf(model_of(299), 1, tmp_path / "model.gguf", files=files)
    assert not list(tmp_path.iterdir())
    vocabulary = vocabulary_of(files, 300)
    assert vocabulary is not None
    assert len(vocabulary.tokens) == 300
    assert json.loads(files["tokenizer.json"])["model"]["vocab"][vocabulary.tokens[-1]] == 299
