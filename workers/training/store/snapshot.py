"""A snapshot of a training's folder, to be uploaded while the run continues to write into it."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from edgefront.core.services.trainings.files.folder import JOURNAL, checkpoints_in, files_in
from edgefront.core.training.run_folder import RESULT, TENSORBOARD


def snapshot(folder: Path, into: Path, *, result: bool) -> dict[str, Path]:
    """The files of a folder to upload: path in the folder → path of an unchanging copy.

    Checkpoints never change but are removed when newer ones are written: each is hard-linked, or copied if links are
    not supported.
    """
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    for name in JOURNAL:
        with suppress(FileNotFoundError):
            shutil.copy2(folder / name, into / name)
    for path in files_in(folder / TENSORBOARD):
        (into / TENSORBOARD).mkdir(exist_ok=True)
        with suppress(FileNotFoundError):
            shutil.copy2(path, into / TENSORBOARD / path.name)
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
