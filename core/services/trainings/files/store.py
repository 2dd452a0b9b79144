"""A training's files on the artifact store: what each claim puts there, and how it is read.

    trainings/ID/000000007/3fa9…-model.safetensors    objects of the claim with fence 7, by their content
    trainings/ID/000000007-000000003.json             its third manifest: paths, sizes and SHA-256 of a whole state
    deleted/ID                                         the training was deleted

Objects are written first and the manifest last, and readers believe manifests alone: a state is there whole or not at
all. A claim writes below its own fence only, and removes nothing of a later one, so a supervisor that has lost its
lease and does not know it harms nobody. The truth is the newest manifest, that of the highest fence.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from edgefront.core.errors import Conflict, Unavailable
from edgefront.core.files import sha256
from edgefront.core.services.trainings.files.objects import ObjectStore
from edgefront.core.training.run_folder import CHECKPOINTS, LIMIT, LOG, METRICS, STATUS

FOLDER, DELETED = "trainings", "deleted"
JOURNAL = (METRICS, STATUS, LIMIT, LOG)
"""What a run tells of itself, and goes on with."""
_MANIFEST = re.compile(r"(\d{9,})-(\d{9,})\.json")
_FENCE = re.compile(r"\d{9,}")
_STEP = re.compile(rf"{CHECKPOINTS}/(step-(\d+))/.+")
_PROGRESS = "trainer.json"
_TRIES = 10

_log = logging.getLogger(__name__)


class Damaged(Unavailable):
    """An object on the store is not what its manifest says."""


class Superseded(Conflict):
    """A later claim writes to the store by now."""


class _Overtaken(Exception):
    """What a manifest names is gone, because there is a newer one."""


def _below(path: str) -> str:
    if PurePosixPath(path).is_absolute() or not set(path.split("/")).isdisjoint({"", ".", ".."}):
        raise ValueError("a path leads out of its folder")
    return path


class StoredFile(BaseModel):
    """One file of a training's folder."""

    model_config = ConfigDict(frozen=True)

    path: Annotated[str, AfterValidator(_below)]
    size: int
    sha256: str
    modified_at: datetime


class Manifest(BaseModel):
    """All that a training has on the store at one moment."""

    model_config = ConfigDict(frozen=True)

    format: Literal[1] = 1
    fence: int
    number: int
    files: tuple[StoredFile, ...]

    def find(self, path: str) -> StoredFile | None:
        return next((file for file in self.files if file.path == path), None)

    def below(self, folder: str) -> tuple[StoredFile, ...]:
        return tuple(file for file in self.files if file.path.startswith(f"{folder}/"))

    def checkpoints(self) -> dict[int, str]:
        """Step → folder, by rising step."""
        found = {match[2]: match[1] for file in self.files if (match := _STEP.fullmatch(file.path))}
        return {int(step): f"{CHECKPOINTS}/{name}" for step, name in sorted(found.items(), key=lambda of: int(of[0]))}


@dataclass(frozen=True)
class Fetched:
    """A working copy that was fetched: its step, and in words what of the store was left out as damaged."""

    step: int | None
    damaged: tuple[str, ...] = ()


