"""Temporary folders for child processes. A killed process leaves its folder, which a later process removes."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from edgefront.core.common.errors import Unavailable
from edgefront.core.common.files import only_holder

CHILD = "ef-"
"""Prefix of the folders that child processes create in the work folder."""
_PREFIX = "edgefront-work-"
_LOCK = "lock"
_NEW_S = 60.0
"""Minimum age of an abandoned folder, in seconds, because a newer folder may not be locked yet."""


@contextmanager
def work_folder() -> Iterator[Path]:
    """Creates a folder in the system's temporary directory and removes the folder at the end. First removes the folders
    of this user's killed processes.
    """
    _remove_abandoned(Path(tempfile.gettempdir()))
    with (
        tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name,
        only_holder(Path(name) / _LOCK, Unavailable(f"another process uses {name}")),
    ):
        yield Path(name)


@contextmanager
def working_in(folder: Path | str) -> Iterator[None]:
    """Changes the working directory within the `with` block, for libraries that need relative or short paths."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _remove_abandoned(place: Path) -> None:
    for folder in place.glob(f"{_PREFIX}*"):
        with suppress(OSError, Unavailable):
            status = folder.lstat()
            # A folder without a lock file may be in use, because the system removes old files.
            is_own = not hasattr(os, "getuid") or status.st_uid == os.getuid()
            is_ours = stat.S_ISDIR(status.st_mode) and is_own and (folder / _LOCK).is_file()
            if is_ours and time.time() - status.st_mtime > _NEW_S:
                with only_holder(folder / _LOCK, Unavailable(f"a running process uses {folder}")):
                    shutil.rmtree(folder, ignore_errors=True)
