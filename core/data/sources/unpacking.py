"""Unpacks the archive of a data set: bounded in bytes and files, only plain files, nothing outside the folder."""

from __future__ import annotations

import lzma
import re
import stat
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from edgefront.core.errors import InvalidInput

_BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)
_BLOCK = 1 << 20
_TAR = re.compile(r"\.(tar(\.\w+)?|tgz|tbz2?|txz)$")


@dataclass(frozen=True)
class Bounds:
    """Limits of an archive: unpacked bytes, and number of members."""

    bytes: int = 64 << 30
    files: int = 100_000


DEFAULT = Bounds()


class _Refused(Exception):
    """What the archive holds is not unpacked."""


def unpack(path: Path, folder: Path, name: str, bounds: Bounds) -> None:
    """Unpacks a zip or tar archive, compressed or not, into an empty folder, and compares its checksums. A file that is
    no archive is moved there under `name`.

    `InvalidInput` for an archive that is broken, holds more than the bounds, a link or a special file, or a path that
    leads outside the folder; it is then removed.
    """
    try:
        if zipfile.is_zipfile(path):
            _unzip(path, folder, bounds)
        elif tarfile.is_tarfile(path) or _TAR.search(name):
            _untar(path, folder, bounds)
        else:
            path.replace(folder / name)
        return
    except (_Refused, tarfile.FilterError) as refused:
        wrong = f"{name} was not unpacked and was removed: {refused}"
    except (*_BROKEN, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        why = str(error).partition(":\n")[0]
        wrong = f"{name} is broken ({why}) and was removed: download it again"
    path.unlink()
    raise InvalidInput(wrong, field="download", value=str(path))


def _unzip(path: Path, folder: Path, bounds: Bounds) -> None:
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        _check(len(entries), sum(entry.file_size for entry in entries), bounds)
        for entry in entries:
            _check_entry(
                entry.filename, is_plain=stat.S_IFMT(entry.external_attr >> 16) in (0, stat.S_IFREG, stat.S_IFDIR)
            )
            archive.extract(entry, folder)


def _untar(path: Path, folder: Path, bounds: Bounds) -> None:
    with tarfile.open(path) as archive:
        count = size = 0
        for entry in archive:
            count, size = count + 1, size + entry.size
            _check(count, size, bounds)
            _check_entry(entry.name, is_plain=entry.isfile() or entry.isdir())
            archive.extract(entry, folder, filter="data")
        while archive.fileobj is not None and archive.fileobj.read(_BLOCK):  # the checksum may lie behind the end
            pass


def _check_entry(name: str, *, is_plain: bool) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
        raise _Refused(f"the path {name!r} leads outside its folder")
    if not is_plain:
        raise _Refused(f"{name!r} is a link or a special file")


def _check(files: int, size: int, bounds: Bounds) -> None:
    if files > bounds.files:
        raise _Refused(f"it holds more than {bounds.files:,} files and folders (EDGEFRONT_DATA__MAX_UNPACKED_FILES)")
    if size > bounds.bytes:
        raise _Refused(f"it holds more than {bounds.bytes:,} bytes (EDGEFRONT_DATA__MAX_UNPACKED_BYTES)")
