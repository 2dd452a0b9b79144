"""Finds the data sets that were prepared on this machine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from edgefront.core.data.prepared.prepared import MANIFEST, Manifest, Prepared, open_prepared, read_manifest
from edgefront.core.errors import InvalidInput, NotFound

_FOLDER = re.compile(r"[0-9a-f]{64}")
_PREFIX = re.compile(r"[0-9a-f]{6,64}")


def prepared_in(home: Path) -> Iterator[tuple[Path, Manifest | InvalidInput]]:
    """Every prepared data set of this folder, the newest first; a damaged one comes with its error."""
    folders = [path for path in home.glob("*") if _FOLDER.fullmatch(path.name) and path.is_dir()]
    for folder in sorted(folders, key=lambda path: path.stat().st_mtime_ns, reverse=True):
        try:
            yield folder, open_prepared(folder).manifest
        except NotFound:
            yield folder, InvalidInput(f"{folder} has no {MANIFEST}: prepare it again", field="data")
        except InvalidInput as error:
            yield folder, error


def find_prepared(home: Path, name: str) -> Prepared:
    """A prepared data set by its name, by the first digits of its digest, or by its folder.

    Raises:
        NotFound: no data set has the name.
        InvalidInput: several data sets have the name, or it is damaged.
    """
    matching = [
        folder
        for folder, manifest in prepared_in(home)
        if (isinstance(manifest, Manifest) and manifest.name == name)
        or (_PREFIX.fullmatch(name) and folder.name.startswith(name))
    ]
    if len(matching) > 1:
        choices = ", ".join(f"{folder.name[:12]} ({_describe(folder)})" for folder in matching)
        raise InvalidInput(
            f"several prepared data sets are called {name!r}: {choices}; name one by its digest",
            field="data",
            value=name,
            allowed="the first digits of a digest",
        )
    if matching:
        return open_prepared(matching[0])
    if (Path(name) / MANIFEST).is_file():
        return open_prepared(Path(name).absolute())
    raise NotFound(
        f"no data set {name!r} is prepared in {home}; see `edgefront data list` and `edgefront data prepare`"
    )


def _describe(folder: Path) -> str:
    try:
        manifest = read_manifest(folder)
    except (NotFound, InvalidInput):
        return "damaged"
    return f"{manifest.level}, {manifest.vocab_size} tokens"
