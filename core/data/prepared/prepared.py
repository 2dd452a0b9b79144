"""Prepared data sets: folders of token ids that training memory-maps, each with a manifest.

    manifest.json        `Manifest`: sizes, SHA-256 and counts; written last
    tokenizer.json …     `core.data.tokenizers.tokenizers`
    train.tokens         the tokens of a split, little-endian, in the smallest fitting type of uint8, uint16, int32
    train.starts         int64 [n + 1]: offset of each of the n lines or documents, and the end

Parallel text also has `train.source.tokens`, `train.source.starts`, and the tokenizer of the source in `source/`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.common.validation import invalid_input
from edgefront.core.data.tokenizers.load import load_tokenizer
from edgefront.core.data.tokenizers.tokenizers import Level, Tokenizer

FORMAT = 1
MANIFEST = "manifest.json"
SOURCE_FOLDER = "source"
SPLITS = ("train", "valid", "test")

Numbers = NDArray[Any]
Progress = Callable[[str, int, int], None]
"""Callback that receives the phase, the bytes processed and the total bytes."""

_CHUNK = 1 << 20


def no_progress(phase: str, done: int, total: int) -> None:
    """A progress callback that does nothing."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


# A manipulated manifest cannot name a file outside the folder.
FileName = Annotated[str, Field(pattern=r"^(source/)?[a-z][a-z_.]*$", max_length=64)]
Count = Annotated[int, Field(ge=0, lt=1 << 62)]


class OriginalFile(_Part):
    """An original file of the data, named relative to the folder of originals."""

    name: str
    bytes: Count
    sha256: str


class StoredFile(OriginalFile):
    """One file of a prepared data set's folder."""

    name: FileName


class StoredSplit(_Part):
    """One split, stored as a file of tokens and a file of offsets."""

    tokens: StoredFile
    starts: StoredFile
    dtype: Literal["|u1", "<u2", "<i4"]
    characters: Count
    words: Count
    bytes: Count
    source: StoredSplit | None = None


class Manifest(_Part):
    """Content of `manifest.json`."""

    format: int
    name: str
    digest: str
    """SHA-256 of the original files' SHA-256, the settings and the format."""
    level: Level
    vocab_size: int
    source_vocab_size: int | None = None
    settings: dict[str, Any]
    originals: tuple[OriginalFile, ...]
    tokenizer: tuple[StoredFile, ...]
    splits: dict[str, StoredSplit]

    def files(self) -> list[StoredFile]:
        """Returns every file of the folder except the manifest."""
        files = list(self.tokenizer)
        for split in self.splits.values():
            for side in (split, split.source):
                if side is not None:
                    files += [side.tokens, side.starts]
        return files


@dataclass(frozen=True, eq=False)
class Split:
    """A split of the data, mapped into memory.

    `tokens` are integers [count]; `starts`, int64 [n + 1], are the offsets of the n lines or documents and of the end.
    `characters`, `words` and `bytes` are sizes of the text, for losses per character or word. `words` is the number of
    words between white space plus the number of ends of lines, as in word-level perplexity (WikiText-103's test split
    has 245,569). `source` is the text to translate, with one line or document per line or document of this split.
    """

    tokens: Numbers
    starts: NDArray[np.int64]
    characters: int
    words: int
    bytes: int
    source: Split | None = None


@dataclass(frozen=True, eq=False)
class Prepared:
    """An opened prepared data set. `source_vocab_size` is None unless the data is parallel text."""

    name: str
    folder: Path
    level: Level
    vocab_size: int
    digest: str
    splits: Mapping[str, Split]
    manifest: Manifest
    source_vocab_size: int | None = None

    def split(self, name: str) -> Split:
        """Returns the split of that name. Raises `InvalidInput`, which lists the existing splits."""
        if name in self.splits:
            return self.splits[name]
        allowed = ", ".join(self.splits)
        raise InvalidInput(
            f"the data set {self.name} has no split {name!r}; it has {allowed}",
            field="split",
            value=name,
            allowed=allowed,
        )

    def tokenizer(self) -> Tokenizer:
        """Returns the tokenizer of the text; for parallel text, the tokenizer of the translation."""
        return load_tokenizer(self.folder)

    def source_tokenizer(self) -> Tokenizer:
        """Returns the tokenizer of the text to translate. Raises `InvalidInput` if the data is not parallel text."""
        if self.source_vocab_size is None:
            raise InvalidInput(f"the data set {self.name} is not parallel text: it has no source", field="data")
        return load_tokenizer(self.folder / SOURCE_FOLDER)


def read_manifest(folder: Path) -> Manifest:
    """Reads the folder's manifest. Raises `NotFound` if the manifest is missing, `InvalidInput` if it is damaged."""
    path = folder / MANIFEST
    try:
        text = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(
            f"{folder} is not a prepared data set: it has no {MANIFEST}; create one with `edgefront data prepare`"
        ) from None
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        raise _damaged(folder, invalid_input(error, InvalidInput).under(MANIFEST).detail) from None
    if manifest.format != FORMAT:
        raise _damaged(folder, f"its format is {manifest.format}, but this program reads format {FORMAT}")
    return manifest


