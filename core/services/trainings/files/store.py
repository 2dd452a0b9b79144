"""A training's files on the artifact store: how each claim publishes them, and how they are read.

    trainings/ID/000000007/3fa9…-model.safetensors    objects of the claim with fence 7, by their content

The manifest (paths, sizes and SHA-256 of a complete state) is a column of the training's row. Objects are written
first, then the manifest, and readers use only objects that it names: publishing is atomic. The row takes a manifest
only from the current claim, and a claim removes nothing of a later one, so a supervisor that has lost its lease without
knowing it does no harm.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict

from edgefront.core.errors import NotFound, Unavailable
from edgefront.core.files import whole_file
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.files.folder import FOLDER, JOURNAL, WEIGHTS, hashed
from edgefront.core.services.trainings.files.objects import ObjectStore
from edgefront.core.services.trainings.queries import trainings as rows
from edgefront.core.store.database import Database
from edgefront.core.training.run_folder import CHECKPOINTS, RESULT

_FENCE = re.compile(r"\d{9,}")
_STEP = re.compile(rf"({CHECKPOINTS}/step-(\d+))/.+")
_PROGRESS = "trainer.json"
_CHUNK = 8 << 20

_log = logging.getLogger(__name__)


class Damaged(Unavailable):
    """An object on the store is not what its manifest says."""


class Replaced(NotFound):
    """The state that was being read was replaced by a newer one, or deleted."""


def _below(path: str) -> str:
    if PurePosixPath(path).is_absolute() or not set(path.split("/")).isdisjoint({"", ".", ".."}):
        raise ValueError("a path leads out of its folder")
    return path


class ManifestEntry(BaseModel):
    """One file of a training's folder."""

    model_config = ConfigDict(frozen=True)

    path: Annotated[str, AfterValidator(_below)]
    size: int
    sha256: str
    modified_at: datetime


class TrainingManifest(BaseModel):
    """All files of a training on the store at one moment."""

    model_config = ConfigDict(frozen=True)

    fence: int
    files: tuple[ManifestEntry, ...]

    def find(self, path: str) -> ManifestEntry | None:
        return next((file for file in self.files if file.path == path), None)

    def below(self, folder: str) -> tuple[ManifestEntry, ...]:
        return tuple(file for file in self.files if file.path.startswith(f"{folder}/"))

    def checkpoints(self) -> dict[int, str]:
        """Step → folder, by rising step."""
        by_step = {int(match[2]): match[1] for file in self.files if (match := _STEP.fullmatch(file.path))}
        return dict(sorted(by_step.items()))

    def object_name(self, file: ManifestEntry) -> str:
        return f"{self.fence:09d}/{file.sha256[:16]}-{file.path.rsplit('/', 1)[-1]}"


@dataclass(frozen=True)
class Fetched:
    """A downloaded working copy: its step, and messages on damaged files that were left out."""

    step: int | None
    damaged: tuple[str, ...] = ()


