"""Archives that are made to take memory, files or time, or to write where they should not: refused, and why is said."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import struct
import tarfile
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest

from edgefront.core.data.sources.archives import BLOCK
from edgefront.core.data.sources.unpacking import Bounds, unpack
from edgefront.core.errors import InvalidInput

HUGE = 200 << 20
MEMORY = 48 << 20
"""Bytes that Python allocates at most while an archive is read; the tests' own archives are smaller."""
SMALL = Bounds(bytes=1 << 20, files=100)
END = bytes(1024)
NEGATIVE = b"\xff" + ((1 << 88) - 100_000).to_bytes(11, "big")


def head(kind: bytes = tarfile.REGTYPE, size: int = 0, name: str = "file", **changed: bytes) -> bytes:
    """A header of a tar archive; `at_N` in `changed` are bytes to put at N, of which the checksum is computed."""
    entry = tarfile.TarInfo(name)
    entry.type, entry.size = kind, size
    block = bytearray(entry.tobuf(tarfile.GNU_FORMAT))
    for place, content in changed.items():
        at = int(place.removeprefix("at_"))
        block[at : at + len(content)] = content
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def content_of(data: bytes) -> bytes:
    return data + bytes(-len(data) % 512)


def pax(fields: dict[str, str], kind: bytes = tarfile.XHDTYPE) -> bytes:
    def record(key: str, value: str) -> bytes:
        rest = f" {key}={value}\n".encode()
        size = len(rest) + len(str(len(rest)))
        return str(size + (len(str(size)) > len(str(len(rest))))).encode() + rest

    data = b"".join(record(*field) for field in fields.items())
    return head(kind, len(data)) + content_of(data)


def file(name: str = "file", data: bytes = b"text") -> bytes:
    return head(size=len(data), name=name) + content_of(data)


def zeros_after(start: bytes) -> bytes:
    """gzip: a header, and as many zeros as it says."""
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1) as out:
        out.write(start)
        for _ in range(HUGE >> 20):
            out.write(bytes(1 << 20))
    return packed.getvalue()


def sparse_pax() -> bytes:
    name = "GNU.sparse."
    fields = {name + "major": "1", name + "minor": "0", name + "name": "file", name + "realsize": str(1 << 40)}
    return pax(fields) + file(data=b"0\n") + END


def sparse_gnu() -> bytes:
    """A sparse file whose map goes on for megabytes."""
    more = bytes(504) + b"\1" + bytes(7)
    return head(b"S", at_482=b"\1") + more * 20_000


def zipped(*names: str, data: bytes = b"text", method: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name in names:
            archive.writestr(name, data)
    return packed.getvalue()


def directory_of(entries: int, *, name: bytes = b"x") -> bytes:
    """A zip archive that is a directory only."""
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 3, 20, 0, 0, 0, 0, 0, 0, 0, 0, len(name), 0, 0, 0, 0, 0, 0)
    directory = (entry + name) * entries
    count = min(entries, 0xFFFF)
    return directory + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, count, count, len(directory), 0, 0)


def with_size(told: int) -> bytes:
    """A zip archive whose directory tells another size of its file."""
    packed = bytearray(zipped("file", data=bytes(100_000)))
    at = packed.rindex(b"PK\1\2") + 24
    packed[at : at + 4] = struct.pack("<L", told)
    return bytes(packed)


def wrong_utf8() -> bytes:
    packed = bytearray(zipped("\u00e9"))
    return bytes(packed.replace("\u00e9".encode(), b"\xff\xfe"))


def greedy_xz() -> bytes:
    """xz that asks for a dictionary of 3 GiB."""
    packed = bytearray(lzma.compress(file() + END))
    size = (packed[12] + 1) * 4
    packed[16] = 39
    packed[12 + size - 4 : 12 + size] = struct.pack("<L", zlib.crc32(packed[12 : 12 + size - 4]))
    return bytes(packed)


def broken_xz() -> bytes:
    packed = bytearray(lzma.compress(b"".join(file(f"file {i}", bytes(range(256)) * 40) for i in range(50)) + END))
    packed[-60] ^= 255
    return bytes(packed)