def open_prepared(folder: Path, *, verify: bool = False, progress: Progress = no_progress) -> Prepared:
    """Opens a prepared data set by memory-mapping; takes milliseconds.

    Args:
        verify: whether to compare the SHA-256 of every file.

    Raises:
        NotFound: the folder has no prepared data set.
        InvalidInput: files are missing, of wrong size or (with `verify`) changed; the error names these files.
    """
    manifest = read_manifest(folder)
    faults = list(_wrong_sizes(folder, manifest))
    if not faults and verify:
        faults = _changed_files(folder, manifest, progress)
    if faults:
        raise _damaged(folder, "; ".join(faults))
    return Prepared(
        name=manifest.name,
        folder=folder,
        level=manifest.level,
        vocab_size=manifest.vocab_size,
        digest=manifest.digest,
        splits={name: _mapped(folder, stored) for name, stored in manifest.splits.items()},
        manifest=manifest,
        source_vocab_size=manifest.source_vocab_size,
    )


def _mapped(folder: Path, stored: StoredSplit) -> Split:
    tokens = np.memmap(folder / stored.tokens.name, np.dtype(stored.dtype), "r")
    starts = np.memmap(folder / stored.starts.name, np.dtype("<i8"), "r")
    if starts[0] != 0 or starts[-1] != len(tokens):
        raise _damaged(folder, f"{stored.starts.name} does not belong to {stored.tokens.name}")
    source = None if stored.source is None else _mapped(folder, stored.source)
    if source is not None and len(source.starts) != len(starts):
        raise _damaged(
            folder, f"{stored.starts.name} has {len(starts) - 1:,} units, but its source has {len(source.starts) - 1:,}"
        )
    return Split(tokens, starts, stored.characters, stored.words, stored.bytes, source)


def _wrong_sizes(folder: Path, manifest: Manifest) -> Iterator[str]:
    for file in manifest.files():
        path = folder / file.name
        if not path.exists():
            yield f"{file.name} is missing"
        elif (size := path.stat().st_size) != file.bytes:
            yield f"{file.name} has {size:,} bytes instead of {file.bytes:,}"


def _changed_files(folder: Path, manifest: Manifest, progress: Progress) -> list[str]:
    files, done = manifest.files(), 0
    total = sum(file.bytes for file in files)
    faults = []
    for file in files:
        hashed = hashlib.sha256()
        with (folder / file.name).open("rb") as stream:
            while block := stream.read(_CHUNK):
                hashed.update(block)
                done += len(block)
                progress("checking", done, total)
        if hashed.hexdigest() != file.sha256:
            faults.append(f"{file.name} has changed since it was written: its SHA-256 is {hashed.hexdigest()}")
    return faults


def _damaged(folder: Path, what: str) -> InvalidInput:
    return InvalidInput(
        f"the prepared data in {folder} is damaged: {what}; prepare it again",
        field="data",
        value=str(folder),
        allowed="a folder that `edgefront data prepare` has created",
    )


_FOLDER = re.compile(r"[0-9a-f]{64}")
_PREFIX = re.compile(r"[0-9a-f]{6,64}")


def prepared_in(home: Path) -> Iterator[tuple[Path, Manifest | InvalidInput]]:
    """Yields folder and manifest (an error, if damaged) of every prepared data set in `home`, newest first."""
    folders = [path for path in home.glob("*") if _FOLDER.fullmatch(path.name) and path.is_dir()]
    for folder in sorted(folders, key=lambda path: path.stat().st_mtime_ns, reverse=True):
        try:
            yield folder, open_prepared(folder).manifest
        except NotFound:
            yield folder, InvalidInput(f"{folder} has no {MANIFEST}: prepare it again", field="data")
        except InvalidInput as error:
            yield folder, error


def find_prepared(home: Path, name: str) -> Prepared:
    """Opens the prepared data set whose name, first digits of the digest, or folder is `name`.

    Raises:
        NotFound: there is no such data set.
        InvalidInput: several data sets match, or the data set is damaged.
    """
    matching = {
        folder: "damaged" if isinstance(manifest, InvalidInput) else f"{manifest.level}, {manifest.vocab_size} tokens"
        for folder, manifest in prepared_in(home)
        if (isinstance(manifest, Manifest) and manifest.name == name)
        or (_PREFIX.fullmatch(name) and folder.name.startswith(name))
    }
    if len(matching) > 1:
        choices = ", ".join(f"{folder.name[:12]} ({what})" for folder, what in matching.items())
        raise InvalidInput(
            f"several prepared data sets are called {name!r}: {choices}; name one by its digest",
            field="data",
            value=name,
            allowed="the first digits of a digest",
        )
    if matching:
        return open_prepared(next(iter(matching)))
    if (Path(name) / MANIFEST).is_file():
        return open_prepared(Path(name).absolute())
    raise NotFound(
        f"no data set {name!r} is prepared in {home}; see `edgefront data list` and `edgefront data prepare`"
    )
