"""Where the text of each split is: files named by a user, or found in a folder."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from edgefront.core.common.errors import InvalidInput, NotFound
from edgefront.core.common.files import sha256
from edgefront.core.data.prepared.prepared import SPLITS
from edgefront.core.data.sources.text import Part

_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
"""What is not the library's own, and its tests, which are more than half of it."""


def standard_library(shares: Shares, root: Path | None = None) -> Corpus:
    """The source files in the order of the hash of what is in them, each in the split that this hash gives.

    In the order of their names a row of a short training would read one package, tables of character sets perhaps.

    `NotFound` on an installation that has no source.
    """
    root = Path(root or sysconfig.get_path("stdlib"))
    files = [path for path in sorted(root.rglob("*.py"), key=Path.as_posix) if _is_its_own(path, root)]
    splits = by_hash(sorted(files, key=sha256), shares)
    if splits is None:
        raise NotFound(f"the Python installation in {root} has no source of its standard library, or too little of it")
    return Corpus("python", root, splits)


def _is_its_own(path: Path, root: Path) -> bool:
    if _LEFT_OUT.intersection(path.relative_to(root).parts) or not path.stat().st_size:
        return False
    try:
        path.read_text(encoding="utf-8")
    except UnicodeDecodeError:  # a few may declare another encoding
        return False
    return True


Form = Literal["text", "jsonl"]
Parts = tuple[Part, ...]

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
"""Bytes in which the end of a line is looked for."""


@dataclass(frozen=True)
class Shares:
    """How a text that has no splits is cut: percent of it for validation and for the test; the rest is trained on."""

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
    """The text of each split; of parallel text, `sources` are what is translated."""

    name: str
    root: Path
    splits: Mapping[str, Parts]
    sources: Mapping[str, Parts] = field(default_factory=dict)
    form: Form = "text"

    def files(self) -> list[Path]:
        """Every file once, in the order of their names."""
        sides = (*self.splits.values(), *self.sources.values())
        return sorted({part.path for parts in sides for part in parts})


def at_path(path: Path, shares: Shares) -> Corpus:
    """The text of a file or of all files in a folder.

    A folder that has files or folders named `train`, `valid` (or `validation`, `val`, `dev`) and `test` has these
    splits. Otherwise 90 % of a text (by default) is trained on, the next 5 % validate and the last 5 % test; of a
    folder of many files, whole files are taken, chosen by the hash of what is in them, so that the splits share none.

    Raises:
        NotFound: nothing is there.
        InvalidInput: nothing is in it; a link leads out of the folder; text and JSON lines are mixed.
    """
    if not path.exists():
        raise NotFound(f"there is no file or folder {path}")
    name = _plain(path.absolute().name)
    if not path.is_dir():
        if not path.is_file():
            raise _invalid(
                path, f"{path} is not a file, but a pipe or a device, and is read more than once: save it first"
            )
        return Corpus(name, path.parent, cut(path, shares), form=_form(path, [path]))
    files = _within(path)
    named = _named_splits(path, files)
    if named is not None:
        form = _form(path, [file for paths in named.values() for file in paths])
        parts = {split: tuple(Part.whole(file) for file in paths) for split, paths in named.items()}
        return Corpus(name, path, parts, form=form)
    form = _form(path, files)
    splits = by_hash(files, shares)
    if splits is None:
        pieces = [cut(file, shares) for file in files]
        splits = {split: tuple(part for piece in pieces for part in piece[split]) for split in SPLITS}
    return Corpus(name, path, splits, form=form)


def parallel(source: Path, target: Path, shares: Shares) -> Corpus:
    """Two files whose lines correspond. `InvalidInput` where one has more lines than the other."""
    for path in (source, target):
        if not path.is_file():
            raise NotFound(f"there is no file {path}")
    counts = same_lines(source, target)
    if counts < len(SPLITS):
        raise _invalid(source, f"{source} has {counts} lines: too few for {', '.join(SPLITS)}")
    stops = _stops(counts, shares)
    return Corpus(
        _plain(target.name), target.parent, _by_line(target, stops), sources=_by_line(source, stops), form="text"
    )


def same_lines(source: Path, target: Path) -> int:
    """How many lines both have."""
    lines, other = count_lines(source), count_lines(target)
    if lines != other:
        raise _invalid(target, f"{source} has {lines:,} lines and {target} {other:,}: they cannot correspond")
    return lines


