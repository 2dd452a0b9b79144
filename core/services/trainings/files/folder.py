"""The files of a training: its folder, its log, and what can be downloaded of it.

Where the settings name an artifact store by a URL, the folder is a working copy that one claim of the training has on
this machine, and `core.services.trainings.files.store` says what is on the store. Files are read from the folder where
it is the last claim's, else from the store, into a cache.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from sqlalchemy.orm import Session

from edgefront.core.errors import NotFound, Unavailable
from edgefront.core.files import sha256, whole_file
from edgefront.core.services.access.keys import Principal
from edgefront.core.services.access.ownership import training_of
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.files.cache import fetched
from edgefront.core.services.trainings.files.objects import open_store
from edgefront.core.services.trainings.files.store import FOLDER, Damaged, Manifest, TrainingStore
from edgefront.core.training.run_folder import CHECKPOINTS, LOG, RESULT
from edgefront.core.wire.trainings import TrainingFile

MAX_LOG_BYTES = 1 << 20
"""At most so much of a log is shown at once."""
WEIGHTS = f"{RESULT}/model.safetensors"
_MOST_FILES = 10_000
_STEP = "step-"
_CLAIM = "claim"


@dataclass(frozen=True)
class FoundFile:
    """A file that is ready to be sent. `sha256` (of the bytes) is its ETag."""

    path: Path
    name: str
    size: int
    sha256: str


def training_folder(settings: Settings, training_id: str) -> Path:
    """Where a training keeps its state; see `core.training.run_folder`."""
    return settings.artifact_folder / FOLDER / training_id


def training_store(settings: Settings, training_id: str) -> TrainingStore | None:
    """What the artifact store has of a training; None where the folder is all that there is."""
    return None if settings.artifact_url is None else TrainingStore(open_store(settings.artifact_url), training_id)


def claim_of(folder: Path) -> int | None:
    """The fence of the claim whose working copy the folder is; None if that is not known."""
    try:
        return int((folder / _CLAIM).read_bytes())
    except (OSError, ValueError):
        return None


def mark_claim(folder: Path, fence: int | None) -> None:
    """From now on the folder is the working copy of this claim; of none while it is not whole."""
    if fence is None:
        (folder / _CLAIM).unlink(missing_ok=True)
        return
    with whole_file(folder / _CLAIM) as file:
        file.write(f"{fence}\n".encode())


def weights_file(settings: Settings, training_id: str) -> Path:
    """Where the weights of a training that is done lie, beside the other files of its result."""
    folder, stored = training_folder(settings, training_id), training_store(settings, training_id)
    manifest = None if stored is None else stored.newest()
    if stored is None or manifest is None or (weights := manifest.find(WEIGHTS)) is None:
        return folder / WEIGHTS
    for file in manifest.below(RESULT):
        place = fetched(settings, stored, manifest, file)
        if file == weights:
            folder = place.parent.parent
    return folder / WEIGHTS


@dataclass(frozen=True)
class TrainingFiles:
    """What can be downloaded of a training. Made within a session, read without one: that may take long."""

    settings: Settings
    training_id: str
    stored: TrainingStore | None
    """None where the folder on this machine is what counts."""

    @property
    def folder(self) -> Path:
        return training_folder(self.settings, self.training_id)

    def listed(self) -> list[TrainingFile]:
        """The result's files, and those of the newest checkpoint."""
        return self._listed(self._manifest())

    def file(self, path: str) -> FoundFile:
        """A file on the list; NotFound for any other path, wherever it leads."""
        manifest = self._manifest()
        file = None if manifest is None else manifest.find(path)
        if path not in {listed.path for listed in self._listed(manifest)}:
            raise NotFound(f"training {self.training_id} has no file {path!r}: its list names those that it has")
        if self.stored is None or manifest is None or file is None:
            return opened(self.folder / path, self.training_id, path)
        try:
            place = fetched(self.settings, self.stored, manifest, file)
        except Damaged:
            if self._manifest() == manifest:
                raise
            return self.file(path)  # it was replaced just now
        return FoundFile(place, _shown(self.training_id, path), file.size, file.sha256)

    def log(self, lines: int) -> str:
        """The last lines of what the run printed; empty before it has printed anything."""
        text = None if self.stored is None else self.stored.tail(LOG, MAX_LOG_BYTES + 1)
        return tail(self.folder / LOG, lines) if text is None else _last_lines(text, lines)

    def _listed(self, manifest: Manifest | None) -> list[TrainingFile]:
        if manifest is None:
            return _files(self.folder)
        found = [*manifest.below(RESULT)]
        for folder in list(manifest.checkpoints().values())[-1:]:
            found += manifest.below(folder)
        return [TrainingFile(path=file.path, size=file.size, modified_at=file.modified_at) for file in found]

    def _manifest(self) -> Manifest | None:
        return None if self.stored is None else self.stored.newest()


