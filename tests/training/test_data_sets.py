"""Data sets with names: their files are found, and compared with what is published before anything is trained."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.data.prepared.planning import Preparation
from edgefront.core.data.prepared.preparation import prepare
from edgefront.core.data.sources.corpus import Shares, standard_library
from edgefront.core.data.sources.data_set import DataSet, Published, data_set, data_sets

WIKITEXT = Path(__file__).parents[3] / "shared" / "data" / "wikitext"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_the_published_sizes_are_known() -> None:
    known = data_sets()
    assert list(known) == ["python", "wikitext-103", "wikitext-2", "enwik8", "text8", "lm1b", "pile", "iwslt14"]
    assert known["wikitext-103"].published.vocabulary == 267_735
    assert known["lm1b"].published.vocabulary == 793_471
    for name in ("enwik8", "text8"):
        assert known[name].published.bytes == 100_000_000
        assert known[name].cuts == (90_000_000, 95_000_000)
    with pytest.raises(NotFound, match="there is no data set 'wikitext'; there are python, wikitext-103"):
        data_set("wikitext")


def wikitext(folder: Path) -> tuple[str, str]:
    """A validation and a test text in WikiText's form: the real ones where they are."""
    if WIKITEXT.is_dir():
        return tuple((WIKITEXT / f"{split}.txt").read_text(encoding="utf-8") for split in ("valid", "test"))  # type: ignore[return-value]
    return " \n = One = \n \n A <unk> of words . \n", " \n = Two = \n \n Of words . \n"


def test_wikitext_by_words_has_its_published_counts(tmp_path: Path, home: Path) -> None:
    folder = tmp_path / "wikitext-2"
    folder.mkdir()
    valid, test = wikitext(folder)
    for split, text in (("train", valid), ("valid", valid), ("test", test)):
        (folder / f"wiki.{split}.tokens").write_text(text, encoding="utf-8")
    words = {split: len(text.split()) + text.count("\n") for split, text in (("valid", valid), ("test", test))}
    if WIKITEXT.is_dir():
        published = data_set("wikitext-2").published.words
        assert words == {split: published[split] for split in words}
    # What is published of the training text is another text's here.
    vocabulary = len(set(valid.split()) | {"<unk>", "<eos>"})
    known = Published(words=words | {"train": words["valid"]}, vocabulary=vocabulary)
    prepared = prepare(replace(data_set("wikitext-2"), published=known), home, origin=tmp_path)
    assert prepared.vocab_size == vocabulary
    assert len(prepared.splits["test"].tokens) == words["test"]
    assert len(prepared.splits["test"].starts) - 1 == test.count("\n")
    with pytest.raises(InvalidInput, match=r"words in the vocabulary, but wikitext-2 has 33,278: it is damaged"):
        prepare(replace(data_set("wikitext-2"), published=replace(known, vocabulary=33_278)), home, origin=folder)
    (tmp_path / "own.txt").write_text("<eos>\n<unk>\nthe\n")
    own = prepare(
        replace(data_set("wikitext-2"), published=known),
        home,
        origin=folder,
        settings=Preparation(vocabulary=str(tmp_path / "own.txt")),
    )
    assert own.vocab_size == 3
    with pytest.raises(InvalidInput, match=r"words in the split train, but wikitext-2 has 5"):
        prepare(replace(data_set("wikitext-2"), published=Published(words={"train": 5})), home, origin=folder)


def hutter(folder: Path, content: bytes) -> DataSet:
    """enwik8, but smaller."""
    (folder / "enwik8").write_bytes(content)
    md5 = hashlib.md5(content).hexdigest()
    return replace(data_set("enwik8"), cuts=(900, 950), published=Published(bytes=1000, md5=md5))


def test_enwik8_is_cut_at_its_bytes_and_has_the_bytes_that_occur(tmp_path: Path, home: Path) -> None:
    content = ("a" * 899 + "漢" + "é" * 49).encode()
    known = hutter(tmp_path, content)
    prepared = prepare(known, home, origin=tmp_path / "enwik8")
    assert {name: len(split.tokens) for name, split in prepared.splits.items()} == {
        "train": 900,
        "valid": 50,
        "test": 50,
    }
    assert prepared.vocab_size == len(set(content))
    by_characters = prepare(known, home, origin=tmp_path, settings=Preparation(level="characters"))
    assert sum(len(split.tokens) for split in by_characters.splits.values()) == len(content.decode())


def test_a_download_that_was_cut_short_or_changed_is_refused(tmp_path: Path, home: Path) -> None:
    known = hutter(tmp_path, b"a" * 1000)
    (tmp_path / "enwik8").write_bytes(b"a" * 999 + b"b")
    with pytest.raises(InvalidInput, match=r"has the MD5 .*, but enwik8 has .*: it is damaged or of another data set"):
        prepare(known, home, origin=tmp_path)
    (tmp_path / "enwik8").write_bytes(b"a" * 10)
    with pytest.raises(InvalidInput, match=r"has 10 bytes, but enwik8 has 1,000"):
        prepare(known, home, origin=tmp_path)
    with pytest.raises(InvalidInput, match=r"has 10 bytes, but enwik8 has 100,000,000"):
        prepare("enwik8", home, origin=tmp_path)
    (tmp_path / "enwik8").unlink()
    with pytest.raises(NotFound, match=r"there is no enwik8 in .*: enwik8 is made from enwik8 \(http://mattmahoney"):
        prepare("enwik8", home, origin=tmp_path)
    with pytest.raises(InvalidInput, match="name the folder that has the files of enwik8"):
        prepare("enwik8", home)
    assert not home.exists() or not [path for path in home.iterdir() if path.is_dir()]


