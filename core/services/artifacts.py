"""Files for download: a candidate's model as ONNX or safetensors, or its architecture as JSON.

Weights are untrained, from the candidate's seed, and the file name says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from core.services.keys import Principal
from core.store.database import Database

Format = Literal["onnx", "safetensors", "architecture"]


@dataclass(frozen=True)
class ArtifactFile:
    """A file that is ready to be sent. `sha256` (of the bytes) is its ETag."""

    path: Path
    name: str
    media_type: str
    size: int
    sha256: str


def artifact_for(
    database: Database, principal: Principal, candidate_id: str, format: Format, folder: Path
) -> ArtifactFile:
    """The file, built once per (architecture, seed, format) and built again if it is missing from the disk.

    Takes the database, not a session: building can take seconds and holds no transaction. Concurrent requests are
    safe; a half-written file is never seen.

    Raises:
        NotFound: no such candidate, or not yours.
        InvalidInput: unknown format.
        Unavailable: the disk is full or the folder cannot be written.
    """
    raise NotImplementedError
