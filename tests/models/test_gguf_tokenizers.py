"""The tokenizer inside a GGUF file: llama.cpp makes the tokens that ours makes (`test_imported_tokenizers`: foreign
ones).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import foreign_tokenizers
import httpx
import pytest
from in_llama_cpp import generated, server
from tiny_models import tiny_llama

from edgefront.core.common.errors import InvalidInput
from edgefront.core.data.tokenizers.bpe import BPETokenizer
from edgefront.core.data.tokenizers.tokenizers import ByteTokenizer, CharacterTokenizer, WordTokenizer
from edgefront.core.data.tokenizers.tokenizers import Tokenizer as Ours
from edgefront.core.model_files.gguf import write_gguf
from edgefront.core.model_files.gguf_vocabulary import vocabulary_of

pytestmark = pytest.mark.skipif(
    find_spec("xllamacpp") is None or find_spec("gguf") is None, reason="xllamacpp or gguf is not installed"
)

TEXT = foreign_tokenizers.TEXT.replace("é", "e\u0301")
SAMPLE = [TEXT, *foreign_tokenizers.SAMPLE[1:]]
TOKENIZERS: dict[str, Callable[[], Ours]] = {
    "bpe": lambda: BPETokenizer.train(iter(SAMPLE), 500),
    "bytes": lambda: ByteTokenizer(),
    "bytes that were seen": lambda: ByteTokenizer(sorted(set(TEXT.encode()))),
    "characters": lambda: CharacterTokenizer("".join(sorted(set(TEXT)))),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_llama_cpp_makes_the_same_tokens(tmp_path: Path, name: str) -> None:
    ours = TOKENIZERS[name]()
    path = tmp_path / "model.gguf"
    write_gguf(tiny_llama(ours.vocab_size), 1, path, files=ours.hugging_face())
    running = server(path)
    asked = {"content": TEXT, "add_special": False, "parse_special": False}
    answer = httpx.post(f"{running.listening_address}/tokenize", json=asked, trust_env=False)
    tokens = answer.raise_for_status().json()["tokens"]
    assert tokens == ours.encode(TEXT)
    text_again = httpx.post(f"{running.listening_address}/detokenize", json={"tokens": tokens}, trust_env=False)
    assert text_again.json()["content"] == TEXT


def test_the_end_of_a_document_and_the_other_special_tokens_are_marked(tmp_path: Path) -> None:
    import gguf

    ours = BPETokenizer.train(iter(SAMPLE), 300)
    write_gguf(tiny_llama(310), 1, tmp_path / "model.gguf", files=ours.hugging_face())  # padded
    fields = gguf.GGUFReader(tmp_path / "model.gguf").fields
    assert fields["tokenizer.ggml.eos_token_id"].contents() == ours.eos
    types = fields["tokenizer.ggml.token_type"].contents()
    assert [types[number] for number in ours.special.values()] == [gguf.TokenType.CONTROL] * len(ours.special)
    assert types[300:] == [gguf.TokenType.UNUSED] * 10
    tokens, _ = generated(tmp_path / "model.gguf", "Once upon", 3)
    assert len(tokens) == 3


def test_a_tokenizer_of_words_is_refused(tmp_path: Path) -> None:
    ours = WordTokenizer(["<eos>", "<unk>", "the"])
    with pytest.raises(InvalidInput, match="of type WordLevel") as caught:
        write_gguf(tiny_llama(ours.vocab_size), 1, tmp_path / "model.gguf", files=ours.hugging_face())
    assert caught.value.field == "tokenizer"
    assert not list(tmp_path.iterdir())


def test_a_tokenizer_of_more_tokens_than_the_model_is_refused(tmp_path: Path) -> None:
    files = BPETokenizer.train(iter(SAMPLE), 300).hugging_face()
    with pytest.raises(InvalidInput, match="the tokenizer has 300 tokens, the model 299"):
        write_gguf(tiny_llama(299), 1, tmp_path / "model.gguf", files=files)
    assert not list(tmp_path.iterdir())
    vocabulary = vocabulary_of(files, 300)
    assert vocabulary is not None
    assert len(vocabulary.tokens) == 300
    assert json.loads(files["tokenizer.json"])["model"]["vocab"][vocabulary.tokens[-1]] == 299
