"""Objects by key on the store of a URL: `s3://bucket/prefix`, `gs://…`, `file:///…`, through fsspec.

Exceptions of a backend become `Unavailable`, or FileNotFoundError for a missing object. A URL may contain a password;
no message shows it.
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
_MAX_TEXT = 300
_QUERY = re.compile(r"(?<=\w)\?[^\s\"']+=[^\s\"']*")  # of a URL in a message: it may be signed


class ObjectStore:
    """Objects below one URL. Nothing is connected before the first call.

    Raises `InvalidInput` for an invalid URL, or one that needs a package that is not installed.
    """

    def __init__(self, url: str) -> None:
        self._url, self._protocol = url, url.partition("://")[0]
        self.shown = shown(url)
        self._backend = self._class_of(url)
        self._root = str(self._backend._strip_protocol(url)).rstrip("/")
        if not self._root.strip("/"):
            raise self._invalid("names neither a bucket nor a folder")

    def check(self) -> None:
        """Writes, reads and removes an object. `Unavailable` if that fails."""
        key, content = f"checks/{uuid4().hex}", b"edgefront"
        self.write(key, content)
        with suppress(FileNotFoundError):
            if self.read(key) == content:
                return self.remove(key)
        raise Unavailable(f"the artifact store {self.shown} does not return what was written to it")

    def names(self, folder: str) -> list[str]:
        """Names of the objects and folders directly in a folder; empty if there is no such folder."""
        paths: list[str] = []
        with self._backend_errors(), suppress(FileNotFoundError):
            files = self._files
            files.invalidate_cache()
            paths = files.ls(self._path(folder), detail=False)
        return sorted({path.rstrip("/").rsplit("/", 1)[-1] for path in paths} - {folder.rsplit("/", 1)[-1]})

    def size(self, folder: str) -> int:
        """Bytes of all objects below a folder; 0 if there is none."""
        with self._backend_errors():
            try:
                files = self._files
                files.invalidate_cache()
                return int(files.du(self._path(folder)))
            except FileNotFoundError:
                return 0

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
        """Removes an object, if it exists."""
        with self._backend_errors(), suppress(FileNotFoundError):
            self._files.rm_file(self._path(key))

    def remove_folder(self, folder: str) -> None:
        """Removes a folder with its contents, if it exists."""
        with self._backend_errors(), suppress(FileNotFoundError):
            files = self._files
            files.invalidate_cache()
            files.rm(self._path(folder), recursive=True)

    @property
    def _files(self) -> Any:  # fsspec has no types
        """The backend. fsspec caches one per process, or per thread if it has a connection."""
        from fsspec.core import url_to_fs

        return url_to_fs(self._url)[0]

    def _path(self, key: str) -> str:
        return f"{self._root}/{key}"

    def _make_folder(self, key: str) -> None:
        if self._protocol in _WITH_FOLDERS:
            self._files.makedirs(self._path(key).rpartition("/")[0], exist_ok=True)

    @contextmanager
    def _backend_errors(self, *, writes: bool = False) -> Iterator[None]:
        """Turns any exception of a backend (each has its own hierarchy) into `Unavailable`."""
        try:
            yield
        except Exception as error:
            if isinstance(error, FileNotFoundError) and not writes:
                raise
            self._backend.clear_instance_cache()  # the connection may be broken
            detail = f"the artifact store {self.shown} is unavailable: {self._safe(error)}"
            raise Unavailable(detail) from None  # a traceback of the cause could contain secrets

    def _safe(self, error: Exception) -> str:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        for secret in _secrets(self._url):
            text = text.replace(secret, "…")
        return _QUERY.sub("", text)[:_MAX_TEXT].rstrip(".")

    def _class_of(self, url: str) -> Any:  # fsspec has no types
        if "::" in url:
            raise self._invalid("is a chain of URLs")
        if self._protocol in _BUCKETS and "@" in url:
            raise self._invalid(
                "contains credentials, which do not belong in the URL: set the store's own variables "
                "(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS)"
            )
        if self._protocol in _LOCAL and not url.partition("://")[2].startswith(("/", "~")):
            # the working directory of supervisors is not that of the API
            raise self._invalid(f"is not absolute: write {self._protocol}:///folder")
        try:
            from fsspec.registry import get_filesystem_class, known_implementations
        except ImportError:
            raise self._invalid("needs the package fsspec: pip install fsspec") from None
        try:
            return get_filesystem_class(self._protocol)
        except ImportError as error:
            implementation = known_implementations.get(self._protocol, {})
            package = str(implementation.get("class", "")).partition(".")[0]
            way = f"pip install {package}" if package not in ("", "fsspec") else str(implementation.get("err", error))
            raise self._invalid(f"needs a package that is not installed: {way}") from None
        except ValueError as error:
            raise self._invalid(f"is not a store that fsspec supports: {self._safe(error)}") from None

    def _invalid(self, reason: str) -> InvalidInput:
        allowed = "a folder, or one URL: s3://bucket/prefix, gs://bucket/prefix, file:///folder, …"
        detail = f"EDGEFRONT_ARTIFACTS: {self.shown} {reason}"
        return InvalidInput(detail, field="artifacts", value=self.shown, allowed=allowed)


def check_store(url: str | None) -> None:
    """Called before a service starts: raises `InvalidInput` or `Unavailable` if the configured store cannot be used."""
    if url is not None:
        ObjectStore(url).check()


def shown(url: str) -> str:
    """The URL without parts that may be secret."""
    protocol, _, rest = url.partition("://")
    return f"{protocol}://{_parted(rest)[1]}"


def _parted(rest: str) -> tuple[str, str, str]:
    """User and password, host and path, query and fragment."""
    user, _, behind = rest.rpartition("@")
    place = behind.partition("?")[0].partition("#")[0]
    return user, place, behind[len(place) :].lstrip("?#")


def _secrets(url: str) -> list[str]:
    """The secret parts of the URL, in all encodings that a message may contain."""
    user, _, query = _parted(url.partition("://")[2])
    parts = {user, user.partition(":")[2], query}
    return sorted((parts | {unquote(text) for text in parts}) - {""}, key=len, reverse=True)
