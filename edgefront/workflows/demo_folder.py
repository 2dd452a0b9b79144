"""The folder that a demo writes to: reused by the next demo, and never a folder with other files."""

from __future__ import annotations

import shutil
from pathlib import Path

from edgefront.core.errors import Conflict
from edgefront.embedded.lock import own_home

_MARKER = ".edgefront-demo"


class DemoFolder:
    """`service/` (data of the embedded service), `models/`, and the picture.

    Files of an earlier demo are removed, so that all shown results are new. `Conflict` if the folder has any other
    files, or if a demo runs in it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.service = path / "service"
        self.models = path / "models"
        self.picture = path / "frontier.png"

    def prepare(self) -> None:
        if self.path.exists() and not self.path.is_dir():
            raise Conflict(f"{self.path} is a file: give another folder with --output")
        if self.path.is_dir() and any(self.path.iterdir()):
            if not (self.path / _MARKER).exists():
                raise Conflict(
                    f"{self.path} contains other files, and the demo empties its folder: choose another one (--output)"
                )
            if self.service.is_dir():
                with own_home(self.service):  # another running demo must not lose its files
                    shutil.rmtree(self.service)
            shutil.rmtree(self.models, ignore_errors=True)
            self.picture.unlink(missing_ok=True)
        self.models.mkdir(parents=True, exist_ok=True)
        (self.path / _MARKER).touch()
