"""Archives are unpacked whole; those that are damaged, or would write too much or elsewhere, are refused and why."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import stat
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from edgefront.core.data.sources.download import Bounds, unpack
from edgefront.core.errors import InvalidInput

SMALL = Bounds(bytes=1 << 20, files=3)
NAMES = {"plain": b"one", "folder/\u00e9 " + "n" * 150: b"two", "a/b/deep": bytes(range(256)) * 3000}


def tar(*names: str, kind: bytes = tarfile.REGTYPE, data: bytes = b"text") -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.type, entry.size, entry.linkname = kind, len(data) if kind == tarfile.REGTYPE else 0, "plain"
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def zipped(*names: str, data: bytes = b"text") -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            archive.writestr(name, data)
    return packed.getvalue()


def zip_link(name: str, to: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        entry = zipfile.ZipInfo(name)
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(entry, to)
    return packed.getvalue()


def damaged(data: bytes, place: int) -> bytes:
    changed = bytearray(data)
    changed[place] ^= 0x10
    return bytes(changed)


NOISE = tar("text", data=random.Random(0).randbytes(500_000))
WRONG = {
    "a path elsewhere": (tar("../x"), "outside"),
    "a zip's path elsewhere": (zipped("a/../../x"), "outside"),
    "a deep path elsewhere": (tar("a/../../x"), "outside"),
    "a path from the root": (tar("/tmp/x"), "outside"),
    "a zip's path from the root": (zipped("/x"), "outside"),
    "a path of Windows": (zipped("..\\x", "C:x"), "outside"),
    "a zip's link": (zip_link("x", ".."), "link"),
    **{
        f"a special file of type {kind!r}": (tar("x", kind=kind), "'x' is a link or a special file")
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)
    },
    "many files": (tar(*"abcd"), "more than 3 files and folders"),
    "a zip of many files": (zipped(*"abcd"), "more than 3 files and folders"),
    "many bytes": (gzip.compress(tar("x", data=bytes(2 << 20))), "more than 1,048,576 bytes"),
    "a zip of many bytes": (zipped("x", data=bytes(2 << 20)), "more than 1,048,576 bytes"),
    "a zip that is damaged": (damaged(zipped("x", data=random.Random(0).randbytes(9000)), 5000), "broken"),
    **{
        f"{how.__module__} that {what}": (harm(how(NOISE)), "is broken .* download it again")
        for how in (gzip.compress, bz2.compress, lzma.compress)
        for what, harm in (
            ("is damaged", lambda data: damaged(data, len(data) * 3 // 4)),
            ("ends early", lambda data: data[:-80]),
        )
    },
    "gzip with a wrong checksum": (damaged(gzip.compress(NOISE), -8), "is broken .* download it again"),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_archive_that_harms_or_is_damaged_is_refused_and_removed(tmp_path: Path, case: str) -> None:
    content, told = WRONG[case]
    path, folder = tmp_path / "archive", tmp_path / "there"
    path.write_bytes(content)
    folder.mkdir()
    with pytest.raises(InvalidInput, match=told) as refused:
        unpack(path, folder, "a.tar", SMALL)
    assert refused.value.detail.startswith("a.tar ")
    assert sorted(tmp_path.iterdir()) == [folder]


def honest(kind: int) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=kind) as archive:
        for name, data in NAMES.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def honest_zip(_: int) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in NAMES.items():
            archive.writestr(name, data)
    return packed.getvalue()


@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize(
    "made",
    [
        honest,
        honest_zip,
        lambda kind: gzip.compress(honest(kind)),
        lambda kind: bz2.compress(honest(kind)),
        lambda kind: lzma.compress(honest(kind)[:5000]) + lzma.compress(honest(kind)[5000:]),
        lambda kind: gzip.compress(honest(kind).ljust(4 << 20, b"\0")),
    ],
)
def test_honest_archives_are_unpacked(tmp_path: Path, kind: int, made: Callable[[int], bytes]) -> None:
    path, folder = tmp_path / "archive", tmp_path / "there"
    path.write_bytes(made(kind))
    folder.mkdir()
    unpack(path, folder, "a.tar", SMALL)
    found = {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    assert found == NAMES


@pytest.mark.parametrize("data", [b"", b"BZh is how this begins", b"just text", gzip.compress(b"text", mtime=0)])
def test_what_is_no_archive_is_kept_as_it_is(tmp_path: Path, data: bytes) -> None:
    path, folder = tmp_path / "archive", tmp_path / "there"
    path.write_bytes(data)
    folder.mkdir()
    unpack(path, folder, "text8", SMALL)
    assert (folder / "text8").read_bytes() == data
