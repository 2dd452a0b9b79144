"""Downloads and unpacks the published files of a data set: only plain files of limited size, inside one folder.

A broken download resumes, and existing files are not fetched again.
"""

from __future__ import annotations

import json
import lzma
import os
import re
import shutil
import stat
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import httpx
from tenacity import RetryCallState, Retrying, retry_if_exception

from edgefront.core.common.errors import InvalidInput, NotFound, Unavailable
from edgefront.core.common.files import refusing_full_disk, whole_file
from edgefront.core.common.http_client import failure, pauses, stream, valid_url
from edgefront.core.data.prepared.prepared import Progress, no_progress
from edgefront.core.data.sources.data_set import DataSet

_TIMEOUT_S = 30.0
_ATTEMPTS = 4
_ALTERNATIVE = "try again later, or get the files yourself and name their folder with --from"
_MAX_NAME_BYTES = 200
"""Maximum length of a file name; file systems allow 255 bytes, which include the prefix and suffix added here."""


@dataclass(frozen=True)
class Bounds:
    """Limits of an archive: the unpacked size in bytes and the number of members."""

    bytes: int = 64 << 30
    files: int = 100_000


def download(
    data: DataSet,
    folder: Path,
    *,
    url: str | None = None,
    progress: Progress = no_progress,
    bounds: Bounds = Bounds(),
) -> Path:
    """Returns the folder with the data set's files; downloads and unpacks them into `folder` unless they exist.

    Args:
        url: URL to use instead of the URL of the data set's (first) archive.
        bounds: limits of an archive.

    Raises:
        InvalidInput: the data set cannot be downloaded; the archive is broken or refused (`unpack`).
        Unavailable: the server is unavailable, the connection broke (the same call resumes), or the disk is full.
    """
    urls = ([url] if url else list(data.archives[:1])) + list(data.archives[1:])
    if not urls:
        raise InvalidInput(
            f"{data.name} cannot be downloaded: {data.expected_files()}", field="download", value=data.name
        )
    try:
        data.find(folder, data.level)
        data.vocabulary_in(folder)
        return folder
    except (NotFound, InvalidInput):  # a file is missing, or its size is not the published one
        folder.mkdir(parents=True, exist_ok=True)
    for each in urls:
        with refusing_full_disk(folder):
            _unpack(_fetch(each, folder, progress), folder, _file_name(each), progress, bounds)
    return folder


def _fetch(url: str, folder: Path, progress: Progress) -> Path:
    """Downloads a file under a `.part` name; resumes the downloads of earlier calls and broken connections.

    Raises `Unavailable` after `_ATTEMPTS` attempts in a row without a new byte.
    """
    part = folder / f".{_file_name(url)}.part"

    def size() -> int:
        return part.stat().st_size if part.exists() else 0

    without_progress, before = 0, size()

    def is_enough(_state: RetryCallState) -> bool:
        nonlocal without_progress, before
        without_progress, before = 0 if size() > before else without_progress + 1, size()
        return without_progress == _ATTEMPTS

    try:
        for attempt in Retrying(
            retry=retry_if_exception(_is_transient), wait=pauses(0.5, 8.0), stop=is_enough, reraise=True
        ):
            with attempt:
                _resume(url, part, folder / f".{_file_name(url)}.json", progress)
    except httpx.HTTPStatusError as error:
        raise Unavailable(f"{url} answered {error.response.status_code}: {_ALTERNATIVE}") from None
    except httpx.HTTPError as error:
        reason = failure(error)
        if size():
            raise Unavailable(
                f"{url} was interrupted after {size():,} bytes ({reason}): the same command resumes the download"
            ) from None
        raise Unavailable(f"{url} cannot be read ({reason}): {_ALTERNATIVE}") from None
    return part


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code in (429, 502, 503, 504)
    return isinstance(error, httpx.RequestError)


