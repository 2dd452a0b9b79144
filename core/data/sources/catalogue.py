"""The data sets that are known by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any

from edgefront.core.data.sources.data_set import DataSet, Published
from edgefront.core.errors import NotFound
from edgefront.core.validation import existing

_LM1B = "http://www.statmt.org/lm-benchmark/1-billion-word-language-modeling-benchmark-r13output.tar.gz"
_LM1B_WORDS = "https://github.com/rafaljozefowicz/lm/raw/master/1b_word_vocab.txt"
_HELD_OUT = "heldout-monolingual.tokenized.shuffled/news.en.heldout-0000{}-of-00050"


@cache
def data_sets() -> Mapping[str, DataSet]:
    """All of them, by name."""
    return MappingProxyType({known_set.name: known_set for known_set in _all()})


def data_set(name: str) -> DataSet:
    """The data set of that name; `NotFound` lists the existing ones."""
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
            # The first is the test by custom (Jozefowicz et al. 2016, §4).
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
    """Mahoney's files, in the parts of 90, 5 and 5 million bytes that papers use."""
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