class TrainingStore:
    """Reads one training's files. Methods raise `Unavailable` while the store is away."""

    def __init__(self, store: ObjectStore, training_id: str) -> None:
        self.store, self.training_id = store, training_id
        self.root = f"{FOLDER}/{training_id}"

    def newest(self) -> Manifest | None:
        """The newest whole state; None before the first."""
        for _ in range(_TRIES):
            names = [name for name in self.store.names(self.root) if _MANIFEST.fullmatch(name)]
            for name in sorted(names, key=_place, reverse=True):
                try:
                    return Manifest.model_validate_json(self.store.read(f"{self.root}/{name}"))
                except FileNotFoundError:  # replaced by a newer one just now
                    break
                except ValidationError:
                    _log.warning("%s/%s is not a whole manifest; the one before it counts", self.root, name)
            else:
                return None
        raise Unavailable(f"training {self.training_id} on the artifact store changes faster than it can be read")

    def key(self, manifest: Manifest, file: StoredFile) -> str:
        return f"{self.root}/{object_name(manifest.fence, file.path, file.sha256)}"

    def download(self, manifest: Manifest, file: StoredFile, path: Path) -> None:
        """Writes the file to `path`, which must not be there.

        Raises `Damaged` for an object that is not as it was noted, or not there.
        """
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            self.store.download(self.key(manifest, file), path)
        except FileNotFoundError:
            raise self._missing(file) from None
        if (found := sha256(path)) != file.sha256:
            path.unlink()
            raise Damaged(
                f"{file.path} of training {self.training_id} is damaged on the artifact store: its SHA-256 is "
                f"{found[:12]}…, and should be {file.sha256[:12]}…"
            )

    def tail(self, path: str, most: int) -> bytes | None:
        """The last bytes of a file, not compared with its hash; None if there is no such file."""
        while True:
            manifest = self.newest()
            file = None if manifest is None else manifest.find(path)
            if manifest is None or file is None:
                return None
            if file.size == 0:
                return b""
            try:
                return self.store.read_from(self.key(manifest, file), max(0, file.size - most))
            except FileNotFoundError:
                if self.newest() == manifest:
                    raise self._missing(file) from None

    def fetch(self, into: Path) -> Fetched | None:
        """Fills a folder with what a run goes on from; None if the store has nothing of the training.

        That is its journal, its newest checkpoint and the best. One that is damaged, or whose best is, is left out,
        and the one before it taken.
        """
        while (manifest := self.newest()) is not None:
            shutil.rmtree(into, ignore_errors=True)
            into.mkdir(parents=True)
            try:
                return self._fetch(manifest, into)
            except _Overtaken:
                continue
        return None

    def remove(self) -> None:
        """All of it. A mark stays, so that other machines remove their copies."""
        self.store.write(f"{DELETED}/{self.training_id}", b"")
        self.store.remove_folder(self.root)

    def _fetch(self, manifest: Manifest, into: Path) -> Fetched:
        wrong: list[str] = []
        for name in JOURNAL:
            if (file := manifest.find(name)) is not None:
                self._get(manifest, [file], into, wrong)
        steps = manifest.checkpoints()
        had: dict[int, bool] = {}

        def get(step: int) -> bool:
            if step not in had:
                had[step] = step in steps and self._get(manifest, manifest.below(steps[step]), into, wrong)
            return had[step]

        for step in reversed(steps):
            if get(step) and ((best := _best_step(into / steps[step])) is None or get(best)):
                for other in set(had) & set(steps) - {step, best}:
                    shutil.rmtree(into / steps[other], ignore_errors=True)
                return Fetched(step, tuple(wrong))
        shutil.rmtree(into / CHECKPOINTS, ignore_errors=True)
        return Fetched(None, tuple(wrong))

    def _get(self, manifest: Manifest, files: Iterable[StoredFile], into: Path, wrong: list[str]) -> bool:
        """Whether all of them are there and right; else what is wrong is noted."""
        for file in files:
            try:
                self.download(manifest, file, into / file.path)
            except Damaged as error:
                if self.newest() != manifest:
                    raise _Overtaken from None
                _log.error("%s", error.detail)
                wrong.append(error.detail)
                return False
        return True

    def _missing(self, file: StoredFile) -> Damaged:
        return Damaged(f"{file.path} of training {self.training_id} is missing on the artifact store")


