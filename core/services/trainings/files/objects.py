"""Objects by their keys on a store that a URL names: `s3://bucket/prefix`, `gs://…`, `file:///…`, through fsspec.

What a backend raises becomes `Unavailable`, or FileNotFoundError for an object that is not there. A URL may hold a
password; no message shows one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote
from uuid import uuid4

from edgefront.core.errors import InvalidInput, Unavailable

_BUCKETS = ("s3", "s3a", "gs", "gcs")
_LOCAL = ("file", "local")
_WITH_FOLDERS = (*_LOCAL, "sftp", "ssh", "ftp", "smb", "hdfs", "webhdfs")
_MOST_TEXT = 300
_QUERY = re.compile(r"(?<=\w)\?[^\s\"']+=[^\s\"']*")  # of a URL in a message: it may be signed


class ObjectStore:
    """Objects below one URL. Nothing is connected before the first call.

    Raises `InvalidInput` for a URL that makes no sense or needs a package that is not there.
    """

    def __init__(self, url: str) -> None:
        self._url, self._protocol = url, url.partition("://")[0]
        self.shown = shown(url)
        self._backend = self._class_of(url)
        self._root = str(self._backend._strip_protocol(url)).rstrip("/")
        if not self._root.strip("/"):
            raise self._invalid("names neither a bucket nor a folder")

    def check(self) -> None:
        """Writes, reads and removes an object. `Unavailable` where that fails."""
        key, content = f"checks/{uuid4().hex}", b"edgefront"
        self.write(key, content)
        with suppress(FileNotFoundError):
            if self.read(key) == content:
                return self.remove(key)
        raise Unavailable(f"the artifact store {self.shown} does not return what was written to it")

    def names(self, folder: str) -> list[str]:
        """Of what lies directly below a folder, objects and folders; none where there is no such folder."""
        found: list[str] = []
        with self._backend_errors(), suppress(FileNotFoundError):
            files = self._files
            files.invalidate_cache()
            found = files.ls(self._path(folder), detail=False)
        return sorted({path.rstrip("/").rsplit("/", 1)[-1] for path in found} - {folder.rsplit("/", 1)[-1]})

    def read(self, key: str, start: int | None = None, stop: int | None = None) -> bytes:
        """The bytes of an object from `start` up to `stop`. FileNotFoundError if there is no such object."""
        with self._backend_errors():
            return bytes(self._files.cat_file(self._path(key), start=start, end=stop))

    def write(self, key: str, content: bytes) -> None:
        with self._backend_errors(writes=True):
            self._make_folder(key)
            self._files.pipe_file(self._path(key), content)

    def upload(self, path: Path, key: str) -> None:
        with self._backend_errors(writes=True):
            self._make_folder(key)
            self._files.put_file(str(path), self._path(key))

    def remove(self, key: str) -> None:
        """Nothing if there is nothing."""
        with self._backend_errors(), suppress(FileNotFoundError):
            self._files.rm_file(self._path(key))

    def remove_folder(self, folder: str) -> None:
        """With all that is in it; nothing if there is nothing."""
        with self._backend_errors(), suppress(FileNotFoundError):
            files = self._files
            files.invalidate_cache()
            files.rm(self._path(folder), recursive=True)

    @property
    def _files(self) -> Any:
        """The backend. fsspec keeps one for each process, and for each thread where it holds a connection."""
        from fsspec.core import url_to_fs

        return url_to_fs(self._url)[0]

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    def _make_folder(self, key: str) -> None:
        if self._protocol in _WITH_FOLDERS:
            self._files.makedirs(self._path(key).rpartition("/")[0], exist_ok=True)

    @contextmanager
    def _backend_errors(self, *, writes: bool = False) -> Iterator[None]:
        """Turns whatever a backend raises (each has a tree of its own) into `Unavailable`."""
        try:
            yield
        except Exception as error:
            if isinstance(error, FileNotFoundError) and not writes:
                raise
            self._backend.clear_instance_cache()  # the connection may be broken
            detail = f"the artifact store {self.shown} is unavailable: {self._safe(error)}"
            raise Unavailable(detail) from None  # a trace of the cause could hold what is not to be shown

    def _safe(self, error: Exception) -> str:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        for secret in _secrets(self._url):
            text = text.replace(secret, "…")
        return _QUERY.sub("", text)[:_MOST_TEXT].rstrip(".")

    def _class_of(self, url: str) -> Any:
        if "::" in url:
            raise self._invalid("is a chain of URLs")
        if self._protocol in _BUCKETS and "@" in url:
            raise self._invalid(
                "contains credentials, which do not belong in the URL: set the store's own variables "
                "(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS)"
            )
        if self._protocol in _LOCAL and not url.partition("://")[2].startswith(("/", "~")):
            # supervisors have another working folder than the API
            raise self._invalid(f"is not absolute: write {self._protocol}:///folder")
        try:
            from fsspec.registry import get_filesystem_class, known_implementations
        except ImportError:
            raise self._invalid("needs the package fsspec: pip install fsspec") from None
        try:
            return get_filesystem_class(self._protocol)
        except ImportError as error:
            known = known_implementations.get(self._protocol, {})
            package = str(known.get("class", "")).partition(".")[0]
            way = f"pip install {package}" if package not in ("", "fsspec") else str(known.get("err", error))
            raise self._invalid(f"needs a package that is not installed: {way}") from None
        except ValueError as error:
            raise self._invalid(f"is not a store that fsspec supports: {self._safe(error)}") from None

    def _invalid(self, reason: str) -> InvalidInput:
        allowed = "a folder, or one URL: s3://bucket/prefix, gs://bucket/prefix, file:///folder, …"
        detail = f"EDGEFRONT_ARTIFACTS: {self.shown} {reason}"
        return InvalidInput(detail, field="artifacts", value=self.shown, allowed=allowed)


def check_store(url: str | None) -> None:
    """Before a service starts: raises `InvalidInput` or `Unavailable` where the settings' store cannot be used."""
    if url is not None:
        ObjectStore(url).check()


def shown(url: str) -> str:
    """The URL without what may be secret in it."""
    protocol, _, rest = url.partition("://")
    return f"{protocol}://{_parted(rest)[1]}"


def _parted(rest: str) -> tuple[str, str, str]:
    """User and password, place, query and fragment."""
    user, _, behind = rest.rpartition("@")
    place = behind.partition("?")[0].partition("#")[0]
    return user, place, behind[len(place) :].lstrip("?#")


def _secrets(url: str) -> list[str]:
    """All that `shown` leaves out, in the spellings in which a message may quote it."""
    user, _, query = _parted(url.partition("://")[2])
    found = {user, user.partition(":")[2], query}
    return sorted((found | {unquote(text) for text in found}) - {""}, key=len, reverse=True)
