"""A small prepared data set, made from numbers: counting aloud, which a model of a few thousand weights can learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from edgefront.core.data.prepared.planning import Preparation
from edgefront.core.data.prepared.preparation import prepare


def prepared_text(folder: Path, **settings: Any) -> Path:
    """The folder of a data set, by default of bytes, with about 4,000 of them to train on."""
    text = folder / "counting.txt"
    text.write_text("".join(f"{number} and {number + 1} make {2 * number + 1}\n" for number in range(220)))
    return prepare(str(text), folder / "prepared", settings=Preparation(**{"level": "bytes"} | settings)).folder
