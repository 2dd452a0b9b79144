"""A training's folder as it is at one moment, to be uploaded while the run goes on writing into it."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from edgefront.core.services.trainings.files.folder import JOURNAL, checkpoints_in, files_in
from edgefront.core.training.run_folder import RESULT


def snapshot(folder: Path, into: Path, *, result: bool) -> dict[str, Path]:
    """What is to be uploaded of a folder: path → where it lies and stays as it is.

    Checkpoints never change but are removed when newer ones come: each is linked, or copied where there are no links.
    """
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    for name in JOURNAL:
        with suppress(FileNotFoundError):
            shutil.copy2(folder / name, into / name)
    for place in (*checkpoints_in(folder).values(), *([folder / RESULT] if result else [])):
        held = into / place.relative_to(folder)
        try:
            shutil.copytree(place, held, symlinks=True, copy_function=_link)
        except (FileNotFoundError, shutil.Error):
            if place.is_dir():
                raise
            shutil.rmtree(held, ignore_errors=True)  # the run has removed it meanwhile
    return {path.relative_to(into).as_posix(): path for path in files_in(into)}


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        shutil.copy2(source, target)
