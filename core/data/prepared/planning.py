"""Plans the preparation of a data set from the user's settings and the data set's entry in the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from edgefront.core.common.canonical import digest
from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.common.validation import checked
from edgefront.core.data.prepared.prepared import FORMAT, OriginalFile
from edgefront.core.data.sources.corpus import Corpus, Parts, Shares, at_path, parallel, standard_library
from edgefront.core.data.sources.data_set import DataSet, data_set, data_sets
from edgefront.core.data.sources.text import TextFormat, Unit
from edgefront.core.data.tokenizers.tokenizers import Level, Tokenizer, WordTokenizer

DEFAULT_VOCAB_SIZE = 8192
"""Default vocabulary size of byte-pair encoding."""

_Percent = Annotated[StrictInt, Field(ge=1, le=89)]


class Preparation(BaseModel):
    """Settings by which a data set is prepared. None selects the data set's default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    level: Level | None = None
    """Kind of tokens. The default for a text given by path is bpe."""
    vocab_size: Annotated[StrictInt, Field(ge=3, le=1 << 31)] | None = None
    """Size of the vocabulary: the number of most frequent words, or of learnt bpe tokens."""
    vocabulary: str | None = None
    """Path of a vocabulary file: one word per line, or for bpe a Hugging Face tokenizer.json."""
    unit: Unit | None = None
    """Unit that the task sentences shuffles: lines, or documents (files, JSON objects)."""
    field: Annotated[str, Field(min_length=1, max_length=200)] = "text"
    """Name of the field that contains the text in JSON lines."""
    valid_percent: _Percent = 5
    test_percent: _Percent = 5
    """Percentages for validation and test of a text without splits."""

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Preparation:
        """Reads the settings from JSON. Raises `InvalidInput`, which names the first wrong field."""
        return checked(cls, value)


@dataclass(frozen=True)
class PreparationPlan:
    """Plan by which a data set is prepared: every setting has a value."""

    corpus: Corpus
    text_format: TextFormat
    level: Level
    vocab_size: int | None
    vocabulary: Path | None
    given: Tokenizer | None
    """The tokenizer in `vocabulary`."""
    alphabet: str
    catalogued: DataSet | None
    own_vocabulary: bool
    """Whether the user gives the vocabulary's size or file, so that the vocabulary differs from the published one."""

    @classmethod
    def make(
        cls, data: str | DataSet, origin: Path | None, target: Path | None, settings: Preparation
    ) -> PreparationPlan:
        catalogued = data if isinstance(data, DataSet) else data_sets().get(data)
        if catalogued is not None and target is not None:
            raise InvalidInput(f"{catalogued.name} contains its translation", field="target", value=str(target))
        if catalogued is None and origin is not None:
            catalogued = data_set(str(data))  # its error lists the data sets
        level = settings.level or (catalogued.level if catalogued else "bpe")
        shares = Shares(settings.valid_percent, settings.test_percent)
        if catalogued is None:
            path = Path(str(data)).expanduser()
            if not path.exists():
                raise NotFound(
                    f"there is neither a data set nor a file or folder {str(data)!r}; the data sets are "
                    f"{', '.join(data_sets())}"
                )
            corpus = at_path(path, shares) if target is None else parallel(path, target, shares)
        elif catalogued.built_in:
            corpus = standard_library(shares)
        elif origin is None:
            raise InvalidInput(
                f"name the folder that has the files of {catalogued.name} (--from): {catalogued.expected_files()}",
                field="from",
                allowed="a folder",
            )
        else:
            corpus = catalogued.find(origin.expanduser(), level)
        unit = settings.unit or (catalogued.unit if catalogued else "line" if corpus.sources else "document")
        _check(level, unit, corpus, settings)
        is_published_level = catalogued is not None and level == catalogued.level
        vocabulary = Path(settings.vocabulary) if settings.vocabulary else None
        if (
            catalogued is not None
            and is_published_level
            and origin is not None
            and vocabulary is None
            and level == "words"
        ):
            vocabulary = catalogued.vocabulary_in(origin)
        vocab_size = settings.vocab_size
        if level == "bpe" and vocab_size is None and vocabulary is None:
            vocab_size = (catalogued.vocab_size if catalogued else None) or DEFAULT_VOCAB_SIZE
        given: Tokenizer | None = None
        if vocabulary and level == "words":
            given = WordTokenizer.from_file(vocabulary, settings.vocab_size)
        elif level == "bpe":
            from edgefront.core.data.tokenizers.bpe import BPETokenizer, check_size

            given = BPETokenizer.from_file(vocabulary) if vocabulary else None
            if vocab_size is not None:
                check_size(vocab_size)
        return cls(
            corpus=corpus,
            text_format=TextFormat(corpus.form, unit, settings.field),
            level=level,
            vocab_size=vocab_size,
            vocabulary=vocabulary,
            given=given,
            alphabet=catalogued.alphabet if catalogued is not None and is_published_level else "all",
            catalogued=catalogued,
            own_vocabulary=settings.vocab_size is not None or settings.vocabulary is not None,
        )

    def digest(self, originals: Mapping[Path, OriginalFile]) -> str:
        """Returns a digest of the original files, the settings and the format of the prepared data set."""
        vocabulary: Any = None
        if self.vocabulary is not None:
            vocabulary = originals[self.vocabulary].sha256
            # The configuration beside the tokenizer's file, such as a token that begins every document.
            if self.given is not None and self.given.config_fields:
                vocabulary = [vocabulary, self.given.config_fields]

        def hashes(parts: Parts) -> list[Any]:
            return [[originals[part.path].sha256, part.start, part.stop] for part in parts]

        return digest(
            {
                "format": FORMAT,
                "name": self.corpus.name,
                "settings": self.public(),
                "vocabulary": vocabulary,
                # The published counts with which the text was compared.
                "published": asdict(self.catalogued.published) if self.catalogued else None,
                "splits": {split: hashes(parts) for split, parts in self.corpus.splits.items()},
                "sources": {split: hashes(parts) for split, parts in self.corpus.sources.items()},
            }
        )

    def public(self) -> dict[str, Any]:
        """Returns the settings that the manifest stores."""
        settings: dict[str, Any] = {"level": self.level, "unit": self.text_format.unit}
        if self.vocab_size is not None:
            settings["vocab_size"] = self.vocab_size
        if self.level == "bytes":
            settings["alphabet"] = self.alphabet
        if self.corpus.form == "jsonl":
            settings["field"] = self.text_format.field
        return settings


def _check(level: Level, unit: Unit, corpus: Corpus, settings: Preparation) -> None:
    if level not in ("words", "bpe"):
        for field in ("vocab_size", "vocabulary"):
            if getattr(settings, field) is not None:
                raise InvalidInput(
                    f"level {level} cannot have {field}; use level words or bpe",
                    field=field,
                    value=getattr(settings, field),
                )
        if corpus.sources:
            raise InvalidInput(
                f"translation needs tokens that end a sentence, which level {level} does not have",
                field="level",
                value=level,
                allowed="words or bpe",
            )
    if level == "bpe" and settings.vocabulary and settings.vocab_size:
        raise InvalidInput("the size of a given tokenizer is fixed", field="vocab_size", value=settings.vocab_size)
    if corpus.sources and (unit != "line" or settings.vocabulary):
        field = "unit" if unit != "line" else "vocabulary"
        raise InvalidInput(
            "parallel text is prepared by lines, with a separate vocabulary for each language", field=field
        )
    if corpus.form == "jsonl" and unit == "line":
        raise InvalidInput("JSON lines are prepared by documents", field="unit", value=unit, allowed="document")
