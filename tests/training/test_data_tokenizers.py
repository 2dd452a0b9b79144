"""Text becomes numbers and text again, with and without the data that the vocabulary was made from."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as HuggingFace

from edgefront.core.architectures.architecture import Architecture
from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.common.hugging_face import TOKENIZER
from edgefront.core.data.tokenizers import bpe
from edgefront.core.data.tokenizers.bpe import MAX_TRAINED_BYTES, SMALLEST, BPETokenizer
from edgefront.core.data.tokenizers.load import load_tokenizer, same_tokens
from edgefront.core.data.tokenizers.tokenizers import (
    FILE,
    VOCABULARY_FILE,
    ByteTokenizer,
    CharacterTokenizer,
    Tokenizer,
    WordTokenizer,
)
from edgefront.core.model_files.gguf import write_gguf
from edgefront.core.training.evaluation.package import import_gguf

SAMPLE = "the cat sat on the mat\nthe end\n" * 20
ANY = st.text(max_size=40)


@pytest.fixture(scope="module")
def pieces() -> BPETokenizer:
    return BPETokenizer.train(iter([SAMPLE, "Grüße, 漢字"]), 300)


def all_levels(pieces: BPETokenizer) -> list[Tokenizer]:
    return [
        ByteTokenizer(),
        ByteTokenizer.of_texts([SAMPLE]),
        CharacterTokenizer.of_texts([SAMPLE]),
        WordTokenizer.of_texts([SAMPLE], None),
        pieces,
    ]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(ANY)
def test_bytes_and_pieces_have_any_text(pieces: BPETokenizer, text: str) -> None:
    for tokenizer in (ByteTokenizer(), pieces):
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert all(0 <= number < tokenizer.vocab_size for number in ids)


@given(ANY)
def test_characters_have_their_own_text(text: str) -> None:
    tokenizer = CharacterTokenizer.of_texts([text])
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.vocab_size == len(set(text))


def test_a_loaded_tokenizer_is_the_saved_one(pieces: BPETokenizer, tmp_path: Path) -> None:
    for number, tokenizer in enumerate(all_levels(pieces)):
        folder = tmp_path / str(number)
        folder.mkdir()
        names = tokenizer.save(folder)
        assert sorted(names) == sorted(path.name for path in folder.iterdir())
        assert all(json.loads((folder / name).read_text()) for name in names if name.endswith(".json"))
        loaded = load_tokenizer(folder)
        for name in ("level", "vocab_size", "eos", "unknown"):
            assert getattr(loaded, name) == getattr(tokenizer, name)
        assert dict(loaded.special) == dict(tokenizer.special)
        text = "the cat sat\nthe end"
        assert loaded.encode(text) == tokenizer.encode(text)
        assert loaded.decode(loaded.encode(text)) == text


@pytest.mark.parametrize("level", ["bytes", "some bytes", "characters", "bpe"])
def test_a_tokenizer_that_comes_back_from_gguf_is_the_same(pieces: BPETokenizer, tmp_path: Path, level: str) -> None:
    """And is no other of as many tokens."""
    text = "the cat sat on the mat: naïve κόσμε\n"
    tokenizers: dict[str, tuple[Tokenizer, Tokenizer]] = {
        "bytes": (ByteTokenizer(), ByteTokenizer(range(255, -1, -1))),
        "some bytes": (ByteTokenizer.of_texts([text]), ByteTokenizer.of_texts([text.replace("t", "u")])),
        "characters": (CharacterTokenizer.of_texts([text]), CharacterTokenizer.of_texts([text.replace("n", "q")])),
        "bpe": (pieces, BPETokenizer.train(iter(["a dog ran, and ran, and ran"] * 3), pieces.vocab_size)),
    }
    tokenizer, other = tokenizers[level]
    layer = [{"kind": "attention", "n_head": 1}, {"kind": "feed_forward", "d_inner": 8}]
    model = Architecture.parse(
        {
            "d_model": 8,
            "positions": {"kind": "learned", "length": 8},
            "embedding": {"vocab_size": tokenizer.vocab_size},
            "blocks": layer,
        }
    )
    write_gguf(model, 1, tmp_path / "model.gguf", files=tokenizer.hugging_face())
    import_gguf(tmp_path / "model.gguf", tmp_path / "model")
    for name, of in (("data", tokenizer), ("others", other)):
        (tmp_path / name).mkdir()
        of.save(tmp_path / name)
    assert same_tokens(tmp_path / "model", tmp_path / "data")
    assert same_tokens(tmp_path / "data", tmp_path / "model")
    assert not same_tokens(tmp_path / "model", tmp_path / "others")


def test_pieces_that_are_joined_in_another_order_are_other_tokens(tmp_path: Path) -> None:
    described = {
        "version": "1.0", "added_tokens": [],
        "model": {"type": "BPE", "vocab": {token: number for number, token in enumerate(("a", "b", "c", "ab", "bc"))}},
        "decoder": {"type": "Fuse"},
    }  # fmt: skip
    for name, merges in (("one", ["a b", "b c"]), ("other", ["b c", "a b"])):
        (tmp_path / name).mkdir()
        given = tmp_path / f"{name}.json"
        given.write_text(json.dumps({**described, "model": {**described["model"], "merges": merges}}))
        BPETokenizer.from_file(given).save(tmp_path / name)
    assert same_tokens(tmp_path / "one", tmp_path / "one")
    assert not same_tokens(tmp_path / "one", tmp_path / "other")


def test_words_are_the_most_frequent_first_and_others_unknown() -> None:
    tokenizer = WordTokenizer.of_texts(["b b a a\n", "c b <unk>\n"], None)
    assert tokenizer.vocab_size == 5
    assert tokenizer.encode("b a c d") == [2, 3, 4, tokenizer.unknown]
    assert tokenizer.encode("b\n\na\n") == [2, 0, 0, 3, 0]
    assert tokenizer.decode([2, 0, 0, 1]) == "b\n\n<unk>"
    assert WordTokenizer.of_texts(["b b a a c"], 3).encode("b a") == [2, 1]


def test_a_line_is_ended_once() -> None:
    tokenizer = WordTokenizer.of_texts(["a"], None)
    for text, expected in (("a", [2, 0]), ("a\n", [2, 0]), ("", [0])):
        (ids,) = tokenizer.encode_many([text])
        assert tokenizer.end(ids).tolist() == expected


def test_a_given_list_of_words_is_taken_in_its_order(tmp_path: Path) -> None:
    path = tmp_path / "words.txt"
    path.write_text("<S> 12\n</S> 12\n<UNK> 7\nthe 5\ncat 3\n")
    tokenizer = WordTokenizer.from_file(path, None)
    assert (tokenizer.vocab_size, tokenizer.eos, tokenizer.unknown) == (5, 0, 2)
    assert tokenizer.encode("the dog\n") == [3, 2, 0]
    saved = tmp_path / "saved"
    saved.mkdir()
    tokenizer.save(saved)
    assert WordTokenizer.from_file(saved / VOCABULARY_FILE, None).encode("the cat") == [3, 4]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("<eos>\nthe\n", "the vocabulary has no <unk>"),
        ("<unk>\nthe\n", "the vocabulary has no <eos>"),
        ("<eos>\n<unk>\nthe\nthe\n", "the vocabulary has 'the' twice"),
        ("", "the vocabulary has no <eos>"),
    ],
)
def test_a_wrong_list_of_words_is_reported(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "words.txt"
    path.write_text(content)
    with pytest.raises(InvalidInput, match=said) as caught:
        WordTokenizer.from_file(path, None)
    assert str(path) in caught.value.detail
    assert caught.value.field == "vocabulary"


def test_pieces_are_the_same_each_time_and_are_hugging_faces(pieces: BPETokenizer, tmp_path: Path) -> None:
    again = BPETokenizer.train(iter([SAMPLE, "Grüße, 漢字"]), 300)
    for name, tokenizer in (("a", pieces), ("b", again)):
        (tmp_path / name).mkdir()
        tokenizer.save(tmp_path / name)
    assert (tmp_path / "a" / TOKENIZER).read_bytes() == (tmp_path / "b" / TOKENIZER).read_bytes()
    theirs = HuggingFace.from_file(str(tmp_path / "a" / TOKENIZER))
    assert theirs.encode("the cat").ids == pieces.encode("the cat")
    given_file = BPETokenizer.from_file(tmp_path / "a" / TOKENIZER)
    assert given_file.encode(SAMPLE) == pieces.encode(SAMPLE)
    assert dict(given_file.special) == dict(pieces.special)


@pytest.mark.parametrize("run", ["AC", "漢", " ", "-"])
def test_training_sees_no_longer_run_than_its_bound(run: str) -> None:
    """Each merge doubles a run, so that the longest piece says how much of it the trainer had as one."""
    text = run * (40_000 // len(run.encode()))
    pieces = BPETokenizer.train(iter([text]), 300)
    longest = max(len(piece) for piece in json.loads(pieces.hugging_face()[TOKENIZER])["model"]["vocab"])
    assert MAX_TRAINED_BYTES // 2 <= longest <= MAX_TRAINED_BYTES
    assert pieces.decode(pieces.encode(text)) == text


def test_text_without_such_runs_is_trained_on_as_if_there_were_no_bound(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    texts = [f"{SAMPLE} {'=' * 800} " + " ".join(f"word{number}" for number in range(500))]
    bounded = BPETokenizer.train(iter(texts), 400).hugging_face()
    monkeypatch.setattr(bpe, "MAX_TRAINED_BYTES", 1 << 30)
    assert BPETokenizer.train(iter(texts), 400).hugging_face() == bounded
    described = json.loads(bounded[TOKENIZER])
    assert described["pre_tokenizer"]["type"] == "ByteLevel"


def test_a_special_tokens_name_in_a_text_is_text(pieces: BPETokenizer, tmp_path: Path) -> None:
    for tokenizer in (pieces, _again(pieces, tmp_path)):
        ids = tokenizer.encode("<mask> and <eos>")
        assert not set(ids) & set(pieces.special.values())
        assert tokenizer.decode(ids) == "<mask> and <eos>"


def _again(tokenizer: Tokenizer, folder: Path) -> Tokenizer:
    tokenizer.save(folder)
    return load_tokenizer(folder)


def test_text_that_cannot_be_encoded_or_decoded_is_reported(pieces: BPETokenizer) -> None:
    with pytest.raises(InvalidInput, match="character 'x' is not in the vocabulary"):
        CharacterTokenizer("abc").encode("abxc")
    with pytest.raises(InvalidInput, match="byte 120 is not in the vocabulary"):
        ByteTokenizer([97, 98]).encode("abx")
    with pytest.raises(InvalidInput, match=f"vocab_size must be at least {SMALLEST}"):
        BPETokenizer.train(iter(["a"]), 100)
    assert WordTokenizer(["<eos>", "<unk>"]).decode([]) == ""


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"format": 9}', '{"format": 1, "level": "syllables"}', '{"format": 1, "level": "bytes"}']
)
def test_a_damaged_tokenizer_is_reported(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(InvalidInput, match=f"{FILE} is damaged"):
        load_tokenizer(tmp_path)


def test_a_missing_or_damaged_file_of_pieces_is_reported(pieces: BPETokenizer, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="there is no tokenizer"):
        load_tokenizer(tmp_path)
    pieces.save(tmp_path)
    (tmp_path / TOKENIZER).write_text("{}")
    with pytest.raises(InvalidInput, match="is damaged"):
        load_tokenizer(tmp_path)
    (tmp_path / TOKENIZER).unlink()
    with pytest.raises(NotFound, match=TOKENIZER):
        load_tokenizer(tmp_path)
    (tmp_path / "given.json").write_text("no json")
    with pytest.raises(InvalidInput, match=r"given.json is not a Hugging Face tokenizer.json"):
        BPETokenizer.from_file(tmp_path / "given.json")
