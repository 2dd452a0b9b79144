"""Downloads: streamed, taken up where they broke, verified."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from rough_server import Rough, answer

from edgefront.client.client import Client
from edgefront.core.common.errors import EdgefrontError, NotFound, Unavailable

MODEL = bytes(range(256)) * 4000
CHECKSUM = hashlib.sha256(MODEL).hexdigest()
NAME = 'attachment; filename="gpt2-1234-untrained.onnx"'


@pytest.fixture
def client(rough: Rough) -> Iterator[Client]:
    with Client(rough.url, "efk_x", patience_s=60) as made:
        yield made


def model(*, stop_after: int | None = None, checksum: str = CHECKSUM) -> Callable[[BaseHTTPRequestHandler], None]:
    """Serves the model with Range and If-Range, and hangs up after so many bytes."""

    def send(handler: BaseHTTPRequestHandler) -> None:
        start = 0
        asked = handler.headers.get("range")
        if asked and handler.headers.get("if-range") == f'"{checksum}"':
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
        handler.send_response(206 if start else 200)
        handler.send_header("ETag", f'"{checksum}"')
        handler.send_header("Content-Length", str(len(MODEL) - start))
        handler.send_header("Content-Disposition", NAME)
        handler.end_headers()
        end = len(MODEL) if stop_after is None else start + stop_after
        handler.wfile.write(MODEL[start:end])
        handler.close_connection = True

    return send


def left_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_into_a_folder_under_the_servers_name(rough: Rough, client: Client, tmp_path: Path) -> None:
    rough.answers = [model()]
    told: list[tuple[int, int | None]] = []
    path = client.models.download("cnd_1", "onnx", tmp_path, progress=lambda done, total: told.append((done, total)))
    assert path == tmp_path / "gpt2-1234-untrained.onnx"
    assert path.read_bytes() == MODEL
    assert told[-1] == (len(MODEL), len(MODEL))
    assert left_in(tmp_path) == [path.name]


def test_a_broken_download_resumes_where_it_stopped(rough: Rough, client: Client, tmp_path: Path) -> None:
    rough.answers = [model(stop_after=300_000), model(stop_after=300_000), model()]
    path = client.models.download("cnd_1", "onnx", tmp_path / "mine.onnx")
    assert path.read_bytes() == MODEL
    assert [request[2].get("range") for request in rough.seen] == [None, "bytes=300000-", "bytes=600000-"]
    assert left_in(tmp_path) == ["mine.onnx"]


def test_a_later_call_resumes_too(rough: Rough, client: Client, tmp_path: Path) -> None:
    rough.answers = [model(stop_after=500_000), answer(404, b"{}")]
    with pytest.raises(NotFound):
        client.models.download("cnd_1", "onnx", tmp_path / "mine.onnx")
    assert not (tmp_path / "mine.onnx").exists()
    rough.answers = [model()]
    assert client.models.download("cnd_1", "onnx", tmp_path / "mine.onnx").read_bytes() == MODEL
    assert rough.seen[-1][2]["range"] == "bytes=500000-"


def test_files_of_another_version_are_removed(rough: Rough, client: Client, tmp_path: Path) -> None:
    other = "0" * 64
    (tmp_path / f".edgefront-cnd_1-onnx-{other}.part").write_bytes(b"not of this file")
    rough.answers = [model()]
    assert client.models.download("cnd_1", "onnx", tmp_path / "mine.onnx").read_bytes() == MODEL
    assert left_in(tmp_path) == ["mine.onnx"]


def test_damaged_bytes_are_never_put_in_place(rough: Rough, client: Client, tmp_path: Path) -> None:
    rough.answers = [model(checksum="f" * 64)]
    with pytest.raises(EdgefrontError, match="damaged"):
        client.models.download("cnd_1", "onnx", tmp_path / "mine.onnx")
    assert left_in(tmp_path) == []


def test_a_download_that_never_moves_is_given_up(rough: Rough, tmp_path: Path) -> None:
    rough.answers = [model(stop_after=0)]
    with Client(rough.url, "efk_x", patience_s=0.2) as client, pytest.raises(Unavailable):
        client.models.download("cnd_1", "onnx", tmp_path / "mine.onnx")


def test_a_server_cannot_choose_a_path_elsewhere(rough: Rough, client: Client, tmp_path: Path) -> None:
    headers = {"ETag": f'"{CHECKSUM}"', "Content_Disposition": 'attachment; filename="../../evil.onnx"'}
    rough.answers = [answer(200, MODEL, **headers)]
    assert client.models.download("cnd_1", "onnx", tmp_path).parent == tmp_path
