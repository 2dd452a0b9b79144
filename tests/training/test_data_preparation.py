"""Preparing: what comes out is the text, whole or not at all, and is found again."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from edgefront.core.common.errors import InvalidInput, NotFound, Unavailable
from edgefront.core.data.prepared import preparation, prepared
from edgefront.core.data.prepared.planning import Preparation
from edgefront.core.data.prepared.preparation import prepare
from edgefront.core.data.prepared.prepared import MANIFEST, Prepared, Split, find_prepared, open_prepared, prepared_in
from edgefront.core.data.tokenizers.bpe import BPETokenizer

TEXT = "".join(f"This is line {number}, and — “é漢🙂” — more of it.\n\n" for number in range(300))


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "some text.txt"
    path.write_text(TEXT, encoding="utf-8")
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def words_of(split: Split, prepared: Prepared) -> str:
    return prepared.tokenizer().decode(split.tokens)


@pytest.mark.parametrize("level", ["bytes", "characters", "bpe", "words"])
@pytest.mark.parametrize("unit", ["document", "line"])
def test_the_splits_together_are_the_text(text: Path, home: Path, level: str, unit: str) -> None:
    chosen = {"level": level, "unit": unit} | ({"vocab_size": 400} if level == "bpe" else {})
    prepared = prepare(str(text), home, settings=Preparation.parse(chosen))
    assert prepared.name == "some-text.txt"
    parts = [prepared.splits[split] for split in ("train", "valid", "test")]
    read = "".join(words_of(split, prepared) for split in parts)
    if level == "words":
        seen = set("".join(words_of(parts[0], prepared)).split())
        wanted = " ".join(word if word in seen else "<unk>" for word in TEXT.split())
        assert read.split() == wanted.split()
        assert [split.words for split in parts] == [len(split.tokens) for split in parts]
    elif level == "bpe" and unit == "line":
        assert read == TEXT.replace("\n", "")
    else:
        assert read == TEXT
    assert sum(split.characters for split in parts) == len(TEXT)
    assert sum(split.bytes for split in parts) == len(TEXT.encode())
    assert sum(split.words for split in parts) == len(TEXT.split()) + TEXT.count("\n")
    assert sum(len(split.starts) - 1 for split in parts) == (600 if unit == "line" else 3)
    assert parts[0].bytes == pytest.approx(0.9 * len(TEXT.encode()), rel=0.02)
    assert parts[0].tokens.dtype.itemsize == (2 if level == "bpe" or prepared.vocab_size > 256 else 1)


def test_each_line_starts_where_it_says(text: Path, home: Path) -> None:
    prepared = prepare(str(text), home, settings=Preparation(level="bpe", unit="line", vocab_size=300))
    split, tokenizer = prepared.splits["valid"], prepared.tokenizer()
    lines = [split.tokens[start:stop].tolist() for start, stop in zip(split.starts[:-1], split.starts[1:], strict=True)]
    assert all(line[-1] == tokenizer.eos for line in lines)
    wanted = TEXT.encode()[prepared.splits["train"].bytes :][: split.bytes].decode().removesuffix("\n").split("\n")
    assert [tokenizer.decode(line) for line in lines] == wanted


def test_prepared_data_is_reused(text: Path, home: Path) -> None:
    phases: list[str] = []
    settings = Preparation(level="characters")
    first = prepare(str(text), home, settings=settings, progress=lambda phase, done, total: phases.append(phase))
    assert set(phases) == {"reading", "waiting", "vocabulary", "encoding"}
    before = {path: path.stat().st_mtime_ns for path in first.folder.rglob("*")}
    phases.clear()
    again = prepare(str(text), home, settings=settings, progress=lambda phase, done, total: phases.append(phase))
    assert set(phases) == {"reading", "checking"}
    assert again.folder == first.folder == home / first.digest
    assert before == {path: path.stat().st_mtime_ns for path in again.folder.rglob("*")}
    others = [prepare(str(text), home, settings=Preparation(level="bytes")).folder]
    text.write_text(TEXT + "!", encoding="utf-8")
    others.append(prepare(str(text), home, settings=settings).folder)
    assert len({first.folder, *others}) == 3
    assert len(list(prepared_in(home))) == 3
    assert find_prepared(home, first.digest[:8]).digest == first.digest
    assert find_prepared(home, str(first.folder)).digest == first.digest
    with pytest.raises(InvalidInput, match=r"several prepared data sets are called 'some-text.txt'"):
        find_prepared(home, "some-text.txt")
    for name in ("other", "../" + first.digest, "abc"):
        with pytest.raises(NotFound, match="no data set"):
            find_prepared(home, name)


def cut_short(folder: Path) -> str:
    os.truncate(folder / "train.tokens", 10)
    return r"train.tokens has 10 bytes instead of"


def drop(folder: Path) -> str:
    (folder / "valid.starts").unlink()
    return "valid.starts is missing"


def break_manifest(folder: Path) -> str:
    (folder / MANIFEST).write_text("{")
    return "not JSON"


def other_format(folder: Path) -> str:
    content = json.loads((folder / MANIFEST).read_text()) | {"format": 99}
    (folder / MANIFEST).write_text(json.dumps(content))
    return "its format is 99, but this program reads format 1"


def lead_outside(folder: Path) -> str:
    content = json.loads((folder / MANIFEST).read_text())
    content["splits"]["train"]["tokens"]["name"] = "../../secret"
    (folder / MANIFEST).write_text(json.dumps(content))
    return "splits.train.tokens.name"


def change(folder: Path) -> str:
    file = folder / "test.tokens"
    file.write_bytes(b"!" + file.read_bytes()[1:])
    return "test.tokens has changed since it was written"


@pytest.mark.parametrize("harm", [change, cut_short, drop, break_manifest, other_format, lead_outside])
def test_damage_is_named_and_prepared_again(text: Path, home: Path, harm: Callable[[Path], str]) -> None:
    folder = prepare(str(text), home, settings=Preparation(level="bytes")).folder
    said = harm(folder)
    if harm is change:
        open_prepared(folder)  # sizes alone are looked at unless it is verified
    with pytest.raises(InvalidInput, match=said) as caught:
        open_prepared(folder, verify=True)
    assert "prepare it again" in caught.value.detail
    again = prepare(str(text), home, settings=Preparation(level="bytes"))
    assert again.folder == folder
    open_prepared(folder, verify=True)
    with pytest.raises(NotFound, match="is not a prepared data set"):
        open_prepared(home)


KILLED = """
import os, signal, sys, time
from pathlib import Path
from edgefront.core.data.prepared.planning import Preparation
from edgefront.core.data.prepared.preparation import prepare