ATTACKS: dict[str, tuple[Callable[[], bytes], str]] = {
    "a PAX header of 200 MiB": (lambda: zeros_after(head(tarfile.XHDTYPE, HUGE)), "headers .* 64 KiB"),
    "a second one": (lambda: zeros_after(file() + head(tarfile.XHDTYPE, HUGE)), "headers .* 64 KiB"),
    "a name of 200 MiB": (lambda: zeros_after(head(tarfile.GNUTYPE_LONGNAME, HUGE)), "headers .* 64 KiB"),
    "a link of 200 MiB": (lambda: zeros_after(file() + head(tarfile.GNUTYPE_LONGLINK, HUGE)), "headers .* 64 KiB"),
    "a header of negative size": (lambda: file() + head(tarfile.XHDTYPE, at_124=NEGATIVE) + END, "64 KiB"),
    "many long names for one file": (
        lambda: file() + (head(tarfile.GNUTYPE_LONGNAME, 2) + content_of(b"x\0")) * 5000 + file("y"),
        "headers .* 64 KiB",
    ),
    "fields for all files": (
        lambda: b"".join(pax({f"field{i}": "x" * 5000}, tarfile.XGLTYPE) + file(f"{i}") for i in range(200)) + END,
        "more than 100 fields",
    ),
    "a sparse file": (sparse_pax, "sparse"),
    "a sparse file with a long map": (sparse_gnu, "headers .* 64 KiB"),
    "a file of negative size": (lambda: file() + head(at_124=NEGATIVE, name="y") + END, "broken"),
    "a device": (lambda: head(tarfile.CHRTYPE) + END, "special file"),
    "an unknown kind": (lambda: head(b"Z", 1 << 30) + END, "special file"),
    "a deep path": (lambda: pax({"path": "a/" * 400 + "b"}) + file() + END, "too deep: at most 32"),
    "a long path": (lambda: pax({"path": "a/" * 5000 + "b"}) + file() + END, "too long: at most 1000 bytes"),
    "a long name": (lambda: pax({"path": "n" * 256}) + file() + END, "too long"),
    "a long name in other letters": (lambda: pax({"path": "\u00e9" * 128}) + file() + END, "too long"),
    "many folders": (
        lambda: b"".join(file("/".join([f"{i}", *"abcdefgh"])) for i in range(20)) + END,
        "more than 100 files and folders",
    ),
    "many empty folders": (
        lambda: b"".join(head(tarfile.DIRTYPE, name=f"{i}") for i in range(101)) + END,
        "more than 100 files and folders",
    ),
    "control characters": (lambda: file("a\x1b[31m") + END, "control characters"),
    "a damaged header": (lambda: file("a") + b"x" + file("b")[1:] + END, "broken"),
    "zeros after its end": (lambda: zeros_after(file() + END), "more than 16 MiB follow its end"),
    "a file twice": (lambda: file() + file() + END, "'file' is there twice"),
    "a file that is a folder": (lambda: file("a") + file("a/b") + END, "'a/b' is there twice, or is a file and"),
    "a folder that is a file": (lambda: file("a/b") + file("a") + END, "'a' is there twice, or is a file and"),
    "no name": (lambda: file(".") + END, "'.' is there twice"),
    "xz that takes 3 GiB": (greedy_xz, "more than 256 MiB of memory"),
    "xz that is damaged": (broken_xz, "broken"),
    "xz that ends early": (lambda: lzma.compress(file(data=bytes(range(256)) * 99) + END)[:-80], "broken"),
    "a zip that names many files": (lambda: directory_of(200_000), "directory has 9,400,000 bytes"),
    "a zip that tells fewer": (lambda: with_size(10), "broken"),
    "a zip by bzip2": (lambda: zipped("file", method=zipfile.ZIP_BZIP2), "another method than deflate"),
    "a zip by lzma": (lambda: zipped("file", method=zipfile.ZIP_LZMA), "another method than deflate"),
    "a zip with a wrong name": (wrong_utf8, "broken"),
    "a zip with a long name": (lambda: zipped("n" * 60_000), "too long"),
    "a zip with a deep path": (lambda: zipped("a/" * 40 + "b"), "too deep"),
    "a zip with a file twice": (lambda: directory_twice(), "is there twice"),
}


def directory_twice() -> bytes:
    packed = zipped("aa", "ab")
    return packed.replace(b"ab", b"aa")


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_archive_that_is_made_to_harm_is_refused(tmp_path: Path, attack: str) -> None:
    make, told = ATTACKS[attack]
    path, folder = tmp_path / "archive", tmp_path / "there"
    path.write_bytes(make())
    folder.mkdir()
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match=told) as refused:
            unpack(path, folder, "a.tar", SMALL)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MEMORY
    assert refused.value.detail.startswith("a.tar ")
    assert len(refused.value.detail) < 500
    assert not path.exists()


