"""Several files as one zip archive that is written while it is sent: no more of it is in memory than one chunk.

Files are stored, not compressed: weights hardly shrink.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from zipfile import ZIP_STORED, ZipFile, ZipInfo

from edgefront.core.errors import Unavailable

_EARLIEST = (1980, 1, 1, 0, 0, 0)  # a zip has no date before
_READABLE = 0o644 << 16


@dataclass(frozen=True)
class Member:
    """A file of the archive; its chunks are read when its turn comes."""

    name: str
    size: int
    modified_at: datetime
    chunks: Iterable[bytes]


class _Pipe(io.RawIOBase):
    """What is written can be taken once; nobody can seek in it."""

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._written.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        taken, self._written = b"".join(self._written), []
        return taken


def zipped(members: Iterable[Member]) -> Iterator[bytes]:
    """The archive in chunks. What reading a file raises is raised here: the archive then has no end.

    Unavailable: a file has another size than its member says.
    """
    pipe = _Pipe()
    with ZipFile(pipe, "w", ZIP_STORED) as archive:
        for member in members:
            info = ZipInfo(member.name, max(_EARLIEST, member.modified_at.timetuple()[:6]))
            info.external_attr = _READABLE
            info.file_size = member.size  # from 2 GiB on its entry has the long form
            sent = 0
            with archive.open(info, "w") as entry:
                for chunk in member.chunks:
                    sent += entry.write(chunk)
                    yield pipe.take()
            if sent != member.size:
                raise Unavailable(f"{member.name} has {sent} bytes, and had {member.size} when the archive was begun")
    yield pipe.take()
