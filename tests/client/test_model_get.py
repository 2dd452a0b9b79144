"""`edgefront model get`: from a mirror of the Hub, a folder or a file to a measured file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import edgefront
from packages import lively

from edgefront.cli import exits
from edgefront.core.data.tokenizers.bpe import BPETokenizer
from edgefront.core.model_files.gguf_header import GgufHeader
from edgefront.core.training.evaluation.package import write_package
from http_server import QuietHandler, serving

COMMIT = "0" * 40
LAYER = [
    {"kind": "attention", "n_head": 2, "bias": "none"},
    {"kind": "feed_forward", "d_inner": 16384, "gated": True, "bias": False},
]
LLAMA = {"d_model": 64, "positions": {"kind": "rotary"}, "norm_kind": "rms", "activation": "silu", "blocks": LAYER}
SHORT = ("--prompt", "8", "--new", "2")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model, as one publishes it."""
    folder = tmp_path_factory.mktemp("published")
    tokenizer = BPETokenizer.train(iter(["the cat sat on the mat\n"]), 270)
    write_package(folder / "trained", lively(LLAMA, vocab_size=270), tokenizer, {"name": "tiny"})
    edgefront("model build --format transformers", str(folder / "trained"), "-o", str(folder / "tiny"), code=exits.OK)
    return folder / "tiny"


class Mirror(QuietHandler):
    """What `huggingface_hub` asks of the Hub, of one model."""

    folder: Path
    requests: list[str]
    breaks: list[int]
    """Bytes after which the next downloads of weights break off."""
    damaged = False

    def do_HEAD(self) -> None:  # noqa: N802
        self.do_GET()

    def do_GET(self) -> None:  # noqa: N802
        if self.path.startswith("/api/models/me/tiny/tree"):
            files = [{"type": "file", "path": file.name, "size": file.stat().st_size} for file in self.folder.iterdir()]
            other = {"type": "file", "path": "onnx/model.onnx", "size": 1, "oid": "0"}
            self.answer(json.dumps([{**file, "oid": "0"} for file in files] + [other]).encode(), {})
            return
        if self.path.startswith("/api/models/me/tiny"):
            self.answer(json.dumps({"id": "me/tiny", "sha": COMMIT}).encode(), {})
            return
        file = self.folder / self.path.rpartition("/")[2]
        if not self.path.startswith("/me/tiny/resolve/") or not file.is_file():
            self.send_error(404)
            return
        content = file.read_bytes()
        etag = hashlib.sha256(content).hexdigest()
        start = int((self.headers.get("range") or "bytes=0-").removeprefix("bytes=").partition("-")[0])
        if self.command == "GET":
            self.requests.append(f"{file.name} from {start}")
        end = len(content)
        if file.suffix == ".safetensors" and self.command == "GET":
            end = min(end, start + self.breaks.pop()) if self.breaks else end
            content = bytes(len(content)) if self.damaged else content
        self.answer(content[start:end], {"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT}, len(content) - start)

    def answer(self, body: bytes, headers: dict[str, str], length: int | None = None) -> None:
        self.send_response(206 if self.headers.get("range") else 200)
        for name, value in {**headers, "Content-Length": str(len(body) if length is None else length)}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)
        self.close_connection = True


@pytest.fixture
def mirror(published: Path) -> Iterator[tuple[type[Mirror], str]]:
    handler = type("Own", (Mirror,), {"folder": published, "requests": [], "breaks": []})
    with serving(handler) as url:
        yield handler, url


def test_a_published_model_is_downloaded_checked_converted_measured(
    mirror: tuple[type[Mirror], str], tmp_path: Path
) -> None:
    hub, url = mirror
    hub.breaks = [12 << 20]  # within the second chunk that `huggingface_hub` writes
    env = {"HF_ENDPOINT": url, "HF_HOME": str(tmp_path / "hub")}
    done = edgefront("model get me/tiny --weights q8_0", *SHORT, "-o", str(tmp_path), env=env, code=exits.OK)
    file = tmp_path / "tiny-q8_0.gguf"
    assert GgufHeader(file).fields["tokenizer.ggml.tokens"][-1]
    assert "tiny-q8_0.gguf: 2 tokens from a prompt of 8" in done.stdout
    assert f"llama-cli -m {file}" in done.stdout
    assert f"edgefront generate {file}" in done.stdout
    weights = [request for request in hub.requests if "safetensors" in request]
    assert weights == ["model.safetensors from 0", f"model.safetensors from {10 << 20}"]
    # A second time nothing is downloaded, and no file replaced unless asked.
    edgefront("model get me/tiny --weights q8_0", *SHORT, "-o", str(tmp_path), env=env, code=exits.REFUSED)
    assert len([request for request in hub.requests if "safetensors" in request]) == 2


def test_damaged_weights_are_refused_and_downloaded_again(mirror: tuple[type[Mirror], str], tmp_path: Path) -> None:
    hub, url = mirror
    env = {"HF_ENDPOINT": url, "HF_HOME": str(tmp_path / "hub")}
    hub.damaged = True
    done = edgefront("model get me/tiny", *SHORT, "-o", str(tmp_path), env=env, code=exits.SERVER_AWAY)
    assert "model.safetensors of me/tiny was damaged and removed" in done.stderr
    hub.damaged = False
    edgefront("model get me/tiny", *SHORT, "-o", str(tmp_path), env=env, code=exits.OK)


def test_without_a_network_a_folder_and_a_file_do(published: Path, tmp_path: Path) -> None:
    env = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path / "hub")}
    done = edgefront("model get me/other", env=env, code=exits.SERVER_AWAY)
    assert "me/other cannot be downloaded" in done.stderr
    edgefront("model get", str(published), "--weights", "q4_0", *SHORT, "-o", str(tmp_path), env=env, code=exits.OK)
    file = tmp_path / "tiny-q4_0.gguf"
    before = file.stat().st_mtime_ns
    # It is in that format: measured as it is.
    done = edgefront("model get --json", str(file), "--weights", "q4_0", *SHORT, "-o", str(tmp_path), code=exits.OK)
    assert json.loads(done.stdout)["contexts"][0]["file"] == str(file)
    assert file.stat().st_mtime_ns == before
    edgefront("model get", str(file), "--weights", "full", *SHORT, "-o", str(tmp_path / "my.4B"), code=exits.OK)
    assert [path.name for path in tmp_path.glob("my*")] == ["my.4B.gguf"]
    refused = edgefront("model get neither/a/model", code=exits.REFUSED)
    assert "neither a file nor a model of the Hub" in refused.stderr


def test_of_another_runtime_it_is_an_onnx_file(published: Path, tmp_path: Path) -> None:
    done = edgefront(
        "model get --runtime onnxruntime --weights int8", str(published), *SHORT, "-o", str(tmp_path), code=exits.OK
    )
    assert (tmp_path / "tiny-int8.onnx").is_file()
    assert "weights int8" in done.stderr
    assert f"edgefront generate {published}" in done.stdout