class TrainingStore:
    """Reads one training's files. Methods raise `Unavailable` while the store or the database is unavailable.

    `read_manifest` reads the manifest of the training's row.
    """

    def __init__(
        self, store: ObjectStore, training_id: str, read_manifest: Callable[[], TrainingManifest | None]
    ) -> None:
        self.store, self.training_id, self._read_manifest = store, training_id, read_manifest
        self.root = f"{FOLDER}/{training_id}"

    def newest(self) -> TrainingManifest | None:
        """The newest complete state; None before the first."""
        return self._read_manifest()

    def key(self, manifest: TrainingManifest, file: ManifestEntry) -> str:
        return f"{self.root}/{manifest.object_name(file)}"

    def chunks(self, manifest: TrainingManifest, file: ManifestEntry, start: int, stop: int) -> Iterator[bytes]:
        """The bytes of a file from `start` up to `stop`, even if a later claim stores the file again meanwhile.

        Raises `Damaged` for an object that is missing or too short and, before the last chunk of a whole file, for a
        wrong SHA-256; `Replaced` for one that no manifest names any more.
        """
        hashed, at = hashlib.sha256(), start
        while at < stop:
            end = min(at + _CHUNK, stop)
            try:
                chunk = self.store.read(self.key(manifest, file), at, end)
            except FileNotFoundError:
                manifest = self._newer(manifest, file)
                continue
            hashed.update(chunk)
            if len(chunk) != end - at:
                raise self._damaged(file, "it is truncated")
            if end - start == file.size and hashed.hexdigest() != file.sha256:
                actual, right = hashed.hexdigest()[:12], file.sha256[:12]
                raise self._damaged(file, f"its SHA-256 is {actual}…, and should be {right}…")
            yield chunk
            at = end

    def download(self, manifest: TrainingManifest, file: ManifestEntry, path: Path) -> None:
        """Writes the whole file to `path`, or nothing; raises what `chunks` does."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as local:
            for chunk in self.chunks(manifest, file, 0, file.size):
                local.write(chunk)

    def tail(self, path: str, most: int) -> bytes | None:
        """The last bytes of a file; None if there is no such file."""
        while (manifest := self.newest()) is not None and (file := manifest.find(path)) is not None:
            try:
                return b"".join(self.chunks(manifest, file, max(0, file.size - most), file.size))
            except Replaced:
                continue
        return None

    def fetch(self, into: Path) -> Fetched | None:
        """Downloads the files from which a run resumes; None if the store has none of the training.

        They are its journal, its newest checkpoint and the best. If one of the two is damaged, the previous checkpoint
        is used instead.
        """
        while (manifest := self.newest()) is not None:
            shutil.rmtree(into, ignore_errors=True)
            into.mkdir(parents=True)
            try:
                return self._fetch(manifest, into)
            except Replaced:
                continue
        return None

    def fetch_result(self, into: Path) -> bool:
        """Downloads the result of a finished training; False if its weights are not on the store."""
        manifest = self.newest()
        if manifest is None or manifest.find(WEIGHTS) is None:
            return False
        for file in manifest.below(RESULT):
            self.download(manifest, file, into / file.path)
        return True

    def _fetch(self, manifest: TrainingManifest, into: Path) -> Fetched:
        damaged: dict[str, None] = {}

        def get(files: tuple[ManifestEntry, ...]) -> bool:
            try:
                for file in files:
                    self.download(manifest, file, into / file.path)
            except Damaged as error:
                _log.error("%s", error.detail)
                damaged[error.detail] = None
                return False
            return True

        for file in manifest.files:
            if file.path in JOURNAL:
                get((file,))
        steps = {step: manifest.below(folder) for step, folder in manifest.checkpoints().items()}
        for step in reversed(steps):
            if get(steps[step]):
                best = _best_step(into / manifest.checkpoints()[step])
                if best is None or best == step or (best in steps and get(steps[best])):
                    return Fetched(step, tuple(damaged))
            shutil.rmtree(into / CHECKPOINTS, ignore_errors=True)
        return Fetched(None, tuple(damaged))

    def _newer(self, manifest: TrainingManifest, file: ManifestEntry) -> TrainingManifest:
        """A newer manifest that names the file, after its object was removed."""
        newest = self.newest()
        if newest == manifest:
            raise self._damaged(file, "it is missing")
        if newest is None or (entry := newest.find(file.path)) is None or entry.sha256 != file.sha256:
            raise Replaced(f"training {self.training_id} has no file {file.path!r} any more")
        return newest

    def _damaged(self, file: ManifestEntry, how: str) -> Damaged:
        return Damaged(f"{file.path} of training {self.training_id} is damaged on the artifact store: {how}")


def training_store(settings: Settings, database: Database, training_id: str) -> TrainingStore | None:
    """The store of a training's files; None without an artifact store."""
    if settings.artifact_url is None:
        return None

    def read_manifest() -> TrainingManifest | None:
        with database.read() as session:
            document = rows.manifest_of(session, training_id)
        return None if document is None else TrainingManifest.model_validate(document)

    return TrainingStore(ObjectStore(settings.artifact_url), training_id, read_manifest)


class Publisher:
    """Publishes a training's files under one claim. One thread of one process uses it; no other claim has its fence.

    `record` stores a manifest in the training's row, or raises if the claim is no longer the current one.
    """

    def __init__(self, stored: TrainingStore, fence: int, record: Callable[[TrainingManifest], None]) -> None:
        self._store, self._root, self._fence, self._record = stored.store, stored.root, fence, record
        self._uploaded: set[str] = set()

    def publish(self, files: Mapping[str, Path]) -> TrainingManifest:
        """Publishes these files (path in the training's folder → path on the disk) as the complete state of the
        training.

        They must not change meanwhile. Files of earlier states are removed after that. Raises what `record` does.
        """
        entries = tuple(_entry(path, files[path]) for path in sorted(files))
        manifest = TrainingManifest(fence=self._fence, files=entries)
        for entry in entries:
            if (name := manifest.object_name(entry)) not in self._uploaded:
                self._store.upload(files[entry.path], f"{self._root}/{name}")
                self._uploaded.add(name)
        self._record(manifest)
        self._prune(manifest)
        return manifest

    def _prune(self, manifest: TrainingManifest) -> None:
        """Removes what earlier claims wrote, and own objects that the manifest does not name. What cannot be removed
        now is removed the next time.
        """
        self._uploaded &= {manifest.object_name(entry) for entry in manifest.files}
        own = f"{self._fence:09d}"
        try:
            for name in self._store.names(self._root):
                if _FENCE.fullmatch(name) and int(name) < self._fence:
                    self._store.remove_folder(f"{self._root}/{name}")
            for name in self._store.names(f"{self._root}/{own}"):
                if f"{own}/{name}" not in self._uploaded:
                    self._store.remove(f"{self._root}/{own}/{name}")
        except Unavailable as error:
            _log.warning("not removed yet: %s", error.detail)


def _entry(path: str, source: Path) -> ManifestEntry:
    state, digest = hashed(source)
    modified_at = datetime.fromtimestamp(state.st_mtime, timezone.utc)
    return ManifestEntry(path=path, size=state.st_size, sha256=digest, modified_at=modified_at)


def _best_step(checkpoint: Path) -> int | None:
    """The step of the best checkpoint, as recorded in this one (`core.training.checkpoint`, without torch)."""
    try:
        step = json.loads((checkpoint / _PROGRESS).read_bytes()).get("best_step")
    except (OSError, ValueError, AttributeError):
        return None
    return step if isinstance(step, int) else None
