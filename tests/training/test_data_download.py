"""Published files, from a real server that also breaks off; archives are unpacked whole, or refused and why."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import random
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from edgefront.core.common.errors import InvalidInput, NotFound, Unavailable
from edgefront.core.data.prepared.preparation import prepare
from edgefront.core.data.sources.data_set import DataSet, Published, data_set
from edgefront.core.data.sources.download import Bounds, download, unpack
from http_server import QuietHandler, serving

CONTENT = bytes(range(97, 123)) * 40


@dataclass
class Server:
    """Files by their path, with Range and ETag; it hangs up after so many bytes of the first answers (`stops`)."""

    url: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    stops: list[int] = field(default_factory=list)
    asked: list[str | None] = field(default_factory=list)


@pytest.fixture
def server() -> Iterator[Server]:
    known = Server()

    class Handler(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802
            known.asked.append(self.headers.get("range"))
            content = known.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            tag = f'"{hashlib.sha256(content).hexdigest()}"'
            start = 0
            if self.headers.get("range") and self.headers.get("if-range") == tag:
                start = int(self.headers["range"].removeprefix("bytes=").removesuffix("-"))
            self.send_response(206 if start else 200)
            self.send_header("ETag", tag)
            self.send_header("Content-Length", str(len(content) - start))
            self.end_headers()
            self.wfile.write(content[start:][: known.stops.pop(0) if known.stops else None])

    with serving(Handler) as known.url:
        yield known


def zipped(files: Mapping[str, bytes], how: int = zipfile.ZIP_STORED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", how) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


@pytest.fixture
def small(server: Server) -> DataSet:
    """text8, but smaller."""
    server.files["/text8.zip"] = zipped({"text8": CONTENT})
    known = Published(bytes=len(CONTENT), md5=hashlib.md5(CONTENT).hexdigest())
    return replace(data_set("text8"), cuts=(900, 950), published=known, archives=(f"{server.url}/text8.zip",))


def test_an_archive_is_fetched_once_and_prepared(server: Server, small: DataSet, tmp_path: Path) -> None:
    told: list[tuple[str, int, int]] = []
    folder = download(small, tmp_path / "text8", progress=lambda *said: told.append(said))
    assert [path.name for path in folder.iterdir()] == ["text8"]
    assert told[-1][0] == "unpacking text8.zip"
    assert prepare(small, tmp_path / "home", origin=folder).vocab_size == 26
    download(small, folder)
    assert server.asked == [None]


def test_a_broken_download_is_resumed_until_it_brings_nothing(server: Server, small: DataSet, tmp_path: Path) -> None:
    server.stops = [300, 0, 0, 0, 0]
    with pytest.raises(
        Unavailable, match=r"text8.zip was interrupted after 300 bytes .*: the same command resumes the download"
    ):
        download(small, tmp_path)
    assert (tmp_path / ".text8.zip.part").stat().st_size == 300
    server.stops = [50, 0]
    download(small, tmp_path)
    assert server.asked == [None, *["bytes=300-"] * 5, *["bytes=350-"] * 2]
    assert (tmp_path / "text8").read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["text8"]


def test_a_changed_file_at_the_server_is_downloaded_again(server: Server, small: DataSet, tmp_path: Path) -> None:
    def change(*_: object) -> None:
        server.files["/text8.zip"] = zipped({"readme": b"hello", "text8": CONTENT})

    server.stops = [300]
    download(small, tmp_path, progress=change)
    assert server.asked == [None, "bytes=300-"]
    assert (tmp_path / "text8").read_bytes() == CONTENT


def test_truncated_files_are_downloaded_again(server: Server, small: DataSet, tmp_path: Path) -> None:
    (tmp_path / "text8").write_bytes(CONTENT[:10])
    (tmp_path / "text8.zip").write_bytes(b"my own")
    (tmp_path / "thesis").write_bytes(b"my own")
    download(small, tmp_path)
    assert (tmp_path / "text8.zip").read_bytes() == (tmp_path / "thesis").read_bytes() == b"my own"
    assert (tmp_path / "text8").read_bytes() == CONTENT


def test_a_broken_archive_is_reported_and_removed(server: Server, small: DataSet, tmp_path: Path) -> None:
    packed = bytearray(server.files["/text8.zip"])
    packed[60] ^= 1
    server.files["/text8.zip"] = bytes(packed)
    with pytest.raises(InvalidInput, match=r"text8.zip is broken .* and was removed"):
        download(small, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("end", ["%2e%2e", "%2e", "a%00b", "a%0ab", "x" * 300])
def test_a_url_that_ends_in_no_name_of_a_file_is_refused(
    server: Server, small: DataSet, tmp_path: Path, end: str
) -> None:
    with pytest.raises(InvalidInput, match="is not a valid file name"):
        download(small, tmp_path, url=f"{server.url}/{end}")
    assert list(tmp_path.iterdir()) == []


def test_an_unavailable_server_or_missing_file_is_reported(server: Server, small: DataSet, tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match=r"nothing.zip answered 404: .* --from"):
        download(small, tmp_path, url=f"{server.url}/nothing.zip")
    with pytest.raises(Unavailable, match=r"cannot be read .* --from"):
        download(small, tmp_path, url="http://127.0.0.1:9/text8.zip")
    for name in ("pile", "python"):
        with pytest.raises(InvalidInput, match=f"{name} cannot be downloaded: {name} is"):
            download(data_set(name), tmp_path)
    server.files["/other.zip"] = zipped({"other": b"x"})
    download(small, tmp_path, url=f"{server.url}/other.zip")
    with pytest.raises(NotFound, match="there is no text8"):
        prepare(small, tmp_path / "home", origin=tmp_path)


@pytest.mark.parametrize("url", ["http://[::1/text8.zip", "text8.zip", "ftp://a.example/x", "http://127.0.0.1:99999/x"])
def test_what_is_no_url_is_refused(url: str, small: DataSet, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="is not a valid URL"):
        download(small, tmp_path, url=url)


SMALL = Bounds(bytes=1 << 20, files=3)
NAMES = {"plain": b"one", "folder/\u00e9 " + "n" * 150: b"two", "a/b/deep": bytes(range(256)) * 3000}


def tar(files: Mapping[str, bytes], kind: bytes = tarfile.REGTYPE, format_: int = tarfile.PAX_FORMAT) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=format_) as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.size, entry.linkname = kind, len(data) if kind == tarfile.REGTYPE else 0, "plain"
            archive.addfile(entry, io.BytesIO(data))
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


NOISE = tar({"text": random.Random(0).randbytes(500_000)})
FOUR = dict.fromkeys("abcd", b"text")
WRONG = {
    "a path elsewhere": (tar({"../x": b""}), "outside"),
    "a zip's path elsewhere": (zipped({"a/../../x": b""}), "outside"),
    "a deep path elsewhere": (tar({"a/../../x": b""}), "outside"),
    "a path from the root": (tar({"/tmp/x": b""}), "outside"),
    "a zip's path from the root": (zipped({"/x": b""}), "outside"),
    "a path of Windows": (zipped({"..\\x": b"", "C:x": b""}), "outside"),
    "a zip's link": (zip_link("x", ".."), "link"),
    **{
        f"a special file of type {kind!r}": (tar({"x": b""}, kind), "'x' is a link or a special file")
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE)
    },
    "many files": (tar(FOUR), "more than 3 files and folders"),
    "a zip of many files": (zipped(FOUR), "more than 3 files and folders"),
    "many bytes": (gzip.compress(tar({"x": bytes(2 << 20)})), "more than 1,048,576 bytes"),
    "a zip of many bytes": (zipped({"x": bytes(2 << 20)}, zipfile.ZIP_DEFLATED), "more than 1,048,576 bytes"),
    "a zip that is damaged": (
        damaged(zipped({"x": random.Random(0).randbytes(9000)}, zipfile.ZIP_DEFLATED), 5000),
        "broken",
    ),
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
    return tar(NAMES, format_=kind)


@pytest.mark.parametrize("kind", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize(
    "made",
    [
        honest,
        lambda _: zipped(NAMES, zipfile.ZIP_DEFLATED),
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
