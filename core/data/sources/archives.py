"""The members of zip and tar archives, one after the other, in bounded memory whatever an archive says of itself."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

BLOCK = 1 << 20
"""Bytes of a member that are read at once."""

_HEADER = 64 << 10
"""Bytes of all that precedes a member's content in a tar archive: its headers, and what extends them."""
_GLOBAL_FIELDS = 100
_PADDING = 16 << 20
"""Bytes after the end of a tar archive, which is padded to a multiple of its writer's record."""
_ENTRY = 512
"""Bytes of an entry in the directory of a zip archive, on average: 46, its name, and dates."""
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""zipfile reads members that are compressed otherwise in steps of any size."""
_XZ_MEMORY = 256 << 20
"""What `xz -9` uses is 65 MiB."""


class Refused(Exception):
    """What the archive holds is not unpacked."""


@dataclass(frozen=True)
class Member:
    name: str
    content: IO[bytes] | None
    """None: a folder."""


def shown(name: str) -> str:
    """The name for an error, shortened."""
    return repr(name) if len(name) <= 100 else f"{name[:100]!r}…"


def too_many(files: int) -> Refused:
    return Refused(f"it holds more than {files:,} files and folders (EDGEFRONT_DATA__MAX_UNPACKED_FILES)")


def of_zip(path: Path, files: int) -> Iterator[Member]:
    """The members of a zip archive of at most `files`."""
    with _ZipReader(path, files) as file, zipfile.ZipFile(file) as archive:
        for entry in archive.infolist():
            if entry.is_dir():
                yield Member(entry.filename, None)
                continue
            if stat.S_IFMT(entry.external_attr >> 16) not in (0, stat.S_IFREG):
                raise _special(entry.filename)
            if entry.compress_type not in _METHODS:
                raise Refused(f"{shown(entry.filename)} is compressed by another method than deflate")
            with archive.open(entry) as content:
                yield Member(entry.filename, content)


class _ZipReader(io.BufferedReader):
    """The file as zipfile reads it: small pieces, but for the directory, which it reads as one and makes objects of."""

    def __init__(self, path: Path, files: int) -> None:
        super().__init__(io.FileIO(path))
        self._files = files

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size <= BLOCK:
            return super().read(size)
        if size > self._files * _ENTRY:
            raise Refused(f"its directory has {size:,} bytes, more than {self._files:,} files need")
        directory = super().read(size)
        if directory.count(b"PK\1\2") > self._files:
            raise too_many(self._files)
        return directory


class Tar:
    """A tar archive, compressed by gzip, bzip2 or xz, or not. `tarfile.ReadError` if the file is none."""

    def __init__(self, file: BinaryIO) -> None:
        self._stream = _Forwards(_decompressed(file))
        self._packed = tarfile.TarFile(fileobj=cast(Any, self._stream))

    def members(self) -> Iterator[Member]:
        """Its members; at the end the checksum of what was compressed has been compared."""
        while (entry := self._next()) is not None:
            if entry.isdir():
                yield Member(entry.name, None)
                continue
            if entry.issparse():
                raise Refused(f"{shown(entry.name)} is a sparse file")
            content = self._packed.extractfile(entry) if entry.isfile() else None
            if content is None:
                raise _special(entry.name)
            with content:
                yield Member(entry.name, content)
        self._stream.read_to_end()

    def _next(self) -> tarfile.TarInfo | None:
        self._packed.members = []  # type: ignore[attr-defined]  # else it keeps every header that it has read
        self._stream.headers_left = _HEADER
        entry = self._packed.next()
        self._stream.headers_left = None
        if len(self._packed.pax_headers) > _GLOBAL_FIELDS:
            raise Refused(f"more than {_GLOBAL_FIELDS} fields of its headers are for all files")
        return entry


class _Forwards:
    """The unpacked bytes of a tar archive as tarfile reads them: forwards, and of headers a bounded number."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._at = 0
        self.headers_left: int | None = _HEADER
        """Bytes until the next content; None while one is read."""
        self._header = b""

    def tell(self) -> int:
        return self._at

    def read(self, size: int) -> bytes:
        if self.headers_left is not None:
            if not 0 <= size <= self.headers_left:
                raise Refused(f"the headers of one of its files have more than {_HEADER >> 10} KiB")
            self.headers_left -= size
        data = self._file.read(size)
        if self.headers_left is not None:
            self._header = data
        self._at += len(data)
        return data

    def read_to_end(self) -> None:
        """What follows the last header that was read: its end (zeros or nothing), and padding."""
        if self._header.strip(b"\0"):  # tarfile ends there too
            raise tarfile.ReadError("a header is damaged")
        padding = 0
        while data := self._file.read(BLOCK):
            padding += len(data)
            if padding > _PADDING:
                raise Refused(f"more than {_PADDING >> 20} MiB follow its end")

    def seek(self, to: int) -> int:
        if not 0 <= to - self._at <= tarfile.RECORDSIZE:
            raise tarfile.ReadError("a header has a wrong size")
        self._at += len(self._file.read(to - self._at))
        return self._at


def _decompressed(file: BinaryIO) -> IO[bytes]:
    head = file.read(10)
    file.seek(0)
    if head.startswith(b"\x1f\x8b"):
        return cast(IO[bytes], gzip.GzipFile(fileobj=file))
    if head.startswith(b"BZh") and head.endswith(b"1AY&SY"):
        return bz2.BZ2File(file)
    if head.startswith(b"\xfd7zXZ\0"):
        return io.BufferedReader(_Xz(file))
    return file


class _Xz(io.RawIOBase):
    """What an xz file holds; `lzma` opens one with as much memory as it says that it needs."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._fresh = b""
        self._stream = _xz_stream()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        while True:
            if self._stream.eof:
                self._fresh = self._stream.unused_data.lstrip(b"\0")
                while not self._fresh:  # streams may be padded with zeros
                    block = self._file.read(BLOCK)
                    if not block:
                        return 0
                    self._fresh = block.lstrip(b"\0")
                self._stream = _xz_stream()
            elif self._stream.needs_input and not self._fresh:
                self._fresh = self._file.read(BLOCK)
                if not self._fresh:
                    raise EOFError("the file ends before the end of what was compressed")
            fresh, self._fresh = self._fresh, b""
            try:
                data = self._stream.decompress(fresh, len(buffer))
            except lzma.LZMAError as error:
                if "Memory usage limit" not in str(error):
                    raise
                raise Refused(f"unpacking it takes more than {_XZ_MEMORY >> 20} MiB of memory") from None
            if data:
                buffer[: len(data)] = data
                return len(data)


def _xz_stream() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)


def _special(name: str) -> Refused:
    return Refused(f"{shown(name)} is a link or a special file")