def test_the_files_of_a_zip_are_counted_before_they_are_objects(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    path.write_bytes(directory_of(100_000))
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInput, match="more than 99,999 files"):
            unpack(path, tmp_path, "a.zip", Bounds(files=99_999))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 16 << 20


NAMES = {
    "plain": b"one",
    "folder/\u00e9 " + "n" * 150: b"two",
    "/".join("abcdefgh") + "/deep": bytes(range(256)) * 9000,
}


def honest_tar(kind: int) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(
        fileobj=packed, mode="w", format=kind, pax_headers={"comment": "all"} if kind == tarfile.PAX_FORMAT else {}
    ) as tar:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        for name, data in NAMES.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return packed.getvalue()


def several_streams(data: bytes) -> bytes:
    return lzma.compress(data[:5000]) + bytes(4) + lzma.compress(data[5000:])


def padded_streams(data: bytes) -> bytes:
    """Zeros after each stream, up to the end of a block that is read at once."""
    packed = b""
    for blocks, part in ((1, data[:5000]), (4, data[5000:6000]), (5, data[6000:])):
        packed = (packed + lzma.compress(part)).ljust(blocks * BLOCK, b"\0")
    return packed


def stored_gzip(data: bytes) -> bytes:
    packed = zlib.compressobj(0, zlib.DEFLATED, 31)
    return packed.compress(data) + packed.flush()


@pytest.mark.parametrize("compress", [stored_gzip, bz2.compress, lzma.compress])
@pytest.mark.parametrize("damage", ["a changed byte", "a wrong checksum", "the end is missing"])
def test_a_damaged_archive_is_refused(tmp_path: Path, compress: Callable[[bytes], bytes], damage: str) -> None:
    """What says so may lie behind the end of the tar archive in it."""
    text = random.Random(0).randbytes(1_500_000)  # two blocks of bzip2
    packed = bytearray(compress(file("text", text) + END))
    if damage == "the end is missing":
        del packed[-3:]
    else:
        packed[len(packed) * 3 // 4 if damage == "a changed byte" else -3] ^= 0x10
    path, folder = tmp_path / "archive", tmp_path / "there"
    path.write_bytes(packed)
    folder.mkdir()
    with pytest.raises(InvalidInput, match=r"is broken .* download it again"):
        unpack(path, folder, "a.tar", Bounds())
    assert not path.exists()


def large_records(data: bytes) -> bytes:
    """As GNU tar pads it with `--blocking-factor 8192`, gzipped."""
    return gzip.compress(data.ljust(4 << 20, b"\0"))


def without_end(data: bytes) -> bytes:
    return gzip.compress(data.rstrip(b"\0").ljust(-(-len(data.rstrip(b"\0")) // 512) * 512, b"\0"))


@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize(
    "compress",
    [
        *(bytes, gzip.compress, bz2.compress, lzma.compress),
        *(several_streams, padded_streams, large_records, without_end),
    ],
)
def test_honest_archives_are_unpacked(tmp_path: Path, kind: int, compress: Callable[[bytes], bytes]) -> None:
    path = tmp_path / "archive"
    path.write_bytes(compress(honest_tar(kind)))
    folder = tmp_path / "there"
    folder.mkdir()
    unpack(path, folder, "a.tar", Bounds(files=14))
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found == NAMES


def test_an_honest_zip_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "archive"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in NAMES.items():
            archive.writestr(name, data)
    folder = tmp_path / "there"
    folder.mkdir()
    unpack(path, folder, "a.zip", Bounds(files=12))
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found == NAMES


@pytest.mark.parametrize(
    "data",
    [b"", b"BZh is how this begins", b"just text", gzip.compress(b"text", mtime=0), bytes([0x1F, 0x8B])[:1] * 600],
)
def test_what_is_no_archive_is_kept_as_it_is(tmp_path: Path, data: bytes) -> None:
    path, folder = tmp_path / "archive", tmp_path / "there"
    path.write_bytes(data)
    folder.mkdir()
    unpack(path, folder, "text8", SMALL)
    assert (folder / "text8").read_bytes() == data
