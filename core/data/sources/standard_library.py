"""The text that every machine has: Python's standard library, its source with the documentation in it."""

from __future__ import annotations

import sysconfig
from pathlib import Path

from edgefront.core.data.sources.corpus import Corpus, Shares, by_hash
from edgefront.core.errors import NotFound
from edgefront.core.files import sha256

_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
"""What is not the library's own, and its tests, which are more than half of it."""


def standard_library(shares: Shares, root: Path | None = None) -> Corpus:
    """The source files in the order of the hash of what is in them, each in the split that this hash gives.

    In the order of their names a row of a short training would read one package, tables of character sets perhaps.

    `NotFound` on an installation that has no source.
    """
    root = Path(root or sysconfig.get_path("stdlib"))
    files = [path for path in sorted(root.rglob("*.py"), key=Path.as_posix) if _is_its_own(path, root)]
    splits = by_hash(sorted(files, key=sha256), shares)
    if splits is None:
        raise NotFound(f"the Python installation in {root} has no source of its standard library, or too little of it")
    return Corpus("python", root, splits)


def _is_its_own(path: Path, root: Path) -> bool:
    if _LEFT_OUT.intersection(path.relative_to(root).parts) or not path.stat().st_size:
        return False
    try:
        path.read_text(encoding="utf-8")
    except UnicodeDecodeError:  # a few may declare another encoding
        return False
    return True
