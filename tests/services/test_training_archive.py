"""A tar that is written while it is sent."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from edgefront.core.common.errors import Conflict
from edgefront.core.common.files import Archive


def archive_of(folder: Path, **contents: bytes) -> Archive:
    for name, content in contents.items():
        (folder / name).write_bytes(content)
    return Archive({f"run/{name}": folder / name for name in contents})


def test_every_tar_reader_reads_it(tmp_path: Path) -> None:
    contents = {"model": b"a" * 3000, "empty": b"", "even": bytes(tarfile.BLOCKSIZE)}
    archive = archive_of(tmp_path, **contents)
    for _ in range(2):  # a repeated request reads the files again
        sent = b"".join(archive)
        assert len(sent) == archive.size
        with tarfile.open(fileobj=io.BytesIO(sent)) as read:
            assert {info.name: (info.size, info.mode) for info in read} == {
                f"run/{name}": (len(content), 0o644) for name, content in contents.items()
            }
            for name, content in contents.items():
                file = read.extractfile(f"run/{name}")
                assert file is not None
                assert file.read() == content


def test_no_more_is_read_than_was_taken(tmp_path: Path) -> None:
    taken = iter(archive_of(tmp_path, large=bytes(3 << 20)))
    assert [len(next(taken)) for _ in range(3)] == [tarfile.BLOCKSIZE, 1 << 20, 1 << 20]


def test_a_file_that_changes_ends_it_without_an_end(tmp_path: Path) -> None:
    sending = iter(archive_of(tmp_path, growing=b"begun"))
    next(sending)
    (tmp_path / "growing").write_bytes(b"begun and on")
    with pytest.raises(Conflict, match="growing changed while it was sent: it had 5 bytes, now 12"):
        list(sending)
    assert list(sending) == []