def files_of(session: Session, principal: Principal, training_id: str, settings: Settings) -> TrainingFiles:
    """What can be downloaded of a training. NotFound if it is not theirs."""
    training = training_of(session, principal, training_id)
    stored = training_store(settings, training.id)
    if stored is not None and claim_of(training_folder(settings, training.id)) == training.fence:
        stored = None  # nobody has gone on with it since it ran here, if it does not still run
    return TrainingFiles(settings, training.id, stored)


def opened(path: Path, training_id: str, name: str) -> FoundFile:
    """The file with its size and SHA-256, which is taken once for each state of the file."""
    try:
        state = path.stat()
        key = (str(path), state.st_size, state.st_mtime_ns)
        with _guard:
            known = _hashes.get(key)
        if known is None:
            known = sha256(path)
            with _guard:
                _hashes[key] = known
                while len(_hashes) > _MOST_FILES:
                    _hashes.popitem(last=False)
    except FileNotFoundError:
        raise NotFound(f"training {training_id} has no file {name!r} any more") from None
    except OSError as error:
        raise Unavailable(f"the server cannot read {name}: {error.strerror or error}") from error
    return FoundFile(path, _shown(training_id, name), state.st_size, known)


def tail(path: Path, lines: int) -> str:
    """The last lines of a text file, at most `MAX_LOG_BYTES` of them; empty if there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - MAX_LOG_BYTES - 1))
            text = file.read(MAX_LOG_BYTES + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise Unavailable(f"the server cannot read {path.name}: {error.strerror or error}") from error
    return _last_lines(text, lines)


def _last_lines(text: bytes, lines: int) -> str:
    """Of the end of a text: one that is longer than `MAX_LOG_BYTES` has its first line cut."""
    shown = text[-MAX_LOG_BYTES:].decode("utf-8", errors="replace").splitlines(keepends=True)
    if len(text) > MAX_LOG_BYTES:
        shown = shown[1:]
    return "".join(shown[-lines:]).replace("\0", "\ufffd")  # which no database takes as text


def checkpoint_folders(folder: Path) -> list[Path]:
    """The complete checkpoints by rising step."""
    return [folder / CHECKPOINTS / name for _, name in _checkpoints(folder)]


def newest_checkpoint(folder: Path) -> int | None:
    """The step of the newest complete checkpoint; None if there is none."""
    return max((step for step, _ in _checkpoints(folder)), default=None)


def _checkpoints(folder: Path) -> list[tuple[int, str]]:
    try:
        names = os.listdir(folder / CHECKPOINTS)
    except OSError:
        return []
    found = [(name.removeprefix(_STEP), name) for name in names if name.startswith(_STEP)]
    return sorted((int(step), name) for step, name in found if step.isdigit())


def _files(folder: Path) -> list[TrainingFile]:
    found: list[TrainingFile] = []
    places = [folder / RESULT]
    places += checkpoint_folders(folder)[-1:]
    for place in places:
        for parent, _, names_ in os.walk(place):  # follows no links
            for name in sorted(names_):
                path = Path(parent) / name
                if name.startswith(".") or path.is_symlink():
                    continue
                try:
                    state = path.stat()
                except OSError:  # a checkpoint that was just replaced by the next
                    continue
                found.append(
                    TrainingFile(
                        path=path.relative_to(folder).as_posix(),
                        size=state.st_size,
                        modified_at=datetime.fromtimestamp(state.st_mtime, timezone.utc),
                    )
                )
    return found


def _shown(training_id: str, path: str) -> str:
    return f"{training_id}-{path.replace('/', '-')}"


_hashes: OrderedDict[tuple[str, int, int], str] = OrderedDict()
_guard = threading.Lock()
