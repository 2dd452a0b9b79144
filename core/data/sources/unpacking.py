"""Unpacks the archive of a data set: bounded in bytes and files, only plain files, nothing outside the folder."""

from __future__ import annotations

import lzma
import os
import struct
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from edgefront.core.data.sources.archives import BLOCK, Member, Refused, Tar, of_zip, shown, too_many
from edgefront.core.errors import InvalidInput

_MAX_PATH_BYTES = 1000
_MAX_NAME_BYTES = 255
_MAX_DEPTH = 32
_BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    OSError,
    RuntimeError,
    ValueError,
    OverflowError,
)
"""Exceptions of the archive readers, with those for invalid names and sizes (ValueError, OverflowError)."""


@dataclass(frozen=True)
class Bounds:
    """Limits of an archive: unpacked bytes, and number of members with the folders that they lie in."""

    bytes: int = 64 << 30
    files: int = 100_000


DEFAULT = Bounds()


def unpack(path: Path, folder: Path, name: str, bounds: Bounds) -> None:
    """Unpacks a zip or tar archive, compressed or not, into an empty folder, and compares its checksums. A file that is
    no archive is moved there under `name`.

    `InvalidInput` for an archive that is broken, holds more than the bounds, a link, a sparse or special file, headers
    of more than 64 KiB, or a path that leads outside the folder, has control characters, is very long or deep, or is
    there twice; it is then removed. Memory stays within some 100 MB.
    """
    try:
        if zipfile.is_zipfile(path):
            _write(of_zip(path, bounds.files), folder, bounds)
        elif not _untar(path, folder, bounds):
            path.replace(folder / name)
    except Refused as refused:
        wrong = f"{name} was not unpacked and was removed: {refused}"
    except _BROKEN as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        wrong = f"{name} is broken ({error}) and was removed: download it again"
    else:
        return
    path.unlink()
    raise InvalidInput(wrong, field="download", value=str(path))


def _untar(path: Path, folder: Path, bounds: Bounds) -> bool:
    """False if the file is no tar archive."""
    with path.open("rb") as file:
        try:
            packed = Tar(file)
        except tarfile.ReadError:
            return False
        _write(packed.members(), folder, bounds)
    return True


def _write(members: Iterator[Member], folder: Path, bounds: Bounds) -> None:
    written = count = 0
    folders = {PurePosixPath()}
    for member in members:
        path = _within(member.name)
        count += 1
        if member.content is not None:
            new = [parent for parent in path.parents if parent not in folders]
            folders.update(new)
            count += len(new)
        if count > bounds.files:
            raise too_many(bounds.files)
        if member.content is None:
            continue
        target = folder / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            file = target.open("xb")
        except (FileExistsError, NotADirectoryError, IsADirectoryError):
            raise Refused(f"{shown(member.name)} is there twice, or is a file and a folder") from None
        with file:
            while block := member.content.read(BLOCK):
                written += len(block)
                if written > bounds.bytes:
                    raise Refused(f"it holds more than {bounds.bytes:,} bytes (EDGEFRONT_DATA__MAX_UNPACKED_BYTES)")
                file.write(block)


def _within(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name or "\0" in name:
        raise Refused(f"the path {shown(name)} leads outside its folder")
    if any(unicodedata.category(character) == "Cc" for character in name):
        raise Refused(f"the path {shown(name)} has control characters")
    if len(os.fsencode(name)) > _MAX_PATH_BYTES or any(len(os.fsencode(part)) > _MAX_NAME_BYTES for part in path.parts):
        raise Refused(
            f"the path {shown(name)} is too long: at most {_MAX_PATH_BYTES} bytes, and {_MAX_NAME_BYTES} in each of "
            "its names"
        )
    if len(path.parts) > _MAX_DEPTH:
        raise Refused(f"the path {shown(name)} is too deep: at most {_MAX_DEPTH} names")
    return path
