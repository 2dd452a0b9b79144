"""Finds the text of each split: files of the user, files in a folder, or Python's standard library."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.common.files import sha256
from edgefront.core.data.prepared.prepared import SPLITS
from edgefront.core.data.sources.text import FilePart, Form

Parts = tuple[FilePart, ...]

_SPLIT_NAMES = {
    "train": "train",
    "valid": "valid",
    "validation": "valid",
    "val": "valid",
    "dev": "valid",
    "test": "test",
}
_JSON_LINES = (".jsonl", ".ndjson")
_LOOKED_AT = 1 << 20
"""Number of bytes that are read together and searched for the end of a line."""


@dataclass(frozen=True)
class Shares:
    """Percentages of a text without splits that become the validation and test splits; the rest is for training."""

    valid: int = 5
    test: int = 5

    def __post_init__(self) -> None:
        if min(self.valid, self.test) < 1 or self.valid + self.test > 90:
            raise InvalidInput(
                f"{self.valid} % for validation and {self.test} % for the test are not possible",
                field="shares",
                value=[self.valid, self.test],
                allowed="each at least 1, and together at most 90",
            )


@dataclass(frozen=True)
class Corpus:
    """Files that contain the text of each split. `sources` contain the texts to translate."""

    name: str
    root: Path
    splits: Mapping[str, Parts]
    sources: Mapping[str, Parts] = field(default_factory=dict)
    form: Form = "text"

    def files(self) -> list[Path]:
        """Returns every file once, sorted by name."""
        sides = (*self.splits.values(), *self.sources.values())
        return sorted({part.path for parts in sides for part in parts})


_EXCLUDED = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
"""Folders that are left out: other packages, and tests, which are more than half of the standard library."""


def standard_library(shares: Shares, root: Path | None = None) -> Corpus:
    """Returns the source of Python's standard library. A file's hash decides its split and its order in the split.

    Files in the order of their names would give each row of a short training only files of a single package. Raises
    `NotFound` if the Python installation has no source files.
    """
    root = Path(root or sysconfig.get_path("stdlib"))
    files = []
    for path in sorted(root.rglob("*.py"), key=Path.as_posix):
        if not _EXCLUDED.intersection(path.relative_to(root).parts) and path.stat().st_size:
            with suppress(UnicodeDecodeError):  # a few files declare another encoding
                path.read_text(encoding="utf-8")
                files.append(path)
    splits = split_by_hash(sorted(files, key=sha256), shares)
    if splits is None:
        raise NotFound(f"the Python installation in {root} has no source of its standard library, or too little of it")
    return Corpus("python", root, splits)


def at_path(path: Path, shares: Shares) -> Corpus:
    """Returns the text of a file or of all files in a folder.

    Files or folders named `train`, `valid` (or `validation`, `val`, `dev`) and `test` in a folder are the splits.
    Otherwise the first 90 % of a text (by default) are for training, the next 5 % for validation and the last 5 % for
    the test. In a folder of many files, the hash of a file's content decides the file's split.

    Raises:
        NotFound: the file or folder does not exist.
        InvalidInput: the file or folder is empty; a link leads out of the folder; text and JSON lines are mixed.
    """
    if not path.exists():
        raise NotFound(f"there is no file or folder {path}")
    name = _data_set_name(path.absolute().name)
    if not path.is_dir():
        if not path.is_file():
            raise _invalid(
                path, f"{path} is a pipe or a device, but the text is read more than once. Save it as a file first"
            )
        return Corpus(name, path.parent, split_at_lines(path, shares), form=_form(path, [path]))
    files = _within(path)
    named = _named_splits(path, files)
    if named is not None:
        form = _form(path, [file for paths in named.values() for file in paths])
        parts = {split: tuple(FilePart.whole(file) for file in paths) for split, paths in named.items()}
        return Corpus(name, path, parts, form=form)
    form = _form(path, files)
    splits = split_by_hash(files, shares)
    if splits is None:
        pieces = [split_at_lines(file, shares) for file in files]
        splits = {split: tuple(part for piece in pieces for part in piece[split]) for split in SPLITS}
    return Corpus(name, path, splits, form=form)


def parallel(source: Path, target: Path, shares: Shares) -> Corpus:
    """Returns the text of two files with corresponding lines. Raises `InvalidInput` if the numbers of lines differ."""
    for path in (source, target):
        if not path.is_file():
            raise NotFound(f"there is no file {path}")
    count = common_line_count(source, target)
    if count < len(SPLITS):
        raise _invalid(source, f"{source} has {count} lines: too few for {', '.join(SPLITS)}")
    stops = _stops(count, shares)
    target_splits, source_splits = (_split_after_lines(path, stops) for path in (target, source))
    return Corpus(_data_set_name(target.name), target.parent, target_splits, sources=source_splits)


def common_line_count(source: Path, target: Path) -> int:
    """Returns the number of lines of each of the two files. Raises `InvalidInput` if the numbers differ."""
    lines, other = count_lines(source), count_lines(target)
    if lines != other:
        raise _invalid(target, f"{source} has {lines:,} lines, but {target} has {other:,}; the numbers must be equal")
    return lines


def count_lines(path: Path) -> int:
    """Counts the lines of a file. The final line may lack a line feed."""
    count, last = 0, b"\n"
    with path.open("rb") as file:
        while block := file.read(_LOOKED_AT):
            count, last = count + block.count(b"\n"), block[-1:]
    return count + (last != b"\n")


def split_at_lines(path: Path, shares: Shares) -> dict[str, Parts]:
    """Cuts one file into splits at the ends of lines."""
    size = path.stat().st_size
    if size == 0:
        raise _invalid(path, f"{path} is empty")
    valid, test = (_line_end(path, at, size) for at in _stops(size, shares))
    return {
        "train": (FilePart(path, 0, valid),),
        "valid": (FilePart(path, valid, test),),
        "test": (FilePart(path, test, size),),
    }


def split_by_hash(files: Sequence[Path], shares: Shares) -> dict[str, Parts] | None:
    """Assigns each file to a split by the hash of its content. Returns None if a split would be empty."""
    splits: dict[str, list[FilePart]] = {split: [] for split in SPLITS}
    for path in files:
        percentile = int(sha256(path)[:8], 16) % 100
        split = "test" if percentile < shares.test else "valid" if percentile < shares.test + shares.valid else "train"
        splits[split].append(FilePart.whole(path))
    return {split: tuple(parts) for split, parts in splits.items()} if all(splits.values()) else None


def _within(folder: Path) -> list[Path]:
    """Returns the files of a folder and its subfolders, sorted by name, except hidden and empty files."""
    inside = folder.resolve()
    paths = []
    for path in sorted(folder.rglob("*")):
        if any(part.startswith(".") for part in path.relative_to(folder).parts) or not path.is_file():
            continue
        if not path.resolve().is_relative_to(inside):
            raise _invalid(path, f"{path} is a link that leads out of {folder}")
        if path.stat().st_size:
            paths.append(path)
    if not paths:
        raise _invalid(folder, f"there is no text in {folder}")
    return paths


def _named_splits(folder: Path, files: Sequence[Path]) -> dict[str, list[Path]] | None:
    """Assigns files to splits by their names. Returns None if no file or folder is named `train`."""
    by_split: dict[str, list[Path]] = {}
    for path in files:
        first = path.relative_to(folder).parts[0].partition(".")[0].lower()
        if first in _SPLIT_NAMES:
            by_split.setdefault(_SPLIT_NAMES[first], []).append(path)
    if "train" not in by_split:
        return None
    if "valid" not in by_split:
        raise _invalid(folder, f"{folder} has text named train but no text named valid")
    return {split: by_split[split] for split in SPLITS if split in by_split}


def _form(place: Path, files: Sequence[Path]) -> Form:
    lines = [path.suffix.lower() in _JSON_LINES for path in files]
    if any(lines) and not all(lines):
        raise _invalid(place, f"{place} has both text and JSON lines: prepare them separately")
    return "jsonl" if all(lines) else "text"


def _stops(size: int, shares: Shares) -> tuple[int, int]:
    return size * (100 - shares.valid - shares.test) // 100, size * (100 - shares.test) // 100


def _line_end(path: Path, at: int, size: int) -> int:
    """Returns the offset of the end of the line at byte `at`; in a very long line, the next start of a character."""
    with path.open("rb") as file:
        file.seek(max(at - 1, 0))
        block = file.read(_LOOKED_AT)
        end = block.find(b"\n")
        if end >= 0:
            return min(max(at - 1, 0) + end + 1, size)
    return character_start(path, at)


def character_start(path: Path, at: int) -> int:
    """Returns the offset of the first byte at or after `at` that begins a character."""
    with path.open("rb") as file:
        file.seek(at)
        block = file.read(4)
    return at + next((place for place, byte in enumerate(block) if not 0x80 <= byte < 0xC0), len(block))


def _split_after_lines(path: Path, stops: tuple[int, int]) -> dict[str, Parts]:
    offsets, offset = [0], 0
    with path.open("rb") as file:
        for number, line in enumerate(file):
            if number in stops:
                offsets.append(offset)
            offset += len(line)
    return {split: (FilePart(path, *edges),) for split, edges in zip(SPLITS, pairwise((*offsets, offset)), strict=True)}


def _data_set_name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:64] or "text"


def _invalid(path: Path, detail: str) -> InvalidInput:
    return InvalidInput(detail, field="data", value=str(path), allowed="UTF-8 text, or a folder of it")
