"""Named data sets: names of files, and the published counts and hashes that the files must have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.common.validation import existing
from edgefront.core.data.prepared.prepared import SPLITS
from edgefront.core.data.sources.corpus import Corpus, Parts, character_start, common_line_count
from edgefront.core.data.sources.text import FilePart, Form, Unit
from edgefront.core.data.tokenizers.tokenizers import Level


@dataclass(frozen=True)
class Published:
    """Published counts of a data set. A file with other counts is damaged or belongs to another data set."""

    bytes: int | None = None
    md5: str | None = None
    files: Mapping[str, int] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)
    words: Mapping[str, int] = field(default_factory=dict)
    """Number of words and ends of lines of each split."""
    vocabulary: int | None = None
    """Number of words in the vocabulary."""


@dataclass(frozen=True)
class DataSet:
    """A named data set. `files` maps each split to patterns of file names."""

    name: str
    title: str
    origin: str
    """Origin of the files, in words, for messages."""
    level: Level
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sources: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cuts: tuple[int, int] | None = None
    """Byte offsets at which the single file of `train` is cut into splits."""
    unit: Unit = "document"
    form: Form = "text"
    vocab_size: int | None = None
    vocabulary: str | None = None
    """Name of the vocabulary file."""
    alphabet: Literal["all", "seen"] = "all"
    archives: tuple[str, ...] = ()
    """URLs from which the files can be downloaded."""
    published: Published = Published()
    built_in: bool = False
    languages: tuple[str, ...] = ()
    """ISO 639-1 codes of the languages, or `code`. For parallel text the source language is first."""
    licence: str | None = None
    """Licence that the publishers give the text; None if there is no licence or there are several."""
    hub: str | None = None
    """Name of the data set on the Hugging Face Hub."""

    def find(self, folder: Path, level: Level) -> Corpus:
        """Finds the data set's text in a folder or subfolders. With level `bytes` splits may begin inside a character.

        Raises:
            NotFound: a file is missing; the error names the expected files.
            InvalidInput: a file has another size, number of lines or MD5 than published.
        """
        if folder.is_file():
            folder = folder.parent
        if not folder.is_dir():
            raise NotFound(f"there is no folder {folder}: {self.expected_files()}")
        splits = {split: self._parts(folder, split, patterns) for split, patterns in self.files.items()}
        sources = {split: self._parts(folder, split, patterns) for split, patterns in self.sources.items()}
        for split in self.sources:
            target = splits[split][0].path
            lines = common_line_count(sources[split][0].path, target)
            self._check_file("lines", target, lines, self.published.lines.get(split, lines))
        if self.cuts is not None:
            path, is_bytes = splits["train"][0].path, level == "bytes"
            cuts = (cut if is_bytes else character_start(path, cut) for cut in self.cuts)
            edges = pairwise((0, *cuts, path.stat().st_size))
            splits = {
                split: (FilePart(path, start, stop, splits_characters=is_bytes),)
                for split, (start, stop) in zip(SPLITS, edges, strict=True)
            }
        return Corpus(self.name, folder, splits, sources, self.form)

    def expected_files(self) -> str:
        """Describes the files that the user has to provide."""
        if self.built_in:
            return f"{self.name} is built in"
        patterns = ", ".join(" or ".join(names) for names in (*self.files.values(), *self.sources.values()))
        also = f", {self.vocabulary}" if self.vocabulary else ""
        return f"{self.name} is made from {patterns}{also} ({self.origin})"

    def vocabulary_in(self, folder: Path) -> Path | None:
        """Path of the vocabulary file; None if the data set needs no file. Raises `NotFound` if the file is missing."""
        if self.vocabulary is None:
            return None
        path = next(_matching(folder.parent if folder.is_file() else folder, self.vocabulary), None)
        if path is None:
            raise NotFound(f"there is no {self.vocabulary} in {folder}: {self.expected_files()}")
        return path

    def _parts(self, folder: Path, split: str, patterns: tuple[str, ...]) -> Parts:
        for pattern in patterns:
            paths = sorted(_matching(folder, pattern))
            if not paths:
                continue
            published = self.published.files.get(split, len(paths))
            if len(paths) != published:
                raise self.wrong(paths[0].parent, f"{paths[0].parent} has {len(paths)} of {published} files {pattern}")
            parts = tuple(FilePart.whole(path) for path in paths)
            for part in parts:
                if part.size == 0:
                    raise self.wrong(part.path, f"{part.path} is empty")
                if self.published.bytes is not None:
                    self._check_file("bytes", part.path, part.size, self.published.bytes)
            return parts
        raise NotFound(f"there is no {' or '.join(patterns)} in {folder}: {self.expected_files()}")

    def _check_file(self, what: str, path: Path, actual: int, published: int) -> None:
        if actual != published:
            raise self.wrong(path, f"{path} has {actual:,} {what}, but {self.name} has {published:,}")

    def check(self, what: str, actual: int, published: int | None) -> None:
        """Raises `InvalidInput` if a count differs from the published count."""
        if published is not None and actual != published:
            raise self.wrong(Path(self.name), f"there are {actual:,} {what}, but {self.name} has {published:,}")

    def wrong(self, path: Path, detail: str) -> InvalidInput:
        """Returns the error for a file that differs from the published file."""
        return InvalidInput(
            f"{detail}: it is damaged or of another data set. Download it again ({self.origin}), or give its path",
            field="data",
            value=str(path),
            allowed=f"the files of {self.name} as published",
        )


def _matching(folder: Path, pattern: str) -> Iterator[Path]:
    """Yields the files in the folder that match the pattern; if there are none, the matching files in subfolders."""
    for depth in ("", "*/", "*/*/"):
        paths = [path for path in folder.glob(depth + pattern) if path.is_file()]
        if paths:
            yield from paths
            return


_LM1B = "http://www.statmt.org/lm-benchmark/1-billion-word-language-modeling-benchmark-r13output.tar.gz"
_LM1B_WORDS = "https://github.com/rafaljozefowicz/lm/raw/master/1b_word_vocab.txt"
_HELD_OUT = "heldout-monolingual.tokenized.shuffled/news.en.heldout-0000{}-of-00050"


@cache
def data_sets() -> Mapping[str, DataSet]:
    """Returns every named data set by name."""
    return MappingProxyType({each.name: each for each in _all()})


def data_set(name: str) -> DataSet:
    """Returns the data set of that name. Raises `NotFound`, which lists the existing data sets."""
    if name not in data_sets():
        hint = existing(name, data_sets(), "edgefront data list")
        raise NotFound(f"there is no data set {name!r}; {hint}, or give the path of a text")
    return data_sets()[name]


def _all() -> Iterator[DataSet]:
    yield DataSet(
        name="python",
        title="Python's standard library as it is installed here: its source and the documentation in it",
        origin="built in",
        level="bpe",
        vocab_size=4096,
        built_in=True,
        languages=("code", "en"),
        licence="PSF-2.0",
    )
    yield _wikitext("wikitext-103", "Good and featured articles of Wikipedia by words", 103_227_021, 267_735)
    yield _wikitext("wikitext-2", "A fiftieth of WikiText-103's articles to train on", 2_088_628, 33_278)
    yield _first_100_mb(
        "enwik8",
        "Wikipedia by bytes, markup and all",
        "a1fa5ffddb56f4953e226637dabbb36a",
        hub="LTCB/enwik8",
        level="bytes",
        alphabet="seen",
    )
    yield _first_100_mb(
        "text8",
        "Wikipedia in the letters a to z and spaces",
        "3bea1919949baf155f99411df5fada7e",
        level="characters",
    )
    yield DataSet(
        name="lm1b",
        title="One billion words of news in shuffled sentences",
        origin=f"{_LM1B}, unpacked, and {_LM1B_WORDS} in the same folder",
        archives=(_LM1B, _LM1B_WORDS),
        level="words",
        unit="line",
        files={
            "train": ("training-monolingual.tokenized.shuffled/news.en-*-of-00100",),
            # By custom the first held-out file is the test split (Jozefowicz et al. 2016, §4).
            "valid": (_HELD_OUT.format(1),),
            "test": (_HELD_OUT.format(0),),
        },
        vocabulary="1b_word_vocab.txt",
        published=Published(files={"train": 99}, vocabulary=793_471),
        languages=("en",),
        hub="billion-word-benchmark/lm1b",
    )
    yield DataSet(
        name="pile",
        title="The Pile, or anything in its form: JSON lines with a field text",
        origin="https://pile.eleuther.ai, each .jsonl.zst unpacked",
        level="bpe",
        vocab_size=50_272,
        form="jsonl",
        files={
            "train": ("train/*.jsonl", "train.jsonl"),
            "valid": ("val.jsonl", "valid.jsonl", "validation.jsonl"),
            "test": ("test.jsonl",),
        },
        languages=("en",),
        hub="EleutherAI/pile",
    )
    yield DataSet(
        name="iwslt14",
        title="German to English talks, 160 thousand sentences",
        origin="the folder tmp that fairseq's examples/translation/prepare-iwslt14.sh makes: tokenised, lower case",
        level="bpe",
        unit="line",
        vocab_size=10_000,
        files={split: (f"{split}.en",) for split in ("train", "valid", "test")},
        sources={split: (f"{split}.de",) for split in ("train", "valid", "test")},
        published=Published(lines={"train": 160_239, "valid": 7_283, "test": 6_750}),
        languages=("de", "en"),
        licence="CC BY-NC-ND",
    )


def _wikitext(name: str, title: str, words: int, vocabulary: int) -> DataSet:
    address = f"https://wikitext.smerity.com/{name}-v1.zip"
    return DataSet(
        name=name,
        title=title,
        origin=f"{address}, unpacked",
        archives=(address,),
        level="words",
        unit="line",
        files={split: (f"wiki.{split}.tokens", f"{split}.txt") for split in ("train", "valid", "test")},
        published=Published(words={"train": words, "valid": 217_646, "test": 245_569}, vocabulary=vocabulary),
        languages=("en",),
        licence="CC BY-SA 3.0 and GFDL",
        hub="Salesforce/wikitext",
    )


def _first_100_mb(name: str, title: str, md5: str, **settings: Any) -> DataSet:
    """Returns a data set of one of Mahoney's 100 MB files, with the papers' splits of 90, 5 and 5 million bytes."""
    address = f"http://mattmahoney.net/dc/{name}.zip"
    return DataSet(
        name=name,
        title=title,
        origin=f"{address}, unpacked",
        archives=(address,),
        files={"train": (name,)},
        cuts=(90_000_000, 95_000_000),
        published=Published(bytes=100_000_000, md5=md5),
        languages=("en",),
        licence="GFDL",
        **settings,
    )