def _resume(url: str, part: Path, note: Path, progress: Progress) -> None:
    """Appends the missing bytes to the file `part`. The file `note` contains the URL and version of the download."""
    headers = {"Accept-Encoding": "identity"}
    try:
        noted = json.loads(note.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        noted = {}
    if part.exists() and noted.get("url") == url and noted.get("version"):
        headers |= {"Range": f"bytes={part.stat().st_size}-", "If-Range": noted["version"]}
    with stream(url, headers=headers, timeout_s=_TIMEOUT_S) as response:
        if response.status_code == httpx.codes.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.unlink()  # the part file was complete, or the file at the URL has changed
            return _resume(url, part, note, progress)
        response.raise_for_status()
        resumes = response.status_code == httpx.codes.PARTIAL_CONTENT
        version = response.headers.get("etag") or response.headers.get("last-modified")
        with whole_file(note) as file:
            file.write(json.dumps({"url": url, "version": version}).encode())
        done = part.stat().st_size if resumes else 0
        total = done + int(response.headers.get("content-length", 0))
        with part.open("ab" if resumes else "wb") as file:
            for block in response.iter_raw():
                file.write(block)
                done += len(block)
                progress(f"downloading {_file_name(url)}", done, max(total, done))
    note.unlink(missing_ok=True)
    return None


def _file_name(url: str) -> str:
    name = valid_url(url).path.rpartition("/")[2] or "archive"
    if name in (".", "..") or len(os.fsencode(name)) > _MAX_NAME_BYTES or "\\" in name or not name.isprintable():
        raise InvalidInput(
            f"the name at the end of {url[:200]} is not a valid file name",
            field="url",
            value=url,
            allowed=f"at most {_MAX_NAME_BYTES} bytes without control characters",
        )
    return name


def _unpack(path: Path, folder: Path, name: str, progress: Progress, bounds: Bounds) -> None:
    """Unpacks and removes the file if it is an archive, otherwise renames it. Files appear only when complete."""
    size = path.stat().st_size
    progress(f"unpacking {name}", 0, size)
    draft = folder / ".unpacking"
    shutil.rmtree(draft, ignore_errors=True)  # left over from a call that was killed
    draft.mkdir()
    try:
        unpack(path, draft, name, bounds)
        for file in sorted(draft.rglob("*")):
            if file.is_file() and not file.is_symlink():
                target = folder / file.relative_to(draft)
                target.parent.mkdir(parents=True, exist_ok=True)
                file.replace(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    path.unlink(missing_ok=True)
    progress(f"unpacking {name}", size, size)


_BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, NotImplementedError)
_BLOCK = 1 << 20
_TAR = re.compile(r"\.(tar(\.\w+)?|tgz|tbz2?|txz)$")


class _Refused(Exception):
    """The archive has content that must not be unpacked."""


def unpack(path: Path, folder: Path, name: str, bounds: Bounds) -> None:
    """Unpacks a zip or tar archive, compressed or not, into an empty folder, and verifies its checksums. A file that is
    not an archive is moved into the folder under `name`.

    Raises `InvalidInput` and removes the archive if the archive is broken, exceeds the bounds, or contains a link, a
    special file or a path outside the folder.
    """
    try:
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                entries = archive.infolist()
                _check(len(entries), sum(entry.file_size for entry in entries), bounds)
                for entry in entries:
                    kind = stat.S_IFMT(entry.external_attr >> 16)
                    _check_entry(entry.filename, is_plain=kind in (0, stat.S_IFREG, stat.S_IFDIR))
                    archive.extract(entry, folder)
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


def _untar(path: Path, folder: Path, bounds: Bounds) -> None:
    with tarfile.open(path) as archive:
        count = size = 0
        for entry in archive:
            count, size = count + 1, size + entry.size
            _check(count, size, bounds)
            _check_entry(entry.name, is_plain=entry.isfile() or entry.isdir())
            archive.extract(entry, folder, filter="data")
        while archive.fileobj is not None and archive.fileobj.read(_BLOCK):  # the checksum may follow the end
            pass


def _check_entry(name: str, *, is_plain: bool) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
        raise _Refused(f"the path {name!r} leads outside its folder")
    if not is_plain:
        raise _Refused(f"{name!r} is a link or a special file")


def _check(files: int, size: int, bounds: Bounds) -> None:
    if files > bounds.files:
        raise _Refused(f"it has more than {bounds.files:,} files and folders (EDGEFRONT_DATA__MAX_UNPACKED_FILES)")
    if size > bounds.bytes:
        raise _Refused(f"it has more than {bounds.bytes:,} bytes (EDGEFRONT_DATA__MAX_UNPACKED_BYTES)")
