"""Downloads models and other files. Downloads are streamed, resumed, verified, and renamed when complete."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from edgefront.client.transport import Query, Resource, Transport, segment
from edgefront.core.architectures.cost.passes import Logits
from edgefront.core.common.errors import Conflict, EdgefrontError, Unavailable
from edgefront.core.common.files import refusing_full_disk, sha256
from edgefront.core.common.number_formats import NumberFormat
from edgefront.core.model_files.model_file import ModelFormat
from edgefront.core.schemas.service import ImportedModel

Progress = Callable[[int, "int | None"], None]
"""Progress callback: called with the received and the total bytes (None while unknown)."""

_READ_TIMEOUT_S = 300.0
"""Read timeout in seconds. The server may build the file of a large model, or its checksum, before the first byte."""
_SHA256 = re.compile(r'^"?([0-9a-f]{64})"?$')
_FILE_NAME = re.compile(r'filename="([^"/\\]+)"')


@dataclass
class Download:
    """A download of a file whose ETag is its SHA-256.

    `path` is the path of the file, or a folder: the file then gets the name that the server sends, else `default_name`.
    The bytes are written to a hidden `.part` file, named by `key`, in the same folder. An interrupted download resumes
    from that `.part` file, also in a later call. The `.part` file is renamed once its SHA-256 equals the ETag. An
    existing equal file is not downloaded again.
    """

    transport: Transport
    url: str
    path: Path
    key: str
    default_name: str
    params: Query | None = None
    replace: bool = True
    progress: Progress | None = None
    received: int = 0

    def fetch(self) -> Path:
        """Downloads the file and returns its path.

        Raises `Conflict` if the path is a device or pipe, or (without `replace`) a different file; raises `Unavailable`
        on a full disk, after removing the `.part` file.
        """
        try:
            return self._in_attempts()
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            for part in self._folder.glob(f"{self._prefix}*.part"):
                part.unlink(missing_ok=True)
            with refusing_full_disk(self.path):
                raise

    @property
    def _prefix(self) -> str:
        return f".edgefront-{self.key}-"

    @property
    def _folder(self) -> Path:
        return self.path if self.path.is_dir() else self.path.parent

    def _in_attempts(self) -> Path:
        end, previous = 0.0, -1
        while True:
            try:
                return self._attempt()
            except Unavailable:
                now = time.monotonic()
                if self.received > previous:
                    previous, end = self.received, now + self.transport.patience_s
                elif now > end:
                    raise
                time.sleep(0.5)

    def _attempt(self) -> Path:
        folder = self._folder
        if not folder.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(folder))
        part, checksum = self._partial_file(folder)
        headers = {"Accept": "*/*", "Accept-Encoding": "identity"}
        if part is not None:
            headers |= {"Range": f"bytes={part.stat().st_size}-", "If-Range": f'"{checksum}"'}
        with self.transport.stream(
            self.url, params=self.params, headers=headers, read_timeout_s=_READ_TIMEOUT_S
        ) as response:
            etag = _SHA256.match(response.headers.get("etag", ""))
            if etag is None:
                raise EdgefrontError(f"{response.request.url.copy_with(query=None)} does not send the file's SHA-256")
            expected = etag.group(1)
            resumed = response.status_code == 206 and part is not None and expected == checksum
            fresh = folder / f"{self._prefix}{expected}.part"
            if part is not None and part != fresh:
                part.unlink(missing_ok=True)
            target = folder / _file_name(response, self.default_name) if self.path.is_dir() else self.path
            if self._is_complete(target, expected):
                fresh.unlink(missing_ok=True)
                return target
            self._receive(response, fresh, resumed)
        return self._finish(fresh, target, expected)

    def _is_complete(self, target: Path, expected: str) -> bool:
        """Whether `target` is the complete file. Raises `Conflict` if `target` is another file, without `replace`."""
        if not target.exists():
            return False
        if not target.is_file():
            raise Conflict(f"{target} is not a file: choose another path")
        if sha256(target) == expected:
            return True
        if not self.replace:
            raise Conflict(f"{target} exists and is another file: replace it with --force, or choose another path")
        return False

    def _partial_file(self, folder: Path) -> tuple[Path | None, str]:
        """Returns the non-empty `.part` file of an earlier attempt and the checksum of the complete file, if any."""
        for part in folder.glob(f"{self._prefix}*.part"):
            checksum = part.name[len(self._prefix) : -len(".part")]
            if _SHA256.match(checksum) and part.stat().st_size:
                return part, checksum
        return None, ""

    def _receive(self, response: httpx.Response, part: Path, resumed: bool) -> None:
        with part.open("ab" if resumed else "wb") as file:
            self.received = file.tell()
            length = response.headers.get("content-length")
            total = self.received + int(length) if length else None
            self._report_progress(total)
            for chunk in response.iter_raw():
                file.write(chunk)
                self.received += len(chunk)
                self._report_progress(total)
        if total is not None and self.received < total:
            raise Unavailable(f"the download stopped after {self.received} of {total} bytes")

    def _report_progress(self, total: int | None) -> None:
        if self.progress is not None:
            self.progress(self.received, total)

    def _finish(self, part: Path, target: Path, expected: str) -> Path:
        actual = sha256(part)
        if actual != expected:
            part.unlink()
            raise EdgefrontError(
                f"{target.name} was damaged during the download: its SHA-256 is {actual}, expected {expected}; "
                "try again"
            )
        part.replace(target)
        return target


def _file_name(response: httpx.Response, default_name: str) -> str:
    match = _FILE_NAME.search(response.headers.get("content-disposition", ""))
    return match.group(1) if match and not match.group(1).startswith(".") else default_name


class Models(Resource):
    """The models of the service, `client.models`."""

    def import_config(self, config: Mapping[str, Any]) -> ImportedModel:
        """Converts a Hugging Face `config.json`, given as a mapping, into an architecture description. Nothing is
        stored.

        Raises `InvalidInput` with all fields that cannot be expressed: `error.extra["errors"]`.
        """
        return self._transport.ask(ImportedModel, "POST", "/v1/models/import", body=dict(config), repeatable=True)

    def download(
        self,
        candidate_id: str,
        format: ModelFormat = "onnx",  # noqa: A002
        path: str | os.PathLike[str] = ".",
        *,
        numbers: NumberFormat | None = None,
        logits: Logits | None = None,
        replace: bool = True,
        progress: Progress | None = None,
    ) -> Path:
        """Downloads a candidate's model and returns the file's path. An existing different file is replaced with
        `replace`; otherwise raises `Conflict`.

        `numbers`: number format of an ONNX or GGUF file, as in a measurement with that dtype or those weights.
        `logits`: positions whose logits an ONNX file computes. Both are by default what was measured, where the format
        has it. `path` is the path of the file, or a folder: the file then gets the name that the server sends. The
        bytes are written to a hidden `.part` file in the same folder. An interrupted download resumes from that `.part`
        file, also in a later call. The `.part` file is renamed only after its SHA-256 equals the server's ETag.

        Raises `InvalidInput` that names `format` if the model cannot have a file of this format (an encoder has no
        decoding graph), or `numbers` or `logits` if the format does not support them.
        """
        return model_download(
            self._transport,
            f"/v1/candidates/{segment(candidate_id)}/model",
            candidate_id,
            format,
            numbers,
            logits,
            Path(path),
            replace=replace,
            progress=progress,
        )


def model_download(
    transport: Transport,
    url: str,
    model_id: str,
    format: ModelFormat,  # noqa: A002
    numbers: NumberFormat | None,
    logits: Logits | None,
    path: Path,
    *,
    replace: bool,
    progress: Progress | None,
) -> Path:
    """Downloads one file of the model of a candidate or a training."""
    params = {"format": format, "numbers": numbers, "logits": logits}
    key = "-".join((segment(model_id), *filter(None, params.values())))
    return Download(transport, url, path, key, model_id, params, replace, progress).fetch()
