"""A training's folder as the working copy of a claim, where the artifact store has the files that count.

The store is the truth. A folder is gone on with only where it is the copy of the very claim before: then nobody else
has had the training in between, and it is at least as far as what was uploaded of it. Any other copy, however far it
is, is replaced by what the store has, for that is what others have gone on from.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from edgefront.core.services.trainings.files.folder import checkpoint_folders, claim_of, mark_claim
from edgefront.core.services.trainings.files.store import JOURNAL, Fetched
from edgefront.core.training.run_folder import CHECKPOINTS, RESULT

FETCHED, HELD = ".fetched-", ".upload-"
"""What is fetched and what is being uploaded lies in the training's folder, with the claim's fence behind these."""


def is_of_claim_before(folder: Path, fence: int) -> bool:
    """Whether the claim with this fence may go on with the folder as it is."""
    return claim_of(folder) == fence - 1


def replace_copy(folder: Path, part: Path, fetched: Fetched | None, fence: int) -> None:
    """Makes the folder this claim's copy, with what was fetched into `part`.

    Where the store has nothing of the training, the folder stays: it is from before there was a store, or all that is
    left.
    """
    if fetched is not None:
        mark_claim(folder, None)
        for name in (CHECKPOINTS, RESULT):
            shutil.rmtree(folder / name, ignore_errors=True)
        for name in JOURNAL:
            (folder / name).unlink(missing_ok=True)
        for name in (*JOURNAL, CHECKPOINTS):
            with suppress(FileNotFoundError):
                (part / name).rename(folder / name)
    shutil.rmtree(part, ignore_errors=True)
    mark_claim(folder, fence)


def clear_parts(folder: Path) -> None:
    """Removes what supervisors that were killed have left of fetching and uploading: it may hold old checkpoints."""
    for left in (*folder.glob(f"{FETCHED}*"), *folder.glob(f"{HELD}*")):
        shutil.rmtree(left, ignore_errors=True)


def hold_still(folder: Path, into: Path, *, result: bool) -> dict[str, Path]:
    """What is to be uploaded of a folder while a run writes into it: path → where it lies and stays as it is.

    Checkpoints never change but are removed when newer ones come: each is linked, or copied where there are no links.
    """
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(parents=True)
    found: dict[str, Path] = {}
    for checkpoint in checkpoint_folders(folder):
        files = _held(checkpoint, folder, into)
        if checkpoint.is_dir():  # it was there all the time, so this is all of it
            found |= files
    for name in JOURNAL:
        with suppress(FileNotFoundError):
            shutil.copy2(folder / name, into / name)
            found[name] = into / name
    return found | (_held(folder / RESULT, folder, into) if result else {})


def _held(place: Path, folder: Path, into: Path) -> dict[str, Path]:
    found = {}
    for parent, _, names in os.walk(place):  # follows no links
        for name in names:
            path = Path(parent) / name
            if name.startswith(".") or path.is_symlink():
                continue
            held = into / path.relative_to(folder)
            held.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                try:
                    os.link(path, held)
                except FileNotFoundError:
                    raise
                except OSError:
                    shutil.copy2(path, held)
                found[path.relative_to(folder).as_posix()] = held
    return found