def count_lines(path: Path) -> int:
    """Lines of a file, the last of which may lack its end."""
    count, last = 0, b"\n"
    with path.open("rb") as file:
        while block := file.read(_LOOKED_AT):
            count, last = count + block.count(b"\n"), block[-1:]
    return count + (last != b"\n")


def cut(path: Path, shares: Shares) -> dict[str, Parts]:
    """A file's beginning to train on, and what follows; cut at ends of lines."""
    size = path.stat().st_size
    if size == 0:
        raise _invalid(path, f"{path} is empty")
    valid, test = (_line_end(path, at, size) for at in _stops(size, shares))
    return {"train": (Part(path, 0, valid),), "valid": (Part(path, valid, test),), "test": (Part(path, test, size),)}


def by_hash(files: Sequence[Path], shares: Shares) -> dict[str, Parts] | None:
    """Whole files for each split, by the hash of what is in them; None where a split would get none."""
    splits: dict[str, list[Part]] = {split: [] for split in SPLITS}
    for path in files:
        chance = int(sha256(path)[:8], 16) % 100
        split = "test" if chance < shares.test else "valid" if chance < shares.test + shares.valid else "train"
        splits[split].append(Part.whole(path))
    return {split: tuple(parts) for split, parts in splits.items()} if all(splits.values()) else None


def _within(folder: Path) -> list[Path]:
    """The files of a folder and its folders, in the order of their names; hidden and empty ones are left out."""
    inside = folder.resolve()
    paths = []
    for path in sorted(folder.rglob("*")):
        if any(part.startswith(".") for part in path.relative_to(folder).parts) or not path.is_file():
            continue
        if not path.resolve().is_relative_to(inside):
            raise _invalid(path, f"{path} is a link to a place outside {folder}")
        if path.stat().st_size:
            paths.append(path)
    if not paths:
        raise _invalid(folder, f"there is no text in {folder}")
    return paths


def _named_splits(folder: Path, files: Sequence[Path]) -> dict[str, list[Path]] | None:
    """The files of each split by their names; None where none is named `train`."""
    by_split: dict[str, list[Path]] = {}
    for path in files:
        first = path.relative_to(folder).parts[0].partition(".")[0].lower()
        if first in _SPLIT_NAMES:
            by_split.setdefault(_SPLIT_NAMES[first], []).append(path)
    if "train" not in by_split:
        return None
    if "valid" not in by_split:
        raise _invalid(folder, f"{folder} has text named train but none named valid")
    return {split: by_split[split] for split in SPLITS if split in by_split}


def _form(place: Path, files: Sequence[Path]) -> Form:
    lines = [path.suffix.lower() in _JSON_LINES for path in files]
    if any(lines) and not all(lines):
        raise _invalid(place, f"{place} has both text and JSON lines: prepare them separately")
    return "jsonl" if all(lines) else "text"


def _stops(size: int, shares: Shares) -> tuple[int, int]:
    return size * (100 - shares.valid - shares.test) // 100, size * (100 - shares.test) // 100


def _line_end(path: Path, at: int, size: int) -> int:
    """The next end of a line at or after this byte; where lines are very long, the next character's first byte."""
    with path.open("rb") as file:
        file.seek(max(at - 1, 0))
        block = file.read(_LOOKED_AT)
        end = block.find(b"\n")
        if end >= 0:
            return min(max(at - 1, 0) + end + 1, size)
    return character_start(path, at)


def character_start(path: Path, at: int) -> int:
    """The first byte of a character at or after this byte."""
    with path.open("rb") as file:
        file.seek(at)
        block = file.read(4)
    return at + next((place for place, byte in enumerate(block) if not 0x80 <= byte < 0xC0), len(block))


def _by_line(path: Path, stops: tuple[int, int]) -> dict[str, Parts]:
    """A file cut after so many lines."""
    places, at, number = [], 0, 0
    with path.open("rb") as file:
        for line in file:
            if number in stops:
                places.append(at)
            at, number = at + len(line), number + 1
    first, second = places
    return {"train": (Part(path, 0, first),), "valid": (Part(path, first, second),), "test": (Part(path, second, at),)}


def _plain(name: str) -> str:
    """A file's name as the name of a data set."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", name).strip("-.")[:64] or "text"


def _invalid(path: Path, detail: str) -> InvalidInput:
    return InvalidInput(detail, field="data", value=str(path), allowed="UTF-8 text, or a folder of it")
