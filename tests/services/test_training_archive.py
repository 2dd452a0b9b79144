"""A zip that is written while it is sent."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from datetime import datetime, timezone

import pytest

from edgefront.core.services.trainings.downloads import Member, zipped

THEN = datetime(2026, 3, 4, 5, 6, 8, tzinfo=timezone.utc)


@pytest.mark.parametrize("limit", [zipfile.ZIP64_LIMIT, 100], ids=["short entries", "long entries"])
def test_every_zip_reader_reads_it(monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", limit)
    members = [
        Member("run/model.safetensors", 3000, THEN, [b"a" * 1000] * 3),
        Member("run/empty", 0, datetime.fromtimestamp(0, timezone.utc), []),
    ]
    written = b"".join(zipped(members))
    monkeypatch.undo()
    with zipfile.ZipFile(io.BytesIO(written)) as archive:
        assert archive.testzip() is None
        model, empty = archive.infolist()
        assert (model.filename, model.date_time, archive.read(model)) == (
            "run/model.safetensors", (2026, 3, 4, 5, 6, 8), b"a" * 3000,
        )  # fmt: skip
        assert (empty.filename, empty.date_time[0], archive.read(empty)) == ("run/empty", 1980, b"")
        assert model.external_attr >> 16 == 0o644


def test_no_more_is_read_than_was_taken() -> None:
    read: list[int] = []

    def chunks() -> Iterator[bytes]:
        for number in range(1000):
            read.append(number)
            yield bytes(1 << 10)

    archive = zipped([Member("large", 1000 << 10, THEN, chunks())])
    taken = [next(archive) for _ in range(5)]
    assert len(read) == 5
    assert all(len(part) < 2 << 10 for part in taken)


def test_an_error_ends_it_without_an_end() -> None:
    def broken() -> Iterator[bytes]:
        yield b"begun"
        raise OSError("the disk is gone")

    archive = zipped([Member("large", 10, THEN, broken())])
    begun = next(archive)
    with pytest.raises(OSError, match="the disk is gone"):
        next(archive)
    assert list(archive) == []
    assert not zipfile.is_zipfile(io.BytesIO(begun))
