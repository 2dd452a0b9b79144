"""Files as one uncompressed tar archive that is made while it is sent."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from edgefront.core.errors import Conflict

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Archive:
    """These files, by their names in it. Each iteration reads them anew, so that a request can be repeated."""

    files: Mapping[str, Path]

    @property
    def size(self) -> int:
        """Bytes of the whole."""
        sizes = [path.stat().st_size for path in self.files.values()]
        return sum(tarfile.BLOCKSIZE + size + _padding(size) for size in sizes) + 2 * tarfile.BLOCKSIZE

    def __iter__(self) -> Iterator[bytes]:
        """The bytes. `Conflict` where a file changes its size meanwhile."""
        for name, path in self.files.items():
            info = tarfile.TarInfo(name)
            with path.open("rb") as file:
                info.size, sent = path.stat().st_size, 0
                yield info.tobuf(tarfile.GNU_FORMAT)
                while chunk := file.read(_CHUNK):
                    sent += len(chunk)
                    yield chunk
            if sent != info.size:
                raise Conflict(f"{path} changed while it was sent: it had {info.size} bytes, and has {sent}")
            yield bytes(_padding(sent))
        yield bytes(2 * tarfile.BLOCKSIZE)


def _padding(size: int) -> int:
    return -size % tarfile.BLOCKSIZE
