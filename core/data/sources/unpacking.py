"""Unpacks the archive of a data set: bounded in bytes and files, only plain files, nothing outside the folder."""

from __future__ import annotations

import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from edgefront.core.errors import InvalidInput

_BLOCK = 1 << 20


@dataclass(frozen=True)
class Bounds:
    """What an archive may hold at most: bytes when unpacked, and members."""

    bytes: int = 64 << 30
    files: int = 100_000


DEFAULT = Bounds()


def unpack(path: Path, folder: Path, name: str, bounds: Bounds) -> None:
    """Unpacks a zip or tar archive, compressed or not, into an empty folder, and compares its checksums. A file that is
    no archive is moved there under `name`.

    `InvalidInput` for an archive that is broken, holds more than the bounds, a link or a special file, or a path that
    leads outside the folder; it is then removed.
    """
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                _write(_of_zip(archive), folder, bounds)
        elif tarfile.is_tarfile(path):
            with tarfile.open(path) as packed:
                _write(_of_tar(packed), folder, bounds)
        else:
            path.replace(folder / name)
    except _Refused as refused:
        wrong = f"{name} was not unpacked and was removed: {refused}"
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, OSError, RuntimeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        wrong = f"{name} is broken ({error}) and was removed: download it again"
    else:
        return
    path.unlink()
    raise InvalidInput(wrong, field="download", value=str(path))


class _Refused(Exception):
    """What the archive holds is not unpacked."""


@dataclass(frozen=True)
class _Member:
    name: str
    content: IO[bytes] | None
    """None: a folder."""


def _of_zip(archive: zipfile.ZipFile) -> Iterator[_Member]:
    for entry in archive.infolist():
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if entry.is_dir():
            yield _Member(entry.filename, None)
            continue
        if kind not in (0, stat.S_IFREG):
            raise _Refused(f"{entry.filename!r} is a link or a special file")
        with archive.open(entry) as content:
            yield _Member(entry.filename, content)


def _of_tar(packed: tarfile.TarFile) -> Iterator[_Member]:
    for entry in packed:
        if entry.isdir():
            yield _Member(entry.name, None)
            continue
        content = packed.extractfile(entry) if entry.isfile() else None
        if content is None:
            raise _Refused(f"{entry.name!r} is a link or a special file")
        with content:
            yield _Member(entry.name, content)
        packed.members = []  # type: ignore[attr-defined]  # else it keeps every header that it has read


def _write(members: Iterator[_Member], folder: Path, bounds: Bounds) -> None:
    written = 0
    for count, member in enumerate(members, 1):
        if count > bounds.files:
            raise _Refused(f"it holds more than {bounds.files:,} files (EDGEFRONT_DATA__MAX_UNPACKED_FILES)")
        target = folder / _within(member.name)
        if member.content is None:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            while block := member.content.read(_BLOCK):
                written += len(block)
                if written > bounds.bytes:
                    raise _Refused(f"it holds more than {bounds.bytes:,} bytes (EDGEFRONT_DATA__MAX_UNPACKED_BYTES)")
                file.write(block)


def _within(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or "\0" in name:
        raise _Refused(f"the path {name!r} leads outside its folder")
    return path