class ClaimStore:
    """Puts a training's files on the store under one claim. One process, one thread; its fence is nobody else's."""

    def __init__(self, stored: TrainingStore, fence: int) -> None:
        self._stored, self._store = stored, stored.store
        self._root, self._fence, self._number = stored.root, fence, 0
        self._before: dict[str, str] | None = None
        self._begun: set[str] = set()
        self._there: set[str] = set()
        self._hashes: dict[tuple[str, int, int, int], str] = {}

    def publish(self, files: Mapping[str, Path]) -> Manifest:
        """Makes these files (path in the training's folder → where it lies) what the store has of the training.

        They must not change meanwhile. What was published before goes, once these are complete. Raises `Superseded`
        where a later claim has begun to write.
        """
        names = self._store.names(self._root)
        latest = max(_place(name)[0] for name in (*names, ""))
        if latest > self._fence:
            raise Superseded(f"claim {latest} of training {self._stored.training_id} writes to the artifact store")
        if self._before is None:
            before = self._stored.newest()
            self._before = {} if before is None else {f.sha256: self._stored.key(before, f) for f in before.files}
        former, self._hashes = self._hashes, {}
        found = [self._file(path, files[path], former) for path in sorted(files)]
        manifest = Manifest(fence=self._fence, number=self._number + 1, files=tuple(found))
        for file in found:
            self._put(file, files[file.path])
        self._store.write(f"{self._root}/{self._named(manifest.number)}", manifest.model_dump_json(indent=1).encode())
        self._number += 1
        self._before = {}
        self._prune(manifest, names)
        return manifest

    def _file(self, path: str, source: Path, former: Mapping[tuple[str, int, int, int], str]) -> StoredFile:
        state = source.stat()
        key = (path, state.st_ino, state.st_size, state.st_mtime_ns)
        self._hashes[key] = former.get(key) or sha256(source)
        modified = datetime.fromtimestamp(state.st_mtime, timezone.utc)
        return StoredFile(path=path, size=state.st_size, sha256=self._hashes[key], modified_at=modified)

    def _put(self, file: StoredFile, source: Path) -> None:
        name = object_name(self._fence, file.path, file.sha256)
        if name in self._there:
            return
        self._begun.add(name)
        key, taken_over = f"{self._root}/{name}", False
        if (before := (self._before or {}).get(file.sha256)) is not None:
            try:
                self._store.copy(before, key)  # from the state that this one goes on from
                taken_over = True
            except (FileNotFoundError, Unavailable) as error:
                _log.info("%s is sent anew: %s", file.path, error)
        if not taken_over:
            self._store.upload(source, key)
        self._there.add(name)

    def _prune(self, manifest: Manifest, names: list[str]) -> None:
        """Removes what no manifest names any more. What cannot be removed now is removed the next time."""
        kept = {object_name(self._fence, file.path, file.sha256) for file in manifest.files}
        try:
            for name in names:
                if _MANIFEST.fullmatch(name) and _place(name) < (self._fence, manifest.number):
                    self._store.remove(f"{self._root}/{name}")
                elif _FENCE.fullmatch(name) and int(name) < self._fence:
                    self._store.remove_folder(f"{self._root}/{name}")
            for name in self._begun - kept:
                self._there.discard(name)
                self._store.remove(f"{self._root}/{name}")
                self._begun.discard(name)
        except Unavailable as error:
            _log.warning("not removed yet: %s", error.detail)

    def _named(self, number: int) -> str:
        return f"{self._fence:09d}-{number:09d}.json"


def _place(name: str) -> tuple[int, int]:
    """Fence and number of a manifest; of a claim's folder, its fence and 0; zeros for anything else."""
    if match := _MANIFEST.fullmatch(name):
        return int(match[1]), int(match[2])
    return (int(name) if _FENCE.fullmatch(name) else 0), 0


def object_name(fence: int, path: str, sha256: str) -> str:
    return f"{fence:09d}/{sha256[:16]}-{path.rsplit('/', 1)[-1]}"


def _best_step(checkpoint: Path) -> int | None:
    """The step of the best checkpoint so far, as this one knows it (`core.training.checkpoint`, without torch)."""
    try:
        found = json.loads((checkpoint / _PROGRESS).read_bytes()).get("best_step")
    except (OSError, ValueError, AttributeError):
        return None
    return found if isinstance(found, int) else None