def stop(phase, done, total):
    if phase == sys.argv[3]:
        print("there", flush=True)
        time.sleep(60)

prepare(sys.argv[1], Path(sys.argv[2]), settings=Preparation(level="words"), progress=stop)
"""


@pytest.mark.parametrize("phase", ["vocabulary", "encoding"])
def test_a_killed_preparation_leaves_no_folder_that_counts_as_complete(text: Path, home: Path, phase: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(text), str(home), phase], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "there\n"
        child.send_signal(signal.SIGKILL)
    assert any(path.name.startswith(".preparing-") for path in home.iterdir())
    assert list(prepared_in(home)) == []
    prepared = prepare(str(text), home, settings=Preparation(level="words"))
    open_prepared(prepared.folder, verify=True)
    assert [path.name for path in home.iterdir() if path.is_dir()] == [prepared.digest]


AT_ONCE = """
import sys
from pathlib import Path
from edgefront.core.data.prepared.planning import Preparation
from edgefront.core.data.prepared.preparation import prepare

phases = set()
print("ready", flush=True)
sys.stdin.readline()
found = prepare(sys.argv[1], Path(sys.argv[2]), settings=Preparation(level="characters"),
                progress=lambda phase, done, total: phases.add(phase))
print(found.folder.name, "encoding" in phases)
"""


def test_the_same_prepared_twice_at_once_is_made_once(text: Path, home: Path) -> None:
    text.write_text(TEXT * 40, encoding="utf-8")
    command = [sys.executable, "-c", AT_ONCE, str(text), str(home)]
    children = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    answers = []
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    for child in children:
        answers.append(child.communicate(timeout=60)[0].split())
        assert child.returncode == 0
    assert len({name for name, _ in answers}) == 1
    assert sum(made == "True" for _, made in answers) == 1
    (folder,) = [path for path in home.iterdir() if path.is_dir()]
    open_prepared(folder, verify=True)


def test_a_full_disk_is_reported_and_leaves_no_partial_file(
    text: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(preparation.os, "fsync", full)
        with pytest.raises(Unavailable, match="the disk is full"):
            prepare(str(text), home)
    assert [path for path in home.iterdir() if path.is_dir()] == []
    prepare(str(text), home)


def test_text_is_streamed(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preparation, "_BATCH", 1 << 16)
    monkeypatch.setattr(preparation, "_BUFFER", 1 << 16)
    for module in (preparation, prepared):
        monkeypatch.setattr(module, "_CHUNK", 1 << 16)
    path = tmp_path / "long.txt"
    path.write_bytes(b"some words to read again and again\n" * 150_000)
    tracemalloc.start()
    try:
        prepare(str(path), home, settings=Preparation(level="bytes"))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < path.stat().st_size / 2


def test_a_folder_is_split_by_whole_files(tmp_path: Path, home: Path) -> None:
    folder = tmp_path / "books"
    for number in range(120):
        path = folder / f"{number % 7}" / f"{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"[{number}] " + "words " * (number % 5 + 1))
    (folder / ".hidden").write_bytes(b"\xff")
    (folder / "empty.txt").touch()
    prepared = prepare(str(folder), home, settings=Preparation(level="bytes"))
    found = {
        split: {part.split("]")[0] for part in words_of(prepared.splits[split], prepared).split("[")[1:]}
        for split in ("train", "valid", "test")
    }
    assert set.union(*found.values()) == {str(number) for number in range(120)}
    assert sum(map(len, found.values())) == 120
    assert len(found["train"]) > 90
    assert sum(len(prepared.splits[split].starts) - 1 for split in found) == 120


def test_a_folder_of_few_files_is_cut_within_them(tmp_path: Path, home: Path) -> None:
    folder = tmp_path / "books"
    folder.mkdir()
    for name in "ab":
        (folder / name).write_text("".join(f"{name} {number}\n" for number in range(200)))
    prepared = prepare(str(folder), home, settings=Preparation(level="bytes", valid_percent=10))
    valid = words_of(prepared.splits["valid"], prepared)
    assert "a 1" in valid
    assert "b 1" in valid
    assert len(valid.splitlines()) == pytest.approx(40, abs=4)


def test_files_named_after_splits_are_those(tmp_path: Path, home: Path) -> None:
    folder = tmp_path / "corpus"
    (folder / "validation").mkdir(parents=True)
    (folder / "train.jsonl").write_text("".join(f'{{"text": "train {number}"}}\n' for number in range(30)))
    (folder / "validation" / "part.jsonl").write_text('{"text": "valid"}\n')
    (folder / "README.md").write_text("not text to train on")
    prepared = prepare(str(folder), home, settings=Preparation(level="bytes"))
    assert set(prepared.splits) == {"train", "valid"}
    assert words_of(prepared.splits["valid"], prepared) == "valid\n"
    assert len(prepared.splits["train"].starts) == 31
    (folder / "validation" / "part.jsonl").unlink()
    with pytest.raises(InvalidInput, match="has text named train but no text named valid"):
        prepare(str(folder), home)


def test_parallel_text_keeps_its_pairs(tmp_path: Path, home: Path) -> None:
    source, target = tmp_path / "a.de", tmp_path / "a.en"
    source.write_text("".join(f"das ist {number}\r\n" for number in range(100)))
    target.write_text("".join(f"this is number {number}\n" for number in range(100)))
    prepared = prepare(str(source), home, target=target, settings=Preparation(level="words"))
    assert prepared.source_vocab_size is not None
    pairs = []
    for split in prepared.splits.values():
        assert split.source is not None
        one, other = prepared.source_tokenizer(), prepared.tokenizer()
        for number in range(len(split.starts) - 1):
            pairs.append(
                tuple(
                    tokenizer.decode(side.tokens[side.starts[number] : side.starts[number + 1]])
                    for side, tokenizer in ((split.source, one), (split, other))
                )
            )
    assert len(pairs) == 100
    assert pairs[5] == ("das ist 5\n", "this is number 5\n")
    assert open_prepared(prepared.folder, verify=True).splits["test"].source is not None
    target.write_text("one\n")
    with pytest.raises(InvalidInput, match=r"a.de has 100 lines, but .*a.en has 1; the numbers must be equal"):
        prepare(str(source), home, target=target)


@pytest.mark.parametrize(
    ("content", "settings", "said"),
    [
        (b"", {}, "is empty"),
        (b"line\n" * 30 + b"\xff", {}, "is not UTF-8 at byte 150"),
        (b"a", {"level": "bytes"}, "the split train of text has no text"),
        (b"some text\n" * 30, {"level": "bytes", "vocab_size": 9}, "level bytes cannot have vocab_size"),
        (b"some text\n" * 30, {"vocab_size": 100}, "vocab_size must be at least 261"),
        (b"some text\n" * 30, {"valid_percent": 50, "test_percent": 50}, "together at most 90|are not possible"),
        (b"some text\n" * 30, {"vocabulary": "/nowhere/words.txt"}, "there is no file /nowhere/words.txt"),
    ],
)
def test_invalid_preparations_are_reported_and_leave_no_files(
    tmp_path: Path, home: Path, content: bytes, settings: dict[str, object], said: str
) -> None:
    path = tmp_path / "text"
    path.write_bytes(content)
    with pytest.raises((InvalidInput, NotFound), match=said):
        prepare(str(path), home, settings=Preparation.parse(settings))
    assert not home.exists() or not [folder for folder in home.iterdir() if folder.is_dir()]


def refusing_training(cls: type[BPETokenizer], texts: Iterator[str], vocab_size: int) -> BPETokenizer:
    raise AssertionError("a tokenizer was trained")


@pytest.mark.parametrize(
    ("files", "settings", "said"),
    [
        # One line, however long, has no end at which it could be cut.
        ({"train.txt": "text\n", "valid.txt": "\ufeff", "test.txt": "text\n"}, {}, "valid of corpus has no text"),
        ({"one.txt": "ACGT" * 1000 + "\n"}, {}, "valid of corpus has no text"),
        ({"train.jsonl": '{"text": "a"}\n', "valid.jsonl": '{"text": ""}\n'}, {}, "valid of corpus has no text"),
        ({"train.jsonl": '{"text": "a"}\n', "valid.jsonl": '{"txt": "a"}\n'}, {}, "1 of .*valid.jsonl is missing"),
        ({"train.txt": "text\n", "valid.txt": "text\n\udcff"}, {}, "valid.txt is not UTF-8 at byte 5"),
        ({"train.txt": "text\n" * 30, "valid.txt": "text\n"}, {"vocab_size": 260}, "vocab_size must be at least 261"),
    ],
)
def test_what_is_cheap_to_refuse_is_refused_before_a_tokenizer_is_trained(
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    files: dict[str, str],
    settings: dict[str, object],
    said: str,
) -> None:
    monkeypatch.setattr(BPETokenizer, "train", classmethod(refusing_training))
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InvalidInput, match=said):
        prepare(str(folder), home, settings=Preparation.parse(settings))


@pytest.mark.parametrize("level", ["bpe", "words"])
def test_a_given_vocabulary_is_refused_before_the_text_is_read(text: Path, home: Path, level: str) -> None:
    wrong = text.with_name("tokenizer.json")
    wrong.write_text("{}")
    phases: list[str] = []
    settings = Preparation.parse({"level": level, "vocabulary": str(wrong)})
    with pytest.raises(InvalidInput, match=r"tokenizer\.json"):
        prepare(str(text), home, settings=settings, progress=lambda phase, done, total: phases.append(phase))
    assert phases == []


def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, home: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "link.txt").symlink_to(tmp_path / "secret")
    with pytest.raises(InvalidInput, match=r"link.txt is a link that leads out of"):
        prepare(str(folder), home)


def test_a_given_vocabulary_of_pieces_belongs_to_the_digest(text: Path, home: Path) -> None:
    own = prepare(str(text), home, settings=Preparation(vocab_size=300))
    given = prepare(str(text), home, settings=Preparation(vocabulary=str(own.folder / "tokenizer.json")))
    assert given.digest != own.digest
    assert np.array_equal(given.splits["train"].tokens, own.splits["train"].tokens)
    assert "tokenizer.json" in {original.name for original in given.manifest.originals}