def test_lm1b_has_its_shards_and_its_list_of_words(tmp_path: Path, home: Path) -> None:
    for name in data_set("lm1b").files["train"], data_set("lm1b").files["valid"], data_set("lm1b").files["test"]:
        (tmp_path / name[0].replace("*", "00001")).parent.mkdir(exist_ok=True)
    shards = tmp_path / "training-monolingual.tokenized.shuffled"
    for number in (1, 2):
        (shards / f"news.en-0000{number}-of-00100").write_text(f"the cat {number} sat\nthe dog\n" * 3)
    held_out = tmp_path / "heldout-monolingual.tokenized.shuffled"
    for number in (0, 1):
        (held_out / f"news.en.heldout-0000{number}-of-00050").write_text(f"the cat {number}\n")
    with pytest.raises(InvalidInput, match=r"has 2 of 99 files training-monolingual"):
        prepare("lm1b", home, origin=tmp_path)
    known = replace(data_set("lm1b"), published=Published(files={"train": 2}, vocabulary=5))
    with pytest.raises(NotFound, match=r"there is no 1b_word_vocab.txt in"):
        prepare(known, home, origin=tmp_path)
    (tmp_path / "1b_word_vocab.txt").write_text("<S>\n<UNK>\nthe\ncat\nsat\n")
    prepared = prepare(known, home, origin=tmp_path)
    tokenizer, split = prepared.tokenizer(), prepared.splits["train"]
    assert tokenizer.decode(split.tokens[: split.starts[2]]) == "the cat <UNK> sat\nthe <UNK>\n"
    assert len(split.starts) - 1 == 12
    (tmp_path / "1b_word_vocab.txt").write_text("<S>\n<UNK>\nthe\n")
    with pytest.raises(InvalidInput, match="there are 3 words in the vocabulary, but lm1b has 5"):
        prepare(known, home, origin=tmp_path)
    (tmp_path / "1b_word_vocab.txt").write_text("<S>\nthe\n")
    with pytest.raises(InvalidInput, match="the vocabulary has no <unk>"):
        prepare(known, home, origin=tmp_path)


def test_iwslt_has_two_languages_of_its_published_length(tmp_path: Path, home: Path) -> None:
    for split, count in (("train", 40), ("valid", 5), ("test", 5)):
        (tmp_path / f"{split}.de").write_text("ein satz auf deutsch\n" * count)
        (tmp_path / f"{split}.en").write_text("a sentence in english\n" * count)
    known = replace(data_set("iwslt14"), vocab_size=300, published=Published(lines={"train": 40}))
    prepared = prepare(known, home, origin=tmp_path)
    assert prepared.level == "bpe"
    assert len(prepared.splits["train"].starts) - 1 == 40
    assert prepared.splits["test"].source is not None
    assert prepared.source_tokenizer().decode(prepared.splits["test"].source.tokens[:3]).startswith("ein")
    with pytest.raises(InvalidInput, match=r"has 40 lines, but iwslt14 has 160,239"):
        prepare("iwslt14", home, origin=tmp_path)
    with pytest.raises(InvalidInput, match="which level bytes does not have"):
        prepare(known, home, origin=tmp_path, settings=Preparation(level="bytes"))


def test_the_pile_is_json_lines_with_its_own_splits(tmp_path: Path, home: Path) -> None:
    (tmp_path / "train").mkdir()
    for name in ("train/00.jsonl", "train/01.jsonl", "val.jsonl", "test.jsonl"):
        (tmp_path / name).write_text(f'{{"text": "from {name}", "meta": {{}}}}\n' * 3)
    prepared = prepare("pile", home, origin=tmp_path, settings=Preparation(vocab_size=300))
    tokenizer, split = prepared.tokenizer(), prepared.splits["train"]
    documents = [split.tokens[split.starts[number] : split.starts[number + 1]] for number in range(6)]
    assert [tokenizer.decode(document) for document in documents[::3]] == ["from train/00.jsonl", "from train/01.jsonl"]
    assert all(document[-1] == tokenizer.eos for document in documents)


def test_the_splits_of_the_standard_library_share_no_file_and_mix_the_packages() -> None:
    corpus = standard_library(Shares())
    files = {split: {part.path for part in parts} for split, parts in corpus.splits.items()}
    assert sum(map(len, files.values())) == len(corpus.files())
    names = {path.relative_to(corpus.root).as_posix() for path in corpus.files()}
    assert {"argparse.py", "json/decoder.py", "pydoc_data/topics.py"} <= names
    assert not [name for name in names if "site-packages" in name or name.startswith("test/")]
    sizes = {split: sum(part.size for part in parts) for split, parts in corpus.splits.items()}
    assert sizes["train"] > 5_000_000
    assert min(sizes.values()) > 100_000
    # Neighbours are seldom of one package, and the order is the same each time.
    folders = [part.path.parent for part in corpus.splits["train"]]
    assert sum(folder == next_ for folder, next_ in pairwise(folders)) < len(folders) / 2
    assert standard_library(Shares()) == corpus


def test_an_installation_without_source_is_reported(tmp_path: Path) -> None:
    (tmp_path / "os.py").write_text("x = 1\n")
    with pytest.raises(NotFound, match="has no source of its standard library"):
        standard_library(Shares(), tmp_path)
