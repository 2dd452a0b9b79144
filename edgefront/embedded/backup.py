"""Backup and restore of an embedded service: database, artifacts, prepared data, key, and the agent's identity."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from edgefront.core.common.errors import Conflict, EdgefrontError, InvalidInput, NotFound
from edgefront.core.common.files import refusing_full_disk
from edgefront.core.services.settings import Settings
from edgefront.core.services.trainings.folder import files_in, folder_bytes
from edgefront.core.store.database import parse_url
from edgefront.embedded.service import locked_home

DATABASE = "edgefront.db"
_OF_HOME = ("key", "agent/credential.json", "agent/spool")


def back_up(settings: Settings, folder: Path) -> int:
    """Copies the data of the service of these settings, which may be running, into a new folder. Returns the bytes.

    The database comes first. What it names was written to disk before, so a file that is copied later is at most newer.

    Raises:
        Conflict: the folder has files.
        InvalidInput: the database is not a SQLite file.
        NotFound: there is no database.
        Unavailable: the disk is full. The folder is then as it was.
    """
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise Conflict(f"{folder} exists: a backup needs a new folder")
    database = _database_file(settings)
    if not database.is_file():
        raise NotFound(f"{database} does not exist: name the data folder of the service with --home")
    draft = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        with refusing_full_disk(folder / DATABASE):
            draft.mkdir(parents=True, mode=0o700)
            with closing(sqlite3.connect(database)) as source, closing(sqlite3.connect(draft / DATABASE)) as copy:
                try:
                    source.backup(copy)
                except sqlite3.OperationalError as error:
                    raise EdgefrontError(f"{folder / DATABASE} could not be written: {error}") from error
            for name, path in _parts(settings).items():
                _copy(path, draft / name)
        if folder.exists():
            folder.rmdir()
        draft.rename(folder)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder_bytes(folder)


def restore(settings: Settings, folder: Path) -> int:
    """Copies a backup to where the settings' service looks for its data. Returns the bytes.

    Raises:
        Conflict: the data folder has a database already, or a service runs in it.
        InvalidInput: the settings name a database that is not a SQLite file.
        NotFound: the folder is not a backup.
        Unavailable: the disk is full.
    """
    database, copied = _database_file(settings), folder / DATABASE
    if not copied.is_file():
        raise NotFound(f"{folder} is not a backup: it has no {DATABASE}")
    with locked_home(settings.home), refusing_full_disk(database):
        if database.exists():
            raise Conflict(f"{database} exists: restore into an empty data folder (--home)")
        for name, path in _parts(settings).items():
            _copy(folder / name, path)
        database.parent.mkdir(parents=True, exist_ok=True)
        draft = database.with_name(f".{database.name}.part")
        shutil.copy2(copied, draft)
        draft.rename(database)
    return folder_bytes(folder)


def _database_file(settings: Settings) -> Path:
    url = parse_url(settings.database_url)
    if url.get_backend_name() != "sqlite":
        raise InvalidInput(
            "database.url names a Postgres database: back that up with pg_dump, and the folder of artifacts after it",
            field="database.url",
            allowed="a SQLite file",
        )
    return Path(url.database or "")


def _parts(settings: Settings) -> dict[str, Path]:
    """Returns path in the backup → path of the service, of all files and folders but the database."""
    of_home = {name: settings.home / name for name in _OF_HOME}
    return {"artifacts": settings.artifact_folder, "data": settings.data_folder, **of_home}


def _copy(source: Path, target: Path) -> None:
    """Copies a file or a folder with its permissions. Files that disappear meanwhile were replaced by newer ones."""
    for path in [source] if source.is_file() else files_in(source):
        to = target if path == source else target / path.relative_to(source)
        to.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            shutil.copy2(path, to)
        except FileNotFoundError:
            if path.exists():
                raise
